"""What attempts did, counted by minute, task and queue: as workers leave it in the store.

Each worker counts its own attempts of the last hour and leaves them as one opaque value. Readers
merge the values of all workers. A value that cannot be read counts as none. The memory of the
worker travels with its counts: it changes with the jobs, and costs no call of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, astuple

__all__ = [
    "ID_SHOWN",
    "MINUTE",
    "MINUTES_KEPT",
    "OTHERS",
    "PAIRS_MAX",
    "Minutes",
    "RunCounts",
    "RunStats",
    "decode_stats",
    "encode_stats",
    "memory_in",
    "merge_stats",
]

MINUTE: Final = 60_000_000
"""In microseconds."""
MINUTES_KEPT: Final = 60
PAIRS_MAX: Final = 100
"""How many pairs of task and queue one worker counts apart. A queue for each customer, times all
tasks, would fill the store.
"""
OTHERS: Final = "*"
"""The task and queue under which the rest is counted."""

ID_SHOWN: Final = 8
"""How many characters of a replica's id name it: as many as in the logs."""

_BYTES_MAX: Final = 4 * 1024 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]


class RunCounts(Struct):
    """The attempts of one task on one queue in one minute."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    """How many failed for good."""
    retried: int = 0
    """How many failed, and their job waits for another attempt."""
    cancelled: int = 0
    lost: int = 0
    """How many came to an end that the store refused: the job ran elsewhere by then."""
    seconds: float = 0.0
    """The sum of the run times of those that ended."""
    longest: float = 0.0

    def add(self, line: _Line) -> None:
        """Add the counts in a line of a stored value. A fleet has ten thousands of them."""
        _, started, succeeded, failed, retried, cancelled, lost, milliseconds, longest = line
        self.started += started
        self.succeeded += succeeded
        self.failed += failed
        self.retried += retried
        self.cancelled += cancelled
        self.lost += lost
        self.seconds += milliseconds / 1000
        self.longest = max(self.longest, longest / 1000)


class RunStats(Struct, frozen=True, kw_only=True):
    """What the attempts of one task on one queue did in one minute, over all workers.

    The task and queue `*` stand for all that a worker does not count apart: it counts 100 pairs.
    """

    minute: datetime
    """When the minute began, by the clocks of the workers."""
    task: str
    queue: str
    started: int
    succeeded: int
    failed: int
    """How many failed for good."""
    retried: int
    """How many failed, and their job waited for another attempt."""
    cancelled: int
    lost: int
    """How many came to an end that the store refused: the job ran elsewhere by then."""
    seconds: float
    """The sum of the run times of those that ended."""
    longest: float
    """The longest of these run times."""


Minutes: TypeAlias = dict[int, dict[tuple[str, str], RunCounts]]
"""By the number of the minute since 1970, and by task and queue."""

# The names of a pair are written once, before its minutes; times are milliseconds.
_Line: TypeAlias = tuple[int, _Count, _Count, _Count, _Count, _Count, _Count, _Count, _Count]
_Pairs: TypeAlias = list[tuple[str, str, list[_Line]]]
# The worker stands first: the beginning of its replica's id, and its memory in bytes.
_Document: TypeAlias = tuple[str, _Count, _Pairs]
_decoder = msgspec.msgpack.Decoder(_Document)
_head_decoder = msgspec.msgpack.Decoder(tuple[str, _Count, msgspec.Raw])


def encode_stats(
    minutes: Mapping[int, Mapping[tuple[str, str], RunCounts]],
    *,
    replica: str = "",
    memory: int = 0,
) -> bytes:
    """Return the value to leave in the store. `memory` is that of the replica's process."""
    lines: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for minute, pairs in minutes.items():
        for pair, counts in pairs.items():
            *numbers, seconds, longest = astuple(counts)
            times = round(seconds * 1000), round(longest * 1000)
            lines.setdefault(pair, []).append((minute, *numbers, *times))
    of_pairs = [(task, queue, of_pair) for (task, queue), of_pair in lines.items()]
    return msgspec.msgpack.encode((replica[:ID_SHOWN], memory, of_pairs))


def decode_stats(body: bytes) -> Minutes:
    """Read such a value; nothing if it cannot be read."""
    minutes: Minutes = {}
    for task, queue, lines in _pairs_in(body):
        for line in lines:
            minutes.setdefault(line[0], {}).setdefault((task, queue), RunCounts()).add(line)
    return minutes


def _pairs_in(body: bytes) -> _Pairs:
    try:
        return _decoder.decode(body)[2] if len(body) <= _BYTES_MAX else []
    except (ValueError, RecursionError):
        return []


def memory_in(bodies: Iterable[bytes]) -> dict[str, int]:
    """Return the memory of replicas in bytes, by the first `ID_SHOWN` characters of their ids."""
    memory = {}
    for body in bodies:
        try:
            replica, used, _ = _head_decoder.decode(body)
        except (ValueError, RecursionError):
            continue
        if used:
            memory[replica] = used
    return memory


def merge_stats(bodies: Iterable[bytes], now: int) -> list[RunStats]:
    """Return the last hour before the instant `now`: by minute, task and queue, oldest first."""
    last = now // MINUTE
    kept = range(last - MINUTES_KEPT + 1, last + 2)  # the clock of a worker may be ahead
    sums: dict[tuple[int, str, str], RunCounts] = {}
    for body in bodies:
        for task, queue, lines in _pairs_in(body):
            for line in lines:
                place = line[0], task, queue
                counts = sums.get(place)
                if counts is None:
                    if line[0] not in kept:
                        continue
                    counts = sums[place] = RunCounts()
                counts.add(line)
    in_order = sorted(sums.items(), key=lambda item: item[0])
    return [_as_stats(*place, counts) for place, counts in in_order]


def _as_stats(minute: int, task: str, queue: str, counts: RunCounts) -> RunStats:
    began = _EPOCH + timedelta(minutes=minute)
    return RunStats(minute=began, task=task, queue=queue, **asdict(counts))
