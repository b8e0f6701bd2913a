"""Mutants that no test can tell from the original, with the reason: `equivalents.txt`.

An entry is the reason, then the place and the lines as a run prints them for a survivor:

    The bound only saves a walk; a larger one finds the same.
    src/tenure/stores/redis/lua/claim.lua: look_through
    -  for _ = 1, 40 do
    +  for _ = 1, 41 do

Entries are separated by an empty line. The lines are compared without their indentation, so an
entry stays valid while its function moves, also to another file. An entry that fits no mutant is
stale: the run names it, and fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutant import Mutant

__all__ = ["Equivalents"]

_PLACE = re.compile(r"^(?P<file>src/\S+): (?P<place>\S+)$")

Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Entry:
    """One mutant that is as good as the original."""

    reason: str
    file: str
    key: Key

    @property
    def text(self) -> str:
        place, lines = self.key
        return "\n".join([self.reason, f"{self.file}: {place}", *lines])


class Equivalents:
    """All entries of a file."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = list(entries)
        self._by_key: dict[Key, list[Entry]] = {}
        for entry in self.entries:
            self._by_key.setdefault(entry.key, []).append(entry)

    @classmethod
    def read(cls, path: Path) -> Equivalents:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        blocks = [block for block in re.split(r"\n\s*\n", text) if not _is_comment(block)]
        return cls(_entry(block) for block in blocks)

    def reason(self, mutant: Mutant) -> str:
        """Return why a mutant is equivalent; empty if it is not known to be."""
        return next((entry.reason for entry in self._by_key.get(mutant.key, [])), "")

    def stale(self, mutants: Iterable[Mutant]) -> list[Entry]:
        """Return the entries that fit none of all the mutants there are."""
        keys = {mutant.key for mutant in mutants}
        return [entry for entry in self.entries if entry.key not in keys]


def _is_comment(block: str) -> bool:
    return all(not line.strip() or line.startswith("#") for line in block.splitlines())


def _entry(block: str) -> Entry:
    reason: list[str] = []
    place, file, lines = "", "", []
    for line in block.splitlines():
        if match := _PLACE.match(line):
            place, file = match["place"], match["file"]
        elif place:
            lines.append(line[:1] + line[1:].strip())
        elif not line.startswith("#"):
            reason.append(line.strip())
    if not (place and lines and reason):
        raise ValueError(f"no entry, it needs a reason, a place and lines:\n{block}")
    return Entry(" ".join(reason), file, (place, tuple(lines)))
