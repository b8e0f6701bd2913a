"""What handlers and producers of jobs leave behind, outside the store.

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
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, **facts: str | int) -> None:
        line = Line(what=what, boot=boot(), pid=os.getpid(), **facts)  # type: ignore[arg-type]
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._file)

    def read(self, what: str, fits: Callable[[Line], bool] = lambda _: True) -> list[Line]:
        """Return the lines of one kind so far, in the order in which they were written."""
        lines = map(_decoder.decode, self.path.read_bytes().splitlines())
        return [line for line in lines if line.what == what and fits(line)]


_decoder = msgspec.json.Decoder(Line)
