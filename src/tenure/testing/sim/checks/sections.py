"""Checks what holders wrote down themselves: for rigs that cannot listen to the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tenure.testing.sim.history import Entry

__all__ = ["Section", "check_sections", "sections_of"]


@dataclass(slots=True)
class Section:
    """One stay inside a lock or semaphore."""

    by: str
    key: str
    fence: int
    limit: int
    start: float
    end: float | None = None
    is_lost: bool = False
    """Its holder was told, or saw by itself, that the lease was gone."""


def sections_of(history: Iterable[Entry]) -> list[Section]:
    """Return the sections of a history, in the order of their beginnings.

    They are told by "entered" and "leaves"; by "told of a loss", "sees a loss" and the event
    HoldLost; and by "crash", which ends all sections of the process in `detail`. A process that
    did not wake from a "pause" before that was last inside when it was paused.
    """
    sections: dict[tuple[str, str, int], Section] = {}
    paused: dict[str, float] = {}
    for entry in history:
        paused.pop(entry.by, None)
        known = sections.get((entry.by, entry.key, entry.fence))
        if entry.what == "entered":
            sections[entry.by, entry.key, entry.fence] = Section(
                entry.by, entry.key, entry.fence, entry.limit, entry.at
            )
        elif entry.what == "pause":
            paused.setdefault(entry.detail, entry.at)
        elif entry.what == "crash":
            for one in sections.values():
                if one.by == entry.detail and one.end is None:
                    one.end = paused.get(one.by, entry.at)
        elif known is not None and entry.what == "leaves":
            known.end = entry.at
        elif known is not None and entry.what in ("told of a loss", "sees a loss", "event"):
            known.is_lost = True
    return sorted(sections.values(), key=lambda one: one.start)


def check_sections(history: Iterable[Entry]) -> list[str]:
    """Return where more were inside than the limit allows, and where fences fell.

    Those that were lost, and knew it, do not count.
    """
    wrong: list[str] = []
    inside: dict[str, list[Section]] = defaultdict(list)
    highest: dict[str, int] = {}
    for one in sections_of(history):
        if one.is_lost:
            continue
        others = [other for other in inside[one.key] if other.end is None or other.end > one.start]
        if len(others) >= one.limit:
            wrong.append(f"{one} is inside beside {others}")
        if one.limit == 1 and one.fence <= highest.get(one.key, 0):
            wrong.append(f"{one} comes after fence {highest[one.key]}")
        highest[one.key] = max(one.fence, highest.get(one.key, 0))
        inside[one.key] = [*others, one]
    return wrong
