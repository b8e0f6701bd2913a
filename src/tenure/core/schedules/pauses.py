"""How ticks are paused and resumed, how a cursor is reset, and which schedules are forgotten.

Pure. Each function returns a commit, or None if there is nothing to do. `freeze`, `thaw` and
`reset` raise StoreError for a schedule that a newer release has written in a form of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.schedules.documents import (
    EVERYTHING,
    Freeze,
    Schedule,
    Standing,
    read_definition,
    write_document,
)
from tenure.core.schedules.records import Commit, Expected, Room, Write
from tenure.errors import StoreError

__all__ = [
    "AHEAD_AFTER",
    "Change",
    "current_freeze",
    "forget",
    "freeze",
    "reset",
    "seconds_ahead",
    "silent_for",
    "thaw",
]

AHEAD_AFTER: Final = 60.0
"""A cursor is ahead if it lies so many seconds in the store's future. Clocks that follow a time
server are set back by less."""


class Change(Struct, frozen=True, kw_only=True):
    """What a change of one schedule starts from."""

    name: str
    schedule: Schedule | None
    """None: it is not there. EVERYTHING need not be."""
    version: str
    id: str
    """The id of the commit to make."""
    now: int


def freeze(change: Change, *, until: int | None, reason: str) -> Commit | None:
    """Skip its ticks before `until`; None if there is no such schedule."""
    if change.schedule is None and change.name != EVERYTHING:
        return None
    new = Freeze(since=change.now, until=until, reason=reason)
    return _write(change, replace(_standing_of(change), freeze=new))


def thaw(change: Change) -> Commit | None:
    """End its freeze now, so that ticks before now stay skipped; None if there is none."""
    standing = _standing_of(change)
    now = standing.freeze
    if now is None or (now.until is not None and now.until <= change.now):
        return None
    return _write(change, replace(standing, freeze=replace(now, until=change.now)))


def current_freeze(schedule: Schedule, now: int) -> Freeze | None:
    """Return the freeze of a schedule, unless it has ended."""
    freeze = schedule.standing.freeze
    has_ended = freeze is not None and freeze.until is not None and freeze.until <= now
    return None if has_ended else freeze


def seconds_ahead(instant: int, now: int) -> float:
    """Return how far a cursor, or the end of a run, lies in the store's future; 0.0 if it is not.

    The clock of the store was ahead when that was written, or it is behind now.
    """
    ahead = (instant - now) / 1e6
    return ahead if ahead > AHEAD_AFTER else 0.0


def silent_for(schedule: Schedule, now: int) -> float:
    """Return for how many seconds a cursor that is ahead keeps a schedule from ticking."""
    ahead = seconds_ahead(schedule.standing.cursor, now)
    if not ahead or schedule.standing.successor:
        return 0.0
    definition = read_definition(schedule.charter)
    # The ticks of each replica do not go by the cursor.
    return 0.0 if definition is not None and definition.each == "replica" else ahead


def reset(change: Change) -> Commit | None:
    """Bring a cursor back to now that lies in the store's future; None if it does not.

    Ticks between now and then were decided, and may run again: only an operator does this.
    """
    standing = _standing_of(change)
    if change.schedule is None or standing.cursor <= change.now:
        return None
    return _write(change, replace(standing, cursor=change.now))


def forget(change: Change, *, idle: float, others: Collection[str] = ()) -> Commit | None:
    """Delete a schedule that no replica has declared for `idle` seconds; None if it must stay.

    It must while a run is unfinished, and while its successor is there: after a roll-back, the old
    name would otherwise decide again about ticks that the new one has decided. `others` are names
    that are known to be there. What a newer release has written in a form of its own stays, too.
    """
    schedule = change.schedule
    if schedule is None or change.name == EVERYTHING or schedule.record.live:
        return None
    if not schedule.standing.is_ours:
        return None
    # The store refuses it for a declaration in its future, and sets that back to now.
    if change.now - micros(idle) < schedule.record.declared <= change.now:
        return None
    if schedule.standing.successor in others:
        return None
    expects = [Expected(change.name, change.version, idle)]
    if schedule.standing.successor:
        expects.append(Expected(schedule.standing.successor, ""))
    return Commit(
        id=change.id,
        name=change.name,
        expects=tuple(expects),
        writes=(Write(change.name, None),),
        rooms=(Room(1),),
    )


def _standing_of(change: Change) -> Standing:
    """Return the standing to change. Raises StoreError if this release may not rewrite it."""
    if change.schedule is None:
        return Standing(cursor=0)
    if not change.schedule.standing.is_ours:
        is_all = change.name == EVERYTHING
        what = "the freeze of all timers" if is_all else f"{change.name!r}"
        msg = f"Cannot change {what}: a newer version of Tenure has written it. Use that version."
        raise StoreError(msg)
    return change.schedule.standing


def _write(change: Change, standing: Standing) -> Commit:
    is_new = change.schedule is None
    ruler = "" if change.schedule is None else change.schedule.record.ruler
    write = Write(
        change.name, write_document(standing), ruler=ruler, definition="" if is_new else None
    )
    return Commit(
        id=change.id,
        name=change.name,
        expects=(Expected(change.name, change.version),),
        writes=(write,),
    )
