"""The rules of a tick, each once, and every answer of the store."""

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.jobs.records import JobRecord, NewJob
from tenure.core.schedules.documents import Decision, decision_in
from tenure.core.schedules.records import Commit, Committed, Expected, Room, ScheduleHead, Write
from tenure.core.schedules.ticks import (
    Advance,
    Advanced,
    Bound,
    Full,
    Move,
    advance,
    after_commit,
    outcome_of,
)
from tests.unit.schedule_texts import NOW, SECOND, freeze, head_of, standing_in, text_of

AGO = NOW - 60 * SECOND
"""The cursor of the schedule."""
TICK = NOW
RUN = NewJob(id="m1", task="@sync", schedule="sync")
RECORD = JobRecord(
    id="m1",
    task="@sync",
    queue="@timers",
    priority=5,
    state="running",
    payload=b"",
    created=NOW,
    due=NOW,
)
SKIP, HOLD, CANCEL = (Bound(most=1, reason=f"{full} reason", full=full) for full in Full.__args__)


def move(**details: Any) -> Advance:
    fields = {"ruler": "d1", "revision": 1, "seen": AGO, "to": TICK, "due": TICK, "run": RUN}
    return Advance(id="m1", name="sync", **{**fields, **details})


def decided(
    call: Advance, there: ScheduleHead | None = None, everything: ScheduleHead | None = None
) -> Move:
    """Return what is sent to the store."""
    sent = advance(call, there or head_of(), everything)
    assert isinstance(sent, Move)
    return sent


def refused(call: Advance, there: ScheduleHead | None, **facts: Any) -> Advanced:
    answer = advance(call, there, None, now=NOW, **facts)
    assert isinstance(answer, Advanced)
    assert answer.now == NOW
    return answer


def decisions_in(commit: Commit) -> list[Decision]:
    """Return what a commit adds to the history, in any case."""
    read = [decision_in(line) for line in commit.lines]
    return [decision for decision in read if decision is not None]


# What is refused without asking the store.


@pytest.mark.parametrize(
    "there", [None, ScheduleHead("sync", ""), ScheduleHead("sync", "v-sync", "spoiled")]
)
def test_a_missing_or_unreadable_schedule_is_unknown(there: ScheduleHead | None):
    assert refused(move(), there).outcome == "unknown"


@pytest.mark.parametrize(
    ("call", "there"),
    [
        (move(ruler="d2"), head_of()),
        (move(revision=2), head_of()),
        (move(seen=AGO - 1), head_of()),
        (move(seen=AGO, to=AGO - 1), head_of()),
        (move(seen=None, ruler="d2"), head_of()),
    ],
)
def test_a_tick_decided_by_another_replica_or_definition_has_passed(
    call: Advance, there: ScheduleHead
):
    answer = refused(call, there)
    assert (answer.outcome, answer.cursor, answer.ruler, answer.revision) == (
        "passed",
        AGO,
        "d1",
        1,
    )


@pytest.mark.parametrize("call", [move(), move(seen=None, forced=True)])
def test_under_a_name_that_was_given_up_no_definition_rules(call: Advance):
    """Also if its record still names one, or its replicas would ask again and again."""
    answer = refused(call, head_of(successor="new"))
    assert (answer.outcome, answer.ruler) == ("passed", "")


def test_a_replicas_own_ticks_go_by_no_cursor():
    assert decided(move(seen=None, to=AGO - 1)).commit.writes == ()


def test_a_schedule_rests_while_its_last_run_is_unfinished():
    answer = refused(move(rest=5.0), head_of(last_job="j"), last=RECORD)
    assert (answer.outcome, answer.reason) == ("held", "running")


