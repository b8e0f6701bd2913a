"""The types of a declaration such as `@reports.post("")`: its options, and what becomes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Final, Protocol, TypedDict, TypeVar, overload

from tenure.core.durations import Duration
from tenure.core.jobs.retention import RetentionOption
from tenure.core.policy import RetryOption
from tenure.http.server.endpoint import BeforeEnqueue, Idempotency, Limits
from tenure.jobs import AsyncTask, PlainTask, Task
from tenure.runtime.attempts.handler import Executor

__all__ = ["EndpointOptions", "HandlerDecorator", "check_options"]

R = TypeVar("R")

_ELSEWHERE: Final = {
    "tags": "Give them to FastAPI: api.include_router(reports.router, tags=[...]).",
    "dependencies": "They are the router's: AsyncRouter(app, dependencies=[...]).",
    "response_model": "It is the return type of the handler.",
    "response_class": "For another media type than JSON there is media_type=.",
    "status_code": "It is 202, or 200 for a client that waits.",
}
"""What FastAPI has, and where it is here."""


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
    retry: RetryOption
    priority: int
    retention: RetentionOption | None
    executor: Executor


class HandlerDecorator(Protocol):
    """What `@reports.post(...)` returns.

    Types of arguments are not passed on: the task has no parameter for the `JobContext`.
    """

    # The first that fits counts: what is awaitable is also some plain R.
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
