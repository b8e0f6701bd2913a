"""Server-sent events of one job: a snapshot for each revision that is seen, until the last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from tenure.app.lifecycle import Services
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.states import FINISHED, JobState
from tenure.errors import JobNotFound, JobUnreadable, StoreError
from tenure.http.request import Headers
from tenure.http.server.store_trouble import tell_why

__all__ = ["EVENT_STREAM", "job_events", "last_event_id"]

EVENT_STREAM: Final = "text/event-stream"
# Often enough that proxies keep the connection open.
_PING_EVERY = 15.0
# In case a wake-up does not come.
_LOOK_EVERY = 2.0
# Progress comes as fast as a handler says it; nobody reads that fast.
_AT_MOST_EVERY = 0.2
_PING: Final = b": still here\n\n"


def last_event_id(headers: Headers) -> int:
    """Return the revision that the client has seen last; 0 if it has seen none."""
    text = headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


async def job_events(
    services: Services, id_: str, after: int, show: Callable[[JobRecord], bytes]
) -> AsyncIterator[bytes]:
    """Yield the events of a job, each with its revision as id: they rise, and the last one comes.

    Revisions that follow each other quickly become one event.
    """
    clock = services.store.clock
    state: JobState | None = None
    spoke = clock.boot()
    async with services.store.watch(("job", id_)) as bell:
        while True:
            try:
                record = await services.jobs.record(id_)
            except (JobNotFound, JobUnreadable):
                return  # pruned, or never to be seen again; who comes back is told
            except StoreError as error:
                tell_why(error)
                return  # who reads comes back by itself, with what it has seen last
            if record.revision > after:
                yield _event(record, _kind(record, state), show(record))
                after, state, spoke = record.revision, record.state, clock.boot()
            if record.state in FINISHED:
                return
            await bell.wait(_LOOK_EVERY)
            if clock.boot() - spoke >= _PING_EVERY:
                yield _PING
                spoke = clock.boot()
            elif (since := clock.boot() - spoke) < _AT_MOST_EVERY:
                await clock.sleep(_AT_MOST_EVERY - since)


def _kind(record: JobRecord, before: JobState | None) -> str:
    if record.state == "succeeded":
        return "result"
    is_progress = record.state == before == "running" and not record.cancelling
    return "progress" if is_progress else "state"


def _event(record: JobRecord, kind: str, shown: bytes) -> bytes:
    # A result is sent as the handler wrote it, which may be in several lines.
    data = b"".join(b"data: %s\n" % line for line in shown.splitlines())
    return b"id: %d\nevent: %s\n%s\n" % (record.revision, kind.encode(), data)
