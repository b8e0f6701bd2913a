"""What a job of a task is to be, beside its arguments: queue, delay, unique key, headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from tenure.core.durations import Duration, seconds
from tenure.core.jobs.headers import check_headers
from tenure.core.jobs.parents import RESERVED
from tenure.core.jobs.records import PRIORITIES
from tenure.core.jobs.retention import RetentionOption, checked_retention
from tenure.core.jobs.retry_policy import Backoff, RetryOption, parse_retry
from tenure.core.lease_policy import TTL_MAX
from tenure.core.leases import check_name
from tenure.errors import ConfigError

__all__ = ["Options", "Unique"]

_TAGS_MAX = 10
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


class Unique:
    """A key that at most one job of a task has at a time.

        charge.using(unique=Unique("charge:7", keep="30d"))     # no second charge within 30 days

    Args:
        key: any text of up to 200 characters.
        keep: how long the key stays taken, counted from the enqueue, if the job is done earlier.
            By default it is free as soon as the job has finished: a second job may follow at once.
            The finished job is kept at least as long, whatever its retention is.
    """

    def __init__(self, key: str, *, keep: Duration = 0) -> None:
        self.key = check_name(key, "unique key")
        self.keep = seconds(keep, "keep", maximum=TTL_MAX)


class Options(Struct, frozen=True, kw_only=True):
    """What a job of a task is to be, beside its arguments."""

    queue: str = "default"
    priority: int = 5
    timeout: float | None = None
    retention: RetentionOption | None = None
    retry: Backoff | None = None
    """None: as the task was declared."""
    delay: float = 0.0
    at: int | None = None
    unique: Unique | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}

    def changed(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        timeout: Duration | None = None,
        retention: RetentionOption | None = None,
        retry: RetryOption | UnsetType = UNSET,
        delay: Duration | None = None,
        at: datetime | None = None,
        unique: str | Unique | None = None,
        tags: Iterable[str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Options:
        """Return these options with others in their place. Raises ConfigError for a wrong one."""
        if delay is not None and at is not None:
            msg = "give either delay= or at=, not both."
            raise ConfigError(msg)
        options: tuple[tuple[str, Callable[[Any], object], object], ...] = (
            ("queue", _queue, queue),
            ("priority", _priority, priority),
            ("timeout", _timeout, timeout),
            ("retention", checked_retention, retention),
            ("unique", _unique, unique),
            ("tags", _tags, tags),
            ("headers", check_headers, headers),
        )
        changes = {name: parse(value) for name, parse, value in options if value is not None}
        if not isinstance(retry, UnsetType):  # None is a single try
            changes["retry"] = parse_retry(retry, Backoff())
        if delay is not None:
            changes |= {"delay": seconds(delay, "delay", maximum=TTL_MAX), "at": None}
        if at is not None:
            changes |= {"at": _instant(at), "delay": 0.0}
        return replace(self, **changes)


def _timeout(length: Duration) -> float:
    return seconds(length, "timeout", minimum=0.001, maximum=TTL_MAX)


def _unique(key: str | Unique) -> Unique:
    return key if isinstance(key, Unique) else Unique(key)


def _queue(name: object) -> str:
    queue = check_name(name, "queue")
    if queue.startswith("@"):
        msg = f"queue {queue!r}: names that begin with '@' are reserved."
        raise ConfigError(msg)
    if "," in queue:
        msg = f"queue {queue!r}: a comma separates queues on the command line; use another sign."
        raise ConfigError(msg)
    return queue


def _priority(priority: object) -> int:
    if type(priority) is not int or priority not in PRIORITIES:
        msg = f"priority must be a whole number from 0 (first) to 9, not {priority!r}."
        raise ConfigError(msg)
    return priority


def _tags(tags: Iterable[str]) -> tuple[str, ...]:
    if isinstance(tags, str):
        msg = f"tags must be a list of words, not the text {tags!r}."
        raise ConfigError(msg)
    names = tuple(dict.fromkeys(check_name(tag, "tag") for tag in tags))
    if len(names) > _TAGS_MAX:
        msg = f"a job has at most {_TAGS_MAX} tags, not {len(names)}."
        raise ConfigError(msg)
    if reserved := next((name for name in names if name.startswith(RESERVED)), None):
        msg = f"tag {reserved!r}: tags that begin with {RESERVED!r} are reserved."
        raise ConfigError(msg)
    return names


def _instant(at: object) -> int:
    if not isinstance(at, datetime):
        msg = f"at must be a datetime, not {at!r}."
        raise ConfigError(msg)
    if at.utcoffset() is None:
        msg = (
            f"at={at.isoformat()} has no time zone, so that it means another instant on every "
            "machine. Use datetime.now(UTC) + ..., or give it a tzinfo."
        )
        raise ConfigError(msg)
    if at > _LAST:
        msg = f"at={at.isoformat()} is too far away; the calendar ends with {_LAST.date()}."
        raise ConfigError(msg)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
