"""The public attributes of a job, for its callers and its handler."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from tenure.core.jobs.hand_backs import UNKNOWN_TASK
from tenure.core.jobs.history import read_history
from tenure.core.jobs.options import read_options
from tenure.core.jobs.parents import own_tags, parent_of
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.run_numbers import runs_of

__all__ = ["JobView", "as_datetime", "waits_for_its_task"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


def as_datetime(instant: int) -> datetime:
    """Return an instant of the store's clock as a datetime, within the range of datetime."""
    try:
        return _EPOCH + timedelta(microseconds=instant)
    except OverflowError:
        return _LAST if instant > 0 else _EPOCH


def waits_for_its_task(record: JobRecord) -> bool:
    """Whether it waits for a worker that knows its task, because the last worker did not."""
    if record.state != "waiting":
        return False
    last = read_history(record.history)[-1:]
    return [(line.outcome, line.error) for line in last] == [("handed back", UNKNOWN_TASK)]


class JobView:
    """Public attributes that a `Job` and a `JobContext` share."""

    _record: JobRecord

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def task(self) -> str:
        return self._record.task

    @property
    def queue(self) -> str:
        return self._record.queue

    @property
    def tags(self) -> tuple[str, ...]:
        return own_tags(self._record.tags)

    @property
    def parent(self) -> str | None:
        """The id of the job whose handler has enqueued it; None if no handler has."""
        return parent_of(self._record.tags)

    @property
    def headers(self) -> Mapping[str, str]:
        """What travels with the job beside its arguments; the same for all its attempts."""
        return MappingProxyType(read_options(self._record.options).headers)

    @property
    def attempt(self) -> int:
        """How often it was started, the current attempt included."""
        return runs_of(self._record)

    @property
    def failures(self) -> int:
        """How many attempts ended with an error."""
        return self._record.failures

    @property
    def losses(self) -> int:
        """How many attempts were lost with their worker."""
        return self._record.losses
