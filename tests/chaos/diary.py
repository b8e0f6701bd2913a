"""What each process of the chaos leaves behind, outside the store: its own fsynced ledger.

Each line is an `Entry`, as the checkers of `tenure.testing.sim` take it, by the clock that all
processes of a machine share. A line is on the disk when `write` returns.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tenure.testing.sim.history import Entry, read_lines
from tests.process.orders import boot

_ENDING = ".ledger"


class Diary:
    """The lines of one process; safe to use in all its threads."""

    def __init__(self, folder: Path, by: str) -> None:
        self.by = by
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DSYNC
        self._file = os.open(folder / f"{by}{_ENDING}", flags, 0o644)

    def write(self, what: str, *, at: float | None = None, **facts: Any) -> None:
        """Write one line, with one write of its own: a kill leaves it whole or not at all."""
        entry = Entry(at=boot() if at is None else at, by=self.by, what=what, **facts)
        os.write(self._file, msgspec.json.encode(entry) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_diaries(folder: Path) -> list[Entry]:
    """Return what all processes wrote, in the order in which it happened."""
    entries = [entry for path in _diaries(folder) for entry in _whole_lines(path)]
    return sorted(entries, key=lambda entry: entry.at)


def _diaries(folder: Path) -> Iterable[Path]:
    return sorted(folder.glob(f"*{_ENDING}"))


def _whole_lines(path: Path) -> list[Entry]:
    text = path.read_bytes()
    return read_lines(text[: text.rfind(b"\n") + 1])
