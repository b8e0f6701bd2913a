"""URLs as they may be shown: in messages, in logs, on a screen. And what is never to be shown."""

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
    """A value that only who asks for it gets: `secret()`.

    Whoever merely looks does not see it, be it in `repr`, `vars`, or a traceback that shows
    variables. It is never pickled.
    """

    __slots__ = ("_reveal",)

    def __init__(self, value: T) -> None:
        # Not an attribute: those are shown.
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

    Hidden are the password beside the user's name and each option whose name contains "pass".
    Where it is unclear how far a password goes, since somebody wrote '@', '/' or '?' in it as they
    are, too much is hidden rather than too little.
    """
    if not isinstance(url, str):
        return _UNREADABLE
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    address, mark, options = rest.partition("?")
    if mark:
        if "@" in options and not _PLACE.fullmatch(address.rpartition("@")[2]):
            # The '?' belongs to a password, and so may all that looks like an option.
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
    """Hide what stands between the first ':' and the last '@': no name of a user has a ':'."""
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if not colon or rest.startswith("/"):  # a path: nobody logs in there
        return rest
    return f"{user}:{_HIDDEN}{at}{place}"
