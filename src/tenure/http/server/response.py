"""What a route answers with, free of any framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from msgspec import Struct

from tenure.errors import JobUnreadable, StoreError, StoreFull
from tenure.http.job_resource import Responses
from tenure.http.problems import PROBLEM_JSON, Problem
from tenure.http.server.store_trouble import tell_why

__all__ = ["JSON", "Answer", "answered", "problem_answer"]

JSON = "application/json"

_DAMAGED: Final = "What is stored of it is damaged. Submit it anew if it is still wanted."
_FULL: Final = "Nothing was stored. Try again later: room comes back as old jobs are removed."
# Jobs are removed when their retention is over, or when an operator has seen the log: neither is a
# matter of one second.
_ROOM_MAY_TAKE: Final = "30"


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
    except JobUnreadable:  # the store has logged what is wrong with it
        return problem_answer(Problem.of("job-unreadable", _DAMAGED), responses)
    except StoreFull as error:
        tell_why(error)
        full = Problem.of("store-full", _FULL, headers={"Retry-After": _ROOM_MAY_TAKE})
        return problem_answer(full, responses)
    except StoreError as error:
        # A store that refuses is nothing a client can mend, and may be there again soon.
        tell_why(error)
        unavailable = Problem.of("store-unavailable", headers={"Retry-After": "1"})
        return problem_answer(unavailable, responses)
