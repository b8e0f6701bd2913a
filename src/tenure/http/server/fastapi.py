"""The routes as a FastAPI router.

FastAPI validates requests, runs dependencies and writes the OpenAPI document, as its users expect.
So each route gets a signature with the parameters of its handler. The routes of jobs are in
`Routes`, which Starlette uses as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Body, Depends
from fastapi.exceptions import FastAPIError, RequestValidationError
from fastapi.routing import APIRoute
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tenure.errors import ConfigError
from tenure.http.problems import Problem, pointer_step
from tenure.http.request import RequestData, owner_name
from tenure.http.server.asgi import (
    JOB_PATHS,
    REST,
    Base,
    Methods,
    ServedRouter,
    as_response,
    closing,
    headers_of,
    read_body,
    repeating_request_id,
)
from tenure.http.server.endpoint import Endpoint
from tenure.http.server.openapi import describe, describe_submit
from tenure.http.server.parameters import Parameter
from tenure.http.server.response import ResponseData, problem_response, respond
from tenure.http.server.submission import check_body

__all__ = ["make_router"]

_Ask: TypeAlias = Callable[[Request, str], Awaitable[ResponseData]]
# Unlikely to be the name of a handler's parameter.
_REQUEST, _OWNER = "tenure_request", "tenure_owner"


def make_router(router: ServedRouter) -> APIRouter:
    """Return all routes of a router, for `include_router`."""
    served = _Served(router)
    made = APIRouter(
        prefix=router.prefix,
        dependencies=list(router.dependencies),
        lifespan=closing(router.lending),
        route_class=served.route_class,
    )
    served.methods = Methods(router, made.routes)
    try:
        for endpoint in router.endpoints:
            made.add_api_route(
                endpoint.path,
                served.of_endpoint(endpoint),
                methods=[endpoint.method],
                **describe_submit(
                    endpoint, served.operation("get"), owned=router.owner is not None
                ),
            )
        served.add_job_routes(made)
    except FastAPIError as error:
        msg = (
            f"FastAPI cannot read or document what the handlers under {router.prefix or '/'} take "
            "or return. Use Pydantic models, dataclasses, TypedDicts or plain types; msgspec "
            f"Structs work with .asgi only. FastAPI's error: {error}"
        )
        raise ConfigError(msg) from error
    return made


class _Served:
    """The route functions that FastAPI calls."""

    def __init__(self, router: ServedRouter) -> None:
        self._router = router
        self._routes = router.operations
        self._owner = router.owner or _no_owner
        self._endpoints: dict[Any, Endpoint] = {}
        self._paths: dict[Any, str] = {}  # below the prefix, by route function
        self.methods = Methods(router, ())
        self.route_class = self._make_route_class()

    def operation(self, what: str) -> str:
        """Return the OpenAPI operation id of a job route."""
        name = self._router.prefix.strip("/").replace("/", "_") or "root"
        return f"{name}_job_{what}"

    def _make_route_class(self) -> type[APIRoute]:
        served, responses, endpoints = self, self._router.responses, self._endpoints

        class ProblemRoute(APIRoute):
            """Reads the body up to its limit, and answers errors as problems."""

            async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
                path = served._paths.get(self.endpoint)
                if path is None:  # the user has added this route
                    await super().handle(scope, receive, send)
                elif scope["method"] in (self.methods or ()):
                    await super().handle(scope, receive, repeating_request_id(scope, send))
                else:
                    await served.methods.refused(path, scope)(scope, receive, send)

            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                handle = super().get_route_handler()
                endpoint = endpoints.get(self.endpoint)

                async def checked(request: Request) -> Response:
                    try:
                        if endpoint is not None and endpoint.parameters.body is not None:
                            body = await read_body(request, endpoint.entry.body_limit)
                            check_body(endpoint, headers_of(request), body)
                            request = Request(request.scope, _replay(body))
                        return await handle(request)
                    except Problem as problem:
                        return as_response(problem_response(problem, responses), request.scope)
                    except RequestValidationError as error:
                        return as_response(
                            problem_response(_invalid(error), responses), request.scope
                        )

                return checked

        return ProblemRoute

    async def _answer(
        self, request: Request, ask: Callable[[], Awaitable[ResponseData]]
    ) -> Response:
        answer = await respond(ask, self._router.responses)
        return as_response(answer, request.scope)

    def _base(self, below: str) -> Base:
        return Base(self._router.prefix, below)

    def _owner_of(self, arguments: dict[str, Any]) -> str:
        return "" if self._router.owner is None else owner_name(arguments[_OWNER])

    # Submitting.

    def of_endpoint(self, endpoint: Endpoint) -> Callable[..., Awaitable[Response]]:
        """Return a route with the handler's parameters in its signature, which FastAPI reads."""
        read = endpoint.parameters.of("path", "query")
        base = self._base(endpoint.path)

        async def route(**arguments: Any) -> Response:
            request, owner = arguments[_REQUEST], self._owner_of(arguments)
            has_body = endpoint.parameters.body is not None
            # Parameters that the request left out stay out: the handler has its own defaults.
            named = {**request.path_params, **request.query_params}
            values = {
                parameter.name: arguments[parameter.name]
                for parameter in read
                if parameter.alias in named
            }
            body = await request.body() if has_body else b""
            outer = endpoint.outer_parameters(request.path_params)
            data = replace(_request_data(request, base), outer_parameters=outer)
            return await self._answer(
                request,
                lambda: self._routes.submit(endpoint, data, owner, values=values, body=body),
            )

        route.__name__ = endpoint.task.__name__
        route.__doc__ = endpoint.task.__doc__
        route.__signature__ = self._signature(endpoint)  # type: ignore[attr-defined]  # FastAPI reads it
        self._endpoints[route], self._paths[route] = endpoint, endpoint.path
        return route

    def _signature(self, endpoint: Endpoint) -> inspect.Signature:
        declared = endpoint.parameters.of("body", "path", "query")
        parameters = [
            _keyword(parameter.name, _kind(parameter), parameter.declared.default)
            for parameter in declared
        ]
        return inspect.Signature([*parameters, *self._caller()])

    def _caller(self) -> list[inspect.Parameter]:
        owner = Annotated[Any, Depends(self._owner)]
        return [_keyword(_REQUEST, Request), _keyword(_OWNER, owner)]

    # Jobs.

    def add_job_routes(self, made: APIRouter) -> None:
        routes = self._routes
        self._add(made, "get", self._of_job(routes.get, "get"))
        self._add(made, "cancel", self._of_job(routes.cancel, "cancel"), "DELETE")
        self._add(made, "result", self._of_job(routes.result, "result"))
        self._add(made, "events", self._of_job(routes.events, "events"))
        self._add(made, "list", self._listing())
        rest = f"/jobs/{REST}"
        self._add_silently(made, "GET", rest, self._routed(self._nothing, "nothing", rest))

    def _add(self, made: APIRouter, what: str, route: _Ask, method: str = "GET") -> None:
        path = JOB_PATHS[what]
        made.add_api_route(
            path,
            self._routed(route, f"job_{what}", path),
            methods=[method],
            operation_id=self.operation(what),
            **describe(what, self._router.endpoints, owned=self._router.owner is not None),
        )
        if method == "GET":  # HEAD is added separately, to keep it out of the OpenAPI document
            head = self._routed(route, f"job_{what}_head", path)
            self._add_silently(made, "HEAD", path, head)

    def _add_silently(self, made: APIRouter, method: str, path: str, route: Any) -> None:
        made.add_api_route(path, route, methods=[method], include_in_schema=False)

    def _routed(self, ask: _Ask, name: str, path: str) -> Callable[..., Awaitable[Response]]:
        """Return a route for which FastAPI only resolves the owner."""

        async def route(**arguments: Any) -> Response:
            request, owner = arguments[_REQUEST], self._owner_of(arguments)
            return await self._answer(request, lambda: ask(request, owner))

        route.__signature__ = inspect.Signature(self._caller())  # type: ignore[attr-defined]  # as above
        route.__name__ = name
        self._paths[route] = path
        return route

    def _of_job(
        self, answer: Callable[[RequestData, str, str], Awaitable[ResponseData]], what: str
    ) -> _Ask:
        base = self._base(JOB_PATHS[what])

        async def ask(request: Request, owner: str) -> ResponseData:
            return await answer(_request_data(request, base), owner, request.path_params["job_id"])

        return ask

    def _listing(self) -> _Ask:
        base = self._base(JOB_PATHS["list"])

        async def ask(request: Request, owner: str) -> ResponseData:
            return await self._routes.page(_request_data(request, base), owner)

        return ask

    async def _nothing(self, _: Request, __: str) -> ResponseData:
        """Answer a path that cannot be a job's with 404, as for an unknown job."""
        raise Problem.of("not-found")


async def _no_owner() -> str:
    return ""


def _request_data(request: Request, base: Base) -> RequestData:
    query = dict(request.query_params)
    return RequestData(headers=headers_of(request), base=base.of(request), query=query)


def _keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _kind(parameter: Parameter) -> Any:
    """Return the type for FastAPI. Without `Body()` it would read some bodies from the query."""
    if parameter.source == "body" and parameter.mark is None:
        return Annotated[parameter.kind, Body()]
    return parameter.kind


def _replay(body: bytes) -> Callable[[], Awaitable[Message]]:
    """Return an ASGI receive function with a body that was read already: FastAPI reads it too."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _invalid(error: RequestValidationError) -> Problem:
    """Return FastAPI's validation errors without the input, which may contain a secret."""
    return Problem.of("invalid-request", errors=[_located(fault) for fault in error.errors()])


def _located(fault: dict[str, Any]) -> dict[str, str]:
    where, *path = fault["loc"]
    if where == "body":
        return {"pointer": "".join(map(pointer_step, path)), "detail": fault["msg"]}
    return {"parameter": ".".join(map(str, path)), "detail": fault["msg"]}
