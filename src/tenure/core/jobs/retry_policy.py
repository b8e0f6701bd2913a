"""When a failed job runs again: the retries and pauses of a task, of a timer, or of one job."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from tenure.core.durations import Duration, seconds
from tenure.errors import ConfigError

__all__ = ["Backoff", "RetryOption", "parse_retry", "read_backoff", "write_backoff"]


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
