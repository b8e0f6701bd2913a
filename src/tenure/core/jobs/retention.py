"""How long finished jobs are kept: by how they ended, with an own rule for the runs of timers.

`parse_retention` reads what users give for an app, a task or a timer; what they leave out comes
from the level above. The result is a `Kept`, two numbers that go to the store with each job.
`kept_with_key` raises them for a job whose unique key lasts longer.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.durations import Duration, seconds
from tenure.core.jobs.records import JobDraft
from tenure.core.policy import RETENTION_MIN, TTL_MAX
from tenure.errors import ConfigError

__all__ = [
    "RETENTION_DEFAULT",
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

_HOUR: Final = 3600.0
_DAY: Final = 86_400.0
_RUNS: Final = 100
"""As many runs of a timer are kept at least as its history has decisions."""


class Retention(Struct, frozen=True, kw_only=True):
    """How long finished jobs are kept, by how they ended; each a minute at least.

        @app.task(retention=Retention(succeeded="1h", failed="30d"))

    What is left out is taken from the app; what the app leaves out is one day for jobs that
    succeeded or were cancelled, and seven days for jobs that failed.
    """

    succeeded: Duration | None = None
    """For jobs that succeeded, and for those that were cancelled."""
    failed: Duration | None = None
    """For jobs that failed: long enough to look into the error and to requeue them."""

    def __post_init__(self) -> None:
        parse_retention(self, RETENTION_DEFAULT)


RetentionOption: TypeAlias = Duration | Retention
"""What `retention=` takes: one time for all outcomes, or a time for each."""


class Kept(NamedTuple):
    """Seconds for which a finished job is kept."""

    succeeded: float
    """Also if it was cancelled."""
    failed: float


RETENTION_DEFAULT: Final = Kept(succeeded=_DAY, failed=7 * _DAY)
"""A result is wanted soon or never. A failure may wait for the end of a long weekend."""


def parse_retention(option: RetentionOption | None, default: Kept, what: str = "retention") -> Kept:
    """Return what `retention=` asks for; raise ConfigError for what is no time."""
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
    """Return a retention with plain times in seconds; raise ConfigError for what is no time."""
    if not isinstance(option, Retention):
        return _kept(option, "retention")
    parse_retention(option, RETENTION_DEFAULT)
    return option


def parse_retention_text(text: str, what: str) -> RetentionOption:
    """Return the retention in a variable: "1d", "3600", or "succeeded=1d, failed=7d"."""
    if "=" not in text:
        return _number_or_text(text)
    pairs = [part.partition("=") for part in text.split(",")]
    parts = {name.strip(): _number_or_text(length.strip()) for name, _, length in pairs}
    if not parts.keys() <= {"succeeded", "failed"}:
        msg = f"{what} must be a time such as '1d', or 'succeeded=1d, failed=7d', not {text!r}."
        raise ConfigError(msg)
    return Retention(**parts)


def kept_runs(period: float) -> Kept:
    """Return how long runs of a timer are kept by default: an hour, or a hundred periods.

    All outcomes alike: a timer that fails every second must not fill the store within a week.
    """
    length = min(max(_HOUR, _RUNS * period), TTL_MAX)
    return Kept(length, length)


def kept_at_least(kept: Kept, shortest: float) -> Kept:
    """Return a retention that is no shorter than this, however the job ends."""
    return Kept(*(max(length, shortest) for length in kept))


def kept_with_key(draft: JobDraft) -> JobDraft:
    """Return a draft that is kept for at least as long as its unique key.

    Otherwise a repeat would find the key of a job that is gone: it has no result any more, and
    nothing could run under the key, as there is no job to requeue.
    """
    if draft.unique is None:
        return draft
    kept = kept_at_least(Kept(draft.retention, draft.retention_failed), draft.unique.keep)
    return replace(draft, retention=kept.succeeded, retention_failed=kept.failed)


def _kept(length: object, what: str) -> float:
    # Whatever it is, `seconds` says what is wrong with it.
    return max(seconds(cast("Duration", length), what, maximum=TTL_MAX), RETENTION_MIN)


def _number_or_text(text: str) -> Duration:
    try:
        return float(text)
    except ValueError:
        return text
