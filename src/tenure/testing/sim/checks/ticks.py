"""Checks the moves of cursors and the runs that came of them, by the answers of the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from tenure.testing.sim.history import Entry

__all__ = ["check_ticks", "without_runs"]


class _Model:
    """What is known of one store's schedules at a point of the history."""

    def __init__(self, period: int) -> None:
        self._period = period
        self.wrong: list[str] = []
        self._cursors: dict[str, int] = {}
        self._live: defaultdict[str, set[str]] = defaultdict(set)
        self._ticks: dict[str, tuple[str, int]] = {}
        """The tick of each run."""
        self._ran: set[tuple[str, int]] = set()
        self._begun: set[str] = set()

    def see(self, entry: Entry) -> None:
        match entry.what:
            case "planted":
                self._cursors[entry.key] = entry.tick
            case "moved" if entry.outcome in ("done", "skipped"):
                self._moved(entry)
            case "settled" if entry.answer == "settled":
                self._ended(entry.job)
            case "recovered" | "cancelled" if entry.answer != "requested":
                self._ended(entry.job)
            case "left":
                for job in entry.ids:
                    self._ended(job)
            case "ticked":
                self._began(entry)

    def _moved(self, entry: Entry) -> None:
        if entry.ok:
            return  # a repeat
        if entry.seen:
            self._moved_cursor(entry)
        if entry.job:
            self._born(entry)

    def _moved_cursor(self, entry: Entry) -> None:
        cursor = self._cursors.get(entry.key, 0)
        if entry.seen != cursor or entry.tick <= cursor:
            self._say(entry, f"the cursor was at {cursor}")
        passed = entry.tick // self._period - cursor // self._period
        decided = entry.number + (entry.answer == "run")
        if passed != decided:
            self._say(entry, f"{passed} ticks were passed and {decided} decided")
        self._cursors[entry.key] = entry.tick

    def _born(self, entry: Entry) -> None:
        tick = (entry.key, entry.tick)
        if entry.seen and tick in self._ran:
            self._say(entry, "this tick has run before")
        if entry.now < entry.tick:
            self._say(entry, "it is early")
        live = self._live[entry.key]
        if entry.limit and len(live) >= entry.limit:
            self._say(entry, f"{len(live)} runs are unfinished, {entry.limit} may be")
        live.add(entry.job)
        self._ran.add(tick)
        self._ticks[entry.job] = tick

    def _began(self, entry: Entry) -> None:
        if self._ticks.get(entry.job) != (entry.key, entry.tick):
            self._say(entry, "nobody was given this run")
        if entry.job in self._begun:
            self._say(entry, "this run has begun before")
        self._begun.add(entry.job)

    def _ended(self, job: str) -> None:
        if job in self._ticks:
            self._live[self._ticks[job][0]].discard(job)

    def _say(self, entry: Entry, what: str) -> None:
        self.wrong.append(f"{entry.at} s: {what}: {entry}")


def check_ticks(history: Iterable[Entry], *, period: int) -> list[str]:
    """Return what is wrong with ticks: run twice, early, beyond a limit, or passed in silence.

    A store that has lost its last writes may repeat a tick; from then on nothing is demanded.
    """
    model = _Model(period)
    for entry in history:
        if entry.what in ("emptied", "fell back"):
            break
        model.see(entry)
    return model.wrong


def without_runs(history: Iterable[Entry]) -> list[Entry]:
    """Return a history without the jobs that are runs of timers: other rules hold for those."""
    entries = list(history)
    runs = {entry.job for entry in entries if entry.what == "moved" and entry.job}
    if not runs:
        return entries
    kept = (entry for entry in entries if entry.job not in runs or not entry.job)
    return [
        replace(one, ids=[job for job in one.ids if job not in runs]) if one.ids else one
        for one in kept
    ]
