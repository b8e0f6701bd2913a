"""The scoreboard: a worker's running jobs, in shared memory that outlives the worker.

A worker under a supervisor records every job before it starts it. If the process is killed, the
supervisor reads which jobs had begun, and so count a loss, and which were only claimed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from struct import Struct
from typing import Final, NamedTuple

__all__ = ["Blockage", "Scoreboard"]

# The host's last tick, and how many attempts have ended.
_COUNTS: Final = Struct("=dQ")
# When the loop was blocked, until when (0: it still is), and by which job, if known.
_BLOCKED: Final = Struct("=dd40s")
_HEAD_SIZE: Final = _COUNTS.size + _BLOCKED.size
# One place: the deadline of the attempt (0: no time-out), and the job; empty if it is free.
_PLACE: Final = Struct("=d40s")
_DEADLINE: Final = Struct("=d")
_NOWHERE: Final = -1


class Blockage(NamedTuple):
    """A period in which a worker's event loop was blocked."""

    since: float
    """The start; 0 if the loop was never blocked."""
    until: float
    """The end; 0 while it lasts."""
    job: str
    """The job that ran on the loop; empty if unknown."""


class Scoreboard:
    """Places for the jobs that run at the same time. One process writes, another one reads.

    A kill while a place is written leaves part of an id. No job has that id, and it had not begun.
    """

    def __init__(self, file: int, places: int) -> None:
        self._memory = mmap.mmap(file, _HEAD_SIZE + places * _PLACE.size)
        self._free = list(range(places - 1, -1, -1))
        self._places = places
        self._ended = 0

    @staticmethod
    def make_file(places: int) -> int:
        """Return the descriptor of a file for a scoreboard, which vanishes with its last user."""
        size = _HEAD_SIZE + places * _PLACE.size
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("tenure-board")
        else:
            file, path = tempfile.mkstemp()
            os.unlink(path)  # noqa: PTH108 - the path is text
        os.ftruncate(file, size)
        return file

    def close(self) -> None:
        self._memory.close()

    # Written by the worker.

    def begin(self, job: str, deadline: float) -> int:
        """Record a job that is about to start. Returns its place, or `_NOWHERE` if all are taken.

        A job without a place counts as not begun if its process dies.
        """
        if not self._free:
            return _NOWHERE
        place = self._free.pop()
        _PLACE.pack_into(self._memory, _offset(place), deadline, job.encode())
        return place

    def postpone(self, place: int, deadline: float) -> None:
        """Change the deadline of an attempt; 0: none for now."""
        if place != _NOWHERE:
            _DEADLINE.pack_into(self._memory, _offset(place), deadline)

    def end(self, place: int) -> None:
        """Free the place of a job."""
        if place != _NOWHERE:
            _PLACE.pack_into(self._memory, _offset(place), 0.0, b"")
            self._free.append(place)
        self._ended += 1
        _COUNTS.pack_into(self._memory, 0, self.ticked, self._ended)

    def tick(self, now: float) -> None:
        """Record that the threads of this process run."""
        _DEADLINE.pack_into(self._memory, 0, now)

    def blocked(self, since: float, job: str) -> None:
        """Record that the event loop is blocked, and by which job, if known."""
        _BLOCKED.pack_into(self._memory, _COUNTS.size, since, 0.0, job.encode())

    def unblocked(self, now: float) -> None:
        """Record that the event loop runs again."""
        since, _, job = _BLOCKED.unpack_from(self._memory, _COUNTS.size)
        _BLOCKED.pack_into(self._memory, _COUNTS.size, since, now, job)

    # Read by the supervisor.

    @property
    def blockage(self) -> Blockage:
        """The current or last period in which the event loop was blocked."""
        since, until, job = _BLOCKED.unpack_from(self._memory, _COUNTS.size)
        return Blockage(since, until, job.rstrip(b"\0").decode("ascii", "replace"))

    @property
    def ticked(self) -> float:
        """When the worker last ticked; 0 before the first time."""
        return float(_DEADLINE.unpack_from(self._memory, 0)[0])

    @property
    def ended(self) -> int:
        """How many attempts have ended."""
        return int(_COUNTS.unpack_from(self._memory, 0)[1])

    def started(self) -> list[str]:
        """The jobs that have begun and not ended."""
        return [job for _, job in self._lines()]

    def deadlines(self) -> dict[str, float]:
        """The deadlines of the attempts with a time-out."""
        return {job: deadline for deadline, job in self._lines() if deadline}

    def _lines(self) -> list[tuple[float, str]]:
        lines = []
        for place in range(self._places):
            deadline, job = _PLACE.unpack_from(self._memory, _offset(place))
            if name := job.rstrip(b"\0").decode("ascii", "replace"):
                lines.append((deadline, name))
        return lines


def _offset(place: int) -> int:
    return _HEAD_SIZE + place * _PLACE.size
