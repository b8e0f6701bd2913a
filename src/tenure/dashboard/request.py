"""A request as the routes see it, with readers for its query and its body."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct

from tenure.core.lease_policy import TTL_MAX
from tenure.core.leases import check_name, storable
from tenure.dashboard.answer import Refusal
from tenure.dashboard.viewer import Viewer
from tenure.errors import ConfigError

__all__ = ["Request", "checked_name", "name_in", "path_word"]

_DOTS: Final = re.compile(r"~*\.{1,2}")
_MARKED_DOTS: Final = re.compile(r"~(~*\.{1,2})")
_TEXT_MAX: Final = 1000
_WHOLE_MAX: Final = 2**63 - 1  # what stores can keep


class Request(Struct, frozen=True, kw_only=True):
    """A request of a known viewer."""

    viewer: Viewer
    token: str = ""
    """What actions of this viewer in this browser must carry."""
    subject: str = ""
    """The id or name in the path; empty if the route has none."""
    query: Mapping[str, str] = {}
    body: Mapping[str, Any] = {}

    def name(self, field: str) -> str | None:
        """Return a name from the query; None if it is missing or empty."""
        text = self.query.get(field, "")
        return checked_name(text, field) if text else None

    def number(self, field: str, default: int, most: int) -> int:
        """Return a whole number from 0 from the query, at most `most`."""
        text = self.query.get(field, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 15):
            raise Refusal(400, f"{field} must be a whole number.")
        return min(int(text), most)

    def text(self, field: str, *, required: bool = False) -> str:
        """Return a text from the body; free text is cut to 1,000 characters."""
        value = self.body.get(field) or ""
        if not isinstance(value, str):
            raise Refusal(400, f"{field} must be text.")
        if required and not value:
            raise Refusal(400, f"{field} is missing.")
        return storable(value, _TEXT_MAX)

    def whole(self, field: str) -> int:
        """Return a whole number from 0 from the body."""
        value = self.body.get(field)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _WHOLE_MAX:
            return value
        raise Refusal(400, f"{field} must be a whole number.")

    def seconds(self) -> float | None:
        """Return for how long a pause is; None: until further notice."""
        value = self.body.get("seconds")
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= TTL_MAX:
            raise Refusal(400, f"seconds must be null or a number from 0 to {TTL_MAX:.0f}.")
        return float(value)


def path_word(name: str) -> str:
    """Return a name as one word of a path.

    Browsers and proxies drop the words "." and "..", encoded or not, which leads to another address
    and maybe to another action: so these get a "~" in front.
    """
    return quote(f"~{name}" if _DOTS.fullmatch(name) else name, safe="")


def name_in(words: Sequence[str]) -> str:
    """Return the name that the decoded words of a path stand for. A server may have split it."""
    name = "/".join(words)
    dots = _MARKED_DOTS.fullmatch(name)
    return name if dots is None else dots[1]


def checked_name(text: str, what: str) -> str:
    """Return a name that a store can keep. Raises Refusal."""
    try:
        return check_name(text, what)
    except ConfigError as error:
        raise Refusal(400, str(error)) from None
