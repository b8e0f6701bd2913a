"""Pure decisions: when to renew, how long to trust, how often to try, when to run again.

Stores know none of this. Every number's reason stands beside it.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import msgspec
from msgspec import Struct

from tenure.core.durations import Duration, seconds
from tenure.errors import ConfigError

__all__ = [
    "INSERT_PATIENCE",
    "KEY_PATIENCE",
    "LOSS_DELAY_MAX",
    "RETENTION_MIN",
    "TTL_DEFAULT",
    "TTL_MAX",
    "TTL_MIN",
    "UNKNOWN_TASK",
    "UNWIND_SECONDS",
    "WAITER_LIFE",
    "Backoff",
    "Reading",
    "RetryOption",
    "clock_jump",
    "first_recovery_after",
    "is_other_data",
    "loss_delays",
    "margin",
    "may_insert_again",
    "may_wait_for_key",
    "next_fence",
    "parse_retry",
    "read_backoff",
    "recovery_pause",
    "renew_after",
    "retry_after_error",
    "retry_when_busy",
    "trust_until",
    "unknown_task_delay",
    "write_backoff",
    "yielding_delay",
]

TTL_DEFAULT = 30.0
# Ten years: what every store can count, with room to spare.
TTL_MAX = 315_360_000.0
# Below one second a garbage collection or a slow fsync looks like a death.
TTL_MIN = 1.0

# A waiter that died costs those behind it this much; a living one looks again every third of it,
# so two looks may fail before it loses its place.
WAITER_LIFE = 3.0

# Four attempts fit into one ttl, so three renewals in a row may fail.
_RENEW_SHARE = 0.3
_RENEW_JITTER = 0.1

UNWIND_SECONDS = 5.0
"""How long a handler that was told to stop gets to end by itself."""

UNKNOWN_TASK = "its worker knows no such task"
"""What a worker notes about a job that it hands back because its app has no such task."""

# An insert whose reply was lost is sent again under the same id. If the job has finished and was
# forgotten by then, the repeat is a new job and runs a second time. So finished jobs are kept
# longer than inserts are repeated. What is left of the minute is for a last repeat that is slow: a
# store gives up a call after 5 to 10 s.
INSERT_PATIENCE = 20.0
RETENTION_MIN = 60.0
_INSERT_TRIES = 3

# How long `enqueue` waits for a unique key that an open transaction holds. A transaction that calls
# a slow service takes seconds; one that takes longer was left open by mistake as a rule.
KEY_PATIENCE = 10.0

_ERROR_DELAY_FIRST = 0.05
_ERROR_DELAY_MAX = 1.0


def next_fence(last: int, floor: int, now: int) -> int:
    """Return a fence above `last` (of this key) and `floor` (of removed keys).

    Store time in microseconds carries it over everything that forgets: a restart without data,
    a fail-over that lost the newest writes. `last` and `floor` carry it over clock steps.
    """
    return max(last + 1, floor + 1, now)


def margin(ttl: float) -> float:
    """Return how much earlier than the store a holder stops trusting its lease.

    One percent covers two clocks that run at rates 1 % apart; 100 ms covers the time it takes to
    tell the body.
    """
    return max(0.1, 0.01 * ttl)


def is_other_data(previous: str | None, current: str) -> bool:
    """Return whether a store whose data had the id `previous` has lost it: now it is `current`.

    Not if nothing was known yet.
    """
    return previous is not None and previous != current


def trust_until(sent: float, ttl: float) -> float:
    """Return the boot instant up to which a grant or renewal *sent* at `sent` may be trusted.

    The store counts from when the request arrives, which is never before it was sent.
    """
    return sent + ttl - margin(ttl)


def renew_after(ttl: float, chance: float) -> float:
    """Return the seconds from one renewal to the next; `chance` in [0, 1) only shortens it."""
    return ttl * _RENEW_SHARE * (1.0 - _RENEW_JITTER * chance)


class Reading(Struct, frozen=True):
    """What the store's clock showed in the answer to a request."""

    sent: float
    """When the request was sent, in seconds of the local boot clock."""
    at: int
    """What the store's clock showed, in microseconds."""


