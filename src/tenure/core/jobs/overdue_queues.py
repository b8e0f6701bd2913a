"""How old the oldest due job of a queue may be: the setting `queue_expected`, and who exceeds it.

Pure. The health check and the alarm of a worker share it, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from tenure.core.durations import Duration, seconds
from tenure.core.jobs.records import QueueCounts
from tenure.core.lease_policy import TTL_MAX
from tenure.core.leases import check_name
from tenure.errors import ConfigError

__all__ = [
    "QUEUE_EXPECTED",
    "OverdueQueue",
    "QueueAges",
    "QueueExpected",
    "look_interval",
    "look_lease",
    "overdue_queues",
    "parse_queue_expected",
]

QUEUE_EXPECTED: Final = 300.0
"""Longer than a deploy, shorter than the patience of users."""

QueueExpected: TypeAlias = Duration | Mapping[str, Duration]
"""What `queue_expected=` takes: one time for all queues, or a time for each."""

OTHERS: Final = "*"
"""The name that stands for all other queues."""

_MINIMUM: Final = 1.0
_LOOK_MIN, _LOOK_MAX = 5.0, 60.0
# An answer that is late, or a beat that is repeated once, must not give the lease away.
_LEASE_RESERVE: Final = 1.5


class QueueAges(Struct, frozen=True):
    """The most that the oldest due job of a queue may wait, in seconds."""

    others: float = QUEUE_EXPECTED
    by_queue: Mapping[str, float] = {}

    def of(self, queue: str) -> float:
        """Return the most for one queue."""
        return self.by_queue.get(queue, self.others)


class OverdueQueue(NamedTuple):
    """A queue whose oldest due job waits for too long."""

    queue: str
    age: float
    expected: float


def overdue_queues(counts: Iterable[QueueCounts], ages: QueueAges) -> list[OverdueQueue]:
    """Return the queues that wait for too long, the oldest first.

    Paused queues do not count: their jobs wait on purpose.
    """
    overdue = [
        OverdueQueue(count.queue, count.oldest, expected)
        for count in counts
        if count.oldest is not None
        and count.paused_for is None
        and count.oldest > (expected := ages.of(count.queue))
    ]
    return sorted(overdue, key=lambda queue: (-queue.age, queue.queue))


def look_interval(ages: QueueAges) -> float:
    """Return how often to look: twice within the shortest age, from every 5 s to once a minute."""
    shortest = min((ages.others, *ages.by_queue.values()))
    return min(_LOOK_MAX, max(_LOOK_MIN, shortest / 2))


def look_lease(interval: float, beat: float) -> float:
    """Return the ttl of the lease of the worker that looks, so that it lasts until its next look.

    It looks with the first heartbeat after the interval; `beat` is the longest pause between two.
    """
    return _LEASE_RESERVE * (interval + beat)


def parse_queue_expected(option: QueueExpected | str, what: str) -> QueueAges:
    """Return the ages that `queue_expected=` or its variable describes.

    A variable has "5m", or "mail=1m, reports=2h". Raises ConfigError.
    """
    if isinstance(option, str) and "=" in option:
        pairs = [part.partition("=") for part in option.split(",")]
        option = {name.strip(): length.strip() for name, _, length in pairs}
    if not isinstance(option, Mapping):
        return QueueAges(_seconds(option, what))
    ages = {
        check_name(name, f"a queue of {what}"): _seconds(length, f"{what}[{name!r}]")
        for name, length in option.items()
    }
    if not ages:
        msg = f"{what} names no queue: give it a time, or a time for each queue."
        raise ConfigError(msg)
    return QueueAges(ages.pop(OTHERS, QUEUE_EXPECTED), ages)


def _seconds(length: Duration, what: str) -> float:
    if isinstance(length, str):
        with suppress(ValueError):  # text such as "5m"
            length = float(length)
    return seconds(length, what, minimum=_MINIMUM, maximum=TTL_MAX)