@pytest.mark.parametrize(
    ("call", "last", "not_before"),
    [
        (move(rest=5.0), replace(RECORD, state="succeeded", finished=NOW), NOW + 5 * SECOND),
        (move(rest=5.0), replace(RECORD, state="failed", finished=AGO), TICK),
        (move(rest=5.0), None, TICK),
        (move(rest=5.0, run=None), RECORD, TICK),
        (move(), RECORD, TICK),
        # The store's clock was a year ahead when it ended.
        (move(rest=5.0), replace(RECORD, state="succeeded", finished=2 * NOW), TICK),
    ],
)
def test_a_schedule_rests_after_its_last_run(
    call: Advance, last: JobRecord | None, not_before: int
):
    sent = advance(call, head_of(last_job="j"), None, last=last, now=NOW)
    assert isinstance(sent, Move)
    assert sent.commit.not_before == not_before


# What is sent.


def test_a_tick_moves_the_cursor_and_makes_its_run():
    commit = decided(move(replica="ann", due=TICK + 3)).commit
    assert (commit.id, commit.name, commit.declares) == ("m1", "sync", True)
    assert commit.expects == (Expected("sync", "v-sync"), Expected("*", ""))
    assert (commit.not_before, commit.tick, commit.start_on) == (TICK + 3, TICK, "ann")
    assert (commit.run, commit.lines, commit.rooms) == (RUN, (), ())
    assert commit.writes == (Write("sync", text_of(cursor=TICK), ruler="d1"),)
    assert commit.run_line is not None
    ran = Decision(outcome="ran", first=TICK, last=TICK, job="m1", replica="ann")
    assert (decision_in(commit.run_line), commit.run_line.like) == (ran, "")


def test_ticks_without_a_run_only_move_the_cursor():
    late = Decision(outcome="missed", reason="late", first=AGO + 1, last=TICK, ticks=60)
    commit = decided(move(run=None, passed=(late,))).commit
    assert (commit.run, commit.run_line, commit.start_on) == (None, None, "")
    assert commit.expects == (Expected("sync", "v-sync"),)
    assert standing_in(commit).cursor == TICK
    assert decisions_in(commit) == [late]
    assert commit.lines[0].like == "missed late"


def test_a_trigger_leaves_cursor_and_pauses_alone_and_declares_nothing():
    there = head_of(freeze=freeze())
    call = move(seen=None, forced=True, due=0)
    commit = decided(call, there, head_of("*", freeze=freeze())).commit
    assert commit.expects == (Expected("sync", "v-sync"),)
    # It writes what is there, so that others notice it.
    assert commit.writes == (Write("sync", there.standing, ruler="d1"),)
    assert (commit.declares, commit.run) == (False, RUN)
    assert commit.run_line is not None
    ran = decision_in(commit.run_line)
    assert ran is not None
    assert (ran.outcome, ran.reason) == ("ran", "triggered")


@pytest.mark.parametrize(
    ("own", "everything", "is_paused"),
    [
        ({}, None, False),
        ({"freeze": freeze()}, None, True),
        ({"freeze": freeze(TICK + 1)}, None, True),
        ({"freeze": freeze(TICK)}, None, False),
        ({}, {"freeze": freeze(TICK + 1)}, True),
        ({}, {"freeze": freeze(TICK)}, False),
        ({}, {}, False),
    ],
)
def test_ticks_of_a_pause_are_skipped(
    own: dict[str, Any], everything: dict[str, Any] | None, is_paused: bool
):
    of_all = None if everything is None else head_of("*", **everything)
    sent = decided(move(), head_of(**own), of_all)
    assert sent.is_paused is is_paused
    assert (sent.commit.run is None) is is_paused
    assert standing_in(sent.commit).cursor == TICK
    version = "" if of_all is None else "v-*"
    assert sent.commit.expects == (Expected("sync", "v-sync"), Expected("*", version))
    skipped = Decision(outcome="skipped", reason="paused", first=TICK, last=TICK)
    assert decisions_in(sent.commit) == ([skipped] if is_paused else [])


@pytest.mark.parametrize(("until", "is_paused"), [(TICK + 1, True), (TICK, False)])
def test_a_pause_covers_a_tick_by_its_nominal_instant(until: int, is_paused: bool):
    """However much later it is due: its spread, say, is longer than the rest of the pause."""
    call = move(due=TICK + 30 * SECOND)
    assert decided(call, head_of(freeze=freeze(until))).is_paused is is_paused


