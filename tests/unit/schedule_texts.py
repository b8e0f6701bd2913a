"""Schedules as a store has them, and the writes of decisions, for tests of pure decisions."""

from typing import Any

import msgspec
from msgspec import Raw

from tenure.core.schedules.documents import (
    Charter,
    Freeze,
    Schedule,
    Standing,
    read_schedule,
    read_standing,
    write_document,
)
from tenure.core.schedules.records import Commit, ScheduleHead, ScheduleRecord

__all__ = ["NOW", "SECOND", "charter_in", "freeze", "head_of", "schedule", "standing_in", "text_of"]

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND


def text_of(**standing: Any) -> str:
    """Return a standing as it is stored; ticks were decided up to a minute ago."""
    return write_document(Standing(**{"cursor": NOW - 60 * SECOND, **standing}))


def freeze(until: int | None = None, since: int = NOW) -> Freeze:
    return Freeze(since=since, until=until)


def schedule(
    name: str = "sync",
    *digests: str,
    calendar: str = "hourly",
    declared: int = NOW,
    last_run: int = 0,
    live: int = 0,
    **standing: Any,
) -> Schedule:
    """Return a schedule whose last definition rules. Its version is v-NAME."""
    digests = digests or ("d1",)
    charter = Charter(definition=Raw(b"{}"), digests=digests, calendar=calendar, registered=7)
    record = ScheduleRecord(
        name=name,
        version=f"v-{name}",
        definition=write_document(charter),
        standing=text_of(**standing),
        ruler=digests[-1],
        declared=declared,
        last_run=last_run,
        live=live,
    )
    read = read_schedule(record)
    assert read is not None
    return read


def head_of(name: str = "sync", *, last_job: str = "", **standing: Any) -> ScheduleHead:
    """Return how a schedule stands that d1 rules."""
    return ScheduleHead(name, f"v-{name}", text_of(**standing), "d1", 0, last_job)


def standing_in(commit: Commit, name: str = "sync") -> Standing:
    """Return the standing that a commit writes."""
    [text] = [write.standing for write in commit.writes if write.name == name]
    assert text is not None
    standing = read_standing(text)
    assert standing is not None
    return standing


def charter_in(commit: Commit, name: str = "sync") -> Charter:
    """Return the charter that a commit writes."""
    [text] = [write.definition for write in commit.writes if write.name == name]
    assert text is not None
    return msgspec.json.decode(text, type=Charter)
