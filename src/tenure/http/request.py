"""A request and the meaning of its headers, free of any framework.

FastAPI and Starlette both pass a `RequestData` to the routes. Header values that make no sense are
ignored where HTTP says so, and raise a Problem otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from tenure.core.leases import has_surrogate
from tenure.errors import ConfigError
from tenure.http.problems import Problem

__all__ = [
    "Headers",
    "Owner",
    "RequestData",
    "accepts",
    "idempotency_key",
    "known_entity_tags",
    "owner_name",
    "owner_tag",
    "wait_preference",
]

_KEY_MAX: Final = 255
# A key may contain spaces, but not begin or end with one: proxies trim header values.
_VISIBLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# More digits than this are a mistake, and `float` of very many takes long.
_SECONDS = re.compile(r"\d{1,9}")


class Headers(Mapping[str, str]):
    """HTTP headers by name, in any case. A handler with a parameter of this type gets `headers=`.

    Its repr shows names only: values may be secrets.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in headers.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({', '.join(self._values)})"


class Owner(str):
    """The owner of a job, as the router's `owner=` returned it.

    A handler with a parameter of this type gets it; only then is it stored in the clear.
    """

    __slots__ = ()


class RequestData(Struct, frozen=True, kw_only=True):
    """The parts of a request that the routes look at."""

    headers: Headers
    base: str = ""
    """The path under which this router was reached, for links."""
    query: Mapping[str, str] = {}
    """For job routes: the last value of each query parameter."""
    outer_parameters: Mapping[str, str] = {}
    """For endpoints: path parameters before the router's prefix, such as the name of a tenant."""


def owner_name(owner: object) -> str:
    """Return the owner as text. Raises a Problem if it is missing.

    Without that check all callers without an owner would share their jobs. Raises ConfigError for a
    type whose text may differ between requests or be the same for two owners, such as an object
    that shows its address in memory.
    """
    if owner is None or (isinstance(owner, str) and (not owner.strip() or has_surrogate(owner))):
        raise Problem.of("unknown-owner")
    if isinstance(owner, bool) or not isinstance(owner, str | int | UUID):
        msg = (
            f"owner= returned a {type(owner).__qualname__}. Return a value that identifies the "
            "caller in every request, such as the id of the user: a str, an int or a UUID."
        )
        raise ConfigError(msg)
    return str(owner)


def owner_tag(router: str, owner: str) -> str:
    """Return the tag of an owner's jobs: a hash, so the store does not reveal the owner."""
    return f"http:{sha256(msgspec.json.encode((router, owner))).hexdigest()[:40]}"


def wait_preference(headers: Headers) -> float:
    """Return the seconds of `Prefer: wait=N`, or 0. Unknown preferences are ignored (RFC 7240)."""
    for preference in headers.get("prefer", "").split(","):
        name, _, value = preference.split(";")[0].partition("=")
        text = value.strip().strip('"')
        if name.strip().lower() == "wait" and _SECONDS.fullmatch(text):
            return float(text)
    return 0.0


def idempotency_key(headers: Headers) -> str | None:
    """Return the Idempotency-Key, bare or quoted. Raises a Problem if it is malformed."""
    text = headers.get("idempotency-key")
    if text is None:
        return None
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if len(text) > _KEY_MAX or not _VISIBLE.fullmatch(text):
        detail = f"Send 1 to {_KEY_MAX} printable ASCII characters, such as a UUID."
        raise Problem.of("idempotency-key-malformed", detail)
    return text


def known_entity_tags(headers: Headers) -> set[str]:
    """Return the entity tags of `If-None-Match`: the revisions that the client has already."""
    tags = (tag.strip() for tag in headers.get("if-none-match", "").split(","))
    return {tag.removeprefix("W/") for tag in tags if tag}


def accepts(headers: Headers, media_type: str) -> bool:
    """Return whether `Accept` includes this media type. Quality values are not compared."""
    ranges = [part.partition(";")[0] for part in headers.get("accept", "").split(",")]
    offered = media_type.split(";", maxsplit=1)[0].lower()
    fitting = {"", "*/*", offered, f"{offered.partition('/')[0]}/*"}
    return any(accepted.strip().lower() in fitting for accepted in ranges)
