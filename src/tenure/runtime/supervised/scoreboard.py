"""The board: what a worker shows of its jobs in memory that outlives it.

A worker under a supervisor writes down every job before it starts it. If the process is killed,
the supervisor reads there which jobs had begun and count a loss, and which had only been claimed.
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
# Since when the loop has been blocked, until when (0: it is), and by which job, if that is known.
_BLOCKED: Final = Struct("=dd40s")
_HEAD_SIZE: Final = _COUNTS.size + _BLOCKED.size
# One place: when the attempt must be over (0: no time-out), and the job; empty if it is free.
_PLACE: Final = Struct("=d40s")
_DEADLINE: Final = Struct("=d")
_NOWHERE: Final = -1


class Blockage(NamedTuple):
    """A time in which a worker's event loop did not turn."""

    since: float
    """0 if there was none."""
    until: float
    """0 while it lasts."""
    job: str
    """The job that ran on the loop; empty if that is not known."""


class Scoreboard:
    """Places for the jobs that run at a time. One process writes, another one reads.

    A kill in the middle of a line leaves part of an id, which no job has: it had not begun.
    """

    def __init__(self, file: int, places: int) -> None:
        self._memory = mmap.mmap(file, _HEAD_SIZE + places * _PLACE.size)
        self._free = list(range(places - 1, -1, -1))
        self._places = places
        self._ended = 0

    @staticmethod
    def make_file(places: int) -> int:
        """Return the descriptor of a file for a board, which vanishes with its last user."""
        size = _HEAD_SIZE + places * _PLACE.size
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("tenure-board")
        else:
            file, path = tempfile.mkstemp()
            os.unlink(path)  # noqa: PTH108 - it is text
        os.ftruncate(file, size)
        return file

    def close(self) -> None:
        self._memory.close()

    # What the worker writes.

    def begin(self, job: str, deadline: float) -> int:
        """Write down a job that is about to start; return its place, or one that is none.

        Without a place it would count as not begun, should its process die.
        """
        if not self._free:
            return _NOWHERE
        place = self._free.pop()
        _PLACE.pack_into(self._memory, _offset(place), deadline, job.encode())
        return place

    def postpone(self, place: int, deadline: float) -> None:
        """Write down when an attempt must be over after all; 0: not known now."""
        if place != _NOWHERE:
            _DEADLINE.pack_into(self._memory, _offset(place), deadline)

    def end(self, place: int) -> None:
        """Take it off again."""
        if place != _NOWHERE:
            _PLACE.pack_into(self._memory, _offset(place), 0.0, b"")
            self._free.append(place)
        self._ended += 1
        _COUNTS.pack_into(self._memory, 0, self.ticked, self._ended)

    def tick(self, now: float) -> None:
        """Show that the process's threads get to run."""
        _DEADLINE.pack_into(self._memory, 0, now)

    def blocked(self, since: float, job: str) -> None:
        """Show that the event loop does not turn, and the job that runs on it, if it is known."""
        _BLOCKED.pack_into(self._memory, _COUNTS.size, since, 0.0, job.encode())

    def unblocked(self, now: float) -> None:
        """Show that it turns again."""
        since, _, job = _BLOCKED.unpack_from(self._memory, _COUNTS.size)
        _BLOCKED.pack_into(self._memory, _COUNTS.size, since, now, job)

    # What the supervisor reads.

    @property
    def blockage(self) -> Blockage:
        """The present or last time that the event loop did not turn."""
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
        """When the attempts with a time-out must be over."""
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
