"""What all routes of one dashboard share: its looks at the store, its rules and its options."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct

from tenure import __version__
from tenure.app import Tenure
from tenure.core.jobs.records import JobRecord, QueueCounts
from tenure.core.jobs.view import as_datetime
from tenure.core.why import Fleet, Surroundings, why_job
from tenure.dashboard.documents import Places, job_document
from tenure.dashboard.masks import Masks
from tenure.dashboard.recent_events import RecentEvents
from tenure.dashboard.request import Request
from tenure.dashboard.snapshot import Snapshot
from tenure.dashboard.viewer import Viewer
from tenure.errors import ConfigError, TenureError
from tenure.http.server.router import router_names

log = logging.getLogger("tenure.dashboard")

__all__ = ["Site", "TraceUrl", "places_of", "session"]

TraceUrl = str | Callable[[Mapping[str, str]], str | None]
"""The address of a job's trace: with {trace_id} and {span_id}, or a function of its headers."""

_PATIENCE: Final = 1.0
_SCHEMES: Final = ("https://", "http://")

REFRESH: Final = 2.0
"""Every so many seconds the store is looked at while a page is open."""


class Site:
    """One dashboard."""

    def __init__(
        self,
        app: Tenure,
        *,
        masks: Masks,
        trace_url: TraceUrl | None,
        routers: Sequence[str] | None,
        title: str | None,
    ) -> None:
        self.app = app
        self.snapshot = Snapshot(app)
        self.masks = masks
        if isinstance(trace_url, str) and not trace_url.startswith(_SCHEMES):
            msg = f"trace_url= must begin with https:// or http://, not {trace_url!r}."
            raise ConfigError(msg)
        self.trace_url = trace_url
        self._routers = routers
        self.title = title or self.snapshot.engine.store.namespace
        self.recent = RecentEvents(self.snapshot.clock.wall)
        # Without details: a mounted dashboard that nobody looks at costs jobs and locks nothing.
        self.snapshot.engine.events.subscribe(self.recent.add, details=False)

    @property
    def routers(self) -> Sequence[str]:
        """The names of the routers whose owners can be searched."""
        return router_names(self.app) if self._routers is None else self._routers

    async def stamped(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document with the store's time."""
        return {"now": as_datetime(await self.snapshot.now()), **document}

    async def surroundings(self, jobs: Iterable[JobRecord] | None = None) -> Surroundings:
        """Return what explains why jobs are as they are; without `jobs`, also timers and queues.

        Only jobs that wait need the queues, whose counts take longer than all else.
        """
        snapshot, engine = self.snapshot, self.snapshot.engine
        handlers = engine.registry.handlers
        needs_queues = jobs is None or any(job.state == "waiting" for job in jobs)
        now, replicas, queues = await asyncio.gather(
            snapshot.now(), snapshot.replicas(), snapshot.queues() if needs_queues else _none()
        )
        return Surroundings(
            now=now,
            fleet=Fleet(replicas),
            queues={queue.queue: queue for queue in queues},
            max_attempts={task: handlers[task].retry.max_attempts for task in handlers},
            isolate_after=engine.settings.isolate_after,
        )

    def job(self, job: JobRecord, viewer: Viewer, around: Surroundings) -> dict[str, Any]:
        """Return a job as lists have it."""
        return job_document(
            job,
            places_of(around),
            self.snapshot.engine.registry.handlers,
            shows_owner=viewer.may_see_owners,
            why=why_job(job, around).text if job.state == "waiting" else None,
        )

    def trace_link(self, headers: Mapping[str, str]) -> str | None:
        """Return the address of a job's trace; None if there is none that a link may have."""
        if self.trace_url is None:
            return None
        if callable(self.trace_url):
            link = self._hooked_link(self.trace_url, headers)
        else:
            parts = headers.get("traceparent", "").split("-")
            if len(parts) != 4 or not all(parts):
                return None
            trace, span = quote(parts[1], safe=""), quote(parts[2], safe="")
            link = self.trace_url.replace("{trace_id}", trace).replace("{span_id}", span)
        # Headers are data: a link must not become a script.
        return link if isinstance(link, str) and link.startswith(_SCHEMES) else None

    def _hooked_link(
        self, hook: Callable[[Mapping[str, str]], str | None], headers: Mapping[str, str]
    ) -> str | None:
        try:
            return hook(headers)
        except Exception:
            log.exception("trace_url= of the dashboard failed; the job has no link")
            return None


async def _none() -> list[QueueCounts]:
    return []


def places_of(around: Surroundings) -> Places:
    """Return where the replicas run."""
    return Places(around.fleet)


class _May(Struct, frozen=True):
    act: bool
    reveal: bool
    owners: bool


async def session(site: Site, request: Request) -> dict[str, Any]:
    """Return who looks, what they may do, and what they look at. Works without the store."""
    viewer, store = request.viewer, site.snapshot.engine.store
    with suppress(TenureError, TimeoutError):  # a page must open while the store hangs
        async with asyncio.timeout(_PATIENCE):
            await site.snapshot.services()
    grade = site.snapshot.grade
    return {
        "app": site.title,
        "version": __version__,
        "store": {
            "url": store.url,
            "kind": store.url.partition(":")[0].partition("+")[0],
            "grade": None if grade is None else grade.name,
            "grade_text": None if grade is None else grade.value,
            "namespace": store.namespace,
        },
        "viewer": viewer.name or None,
        "may": _May(viewer.may_act, viewer.may_reveal, viewer.may_see_owners),
        "token": request.token,
        "trace_link": site.trace_url is not None,
        "refresh": REFRESH,
    }
