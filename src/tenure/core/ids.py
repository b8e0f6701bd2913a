"""Ids of jobs: UUIDv7, made by the caller, so that a repeated insert is harmless."""

from __future__ import annotations

import re

from tenure.core.clock import Clock

__all__ = ["JobIds", "is_job_id", "job_id"]

_COUNT_MAX = 0xFFF
_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class JobIds:
    """Makes ids. The ids of one maker sort in the order in which it made them.

    Jobs of one queue that are due in the same millisecond start in the order of their ids, so the
    jobs of one producer start in the order in which it enqueued them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._millisecond = 0
        self._count = 0

    def make(self) -> str:
        now = self._clock.wall() // 1000
        if now > self._millisecond:
            self._millisecond, self._count = now, 0
        else:  # the same millisecond, or the clock was set back
            self._count += 1
            if self._count > _COUNT_MAX:
                self._millisecond, self._count = self._millisecond + 1, 0
        return job_id(self._millisecond, self._count, self._clock.token())


def job_id(millisecond: int, count: int, token: str) -> str:
    """Return the id number `count` of a millisecond, with 62 of the random bits of `token`.

    This is RFC 9562's layout with a counter. The random bits make ids impossible to guess.
    """
    time = f"{millisecond:012x}"
    variant = "89ab"[int(token[0], 16) & 3]
    return f"{time[:8]}-{time[8:]}-7{count:03x}-{variant}{token[1:4]}-{token[4:16]}"


def is_job_id(text: str) -> bool:
    """Return whether `text` has the form of an id. Other texts need no look-up."""
    return _FORM.fullmatch(text) is not None
