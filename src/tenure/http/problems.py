"""Problems: the error responses of the routes, as RFC 9457 defines them.

`KINDS` lists every problem that the routes send by themselves. A handler raises `Problem` to send
one of its own. The job stores it with its error, and the status route shows it later.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import Struct

from tenure.core.values.json import decode_plain
from tenure.runtime.attempts.reports import ErrorReport, Reject

__all__ = [
    "KINDS",
    "PREFIX",
    "PROBLEM_JSON",
    "Kind",
    "Problem",
    "pointer_step",
    "problem_of_report",
    "problems_of_frameworks",
]

PROBLEM_JSON: Final = "application/problem+json"
PREFIX: Final = "urn:tenure:problem:"


class Kind(Struct, frozen=True):
    """One row of the table of problems."""

    status: int
    title: str


KINDS: Final[Mapping[str, Kind]] = {
    "malformed-request": Kind(400, "The request cannot be read"),
    "idempotency-key-missing": Kind(400, "This needs an Idempotency-Key header"),
    "idempotency-key-malformed": Kind(400, "The Idempotency-Key header is not well-formed"),
    "unknown-owner": Kind(403, "Missing or unknown owner"),
    "not-found": Kind(404, "There is no such job"),
    "method-not-allowed": Kind(405, "This address does not take this method"),
    "not-acceptable": Kind(406, "The result has another media type"),
    "not-ready": Kind(409, "The job has not finished"),
    "cancelled": Kind(410, "The job was cancelled"),
    "expired": Kind(410, "The job of this Idempotency-Key is not kept any more"),
    "body-too-large": Kind(413, "The body is too large"),
    "unsupported-media-type": Kind(415, "The body must be JSON"),
    "invalid-request": Kind(422, "The request does not fit"),
    "idempotency-key-reused": Kind(422, "This Idempotency-Key belongs to another request"),
    "too-many-jobs": Kind(429, "Too many jobs of yours have not finished"),
    "too-many-requests": Kind(429, "Too many jobs of yours in one minute"),
    "job-failed": Kind(500, "The job failed"),
    "result-unavailable": Kind(500, "The job succeeded, but its result is not available"),
    "job-lost": Kind(500, "The job was lost with its worker, too often"),
    "job-unreadable": Kind(500, "The job cannot be read"),
    "queue-full": Kind(503, "Too many jobs wait already"),
    "store-full": Kind(503, "There is no room for more"),
    "store-unavailable": Kind(503, "The store does not answer"),
    "job-timed-out": Kind(504, "The job took too long"),
}
"""Every problem that the routes send by themselves, by the last part of its type."""


_STATUSES: Final = {status.value for status in HTTPStatus}
_NAMES: Final = {f"{__name__}.Problem"}
"""The exceptions whose message is a problem: `Problem` and its subclasses, as jobs store them."""


class Problem(Reject):
    """An error response. A handler raises it to tell the client what is wrong.

        raise Problem(422, "No such month", detail="The year has 12.", month=13)

    The job fails at once, even if retries are left. Clients see no other error of a handler.

    Args:
        status: the HTTP status, from 400 to 599.
        title: what is wrong, the same for all problems of this kind.
        detail: what is wrong this time.
        type: a URI that names the kind.
        headers: headers of an immediate response. A job does not store them.
        members: further members of the problem.

    A job stores up to 4,000 characters of the problem as JSON: the status, the type, the title, and
    the other members in order while they fit. Longer text is cut.
    """

    def __init__(
        self,
        status: int,
        title: str = "",
        *,
        detail: str = "",
        type: str = "about:blank",  # noqa: A002 - the member's own name in RFC 9457
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        self.status = status
        self.headers = dict(headers or {})
        self.body: dict[str, Any] = {"type": type, "title": title, "status": status}
        if detail:
            self.body["detail"] = detail
        self.body |= members
        try:
            text = _written(self.body)
        except UnicodeEncodeError:
            self.body = _cleaned(self.body)
            text = _written(self.body)
        super().__init__(text)

    def __init_subclass__(cls) -> None:
        _NAMES.add(f"{cls.__module__}.{cls.__qualname__}")

    def message_within(self, most: int) -> str:
        """Return the body as JSON of at most `most` characters. Drops or cuts what does not fit."""
        text = str(self)
        return text if len(text) <= most else _written(_fitted(self.body, most))

    @staticmethod
    def of(
        kind: str,
        detail: str = "",
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Problem:
        """Return a problem from the table `KINDS`."""
        status, title = KINDS[kind].status, KINDS[kind].title
        more = {"errors": list(errors)} if errors else {}
        return Problem(
            status, title, detail=detail, type=f"{PREFIX}{kind}", headers=headers, **more
        )


def pointer_step(name: str | int) -> str:
    """Return one step of a JSON pointer (RFC 6901)."""
    return "/" + str(name).replace("~", "~0").replace("/", "~1")


@contextmanager
def problems_of_frameworks() -> Iterator[None]:
    """Turn an HTTPException with a 4xx status into a Problem: a retry would fail the same way."""
    try:
        yield
    except Exception as error:
        starlette = sys.modules.get("starlette.exceptions")
        if (
            starlette is None
            or not isinstance(error, starlette.HTTPException)
            or not 400 <= error.status_code < 500
        ):
            raise
        status, detail = error.status_code, error.detail
        title = HTTPStatus(status).phrase if status in _STATUSES else ""
        text = detail if isinstance(detail, str) else ""
        more = {} if isinstance(detail, str) else {"errors": detail}
        raise Problem(status, title, detail="" if text == title else text, **more) from error


def _fitted(body: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return a problem that fits: members in order while there is room, text cut to the rest."""
    # Type and title come first, with a limit of their own, so that they leave room for the rest.
    kept: dict[str, Any] = {"type": "about:blank", "title": "", "status": body["status"]}
    for name, value in body.items():
        room = {"type": most // 4, "title": most // 2}.get(name, most)
        if len(_written({**kept, name: value})) <= room:
            kept[name] = value
        elif isinstance(value, str) and name != "type":  # a URI that was cut names nothing
            # Measured by encoding, because some characters take six in JSON.
            fits = bisect_right(
                range(len(value)),
                room,
                key=lambda end: len(_written({**kept, name: _cut(value, end)})),
            )
            if fits:
                kept[name] = _cut(value, fits - 1)
    return kept


def _cut(text: str, length: int) -> str:
    return f"{text[:length]}\N{HORIZONTAL ELLIPSIS}"


def _written(body: Mapping[str, Any]) -> str:
    return msgspec.json.encode(body).decode()


def _cleaned(value: Any) -> Any:
    """Return a member of a problem without lone surrogates, which JSON cannot encode."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_cleaned(name): _cleaned(part) for name, part in value.items()}
        case list() | tuple():
            return [_cleaned(part) for part in value]
        case _:
            return value


def problem_of_report(report: ErrorReport) -> Problem | None:
    """Return the problem that a handler raised; None if it raised another error."""
    if report.type not in _NAMES:
        return None
    try:
        body = decode_plain(report.message.encode())
        status = int(body["status"])
        problem = Problem(status if 400 <= status <= 599 else 500)
        problem.body = dict(body)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return problem
