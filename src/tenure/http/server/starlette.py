"""The routes as a Starlette application, which validates by msgspec in place of FastAPI."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from tenure.errors import ConfigError
from tenure.http.problems import Problem
from tenure.http.request import RequestData, owner_name
from tenure.http.server.asgi import (
    JOB_PATHS,
    REST,
    Methods,
    ServedRouter,
    as_response,
    closing,
    headers_of,
    read_body,
    repeating_request_id,
)
from tenure.http.server.endpoint import Endpoint
from tenure.http.server.response import ResponseData, respond
from tenure.http.server.submission import check_body

__all__ = ["make_asgi"]

_Serve: TypeAlias = Callable[[Request], Awaitable[Response]]
_OPTIONAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def make_asgi(router: ServedRouter) -> Starlette:
    """Return an application with all routes of a router."""
    if router.dependencies:
        msg = (
            "dependencies= need FastAPI, and .asgi would serve its routes without them. Use "
            ".router with FastAPI, or put middleware around .asgi."
        )
        raise ConfigError(msg)
    served, operations = _Served(router), router.operations
    routes: list[BaseRoute] = []
    methods = Methods(router, routes)

    def route(path: str, serve: _Serve, method: str) -> Route:
        return _Route(router.prefix, path, serve, method, methods)

    routes += [
        route(endpoint.path, served.of_endpoint(endpoint), endpoint.method)
        for endpoint in router.endpoints
    ]
    routes += [
        route(JOB_PATHS["list"], served.listing, "GET"),
        route(JOB_PATHS["get"], served.of_job(operations.get), "GET"),
        route(JOB_PATHS["cancel"], served.of_job(operations.cancel), "DELETE"),
        route(JOB_PATHS["result"], served.of_job(operations.result), "GET"),
        route(JOB_PATHS["events"], served.of_job(operations.events), "GET"),
        route(f"/jobs/{REST}", served.nothing, "GET"),
    ]
    return Starlette(routes=routes, lifespan=closing(router.lending))


class _Route(Route):
    """A route whose 405 response lists the methods of all routes with this path."""

    def __init__(
        self, prefix: str, below: str, serve: _Serve, method: str, methods: Methods
    ) -> None:
        super().__init__(f"{prefix}{below}" or "/", serve, methods=[method])
        self._below = below
        self._all = methods

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await self._all.refused(self._below, scope)(scope, receive, send)
        else:
            await super().handle(scope, receive, repeating_request_id(scope, send))


class _Served:
    """The route functions that Starlette calls."""

    def __init__(self, router: ServedRouter) -> None:
        self._router = router
        self._routes = router.operations
        self._ask_owner = _reader_of_owners(router.owner)

    async def _answer(
        self, request: Request, ask: Callable[[], Awaitable[ResponseData]]
    ) -> Response:
        answer = await respond(ask, self._router.responses)
        return as_response(answer, request.scope)

    async def _owner(self, request: Request) -> str:
        if self._ask_owner is None:
            return ""
        owner = self._ask_owner(request)
        return owner_name(await owner if inspect.isawaitable(owner) else owner)

    def _request_data(self, request: Request) -> RequestData:
        if request.scope["path"].endswith("\n"):  # Starlette's routes match this as well
            raise Problem.of("not-found")
        base = quote(f"{request.scope.get('root_path', '')}{self._router.prefix}")
        return RequestData(headers=headers_of(request), base=base, query=dict(request.query_params))

    def of_endpoint(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            async def ask() -> ResponseData:
                owner = await self._owner(request)
                outer = endpoint.outer_parameters(request.path_params)
                data, body = replace(self._request_data(request), outer_parameters=outer), b""
                if endpoint.parameters.body is not None:
                    body = await read_body(request, endpoint.entry.body_limit)
                    check_body(endpoint, data.headers, body)
                query = request.query_params.getlist
                values = endpoint.parameters.read(request.path_params, query)
                return await self._routes.submit(endpoint, data, owner, values=values, body=body)

            return await self._answer(request, ask)

        return route

    def of_job(
        self, answer: Callable[[RequestData, str, str], Awaitable[ResponseData]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            async def ask() -> ResponseData:
                owner = await self._owner(request)
                return await answer(
                    self._request_data(request), owner, request.path_params["job_id"]
                )

            return await self._answer(request, ask)

        return route

    async def listing(self, request: Request) -> Response:
        async def ask() -> ResponseData:
            return await self._routes.page(self._request_data(request), await self._owner(request))

        return await self._answer(request, ask)

    async def nothing(self, request: Request) -> Response:
        """Answer a path that cannot be a job's with 404, as for an unknown job."""

        async def ask() -> Any:
            await self._owner(request)
            raise Problem.of("not-found")

        return await self._answer(request, ask)


def _reader_of_owners(owner: Callable[..., Any] | None) -> Callable[[Request], Any] | None:
    """Return the owner function of a request. Raises ConfigError if only FastAPI could call it."""
    if owner is None:
        return None
    try:
        takes = list(inspect.signature(owner, eval_str=True).parameters.values())
    except (NameError, ValueError, TypeError):  # it has no readable signature
        return owner
    if not takes:
        return lambda _: owner()
    first, *rest = takes
    kind = first.annotation
    takes_requests = kind in (first.empty, Any) or (
        isinstance(kind, type) and issubclass(Request, kind)
    )
    needs_more = any(
        parameter.default is parameter.empty and parameter.kind not in _OPTIONAL
        for parameter in rest
    )
    if needs_more or not takes_requests:
        msg = (
            f"owner= takes {', '.join(map(str, takes))}, which only FastAPI can pass. With .asgi "
            "it gets the request alone: def owner(request: Request) -> str."
        )
        raise ConfigError(msg)
    return owner
