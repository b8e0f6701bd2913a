"""What both frameworks share, as both stand on Starlette: requests in, answers out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from tenure.http.job_resource import Responses
from tenure.http.problems import Problem
from tenure.http.request import Headers
from tenure.http.server.app_per_loop import Lending
from tenure.http.server.endpoint import Endpoint
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
]

JOB_PATHS: Final = {
    "list": "/jobs",
    "get": "/jobs/{job_id}",
    "cancel": "/jobs/{job_id}",
    "result": "/jobs/{job_id}/result",
    "events": "/jobs/{job_id}/events",
}
"""Where the routes of jobs are, below the prefix: DELETE for "cancel", GET and HEAD else."""


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
    regex = r"[\s\S]*"  # also line breaks, which a path may have in its encoded form

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("tenure_anything", _Anything())
REST: Final = "{rest:tenure_anything}"
"""Whatever comes below a path."""


class Base:
    """Finds the path under which a router's routes are, as it was asked for.

    That is all in front of `below`, a path of the router's. A mount and an `include_router` may
    have put something before the prefix, with parameters of its own.
    """

    def __init__(self, prefix: str, below: str) -> None:
        form = re.sub(r"\\{\w+(?::(\w+))?\\}", _any_value, re.escape(below))
        self._form = re.compile(rf"([\s\S]*?{re.escape(prefix)})({form})")

    def of(self, request: Request) -> str:
        root, base, _ = self._split(request.scope)
        return quote(f"{root}{base}")

    def below(self, scope: Scope) -> str:
        """Return the path that was asked for, without its base."""
        return self._split(scope)[2]

    def _split(self, scope: Scope) -> tuple[str, str, str]:
        path, root = scope["path"], scope.get("root_path", "")
        # A server that was told of a root has it in the path; one behind a proxy that cuts it
        # off has not.
        local = path[len(root) :] if path.startswith(f"{root}/") else path
        match = self._form.fullmatch(local)
        if match is None:  # a route also matches what has a line break behind it
            raise Problem.of("not-found")
        return root, match[1], match[2]


class Methods:
    """Which methods each path of a router takes.

    Frameworks look at the first route that fits for that, and a path may have several: one for each
    method, and a parameter may stand for what another path spells out.
    """

    def __init__(self, router: ServedRouter, routes: Sequence[BaseRoute]) -> None:
        self._prefix = router.prefix
        self._responses = router.responses
        self._routes = routes

    def refused(self, path: str, scope: Scope) -> Response:
        """Return the answer to a request that `path`, of a route, fits, but not the method."""
        try:
            taken = self._taken(f"{self._prefix}{Base(self._prefix, path).below(scope)}" or "/")
        except Problem:
            taken = set()
        problem = Problem.of("not-found")
        if taken:
            problem = Problem.of("method-not-allowed", headers={"Allow": ", ".join(sorted(taken))})
        return as_response(problem_response(problem, self._responses))

    def _taken(self, path: str) -> set[str]:
        fitting = (
            route.methods or ()
            for route in self._routes
            # Also those that you have added to the router; not the one for what is no path.
            if isinstance(route, Route) and not route.path.endswith(REST)
            if route.path_regex.fullmatch(path)
        )
        return set[str]().union(*fitting)


def _any_value(parameter: re.Match[str]) -> str:
    return r"[\s\S]*" if parameter[1] == "path" else "[^/]+"


def headers_of(request: Request) -> Headers:
    """Return the headers; several of one name as one, as HTTP has it."""
    values: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        values[key] = f"{values[key]}, {value}" if key in values else value
    return Headers(values)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; raise a Problem as soon as it is clear that it is too large."""
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
        # Nobody reads this; but it is no error of the server's, and none for its log.
        raise Problem.of("malformed-request", "The body has not come to its end.") from None
    return b"".join(parts)


def as_response(answer: ResponseData, *, headers_only: bool = False) -> Response:
    """Return an answer in the framework's own form; with headers only, a stream ends at once."""
    body = answer.body
    if isinstance(body, bytes):
        return Response(body, answer.status, headers=answer.headers, media_type=answer.media_type)
    return StreamingResponse(
        () if headers_only else body,
        answer.status,
        headers=answer.headers,
        media_type=answer.media_type,
    )


def closing(lending: Lending) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan that closes what was opened for requests."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await lending.close()

    return lifespan
