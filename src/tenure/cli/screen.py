"""Where answers go: to a terminal, as plain lines into a pipe, or as one JSON document.

Only the answer is on stdout. Remarks, warnings, questions and errors are on stderr. rich leaves
out colours if NO_COLOR is set.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tenure.cli.tables import FittingTable
from tenure.cli.text import first_few, safe
from tenure.core.bounds import Damaged

__all__ = ["Screen"]

# Below this, whole ids leave too little room for the other columns.
_NARROW = 110

# So wide that nothing is ever wrapped: readers of a pipe cut lines themselves.
_NO_LIMIT = 100_000


class Screen:
    """Shows the answer of a command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.is_stream = False
        """Whether each line is a JSON document, instead of one document in all."""
        self.damaged: list[Damaged] = []
        """The records that the store could not read; they are named beside the answer."""
        self._out = _console(sys.stdout)
        self._err = _console(sys.stderr)

    @property
    def is_terminal(self) -> bool:
        return self._out.is_terminal and not self.as_json

    @property
    def is_narrow(self) -> bool:
        """Whether ids have to be shortened; never where a program may read them."""
        return self.is_terminal and self._out.width < _NARROW

    @property
    def width(self) -> int:
        return self._out.width

    def answer(self, document: dict[str, Any], *parts: RenderableType) -> None:
        """Show the document as JSON, or else the parts, which say the same to people."""
        if self.as_json:
            if self.damaged:
                document = {**document, "unreadable": msgspec.to_builtins(self.damaged)}
            # ASCII only: it passes through every terminal, pipe and locale unharmed.
            sys.stdout.write(json.dumps(document, indent=None if self.is_stream else 2) + "\n")
            return
        for part in parts:
            _print(self._out, part)
        if self.damaged:
            names = first_few([f"{record.kind} {safe(record.name)}" for record in self.damaged])
            self.remark(f"Cannot be read, so not shown: {names}. 'tenure doctor' explains why.")

    def remark(self, text: str) -> None:
        """Show something beside the answer; not with --json."""
        if not self.as_json:
            _print(self._err, Text(safe(text), "dim"))

    def warning(self, text: str) -> None:
        """Show what may be a mistake in what was done; not with --json."""
        if not self.as_json:
            _print(self._err, Text.assemble(("Warning: ", "yellow"), safe(text)))

    def progress(self, text: str) -> None:
        """Show progress in a line of a terminal; an empty text removes the line."""
        if self._err.is_terminal and not self._err.is_dumb_terminal and not self.as_json:
            self._err.file.write(f"\r\x1b[2K{text}")
            self._err.file.flush()

    def failure(self, kind: str, text: str) -> None:
        """Show why there is no answer."""
        if self.as_json:
            self.answer({"error": text, "kind": kind})
        else:
            _print(self._err, Text.assemble(("Error: ", "bold red"), safe(text)))


def _console(file: Any) -> Console:
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _NO_LIMIT
    return console


def _lines(part: RenderableType, width: int) -> Sequence[RenderableType]:
    """Return the lines of a text, which end between words only."""
    if not isinstance(part, Text) or part.no_wrap:
        return [part]
    text, start, ends = part.plain, 0, []
    for word in re.finditer(r"\S+", text):
        if start < word.start() and cell_len(text[start : word.end()]) > width:
            start = word.start()
            ends.append(start)
    lines = [*part.divide(ends)]
    for line in lines:
        line.rstrip()
    return lines


def _print(console: Console, part: RenderableType) -> None:
    if console.is_terminal and isinstance(part, Table):
        if isinstance(part, FittingTable) and part.show_header:
            part = part.fitted(console.width)
        width, console.width = console.width, max(console.width, part.min_width or 0)
        console.print(part)
        console.width = width
        return
    if console.is_terminal:
        for line in _lines(part, console.width):
            # What is longer than a line is left to the terminal, so that it can be copied.
            console.print(line, overflow="ignore", crop=False)
        return
    with console.capture() as captured:
        console.print(part)
    for line in captured.get().splitlines():
        console.file.write(f"{line.rstrip()}\n")
