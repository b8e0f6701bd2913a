"""The types of a declaration such as `@reports.post("")`: its options and its decorator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Final, Protocol, TypedDict, TypeVar, overload

from tenure.core.durations import Duration
from tenure.core.jobs.retention import RetentionOption
from tenure.core.jobs.retry_policy import RetryOption
from tenure.http.server.endpoint import BeforeEnqueue, Idempotency, Limits
from tenure.jobs import AsyncTask, PlainTask, Task
from tenure.runtime.attempts.handler import Executor

__all__ = ["EndpointOptions", "HandlerDecorator", "check_options"]

R = TypeVar("R")

_ELSEWHERE: Final = {
    "tags": "Pass them to FastAPI: api.include_router(reports.router, tags=[...]).",
    "dependencies": "Pass them to the router: AsyncRouter(app, dependencies=[...]).",
    "response_model": "Annotate the return type of the handler instead.",
    "response_class": "Use media_type= for another media type than JSON.",
    "status_code": "It is always 202, or 200 for a client that waits.",
}
"""Options of FastAPI's decorators, and what to use here in their place."""


class EndpointOptions(TypedDict, total=False):
    """The options of `post`, `put`, `patch` and `delete`; see `AsyncRouter.endpoint`."""

    max_wait: Duration | None
    idempotency: Idempotency
    body_limit: int | str | None
    headers: Sequence[str] | None
    media_type: str
    limits: Limits | None
    before_enqueue: BeforeEnqueue | None
    name: str | None
    queue: str
    timeout: Duration | None
    expected: Duration | None
    retry: RetryOption
    priority: int
    retention: RetentionOption | None
    executor: Executor


class HandlerDecorator(Protocol):
    """The decorator that `@reports.post(...)` returns.

    It keeps the return type only: the task does not have the handler's `JobContext` parameter.
    """

    # Type checkers take the first match, and every awaitable also matches the plain R.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[..., Coroutine[Any, Any, R]], /
    ) -> AsyncTask[..., R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[..., Awaitable[R]], /
    ) -> Task[..., R]: ...
    @overload
    def __call__(self, fn: Callable[..., R], /) -> PlainTask[..., R]: ...


def check_options(call: str, options: Iterable[str]) -> None:
    """Raise TypeError for an option that an endpoint does not have."""
    names = list(EndpointOptions.__annotations__)
    for name in options:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            advice = _ELSEWHERE.get(name) or (f"Did you mean {close[0]!r}?" if close else "")
            msg = f"{call} has no option {name!r}. {advice} It takes {', '.join(names)}."
            raise TypeError(msg.replace("  ", " "))
