"""`AsyncRouter`: HTTP endpoints whose handlers run as durable jobs, each with its own URL.

Users declare handlers here. `Routes` serves the requests; `fastapi` and `starlette` adapt it to the
frameworks, which are imported when `.router` or `.asgi` is first used.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Unpack
from weakref import WeakKeyDictionary

from tenure.app import Tenure
from tenure.core.durations import Duration, seconds
from tenure.core.jobs.retention import RetentionOption
from tenure.core.jobs.retry_policy import Backoff, RetryOption
from tenure.core.leases import check_name
from tenure.errors import ConfigError
from tenure.http.job_resource import Pace, Responses
from tenure.http.server.app_per_loop import Lending
from tenure.http.server.declaration import EndpointOptions, HandlerDecorator, check_options
from tenure.http.server.endpoint import (
    SECRETS,
    BeforeEnqueue,
    Endpoint,
    Idempotency,
    Limits,
    entry,
    kept_headers,
)
from tenure.http.server.job_headers import JOB_HEADERS, JobHeaders
from tenure.http.server.parameters import Parameters, path_form
from tenure.http.server.response import JSON
from tenure.http.server.routes import Routes
from tenure.jobs import StoredTask, Task, check_declarable
from tenure.runtime.attempts.handler import Executor

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.applications import Starlette

__all__ = ["AsyncRouter", "router_names"]

log = logging.getLogger("tenure")

# A client waits for the result: retries bridge an outage of seconds, a longer one is reported.
_BACKOFF: Final = Backoff(max_attempts=5)
# The names of the routers on each app.
_TAKEN: Final[WeakKeyDictionary[Tenure, set[str]]] = WeakKeyDictionary()
_AN_ID: Final = "01900000-0000-7000-8000-000000000000"
_OURS: Final = (f"/jobs/{_AN_ID}", f"/jobs/{_AN_ID}/result", f"/jobs/{_AN_ID}/events")
_PATH = re.compile(r"(/[^/{}]+|/{\w+(:\w+)?})*")


def router_names(app: Tenure) -> list[str]:
    """Return the names of the routers that this process has made for an app."""
    return sorted(_TAKEN.get(app, ()))


def _check_kinds(app: object, owner: object) -> None:
    """Raise ConfigError for an app or owner of the wrong type."""
    if not isinstance(app, Tenure):
        msg = (
            f"AsyncRouter needs the Tenure app that stores the jobs, not a "
            f"{type(app).__qualname__}."
        )
        raise ConfigError(msg)
    if owner is not None and not callable(owner):
        msg = f"owner= must be a function that returns the caller's id, not {owner!r}."
        raise ConfigError(msg)


@contextmanager
def _needed(package: str, extra: str) -> Iterator[None]:
    """Turn an import error of a framework into one that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        msg = f"this needs {package}: pip install 'tenure[{extra}]'"
        raise ModuleNotFoundError(msg, name=package) from error


