"""Rows of a list as lines that fit a width. Pure: cells come in, lines go out.

Unlike `cli.tables`, it draws hundreds of rows at each key press, and keeps the columns where they
are while a window moves over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

__all__ = ["Cell", "Column", "Row", "cut", "drawn"]

_GAP: Final = 2


class Column(NamedTuple):
    """A column, and what becomes of it where there is little room."""

    name: str
    right: bool = False
    least: int = 0
    """To how many characters it may shrink; 0: it does not."""
    rank: int = 0
    """When it is left out: the highest rank first; 0: never."""
    tail: int = 0
    """How many characters of the end stay when it shrinks."""


class Cell(NamedTuple):
    """A text without control characters, and its style."""

    text: str
    style: str = ""


class Row(NamedTuple):
    """One item of a list."""

    key: str
    """What it is called in the store."""
    cells: tuple[Cell, ...]
    is_paused: bool = False

    def has(self, text: str) -> bool:
        """Return whether its key or a cell contains a text, in whatever case."""
        needle = text.casefold()
        return any(needle in part.casefold() for part in (self.key, *(c.text for c in self.cells)))


class _Place(NamedTuple):
    at: int
    column: Column
    width: int


def cut(text: str, room: int, tail: int = 0) -> str:
    """Return a text that takes at most `room` columns; `tail` characters of its end stay."""
    if cell_len(text) <= room:
        return text
    end = text[len(text) - tail :] if tail else ""
    if room < cell_len(end) + 4:
        end = ""
    start = set_cell_size(text, max(room - cell_len(end) - 2, 0)).rstrip()
    return set_cell_size(f"{start}..{end}", room).rstrip() if room < 2 else f"{start}..{end}"


def drawn(
    columns: Sequence[Column], rows: Sequence[Row], width: int, title: str = ""
) -> tuple[Text, list[Text]]:
    """Return the header and one line for each row, none of them wider than `width`.

    A title takes the place of the name of the first column.
    """
    columns = [columns[0]._replace(name=title or columns[0].name), *columns[1:]]
    places = _places(columns, rows, width)
    header = _line([Cell(column.name, "dim") for column in columns], places, width)
    return header, [_line(row.cells, places, width) for row in rows]


def _places(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[_Place]:
    places = [
        _Place(
            at,
            column,
            max([cell_len(column.name), *(cell_len(row.cells[at].text) for row in rows)]),
        )
        for at, column in enumerate(columns)
    ]
    while _narrowest(places) > width:
        droppable = [place for place in places if place.column.rank]
        if not droppable:
            break
        places.remove(max(droppable, key=lambda place: place.column.rank))
    return _shrunk(places, width)


def _narrowest(places: Sequence[_Place]) -> int:
    return sum(_least(place) for place in places) + _GAP * (len(places) - 1)


def _least(place: _Place) -> int:
    least = place.column.least
    return place.width if not least else min(place.width, max(least, len(place.column.name)))


def _shrunk(places: list[_Place], width: int) -> list[_Place]:
    """Take what is too much from the widest columns."""
    widths = [place.width for place in places]
    excess = sum(widths) + _GAP * (len(places) - 1) - width
    while excess > 0:
        able = [at for at, place in enumerate(places) if widths[at] > _least(place)]
        if not able:
            break
        widest = max(able, key=widths.__getitem__)
        others = sorted({widths[at] for at in able if at != widest}, reverse=True)
        step = widths[widest] - max(_least(places[widest]), others[0] if others else 0)
        step = min(excess, max(1, step))
        widths[widest] -= step
        excess -= step
    return [place._replace(width=new) for place, new in zip(places, widths, strict=True)]


def _line(cells: Sequence[Cell], places: Sequence[_Place], width: int) -> Text:
    line = Text(no_wrap=True)
    for place in places:
        cell = cells[place.at]
        text = cut(cell.text, place.width, place.column.tail)
        space = " " * (place.width - cell_len(text))
        if line.plain or place is not places[0]:
            line.append(" " * _GAP)
        if place.column.right:
            line.append(space)
        line.append(text, cell.style)
        if not place.column.right:
            line.append(space)
    line.rstrip()
    if line.cell_len > width:
        line.truncate(width)
    return line
