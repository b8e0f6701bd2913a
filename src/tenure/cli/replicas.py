"""`tenure replicas`, `tenure recover`, `tenure prune`: who works, and cleaning up by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from msgspec.structs import asdict
from rich.console import RenderableType
from rich.text import Text

from tenure.app import Tenure
from tenure.cli.jobs.table import instant
from tenure.cli.options import span
from tenure.cli.output import Cell, Shrinking, duration, safe, table
from tenure.cli.target import Target, store_command
from tenure.core.jobs.replicas import Recovered, ReplicaRecord
from tenure.core.worker_info import read_serving
from tenure.stores.contract import Store

__all__ = ["prune", "recover", "replicas"]

_STYLES = {"alive": "green", "expired": "yellow", "dead": "bold red"}


@click.command(
    epilog="""\b
Examples:
  tenure replicas
  tenure replicas --json | jq '.replicas[] | select(.state != "alive")'"""
)
@store_command
def replicas(target: Target) -> None:
    """List the workers: where they are, how many jobs each one runs, and what it serves.

    A replica is alive, expired (it has not been heard of for its ttl; it may come back), or dead
    (its jobs are being recovered).
    """
    target.announce()

    async def look(store: Store) -> tuple[dict[str, Any], list[ReplicaRecord], int]:
        return target.about(store), await store.jobs.replicas(), (await store.ping()).now

    about, known, now = target.run(look)
    document = {**about, "replicas": [*map(_document, known)]}
    target.screen.answer(document, _listed(known, now) if known else Text("No worker is there."))


def _state(replica: ReplicaRecord) -> str:
    if replica.dead:
        return "dead"
    return "alive" if replica.expires_in > 0 else "expired"


def _document(replica: ReplicaRecord) -> dict[str, Any]:
    return {
        "replica": replica.id,
        "state": _state(replica),
        "jobs": replica.held,
        "joined": instant(replica.joined),
        "ttl": replica.ttl,
        "expires_in": replica.expires_in,
        "serving": _serving(replica),
        "meta": {key: value for key, value in replica.meta.items() if key != "serving"},
    }


def _serving(replica: ReplicaRecord) -> dict[str, Any] | None:
    """Return what it says about itself; all of it, as documents always have the same names."""
    serving = read_serving(replica.meta)
    return None if serving is None else asdict(serving)


def _listed(known: Sequence[ReplicaRecord], now: int) -> RenderableType:
    rows: list[list[Cell]] = []
    for one in known:
        state = _state(one)
        left = duration(one.expires_in) if state == "alive" else ""
        host, pid = one.meta.get("host", ""), one.meta.get("pid", "")
        rows.append(
            [
                Shrinking(safe(one.id), tail=8),
                Shrinking(safe(f"{host}:{pid}" if pid else host)),
                Text(state, _STYLES[state]),
                str(one.held),
                *_served(one),
                duration((now - one.joined) / 1e6),
                left,
            ]
        )
    columns = ("REPLICA", "PROCESS", "STATE", "JOBS", "SLOTS", "QUEUES", "TIMERS", "UP", "LEFT")
    right = ("JOBS", "SLOTS", "TIMERS", "UP", "LEFT")
    return table(rows, columns, right=right, optional=("LEFT", "UP", "TIMERS", "QUEUES", "SLOTS"))


def _served(replica: ReplicaRecord) -> list[Cell]:
    """Return its slots, its queues, and how many timers it runs, if it says so."""
    serving = read_serving(replica.meta)
    if serving is None:
        return ["", "", ""]
    more = f" and {serving.more_queues} more" if serving.more_queues else ""
    queues = safe(", ".join(serving.queues)) + more
    timers = len(serving.timers) + serving.more_timers
    return [str(serving.slots), Shrinking(queues), str(timers)]


@click.command(
    epilog="""\b
Examples:
  tenure recover
  tenure recover --loss-budget 5       as the app has it"""
)
@click.option(
    "--loss-budget",
    type=click.IntRange(min=0),
    help="How often a job may be lost and still run again [default: $TENURE_LOSS_BUDGET, else 3].",
)
@click.option(
    "--grace",
    metavar="TIME",
    callback=span,
    help="How far past its deadline a job must be [default: $TENURE_GRACE, else 25s].",
)
@store_command
def recover(target: Target, *, loss_budget: int | None, grace: float | None) -> None:
    """Take jobs from replicas that are gone, now.

    Workers do this by themselves within seconds; it is for when none runs. Nothing is taken from
    replicas that are alive. If your app has another loss_budget or grace than the default, say so
    here.
    """
    target.announce()
    recovered = target.run_app(Tenure.recover, loss_budget=loss_budget, grace=grace)
    about = target.about(target.store())
    document = {**about, "recovered": msgspec.to_builtins(recovered)}
    target.screen.answer(document, *_recovered(recovered))


def _recovered(recovered: Sequence[Recovered]) -> Iterator[RenderableType]:
    if not recovered:
        yield Text("Nothing to recover.")
        return
    rows: list[list[Cell]] = [
        [one.id, one.state or "unreadable", str(one.losses), Shrinking(safe(one.replica))]
        for one in recovered
    ]
    columns = ("ID", "NOW", "LOSSES", "REPLICA")
    yield table(rows, columns, right=("LOSSES",), optional=("REPLICA",))
    counts: Counter[str | None] = Counter(one.state for one in recovered)
    means = {
        "waiting": "run again",
        "failed": "failed for good: lost too often, or may run only once",
        "cancelled": "cancelled, as was asked for",
        None: "set aside, because they cannot be read",
    }
    told = [f"{counts[state]} {words}" for state, words in means.items() if counts[state]]
    yield Text()
    yield Text(f"{', '.join(told)}.")


@click.command(
    epilog="""\b
Example:
  tenure prune"""
)
@store_command
def prune(target: Target) -> None:
    """Remove finished jobs whose retention is over.

    Workers do this by themselves; it is for when none runs.
    """
    target.announce()
    removed = target.run_app(Tenure.prune_jobs)
    document = {**target.about(target.store()), "removed": removed}
    jobs = "1 finished job" if removed == 1 else f"{removed} finished jobs"
    target.screen.answer(document, Text(f"Removed {jobs}." if removed else "Nothing to remove."))
