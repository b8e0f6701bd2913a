"""Clients of the routes: `Client` for blocking code, `AsyncClient` for code on an event loop.

Importing this module needs no extra package. Creating a client needs `tenure[client]`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tenure.core.clock import BlockingClock, Clock, SystemClock
from tenure.core.durations import Duration
from tenure.http.client.conversation import Caller
from tenure.http.client.remote_job import JobEvent, JobView, KnownJob
from tenure.http.client.submission import (
    Context,
    Order,
    headers_about_a_job,
    headers_of_submission,
    submitting,
    whole_url,
)
from tenure.http.client.transport import AsyncLine, Line, http_client

if TYPE_CHECKING:
    import httpx2

__all__ = ["AsyncClient", "AsyncRemoteJob", "Client", "RemoteJob"]


class RemoteJob(JobView):
    """A job on a server. Its attributes are as of the last response; see `refresh`."""

    def __init__(self, job: KnownJob, line: Line) -> None:
        super().__init__(job)
        self._line = line

    def refresh(self, timeout: Duration | None = None) -> RemoteJob:
        """Fetch the job again; return itself. Raises JobNotFound if the store has removed it."""
        self._line.run(self._job.refreshing(timeout))
        return self

    def wait(self, timeout: Duration | None = None) -> RemoteJob:
        """Wait until the job has finished with any outcome; return itself. Raises TimeoutError."""
        self._line.run(self._job.waiting(self._job.deadline(timeout)))
        return self

    def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the job and return its result: decoded JSON, or bytes for other media types.

        Raises:
            JobFailed: the job has failed for good; `problem` is the server's description.
            JobCancelled: the job was cancelled.
            TimeoutError: the job has not finished in time. It continues on the server.
        """
        return self._line.run(self._job.resulting(timeout))

    def cancel(self, timeout: Duration | None = None) -> RemoteJob:
        """Request cancellation; return itself. A running job needs time to stop: `wait` for it."""
        self._line.run(self._job.cancelling(timeout))
        return self

    def events(
        self, *, after: int = 0, timeout: Duration | None = None
    ) -> Generator[JobEvent, None, None]:
        """Yield the job as it is now, then each change, until it has finished.

        If the connection drops, the client reconnects and continues after the last event. Changes
        in quick succession become one event. No event comes twice, and the last one always comes.

        Args:
            after: the last revision that you have seen. Earlier events are left out.
            timeout: how long to follow the job before TimeoutError is raised.
        """
        return self._line.follow(self._job.tail(after, timeout))


