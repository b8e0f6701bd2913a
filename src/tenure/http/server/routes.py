"""The routes of one router, free of any framework: submit, status, result, events, cancel, list.

Each method takes a `RequestData` and the name of the owner, and returns a `ResponseData` or raises
a Problem. A job carries a tag of its router and owner. Routes find jobs with that tag only, so a
job of another owner looks like one that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from tenure.app.engine import Services
from tenure.core.ids import is_job_id
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.results import read_stored
from tenure.core.jobs.states import FINISHED, STATES
from tenure.errors import JobNotFound, StoreError
from tenure.http.job_resource import JobList, JobResource, Responses, failure
from tenure.http.problems import Problem
from tenure.http.request import (
    RequestData,
    accepts,
    known_entity_tags,
    owner_tag,
    wait_preference,
)
from tenure.http.server.app_per_loop import Lending
from tenure.http.server.endpoint import Endpoint
from tenure.http.server.event_stream import EVENT_STREAM, job_events, last_event_id
from tenure.http.server.job_headers import JobHeaders
from tenure.http.server.response import JSON, ResponseData
from tenure.http.server.submission import submit
from tenure.jobs import Job

__all__ = ["PAGE", "PAGE_MAX", "Routes"]

PAGE: Final = 50
PAGE_MAX: Final = 200
_FEW = re.compile(r"[0-9]{1,3}")
_PRIVATE: Final = {"Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie"}


class Routes:
    """The routes of one router. Each call acts for one owner."""

    def __init__(
        self,
        name: str,
        lending: Lending,
        responses: Responses,
        max_wait: float,
        job_headers: JobHeaders,
    ) -> None:
        self._name = name
        self._job_headers = job_headers
        self._lending = lending
        self._responses = responses
        self._max_wait = max_wait
        self.endpoints: dict[str, Endpoint] = {}
        """The endpoints by the name of their task."""

    def _tag(self, owner: str) -> str:
        return owner_tag(self._name, owner)

    # Submitting.

    async def submit(
        self,
        endpoint: Endpoint,
        request: RequestData,
        owner: str,
        *,
        values: Mapping[str, Any],
        body: bytes,
    ) -> ResponseData:
        services = await self._lending.services()
        job = await submit(
            services,
            endpoint,
            owner=owner,
            tag=self._tag(owner),
            values=values,
            body=body,
            request=request,
            job_headers=self._job_headers.of(request.headers),
        )
        replayed = {} if job.is_new else {"Idempotency-Replayed": "true"}
        wait = min(wait_preference(request.headers), endpoint.entry.max_wait)
        record = job.record
        if wait > 0:
            # The job is stored, so the client must get its URL even if waiting for it fails.
            with suppress(Problem, StoreError):
                record = await self._finished(services, record, wait)
            if record.state == "succeeded" and failure(record) is None:
                return self._waited(record, request, replayed, wait)
        return ResponseData(
            status=202,
            headers={
                **_PRIVATE,
                **replayed,
                "Location": JobResource.of(record, request.base).links.job,
                **self._look_again(services, record),
            },
            body=self._write(record, request),
            media_type=JSON,
        )

    def _waited(
        self,
        record: JobRecord,
        request: RequestData,
        replayed: dict[str, str],
        wait: float,
    ) -> ResponseData:
        links = JobResource.of(record, request.base).links
        body, media_type = self._result(record)
        return ResponseData(
            status=200,
            headers={
                **_PRIVATE,
                **replayed,
                "Location": links.job,
                "Content-Location": links.result,
                "Preference-Applied": f"wait={wait:g}",
            },
            body=body,
            media_type=media_type,
        )

    # One job.

    async def get(self, request: RequestData, owner: str, id_: str) -> ResponseData:
        services, record = await self._find(owner, id_)
        seen, applied = known_entity_tags(request.headers), {}
        wait = min(wait_preference(request.headers), self._max_wait)
        if wait > 0:
            # A client that sends a revision waits for the next one, others for the end of the job.
            record = await self._finished(services, record, wait, seen=seen)
            applied = {"Preference-Applied": f"wait={wait:g}"}
        tag = _entity_tag(record)
        headers = {**_PRIVATE, **applied, "ETag": tag, **self._look_again(services, record)}
        if tag in seen or "*" in seen:
            return ResponseData(status=304, headers=headers)
        body = self._write(record, request)
        return ResponseData(status=200, headers=headers, body=body, media_type=JSON)

    async def result(self, request: RequestData, owner: str, id_: str) -> ResponseData:
        services, record = await self._find(owner, id_)
        wait = min(wait_preference(request.headers), self._max_wait)
        if wait > 0:
            record = await self._finished(services, record, wait)
        if record.state not in FINISHED:
            raise Problem.of(
                "not-ready", f"It is {record.state}.", headers=self._look_again(services, record)
            )
        if (problem := failure(record)) is not None:
            raise problem
        body, media_type = self._result(record)
        if not accepts(request.headers, media_type):
            raise Problem.of("not-acceptable", f"It is {media_type}.")
        return ResponseData(
            status=200,
            headers={**_PRIVATE, "ETag": _entity_tag(record), "X-Content-Type-Options": "nosniff"},
            body=body,
            media_type=media_type,
        )

    async def cancel(self, request: RequestData, owner: str, id_: str) -> ResponseData:
        services, record = await self._find(owner, id_)
        job: Job[Any] = services.jobs.handle(record)
        try:
            await job.cancel("cancelled by its owner")
        except JobNotFound:
            raise Problem.of("not-found") from None
        record = job.record
        is_over = record.state in FINISHED
        headers = {} if is_over else self._look_again(services, record)
        body = self._write(record, request)
        return ResponseData(
            status=200 if is_over else 202,
            headers={**_PRIVATE, **headers},
            body=body,
            media_type=JSON,
        )

    async def events(self, request: RequestData, owner: str, id_: str) -> ResponseData:
        services, record = await self._find(owner, id_)
        after = last_event_id(request.headers)
        if record.state in FINISHED and after >= record.revision:
            # The client has seen the last event. 204 keeps a browser's EventSource from
            # reconnecting.
            return ResponseData(status=204, headers=dict(_PRIVATE))
        return ResponseData(
            status=200,
            headers={**_PRIVATE, "X-Accel-Buffering": "no"},
            body=self._stream(services, request, id_, after),
            media_type=EVENT_STREAM,
        )

    def _stream(
        self, services: Services, request: RequestData, id_: str, after: int
    ) -> AsyncIterator[bytes]:
        return job_events(services, id_, after, lambda record: self._write(record, request))

    # Several jobs.

    async def page(self, request: RequestData, owner: str) -> ResponseData:
        state, cursor = request.query.get("state"), request.query.get("cursor")
        limit = request.query.get("limit", str(PAGE))
        errors = []
        if state is not None and state not in STATES:
            errors.append({"parameter": "state", "detail": f"one of {', '.join(STATES)}"})
        if not (_FEW.fullmatch(limit) and 1 <= int(limit) <= PAGE_MAX):
            errors.append({"parameter": "limit", "detail": f"from 1 to {PAGE_MAX}"})
        if cursor is not None and not is_job_id(cursor):
            errors.append({"parameter": "cursor", "detail": "use the cursor of the previous page"})
        if errors:
            raise Problem.of("invalid-request", errors=errors)
        services = await self._lending.services()
        page = await services.store.jobs.find(
            tag=self._tag(owner),
            state=state,  # type: ignore[arg-type]  # looked up above
            limit=int(limit),
            cursor=cursor,
        )
        jobs = [
            self._responses.show_job(JobResource.of(record, request.base)) for record in page.jobs
        ]
        body = msgspec.json.encode(JobList(jobs, page.cursor))
        return ResponseData(status=200, headers=dict(_PRIVATE), body=body, media_type=JSON)

    # What they share.

    async def _find(self, owner: str, id_: str) -> tuple[Services, JobRecord]:
        """Return a job of this owner. Raises "not-found" for other jobs, also if they exist."""
        if not is_job_id(id_):
            raise Problem.of("not-found")
        services = await self._lending.services()
        try:
            record = await services.jobs.record(id_)
        except JobNotFound:
            raise Problem.of("not-found") from None
        if self._tag(owner) not in record.tags:
            raise Problem.of("not-found")
        return services, record

    def _write(self, record: JobRecord, request: RequestData) -> bytes:
        endpoint = self.endpoints.get(record.task)
        inline = endpoint is not None and endpoint.entry.media_type == JSON
        return self._responses.write_job(JobResource.of(record, request.base, inline=inline))

    def _result(self, record: JobRecord) -> tuple[bytes, str]:
        """Return a result as the client gets it, and its media type.

        It is sent as JSON if it cannot be decoded for the media type of its endpoint: the job may
        be older than that declaration.
        """
        stored = read_stored(record.result or b"null")
        sent, endpoint = bytes(stored.sent), self.endpoints.get(record.task)
        if endpoint is None or endpoint.entry.media_type == JSON:
            return sent, JSON
        try:
            return endpoint.unwrap(stored.readable), endpoint.entry.media_type
        except ValueError:
            return sent, JSON

    async def _finished(
        self, services: Services, record: JobRecord, wait: float, seen: Collection[str] = ()
    ) -> JobRecord:
        """Return the job once it has finished, or as it is after `wait` seconds.

        If `seen` contains revisions, any other revision ends the wait as well.
        """

        def is_enough(record: JobRecord) -> bool:
            return record.state in FINISHED or (bool(seen) and _entity_tag(record) not in seen)

        deadline = services.store.clock.boot() + wait
        try:
            async with services.jobs.changes(record.id) as changes:
                return await changes.until(is_enough, deadline)
        except JobNotFound:
            raise Problem.of("not-found") from None

    def _look_again(self, services: Services, record: JobRecord) -> dict[str, str]:
        """Return a `Retry-After` header for an unfinished job; count the time of a finished one."""
        endpoint = self.endpoints.get(record.task)
        if record.state in FINISHED:
            if endpoint is not None:
                endpoint.pace.see(record)
            return {}
        now = services.store.clock.wall()
        after = 1 if endpoint is None else endpoint.pace.retry_after(record, now)
        return {"Retry-After": str(after)}


def _entity_tag(record: JobRecord) -> str:
    return f'"{record.revision}"'
