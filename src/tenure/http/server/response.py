"""Responses of the routes, free of any framework, and how errors become problems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from msgspec import Struct

from tenure.errors import JobUnreadable, StoreError, StoreFull
from tenure.http.job_resource import Responses
from tenure.http.problems import PROBLEM_JSON, Problem
from tenure.http.server.store_trouble import log_store_error

__all__ = ["JSON", "ResponseData", "problem_response", "respond"]

JSON = "application/json"

_DAMAGED: Final = "Its data in the store is damaged. Submit it again if you still need it."
_FULL: Final = "Nothing was stored. Retry later: the store frees room as it removes old jobs."
# A full store gets room when retentions run out or an operator acts, so in minutes, not seconds.
_FULL_RETRY_AFTER: Final = "30"
_UNAVAILABLE_RETRY_AFTER: Final = "1"


class ResponseData(Struct, frozen=True, kw_only=True):
    """A response, before a framework sends it. An iterator as body is sent as a stream."""

    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes] = b""
    media_type: str | None = None


def problem_response(problem: Problem, responses: Responses) -> ResponseData:
    """Return the response for a problem, with a header that keeps caches from storing it."""
    return ResponseData(
        status=problem.status,
        headers={**problem.headers, "Cache-Control": "no-store"},
        body=responses.encode_problem(problem),
        media_type=PROBLEM_JSON,
    )


async def respond(
    handle: Callable[[], Awaitable[ResponseData]], responses: Responses
) -> ResponseData:
    """Return the response of `handle`, or the problem for the error that it raised.

    Errors of the store become problems that say when to retry. Any other error is a bug, and is
    left to the framework.
    """
    try:
        return await handle()
    except Problem as problem:
        return problem_response(problem, responses)
    except JobUnreadable:  # the store has logged the details
        return problem_response(Problem.of("job-unreadable", _DAMAGED), responses)
    except StoreFull as error:
        log_store_error(error)
        full = Problem.of("store-full", _FULL, headers={"Retry-After": _FULL_RETRY_AFTER})
        return problem_response(full, responses)
    except StoreError as error:
        # A refusal is a 503 as well: the client can do nothing about it but retry.
        log_store_error(error)
        headers = {"Retry-After": _UNAVAILABLE_RETRY_AFTER}
        return problem_response(Problem.of("store-unavailable", headers=headers), responses)
