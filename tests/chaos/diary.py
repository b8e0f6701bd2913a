"""The fsynced ledger that each process of the chaos keeps outside the store.

Each line is an `Entry`, as the checkers of `tests.sim` take it, by the clock that all
processes of a machine share. A line is on the disk when `write` returns.
"""

import os
from pathlib import Path
from typing import Any

import msgspec

from tests.process.orders import boot
from tests.sim.history import Entry, read_lines

_ENDING = ".ledger"


class Diary:
    """The lines of one process; safe to use in all its threads."""

    def __init__(self, folder: Path, by: str, *, is_durable: bool = True) -> None:
        self.by = by
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_DSYNC if is_durable else 0)
        self._file = os.open(diary_of(folder, by), flags, 0o644)

    def write(self, what: str, *, at: float | None = None, **facts: Any) -> None:
        """Write one line, with one write of its own: a kill leaves it whole or not at all."""
        entry = Entry(at=boot() if at is None else at, by=self.by, what=what, **facts)
        os.write(self._file, msgspec.json.encode(entry) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def diary_of(folder: Path, by: str) -> Path:
    """Return where a process writes its lines to."""
    return folder / f"{by}{_ENDING}"


def read_diaries(folder: Path) -> list[Entry]:
    """Return what all processes wrote, in the order in which it happened."""
    paths = sorted(folder.glob(f"*{_ENDING}"))
    entries = [entry for path in paths for entry in read_diary(path)]
    return sorted(entries, key=lambda entry: entry.at)


def read_diary(path: Path) -> list[Entry]:
    """Return what one process wrote so far, without a line that is just being written."""
    text = path.read_bytes() if path.exists() else b""
    return read_lines(text[: text.rfind(b"\n") + 1])
