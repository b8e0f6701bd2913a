"""How ticks are paused, how a cursor is reset, which schedules are forgotten: each rule once."""

import pytest

from tenure.core.schedules.documents import EVERYTHING, Freeze, Schedule
from tenure.core.schedules.pauses import Change, forget, freeze, reset, seconds_ahead, thaw
from tenure.core.schedules.records import Commit, Expected, Room, Write
from tests.unit.schedule_texts import NOW, SECOND, schedule, standing_in
from tests.unit.schedule_texts import freeze as paused

IDLE = 100.0
LONG_AGO = NOW - int(IDLE) * SECOND


def change(there: Schedule | None, name: str = "sync") -> Change:
    version = "" if there is None else there.record.version
    return Change(name=name, schedule=there, version=version, id="c1", now=NOW)


def changed(commit: Commit | None, name: str = "sync") -> Commit:
    """Check that a commit changes nothing but the standing of one schedule."""
    assert commit is not None
    [write] = commit.writes
    assert (commit.id, commit.name, write.name) == ("c1", name, name)
    assert (commit.run, commit.declares, commit.lines, write.above) == (None, False, (), ())
    return commit


# Pauses.


@pytest.mark.parametrize("until", [None, NOW + 1])
def test_a_pause_is_written_into_the_standing(until: int | None):
    commit = changed(freeze(change(schedule(revision=3)), until=until, reason="deploy"))
    assert commit.expects == (Expected("sync", "v-sync"),)
    [write] = commit.writes
    assert (write.ruler, write.definition) == ("d1", None)
    standing = standing_in(commit)
    assert standing.freeze == Freeze(since=NOW, until=until, reason="deploy")
    assert (standing.revision, standing.cursor) == (3, NOW - 60 * SECOND)


def test_a_missing_schedule_is_not_paused():
    assert freeze(change(None), until=None, reason="") is None
    assert thaw(change(None)) is None


def test_a_pause_of_all_needs_no_schedule():
    commit = changed(freeze(change(None, EVERYTHING), until=None, reason=""), EVERYTHING)
    assert commit.expects == (Expected(EVERYTHING, ""),)
    [write] = commit.writes
    assert (write.ruler, write.definition) == ("", "")
    assert standing_in(commit, EVERYTHING).freeze == paused()


@pytest.mark.parametrize(
    ("now", "is_over"),
    [(None, True), (paused(NOW), True), (paused(NOW + 1), False), (paused(), False)],
)
def test_a_pause_ends_now_unless_it_is_over(now: Freeze | None, is_over: bool):
    commit = thaw(change(schedule(freeze=now)))
    assert (commit is None) is is_over
    if not is_over:
        # Not removed: ticks that came during it stay skipped.
        assert standing_in(changed(commit)).freeze == paused(NOW)


# Cursors in the store's future.


@pytest.mark.parametrize(("cursor", "is_reset"), [(NOW + 1, True), (NOW, False), (NOW - 1, False)])
def test_a_cursor_in_the_future_is_brought_back_to_now(cursor: int, is_reset: bool):
    commit = reset(change(schedule(cursor=cursor, revision=3)))
    assert (commit is not None) is is_reset
    if is_reset:
        standing = standing_in(changed(commit))
        assert (standing.cursor, standing.revision) == (NOW, 3)


def test_a_missing_schedule_is_not_reset():
    assert reset(change(None)) is None


@pytest.mark.parametrize(("seconds", "ahead"), [(-5, 0.0), (0, 0.0), (60, 0.0), (61, 61.0)])
def test_a_minute_ahead_is_a_clock_that_was_slewed(seconds: int, ahead: float):
    assert seconds_ahead(NOW + seconds * SECOND, NOW) == ahead


# What is forgotten.


def test_a_schedule_that_no_replica_declares_is_deleted():
    commit = forget(change(schedule(declared=LONG_AGO)), idle=IDLE)
    assert commit is not None
    assert commit.expects == (Expected("sync", "v-sync", IDLE),)
    assert commit.writes == (Write("sync", None),)
    assert commit.rooms == (Room(1),)  # a run that was made meanwhile keeps it


@pytest.mark.parametrize(
    "there",
    [
        None,
        schedule(declared=LONG_AGO + 1),
        schedule(declared=LONG_AGO, live=1),
        schedule(declared=LONG_AGO, successor="new"),
    ],
)
def test_a_schedule_that_is_declared_runs_or_has_a_successor_stays(there: Schedule | None):
    assert forget(change(there), idle=IDLE, others={"new"}) is None


def test_the_pause_of_all_stays():
    there = schedule(EVERYTHING, declared=LONG_AGO)
    assert forget(change(there, EVERYTHING), idle=IDLE) is None


def test_a_successor_that_is_gone_must_not_come_meanwhile():
    commit = forget(change(schedule(declared=LONG_AGO, successor="new")), idle=IDLE)
    assert commit is not None
    assert commit.expects == (Expected("sync", "v-sync", IDLE), Expected("new", ""))


def test_a_declaration_in_the_future_is_left_to_the_store():
    """The store refuses the commit, and sets the declaration back to now."""
    assert forget(change(schedule(declared=NOW + 1)), idle=IDLE) is not None
