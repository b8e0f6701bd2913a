"""Pure decisions: when to renew, how long to trust a lease, how often to retry, when to run again.

Stores know none of this. Each number has its reason beside it.
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
# Ten years, which every store can count.
TTL_MAX = 315_360_000.0
# Below one second a garbage collection or a slow fsync looks like a crash.
TTL_MIN = 1.0

# A dead waiter delays those behind it by this time. A living waiter polls every third of it, so two
# polls may fail before it loses its place.
WAITER_LIFE = 3.0

# Four attempts fit into one ttl, so three renewals in a row may fail.
_RENEW_SHARE = 0.3
_RENEW_JITTER = 0.1

UNWIND_SECONDS = 5.0
"""How many seconds a handler gets to end after a request to stop."""

UNKNOWN_TASK = "its worker knows no such task"
"""The reason in the history of a job that a worker hands back because it lacks the task."""

# An insert whose reply was lost is repeated under the same id. If the job has finished and was
# pruned by then, the repeat creates it again and it runs twice. So finished jobs are kept longer
# than inserts are repeated. The rest of the minute is for a slow last repeat: a store gives up a
# call after 5 to 10 s.
INSERT_PATIENCE = 20.0
RETENTION_MIN = 60.0
_INSERT_TRIES = 3

# How long `enqueue` waits for a unique key that an open transaction holds. A transaction that calls
# a slow service takes seconds; a longer one was usually left open by mistake.
KEY_PATIENCE = 10.0

_ERROR_DELAY_FIRST = 0.05
_ERROR_DELAY_MAX = 1.0


def next_fence(last: int, floor: int, now: int) -> int:
    """Return a fence above `last` (of this key) and `floor` (of removed keys).

    The store's time in microseconds keeps it rising after a loss of data: a restart without data,
    or a fail-over that lost the newest writes. `last` and `floor` keep it rising when the clock is
    set back.
    """
    return max(last + 1, floor + 1, now)


def margin(ttl: float) -> float:
    """Return how much earlier than the store a holder stops trusting its lease.

    One percent covers two clocks whose rates differ by 1 %; 100 ms covers the time until the body
    learns of the loss.
    """
    return max(0.1, 0.01 * ttl)


def is_other_data(previous: str | None, current: str) -> bool:
    """Return whether a store has lost its data: the id changed from `previous` to `current`.

    False if there was no previous id.
    """
    return previous is not None and previous != current


def trust_until(sent: float, ttl: float) -> float:
    """Return the boot instant up to which a grant or renewal *sent* at `sent` may be trusted.

    The store counts the ttl from the arrival of the request, which is never before it was sent.
    """
    return sent + ttl - margin(ttl)


def renew_after(ttl: float, chance: float) -> float:
    """Return the seconds between two renewals. `chance` in [0, 1) only shortens them."""
    return ttl * _RENEW_SHARE * (1.0 - _RENEW_JITTER * chance)


class Reading(Struct, frozen=True):
    """A reading of the store's clock, from the answer to a request."""

    sent: float
    """When the request was sent, in seconds of the local boot clock."""
    at: int
    """The instant of the store's clock, in microseconds."""


def clock_jump(before: Reading, after: Reading) -> float:
    """Return by how many seconds the store's clock ran ahead of the local one between two readings.

    Negative if it was set back. A difference in network latency counts as a jump.
    """
    return (after.at - before.at) / 1e6 - (after.sent - before.sent)


# Healthy replicas beat every 0.3 ttl, so a jump below 0.7 ttl expires no record. The margin allows
# a jump in each of two beats, and a request that was in flight for 0.2 ttl.
_JUMP_SHARE = 0.25
# Other replicas may have beaten up to a third of a ttl earlier, so their gap may be longer.
_GAP_SHARE = 0.5
# The time in which every healthy replica beats, and a third more.
_NEWCOMER_SHARE = 0.4


def recovery_pause(ttl: float, *, gap: float, jump: float) -> float:
    """Return for how long after a beat a replica must not recover the jobs of others.

    `gap` is the time since the last good beat, `jump` by how much the store's clock jumped ahead
    meanwhile. If either is long, records of healthy replicas may have expired as well. After one
    ttl each healthy replica has beaten again, and only dead ones are still expired.
    """
    is_steady = gap <= _GAP_SHARE * ttl and jump <= _JUMP_SHARE * ttl
    return 0.0 if is_steady else ttl


