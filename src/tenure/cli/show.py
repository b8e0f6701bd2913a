"""How answers look: tables on a terminal, plain lines in a pipe, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["Cell", "Screen", "duration", "safe", "table"]

Cell: TypeAlias = str | Text

# So wide that nothing is ever wrapped: who reads from a pipe cuts for himself.
_NO_LIMIT = 100_000


class Screen:
    """Where a command shows its answer."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._out = _console(sys.stdout)
        self._err = _console(sys.stderr)

    @property
    def is_terminal(self) -> bool:
        return self._out.is_terminal and not self.as_json

    def answer(self, document: dict[str, Any], *parts: RenderableType) -> None:
        """Show the document as JSON, or else the parts, which say the same to people."""
        if self.as_json:
            # ASCII only: it passes through every terminal, pipe and locale unharmed.
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
            return
        for part in parts:
            _print(self._out, part)

    def aside(self, text: str) -> None:
        """Say something beside the answer; not where a program reads it."""
        if not self.as_json:
            _print(self._err, Text(safe(text), "dim"))

    def failure(self, kind: str, text: str) -> None:
        """Say why there is no answer."""
        if self.as_json:
            self.answer({"error": text, "kind": kind})
        else:
            _print(self._err, Text.assemble(("Error: ", "bold red"), safe(text)))


def table(
    rows: Iterable[Sequence[Cell]], columns: Sequence[str] = (), *, right: Sequence[str] = ()
) -> Table:
    """Return a table whose cells are folded, never cut off. `right` names columns of numbers."""
    made = Table(
        box=None,
        pad_edge=False,
        padding=(0, 3, 0, 0),
        header_style="dim",
        show_header=bool(columns),
    )
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def safe(text: str) -> str:
    """Return text from elsewhere as one line that cannot steer a terminal or hide anything."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


def duration(seconds: float) -> str:
    """Return a time span as people say it, in at most two units."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    whole = round(seconds)
    for unit, size, smaller, part in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // part}{smaller}"
    return f"{whole}s"


def _console(file: Any) -> Console:
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _NO_LIMIT
    return console


def _print(console: Console, part: RenderableType) -> None:
    if console.is_terminal:
        console.print(part)
        return
    with console.capture() as captured:
        console.print(part)
    for line in captured.get().splitlines():
        console.file.write(f"{line.rstrip()}\n")
