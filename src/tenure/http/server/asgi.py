"""What the adapters for FastAPI and Starlette share, as FastAPI is built on Starlette.

Paths of the job routes, the base path of a request, 405 responses, and the conversion of requests
and responses.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import Headers as RequestHeaders
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Scope, Send

from tenure.http.job_resource import Responses
from tenure.http.problems import Problem
from tenure.http.request import Headers
from tenure.http.server.app_per_loop import Lending
from tenure.http.server.endpoint import Endpoint
from tenure.http.server.job_headers import REQUEST_ID, request_id
from tenure.http.server.response import ResponseData, problem_response
from tenure.http.server.routes import Routes

__all__ = [
    "JOB_PATHS",
    "REST",
    "Base",
    "Methods",
    "ServedRouter",
    "as_response",
    "closing",
    "headers_of",
    "read_body",
    "repeating_request_id",
]

JOB_PATHS: Final = {
    "list": "/jobs",
    "get": "/jobs/{job_id}",
    "cancel": "/jobs/{job_id}",
    "result": "/jobs/{job_id}/result",
    "events": "/jobs/{job_id}/events",
}
"""The paths of the job routes below the prefix: DELETE for "cancel", GET and HEAD otherwise."""


class ServedRouter(Protocol):
    """What the adapters for FastAPI and Starlette read of an `AsyncRouter`, which imports them."""

    @property
    def prefix(self) -> str: ...
    @property
    def owner(self) -> Callable[..., Any] | None: ...
    @property
    def dependencies(self) -> Sequence[Any]: ...
    @property
    def responses(self) -> Responses: ...
    @property
    def lending(self) -> Lending: ...
    @property
    def operations(self) -> Routes: ...
    @property
    def endpoints(self) -> Sequence[Endpoint]: ...


class _Anything(Convertor[str]):
    regex = r"[\s\S]*"  # also line breaks, which a path may contain as %0A

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("tenure_anything", _Anything())
REST: Final = "{rest:tenure_anything}"
"""Matches everything below a path."""


class Base:
    """Finds the part of a request's path before `below`, a path of the router: the base of links.

    A mount or an `include_router` may have put a path with parameters before the prefix.
    """

    def __init__(self, prefix: str, below: str) -> None:
        form = re.sub(r"\\{\w+(?::(\w+))?\\}", _any_value, re.escape(below))
        self._form = re.compile(rf"([\s\S]*?{re.escape(prefix)})({form})")

    def of(self, request: Request) -> str:
        root, base, _ = self._split(request.scope)
        return quote(f"{root}{base}")

    def below(self, scope: Scope) -> str:
        """Return the path of the request without its base."""
        return self._split(scope)[2]

    def _split(self, scope: Scope) -> tuple[str, str, str]:
        path, root = scope["path"], scope.get("root_path", "")
        # The path contains the root path if the server is configured with one, but not if a proxy
        # has cut it off.
        local = path[len(root) :] if path.startswith(f"{root}/") else path
        match = self._form.fullmatch(local)
        if match is None:  # Starlette's routes also match a path with a line break at its end
            raise Problem.of("not-found")
        return root, match[1], match[2]


class Methods:
    """Answers 405 with all methods that a path takes.

    Frameworks look only at the first route that matches. A path may have several: one for each
    method, and a route with a parameter may match the path of another route.
    """

    def __init__(self, router: ServedRouter, routes: Sequence[BaseRoute]) -> None:
        self._prefix = router.prefix
        self._responses = router.responses
        self._routes = routes

    def refused(self, path: str, scope: Scope) -> Response:
        """Return the response to a request that matches the route `path`, but not its method."""
        try:
            taken = self._taken(f"{self._prefix}{Base(self._prefix, path).below(scope)}" or "/")
        except Problem:
            taken = set()
        problem = Problem.of("not-found")
        if taken:
            problem = Problem.of("method-not-allowed", headers={"Allow": ", ".join(sorted(taken))})
        return as_response(problem_response(problem, self._responses), scope)

    def _taken(self, path: str) -> set[str]:
        fitting = (
            route.methods or ()
            for route in self._routes
            # Includes routes that the user has added, but not the catch-all for unknown paths.
            if isinstance(route, Route) and not route.path.endswith(REST)
            if route.path_regex.fullmatch(path)
        )
        return set[str]().union(*fitting)


def _any_value(parameter: re.Match[str]) -> str:
    return r"[\s\S]*" if parameter[1] == "path" else "[^/]+"


def headers_of(request: Request) -> Headers:
    """Return the headers. Repeated headers are joined by commas, as HTTP defines."""
    return Headers(_joined(request.headers))


def _joined(headers: RequestHeaders) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        values[key] = f"{values[key]}, {value}" if key in values else value
    return values


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body. Raises a Problem once more than `limit` bytes are announced or read."""
    too_large = Problem.of("body-too-large", f"{limit:,} bytes are accepted.")
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:18]) > limit:
        raise too_large
    parts, length = [], 0
    try:
        async for part in request.stream():
            length += len(part)
            if length > limit:
                raise too_large
            parts.append(part)
    except ClientDisconnect:
        # No client reads this, but an unhandled ClientDisconnect would be logged as an error.
        raise Problem.of("malformed-request", "The body is incomplete.") from None
    return b"".join(parts)


def as_response(answer: ResponseData, scope: Scope) -> Response:
    """Return Starlette's form of a response to the request of `scope`, with its `X-Request-Id`.

    To a HEAD request, a stream is empty.
    """
    headers, body = answer.headers, answer.body
    sent = request_id(_joined(RequestHeaders(scope=scope)))
    if sent is not None and REQUEST_ID not in map(str.lower, headers):
        headers = {**headers, "X-Request-Id": sent}
    if isinstance(body, bytes):
        return Response(body, answer.status, headers=headers, media_type=answer.media_type)
    content = () if scope["method"] == "HEAD" else body
    return StreamingResponse(content, answer.status, headers=headers, media_type=answer.media_type)


def repeating_request_id(scope: Scope, send: Send) -> Send:
    """Return a `send` that adds the `X-Request-Id` of a request to its response.

    For what a framework answers by itself: an HTTPException of a dependency, such as 401.
    """
    sent = request_id(_joined(RequestHeaders(scope=scope)))
    if sent is None:
        return send

    async def repeating(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).setdefault(REQUEST_ID, sent)
        await send(message)

    return repeating


def closing(lending: Lending) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan that closes the app that requests have opened on this loop."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await lending.close()

    return lifespan
