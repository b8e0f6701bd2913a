"""What a route answers with, free of any framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec import Struct

from tenure.errors import StoreError
from tenure.http.problems import PROBLEM_JSON, Problem
from tenure.http.resources import Responses
from tenure.http.telling import tell_why

__all__ = ["JSON", "Answer", "answered", "problem_answer"]

JSON = "application/json"


class Answer(Struct, frozen=True, kw_only=True):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes] = b""
    media_type: str | None = None


def problem_answer(problem: Problem, responses: Responses) -> Answer:
    """Return a problem as a response."""
    return Answer(
        status=problem.status,
        headers={**problem.headers, "Cache-Control": "no-store"},
        body=responses.write_problem(problem),
        media_type=PROBLEM_JSON,
    )


async def answered(ask: Callable[[], Awaitable[Answer]], responses: Responses) -> Answer:
    """Return an answer, whatever goes wrong on the way that a client may know of."""
    try:
        return await ask()
    except Problem as problem:
        return problem_answer(problem, responses)
    except StoreError as error:
        # A store that refuses is nothing a client can mend, and may be there again soon.
        tell_why(error)
        unavailable = Problem.of("store-unavailable", headers={"Retry-After": "1"})
        return problem_answer(unavailable, responses)
