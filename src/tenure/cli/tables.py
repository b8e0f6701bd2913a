"""Tables that fit the terminal.

Below headers, each row stays on one line, so that names and fences can be copied. If the terminal
is too narrow, `ShrinkingCell`s lose their middle first; then the optional columns are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

__all__ = ["Cell", "FittingTable", "ShrinkingCell", "table"]

_GAP = 3  # between two columns


@dataclass(frozen=True)
class ShrinkingCell:
    """A cell that loses its middle where the terminal is too narrow for the whole table."""

    text: str
    tail: int = 6
    """How much of the end stays: of "host:pid", most of the pid."""
    style: str = ""

    LEAST = 12

    @property
    def least(self) -> int:
        return min(self.LEAST, cell_len(self.text))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the narrowest and the widest it can be drawn."""
        return Measurement(self.least, cell_len(self.text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw as much of it as there is room for."""
        text, room = self.text, options.max_width
        if cell_len(text) > room:
            tail = text[len(text) - self.tail :]
            text = set_cell_size(text, max(room - cell_len(tail) - 2, 0)) + ".." + tail
        yield Text(text, self.style, no_wrap=True, overflow="crop")


Cell: TypeAlias = str | Text | ShrinkingCell


def table(
    rows: Iterable[Sequence[Cell]],
    columns: Sequence[str] = (),
    *,
    right: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> Table:
    """Return a table that fits the terminal.

    Args:
        rows: the cells. Without headers, long cells are folded.
        columns: the headers.
        right: columns that are aligned to the right: numbers and lengths of time.
        optional: columns that a narrow terminal leaves out, the first one first. If even that is
            not enough, the terminal wraps the lines.
    """
    return FittingTable([*rows], columns, right, optional)


class FittingTable(Table):
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
                no_wrap=not any(isinstance(cell, ShrinkingCell) for cell in below),
                min_width=max(cell_len(name), *map(_least, below)),
                max_width=max(cell_len(name), *map(_most, below)),
            )
        if names:
            least = sum(column.min_width or 0 for column in self.columns)
            self.min_width = least + _GAP * (len(names) - 1)
        for row in cells:
            self.add_row(*row)

    def fitted(self, room: int) -> FittingTable:
        """Return a table of this width: without some optional columns if need be."""
        if (self.min_width or 0) <= room or not self._optional:
            _shrink(self, room)
            return self
        left_out, *others = self._optional
        kept = [at for at, name in enumerate(self._names) if name != left_out]
        cells = [[row[at] for at in kept] for row in self._cells]
        names = [self._names[at] for at in kept]
        return FittingTable(cells, names, self._right, others).fitted(room)


def _least(cell: Cell) -> int:
    return cell.least if isinstance(cell, ShrinkingCell) else cell_len(str(cell))


def _most(cell: Cell) -> int:
    return cell_len(cell.text if isinstance(cell, ShrinkingCell) else str(cell))


def _shrink(table: Table, room: int) -> None:
    """Take what is too much from the widest columns, a character at a time."""
    widths = [column.max_width or 0 for column in table.columns]
    least = [column.min_width or 0 for column in table.columns]
    excess = sum(widths) + _GAP * (len(widths) - 1) - room
    while excess > 0 and widths != least:
        shrinking = [at for at, width in enumerate(widths) if width > least[at]]
        widths[max(shrinking, key=widths.__getitem__)] -= 1
        excess -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
