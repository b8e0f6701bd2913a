"""Hides passwords: in URLs for messages and logs, and in values that must never be shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

__all__ = ["Secret", "redact"]

T = TypeVar("T")

_HIDDEN = "***"
_UNREADABLE = "<unreadable URL>"

_HOST = r"(?:\[[^\[\]]*\]|[^\[\]:,/@]*)(?::\d*)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/.*)?", re.DOTALL)
_ENCODED = re.compile(r"%([0-9a-fA-F]{2})")


class Secret(Generic[T]):
    """A secret value. Call the object to get it.

    It appears neither in `repr` and `vars` nor in tracebacks that show variables. It cannot be
    pickled.
    """

    __slots__ = ("_reveal",)

    def __init__(self, value: T) -> None:
        # A closure, because attributes are shown.
        self._reveal: Callable[[], T] = lambda: value

    def __call__(self) -> T:
        return self._reveal()

    def __repr__(self) -> str:
        return f"<{_HIDDEN}>"

    def __reduce__(self) -> NoReturn:
        msg = "this holds a password and is not pickled. Pass the URL on, and connect there."
        raise TypeError(msg)


def redact(url: object) -> str:
    """Return the URL with its passwords hidden. Never raises.

    It hides the password after the user name, and each option whose name contains "pass". If a
    password contains an unescaped '@', '/' or '?', its end is unclear, and it hides too much rather
    than too little.
    """
    if not isinstance(url, str):
        return _UNREADABLE
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    address, mark, options = rest.partition("?")
    if mark:
        if "@" in options and not _PLACE.fullmatch(address.rpartition("@")[2]):
            # The '?' is part of a password, and so may be everything that looks like an option.
            address, mark, options = rest, "", ""
        options = "&".join(_option(option) for option in options.split("&"))
    shown = _without_login_password(f"{address}{mark}{options}")
    host = re.split("[/?#]", shown.rpartition("@")[2], maxsplit=1)[0]
    if ("[" in host) != ("]" in host):
        return _UNREADABLE
    return f"{scheme}{separator}{shown}"


def _option(option: str) -> str:
    name, equals, _ = option.partition("=")
    plain = _ENCODED.sub(lambda code: chr(int(code[1], 16)), name).lower()
    return f"{name}={_HIDDEN}" if equals and "pass" in plain else option


def _without_login_password(rest: str) -> str:
    """Hide the text between the first ':' and the last '@', as user names contain no ':'."""
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if not colon or rest.startswith("/"):  # a path has no login
        return rest
    return f"{user}:{_HIDDEN}{at}{place}"