class AsyncRouter:
    """Endpoints whose handlers run as durable jobs.

        reports = AsyncRouter(app, prefix="/reports", owner=current_user)

        @reports.post("")
        async def build_report(body: ReportRequest, job: JobContext) -> Report: ...

        api.include_router(reports.router)                     # FastAPI
        Starlette(routes=[*reports.asgi.routes])               # Starlette

    `POST /reports` checks the request, stores a job and answers 202 with the URL of the job. The
    job is at `/reports/jobs/{id}`, with `/result`, `/events` and DELETE to cancel it.
    `/reports/jobs` lists the jobs of the caller.

    Args:
        app: the app that stores the jobs. It need not be open, nor have a worker in this process.
        prefix: the path above all routes.
        owner: returns the id of the caller: a FastAPI dependency, or a function of the request. It
            runs on every route, and callers see their own jobs only. Without it every caller sees
            all jobs, and can list them.
        name: keeps the jobs of several routers apart; the prefix by default. After a change the
            routes no longer find older jobs.
        dependencies: FastAPI dependencies for every route.
        max_wait: the longest wait that `Prefer: wait` can request.
        headers: the headers that jobs store for handlers with a `Headers` parameter.
        job_headers: the headers of a request that become headers of its job. Malformed and long
            values are dropped.
        body_limit: the largest body, in bytes or as "1MB".
        limits: limits on the number of jobs.
        responses: functions that replace the JSON of jobs and problems.
    """

    def __init__(
        self,
        app: Tenure,
        *,
        prefix: str = "",
        owner: Callable[..., Any] | None = None,
        name: str | None = None,
        dependencies: Sequence[Any] = (),
        max_wait: Duration = 20,
        headers: Sequence[str] = (),
        job_headers: Sequence[str] = JOB_HEADERS,
        body_limit: int | str = "256KiB",
        limits: Limits | None = None,
        responses: Responses | None = None,
    ) -> None:
        _check_kinds(app, owner)
        if not re.fullmatch(r"(/[^/{}]+)*", prefix):
            msg = f"prefix must be a path such as '/reports', without parameters, not {prefix!r}."
            raise ConfigError(msg)
        self.prefix = prefix
        self.owner = owner
        self.dependencies = tuple(dependencies)
        self.responses = responses or Responses()
        self._app = app
        own = check_name(name or prefix or "/", "name")
        if own in _TAKEN.setdefault(app, set()):
            msg = (
                f"this app already has an AsyncRouter named {own!r}, and each would show the jobs "
                "of the other. Give this one another prefix, or a name=."
            )
            raise ConfigError(msg)
        _TAKEN[app].add(own)
        self._max_wait, self._body_limit = max_wait, body_limit
        self._headers, self._limits = kept_headers(headers), limits
        self.lending = Lending(app)
        self.operations = Routes(
            own,
            self.lending,
            self.responses,
            seconds(max_wait, "max_wait"),
            JobHeaders(job_headers, SECRETS),
        )
        self._is_built = False

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(self.operations.endpoints.values())

    if not TYPE_CHECKING:  # type checkers would accept every attribute

        def __getattr__(self, name: str) -> Any:
            """Explain what to write in place of `api.include_router(reports)`."""
            if hasattr(type(self), name):  # a property has failed: raise its own error
                return object.__getattribute__(self, name)
            msg = (
                f"an AsyncRouter has no attribute {name!r}. With FastAPI write "
                "api.include_router(reports.router), with Starlette use reports.asgi."
            )
            raise AttributeError(msg, name=name, obj=self)

    def post(self, path: str = "", **options: Unpack[EndpointOptions]) -> HandlerDecorator:
        """Declare a handler; see `endpoint` for the options."""
        return self._declare("post", path, options)

    def put(self, path: str = "", **options: Unpack[EndpointOptions]) -> HandlerDecorator:
        """Declare a handler; see `endpoint` for the options."""
        return self._declare("put", path, options)

    def patch(self, path: str = "", **options: Unpack[EndpointOptions]) -> HandlerDecorator:
        """Declare a handler; see `endpoint` for the options."""
        return self._declare("patch", path, options)

    def delete(self, path: str = "", **options: Unpack[EndpointOptions]) -> HandlerDecorator:
        """Declare a handler; see `endpoint` for the options."""
        return self._declare("delete", path, options)

    def _declare(self, verb: str, path: str, options: EndpointOptions) -> HandlerDecorator:
        check_options(f"{verb}()", options)
        return self.endpoint(verb.upper(), path, **options)

    def endpoint(
        self,
        method: str,
        path: str = "",
        *,
        max_wait: Duration | None = None,
        idempotency: Idempotency = "optional",
        body_limit: int | str | None = None,
        headers: Sequence[str] | None = None,
        media_type: str = JSON,
        limits: Limits | None = None,
        before_enqueue: BeforeEnqueue | None = None,
        name: str | None = None,
        queue: str = "default",
        timeout: Duration | None = None,
        expected: Duration | None = None,
        retry: RetryOption = _BACKOFF,
        priority: int = 5,
        retention: RetentionOption | None = None,
        executor: Executor = "auto",
    ) -> HandlerDecorator:
        """Declare a handler that runs as a job.

        The handler may take the body (one model, or any other type that is not a single value),
        path and query parameters, `Headers`, the `Owner` and the `JobContext`.

        Args:
            method: POST, PUT, PATCH or DELETE.
            path: the path below the prefix, such as "/{year}".
            max_wait: the longest wait that `Prefer: wait` can request; the router's by default.
            idempotency: whether an `Idempotency-Key` is used if sent ("optional"), must be sent
                ("required") or is ignored ("off").
            body_limit: the largest body; the router's by default.
            headers: the headers that jobs store for the handler; the router's by default.
            media_type: the media type of a result that is not JSON. The handler returns str or
                bytes then.
            limits: limits on the number of jobs; the router's by default.
            before_enqueue: gets each `Submission` of a new job, and may raise a `Problem` to
                reject it.
            name: the name of the task; the function's own by default.
            queue: the queue of its jobs.
            timeout: the longest time that an attempt may take.
            expected: how long an attempt usually takes, as in `app.task`.
            retry: how often a failed job is retried, or a `Backoff`; by default 4 times within
                15 s, because a client waits. 0 or None: never.
            priority: 0 to 9; 0 is served first.
            retention: how long finished jobs are kept, as in `app.task`. Jobs with an
                `Idempotency-Key` are kept for a day at least.
            executor: where a plain function runs, as in `app.task`.
        """
        check = entry(
            max_wait=self._max_wait if max_wait is None else max_wait,
            idempotency=idempotency,
            body_limit=self._body_limit if body_limit is None else body_limit,
            headers=tuple(self._headers if headers is None else headers),
            media_type=media_type,
            limits=limits or self._limits,
            before_enqueue=before_enqueue,
        )
        self._check_path(method, path)

        def declare(fn: Callable[..., Any]) -> Any:
            check_declarable(fn, f"@router.{method.lower()}(...)")
            what = f"the handler {getattr(fn, '__name__', fn)!r} of {method} {self.prefix}{path}"
            parameters = Parameters(fn, path, what)
            if parameters.of("owner") and self.owner is None:
                msg = f"{what} has an Owner parameter, but the AsyncRouter has no owner=. Add one."
                raise ConfigError(msg)
            if media_type != JSON and parameters.returns not in (str, bytes):
                msg = f"{what} has media_type={media_type!r}, so it must return str or bytes."
                raise ConfigError(msg)
            task: Task[..., Any] = self._app.task(
                name=name,
                queue=queue,
                timeout=timeout,
                expected=expected,
                retry=retry,
                priority=priority,
                retention=retention,
                executor=executor,
            )(parameters.bare(fn))
            self.operations.endpoints[task.name] = Endpoint(
                method=method,
                path=path,
                task=task,
                stored=StoredTask(task),
                parameters=parameters,
                entry=check,
                pace=Pace(),
            )
            return task

        return declare

    def _check_path(self, method: str, path: str) -> None:
        if callable(path):
            verb = method.lower()
            msg = f"the decorator needs parentheses: @router.{verb}(''), not @router.{verb}."
            raise ConfigError(msg)
        if not _PATH.fullmatch(path):
            msg = f"path must begin with '/' and not end with it, or be empty, not {path!r}."
            raise ConfigError(msg)
        if self._is_built:
            msg = (
                f"{method} {path!r} is declared too late. Declare every handler before .router or "
                ".asgi is used."
            )
            raise ConfigError(msg)
        form = path_form(path)
        if any(
            (endpoint.method, path_form(endpoint.path)) == (method, form)
            for endpoint in self.endpoints
        ):
            msg = f"{method} {self.prefix}{path} already has a handler. Choose another path."
            raise ConfigError(msg)
        if path.startswith("/jobs/") or any(re.fullmatch(form, job_path) for job_path in _OURS):
            msg = (
                f"{method} {self.prefix}{path} would hide the jobs at {self.prefix}/jobs/...; "
                "give it another path."
            )
            raise ConfigError(msg)

    @cached_property
    def router(self) -> APIRouter:
        """All routes, for FastAPI's `include_router`."""
        with _needed("fastapi", "fastapi"):
            # Imported here, because services without FastAPI use the package as well.
            from tenure.http.server.fastapi import make_router  # noqa: PLC0415 - see above

        self._build()
        return make_router(self)

    @cached_property
    def asgi(self) -> Starlette:
        """All routes as an ASGI application, to mount in Starlette or to serve directly."""
        with _needed("starlette", "http"):
            from tenure.http.server.starlette import make_asgi  # noqa: PLC0415 - as for FastAPI

        self._build()
        return make_asgi(self)

    def _build(self) -> None:
        self._is_built = True
        if self.owner is None:
            log.warning(
                "the jobs under %s have no owner: every caller can see, list and cancel all of "
                "them. Pass owner= to AsyncRouter to restrict callers to their own jobs",
                self.prefix or "/",
            )
