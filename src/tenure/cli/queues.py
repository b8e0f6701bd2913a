"""`tenure queues`: list, pause and resume queues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NamedTuple

import click
from rich.console import RenderableType
from rich.text import Text

from tenure.app import Tenure
from tenure.cli.pauses import because, how_long, pause_options, time_left
from tenure.cli.tables import Cell, ShrinkingCell, table
from tenure.cli.target import Target, store_command, store_group
from tenure.cli.text import duration, plain, safe
from tenure.core.jobs.records import COUNT_MAX, QueueCounts
from tenure.core.jobs.view import as_datetime
from tenure.core.leases import check_name
from tenure.stores.contract import Store

__all__ = ["document", "paused", "queues"]


@store_group(
    epilog="""\b
Examples:
  tenure queues ls
  tenure queues pause mail --for 10m --reason 'mail server moves'
  tenure queues resume mail""",
)
def queues() -> None:
    """List, pause and resume queues."""


@queues.command(
    epilog="""\b
Examples:
  tenure queues ls
  tenure queues ls --json | jq '[.queues[].waiting] | add'"""
)
@store_command
def ls(target: Target) -> None:
    """List queues with their numbers of waiting and running jobs.

    OLDEST is how long the oldest due job has waited. Lists only queues that are paused or have
    unfinished jobs.
    """
    target.announce()

    async def look(store: Store) -> tuple[list[QueueCounts], int]:
        return await store.jobs.counts(), (await store.ping()).now

    counts, now = target.run(look)
    nothing = Text("No queue has unfinished jobs or is paused.")
    answer = {
        **target.about(target.store()),
        "queues": [document(queue, now) for queue in counts],
    }
    target.screen.answer(answer, _table(counts, now) if counts else nothing)


@queues.command(
    epilog="""\b
Examples:
  tenure queues pause mail                 until 'tenure queues resume mail'
  tenure queues pause mail --for 10m --reason 'mail server moves'
  tenure queues pause mail --until 18:00"""
)
@click.argument("name")
@pause_options
@store_command
def pause(target: Target, name: str, *, until: datetime | float | None, reason: str) -> None:
    """Start no jobs of a queue. Running jobs continue. Another pause replaces the first."""
    check_name(name, "the queue")
    target.announce()

    async def act(app: Tenure, store: Store) -> tuple[list[str], bool, list[QueueCounts], int]:
        names = [queue.queue for queue in await app.queues()]
        has_jobs = name in names or bool((await store.jobs.find(queue=name, limit=1)).jobs)
        await app.pause_queue(name, until=until, reason=reason)
        return names, has_jobs, await app.queues(), (await store.ping()).now

    others, has_jobs, counts, now = target.run_app(act)
    pause = next((_pause(queue, now) for queue in counts if queue.queue == name), None)
    document = {"name": name, "pause": _plain(pause), "has_jobs": has_jobs}
    end = how_long(None if pause is None else pause.until, as_datetime(now), "until it is resumed")
    target.screen.answer(
        {**target.about(target.store()), **document},
        Text(f"Paused {safe(name)} {end}{because(reason)}."),
    )
    if not has_jobs:
        target.screen.warning(_no_jobs(name, others))


@queues.command(
    epilog="""\b
Example:
  tenure queues resume mail"""
)
@click.argument("name")
@store_command
def resume(target: Target, name: str) -> None:
    """End the pause of a queue."""
    check_name(name, "the queue")
    target.announce()

    async def act(app: Tenure, _store: Store) -> list[str]:
        paused = [queue.queue for queue in await app.queues() if queue.paused_for is not None]
        await app.resume_queue(name)
        return paused

    paused = target.run_app(act)
    was_paused = name in paused
    document = {**target.about(target.store()), "name": name, "was_paused": was_paused}
    answer = f"Resumed {safe(name)}." if was_paused else f"{safe(name)} was not paused."
    target.screen.answer(document, Text(answer))
    if paused and not was_paused:
        target.screen.warning(f"Paused queues: {', '.join(paused)}.")


class _Pause(NamedTuple):
    until: datetime | None
    reason: str


def _pause(queue: QueueCounts, now: int) -> _Pause | None:
    """Return the pause of a queue, which the store gives as the seconds that are left."""
    left = queue.paused_for
    if left is None:
        return None
    until = None if math.isinf(left) else as_datetime(now + round(left * 1e6))
    return _Pause(until, queue.pause_reason)


def _plain(pause: _Pause | None) -> dict[str, Any] | None:
    if pause is None:
        return None
    until = None if pause.until is None else plain(pause.until)
    return {"until": until, "reason": pause.reason}


def _no_jobs(name: str, others: list[str]) -> str:
    """Return a warning that the name may be mistyped: a queue exists only by its jobs."""
    text = f"There is no job in the queue {name}, so check its name."
    if close := get_close_matches(name, others, n=1):
        return f"{text} Did you mean {close[0]}? If so: tenure queues resume {name}"
    return f"{text} Queues with jobs: {', '.join(others)}." if others else text


def document(queue: QueueCounts, now: int) -> dict[str, Any]:
    """Return what the JSON of a list says about a queue."""
    return {
        "name": queue.queue,
        "waiting": queue.waiting,
        "running": queue.running,
        "oldest": queue.oldest,
        "pause": _plain(_pause(queue, now)),
    }


def _table(counts: Sequence[QueueCounts], now: int) -> RenderableType:
    rows: list[list[Cell]] = [
        [
            ShrinkingCell(safe(queue.queue)),
            _number(queue.waiting),
            _number(queue.running),
            "" if queue.oldest is None else duration(queue.oldest),
            paused(queue, now),
        ]
        for queue in counts
    ]
    columns = ("NAME", "WAITING", "RUNNING", "OLDEST", "PAUSED")
    return table(rows, columns, right=columns[1:4])


def _number(count: int) -> str:
    return f"{count}+" if count >= COUNT_MAX else str(count)


def paused(queue: QueueCounts, now: int) -> ShrinkingCell:
    """Return for how long a queue is paused, and why; empty if it is not."""
    pause = _pause(queue, now)
    if pause is None:
        return ShrinkingCell("")
    end = time_left(pause.until, as_datetime(now))
    return ShrinkingCell(f"{end}{because(pause.reason)}", 0, "yellow")
