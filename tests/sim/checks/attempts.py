"""Checks how a worker settles its attempts against what their handlers did."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.history import Entry

__all__ = ["Attempts"]


class Attempts:
    """The last word of each handler."""

    def __init__(self, report: Callable[[Entry, str], None], tries: int) -> None:
        self._report = report
        self._tries = tries
        self._ends: dict[tuple[str, int], Entry] = {}

    def ended(self, entry: Entry) -> None:
        """Take note of how a handler ended, by its own word."""
        self._ends[entry.job, entry.fence] = entry

    def forget(self) -> None:
        """Expect nothing of what has ended: a store that has lost an end may be told another."""
        self._ends.clear()

    def settled(self, entry: Entry, failures: int) -> None:
        """Compare an end that counts with what the handler said; it had so many failures before."""
        end = self._ends.get((entry.job, entry.fence))
        if end is None:
            return
        if (end.what == "finished") != (entry.outcome == "succeeded"):
            self._report(entry, f"its handler has {end.what}")
        is_last = failures + 1 >= self._tries or end.detail == "Reject"
        if entry.outcome == "failed" and not is_last:
            self._report(entry, f"{failures + 1} failures, and {self._tries} tries are allowed")
        if entry.outcome == "retry" and is_last:
            self._report(entry, f"{failures + 1} failures, or rejected: it must not be tried again")
        if entry.outcome == "retry" and end.seconds not in (0.0, entry.seconds):
            self._report(entry, f"tried again after {entry.seconds} s, not after {end.seconds} s")