class Client:
    """Submits jobs over HTTP and waits for them. Threads may share one client.

        with Client("https://reports.example", headers={"Authorization": "Bearer ..."}) as client:
            report = client.submit("/reports", {"month": 3}).result(timeout="5m")

    After a lost response, a 5xx or a 429 the client retries with back-off, and not before
    `Retry-After`. Every retry of a submission has the same Idempotency-Key, so it creates one job
    however often it is sent.

    Args:
        base_url: the server, with the path above the routes.
        http: your own httpx client in place of `base_url`. `close` leaves it open.
        patience: how long to retry, counted from the first failure of each outage, before
            `ServerUnreachable` or `RequestRefused` is raised.
        context: called for each job; returns headers with the context of the caller, such as
            `tenure.otel.trace_headers`.
        options: for the httpx client: auth, headers, transport, verify...
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        http: httpx2.Client | None = None,
        patience: Duration = 60,
        context: Context | None = None,
        clock: BlockingClock | None = None,
        **options: Any,
    ) -> None:
        clock = clock or SystemClock()
        self._caller = Caller(clock, patience)
        self._context = context
        self._http = http_client("Client", base_url, http, options)
        self._is_own = http is None
        self._line = Line(self._http, clock)

    def submit(
        self,
        path: str,
        json: Any = None,
        *,
        method: str = "POST",
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        wait: Duration | None = None,
        timeout: Duration | None = None,
    ) -> RemoteJob:
        """Submit a job and return it. Once this returns, the job is durable.

        Args:
            path: the path of the endpoint, below `base_url`.
            json: the body: anything msgspec can encode, such as dicts, dataclasses and datetimes.
            method: the HTTP method of the endpoint.
            params: the query parameters.
            headers: sent with this request and with every later request about the job. Without an
                `X-Request-Id` among them, a new one is sent: see `RemoteJob.request_id`.
            key: your own Idempotency-Key, for example to get the same job from another process.
            wait: how long to wait for the job to finish before this returns. It returns the job
                either way.
            timeout: how long the call may take, `wait` included; by default until `patience` is
                over. A job that is stored by then is returned, even if no response described it.

        Raises:
            RequestRefused: the server rejects the request, or cannot take it now.
            ServerUnreachable: no response came.
            TimeoutError: no response came within `timeout`.

        After each of these errors the job may exist. Submit it again with the error's `key`, which
        a TimeoutError has in its message: the server then returns the same job.
        """
        url = whole_url(self._http, path, params)
        sent = headers_of_submission(self._caller, self._http, self._context, headers)
        order = Order(method=method, url=url, json=json, headers=sent, key=key)
        job = self._line.run(submitting(self._caller, order, timeout, wait))
        return RemoteJob(job, self._line)

    def job(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> RemoteJob:
        """Return a job by the `url` that you have kept of it. Raises JobNotFound."""
        sent = headers_about_a_job(self._context, headers)
        job = KnownJob(self._caller, whole_url(self._http, url), sent)
        return RemoteJob(job, self._line).refresh(timeout)

    def close(self) -> None:
        """Close the connections, unless `http` was passed in."""
        if self._is_own:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncRemoteJob(JobView):
    """A job on a server, for code on an event loop: `RemoteJob` with `await`."""

    def __init__(self, job: KnownJob, line: AsyncLine) -> None:
        super().__init__(job)
        self._line = line

    async def refresh(self, timeout: Duration | None = None) -> AsyncRemoteJob:
        """Fetch the job again; return itself. Raises JobNotFound if the store has removed it."""
        await self._line.run(self._job.refreshing(timeout))
        return self

    async def wait(self, timeout: Duration | None = None) -> AsyncRemoteJob:
        """Wait until the job has finished with any outcome; return itself. Raises TimeoutError."""
        await self._line.run(self._job.waiting(self._job.deadline(timeout)))
        return self

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the job and return its result; see `RemoteJob.result`."""
        return await self._line.run(self._job.resulting(timeout))

    async def cancel(self, timeout: Duration | None = None) -> AsyncRemoteJob:
        """Request cancellation; return itself. A running job needs time to stop: `wait` for it."""
        await self._line.run(self._job.cancelling(timeout))
        return self

    def events(
        self, *, after: int = 0, timeout: Duration | None = None
    ) -> AsyncGenerator[JobEvent, None]:
        """Yield the job as it is now, then each change; see `RemoteJob.events`."""
        return self._line.follow(self._job.tail(after, timeout))


class AsyncClient:
    """Submits jobs over HTTP and waits for them, on an event loop: `Client` with `await`.

        async with AsyncClient("https://reports.example") as client:
            job = await client.submit("/reports", {"month": 3})
            async for event in job.events():
                print(event.job.state, event.job.progress)

    It takes the arguments of `Client`. Here `http` is an asynchronous httpx client.
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        http: httpx2.AsyncClient | None = None,
        patience: Duration = 60,
        context: Context | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        clock = clock or SystemClock()
        self._caller = Caller(clock, patience)
        self._context = context
        self._http = http_client("AsyncClient", base_url, http, options)
        self._is_own = http is None
        self._line = AsyncLine(self._http, clock)

    async def submit(
        self,
        path: str,
        json: Any = None,
        *,
        method: str = "POST",
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        wait: Duration | None = None,
        timeout: Duration | None = None,
    ) -> AsyncRemoteJob:
        """Submit a job and return it: once this returns, it is durable. See `Client.submit`."""
        url = whole_url(self._http, path, params)
        sent = headers_of_submission(self._caller, self._http, self._context, headers)
        order = Order(method=method, url=url, json=json, headers=sent, key=key)
        job = await self._line.run(submitting(self._caller, order, timeout, wait))
        return AsyncRemoteJob(job, self._line)

    async def job(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> AsyncRemoteJob:
        """Return a job by the `url` that you have kept of it. Raises JobNotFound."""
        sent = headers_about_a_job(self._context, headers)
        job = KnownJob(self._caller, whole_url(self._http, url), sent)
        return await AsyncRemoteJob(job, self._line).refresh(timeout)

    async def close(self) -> None:
        """Close the connections, unless `http` was passed in."""
        if self._is_own:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
