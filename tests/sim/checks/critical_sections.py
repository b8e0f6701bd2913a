"""Checks the records of holders, for rigs that cannot listen to the store."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.sim.history import Entry

__all__ = ["CriticalSection", "check_sections", "sections_of"]


@dataclass(slots=True)
class CriticalSection:
    """One stay inside a lock or semaphore."""

    by: str
    key: str
    fence: int
    limit: int
    start: float
    end: float | None = None
    is_lost: bool = False
    """Its holder was told, or saw by itself, that the lease was gone."""
    lasts_until: float = -math.inf
    """No earlier than that the lease ends by itself, whatever becomes of its holder."""
    given_back: float = math.inf
    """When it left by itself; a holder that is killed gives nothing back."""

    @property
    def was_sure(self) -> bool:
        """Whether its lease had some time left when it entered, as far as it has said so."""
        return self.lasts_until > self.start

    def has_it(self, at: float) -> bool:
        """Return whether its place may go to no other process then."""
        if at < min(self.lasts_until, self.given_back):
            return True
        return not self.is_lost and (self.end is None or self.end > at)


def sections_of(history: Iterable[Entry]) -> list[CriticalSection]:
    """Return the sections of a history, in the order of their beginnings.

    They are told by "entered" and "leaves"; by "acts", whose `seconds` say how long the lease lasts
    without another renewal; by "notified of loss", "noticed loss" and the event HoldLost; and by
    "crash", which ends all sections of the process in `detail`, up to `seconds` ago. A process that
    did not wake from a "pause" before that was last inside when it was paused.
    """
    sections: dict[tuple[str, str, int], CriticalSection] = {}
    paused: dict[str, float] = {}
    for entry in history:
        paused.pop(entry.by, None)
        current = sections.get((entry.by, entry.key, entry.fence))
        if entry.what == "entered":
            sections[entry.by, entry.key, entry.fence] = CriticalSection(
                entry.by, entry.key, entry.fence, entry.limit, entry.at
            )
        elif entry.what == "pause":
            paused.setdefault(entry.detail, entry.at)
        elif entry.what == "crash":
            for section in sections.values():
                if section.by == entry.detail and section.end is None:
                    section.end = paused.get(section.by, entry.at - entry.seconds)
        elif (
            current is not None
            and entry.what == "acts"
            and current.end is None
            and entry.seconds > 0
        ):
            # Without any seconds left it has been paused before it looked.
            current.lasts_until = max(current.lasts_until, entry.at + entry.seconds)
        elif current is not None and entry.what == "leaves":
            current.end = current.given_back = entry.at
        elif current is not None and entry.what in ("notified of loss", "noticed loss", "event"):
            current.is_lost = True
    return sorted(sections.values(), key=lambda section: section.start)


def check_sections(history: Iterable[Entry]) -> list[str]:
    """Return where more were inside than the limit allows, and where fences fell.

    Those that were lost, and knew it, do not count; but for as long as their leases had to last.
    A lease that goes to somebody else before that was stolen, even if its holder was told of it,
    or was killed meanwhile. Only for histories in which the store has lost nothing, and its clock
    was not set ahead.
    """
    wrong: list[str] = []
    inside: dict[str, list[CriticalSection]] = defaultdict(list)
    highest: dict[str, int] = {}
    for section in sections_of(history):
        others = [other for other in inside[section.key] if other.has_it(section.start)]
        inside[section.key] = [*others, section]
        # Who entered late, after a pause, may be there beside others: it has seen its loss.
        if section.is_lost and not section.was_sure:
            continue
        if len(others) >= section.limit:
            wrong.append(f"{section} is inside beside {others}")
        if section.limit == 1 and section.fence <= highest.get(section.key, 0):
            wrong.append(f"{section} comes after fence {highest[section.key]}")
        highest[section.key] = max(section.fence, highest.get(section.key, 0))
    return wrong
