"""`Dashboard`: one ASGI application without a framework, mounted in a service or served alone.

Every request passes the same gates in this order: the host, the viewer, the origin, and for an
action the token, the kind of its body and its size. Only then a route runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, unquote

import msgspec

from tenure.app import Tenure, engine_of
from tenure.core.values.depth import is_too_deep
from tenure.dashboard.answer import Answer, Refusal, json_answer, problem
from tenure.dashboard.assets import Assets
from tenure.dashboard.masks import Masks, Reveal
from tenure.dashboard.protection import HEADERS, Tokens, check_host, check_origin
from tenure.dashboard.request import Request
from tenure.dashboard.routes import Route, find_route
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

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_BODY_MAX: Final = 16 * 1024
_PATH_MAX: Final = 4096
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
        secret: str | None = None,
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
            secret: signs the sessions of pages. By default it is random for each process; give all
                processes behind a balancer the same one.
        """
        _check_kinds(app, auth)
        clock = engine_of(app).store.clock
        self._auth = auth
        self._hosts = None if hosts is None else tuple(host.lower() for host in hosts)
        self._tokens = Tokens(secret or clock.token())
        self._site = Site(
            app,
            masks=Masks(reveal or {}),
            tokens=self._tokens,
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
            answer = problem(refusal)
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
        headers = _headers_of(scope)
        check_host(headers, self._hosts)
        root, parts = _split(scope)
        viewer = await viewer_of(self._auth, scope)
        method = scope["method"]
        if parts[:1] != ["api"]:
            if method not in ("GET", "HEAD"):
                raise Refusal(405, "Use GET.", headers={"allow": "GET, HEAD"})
            if parts[:1] == ["assets"]:
                return self._assets.file("/".join(parts[1:]), headers.get("if-none-match", ""))
            return self._assets.shell(parts, root)
        check_origin(headers, acts=method not in ("GET", "HEAD"))
        query = _query_of(scope)
        if parts[1:] == ["stream"] and method == "GET":
            return await self._ticker().listen(topics_in(query.get("topics", "")))
        route = find_route(method, parts[1:])
        body: Mapping[str, Any] = {}
        if route.action is not None:
            self._tokens.check(viewer, headers)
            body = await _body_of(headers, receive)
        request = Request(viewer=viewer, subject=route.subject, query=query, body=body)
        return await self._run(route, request)

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
    if isinstance(error, StoreUnavailable):
        return Refusal(503, text, headers={"retry-after": "2"})
    if isinstance(error, StoreError):
        return Refusal(503, text)
    if isinstance(error, JobNotFound | TimerNotFound):
        return Refusal(404, text)
    return Refusal(400 if isinstance(error, ConfigError) else 409, text)


def _headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers. Of one that is sent twice, an attacker must not choose which counts."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _query_of(scope: Scope) -> dict[str, str]:
    text = scope.get("query_string", b"")
    if len(text) > _PATH_MAX:
        raise Refusal(413, "The query of this address is too long.")
    try:
        return dict(parse_qsl(text.decode("latin-1"), errors="strict", max_num_fields=50))
    except ValueError:
        raise Refusal(400, "The query of this address cannot be read.") from None


def _split(scope: Scope) -> tuple[str, list[str]]:
    """Return the path under which the dashboard is mounted, and the decoded words below it."""
    root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    if len(path) > _PATH_MAX:
        raise Refusal(413, "This address is too long.")
    below = path[len(root) :] if path == root or path.startswith(f"{root}/") else path
    words = _raw_words(scope.get("raw_path"), below)
    words = words[1:] if words[:1] == [""] else words
    return root, words[:-1] if words[-1:] == [""] else words


def _raw_words(raw: bytes | None, below: str) -> list[str]:
    """Return the words of a path, also of names with slashes, which the server has decoded."""
    text = (raw or b"").partition(b"?")[0].decode("latin-1")
    at = 0 if text.startswith("/") else -1
    while at >= 0:
        if unquote(text[at:]) == below:
            return [unquote(word) for word in text[at:].split("/")]
        at = text.find("/", at + 1)
    return below.split("/")


async def _body_of(headers: Mapping[str, str], receive: Receive) -> Mapping[str, Any]:
    """Return the JSON object in a body. Raises Refusal for anything else."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "Send JSON with Content-Type: application/json.")
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal(400, "The body is incomplete.")
        body += message.get("body", b"")
        if len(body) > _BODY_MAX:
            raise Refusal(413, f"At most {_BODY_MAX:,} bytes are accepted.")
        if not message.get("more_body", False):
            break
    try:
        if is_too_deep(body):
            raise ValueError
        document: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise Refusal(400, "The body is no JSON object.") from None
    return document


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
