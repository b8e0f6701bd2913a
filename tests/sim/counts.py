"""Counts what happened in a history, for the table of the simulation and its minimums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.sim.history import Entry

__all__ = ["count_entries"]

_COUNTED = {
    "granted": "grants",
    "recovered": "recoveries",
    "claimed": "claims",
    "ticked": "ticks",
}
_MOVED = {"stale": "ticks won by others", "skipped": "skipped ticks"}


def count_entries(entries: Iterable[Entry]) -> Counter[str]:
    """Return how often each interesting event happened."""
    counts: Counter[str] = Counter()
    direction = ""
    for entry in entries:
        _count(counts, entry)
        if entry.what == "stepped":  # from here on the store's clock is ahead or back
            direction = "ahead" if entry.seconds > 0 else "back"
            counts[f"steps {direction}"] += 1
        elif direction and entry.what in ("claimed", "ticked"):
            counts[f"{_COUNTED[entry.what]} after a step {direction}"] += 1
    return counts


def _count(counts: Counter[str], entry: Entry) -> None:
    match entry.what:
        case "renewed" | "released" | "noted" if not entry.ok:
            counts["refused stale calls"] += 1
        case "settled" if entry.answer == "lost":
            counts["refused stale calls"] += 1
        case "settled" if entry.outcome == "retry":
            counts["retries"] += 1
        case "settled" if entry.answer == "settled":
            counts["settlements"] += 1
        case "effect" if not entry.ok:
            counts["refused stale effects"] += 1
        case "moved" if entry.outcome in _MOVED:
            counts[_MOVED[entry.outcome]] += 1
        case "claimed" if entry.attempt > 1:
            counts["claims"] += 1
            counts["second attempts"] += 1
        case "beside" if entry.limit:
            counts["jobs beside a backlog"] += 1
        case what if what in _COUNTED:
            counts[_COUNTED[what]] += 1
