"""Server-sent events of one job: a snapshot for each revision that is seen, up to the last.

The id of an event is the revision of the job. Revisions only rise, so a client that reconnects with
`Last-Event-ID`, to any replica, gets each later revision once and always the last one. Revisions in
quick succession become one event. `Routes.events` answers with this stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from tenure.app.lifecycle import Services
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.states import FINISHED, JobState
from tenure.errors import JobNotFound, JobUnreadable, StoreError
from tenure.http.request import Headers
from tenure.http.server.store_trouble import log_store_error

__all__ = ["EVENT_STREAM", "job_events", "last_event_id"]

EVENT_STREAM: Final = "text/event-stream"
# Proxies drop a connection that is silent for long, many of them after 60 s.
_PING_EVERY = 15.0
# A handler may report progress faster than a browser can show it.
_AT_MOST_EVERY = 0.2
_PING: Final = b": still here\n\n"


def last_event_id(headers: Headers) -> int:
    """Return the revision of the last event that the client has received; 0 if there is none."""
    text = headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


async def job_events(
    services: Services, id_: str, after: int, show: Callable[[JobRecord], bytes]
) -> AsyncIterator[bytes]:
    """Yield the events of a job with revisions above `after`, and pings, until it has finished.

    Ends early if the job or the store is gone: the client reconnects, and the status says why.
    """
    clock = services.store.clock
    state: JobState | None = None
    sent_at = clock.boot()
    async with services.jobs.changes(id_) as changes:
        while True:
            try:
                record = await changes.record()
            except (JobNotFound, JobUnreadable):
                return  # it was pruned or damaged meanwhile
            except StoreError as error:
                log_store_error(error)
                return
            if record.revision > after:
                yield _event(record, _kind(record, state), show(record))
                after, state, sent_at = record.revision, record.state, clock.boot()
            if record.state in FINISHED:
                return
            await changes.wait()
            if clock.boot() - sent_at >= _PING_EVERY:
                yield _PING
                sent_at = clock.boot()
            elif (since := clock.boot() - sent_at) < _AT_MOST_EVERY:
                # Sleep first and read then, so that one event has all changes of this time.
                await clock.sleep(_AT_MOST_EVERY - since)


def _kind(record: JobRecord, before: JobState | None) -> str:
    """Return "result" for success, "progress" while the job runs on, and "state" otherwise."""
    if record.state == "succeeded":
        return "result"
    is_progress = record.state == before == "running" and not record.cancelling
    return "progress" if is_progress else "state"


def _event(record: JobRecord, kind: str, shown: bytes) -> bytes:
    # A result is sent as the handler wrote it, which may be several lines of JSON.
    data = b"".join(b"data: %s\n" % line for line in shown.splitlines())
    return b"id: %d\nevent: %s\n%s\n" % (record.revision, kind.encode(), data)
