"""What routes return: an answer, or a refusal with a reason for people.

Refusals are problem documents (RFC 9457) whose `detail` pages show as it is. No answer contains the
text of an error that a hook or a library raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

import msgspec
from msgspec import Struct

__all__ = ["Answer", "Refusal", "json_answer", "problem", "problem_page"]

PROBLEM: Final = "application/problem+json"

_TITLES: Final = {
    400: "Bad request",
    401: "Sign in first",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Changed meanwhile",
    413: "Too large",
    415: "Wrong kind of body",
    421: "Wrong host",
    429: "Too many streams",
    500: "An error of this dashboard",
    503: "The store cannot be read",
}


_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
</head>
<body>
<h1>{title}</h1>
<p>{detail}</p>
</body>
</html>
"""


class Answer(Struct, frozen=True, kw_only=True):
    """A response that is sent as a whole."""

    status: int = 200
    kind: str = "application/json"
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Refusal(Exception):
    """Ends a request: `detail` says what happened and what to do."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}
        self.more = more or {}


def json_answer(document: Any) -> Answer:
    """Return a document as JSON: instants in ISO 8601, infinite numbers as null."""
    return Answer(body=msgspec.json.encode(document))


def problem_page(refusal: Refusal) -> Answer:
    """Return a refusal as a page for people. It needs no other file, which may be refused too."""
    title, detail = escape(_TITLES.get(refusal.status, "Refused")), escape(refusal.detail)
    html = _PAGE.format(title=title, detail=detail)
    return Answer(
        status=refusal.status,
        kind="text/html; charset=utf-8",
        body=html.encode(),
        headers=refusal.headers,
    )


def problem(refusal: Refusal) -> Answer:
    """Return a refusal as a problem document."""
    document = {
        "status": refusal.status,
        "title": _TITLES.get(refusal.status, "Refused"),
        "detail": refusal.detail,
        **refusal.more,
    }
    return Answer(
        status=refusal.status,
        kind=PROBLEM,
        body=msgspec.json.encode(document),
        headers=refusal.headers,
    )
