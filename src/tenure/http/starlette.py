"""The routes as a Starlette application."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenure.http.answers import Answer, answered
from tenure.http.asking import Asked, owner_name
from tenure.http.endpoints import Endpoint
from tenure.http.problems import Problem
from tenure.http.serving import REST, as_response, closing, headers_of, read_body
from tenure.http.submitting import check_body

if TYPE_CHECKING:
    from tenure.http.router import AsyncRouter

__all__ = ["make_asgi"]

_EVERY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def make_asgi(router: AsyncRouter) -> Starlette:
    """Return an application with all routes of a router."""
    served = _Served(router)
    jobs, routes = f"{router.prefix}/jobs", router.routes
    one = f"{jobs}/{{job_id}}"
    found = [
        Route(jobs, served.listing, methods=["GET"]),
        Route(one, served.of_job(routes.status), methods=["GET"]),
        Route(one, served.of_job(routes.cancel), methods=["DELETE"]),
        Route(f"{one}/result", served.of_job(routes.result), methods=["GET"]),
        Route(f"{one}/events", served.of_job(routes.events), methods=["GET"]),
        Route(f"{jobs}/{REST}", served.nothing, methods=_EVERY_METHOD),
    ]
    for endpoint in router.endpoints:
        path = f"{router.prefix}{endpoint.path}" or "/"
        found.append(Route(path, served.of_endpoint(endpoint), methods=[endpoint.method]))
    return Starlette(routes=found, lifespan=closing(router.lending))


class _Served:
    """The routes in the form that Starlette calls them."""

    def __init__(self, router: AsyncRouter) -> None:
        self._router = router
        self._routes = router.routes

    async def _answer(self, request: Request, ask: Callable[[], Awaitable[Answer]]) -> Response:
        answer = await answered(ask, self._router.responses)
        return as_response(answer, headers_only=request.method == "HEAD")

    async def _owner(self, request: Request) -> str:
        if self._router.owner is None:
            return ""
        owner = self._router.owner(request)
        return owner_name(await owner if inspect.isawaitable(owner) else owner)

    def _asked(self, request: Request) -> Asked:
        base = quote(f"{request.scope.get('root_path', '')}{self._router.prefix}")
        return Asked(headers=headers_of(request), base=base, query=dict(request.query_params))

    def of_endpoint(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            async def ask() -> Answer:
                owner = await self._owner(request)
                asked, body = self._asked(request), b""
                if endpoint.parameters.body is not None:
                    body = await read_body(request, endpoint.entry.body_limit)
                    check_body(endpoint, asked.headers, body)
                query = request.query_params.getlist
                values = endpoint.parameters.read(request.path_params, query)
                return await self._routes.submit(endpoint, asked, owner, values=values, body=body)

            return await self._answer(request, ask)

        return route

    def of_job(
        self, answer: Callable[[Asked, str, str], Awaitable[Answer]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            async def ask() -> Answer:
                owner = await self._owner(request)
                return await answer(self._asked(request), owner, request.path_params["job_id"])

            return await self._answer(request, ask)

        return route

    async def listing(self, request: Request) -> Response:
        async def ask() -> Answer:
            return await self._routes.page(self._asked(request), await self._owner(request))

        return await self._answer(request, ask)

    async def nothing(self, request: Request) -> Response:
        """Answer what is no job's address as if it were an unknown one's."""

        async def ask() -> Any:
            await self._owner(request)
            raise Problem.of("not-found")

        return await self._answer(request, ask)
