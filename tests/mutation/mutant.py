"""One small change of the source.

An operator yields an `Edit`: a piece of a file's text and what replaces it. A `Mutant` is an edit
with its place (the function it is in) and its hunk: the changed lines, with as much context as it
takes to find them in that place. Place and hunk do not depend on line numbers, so the id of a
mutant stays the same when the code around it moves within its file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from tests.planted.bug import regions

__all__ = ["LANGUAGES", "Edit", "Mutant", "Source", "compared_as"]

LANGUAGES = {".py": "python", ".lua": "lua", ".sql": "sql"}
_CONTEXT_MAX = 40


@dataclass(frozen=True)
class Edit:
    """Replaces the characters from `start` to `end` of a file by `new`."""

    start: int
    end: int
    new: str
    operator: str
    statement: int = -1
    """Line, from 1, of the statement that has to run for a test to notice; -1 if not known."""


def compared_as(old: str, new: str) -> str:
    """Return the name of the operator that puts one comparison for another.

    A boundary moves by one value: `<` becomes `<=`. All others turn the comparison around.
    """
    return "boundary" if new[0] in "<>" and new[0] == old[0] else "comparison"


@dataclass(frozen=True)
class Mutant:
    """An edit of one file, described so that a person and a file of notes can refer to it."""

    file: str
    """Relative to the root of the project, with slashes."""
    place: str
    """The function or class it is in, as `tests.planted.bug` names it."""
    hunk: tuple[str, ...]
    """Lines marked with a space (context), a minus or a plus."""
    edit: Edit
    line: int
    """The first line that changes, from 1."""

    @property
    def language(self) -> str:
        return LANGUAGES[Path(self.file).suffix]

    @property
    def operator(self) -> str:
        return self.edit.operator

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """What it changes in which place, whatever the file and the indentation."""
        return self.place, tuple(line[0] + line[1:].strip() for line in self.hunk)

    @cached_property
    def id(self) -> str:
        place, lines = self.key
        return sha256("\n".join([self.file, place, *lines]).encode()).hexdigest()[:10]

    @property
    def title(self) -> str:
        return f"{self.id}  {self.file}:{self.line} {self.place}  {self.operator}"

    def text(self) -> str:
        """Return it the way a file of notes has it: the place, then the lines."""
        return "\n".join([f"{self.file}: {self.place}", *self.hunk])

    def apply(self, text: str) -> str:
        return text[: self.edit.start] + self.edit.new + text[self.edit.end :]


class Source:
    """The text of one file, and the mutants that edits of it make."""

    @classmethod
    @cache
    def of(cls, file: str, text: str) -> Source:
        return cls(file, text)

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self._lines = text.split("\n")
        self._stripped = [line.strip() for line in self._lines]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._places = _places(text, Path(file).suffix)

    def mutant(self, edit: Edit) -> Mutant:
        """Describe an edit."""
        first, last = self._line_at(edit.start), self._line_at(max(edit.start, edit.end - 1))
        before = self._lines[first : last + 1]
        head = self.text[self._starts[first] : edit.start]
        tail = self.text[edit.end : self._starts[last + 1] - 1]
        after = (head + edit.new + tail).split("\n")
        while before and after and before[0] == after[0]:
            before, after, first = before[1:], after[1:], first + 1
        while before and after and before[-1] == after[-1]:
            before, after = before[:-1], after[:-1]
        place, start, end = self._place_of(first)
        hunk = self._hunk(before, after, first, (start, end))
        return Mutant(self.file, place, hunk, edit, first + 1)

    def _hunk(
        self, before: list[str], after: list[str], first: int, region: tuple[int, int]
    ) -> tuple[str, ...]:
        top, bottom = first, first + len(before)
        while not self._is_unique(top, bottom, region) and first - top < _CONTEXT_MAX:
            if top > region[0]:
                top -= 1
            elif bottom < region[1]:
                bottom += 1
            else:
                break
        return (
            *(f" {line}" for line in self._lines[top:first]),
            *(f"-{line}" for line in before),
            *(f"+{line}" for line in after),
            *(f" {line}" for line in self._lines[first + len(before) : bottom]),
        )

    def _is_unique(self, top: int, bottom: int, region: tuple[int, int]) -> bool:
        before = self._stripped[top:bottom]
        if not any(before):
            return False
        last = region[1] - len(before) + 1
        return (
            sum(
                self._stripped[line : line + len(before)] == before
                for line in range(region[0], last)
            )
            == 1
        )

    def _line_at(self, offset: int) -> int:
        low, high = 0, len(self._lines)
        while low + 1 < high:
            middle = (low + high) // 2
            if self._starts[middle] <= offset:
                low = middle
            else:
                high = middle
        return low

    def _place_of(self, line: int) -> tuple[str, int, int]:
        inside = [region for region in self._places if region[1] <= line < region[2]]
        return min(inside, key=lambda region: (region[2] - region[1], region[0] == "*"))


def _places(text: str, suffix: str) -> list[tuple[str, int, int]]:
    parts = regions(text, suffix)
    return [(name, first, last) for name, spans in parts.items() for first, last in spans]
