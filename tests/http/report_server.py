"""A real server in a thread, with jobs that a test controls by gates."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from tenure import JobContext, Tenure
from tenure.http import AsyncRouter, Problem
from tests.rig.waiting import wait_until


@dataclass
class ReportRequest:
    """What a job of a test does."""

    steps: int = 0
    gate: str = ""
    """Opened once for each step, and once for the end."""
    size: int | None = None
    problem: str = ""
    error: str = ""


class Server:
    """Reports over HTTP, with a worker in the same process."""

    def __init__(self, url: str, port: int = 0) -> None:
        self._opened: Counter[str] = Counter()
        app = Tenure(url, grace=0.1)
        reports = AsyncRouter(app, prefix="/reports", owner=_user)

        @reports.post("", retry=None)
        async def build(body: ReportRequest, job: JobContext) -> dict[str, str] | None:
            for step in range(body.steps):
                await self._passes(body.gate, step)
                # splitlines() treats U+2028 as a line end; JSON and server-sent events do not.
                job.progress((step + 1) / (body.steps + 1), f"step\u2028{step}")
            await self._passes(body.gate, body.steps)
            if body.problem:
                raise Problem(422, "No such month", detail=body.problem, type="urn:x:month")
            if body.error:
                raise ValueError(body.error)
            return None if body.size is None else {"pages": "x" * body.size}

        @reports.put("/{year}", media_type="text/csv")
        def redo(year: int, header: bool = False) -> str:
            return f"year\n{year}\n" if header else f"{year}\n"

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self._loop = asyncio.get_running_loop()
            async with app, app.worker():
                yield

        routes = [Mount("/", app=reports.asgi)]
        config = uvicorn.Config(
            Starlette(routes=routes, lifespan=lifespan),
            host="127.0.0.1",
            port=port,
            log_level="critical",
            timeout_graceful_shutdown=0,
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._uvicorn.run)

    @property
    def url(self) -> str:
        port = self._uvicorn.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def open(self, gate: str, times: int = 1) -> None:
        self._opened[gate] += times

    async def _passes(self, gate: str, step: int) -> None:
        while gate and self._opened[gate] <= step:  # noqa: ASYNC110 - opened by another thread
            await asyncio.sleep(0.005)

    @contextmanager
    def stuck(self) -> Iterator[None]:
        """Let the server answer nothing, although it takes connections."""
        go_on, is_stuck = threading.Event(), threading.Event()

        def wait() -> None:
            is_stuck.set()
            go_on.wait(60)

        self._loop.call_soon_threadsafe(wait)
        try:
            assert is_stuck.wait(20)
            yield
        finally:
            go_on.set()

    @contextmanager
    def running(self) -> Iterator["Server"]:
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self._uvicorn.started, timeout=20)

    def stop(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()


def _user(request: Request) -> str:
    return request.headers.get("x-user", "somebody")
