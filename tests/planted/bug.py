"""Reads a planted bug and applies it to a copy of the source.

A bug names a function and the lines that change in it, not line numbers. It still applies after
the code around it has moved, also to another file.

    Breaks: the promise, in a sentence
    Caught by: the test that must fail, as a pytest id

    src/tenure/locks/hold.py: Hold._leave
    -        return task.uncancel() > self._cancelling
    +        return task.cancelling() - 1 > self._cancelling

Lines that begin with a space are context: they must be there and stay. Indentation is not
compared. The place is a Python class or function, a Lua or an SQL function, or `*` for the whole
file. If the file is gone, every file of the same kind is searched for that function. The file is
one of `src`, or of the simulator in `tests/sim`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Bug", "DoesNotApply", "regions"]

_SIMULATOR = "tests/sim"
_CHANGE = re.compile(rf"^(?P<file>(?:src|{_SIMULATOR})/\S+): (?P<place>\S+)$")


class DoesNotApply(Exception):
    """The lines that a bug changes are not there, or are there more than once."""


@dataclass(frozen=True)
class Change:
    """One changed place: a line is its mark (space, minus or plus) and its text."""

    file: str
    place: str
    lines: tuple[tuple[str, str], ...]

    @property
    def is_in_simulator(self) -> bool:
        return self.file.startswith(f"{_SIMULATOR}/")

    @property
    def before(self) -> list[str]:
        return [text for mark, text in self.lines if mark != "+"]

    def edit(self, root: Path, edited: dict[Path, str]) -> None:
        """Add the changed file to `edited`, which holds what earlier changes made of theirs."""
        path, start = self._find(root, edited)
        old = _text(path, edited).splitlines()
        shift = _indent(old[start]) - _indent(self.before[0])
        new, at = [], start
        for mark, text in self.lines:
            if mark == "+":
                new.append(_shifted(text, shift))
                continue
            if mark == " ":
                new.append(old[at])
            at += 1
        old[start:at] = new
        edited[path] = "\n".join(old) + "\n"

    def _find(self, root: Path, edited: dict[Path, str]) -> tuple[Path, int]:
        named = root / self.file
        folder = root / (_SIMULATOR if self.is_in_simulator else "src")
        paths = [named] if named.exists() else sorted(folder.rglob(f"*{named.suffix}"))
        hits = [(path, line) for path in paths for line in self._matches(path, edited)]
        if len(hits) != 1:
            count = "not found" if not hits else f"found {len(hits)} times"
            before = "\n".join(self.before)
            raise DoesNotApply(f"{self.file}: {self.place}: {count}:\n{before}")
        return hits[0]

    def _matches(self, path: Path, edited: dict[Path, str]) -> Iterator[int]:
        text = _text(path, edited)
        before = [line.strip() for line in self.before]
        lines = [line.strip() for line in text.splitlines()]
        for first, last in set(regions(text, path.suffix).get(self.place, ())):
            for start in range(first, last - len(before) + 1):
                if lines[start : start + len(before)] == before:
                    yield start


@dataclass(frozen=True)
class Bug:
    """A planted bug: what it breaks, what catches it, and what it changes."""

    path: Path
    headings: dict[str, str]
    changes: tuple[Change, ...]

    @classmethod
    def read(cls, path: Path) -> Bug:
        headings: dict[str, str] = {}
        changes: list[tuple[str, str, list[tuple[str, str]]]] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if place := _CHANGE.match(line):
                changes.append((place["file"], place["place"], []))
            elif changes and line:
                changes[-1][2].append((line[0], line[1:]))
            elif ": " in line:
                name, _, value = line.partition(": ")
                headings[name] = value
        assert changes, f"{path.name} changes nothing"
        return cls(path, headings, tuple(Change(f, p, tuple(lines)) for f, p, lines in changes))

    def heading(self, name: str) -> str:
        assert name in self.headings, f"{self.path.name} has no line '{name}: ...'"
        return self.headings[name]

    @property
    def is_in_simulator(self) -> bool:
        return any(change.is_in_simulator for change in self.changes)

    @property
    def is_slow(self) -> bool:
        return "Slow" in self.headings

    def edits(self, root: Path) -> dict[Path, str]:
        """Return what the bug makes of the source below `root`, or raise DoesNotApply."""
        edited: dict[Path, str] = {}
        for change in self.changes:
            change.edit(root, edited)
        return edited

    def apply(self, root: Path) -> None:
        """Change the source below `root`, or raise DoesNotApply."""
        for path, text in self.edits(root).items():
            path.write_text(text, encoding="utf-8")


@cache
def regions(text: str, suffix: str) -> dict[str, list[tuple[int, int]]]:
    """Return where each named part of a file begins and ends, in lines from 0; `*` is all of it."""
    count = len(text.splitlines())
    places: dict[str, list[tuple[int, int]]] = {"*": [(0, count)]}
    for name, first, last in _parts(text, suffix):
        places.setdefault(name, []).append((first, last))
    return places


def _parts(text: str, suffix: str) -> Iterator[tuple[str, int, int]]:
    if suffix == ".py":
        yield from _python_parts(ast.parse(text).body, "")
    elif suffix == ".lua":
        yield from _text_parts(text, r"^(?:local )?function ([\w.]+)", r"^end\b")
    elif suffix == ".sql":
        yield from _text_parts(text, r"^CREATE (?:OR REPLACE )?FUNCTION ([\w.]+)", r"^\$\$;")


def _python_parts(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, int, int]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
            assert node.end_lineno is not None
            yield prefix + node.name, first, node.end_lineno
            yield from _python_parts(node.body, f"{prefix}{node.name}.")


def _text_parts(text: str, begins: str, ends: str) -> Iterator[tuple[str, int, int]]:
    name, first = "", 0
    for number, line in enumerate(text.splitlines()):
        if match := re.match(begins, line):
            name, first = match[1], number
        elif name and re.match(ends, line):
            yield name, first, number + 1
            name = ""


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _text(path: Path, edited: dict[Path, str]) -> str:
    return edited[path] if path in edited else _read(path)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _shifted(line: str, by: int) -> str:
    if not line.strip():
        return ""
    return " " * by + line if by >= 0 else line[min(-by, _indent(line)) :]
