"""Which definition of a schedule rules, and where a renamed one continues: each rule once."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure.core.schedules.documents import (
    DECLARED_FOR,
    DIGESTS_MAX,
    Charter,
    Freeze,
    Schedule,
    write_document,
)
from tenure.core.schedules.records import Commit, Expected
from tenure.core.schedules.registration import Registered, Registration, names_to_read, register
from tests.unit.schedule_texts import NOW, SECOND, charter_in, freeze, schedule, standing_in

SILENT = NOW - int(DECLARED_FOR) * SECOND
"""When a definition was last declared that rules no more."""
AGO = NOW - 60 * SECOND
"""The cursor of all schedules here, unless told otherwise."""


def registration(name: str = "sync", digest: str = "d1", **details: Any) -> Registration:
    fields = {"calendar": "hourly", "definition": b"{}", **details}
    return Registration(name=name, digest=digest, **fields)


def decide(
    declared: Registration, *there: Schedule, versions: Mapping[str, str] | None = None
) -> tuple[Commit | None, Registered]:
    """Decide about a declaration, with all looked up that has to be."""
    records = {schedule.name: schedule for schedule in there}
    schedules: dict[str, Schedule | None] = {}
    while names := names_to_read(declared, schedules):
        schedules |= {name: records.get(name) for name in names}
    versions = versions or {schedule.name: schedule.record.version for schedule in there}
    return register(declared, schedules, versions=versions, id_="c1", now=NOW)


def committed(declared: Registration, *there: Schedule) -> Commit:
    commit, registered = decide(declared, *there)
    assert commit is not None
    assert registered.ruler == declared.digest
    assert (commit.id, commit.name, commit.declares) == ("c1", declared.name, True)
    assert standing_in(commit, declared.name).cursor == registered.cursor
    assert standing_in(commit, declared.name).revision == registered.revision
    return commit


def yields(declared: Registration, *there: Schedule) -> bool:
    """Return whether another definition rules; then nothing is written."""
    commit, registered = decide(declared, *there)
    assert (commit is None) or registered.ruler
    return not registered.ruler and registered.revision == 0


def expected(commit: Commit) -> dict[str, tuple[str, float | None]]:
    return {schedule.name: (schedule.version, schedule.silent_for) for schedule in commit.expects}


# What is looked up.


def test_its_own_name_and_its_former_ones_are_looked_up():
    assert names_to_read(registration(renamed_from=("b", "a")), {}) == ["a", "b", "sync"]


def test_successors_of_former_names_are_looked_up():
    schedules = {"sync": schedule(successor="new"), "a": None}
    assert names_to_read(registration(renamed_from=("a",)), schedules) == ["new"]


def test_nothing_is_looked_up_twice():
    schedules = {"sync": schedule(successor="new"), "new": schedule("new", successor="sync")}
    assert names_to_read(registration(), schedules) == []


# One name.


def test_a_new_schedule_begins_now():
    commit = committed(registration())
    assert commit.expects == (Expected("sync", ""),)
    assert (standing_in(commit).cursor, standing_in(commit).revision) == (NOW, 1)
    charter = charter_in(commit)
    assert (charter.digests, charter.calendar, charter.registered) == (("d1",), "hourly", NOW)
    assert [write.ruler for write in commit.writes] == ["d1"]


def test_one_that_cannot_be_read_begins_anew_in_its_place():
    commit, registered = decide(registration(), versions={"sync": "v-sync"})
    assert commit is not None
    assert commit.expects == (Expected("sync", "v-sync"),)
    assert (registered.cursor, registered.revision) == (NOW, 1)


def test_the_definition_that_rules_changes_nothing():
    there = schedule("sync", "d0", "d1", revision=4, last_run=NOW - 5)
    commit, registered = decide(registration(), there)
    assert commit is None
    assert (registered.ruler, registered.revision, registered.cursor) == ("d1", 4, AGO)
    assert (registered.last_run, registered.now) == (NOW - 5, NOW)


def test_a_definition_that_was_never_seen_rules_at_once_and_goes_on():
    commit = committed(registration(digest="d2"), schedule(revision=4))
    assert expected(commit) == {"sync": ("v-sync", None)}
    assert (standing_in(commit).cursor, standing_in(commit).revision) == (AGO, 5)
    assert (charter_in(commit).digests, charter_in(commit).registered) == (("d1", "d2"), 7)


@pytest.mark.parametrize(("cursor", "goes_on_at"), [(AGO, NOW), (NOW + SECOND, NOW + SECOND)])
def test_with_other_ticks_it_begins_now_and_never_before_its_cursor(cursor: int, goes_on_at: int):
    commit = committed(registration(digest="d2", calendar="daily"), schedule(cursor=cursor))
    assert standing_in(commit).cursor == goes_on_at
    assert charter_in(commit).calendar == "daily"


@pytest.mark.parametrize(
    ("declared", "is_refused"),
    [
        (NOW, True),
        (SILENT + 1, True),
        (SILENT, False),
        # The store refuses that commit, and sets the declaration back to now.
        (NOW + 1, False),
    ],
)
def test_an_older_definition_takes_over_when_the_ruling_one_is_silent(
    declared: int, is_refused: bool
):
    there = schedule("sync", "d1", "d2", declared=declared)
    assert yields(registration(), there) is is_refused
    if not is_refused:
        commit = committed(registration(), there)
        assert expected(commit) == {"sync": ("v-sync", DECLARED_FOR)}
        assert charter_in(commit).digests == ("d2", "d1")
        assert standing_in(commit).revision == 2


def test_a_bounded_number_of_former_definitions_is_recognized():
    digests = [f"d{number}" for number in range(DIGESTS_MAX)]
    commit = committed(registration(digest="new"), schedule("sync", *digests))
    assert charter_in(commit).digests == (*digests[1:], "new")


def test_without_a_readable_charter_the_next_definition_rules():
    there = schedule("sync", "d1", "d2", revision=4)
    there = replace(
        there, charter=Charter(definition=Raw(b"null"), digests=(), calendar="", registered=0)
    )
    commit = committed(registration(), there)
    assert expected(commit) == {"sync": ("v-sync", None)}
    assert (charter_in(commit).digests, charter_in(commit).registered) == (("d1",), NOW)
    assert (standing_in(commit).cursor, standing_in(commit).revision) == (NOW, 5)


def test_a_ruler_that_the_store_does_not_know_is_written():
    there = schedule()
    there = replace(there, record=replace(there.record, ruler=""))
    commit = committed(registration(), there)
    [write] = commit.writes
    assert (write.ruler, write.definition) == ("d1", None)
    assert standing_in(commit).revision == 1


# Renames.


def test_a_new_name_takes_the_cursor_and_the_last_run_along():
    old = schedule("old", revision=3, last_run=NOW - 5)
    commit, registered = decide(registration(renamed_from=("old",)), old)
    assert commit is not None
    assert (registered.cursor, registered.revision, registered.last_run) == (AGO, 1, NOW - 5)
    assert expected(commit) == {"sync": ("", None), "old": ("v-old", None)}
    left = standing_in(commit, "old")
    assert (left.successor, left.revision, left.cursor) == ("sync", 4, AGO)
    own, other = commit.writes
    assert (own.above, own.ruler, other.ruler, other.definition) == (("old",), "d1", "", None)


def test_a_former_name_that_is_not_there_must_not_come_meanwhile():
    commit = committed(registration(renamed_from=("old", "old")))
    assert commit.expects == (Expected("sync", ""), Expected("old", ""))


def test_a_new_name_with_other_ticks_begins_now():
    commit = committed(registration(renamed_from=("old",)), schedule("old", calendar="daily"))
    assert standing_in(commit).cursor == NOW


def test_a_renamed_schedule_never_starts_before_the_cursor_of_the_old_name():
    old = schedule("old", calendar="daily", cursor=NOW + SECOND)
    commit = committed(registration(renamed_from=("old",)), old)
    assert standing_in(commit).cursor == NOW + SECOND


def test_the_most_advanced_of_several_former_names_counts():
    behind, ahead = schedule("a", cursor=AGO - SECOND), schedule("b")
    commit = committed(registration(renamed_from=("a", "b")), behind, ahead)
    assert standing_in(commit).cursor == AGO
    assert [standing_in(commit, name).successor for name in ("a", "b")] == ["sync", "sync"]


def test_a_new_name_takes_over_from_the_end_of_a_chain():
    chain = [schedule("a", successor="b", cursor=AGO - SECOND), schedule("b")]
    commit = committed(registration(renamed_from=("a",)), *chain)
    assert standing_in(commit).cursor == AGO
    assert [write.name for write in commit.writes] == ["sync", "b"]


def test_a_name_that_is_there_takes_over_as_well():
    own, old = schedule(cursor=AGO - SECOND), schedule("old")
    commit = committed(registration(renamed_from=("old",)), own, old)
    assert (standing_in(commit).cursor, standing_in(commit).revision) == (AGO, 1)
    assert standing_in(commit, "old").successor == "sync"


def test_a_former_name_that_another_name_took_over_is_left_alone():
    there = [schedule(), schedule("old", successor="other"), schedule("other")]
    commit, registered = decide(registration(renamed_from=("old",)), *there)
    assert commit is None
    assert registered.ruler == "d1"


@pytest.mark.parametrize("declared", [NOW, SILENT + 1])
def test_a_name_that_was_renamed_yields_to_the_new_one(declared: int):
    there = [schedule(successor="new"), schedule("new", declared=declared)]
    assert yields(registration(), *there)


def test_a_former_name_takes_over_again_when_its_successor_is_silent():
    there = [schedule(successor="new", cursor=AGO - SECOND), schedule("new", declared=SILENT)]
    commit = committed(registration(), *there)
    assert expected(commit) == {"sync": ("v-sync", None), "new": ("v-new", DECLARED_FOR)}
    assert (standing_in(commit).cursor, standing_in(commit).successor) == (AGO, "")
    assert standing_in(commit, "new").successor == "sync"


def test_a_schedule_takes_over_at_once_from_a_former_name():
    there = [schedule(successor="new"), schedule("new")]
    commit = committed(registration(renamed_from=("new",)), *there)
    assert expected(commit) == {"sync": ("v-sync", None), "new": ("v-new", None)}
    assert standing_in(commit, "new").successor == "sync"


def test_a_schedule_continues_now_if_its_last_successor_was_forgotten():
    there = schedule(successor="gone")
    assert standing_in(committed(registration(), there)).cursor == NOW
    commit = committed(registration("new", renamed_from=("sync",)), there)
    assert standing_in(commit, "new").cursor == NOW


def test_names_in_a_circle_come_to_an_end():
    there = [schedule(successor="b", declared=SILENT), schedule("b", successor="sync", declared=0)]
    assert committed(registration(), *there).writes


# Pauses.


@pytest.mark.parametrize(
    ("own", "former", "kept"),
    [
        (None, freeze(NOW + 1), freeze(NOW + 1)),
        (freeze(NOW + 1), None, freeze(NOW + 1)),
        (freeze(NOW + 1), freeze(NOW + 2), freeze(NOW + 2)),
        (freeze(NOW + 1), freeze(None), freeze(None)),
        (freeze(None), freeze(NOW + 2), freeze(None)),
    ],
)
def test_the_longest_pause_goes_with_the_name(
    own: Freeze | None, former: Freeze | None, kept: Freeze | None
):
    there = [schedule(freeze=own), schedule("old", freeze=former)]
    commit = committed(registration(renamed_from=("old",)), *there)
    assert standing_in(commit).freeze == kept


def test_a_pause_of_a_name_at_rest_does_not_come_back():
    there = [
        schedule(successor="new", freeze=freeze()),
        schedule("new", declared=SILENT, freeze=freeze(NOW + 1)),
    ]
    assert standing_in(committed(registration(), *there)).freeze == freeze(NOW + 1)
    forgotten = schedule("old", successor="gone", freeze=freeze())
    assert standing_in(committed(registration(renamed_from=("old",)), forgotten)).freeze is None


def test_a_new_definition_keeps_the_pause():
    there = schedule(freeze=freeze())
    assert standing_in(committed(registration(digest="d2"), there)).freeze == freeze()


def test_the_record_of_a_new_schedule_is_small():
    [write] = committed(registration()).writes
    assert write.standing == f'{{"cursor":{NOW}}}'
    assert write.definition == write_document(charter_in(committed(registration())))
