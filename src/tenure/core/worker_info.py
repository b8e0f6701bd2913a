"""The description of a worker in its replica's record: its queues, slots and timers.

It is text in the record's meta, which every store keeps unchanged. Its size is bounded: of very
many names it has only the first ones, and the number of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.run_stats import ID_SHOWN
from tenure.core.leases import Meta

__all__ = ["Serving", "memory_of", "read_serving", "write_serving"]

# The most characters for the names of queues, and the same for those of timers.
_NAMES_SIZE_MAX = 350
_BYTES = re.compile(r"[0-9]{1,15}")


class Serving(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The queues, slots and timers of a replica."""

    queues: tuple[str, ...]
    slots: int
    """How many jobs it runs at a time; 0 if it runs only timers."""
    timers: tuple[str, ...] = ()
    timer_slots: int = 0
    more_queues: int = 0
    """How many more queues it serves than it names."""
    more_timers: int = 0
    idle_timers: tuple[str, ...] = ()
    """Timers and schedules that its app declares and that it was configured not to run."""
    more_idle_timers: int = 0

    def may_serve(self, queue: str) -> bool:
        return queue in self.queues or self.more_queues > 0

    def may_run(self, timer: str) -> bool:
        return timer in self.timers or self.more_timers > 0


def write_serving(
    *,
    queues: Sequence[str],
    slots: int,
    timers: Sequence[str],
    timer_slots: int,
    idle_timers: Sequence[str] = (),
) -> Meta:
    """Return the meta of a replica's record."""
    named_queues, named_timers = [*_fitting(queues)], [*_fitting(timers)]
    named_idle = [*_fitting(idle_timers)]
    serving = Serving(
        queues=tuple(named_queues),
        slots=slots if queues else 0,
        timers=tuple(named_timers),
        timer_slots=timer_slots if timers else 0,
        more_queues=len(queues) - len(named_queues),
        more_timers=len(timers) - len(named_timers),
        idle_timers=tuple(named_idle),
        more_idle_timers=len(idle_timers) - len(named_idle),
    )
    return {"serving": msgspec.json.encode(serving).decode()}


def read_serving(meta: Meta) -> Serving | None:
    """Read the description in a replica's meta; None if there is none or it is unreadable."""
    try:
        return msgspec.json.decode(meta.get("serving", ""), type=Serving)
    except (ValueError, RecursionError):
        return None


def memory_of(replica: ReplicaRecord, latest: Mapping[str, int]) -> int | None:
    """Return how many bytes a replica occupies, as far as it is known.

    `latest` is what `memory_in` has read from the counts of attempts; before the first one, it is
    the memory with which the replica joined.
    """
    if (memory := latest.get(replica.id[:ID_SHOWN])) is not None:
        return memory
    joined_with = replica.meta.get("memory", "")
    return int(joined_with) if _BYTES.fullmatch(joined_with) else None


def _fitting(names: Iterable[str]) -> Iterator[str]:
    size = 0
    for name in names:
        size += len(name) + len('"",')
        if size > _NAMES_SIZE_MAX:
            return
        yield name
