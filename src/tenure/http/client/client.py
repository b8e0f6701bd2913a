"""Clients of the routes: `Client` for plain code, `AsyncClient` for code on an event loop.

They need `tenure[client]`, but only once one is made: to import them takes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tenure.core.clock import BlockingClock, Clock, SystemClock
from tenure.core.durations import Duration
from tenure.http.client.conversation import Caller
from tenure.http.client.remote_job import JobEvent, JobView, KnownJob
from tenure.http.client.submission import Order, submitting, whole_url
from tenure.http.client.transport import AsyncLine, Line, http_client

if TYPE_CHECKING:
    import httpx2

__all__ = ["AsyncClient", "AsyncRemoteJob", "Client", "RemoteJob"]


class RemoteJob(JobView):
    """A job on a server. What it shows is as of the last look; see `refresh`."""

    def __init__(self, job: KnownJob, line: Line) -> None:
        super().__init__(job)
        self._line = line

    def refresh(self, timeout: Duration | None = None) -> RemoteJob:
        """Look again; return itself. Raises JobNotFound if it is not there any more."""
        self._line.run(self._job.refreshing(timeout))
        return self

    def wait(self, timeout: Duration | None = None) -> RemoteJob:
        """Wait until it has finished, however; return itself. Raises TimeoutError."""
        self._line.run(self._job.waiting(self._job.deadline(timeout)))
        return self

    def result(self, timeout: Duration | None = None) -> Any:
        """Return what the handler returned, waiting for it: JSON as Python's, other types as bytes.

        Raises:
            JobFailed: it has failed for good; `problem` is what the server tells about it.
            JobCancelled: it was cancelled.
            TimeoutError: it has not finished in time; it goes on.
        """
        return self._line.run(self._job.resulting(timeout))

    def cancel(self, timeout: Duration | None = None) -> RemoteJob:
        """Ask for an end; return itself. What runs has to be told: `wait` for it."""
        self._line.run(self._job.cancelling(timeout))
        return self

    def events(
        self, *, after: int = 0, timeout: Duration | None = None
    ) -> Generator[JobEvent, None, None]:
        """Yield the job as it is, then each change, until it has finished.

        A stream that is cut off is taken up again where it ended. Changes that follow each other
        quickly become one; none comes twice, and the last one always comes.

        Args:
            after: the revision that was seen last; what came before it is left out.
            timeout: how long to follow it; raises TimeoutError then.
        """
        return self._line.follow(self._job.tail(after, timeout))


class Client:
    """Submits jobs over HTTP and waits for them. May be shared by threads.

        with Client("https://reports.example", headers={"Authorization": "Bearer ..."}) as client:
            report = client.submit("/reports", {"month": 3}).result(timeout="5m")

    A lost answer, a 5xx and a 429 are no end: it asks again, not before `Retry-After` and later
    each time. A submission is sent with the same Idempotency-Key until it is answered, so that
    there is one job of it, however often it is sent.

    Args:
        base_url: the server, with the path below which the routes are.
        http: an httpx client of your own instead, which stays open.
        patience: how long a server may stay away, each time and from the first failure on, before
            `ServerUnreachable` or `RequestRefused` is raised.
        options: for the httpx client: auth, headers, transport, verify...
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        http: httpx2.Client | None = None,
        patience: Duration = 60,
        clock: BlockingClock | None = None,
        **options: Any,
    ) -> None:
        clock = clock or SystemClock()
        self._caller = Caller(clock, patience)
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
        """Submit a job and return it: once this returns, it is durable.

        Args:
            path: of the endpoint, below `base_url`.
            json: the body: what msgspec can write, such as dicts, dataclasses and datetimes.
            method: of the endpoint.
            params: the query.
            headers: go along with this and with all that is asked about the job later.
            key: an Idempotency-Key of your own, to get the same job from another process too.
            wait: how long to wait for its end before returning; it need not have finished then.
            timeout: how long all of it may take, `wait` included. Without it, as long as there is
                `patience`. A job that is stored by then is returned, seen or not.

        Raises:
            RequestRefused: the server does not want it, or not for now.
            ServerUnreachable: there was no answer.
            TimeoutError: there was none within `timeout`.

        After any of them the job may be there. Submit it again with the error's `key`, which a
        TimeoutError names in its message, and there is one job of both.
        """
        url = whole_url(self._http, path, params)
        order = Order(method=method, url=url, json=json, headers=headers or {}, key=key)
        job = self._line.run(submitting(self._caller, order, timeout, wait))
        return RemoteJob(job, self._line)

    def job(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> RemoteJob:
        """Return a job by its `url`, which may have been kept. Raises JobNotFound."""
        job = KnownJob(self._caller, whole_url(self._http, url), headers or {})
        return RemoteJob(job, self._line).refresh(timeout)

    def close(self) -> None:
        """Close what this client has opened."""
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
        """Look again; return itself. Raises JobNotFound if it is not there any more."""
        await self._line.run(self._job.refreshing(timeout))
        return self

    async def wait(self, timeout: Duration | None = None) -> AsyncRemoteJob:
        """Wait until it has finished, however; return itself. Raises TimeoutError."""
        await self._line.run(self._job.waiting(self._job.deadline(timeout)))
        return self

    async def result(self, timeout: Duration | None = None) -> Any:
        """Return what the handler returned, waiting for it; see `RemoteJob.result`."""
        return await self._line.run(self._job.resulting(timeout))

    async def cancel(self, timeout: Duration | None = None) -> AsyncRemoteJob:
        """Ask for an end; return itself. What runs has to be told: `wait` for it."""
        await self._line.run(self._job.cancelling(timeout))
        return self

    def events(
        self, *, after: int = 0, timeout: Duration | None = None
    ) -> AsyncGenerator[JobEvent, None]:
        """Yield the job as it is, then each change until the last; see `RemoteJob.events`."""
        return self._line.follow(self._job.tail(after, timeout))


class AsyncClient:
    """Submits jobs over HTTP and waits for them, on an event loop: `Client` with `await`.

        async with AsyncClient("https://reports.example") as client:
            job = await client.submit("/reports", {"month": 3})
            async for event in job.events():
                print(event.job.state, event.job.progress)

    It takes the arguments of `Client`; `http` is an asynchronous httpx client here.
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        http: httpx2.AsyncClient | None = None,
        patience: Duration = 60,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        clock = clock or SystemClock()
        self._caller = Caller(clock, patience)
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
        order = Order(method=method, url=url, json=json, headers=headers or {}, key=key)
        job = await self._line.run(submitting(self._caller, order, timeout, wait))
        return AsyncRemoteJob(job, self._line)

    async def job(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> AsyncRemoteJob:
        """Return a job by its `url`, which may have been kept. Raises JobNotFound."""
        job = KnownJob(self._caller, whole_url(self._http, url), headers or {})
        return await AsyncRemoteJob(job, self._line).refresh(timeout)

    async def close(self) -> None:
        """Close what this client has opened."""
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
