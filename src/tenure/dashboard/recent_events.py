"""The newest events of recoveries, losses, refused writes, take-overs and replicas, in memory.

A process sees the events of its own app, and what has changed between two looks at the store while
a viewer looked. What happened elsewhere before or in between is not in here: metrics and logs have
it. The page says so.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.view import as_datetime
from tenure.core.safe_text import safe
from tenure.dashboard.documents import counted, place_of, state_of
from tenure.observe.events import Event
from tenure.observe.jobs import AttemptLost, JobsRecovered
from tenure.observe.locks import HoldLost, LockTakenOver, RenewalFailing, RenewalRestored
from tenure.observe.replica import ClockJumped, ReplicaExpired, ReplicaLost
from tenure.observe.store import DataLost, StoreFailing, StoreRestored
from tenure.observe.timers import TicksMissed, TickUnlocked

__all__ = ["SCOPE", "EventLine", "RecentEvents"]

EVENTS_MAX: Final = 1000
_TEXT_MAX: Final = 500

SCOPE: Final = (
    "Events that this process saw since it started: those of its own app, and changes of replicas "
    "while this dashboard was open. Other processes have their own; metrics and logs have all."
)

_KINDS: Final[dict[type[object], str]] = {
    JobsRecovered: "recovery",
    AttemptLost: "refused",
    HoldLost: "loss",
    ReplicaLost: "loss",
    ReplicaExpired: "replica",
    LockTakenOver: "take-over",
    RenewalFailing: "store",
    RenewalRestored: "store",
    StoreFailing: "store",
    StoreRestored: "store",
    DataLost: "loss",
    ClockJumped: "store",
    TicksMissed: "timer",
    TickUnlocked: "timer",
}


class EventLine(Struct, frozen=True, kw_only=True):
    """One event."""

    n: int
    at: int
    kind: str
    level: str
    text: str
    link: str | None = None

    @property
    def document(self) -> dict[str, Any]:
        """Return it as the API has it."""
        return {
            "n": self.n,
            "at": as_datetime(self.at),
            "kind": self.kind,
            "level": self.level,
            "text": self.text,
            "link": self.link,
        }


class RecentEvents:
    """Keeps the newest 1,000 events. Any thread may add one."""

    def __init__(self, wall: Callable[[], int]) -> None:
        self._wall = wall
        self._lines: deque[EventLine] = deque(maxlen=EVENTS_MAX)
        self._adding = threading.Lock()
        self._replicas: dict[str, ReplicaRecord] | None = None
        self.last = 0
        """The number of the newest event."""

    def add(self, event: Event) -> None:
        """Keep an event of the app, if it is of a kind that the page shows."""
        kind = _KINDS.get(type(event))
        if kind is not None:
            level = "warning" if event.level >= logging.WARNING else "note"
            self._append(kind, level, event.line, _link(event))

    def compare(self, replicas: Sequence[ReplicaRecord]) -> None:
        """Keep which replicas have joined, expired or left since the last look."""
        now = {replica.id: replica for replica in replicas}
        before, self._replicas = self._replicas, now
        if before is None:  # the first look: nothing is new
            return
        for replica, what, level in _changes(before, now):
            place = place_of(replica.meta)
            where = f" at {safe(place)}" if place else ""
            text = f"replica {safe(replica.id[:8])}{where} {what}"
            self._append("replica", level, text, "replicas")

    def after(self, number: int) -> list[EventLine]:
        """Return the events with a higher number, oldest first."""
        with self._adding:
            return [line for line in self._lines if line.n > number]

    def _append(self, kind: str, level: str, text: str, link: str | None) -> None:
        with self._adding:
            self.last += 1
            line = EventLine(
                n=self.last,
                at=self._wall(),
                kind=kind,
                level=level,
                text=text[:_TEXT_MAX],
                link=link,
            )
            self._lines.append(line)


def _changes(
    before: Mapping[str, ReplicaRecord], now: Mapping[str, ReplicaRecord]
) -> Iterator[tuple[ReplicaRecord, str, str]]:
    """Yield replicas with what became of them, and how serious that is."""
    for id_, replica in now.items():
        state = state_of(replica)
        if id_ not in before:
            yield replica, "has joined", "note"
        elif state != state_of(before[id_]):
            words = {
                "alive": "beats again",
                "expired": "has expired: its heartbeats have stopped",
                "dead": "was declared dead: its jobs are recovered",
            }
            yield replica, words[state], "note" if state == "alive" else "warning"
    for id_, replica in before.items():
        if id_ not in now:
            yield replica, _farewell(replica), "note"


def _farewell(replica: ReplicaRecord) -> str:
    """Return what is known of a replica whose record is gone.

    One that has left and one whose process was killed look alike: its supervisor removes it.
    """
    if state_of(replica) != "alive":
        return "is gone: its jobs were recovered"
    ran = f", and ran {counted(replica.held, 'job')} when it was last seen" if replica.held else ""
    return f"is gone: it has left or was killed{ran}"


def _link(event: Event) -> str | None:
    if (job := getattr(event, "job", "")) and isinstance(job, str):
        return f"jobs/{job}"
    if isinstance(event, TicksMissed | TickUnlocked):
        return "timers"
    if isinstance(event, HoldLost | LockTakenOver):
        return "locks"
    return "replicas" if isinstance(event, ReplicaExpired | ReplicaLost | JobsRecovered) else None
