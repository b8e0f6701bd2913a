"""`tenure jobs`: what was asked for, how it went, and ending or repeating it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import click
from rich.text import Text

from tenure.cli.job_views import document, full_document, listed, shown
from tenure.cli.show import safe
from tenure.cli.target import Target, store_command
from tenure.core.ids import is_job_id
from tenure.core.records import BATCH_MAX
from tenure.core.states import STATES, JobState
from tenure.jobs import Job, Jobs
from tenure.stores.contract import Store

__all__ = ["jobs"]

T = TypeVar("T")

# The most jobs to ask a store for at once.
_PAGE = 200


@click.group(
    epilog="""\b
Examples:
  tenure jobs ls --state failed
  tenure jobs show 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs requeue 01890a5d-ac96-774b-bcce-b302099a8057"""
)
def jobs() -> None:
    """See what was asked for and how it went; cancel or repeat it."""


@jobs.command(
    epilog="""\b
Examples:
  tenure jobs ls                                the newest 50
  tenure jobs ls --state running --queue mail
  tenure jobs ls --state failed --all --json | jq -r '.jobs[].id' | xargs -r tenure jobs requeue"""
)
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--task", help="Only jobs of this task.")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The most to list."
)
@click.option("--cursor", help="Go on where an earlier list ended.")
@click.option("--all", "everything", is_flag=True, help="List all, however many there are.")
@store_command
def ls(
    target: Target,
    *,
    state: JobState | None,
    task: str | None,
    queue: str | None,
    tag: str | None,
    limit: int,
    cursor: str | None,
    everything: bool,
) -> None:
    """List jobs, newest first."""
    target.announce()
    wanted = {"state": state, "task": task, "queue": queue, "tag": tag}

    async def look(
        store: Store,
    ) -> tuple[dict[str, Any], list[Job[Any]], str | None, int]:
        found, following = await _find(store, wanted, cursor, None if everything else limit)
        return target.about(store), found, following, await store.now()

    about, found, following, now = target.run(look)
    answer = {**about, "jobs": [document(job) for job in found], "cursor": following}
    narrowed = any(value is not None for value in (*wanted.values(), cursor))
    nothing = Text("No job fits." if narrowed else "There are no jobs.")
    target.screen.answer(answer, listed(found, now) if found else nothing)
    if following is not None:
        target.screen.aside(f"There may be more: go on with --cursor {following}, or use --all.")


async def _find(
    store: Store, wanted: dict[str, Any], cursor: str | None, limit: int | None
) -> tuple[list[Job[Any]], str | None]:
    """Return up to `limit` jobs, and where to go on. Pages may be short and not the last one."""
    found: list[Job[Any]] = []
    looking = Jobs(store, {})
    while True:
        room = _PAGE if limit is None else min(_PAGE, limit - len(found))
        page = await looking.page(**wanted, limit=room, cursor=cursor)
        found += page
        cursor = page.cursor
        if cursor is None or len(found) == limit:
            return found, cursor


@jobs.command(
    epilog="""\b
Example:
  tenure jobs show 01890a5d-ac96-774b-bcce-b302099a8057"""
)
@click.argument("job_id", metavar="ID")
@store_command
def show(target: Target, job_id: str) -> None:
    """Tell all about one job: arguments, attempts, the last error, the result."""
    target.announce()

    async def look(store: Store) -> tuple[dict[str, Any], Job[Any], int]:
        job = await Jobs(store, {}).job(job_id)
        return target.about(store), job, await store.now()

    about, job, now = target.run(look)
    target.screen.answer({**about, **full_document(job)}, *shown(job, now))


@jobs.command(
    epilog="""\b
Examples:
  tenure jobs cancel 01890a5d-ac96-774b-bcce-b302099a8057 --reason 'sent twice'
  tenure jobs ls --tag import --all --json | jq -r '.jobs[].id' | xargs -r tenure jobs cancel"""
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", help="Why; shown with the job.")
@store_command
def cancel(target: Target, ids: tuple[str, ...], *, reason: str) -> None:
    """Cancel jobs.

    What waits never starts. What runs is told to stop, and is cancelled when its handler has
    stopped.
    """
    _do_with_each(
        target,
        ids,
        lambda store, some: store.cancel(some, reason=reason[:1000]),
        {
            "cancelled": "Cancelled",
            "requested": "Told to stop",
            "finished": "Had finished already:",
        },
        wrong=(),
    )


@jobs.command(
    epilog="""\b
Examples:
  tenure jobs requeue 01890a5d-ac96-774b-bcce-b302099a8057
  tenure jobs ls --state failed --all --json | jq -r '.jobs[].id' | xargs -r tenure jobs requeue"""
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@store_command
def requeue(target: Target, ids: tuple[str, ...]) -> None:
    """Let finished jobs run again, with all their tries.

    That goes for failed ones, cancelled ones, and those that have succeeded.
    """
    _do_with_each(
        target,
        ids,
        lambda store, some: store.requeue(some),
        {
            "requeued": "Requeued",
            "unfinished": "Has not finished, so it cannot be requeued:",
            "conflict": "Another job has its unique key by now:",
        },
        wrong=("unfinished", "conflict"),
    )


def _do_with_each(
    target: Target,
    ids: Sequence[str],
    call: Callable[[Store, Sequence[str]], Any],
    words: dict[str, str],
    wrong: Sequence[str],
) -> None:
    """Do it to all jobs that are named, say what came of each, end with 2 if one went wrong."""
    target.announce()
    known = [*dict.fromkeys(one for one in ids if is_job_id(one))]

    async def act(store: Store) -> tuple[dict[str, Any], dict[str, str | None]]:
        answers: dict[str, str | None] = {}
        for some in _slices(known):
            answers |= zip(some, await call(store, some), strict=True)
        return target.about(store), answers

    about, answers = target.run(act)
    outcomes = [(one, answers.get(one) or "not found") for one in dict.fromkeys(ids)]
    words = {**words, "not found": "There is no job"}
    target.screen.answer(
        {**about, "jobs": [{"id": one, "outcome": outcome} for one, outcome in outcomes]},
        *(Text(f"{words[outcome]} {safe(one)}") for one, outcome in outcomes),
    )
    if any(outcome in ("not found", *wrong) for _, outcome in outcomes):
        raise click.exceptions.Exit(2)


def _slices(items: Sequence[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while some := [*islice(rest, BATCH_MAX)]:
        yield some
