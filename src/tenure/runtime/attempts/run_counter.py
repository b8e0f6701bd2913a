"""Counts the attempts of this worker by minute, task and queue, and says when to leave the counts.

Attempts are counted on the loop of the app, with integers in memory and no call. The host leaves
the last hour in the store with a beat that it makes anyway: at most every 15 s, and only if
something has changed. A value that did not arrive is left again later, with what came since.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from tenure.core.clock import Clock
from tenure.core.jobs.records import JobRecord, Settled, Settlement
from tenure.core.jobs.replicas import Stats
from tenure.core.jobs.run_stats import (
    MINUTE,
    MINUTES_KEPT,
    OTHERS,
    PAIRS_MAX,
    Minutes,
    RunCounts,
    encode_stats,
)

__all__ = ["LEAVE_EVERY", "RunCounter", "RunEnd", "run_end"]

LEAVE_EVERY: Final = 15.0
"""How many seconds lie at least between two values."""

_OTHERS: Final = (OTHERS, OTHERS)

RunEnd: TypeAlias = Literal["succeeded", "failed", "retried", "cancelled", "lost"]


def run_end(end: Settlement, answer: Settled) -> RunEnd | None:
    """Return how an attempt counts once the store has answered; None for one handed back."""
    if answer in ("lost", "unreadable"):
        return None if end.outcome == "handed back" else "lost"
    if answer == "cancelled":
        return "cancelled"
    if end.state == "waiting":
        return "retried" if end.outcome == "retry" else None
    return end.state


class RunCounter:
    """The counts of one worker. Its methods may be called in any thread."""

    def __init__(self, clock: Clock, memory: Callable[[], int] = lambda: 0) -> None:
        """`memory` returns how many bytes this process occupies; 0 if that is not known."""
        self._clock = clock
        self._memory = memory
        self._lock = threading.Lock()
        self._minutes: Minutes = {}
        self._pairs: set[tuple[str, str]] = set()  # the pairs in these minutes
        self._source = self._replica = ""
        self._changes = 0
        self._sent = self._left = 0
        self._taken_at = clock.boot()

    def join(self, replica: str) -> None:
        """Note the first replica id, which names the counts from now on, and the present one.

        A worker that was declared dead and joins again must not be counted twice.
        """
        self._source = self._source or replica
        self._replica = replica

    def started(self, job: JobRecord) -> None:
        """Count an attempt that begins."""
        with self._lock:
            self._counts_of(job).started += 1

    def ended(self, job: JobRecord, end: RunEnd | None, seconds: float) -> None:
        """Count an attempt that has ended, after so many seconds."""
        if end is None:
            return
        with self._lock:
            counts = self._counts_of(job)
            setattr(counts, end, getattr(counts, end) + 1)
            counts.seconds += seconds
            counts.longest = max(counts.longest, seconds)

    def due(self, *, is_last: bool = False) -> Stats | None:
        """Return what to leave now; None if nothing has changed, or too little time has passed.

        Call `arrived` once the store has it. `is_last`: the worker leaves.
        """
        now = self._clock.boot()
        with self._lock:
            is_early = now - self._taken_at < LEAVE_EVERY and not is_last
            if is_early or self._left == self._changes or not self._source:
                return None
            self._taken_at, self._sent = now, self._changes
            self._forget_old()
            body = encode_stats(self._minutes, replica=self._replica, memory=self._memory())
            return Stats(self._source, body)

    def arrived(self) -> None:
        """Note that the store has what `due` has returned last."""
        self._left = self._sent

    def _counts_of(self, job: JobRecord) -> RunCounts:
        self._changes += 1
        minute, pair = self._clock.wall() // MINUTE, (job.task, job.queue)
        pairs = self._minutes.get(minute)
        counts = None if pairs is None else pairs.get(pair)
        return self._new_counts(minute, pair) if counts is None else counts

    def _new_counts(self, minute: int, pair: tuple[str, str]) -> RunCounts:
        """Return the counts of a pair for which there are none in this minute."""
        if minute not in self._minutes:
            self._forget_old()
        pairs = self._minutes.setdefault(minute, {})
        if pair not in self._pairs:
            if len(self._pairs) < PAIRS_MAX:
                self._pairs.add(pair)
            else:
                pair = _OTHERS
        return pairs.setdefault(pair, RunCounts())

    def _forget_old(self) -> None:
        last = self._clock.wall() // MINUTE
        # Minutes ahead were counted before the clock was set back.
        self._minutes = {
            minute: pairs
            for minute, pairs in self._minutes.items()
            if 0 <= last - minute < MINUTES_KEPT
        }
        self._pairs = {pair for pairs in self._minutes.values() for pair in pairs} - {_OTHERS}