def test_a_limit_counts_all_runs_and_a_limit_of_its_own_those_of_the_replica():
    call = move(replica="ann", limit=replace(SKIP, most=3), own=HOLD)
    all_runs, here = decided(call).commit.rooms
    assert (all_runs.most, all_runs.on, here) == (3, "", Room(1, "ann", None))
    assert all_runs.instead is not None
    skipped = Decision(outcome="skipped", reason=SKIP.reason, first=TICK, last=TICK)
    assert decision_in(all_runs.instead) == skipped


@pytest.mark.parametrize("bound", [HOLD, CANCEL])
def test_a_bound_that_holds_or_cancels_leaves_no_line(bound: Bound):
    assert decided(move(limit=bound)).commit.rooms == (Room(1, "", None),)


# What the store answers.


def answer_to(call: Advance, outcome: str, **details: Any) -> Advanced | None:
    """Return what came of a move that the store has answered so."""
    sent = decided(call)
    answer = Committed(outcome=outcome, now=NOW + 1, **details)
    return outcome_of(call, sent, answer, after_commit(sent.commit, answer, head_of()))


def test_a_tick_that_was_carried_out():
    answer = answer_to(move(), "done", run=RECORD)
    assert answer == Advanced(
        outcome="done",
        cursor=TICK,
        ruler="d1",
        revision=1,
        last_run=TICK,
        now=NOW + 1,
        run=RECORD,
    )


@pytest.mark.parametrize(
    ("call", "outcome", "details", "expected"),
    [
        (move(limit=SKIP), "instead", {}, {"outcome": "skipped", "reason": SKIP.reason}),
        (
            move(limit=SKIP, own=HOLD),
            "full",
            {"room": 1, "blocking": ("j",)},
            {"outcome": "held", "reason": HOLD.reason, "blocking": ()},
        ),
        (
            move(limit=CANCEL),
            "full",
            {"blocking": ("j",)},
            {"outcome": "held", "reason": CANCEL.reason, "blocking": ("j",)},
        ),
        (move(due=NOW + 3 * SECOND + 1), "early", {}, {"outcome": "early", "ready_in": 3.0}),
        (move(replica="ann"), "gone", {}, {"outcome": "gone"}),
        (move(replica="ann"), "expired", {}, {"outcome": "held", "reason": "expired"}),
    ],
)
def test_answers_of_the_store_become_outcomes(
    call: Advance, outcome: str, details: dict[str, Any], expected: dict[str, Any]
):
    answer = answer_to(call, outcome, **details)
    cursor = TICK if outcome == "instead" else AGO
    nothing = {"last_run": 0, "reason": "", "ready_in": 0.0, "run": None, "blocking": ()}
    common = {"cursor": cursor, "ruler": "d1", "revision": 1, "now": NOW + 1}
    assert answer == Advanced(**{**nothing, **common, **expected})


def test_a_tick_during_a_pause_is_reported_as_skipped():
    sent = decided(move(), head_of(freeze=freeze()))
    answer = Committed(outcome="done", now=NOW)
    outcome = outcome_of(move(), sent, answer, head_of(cursor=TICK))
    assert outcome is not None
    assert (outcome.outcome, outcome.reason, outcome.run) == ("skipped", "paused", None)


def test_a_schedule_that_has_changed_meanwhile_is_decided_again():
    assert answer_to(move(), "stale", heads=(ScheduleHead("sync", "v2", text_of(), "d1"),)) is None
    assert answer_to(move(), "stale", heads=(ScheduleHead("*", "v2", text_of()),)) is None


