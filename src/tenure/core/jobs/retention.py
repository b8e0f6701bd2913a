"""How long finished jobs are kept, by outcome, with a different default for runs of timers.

`parse_retention` reads the option of an app, a task or a timer. Parts that are left out come from
the level above. The result is a `Kept`: two numbers that are stored with each job. `kept_with_key`
raises them for a job whose unique key lasts longer.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.durations import Duration, seconds
from tenure.core.jobs.records import JobDraft
from tenure.core.lease_policy import TTL_MAX
from tenure.errors import ConfigError

__all__ = [
    "RETENTION_DEFAULT",
    "RETENTION_MIN",
    "Kept",
    "Retention",
    "RetentionOption",
    "checked_retention",
    "kept_at_least",
    "kept_runs",
    "kept_with_key",
    "parse_retention",
    "parse_retention_text",
]

RETENTION_MIN: Final = 60.0
"""A repeat of an insert whose reply was lost would create a job again that was pruned meanwhile.

So finished jobs are kept for longer than inserts are repeated (`INSERT_PATIENCE`). The rest of the
minute is for a slow last repeat: a store gives up a call after 5 to 10 s.
"""

_HOUR: Final = 3600.0
_DAY: Final = 86_400.0
_RUNS: Final = 100
"""At least as many runs of a timer are kept as its history has lines."""


class Retention(Struct, frozen=True, kw_only=True):
    """How long finished jobs are kept, by outcome; each at least a minute.

        @app.task(retention=Retention(succeeded="1h", failed="30d"))

    A time that is left out comes from the app. The app's defaults are one day for jobs that
    succeeded or were cancelled, and seven days for jobs that failed.
    """

    succeeded: Duration | None = None
    """For jobs that succeeded, and for those that were cancelled."""
    failed: Duration | None = None
    """For jobs that failed: long enough to investigate the error and to requeue them."""

    def __post_init__(self) -> None:
        parse_retention(self, RETENTION_DEFAULT)


RetentionOption: TypeAlias = Duration | Retention
"""What `retention=` takes: one time for all outcomes, or a time for each."""


class Kept(NamedTuple):
    """Seconds for which a finished job is kept."""

    succeeded: float
    """Seconds after success or cancellation."""
    failed: float


RETENTION_DEFAULT: Final = Kept(succeeded=_DAY, failed=7 * _DAY)
"""Results are usually read soon. A failure may wait for the end of a long weekend."""


def parse_retention(option: RetentionOption | None, default: Kept, what: str = "retention") -> Kept:
    """Return the retention that `retention=` describes. Raises ConfigError for a wrong time."""
    if option is None:
        return default
    if not isinstance(option, Retention):
        length = _kept(option, what)
        return Kept(length, length)
    parts = {"succeeded": option.succeeded, "failed": option.failed}
    changes = {
        name: _kept(length, f"{name} of {what}")
        for name, length in parts.items()
        if length is not None
    }
    return default._replace(**changes)


def checked_retention(option: RetentionOption) -> RetentionOption:
    """Return a retention with times in seconds. Raises ConfigError for a wrong time."""
    if not isinstance(option, Retention):
        return _kept(option, "retention")
    parse_retention(option, RETENTION_DEFAULT)
    return option


def parse_retention_text(text: str, what: str) -> RetentionOption:
    """Parse the retention in a variable: "1d", "3600", or "succeeded=1d, failed=7d"."""
    if "=" not in text:
        return _number_or_text(text)
    pairs = [part.partition("=") for part in text.split(",")]
    parts = {name.strip(): _number_or_text(length.strip()) for name, _, length in pairs}
    if not parts.keys() <= {"succeeded", "failed"}:
        msg = f"{what} must be a time such as '1d', or 'succeeded=1d, failed=7d', not {text!r}."
        raise ConfigError(msg)
    return Retention(**parts)


def kept_runs(period: float) -> Kept:
    """Return the default retention of a timer's runs: an hour, or a hundred periods if longer.

    It is the same for all outcomes: a timer that fails every second must not fill the store.
    """
    length = min(max(_HOUR, _RUNS * period), TTL_MAX)
    return Kept(length, length)


def kept_at_least(kept: Kept, shortest: float) -> Kept:
    """Return a retention that is at least this long for every outcome."""
    return Kept(*(max(length, shortest) for length in kept))


def kept_with_key(draft: JobDraft) -> JobDraft:
    """Return a draft that is kept for at least as long as its unique key.

    Otherwise a repeated request would find the key of a job that is gone. It would get no result,
    and no job could run under the key, as there is none to requeue.
    """
    if draft.unique is None:
        return draft
    kept = kept_at_least(Kept(draft.retention, draft.retention_failed), draft.unique.keep)
    return replace(draft, retention=kept.succeeded, retention_failed=kept.failed)


def _kept(length: object, what: str) -> float:
    # `seconds` raises the error for any other type.
    return max(seconds(cast("Duration", length), what, maximum=TTL_MAX), RETENTION_MIN)


def _number_or_text(text: str) -> Duration:
    try:
        return float(text)
    except ValueError:
        return text
