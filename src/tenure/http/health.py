"""Health of a process over HTTP, as plain ASGI: /live and /ready for probes.

    web.mount("/health", tenure.http.health(app))       # FastAPI and Starlette

/live never calls the store: restarting a process does not bring a store back. /ready does, for at
most `timeout`; requests that come meanwhile, or within a second, share its answer.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from tenure.app import Tenure, engine_of
from tenure.app.health import check_process
from tenure.core.durations import Duration, seconds
from tenure.core.health import Health

__all__ = ["HealthRoutes", "health"]

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

# Probes of several balancers, and of strangers, add no load to a store in trouble.
_SHARED_FOR: Final = 1.0


def health(app: Tenure, *, timeout: Duration = 2.0, details: bool = False) -> HealthRoutes:
    """Return an ASGI application with the routes /live and /ready, to be mounted.

    Args:
        app: the app, which your service opens.
        timeout: how long /ready may take. Give the probe a second more.
        details: whether answers explain each check in words. They name the server of the store and
            queues, so leave it off where strangers can send requests.
    """
    return HealthRoutes(app, seconds(timeout, "timeout", minimum=0.001), details=details)


class HealthRoutes:
    """The routes /live and /ready of one app."""

    def __init__(self, app: Tenure, timeout: float, *, details: bool) -> None:
        self._app = app
        self._details = details
        self._timeout = timeout
        self._look: asyncio.Task[Health] | None = None
        self._looked_at = -math.inf

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            msg = f"health routes answer HTTP requests, not {scope['type']!r}"
            raise ValueError(msg)
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        routes = {"/live": self._live, "/ready": self._ready}
        if path not in routes:
            document: dict[str, Any] = {"error": "not found", "routes": list(routes)}
            await self._answer(scope, send, 404, document)
        elif scope["method"] not in ("GET", "HEAD"):
            await self._answer(scope, send, 405, {"error": "use GET or HEAD"})
        else:
            state = await routes[path]()
            status = 200 if state.is_ready else 503
            await self._answer(scope, send, status, state.document(details=self._details))

    async def _live(self) -> Health:
        return await check_process(engine_of(self._app))

    async def _ready(self) -> Health:
        """Return the health; requests on one loop at about the same time share one look."""
        loop = asyncio.get_running_loop()
        clock = engine_of(self._app).store.clock
        look = self._look
        is_fresh = clock.boot() - self._looked_at < _SHARED_FOR
        if look is None or look.get_loop() is not loop or (look.done() and not is_fresh):
            look = self._look = loop.create_task(self._look_now())
        # A request that is cancelled must not cancel the look of the others.
        return await asyncio.shield(look)

    async def _look_now(self) -> Health:
        state = await self._app.health(self._timeout)
        self._looked_at = engine_of(self._app).store.clock.boot()
        return state

    async def _answer(self, scope: Scope, send: Send, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        is_head = scope["method"] == "HEAD"
        await send({"type": "http.response.body", "body": b"" if is_head else body})
