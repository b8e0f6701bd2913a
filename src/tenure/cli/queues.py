"""`tenure queues`: how queues stand, and stopping them for a while."""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.options import span
from tenure.cli.output import Cell, Shrinking, duration, safe, table
from tenure.cli.target import Target, store_command
from tenure.core.jobs.records import COUNT_MAX, QueueCounts
from tenure.core.leases import check_name
from tenure.stores.contract import Store

__all__ = ["queues"]


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  tenure queues
  tenure queues pause mail --for 10m
  tenure queues resume mail""",
)
@store_command
def queues(target: Target) -> None:
    """Show how queues stand: what waits, what runs, for how long.

    Only queues with jobs that have not finished, and paused ones, are there.
    """
    target.announce()

    async def look(store: Store) -> tuple[dict[str, Any], list[QueueCounts]]:
        return target.about(store), await store.jobs.counts()

    about, counts = target.run(look)
    nothing = Text("No job waits or runs, and no queue is paused.")
    document = {**about, "queues": [*map(_document, counts)]}
    target.screen.answer(document, _listed(counts) if counts else nothing)


@queues.command(
    epilog="""\b
Examples:
  tenure queues pause mail                 until 'tenure queues resume mail'
  tenure queues pause mail --for 10m"""
)
@click.argument("name")
@click.option(
    "--for", "length", metavar="TIME", callback=span, help="How long, such as 30s or 1h30m."
)
@store_command
def pause(target: Target, name: str, *, length: float | None) -> None:
    """Let no job of a queue start. Those that run go on."""
    check_name(name, "the queue")
    target.announce()

    async def act(store: Store) -> tuple[dict[str, Any], bool, list[str]]:
        counts = [one.queue for one in await store.jobs.counts()]
        is_known = name in counts or bool((await store.jobs.find(queue=name, limit=1)).jobs)
        await store.jobs.pause(name, seconds=length)
        return target.about(store), is_known, counts

    about, is_known, others = target.run(act)
    until = "until it is resumed" if length is None else f"for {duration(length)}"
    document = {**about, "queue": name, "paused": True, "paused_for": length, "known": is_known}
    target.screen.answer(document, Text(f"Paused {safe(name)} {until}."))
    if not is_known:
        target.screen.warning(_unknown(name, others))


@queues.command(
    epilog="""\b
Example:
  tenure queues resume mail"""
)
@click.argument("name")
@store_command
def resume(target: Target, name: str) -> None:
    """End a pause."""
    check_name(name, "the queue")
    target.announce()

    async def act(store: Store) -> tuple[dict[str, Any], list[str]]:
        paused = [one.queue for one in await store.jobs.counts() if one.paused_for is not None]
        await store.jobs.pause(name, seconds=0)
        return target.about(store), paused

    about, paused = target.run(act)
    was_paused = name in paused
    document = {**about, "queue": name, "paused": False, "paused_for": None}
    document["was_paused"] = was_paused
    told = f"Resumed {safe(name)}." if was_paused else f"{safe(name)} was not paused."
    target.screen.answer(document, Text(told))
    if paused and not was_paused:
        target.screen.warning(f"Paused are: {', '.join(paused)}.")


def _unknown(name: str, others: list[str]) -> str:
    """Say that a name may be wrong: of a queue without jobs nothing else is known."""
    told = f"There is no job in the queue {name}, so check its name."
    close = get_close_matches(name, others, n=1)
    if close:
        return f"{told} Did you mean {close[0]}? If so: tenure queues resume {name}"
    return f"{told} Queues with jobs: {', '.join(others)}." if others else told


def _document(counts: QueueCounts) -> dict[str, Any]:
    left = counts.paused_for
    return {
        "queue": counts.queue,
        "waiting": counts.waiting,
        "running": counts.running,
        "oldest": counts.oldest,
        "paused": left is not None,
        "paused_for": None if left is None or math.isinf(left) else left,
    }


def _listed(counts: list[QueueCounts]) -> RenderableType:
    rows: list[list[Cell]] = [
        [
            Shrinking(safe(one.queue)),
            _number(one.waiting),
            _number(one.running),
            "" if one.oldest is None else duration(one.oldest),
            Text(_pause(one.paused_for), "yellow"),
        ]
        for one in counts
    ]
    columns = ("QUEUE", "WAITING", "RUNNING", "OLDEST", "PAUSED")
    return table(rows, columns, right=columns[1:4])


def _number(count: int) -> str:
    return f"{count}+" if count >= COUNT_MAX else str(count)


def _pause(left: float | None) -> str:
    if left is None:
        return ""
    return "until resumed" if math.isinf(left) else f"for {duration(left)}"
