"""`tenure replicas ls`: list the worker processes and what each one serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.tables import Cell, ShrinkingCell, table
from tenure.cli.target import Target, store_command, store_group
from tenure.cli.text import duration, instant, safe, size
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.run_stats import memory_in
from tenure.core.worker_info import memory_of, read_serving
from tenure.stores.contract import Store

__all__ = ["SHOWN_META", "document", "replicas", "state_of"]

# What documents have under names of their own.
SHOWN_META = ("serving", "version", "memory")
_STYLES = {"alive": "green", "expired": "yellow", "dead": "bold red"}


@store_group(
    epilog="""\b
Example:
  tenure replicas ls""",
)
def replicas() -> None:
    """List the processes that run jobs and timers."""


@replicas.command(
    epilog="""\b
Examples:
  tenure replicas ls
  tenure replicas ls --json | jq '.replicas[] | select(.state != "alive")'"""
)
@store_command
def ls(target: Target) -> None:
    """List replicas (worker processes): host, running jobs, slots, queues, timers.

    A replica is alive; expired, if its last heartbeat is older than its ttl (it may come back); or
    dead, if its jobs are being recovered.
    """
    target.announce()

    async def look(store: Store) -> tuple[list[ReplicaRecord], dict[str, int], int]:
        records, bodies = await store.jobs.replicas(), await store.jobs.stats()
        return records, memory_in(bodies), (await store.ping()).now

    records, memory, now = target.run(look)
    documents = [document(replica, memory) for replica in records]
    answer = {**target.about(target.store()), "replicas": documents}
    nothing = Text("No worker has joined. 'tenure worker MODULE:APP' starts one.")
    target.screen.answer(answer, _table(records, memory, now) if records else nothing)


def state_of(replica: ReplicaRecord) -> str:
    """Return "alive", "expired" or "dead"."""
    if replica.dead:
        return "dead"
    return "alive" if replica.expires_in > 0 else "expired"


def document(replica: ReplicaRecord, memory: Mapping[str, int]) -> dict[str, Any]:
    """Return what the JSON of a list says about a replica."""
    return {
        "id": replica.id,
        "state": state_of(replica),
        "jobs": replica.held,
        "joined": instant(replica.joined),
        "ttl": replica.ttl,
        "expires_in": replica.expires_in,
        "version": replica.meta.get("version"),
        "memory": memory_of(replica, memory),
        "serving": _serving(replica),
        "meta": {key: value for key, value in replica.meta.items() if key not in SHOWN_META},
    }


def _serving(replica: ReplicaRecord) -> dict[str, Any] | None:
    """Return what it publishes about itself; always with the same fields, for programs."""
    serving = read_serving(replica.meta)
    return None if serving is None else asdict(serving)


def _table(records: Sequence[ReplicaRecord], memory: Mapping[str, int], now: int) -> RenderableType:
    rows: list[list[Cell]] = []
    for replica in records:
        state = state_of(replica)
        left = duration(replica.expires_in) if state == "alive" else ""
        host, pid = replica.meta.get("host", ""), replica.meta.get("pid", "")
        rows.append(
            [
                ShrinkingCell(safe(replica.id), tail=8),
                ShrinkingCell(safe(f"{host}:{pid}" if pid else host)),
                Text(state, _STYLES[state]),
                str(replica.held),
                *_capacity(replica),
                ShrinkingCell(safe(replica.meta.get("version", "")), 0),
                size(memory_of(replica, memory)),
                duration((now - replica.joined) / 1e6),
                left,
            ]
        )
    columns = (
        *("ID", "PROCESS", "STATE", "JOBS", "SLOTS", "QUEUES", "TIMERS"),
        *("VERSION", "MEMORY", "UP", "EXPIRES"),
    )
    right = ("JOBS", "SLOTS", "TIMERS", "MEMORY", "UP", "EXPIRES")
    optional = ("EXPIRES", "VERSION", "TIMERS", "MEMORY", "UP", "QUEUES", "SLOTS")
    return table(rows, columns, right=right, optional=optional)


def _capacity(replica: ReplicaRecord) -> list[Cell]:
    """Return its slots, its queues and the number of its timers, if it publishes them."""
    serving = read_serving(replica.meta)
    if serving is None:
        return ["", "", ""]
    more = f" and {serving.more_queues} more" if serving.more_queues else ""
    queues = safe(", ".join(serving.queues)) + more
    timers = len(serving.timers) + serving.more_timers
    return [str(serving.slots), ShrinkingCell(queues), str(timers)]
