"""`Dashboard`: one ASGI application without a framework, mounted in a service or served alone.

Every request passes the same gates in this order: the host, the viewer, the origin, and for an
action the token, the kind of its body and its size. Only then a route runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from msgspec.structs import replace

from tenure.app import Tenure, engine_of
from tenure.dashboard.answer import Answer, Refusal, json_answer, problem, problem_page
from tenure.dashboard.assets import Assets
from tenure.dashboard.masks import Masks, Reveal
from tenure.dashboard.protection import HEADERS, Browser, check_host, check_origin
from tenure.dashboard.request import Request
from tenure.dashboard.routes import Route, find_route
from tenure.dashboard.scope import (
    Message,
    Receive,
    Scope,
    address_of,
    body_of,
    headers_of,
    is_navigation,
    query_of,
    split_path,
)
from tenure.dashboard.site import Site, TraceUrl
from tenure.dashboard.stream import Ticker, topics_in
from tenure.dashboard.viewer import Auth, viewer_of
from tenure.errors import (
    ConfigError,
    JobNotFound,
    StoreError,
    StoreUnavailable,
    TenureError,
    TimerNotFound,
)

__all__ = ["Dashboard"]

log = logging.getLogger("tenure.dashboard")

Send: TypeAlias = Callable[[Message], Awaitable[None]]

_EVENT_STREAM: Final = "text/event-stream"


class Dashboard:
    """Pages about the jobs, timers, locks and replicas of an app, and the API behind them."""

    def __init__(
        self,
        app: Tenure,
        *,
        auth: Auth | None = None,
        reveal: Reveal | None = None,
        trace_url: TraceUrl | None = None,
        routers: Sequence[str] | None = None,
        title: str | None = None,
        hosts: Sequence[str] | None = None,
        sign_in: str | None = None,
    ) -> None:
        """Make the application; it opens no store before the first request.

        Args:
            app: the app, which your service opens. Where it is not open, the dashboard opens a
                connection of its own at the first request.
            auth: a function of the ASGI scope, async or not, that returns a `Viewer`, a name, or
                None for a stranger, who gets a 401. Without it everybody may look and nobody may
                act, see contents of jobs, or see owners.
            reveal: rules for the contents of jobs by task: "always", "never", or a list of the
                arguments that may be seen. Without a rule, only a viewer with `may_reveal` sees
                them.
            trace_url: the address of a trace, such as "https://traces/{trace_id}", or a function of
                a job's headers that returns it.
            routers: the names of the routers whose owners can be searched; by default those that
                this process has made for the app.
            title: what the pages call the app; its namespace by default.
            hosts: the names under which it is reached; requests for other names are refused.
            sign_in: the address of your sign-in, such as "/login". Browsers without a viewer are
                sent there. "{next}" in it becomes the address that they wanted.
        """
        _check_kinds(app, auth)
        clock = engine_of(app).store.clock
        self._auth = auth
        self._hosts = None if hosts is None else tuple(host.lower() for host in hosts)
        self._token = clock.token
        self._sign_in = sign_in
        self._site = Site(
            app,
            masks=Masks(reveal or {}),
            trace_url=trace_url,
            routers=routers,
            title=title,
        )
        self._assets = Assets()
        self._tickers: dict[asyncio.AbstractEventLoop, Ticker] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def close(self) -> None:
        """Stop looking, and close what was opened for the dashboard alone."""
        loop = asyncio.get_running_loop()
        if (ticker := self._tickers.pop(loop, None)) is not None:
            await ticker.close()
        await self._site.snapshot.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        """Take part in the lifespan of a server that serves nothing else."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except Refusal as refusal:
            answer = self._refuse(scope, refusal)
        except (ConfigError, TenureError) as error:
            answer = problem(_refused(error))
        except Exception:
            log.exception("the dashboard failed to answer a request")
            answer = problem(Refusal(500, "This request failed. The log of this server says why."))
        if isinstance(answer, Answer):
            await _send_whole(scope, send, answer)
        else:
            await _send_stream(scope, receive, send, answer)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | AsyncGenerator[bytes, None]:
        headers = headers_of(scope)
        check_host(headers, self._hosts)
        root, parts = split_path(scope)
        viewer = await viewer_of(self._auth, scope)
        method = scope["method"]
        if parts[:1] != ["api"]:
            if method not in ("GET", "HEAD"):
                raise Refusal(405, "Use GET.", headers={"allow": "GET, HEAD"})
            if parts[:1] == ["assets"]:
                return self._assets.file("/".join(parts[1:]), headers.get("if-none-match", ""))
            return self._assets.shell(parts, root)
        check_origin(headers, acts=method not in ("GET", "HEAD"))
        query, browser = query_of(scope), Browser.of(headers, self._token)
        if parts[1:] == ["stream"] and method == "GET":
            return await self._ticker().listen(topics_in(query.get("topics", "")))
        route = find_route(method, parts[1:])
        body: Mapping[str, Any] = {}
        if route.action is not None:
            if viewer.name:  # without a name there are no actions
                browser.check(viewer, headers)
            body = await body_of(headers, receive)
        request = Request(
            viewer=viewer,
            token=browser.token(viewer),
            subject=route.subject,
            query=query,
            body=body,
        )
        answer = await self._run(route, request)
        if viewer.name and parts[1:] == ["session"]:
            is_secure = scope.get("scheme") == "https"
            return replace(answer, headers=browser.cookie(root, is_secure=is_secure))
        return answer

    def _refuse(self, scope: Scope, refusal: Refusal) -> Answer:
        """Return a refusal: a page or the way to the sign-in for people, else a document."""
        if not is_navigation(scope):
            return problem(refusal)
        if refusal.status == 401 and self._sign_in is not None:
            page = quote(address_of(scope), safe="")
            location = self._sign_in.replace("{next}", page)
            return Answer(status=303, kind="text/plain", headers={"location": location})
        return problem_page(refusal)

    async def _run(self, route: Route, request: Request) -> Answer:
        """Run a route of the API."""
        try:
            return json_answer(await route.handle(self._site, request))
        finally:
            if route.action is not None and route.action.changes:
                self._site.snapshot.forget()
                self._ticker().touch()

    def _ticker(self) -> Ticker:
        """Return the ticker of this event loop."""
        loop = asyncio.get_running_loop()
        for other in [other for other in self._tickers if other.is_closed()]:
            del self._tickers[other]
        if loop not in self._tickers:
            self._tickers[loop] = Ticker(self._site)
        return self._tickers[loop]