def clock_jump(before: Reading, after: Reading) -> float:
    """Return by how many seconds the store's clock ran ahead of the local one between two readings.

    Negative if it was set back. A request that took longer to arrive than the other one counts as
    a jump, by the difference.
    """
    return (after.at - before.at) / 1e6 - (after.sent - before.sent)


# Healthy replicas beat every 0.3 ttl, so no jump below 0.7 ttl ends a record. The rest is room for
# a jump in each of two beats, and for a request that was on its way for 0.2 ttl.
_JUMP_SHARE = 0.25
# Other replicas may have beaten up to a third of a ttl earlier, so their gap may be longer.
_GAP_SHARE = 0.5
# A beat of every healthy replica, and a third more.
_NEWCOMER_SHARE = 0.4


def recovery_pause(ttl: float, *, gap: float, jump: float) -> float:
    """Return for how long after a beat a replica must not recover the jobs of others.

    `gap` is the time since the good beat before this one, `jump` what the store's clock jumped
    ahead meanwhile. If either is long, records of healthy replicas may have expired as well. After
    one ttl each of them has beaten again, and only the dead are still expired.
    """
    is_steady = gap <= _GAP_SHARE * ttl and jump <= _JUMP_SHARE * ttl
    return 0.0 if is_steady else ttl


def first_recovery_after(ttl: float, *, is_alone: bool) -> float:
    """Return for how long a replica that has just joined must not recover the jobs of others.

    It cannot know what happened before it came. If no other replica is alive, there may have been
    an outage for all: they get a ttl to come back. If others are alive, the clock may have jumped a
    moment ago: they get the time for their next beat.
    """
    return ttl if is_alone else _NEWCOMER_SHARE * ttl


def retry_after_error(failures: int, chance: float) -> float:
    """Return the pause after the n-th failure in a row: doubling, capped, half of it random."""
    ceiling: float = min(_ERROR_DELAY_MAX, _ERROR_DELAY_FIRST * 2.0 ** min(failures - 1, 10))
    return ceiling * (0.5 + 0.5 * chance)


def may_insert_again(failures: int, passed: float) -> bool:
    """Return whether to repeat an insert after so many failures, `passed` seconds after the first.

    A few tries are enough for a lost reply. A store that is really away is the caller's to handle.
    """
    return failures < _INSERT_TRIES and passed < INSERT_PATIENCE


def may_wait_for_key(passed: float) -> bool:
    """Return whether to ask again for a unique key that has been held for `passed` seconds."""
    return passed < KEY_PATIENCE


def retry_when_busy(retry_in: float, chance: float) -> float:
    """Return how long a waiter sleeps if no wake-up comes.

    Never beyond a third of its record's life, or it would lose its place in the line. A lease's
    end is passed by up to 20 ms, so that many waiters do not all ask in the same instant.
    """
    return min(max(retry_in, 0.0) + 0.001 + 0.02 * chance, WAITER_LIFE / 3)


class Backoff(Struct, frozen=True):
    """When to run a failed job again: after pauses that grow exponentially, up to a cap.

    Half of each pause is random ("equal jitter"): jobs that failed together do not come back
    together, and no job comes back at once. The default makes 20 attempts over 4 to 8 hours, so
    that a job outlasts the outage of a mail server or a database.
    """

    max_attempts: int = 20
    """How many failures make the job fail for good. 1: no second try."""
    base: Duration = 1
    """The longest that the first pause takes; the shortest is half of it."""
    factor: float = 2
    """How much longer each pause is than the one before."""
    cap: Duration = 3600
    """The longest that any pause takes."""

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            msg = f"max_attempts must be a whole number of at least 1, not {self.max_attempts!r}."
            raise ConfigError(msg)
        if not 1 <= self.factor <= 100:
            msg = f"factor must be from 1 to 100, not {self.factor!r}."
            raise ConfigError(msg)
        seconds(self.base, "base")
        seconds(self.cap, "cap")

    def allows(self, failures: int) -> bool:
        """Return whether there is another try after so many failures."""
        return failures < self.max_attempts

    def delay(self, failures: int, chance: float) -> float:
        """Return the pause after the n-th failure; `chance` in [0, 1) makes it longer."""
        cap = seconds(self.cap, "cap")
        ceiling = seconds(self.base, "base") * self.factor ** min(failures - 1, 100)
        return float(min(cap, ceiling)) * (0.5 + 0.5 * chance)

    def total(self, chance: float) -> float:
        """Return the sum of all pauses: the shortest for `chance` 0, the longest for 1."""
        return sum(self.delay(failures, chance) for failures in range(1, self.max_attempts))


