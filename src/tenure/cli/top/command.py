"""`tenure top`: a live view of queues, jobs, timers, locks and replicas in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from tenure.app import Tenure
from tenure.cli.jobs.table import document as job_document
from tenure.cli.locks.table import by_name
from tenure.cli.locks.table import document as lock_document
from tenure.cli.options import span
from tenure.cli.queues import document as queue_document
from tenure.cli.replicas import document as replica_document
from tenure.cli.target import Target, place, store_command
from tenure.cli.text import instant, plain
from tenure.stores.contract import Store

__all__ = ["top"]

_INTERVAL_MIN = 0.2
_NO_LIMIT = 100_000


@click.command(
    epilog="""\b
Examples:
  tenure top                                    the store of $TENURE_URL
  tenure top redis://cache/0 --every 5s
  tenure top shop.tasks:app
  tenure top | head                             how it stands now, as plain lines

Keys: tab or 1 to 5 choose a list, the arrows a row; enter looks into it; p pauses or resumes a
queue or timer, c cancels and r requeues a job, each after a question; / filters, ? helps, q
quits."""
)
@click.argument("what", metavar="[URL|MODULE:APP]", required=False)
@click.option(
    "--every",
    metavar="TIME",
    callback=span,
    default="1s",
    show_default=True,
    help="How often to read the store.",
)
@store_command
def top(target: Target, what: str | None, *, every: float) -> None:
    """Show what needs attention, queues, jobs, timers, locks and replicas, live.

    In a pipe, and with --json, it answers once.
    """
    from tenure.cli.top.terminal import is_usable  # noqa: PLC0415 - other commands start faster

    if every < _INTERVAL_MIN:
        raise click.BadParameter("it must be at least 200ms.", param_hint="'--every'")
    target = target.pointed_at(what)
    if target.screen.as_json or not is_usable():
        _answer(target)
        return
    with suppress(KeyboardInterrupt):  # as good an end as q
        # During an outage it is wanted most, so it starts without the store as well.
        target.run_app(lambda app, store: _run(app, store, every), connect="lazy")


async def _run(app: Tenure, store: Store, every: float) -> None:
    from tenure.cli.top.program import Program  # noqa: PLC0415 - as above
    from tenure.cli.top.terminal import Terminal  # noqa: PLC0415 - as above

    title = f"{place(store.url)}  namespace {store.namespace}"
    await Program(app, Terminal(), title, every).run()


def _answer(target: Target) -> None:
    """Show how the store stands now."""
    from tenure.cli.top.data import Picture, read  # noqa: PLC0415 - as above

    target.announce()

    async def look(app: Tenure, store: Store) -> tuple[Picture, dict[str, Any]]:
        return await read(app), target.about(store)

    picture, about = target.run_app(look)
    width = target.screen.width if target.screen.is_terminal else _NO_LIMIT
    target.screen.answer({**about, **_document(picture)}, *_lines(picture, width))


def _lines(picture: Any, width: int) -> Iterator[RenderableType]:
    from tenure.cli.top.grid import Cell, Row, drawn  # noqa: PLC0415 - as above
    from tenure.cli.top.panes import PANES, rows_of  # noqa: PLC0415 - as above
    from tenure.cli.top.view import attention_lines  # noqa: PLC0415 - as above

    yield from attention_lines(picture.attention, width, len(picture.attention))
    for pane in PANES:
        yield Text()
        rows = rows_of(pane, picture)
        if not rows:
            yield Text(f"{pane.title}: {pane.empty}")
            continue
        if pane.title == "Jobs" and width == _NO_LIMIT:  # programs want whole ids
            rows = [Row(row.key, (row.cells[0], Cell(row.key), *row.cells[2:])) for row in rows]
        header, lines = drawn(pane.columns, rows, width)
        yield Text(f"{pane.title}: {len(rows):,}", "bold")
        yield header
        yield from lines


def _document(picture: Any) -> dict[str, Any]:
    jobs = [job_document(job) for job in picture.jobs]
    for job in jobs:
        del job["arguments"], job["headers"]
    return {
        "time": instant(picture.now),
        "attention": [
            {name: line[name] for name in ("level", "text", "next")} for line in picture.attention
        ],
        "queues": [queue_document(queue, picture.now) for queue in picture.queues],
        "jobs": jobs,
        "timers": [plain(view.info) for view in picture.timers.timers],
        "timers_paused": plain(picture.timers.pause),
        "locks": [lock_document(lock) for lock in by_name(picture.leases)],
        "replicas": [replica_document(replica, picture.memory) for replica in picture.replicas],
    }