@pytest.mark.parametrize(
    ("call", "last_job", "outcome", "reason"),
    [
        (move(run=None), "", "done", ""),
        (move(limit=SKIP), "", "skipped", SKIP.reason),
        # Its run has ended since, and was pruned or deleted.
        (move(), "m1", "done", ""),
        (move(limit=SKIP), "m1", "done", ""),
    ],
)
def test_a_move_that_was_carried_out_before_is_recognized(
    call: Advance, last_job: str, outcome: str, reason: str
):
    """The reply was lost: the store finds the id of the move as version."""
    now = ScheduleHead("sync", "m1", text_of(cursor=TICK), "d1", TICK, last_job)
    answer = answer_to(call, "stale", heads=(now,))
    assert answer is not None
    assert (answer.outcome, answer.reason, answer.cursor, answer.run) == (
        outcome,
        reason,
        TICK,
        None,
    )


# What is known afterwards, without another look.


@pytest.mark.parametrize(
    ("outcome", "cursor", "version", "last"),
    [
        ("done", TICK, "m1", (TICK, "m1")),
        ("instead", TICK, "m1", (0, "")),
        ("full", AGO, "v-sync", (0, "")),
        ("early", AGO, "v-sync", (0, "")),
        ("gone", AGO, "v-sync", (0, "")),
        ("stale", AGO, "v-sync", (0, "")),
    ],
)
def test_the_head_of_a_schedule_follows_from_a_commit(
    outcome: str, cursor: int, version: str, last: tuple[int, str]
):
    commit = decided(move(limit=SKIP)).commit
    head = after_commit(commit, Committed(outcome=outcome, now=NOW), head_of())
    assert head == ScheduleHead("sync", version, text_of(cursor=cursor), "d1", *last)


def test_a_stale_answer_says_how_the_schedule_stands():
    news = ScheduleHead("sync", "v2", text_of(cursor=TICK), "d2")
    answer = Committed(outcome="stale", now=NOW, heads=(ScheduleHead("*", "v3"), news))
    assert after_commit(decided(move()).commit, answer, head_of()) == news


def test_a_replicas_own_tick_changes_no_version():
    commit = decided(move(seen=None)).commit
    head = after_commit(commit, Committed(outcome="done", now=NOW), head_of())
    assert head == ScheduleHead("sync", "v-sync", text_of(), "d1", TICK, "m1")


def lines_of_outage(**details: Any) -> Advance:
    """Return a record: four ticks before now were missed, and after that two ran."""
    missed = Decision(outcome="missed", reason="late", first=TICK - 6, last=TICK - 3, ticks=4)
    ran = Decision(outcome="ran", reason="unlocked", first=TICK - 1, last=TICK, ticks=2)
    return move(run=None, records=True, passed=(missed, ran), **details)


@pytest.mark.parametrize(
    ("cursor", "outcomes"),
    [(AGO, ["missed", "ran"]), (TICK - 3, ["ran"]), (TICK + SECOND, ["ran"])],
)
def test_ticks_missed_in_an_outage_are_recorded_unless_another_replica_has_decided(
    cursor: int, outcomes: list[str]
):
    sent = decided(lines_of_outage(), head_of(cursor=cursor))
    assert [decision.outcome for decision in decisions_in(sent.commit)] == outcomes
    assert standing_in(sent.commit).cursor == max(cursor, TICK)


def test_a_replicas_own_ticks_of_an_outage_are_all_recorded():
    sent = decided(lines_of_outage(seen=None), head_of(cursor=TICK + SECOND))
    assert len(decisions_in(sent.commit)) == 2
    assert standing_in(sent.commit).cursor == TICK + SECOND


def test_the_last_run_without_the_store_is_remembered_until_there_is_a_newer_run():
    record = decided(lines_of_outage())
    assert standing_in(record.commit).ran == TICK
    there = replace(head_of(ran=TICK), last_run=AGO)
    assert refused(move(revision=2), there).last_run == TICK
    following = decided(move(to=TICK + SECOND), there)
    assert standing_in(following.commit).ran == TICK, "its own run may be left out"
    newer = replace(head_of(ran=TICK - 9), last_run=TICK - 8)
    assert standing_in(decided(move(), newer).commit).ran == 0
