"""What a client asks for, free of any framework: the request, and how its headers are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from msgspec import Struct

from tenure.core.leases import has_surrogate
from tenure.errors import ConfigError
from tenure.http.problems import Problem

__all__ = [
    "Asked",
    "Headers",
    "Owner",
    "accepts",
    "idempotency_key",
    "known_revision",
    "owner_name",
    "wait_preference",
]

_KEY_MAX: Final = 255
_VISIBLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SECONDS = re.compile(r"\d{1,9}")


class Headers(Mapping[str, str]):
    """Headers by name, whatever the case of its letters. A handler may take them: `headers=`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def __getitem__(self, name: str) -> str:
        return self._given[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __repr__(self) -> str:
        return f"Headers({', '.join(self._given)})"


class Owner(str):
    """Who has asked, as the router's `owner=` says. A handler may take it; it is stored then."""

    __slots__ = ()


class Asked(Struct, frozen=True, kw_only=True):
    """One request, as far as the routes look at it."""

    headers: Headers
    base: str = ""
    """The path under which this router's routes are, for links."""
    query: Mapping[str, str] = {}
    """Of job routes: the last value of each parameter."""
    around: Mapping[str, str] = {}
    """Of endpoints: what the path says in front of the router, such as a tenant's name."""


def owner_name(owner: object) -> str:
    """Return an owner as text; raise a Problem for nobody, lest all of them share their jobs.

    Raises ConfigError for what need not be the same text in the next request, or not another for
    somebody else, such as an object that shows itself by its address.
    """
    if owner is None or (isinstance(owner, str) and (not owner.strip() or has_surrogate(owner))):
        raise Problem.of("nobody")
    if isinstance(owner, bool) or not isinstance(owner, str | int | UUID):
        msg = (
            f"owner= returned a {type(owner).__qualname__}. Return what names the caller for good, "
            "such as the id of the user: a str, an int or a UUID."
        )
        raise ConfigError(msg)
    return str(owner)


def wait_preference(headers: Headers) -> float:
    """Return the seconds of `Prefer: wait=N`; 0 without one. What is not understood is ignored."""
    for preference in headers.get("prefer", "").split(","):
        name, _, value = preference.split(";")[0].partition("=")
        text = value.strip().strip('"')
        if name.strip().lower() == "wait" and _SECONDS.fullmatch(text):
            return float(text)
    return 0.0


def idempotency_key(headers: Headers) -> str | None:
    """Return the key, given bare or as a quoted string; raise a Problem for what cannot be one."""
    text = headers.get("idempotency-key")
    if text is None:
        return None
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if len(text) > _KEY_MAX or not _VISIBLE.fullmatch(text):
        detail = f"It has 1 to {_KEY_MAX} printable ASCII characters, such as a UUID."
        raise Problem.of("idempotency-key-malformed", detail)
    return text


def known_revision(headers: Headers) -> set[str]:
    """Return the entity tags of `If-None-Match`."""
    given = headers.get("if-none-match", "").split(",")
    return {one.strip().removeprefix("W/") for one in given if one.strip()}


def accepts(headers: Headers, media_type: str) -> bool:
    """Return whether the client takes this media type."""
    ranges = [one.partition(";")[0].strip().lower() for one in headers.get("accept", "").split(",")]
    kind = media_type.split(";", maxsplit=1)[0].lower()
    fits = {"", "*/*", kind, f"{kind.partition('/')[0]}/*"}
    return any(one in fits for one in ranges)
