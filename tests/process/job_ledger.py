"""The records that handlers and producers of jobs keep outside the store.

Each line goes to the file in one write of its own, so a SIGKILL loses nothing that was written
before it: only a crash of the whole machine needs fsync.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.process.orders import boot


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened, by the clock of all processes."""

    what: str
    """Of a job: began, ended, stopped, wrote. Of a producer: offered, accepted."""
    boot: float
    pid: int
    job: str = ""
    attempt: int = 0
    fence: int = 0
    detail: str = ""
    number: int = 0


class JobLedger:
    """A file that all processes of a test write to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._lines: list[Line] = []
        self._read_up_to = 0

    def write(self, what: str, **facts: str | int) -> None:
        line = Line(what=what, boot=boot(), pid=os.getpid(), **facts)  # type: ignore[arg-type]
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._file)

    def read(self, what: str, fits: Callable[[Line], bool] = lambda _: True) -> list[Line]:
        """Return the lines of one kind so far, in the order in which they were written."""
        size = os.fstat(self._file).st_size
        new = os.pread(self._file, size - self._read_up_to, self._read_up_to)
        # A line that is just being written may be seen by halves.
        whole = new[: new.rfind(b"\n") + 1]
        self._lines += map(_decoder.decode, whole.splitlines())
        self._read_up_to += len(whole)
        return [line for line in self._lines if line.what == what and fits(line)]


_decoder = msgspec.json.Decoder(Line)
