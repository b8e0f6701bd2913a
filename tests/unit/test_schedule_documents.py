"""The documents of schedules, including those that a newer release wrote."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import StoreError, Tenure
from tenure.core.jobs.records import NewJob
from tenure.core.schedules.documents import (
    DOCUMENT_FORMAT,
    EVERYTHING,
    Decision,
    Schedule,
    decision_in,
    line_of,
    read_definition,
    read_schedule,
    read_standing,
)
from tenure.core.schedules.pauses import Change, forget, freeze, reset, thaw
from tenure.core.schedules.records import (
    Commit,
    Expected,
    ScheduleHead,
    ScheduleRecord,
    TickLine,
    Write,
)
from tenure.core.schedules.registration import Registration, register
from tenure.core.schedules.ticks import Advance, Advanced, Move, advance
from tenure.stores.contract import Store
from tenure.testing import Faults, FaultyStore, ManualClock

NOW = 1_800_000_000_000_000
NEWER = DOCUMENT_FORMAT + 1
STANDING: dict[str, Any] = {
    "cursor": NOW - 60,
    "revision": 3,
    "freeze": {"since": NOW - 9, "until": NOW + 9, "reason": "deploy", "by": ["ann", 7]},
    "shard": {"of": 3, "own": [1, 2]},
}
CHARTER: dict[str, Any] = {
    "definition": {"kind": "timer", "moon": "full"},
    "digests": ["d0", "d1"],
    "calendar": "hourly",
    "registered": 7,
    "owner": {"team": "billing"},
}


def schedule(
    standing: dict[str, Any] | str = STANDING,
    charter: dict[str, Any] | str = CHARTER,
    name: str = "sync",
    declared: int = 0,
) -> Schedule | None:
    """Return what this release reads in a record."""
    texts = [text if isinstance(text, str) else json.dumps(text) for text in (standing, charter)]
    record = ScheduleRecord(
        name=name,
        version=f"v-{name}",
        standing=texts[0],
        definition=texts[1],
        ruler="d1",
        declared=declared,
    )
    return read_schedule(record)


def readable(*documents: Any, **details: Any) -> Schedule:
    parsed = schedule(*documents, **details)
    assert parsed is not None
    return parsed


def change(there: Schedule) -> Change:
    return Change(name=there.name, schedule=there, version="v", id="c1", now=NOW)


def move(**details: Any) -> Advance:
    fields = {"ruler": "d1", "revision": 3, "seen": NOW - 60, "to": NOW, "due": NOW, **details}
    return Advance(id="m1", name="sync", **fields)


def found_of(there: Schedule) -> ScheduleHead:
    return ScheduleHead(there.name, "v", there.record.standing, "d1")


def registered(digest: str, *there: Schedule, **details: Any) -> tuple[Commit | None, str]:
    """Declare a definition; return what is written, and which definition rules here."""
    declared = Registration(name="sync", digest=digest, definition=b"{}", **details)
    schedules: dict[str, Schedule | None] = dict.fromkeys(("sync", *declared.renamed_from))
    schedules |= {schedule.name: schedule for schedule in there}
    versions = {schedule.name: schedule.record.version for schedule in there}
    commit, answer = register(declared, schedules, versions=versions, id_="c1", now=NOW)
    return commit, answer.ruler


def written(commit: Commit | Move | Advanced | None, name: str = "sync") -> Write:
    assert isinstance(commit, Commit | Move)
    writes = commit.writes if isinstance(commit, Commit) else commit.commit.writes
    [write] = [write for write in writes if write.name == name]
    return write


def rewrites() -> dict[str, Commit | Move | Advanced | None]:
    """Return everything that this release may write of a schedule that it finds."""
    there = readable()
    ahead = readable({**STANDING, "cursor": NOW + 1})
    return {
        "tick": advance(move(), found_of(there), None),
        "trigger": advance(move(seen=None, forced=True), found_of(there), None),
        "freeze": freeze(change(there), until=None, reason=""),
        "thaw": thaw(change(there)),
        "reset": reset(change(ahead)),
        "new definition": registered("d2", there)[0],
        "older definition": registered("d0", there)[0],
    }


# What this release does not know.


@pytest.mark.parametrize("change_of", rewrites())
def test_fields_of_a_standing_that_are_not_known_here_stay(change_of: str):
    text = written(rewrites()[change_of]).standing
    assert text is not None
    assert json.loads(text)["shard"] == STANDING["shard"]


@pytest.mark.parametrize("change_of", [name for name in rewrites() if name != "freeze"])
def test_unknown_fields_of_a_pause_survive_a_rewrite(change_of: str):
    text = written(rewrites()[change_of]).standing
    assert text is not None
    pause = json.loads(text)["freeze"]
    assert (pause["by"], pause["since"], pause["reason"]) == (["ann", 7], NOW - 9, "deploy")


def test_unknown_fields_of_a_name_that_is_taken_over_survive_a_rewrite():
    commit, _ = registered("d1", readable(name="old"), renamed_from=("old",))
    text = written(commit, "old").standing
    assert text is not None
    old = json.loads(text)
    assert (old["successor"], old["revision"], old["shard"]) == ("sync", 4, STANDING["shard"])


@pytest.mark.parametrize("digest", ["d2", "d0"])
def test_unknown_fields_of_a_charter_survive_a_rewrite(digest: str):
    text = written(registered(digest, readable())[0]).definition
    assert text is not None
    charter = json.loads(text)
    assert (charter["owner"], charter["registered"]) == (CHARTER["owner"], 7)
    assert charter["definition"] == {}


def test_a_tick_leaves_the_charter_as_it_is():
    assert written(rewrites()["tick"]).definition is None


def test_a_definition_of_a_newer_release_is_not_read_and_its_schedule_is():
    there = readable()
    assert read_definition(there.charter) is None
    assert there.standing.cursor == NOW - 60


# A newer form.


NEWER_FORMS: list[dict[str, Any]] = [
    {**STANDING, "needs": NEWER},
    # With fields that mean something else there.
    {"needs": NEWER, "cursor": [NOW, NOW], "freeze": "ann"},
    {"needs": NEWER},
]


IDS = ["readable", "unreadable", "empty"]


@pytest.mark.parametrize("standing", NEWER_FORMS, ids=IDS)
def test_a_newer_form_is_not_taken_for_damage(standing: dict[str, Any]):
    parsed = schedule(standing)
    assert parsed is not None
    assert not parsed.standing.is_ours


@pytest.fixture(params=NEWER_FORMS, ids=IDS)
def newer(request: pytest.FixtureRequest) -> Schedule:
    """A schedule that was last declared long ago, and that a newer release has written."""
    return readable(request.param)


def test_a_newer_form_is_not_moved(newer: Schedule):
    for call in (move(), move(seen=None), move(seen=None, forced=True)):
        answer = advance(
            replace(call, revision=newer.standing.revision), found_of(newer), None, now=NOW
        )
        assert isinstance(answer, Advanced)
        # Without a ruler, so that it is not tried again at once.
        assert (answer.outcome, answer.ruler) == ("passed", "")


@pytest.mark.parametrize("digest", ["d0", "d1", "d2"])
def test_a_newer_form_is_not_taken_over(newer: Schedule, digest: str):
    assert registered(digest, newer) == (None, "")


def test_a_newer_form_is_not_renamed(newer: Schedule):
    old = replace(newer, record=replace(newer.record, name="old"))
    assert registered("d1", old, renamed_from=("old",)) == (None, "")


def test_a_newer_form_is_not_paused_resumed_or_reset(newer: Schedule):
    for act in (lambda schedule: freeze(schedule, until=None, reason=""), thaw, reset):
        with pytest.raises(StoreError) as refused:
            act(change(newer))
        assert str(refused.value) == (
            "Cannot change 'sync': a newer version of Tenure has written it. Use that version."
        )


def test_a_newer_form_of_the_pause_of_all_is_left_to_the_newer_release(newer: Schedule):
    of_all = Change(name=EVERYTHING, schedule=newer, version="v", id="c1", now=NOW)
    with pytest.raises(StoreError, match="Cannot change the freeze of all timers: a newer version"):
        thaw(of_all)


def test_a_newer_form_is_not_forgotten(newer: Schedule):
    assert forget(change(newer), idle=0) is None


def test_a_pause_of_all_in_a_newer_form_is_heeded():
    of_all = readable({**STANDING, "needs": NEWER}, name=EVERYTHING)
    assert not of_all.standing.is_ours
    run = NewJob(id="m1", task="@sync", schedule="sync")
    there = ScheduleHead("sync", "v", json.dumps({**STANDING, "freeze": None}), "d1")
    sent = advance(move(run=run), there, found_of(of_all))
    assert isinstance(sent, Move)
    assert sent.is_paused


async def set_form(store: Store, name: str, needs: int) -> int:
    """Have a release of that form write a standing; return its cursor."""
    [record] = (await store.schedules.read([name])).records
    standing = {**json.loads(record.standing), "needs": needs}
    write = Write(name, json.dumps(standing), ruler=record.ruler)
    expects = (Expected(name, record.version),)
    [answer] = await store.schedules.commit(
        [Commit(id=f"form {needs} {record.version}", name=name, expects=expects, writes=(write,))]
    )
    assert answer.outcome == "done"
    return int(standing["cursor"])


async def test_a_worker_leaves_a_timer_in_a_newer_form_alone_and_asks_seldom(clock: ManualClock):
    faults = Faults()
    store = FaultyStore("memory://", faults, clock=clock)
    ticks: list[float] = []
    async with Tenure(store, grace=0) as app:

        @app.timer(every="1s")
        async def sync() -> None:
            ticks.append(clock.boot())

        async with app.worker():
            await clock.advance(5.5)
            # As a newer release does in a rolling deploy: the definition is the same.
            cursor = await set_form(store, "sync", NEWER)
            before = len(ticks)
            faults.calls.clear()
            await clock.advance(60)
            assert len(ticks) == before > 0
            [record] = (await store.schedules.read(["sync"])).records
            assert json.loads(record.standing)["cursor"] == cursor
            calls = faults.calls["commit"] + faults.calls["declare"] + faults.calls["read"]
            assert calls < 20
            for act in (app.timer_handle("sync").pause, app.timer_handle("sync").resume):
                with pytest.raises(StoreError, match="Use that version"):
                    await act()
            # After a roll-back by the newer release itself, it goes on.
            await set_form(store, "sync", DOCUMENT_FORMAT)
            await clock.advance(30)
            assert len(ticks) > before


# What cannot be read.


SPOILED = ["", "null", "[]", "{}", "no JSON", '{"cursor":"soon"}', '{"cursor":1.5}', "[" * 5000]


@pytest.mark.parametrize("text", [*SPOILED, '{"needs":"much"}', '{"cursor":9999999999999999999}'])
def test_a_standing_that_cannot_be_read_counts_as_not_there(text: str):
    assert read_standing(text) is None
    assert schedule(text) is None


@pytest.mark.parametrize("text", SPOILED)
def test_without_its_charter_a_schedule_goes_on_until_the_next_deploy(text: str):
    there = readable(STANDING, text, declared=NOW)
    assert there.standing.cursor == NOW - 60
    assert (there.charter.digests, read_definition(there.charter)) == ((), None)
    assert isinstance(advance(move(), found_of(there), None), Move)
    commit, ruler = registered("d0", there)
    assert ruler == "d0"
    definition = written(commit).definition
    assert definition is not None
    assert json.loads(definition)["digests"] == ["d0"]


# Lines of history.


@pytest.mark.parametrize(
    ("decision", "like"),
    [
        (Decision(outcome="ran", first=3, last=3, job="j", replica="ann"), ""),
        (Decision(outcome="ran", reason="triggered", first=3, last=3, job="j"), ""),
        (
            Decision(outcome="skipped", reason="overlap", first=3, last=5, ticks=2),
            "skipped overlap",
        ),
        (Decision(outcome="missed", reason="late", first=3, last=9, ticks=7), "missed late"),
    ],
)
def test_a_line_says_what_became_of_a_tick(decision: Decision, like: str):
    line = line_of(decision)
    assert line.like == like
    assert decision_in(line) == decision


@pytest.mark.parametrize("body", ["", "{}", "[]", '["slept"]', '["ran",7]', "[" * 5000])
def test_an_unreadable_line_is_ignored(body: str):
    assert decision_in(TickLine(first=1, last=1, body=body)) is None


def test_fields_that_a_newer_release_adds_to_a_line_are_ignored():
    line = TickLine(first=1, last=2, ticks=2, body='["missed","late","","","by ann"]')
    assert decision_in(line) == Decision(outcome="missed", reason="late", first=1, last=2, ticks=2)
