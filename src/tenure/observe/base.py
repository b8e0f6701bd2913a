"""The base class of events: how an event becomes one line of the log, and at which level."""

from __future__ import annotations

import logging
import re

from msgspec import Struct

from tenure.core.safe_text import indented, safe

__all__ = ["BaseEvent", "Detail", "first_of", "sentence"]

# Texts of several lines, printed below the event. All other values stay in its line.
_LONG = ("trace", "stack")

_NAMED = 5


class BaseEvent(Struct, frozen=True):
    """A fact worth counting or alerting on. `str(event)` is its text in the log."""

    def __str__(self) -> str:
        parts = (getattr(self, part, None) for part in _LONG)
        return self.line + "".join(indented(str(part)) for part in parts if part)

    @property
    def line(self) -> str:
        """The event in one line."""
        name = re.sub(r"(?<!^)(?=[A-Z])", " ", type(self).__name__).lower()
        values = {part: getattr(self, part) for part in self.__struct_fields__ if part not in _LONG}
        filled = {part: value for part, value in values.items() if value not in (None, "", ())}
        return f"{name}: {', '.join(_shown(part, value) for part, value in filled.items())}"

    @property
    def level(self) -> int:
        """The level of its log record: a warning, unless the kind of event says otherwise."""
        return logging.WARNING

    @property
    def fields(self) -> dict[str, object]:
        """The `extra` of its log record: what a formatter or a filter can read."""
        return {
            part: getattr(self, part)
            for part in ("job", "task", "queue", "attempt", "replica", "timer")
            if part in self.__struct_fields__
        }


class Detail:
    """Marks events of normal work, which happen all the time.

    They are made only for a subscriber or a log at level DEBUG: see `Events.wants_details`.
    """

    __slots__ = ()

    @property
    def level(self) -> int:
        return logging.DEBUG


def _shown(part: str, value: object) -> str:
    return f"{part} {first_of(value) if isinstance(value, tuple) else safe(str(value))}"


def first_of(names: tuple[str, ...]) -> str:
    """Return the first few names and the number of the rest: 200 ids make a line unreadable."""
    shown = ", ".join(safe(name) for name in names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def sentence(text: str) -> str:
    """Return the text of an error, safe to show, with a full stop."""
    shown = safe(text)
    return shown if shown.endswith((".", "!", "?")) else f"{shown}."