def _check_kinds(app: object, auth: object) -> None:
    """Raise ConfigError for an app or auth of the wrong type."""
    if not isinstance(app, Tenure):
        msg = f"Dashboard needs a Tenure app, not a {type(app).__qualname__}."
        raise ConfigError(msg)
    if auth is not None and not callable(auth):
        msg = f"auth= must be a function of the ASGI scope, not {auth!r}."
        raise ConfigError(msg)


def _refused(error: TenureError) -> Refusal:
    """Return an error of Tenure as a refusal. Its text is made for people, without secrets."""
    text = " ".join(str(error).split())
    text = f"{text[:1].upper()}{text[1:]}"
    if isinstance(error, StoreUnavailable):
        return Refusal(503, text, headers={"retry-after": "2"})
    if isinstance(error, StoreError):
        return Refusal(503, text)
    if isinstance(error, JobNotFound | TimerNotFound):
        return Refusal(404, text)
    return Refusal(400 if isinstance(error, ConfigError) else 409, text)


def _start(status: int, headers: Mapping[str, str]) -> Message:
    encoded = [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers.items()
    ]
    return {"type": "http.response.start", "status": status, "headers": encoded}


async def _send_whole(scope: Scope, send: Send, answer: Answer) -> None:
    headers = {**HEADERS, "content-type": answer.kind, **answer.headers}
    if answer.status != 304:
        headers["content-length"] = str(len(answer.body))
    await send(_start(answer.status, headers))
    body = b"" if scope["method"] == "HEAD" else answer.body
    await send({"type": "http.response.body", "body": body})


async def _send_stream(
    scope: Scope, receive: Receive, send: Send, stream: AsyncGenerator[bytes, None]
) -> None:
    """Send a stream until it ends or its viewer goes."""
    del scope
    # Some proxies keep a stream back until it has ended.
    headers = {**HEADERS, "content-type": _EVENT_STREAM, "x-accel-buffering": "no"}
    sending = asyncio.create_task(_send_parts(send, headers, stream))
    leaving = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
        await stream.aclose()  # also if it was cancelled while it sent, or before it began


async def _send_parts(
    send: Send, headers: Mapping[str, str], stream: AsyncGenerator[bytes, None]
) -> None:
    await send(_start(200, headers))
    async for part in stream:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
