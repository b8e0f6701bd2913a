"""What both frameworks share, as both stand on Starlette: requests in, answers out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tenure.http.answers import Answer
from tenure.http.asking import Headers
from tenure.http.problems import Problem

if TYPE_CHECKING:
    from tenure.http.lending import Lending

__all__ = ["as_response", "closing", "headers_of", "read_body"]


def headers_of(request: Request) -> Headers:
    """Return the headers; several of one name as one, as HTTP has it."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return Headers(found)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; raise a Problem as soon as it is clear that it is too large."""
    too_large = Problem.of("body-too-large", f"{limit:,} bytes are accepted.")
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:18]) > limit:
        raise too_large
    parts, length = [], 0
    async for part in request.stream():
        length += len(part)
        if length > limit:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def as_response(answer: Answer) -> Response:
    """Return an answer in the framework's own form."""
    if isinstance(answer.body, bytes):
        return Response(
            answer.body, answer.status, headers=answer.headers, media_type=answer.media_type
        )
    return StreamingResponse(
        answer.body, answer.status, headers=answer.headers, media_type=answer.media_type
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
