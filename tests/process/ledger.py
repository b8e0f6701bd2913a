"""The records that contenders keep outside the store: when each was inside, and what it wrote.

Everything goes to the file in one write of its own, so a SIGKILL loses nothing that was written
before it: only a crash of the whole machine needs fsync.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.process.orders import boot


class Count(NamedTuple):
    """What the counter says: its value, and the fence of who wrote it."""

    value: int
    fence: int


@dataclass
class Section:
    """One stay inside a lock or semaphore, by the clock of all processes."""

    who: str
    name: str
    fence: int
    start: float
    saw: Count
    end: float | None = None
    """When its work was done, just before it was given back; None if it never was."""
    lost: bool = False
    killed: float | None = None
    """When its process was killed, if that was before its end."""
    accepted: float | None = None
    """When the fenced sink took what it wrote, if it did."""
    refused: bool = False


class Ledger:
    """The diary of one contender."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def enter(self, name: str, fence: int, saw: Count) -> None:
        self._write("enter", fence, name=name, saw=saw)

    def leave(self, fence: int) -> None:
        self._write("leave", fence)

    def lose(self, fence: int) -> None:
        self._write("lose", fence)

    def effect(self, fence: int, *, accepted: bool) -> None:
        self._write("accepted" if accepted else "refused", fence)

    def _write(self, what: str, fence: int, **facts: object) -> None:
        line = json.dumps({"what": what, "fence": fence, "boot": boot(), **facts})
        os.write(self._file, line.encode() + b"\n")


class Counter:
    """A number in a file, without any protection of its own."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)

    def read(self) -> Count:
        value, fence = os.pread(self._file, 40, 0).split() or (0, 0)
        return Count(int(value), int(fence))

    def write(self, count: Count) -> None:
        # One write of one length: a killed process has written all of it or nothing.
        os.pwrite(self._file, b"%19d %19d\n" % count, 0)


def read_ledger(path: Path) -> list[Section]:
    """Return the sections of one contender in the order in which it had them."""
    sections: dict[int, Section] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        fence = entry["fence"]
        if entry["what"] == "enter":
            saw = Count(*entry["saw"])
            sections[fence] = Section(path.stem, entry["name"], fence, entry["boot"], saw)
        elif entry["what"] == "leave":
            sections[fence].end = entry["boot"]
        elif entry["what"] == "accepted":
            sections[fence].accepted = entry["boot"]
        elif entry["what"] == "refused":
            sections[fence].refused = True
        else:
            sections[fence].lost = True
    return list(sections.values())
