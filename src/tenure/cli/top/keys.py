"""What a terminal sends when keys are pressed, as names of keys. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Final

__all__ = ["Keyboard"]

_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
_STARTED: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
_NAMES: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[Z": "back tab",
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x0c": "redraw",
    "\x03": "q",
    "\x04": "q",
    "\x15": "clear",
}


class Keyboard:
    """Turns bytes, as they come, into keys: "up", "enter", or the character itself."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """Return the keys of these bytes. A sequence that goes on is kept for the next call."""
        return [*self._keys(self._rest + self._decoder.decode(data))]

    @property
    def is_pending(self) -> bool:
        """Whether a sequence has begun: or else the escape key was pressed."""
        return bool(self._rest)

    def flush(self) -> list[str]:
        """Return the escape key if nothing followed it."""
        rest, self._rest = self._rest, ""
        return ["escape"] if rest else []

    def _keys(self, text: str) -> Iterator[str]:
        self._rest = ""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                character = text[at]
                at += 1
                if name := _NAMES.get(character, character if character.isprintable() else ""):
                    yield name
            elif sequence := _SEQUENCE.match(text, at):
                at = sequence.end()
                if name := _NAMES.get(sequence[0], ""):  # others, such as F1, mean nothing here
                    yield name
            elif _STARTED.match(text, at):
                self._rest = text[at:]
                return
            else:
                at += 1
                yield "escape"
