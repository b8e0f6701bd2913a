"""How answers look: tables on a terminal, plain lines in a pipe, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tenure.core.bounds import Damaged
from tenure.core.durations import duration
from tenure.core.safe_text import safe

__all__ = ["Cell", "Screen", "Shrinking", "duration", "safe", "some", "table"]

_GAP = 3  # between two columns

# Below this, whole ids leave too little room for what else is to be told about jobs.
_NARROW = 110

# Of many names, as many are told.
_NAMES_TOLD = 5

# So wide that nothing is ever wrapped: who reads from a pipe cuts for himself.
_NO_LIMIT = 100_000


class Screen:
    """Where a command shows its answer."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.is_stream = False
        """Whether there is a JSON document in each line, and not a single one in all."""
        self.damaged: list[Damaged] = []
        """The records that the store could not use, to be named beside the answer."""
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
            names = some([f"{one.kind} {safe(one.name)}" for one in self.damaged])
            self.aside(f"Cannot be read, and so not shown: {names}. 'tenure doctor' says why.")

    def aside(self, text: str) -> None:
        """Say something beside the answer; not where a program reads it."""
        if not self.as_json:
            _print(self._err, Text(safe(text), "dim"))

    def warning(self, text: str) -> None:
        """Say what may be wrong with what was done; not where a program reads it."""
        if not self.as_json:
            _print(self._err, Text.assemble(("Warning: ", "yellow"), safe(text)))

    def progress(self, text: str) -> None:
        """Say how far something is, in a line of a terminal that vanishes with an empty text."""
        if self._err.is_terminal and not self._err.is_dumb_terminal and not self.as_json:
            self._err.file.write(f"\r\x1b[2K{text}")
            self._err.file.flush()

    def failure(self, kind: str, text: str) -> None:
        """Say why there is no answer."""
        if self.as_json:
            self.answer({"error": text, "kind": kind})
        else:
            _print(self._err, Text.assemble(("Error: ", "bold red"), safe(text)))


@dataclass(frozen=True)
class Shrinking:
    """A cell that gives up its middle where the terminal is too narrow for the whole table."""

    text: str
    tail: int = 6
    """How much of the end stays: of a host and its process, most of the process."""
    style: str = ""

    LEAST = 12

    @property
    def least(self) -> int:
        return min(self.LEAST, cell_len(self.text))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Tell between which widths it can be drawn."""
        return Measurement(self.least, cell_len(self.text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw as much of it as there is room for."""
        text, room = self.text, options.max_width
        if cell_len(text) > room:
            tail = text[len(text) - self.tail :]
            text = set_cell_size(text, max(room - cell_len(tail) - 2, 0)) + ".." + tail
        yield Text(text, self.style, no_wrap=True, overflow="crop")


Cell: TypeAlias = str | Text | Shrinking


def table(
    rows: Iterable[Sequence[Cell]],
    columns: Sequence[str] = (),
    *,
    right: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> Table:
    """Return a table that fits the terminal. `right` names columns of numbers.

    Without headers, cells are folded. Below headers each row is one line, so that names and
    fences can be copied: what is Shrinking gives way, then the `optional` columns, the first one
    first. Where even that is not enough, the terminal wraps the line.
    """
    return _Sheet([*rows], columns, right, optional)


class _Sheet(Table):
    """A table that can leave out columns."""

    def __init__(
        self,
        cells: Sequence[Sequence[Cell]],
        names: Sequence[str],
        right: Sequence[str],
        optional: Sequence[str],
    ) -> None:
        super().__init__(
            box=None,
            pad_edge=False,
            padding=(0, _GAP, 0, 0),
            header_style="dim",
            show_header=bool(names),
        )
        self._cells, self._names, self._right, self._optional = cells, names, right, optional
        for at, name in enumerate(names):
            below = [row[at] for row in cells if len(row) > at]
            self.add_column(
                name,
                justify="right" if name in right else "left",
                no_wrap=not any(isinstance(cell, Shrinking) for cell in below),
                min_width=max(cell_len(name), *map(_least, below)),
                max_width=max(cell_len(name), *map(_most, below)),
            )
        if names:
            least = sum(column.min_width or 0 for column in self.columns)
            self.min_width = least + _GAP * (len(names) - 1)
        for row in cells:
            self.add_row(*row)

    def within(self, room: int) -> _Sheet:
        """Return it without as many of the optional columns as it takes to fit."""
        if (self.min_width or 0) <= room or not self._optional:
            return self
        gone, *others = self._optional
        kept = [at for at, name in enumerate(self._names) if name != gone]
        cells = [[row[at] for at in kept] for row in self._cells]
        names = [self._names[at] for at in kept]
        return _Sheet(cells, names, self._right, others).within(room)


def _least(cell: Cell) -> int:
    return cell.least if isinstance(cell, Shrinking) else cell_len(str(cell))


def _most(cell: Cell) -> int:
    return cell_len(cell.text if isinstance(cell, Shrinking) else str(cell))


def _fit(made: Table, room: int) -> None:
    """Take what is too much from the widest columns, to the last cell of the line."""
    widths = [column.max_width or 0 for column in made.columns]
    least = [column.min_width or 0 for column in made.columns]
    excess = sum(widths) + _GAP * (len(widths) - 1) - room
    while excess > 0 and widths != least:
        shrinking = [at for at, width in enumerate(widths) if width > least[at]]
        widths[max(shrinking, key=widths.__getitem__)] -= 1
        excess -= 1
    for column, width in zip(made.columns, widths, strict=True):
        column.width = width


def some(parts: Sequence[str], between: str = ", ") -> str:
    """Return the first few of many, and how many others there are."""
    rest = len(parts) - _NAMES_TOLD
    return between.join([*parts[:_NAMES_TOLD], *([f"{rest:,} others"] if rest > 0 else [])])


def _console(file: Any) -> Console:
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _NO_LIMIT
    return console


def _print(console: Console, part: RenderableType) -> None:
    if console.is_terminal and isinstance(part, Table):
        if isinstance(part, _Sheet) and part.show_header:
            part = part.within(console.width)
            _fit(part, console.width)
        width, console.width = console.width, max(console.width, part.min_width or 0)
        console.print(part)
        console.width = width
        return
    if console.is_terminal:
        # Lines end between words only, so that a long name can be copied.
        console.print(part, overflow="ignore", crop=False)
        return
    with console.capture() as captured:
        console.print(part)
    for line in captured.get().splitlines():
        console.file.write(f"{line.rstrip()}\n")