def first_recovery_after(ttl: float, *, is_alone: bool) -> float:
    """Return for how long a replica that has just joined must not recover the jobs of others.

    It cannot know what happened before. If no other replica is alive, there may have been an outage
    for all of them, so they get a ttl to come back. If others are alive, the clock may just have
    jumped, so they get the time for their next beat.
    """
    return ttl if is_alone else _NEWCOMER_SHARE * ttl


def retry_after_error(failures: int, chance: float) -> float:
    """Return the pause after the n-th failure in a row: doubling, capped, half of it random."""
    ceiling: float = min(_ERROR_DELAY_MAX, _ERROR_DELAY_FIRST * 2.0 ** min(failures - 1, 10))
    return ceiling * (0.5 + 0.5 * chance)


def may_insert_again(failures: int, passed: float) -> bool:
    """Return whether to repeat an insert after so many failures, `passed` seconds after the first.

    A few tries are enough for a lost reply. The caller must handle a longer outage.
    """
    return failures < _INSERT_TRIES and passed < INSERT_PATIENCE


def may_wait_for_key(passed: float) -> bool:
    """Return whether to try again for a unique key that has been held for `passed` seconds."""
    return passed < KEY_PATIENCE


def retry_when_busy(retry_in: float, chance: float) -> float:
    """Return how long a waiter sleeps if no wake-up comes.

    At most a third of its record's life, so that it keeps its place in the queue. Up to 20 ms after
    the end of a lease, so that many waiters do not poll at the same instant.
    """
    return min(max(retry_in, 0.0) + 0.001 + 0.02 * chance, WAITER_LIFE / 3)


class Backoff(Struct, frozen=True):
    """When to run a failed job again: after pauses that grow exponentially, up to a cap.

    Half of each pause is random ("equal jitter"), so jobs that failed together do not return
    together, and no job returns at once. The default makes 20 attempts over 4 to 8 hours, which
    outlasts most outages of a mail server or a database.
    """

    max_attempts: int = 20
    """How many attempts may fail before the job fails for good. 1: no retry."""
    base: Duration = 1
    """The longest first pause; the shortest is half of it."""
    factor: float = 2
    """The ratio of each pause to the previous one."""
    cap: Duration = 3600
    """The longest pause."""

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
        """Return whether there is another try after this many failures."""
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
"""The type of `retry=`: a number of retries, a Backoff, or None for a single attempt."""

_SINGLE_TRY = Backoff(max_attempts=1)


def parse_retry(retry: object, pauses: Backoff) -> Backoff:
    """Return the Backoff that `retry=` describes; a number takes its pauses from `pauses`.

    Raises ConfigError for anything but a whole number from 0, a Backoff, or None.
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
    """Read a Backoff that `write_backoff` has written; None if there is no usable one."""
    try:
        written = msgspec.json.decode(text, type=_Written) if text else None
        return None if written is None else Backoff(*msgspec.structs.astuple(written))
    except (msgspec.MsgspecError, ConfigError):
        return None  # written by a newer version, or damaged: the task's own policy is used


# A job that killed its process twice may do so again. The pauses let other jobs through.
_LOSS_DELAY = 2.0
_LOSS_FACTOR = 3.0
LOSS_DELAY_MAX = 300.0


def loss_delays(budget: int, chance: float) -> list[float]:
    """Return when a job is due again after its first, second, ... loss.

    The first delay is short: usually a machine died, and the job is not the cause.
    """
    share = 0.5 + 0.5 * chance
    return [ceiling * share for ceiling in _loss_ceilings(budget)]


@cache  # computed for each job, so that jobs that were lost together do not return together
def _loss_ceilings(budget: int) -> tuple[float, ...]:
    """Return the longest delay after each loss."""
    ceilings = (_LOSS_DELAY * _LOSS_FACTOR ** min(n, 100) for n in range(budget - 1))
    return (0.0, *(min(LOSS_DELAY_MAX, ceiling) for ceiling in ceilings))[:budget]


def unknown_task_delay(attempt: int, chance: float) -> float:
    """Return the delay of a job that this replica hands back because it lacks the task.

    Short at first, for a rolling deploy; long later, for a task that no worker has any more.
    """
    return float(min(300.0, 2.0 ** min(attempt - 1, 10))) * (0.5 + 0.5 * chance)


def yielding_delay(attempt: int, chance: float) -> float:
    """Return the delay of a job that is handed back to leave the slots to other jobs.

    It grows each time: a long queue of such jobs must not keep the worker busy.
    """
    return float(min(10.0, 2.0 ** min(attempt - 1, 10))) * (0.5 + 0.5 * chance)
