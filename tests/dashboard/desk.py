"""A dashboard as a browser sees it: requests of the same origin, with the session's token."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx2
import msgspec

from tenure import Tenure
from tenure.dashboard import Dashboard, Viewer
from tenure.testing import ManualClock

ANN = Viewer("ann", may_act=True, may_reveal=True, may_see_owners=True)
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


class Desk:
    """A browser on a dashboard."""

    def __init__(self, dashboard: Any, client: httpx2.AsyncClient) -> None:
        self.dashboard = dashboard
        self.client = client

    async def get(self, path: str, status: int = 200, **query: str) -> Any:
        """Return the document at a path."""
        reply = await self.client.get(path, params=query or None)
        assert reply.status_code == status, reply.text
        return reply.json()

    async def post(self, path: str, status: int = 200, **body: Any) -> Any:
        """Send an action as the pages do; return its answer."""
        token = (await self.get("api/session"))["token"]
        reply = await self.client.post(path, json=body, headers={"x-tenure-token": token})
        assert reply.status_code == status, reply.text
        return reply.json()


@asynccontextmanager
async def desk_of(
    dashboard: Any, prefix: str = "", headers: Mapping[str, str] = SAME_ORIGIN
) -> AsyncIterator[Desk]:
    """Open a browser on a dashboard, or on a service that mounts one."""
    transport = httpx2.ASGITransport(app=dashboard)
    async with httpx2.AsyncClient(
        transport=transport, base_url=f"http://ops.test{prefix}/", headers=headers
    ) as client:
        yield Desk(dashboard, client)


@asynccontextmanager
async def desk_on(app: Tenure, viewer: Viewer | None = ANN, **options: Any) -> AsyncIterator[Desk]:
    """Open a browser on the dashboard of an app; without a viewer, there is no sign-in."""
    auth = None if viewer is None else lambda _scope: viewer
    dashboard = Dashboard(app, auth=auth, **options)
    try:
        async with desk_of(dashboard) as desk:
            yield desk
    finally:
        await dashboard.close()


async def passing(clock: ManualClock, call: Awaitable[Any]) -> Any:
    """Let time pass until a call has ended; return its answer."""
    task = asyncio.ensure_future(call)
    while not task.done():
        await clock.advance(0.01)
    return await task


class Stream:
    """An open stream of events, read as a browser does."""

    def __init__(self, dashboard: Any, query: bytes = b"") -> None:
        self._dashboard = dashboard
        self._query = query
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gone.set()
        await self._task

    async def tick(self) -> dict[str, Any]:
        """Return the next tick."""
        while True:
            async with asyncio.timeout(10):
                part = await self._parts.get()
            assert part is not None, "the stream has ended"
            if (at := part.find(b"data: ")) >= 0:
                document: dict[str, Any] = msgspec.json.decode(part[at + 6 :])
                return document

    async def ended(self) -> None:
        """Return once the server has ended the stream."""
        while await self._parts.get() is not None:
            pass

    @property
    def is_quiet(self) -> bool:
        return self._parts.empty()

    async def _run(self) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/stream",
            "raw_path": b"/api/stream",
            "root_path": "",
            "query_string": self._query,
            "headers": [(b"host", b"ops.test"), (b"sec-fetch-site", b"same-origin")],
        }
        await self._dashboard(scope, self._receive, self._send)
        self._parts.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["body"]:
            self._parts.put_nowait(message["body"])
