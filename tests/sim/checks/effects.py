"""Checks effects outside the store: none of an old fence after one of a newer fence."""

from __future__ import annotations

from collections.abc import Iterable

from tests.sim.history import Entry

__all__ = ["check_effects", "check_once", "check_unexpected_errors"]


def check_effects(history: Iterable[Entry]) -> list[str]:
    """Return what is wrong with the effects: stale ones accepted, good ones refused, invented ones.

    An effect counts as invented if nobody was given its fence before.
    """
    wrong: list[str] = []
    granted: set[tuple[str, int]] = set()
    highest: dict[str, int] = {}
    for entry in history:
        if entry.what == "granted":
            granted.add((entry.key, entry.fence))
        elif entry.what == "claimed":
            granted.add((entry.job, entry.fence))
        elif entry.what == "effect":
            newest = highest.get(entry.key, 0)
            if entry.ok and entry.fence < newest:
                wrong.append(f"{entry.at} s: fence {entry.fence} accepted after {newest}: {entry}")
            if not entry.ok and entry.fence >= newest:
                wrong.append(f"{entry.at} s: a good effect refused: {entry}")
            if (entry.key, entry.fence) not in granted:
                wrong.append(f"{entry.at} s: nobody was given this fence: {entry}")
            highest[entry.key] = max(newest, entry.fence if entry.ok else 0)
    return wrong


def check_once(history: Iterable[Entry]) -> list[str]:
    """Return what `once` ran to success more than once, by its own word."""
    ran: set[str] = set()
    wrong: list[str] = []
    for entry in history:
        if entry.what in ("emptied", "rolled back"):
            return wrong  # what the store has lost, it may do again
        if entry.what == "ran once" and entry.ok:
            if entry.key in ran:
                wrong.append(f"{entry.at} s: {entry.key!r} has succeeded a second time")
            ran.add(entry.key)
    return wrong


def check_unexpected_errors(history: Iterable[Entry]) -> list[str]:
    """Return holders and processes that ended without being told to."""
    return [
        f"{entry.at} s, {entry.by}: {entry.detail}" for entry in history if entry.what == "raised"
    ]