RetryOption: TypeAlias = int | Backoff | None
"""What `retry=` takes: how often to try again, when to, or None for a single try."""

_SINGLE_TRY = Backoff(max_attempts=1)


def parse_retry(retry: object, pauses: Backoff) -> Backoff:
    """Return what `retry=` asks for; a number takes its pauses from `pauses`.

    Raises ConfigError for anything else than a whole number from 0, a Backoff, or None.
    """
    if isinstance(retry, Backoff):
        return retry
    if retry is None:
        return _SINGLE_TRY
    if type(retry) is not int or retry < 0:  # True is an int to Python
        msg = (
            "retry must be how often to try again after the first attempt, such as 3; 0 or None "
            f"for a single attempt; or a Backoff(...), not {retry!r}."
        )
        raise ConfigError(msg)
    return msgspec.structs.replace(pauses, max_attempts=1 + retry)


class _Written(Struct, frozen=True):
    """A Backoff with its times in seconds."""

    max_attempts: int
    base: float
    factor: float
    cap: float


def write_backoff(backoff: Backoff) -> str:
    """Return a Backoff as the store keeps it with a job."""
    base, cap = seconds(backoff.base, "base"), seconds(backoff.cap, "cap")
    written = _Written(backoff.max_attempts, base, backoff.factor, cap)
    return msgspec.json.encode(written).decode()


def read_backoff(text: str) -> Backoff | None:
    """Return a Backoff that `write_backoff` has written; None if there is none that can be used."""
    try:
        written = msgspec.json.decode(text, type=_Written) if text else None
        return None if written is None else Backoff(*msgspec.structs.astuple(written))
    except (msgspec.MsgspecError, ConfigError):
        return None  # written by a newer version, or spoiled: the task's own policy is used


# A job that took its process with it twice may do so again: the pauses let others through.
_LOSS_DELAY = 2.0
_LOSS_FACTOR = 3.0
LOSS_DELAY_MAX = 300.0


def loss_delays(budget: int, chance: float) -> list[float]:
    """Return when a job is due again after its first, second, ... loss.

    The first one at once: as a rule a machine died and the job is innocent.
    """
    share = 0.5 + 0.5 * chance
    return [ceiling * share for ceiling in _loss_ceilings(budget)]


@cache  # recovery asks for each job, so that jobs lost together do not come back together
def _loss_ceilings(budget: int) -> tuple[float, ...]:
    """Return the longest delay after each loss."""
    ceilings = (_LOSS_DELAY * _LOSS_FACTOR ** min(n, 100) for n in range(budget - 1))
    return (0.0, *(min(LOSS_DELAY_MAX, ceiling) for ceiling in ceilings))[:budget]


def unknown_task_delay(attempt: int, chance: float) -> float:
    """Return when a job is offered again that this replica has no task for.

    Soon at first, for a rolling deploy; rarely later, for a task that nobody has any more.
    """
    return float(min(300.0, 2.0 ** min(attempt - 1, 10))) * (0.5 + 0.5 * chance)


def yielding_delay(attempt: int, chance: float) -> float:
    """Return when a job is offered again that leaves the slots of its worker to other jobs.

    Soon at first, and later each time: a long queue of such jobs must not keep its worker busy.
    """
    return float(min(10.0, 2.0 ** min(attempt - 1, 10))) * (0.5 + 0.5 * chance)
