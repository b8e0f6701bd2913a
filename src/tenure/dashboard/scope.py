"""A request of ASGI as the dashboard reads it: headers, query, path, body. All of it is bounded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from tenure.core.values.depth import is_too_deep
from tenure.dashboard.answer import Refusal

__all__ = [
    "Message",
    "Receive",
    "Scope",
    "address_of",
    "body_of",
    "headers_of",
    "is_navigation",
    "query_of",
    "split_path",
]

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

_BODY_MAX: Final = 16 * 1024
_PATH_MAX: Final = 4096


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers. Of one that is sent twice, an attacker must not choose which counts."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def is_navigation(scope: Scope) -> bool:
    """Return whether a browser shows the answer to a person."""
    accepts = headers_of(scope).get("accept", "")
    return scope["method"] in ("GET", "HEAD") and "text/html" in accepts


def address_of(scope: Scope) -> str:
    """Return the path and the query of a request."""
    query = scope.get("query_string", b"").decode("latin-1")
    root, path = scope.get("root_path", ""), scope["path"]
    whole = path if path.startswith(root) else f"{root}{path}"
    return quote(whole) + (f"?{query}" if query else "")


def query_of(scope: Scope) -> dict[str, str]:
    """Return the fields of the query. Raises Refusal."""
    text = scope.get("query_string", b"")
    if len(text) > _PATH_MAX:
        raise Refusal(413, "The query of this address is too long.")
    try:
        return dict(parse_qsl(text.decode("latin-1"), errors="strict", max_num_fields=50))
    except ValueError:
        raise Refusal(400, "The query of this address cannot be read.") from None


def split_path(scope: Scope) -> tuple[str, list[str]]:
    """Return the path under which the dashboard is mounted, and the decoded words below it."""
    root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    if len(path) > _PATH_MAX:
        raise Refusal(413, "This address is too long.")
    below = path[len(root) :] if path == root or path.startswith(f"{root}/") else path
    words = _raw_words(scope.get("raw_path"), below)
    words = words[1:] if words[:1] == [""] else words
    return root, words[:-1] if words[-1:] == [""] else words


def _raw_words(raw: bytes | None, below: str) -> list[str]:
    """Return the words of a path, also of names with slashes, which the server has decoded."""
    text = (raw or b"").partition(b"?")[0].decode("latin-1")
    at = 0 if text.startswith("/") else -1
    while at >= 0:
        if unquote(text[at:]) == below:
            return [unquote(word) for word in text[at:].split("/")]
        at = text.find("/", at + 1)
    return below.split("/")


async def body_of(headers: Mapping[str, str], receive: Receive) -> Mapping[str, Any]:
    """Return the JSON object in a body. Raises Refusal for anything else."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "Send JSON with Content-Type: application/json.")
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal(400, "The body is incomplete.")
        body += message.get("body", b"")
        if len(body) > _BODY_MAX:
            raise Refusal(413, f"At most {_BODY_MAX:,} bytes are accepted.")
        if not message.get("more_body", False):
            break
    try:
        if is_too_deep(body):
            raise ValueError
        document: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise Refusal(400, "The body is no JSON object.") from None
    return document
