"""The checkers, on histories written by hand: what is right passes, what is wrong is told."""

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.testing.sim.checks.effects import check_effects, check_once
from tenure.testing.sim.checks.jobs import check_jobs
from tenure.testing.sim.checks.leases import check_leases
from tenure.testing.sim.checks.sections import check_sections
from tenure.testing.sim.checks.telling import (
    check_bounds,
    check_fair,
    check_told_in_time,
    check_told_of_stale_ends,
)
from tenure.testing.sim.history import Entry

SECOND = 1_000_000


def entry(at: float, what: str, by: str = "store", **facts: Any) -> Entry:
    return Entry(at=at, by=by, what=what, now=round(at * SECOND), **facts)


def granted(at: float, holder: str, fence: int, *, ttl: float = 10, limit: int = 1) -> Entry:
    return entry(at, "granted", key="k", holder=holder, fence=fence, ttl=ttl, limit=limit)


def of_holder(at: float, what: str, holder: str, fence: int, **facts: Any) -> Entry:
    return entry(at, what, key="k", holder=holder, fence=fence, **facts)


def busy(at: float, holder: str, life: float = 3) -> Entry:
    return entry(at, "busy", key="k", holder=holder, limit=1, ttl=life)


RIGHT = {
    "one after the other": [
        granted(1, "a", 1),
        of_holder(2, "acts", "a", 1, seconds=8.9),
        of_holder(3, "released", "a", 1, ok=True),
        granted(3, "b", 2),
    ],
    "after the end": [granted(1, "a", 1), granted(11, "b", 2)],
    "asked again": [granted(1, "a", 1), granted(2, "a", 1)],
    "renewed": [granted(1, "a", 1), of_holder(5, "renewed", "a", 1, ok=True, ttl=10)],
    "two of two": [granted(1, "a", 1, limit=2), granted(1, "b", 2, limit=2)],
    "in line": [
        granted(1, "a", 1),
        busy(1, "b"),
        busy(2, "c"),
        of_holder(3, "released", "a", 1, ok=True),
        granted(3, "b", 2),
    ],
    "a dead waiter": [
        granted(1, "a", 1, ttl=4),
        busy(1, "b"),
        busy(3, "c"),
        granted(5, "c", 2),
    ],
    "lost by the store": [
        granted(1, "a", 1),
        entry(2, "emptied"),
        granted(3, "b", 2),
        of_holder(3, "acts", "a", 1, seconds=7.0),
        of_holder(4, "renewed", "a", 1, ok=False),
    ],
    "fallen back": [
        entry(0, "copied"),
        granted(1, "a", 1),
        entry(2, "fell back"),
        granted(3, "b", 2),
    ],
}

WRONG = {
    "two of one": [granted(1, "a", 1), granted(2, "b", 2)],
    "three of two": [granted(1, x, n, limit=2) for n, x in enumerate("abc", 1)],
    "a larger limit than that of a holder": [granted(1, "a", 1), granted(2, "b", 2, limit=2)],
    "a moment too early": [granted(1, "a", 1), granted(10.999999, "b", 2)],
    "the same fence": [granted(1, "a", 5), granted(11, "b", 5)],
    "a fence that falls after a loss": [
        granted(1, "a", 5),
        entry(2, "emptied"),
        granted(3, "b", 4),
    ],
    "another fence for the same": [granted(1, "a", 1), granted(2, "a", 2)],
    "overtaken": [
        granted(1, "a", 1),
        busy(1, "b"),
        of_holder(2, "released", "a", 1, ok=True),
        granted(2, "c", 2),
    ],
    "refused although free": [busy(1, "a")],
    "renewed after its end": [granted(1, "a", 1), of_holder(11, "renewed", "a", 1, ok=True)],
    "not renewed": [granted(1, "a", 1), of_holder(2, "renewed", "a", 1, ok=False)],
    "renewed by another": [granted(1, "a", 1), of_holder(2, "renewed", "b", 1, ok=True)],
    "released by an old fence": [granted(1, "a", 2), of_holder(2, "released", "a", 1, ok=True)],
    "acts after its end": [granted(1, "a", 1), of_holder(11, "acts", "a", 1)],
    "acts beside another": [granted(1, "a", 1), granted(11, "b", 2), of_holder(12, "acts", "a", 1)],
    "trusts too long": [granted(1, "a", 1), of_holder(2, "acts", "a", 1, seconds=9.5)],
    "trusts for ever what was lost": [
        granted(1, "a", 1),
        entry(2, "emptied"),
        of_holder(5, "acts", "a", 1, seconds=7.0),
    ],
    "marked too late": [granted(1, "a", 1), of_holder(12, "marked", "a", 1, ok=True, detail="m")],
}


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT)
def test_leases_that_are_right(history: list[Entry]):
    assert check_leases(history)[0] == []


@pytest.mark.parametrize("history", WRONG.values(), ids=WRONG)
def test_leases_that_are_wrong(history: list[Entry]):
    assert len(check_leases(history)[0]) == 1


def test_leases_that_ended_by_themselves_are_counted():
    assert check_leases([granted(1, "a", 1), granted(11, "b", 2)])[1] == 1


def of_job(at: float, what: str, fence: int = 0, **facts: Any) -> Entry:
    return entry(at, what, job="j", fence=fence, **facts)


BEGIN = [
    entry(0, "offered", by="p", number=1),
    of_job(1, "inserted", number=1, answer="created"),
    entry(1, "accepted", by="p", job="j", number=1),
    entry(1, "joined", replica="r", ttl=10),
    entry(1, "joined", replica="s", ttl=100),
]


def claimed(
    at: float, fence: int, attempt: int = 1, replica: str = "r", no: int = 1
) -> list[Entry]:
    asked = entry(at, "asked", replica=replica, number=no, ok=True, ids=["j"])
    return [asked, of_job(at, "claimed", fence, replica=replica, attempt=attempt)]


def settled(
    at: float, fence: int, outcome: str = "succeeded", answer: str = "settled", **facts: Any
) -> Entry:
    return of_job(at, "settled", fence, outcome=outcome, answer=answer, **facts)


def said(at: float, what: str, fence: int = 5, **facts: Any) -> Entry:
    return of_job(at, what, fence, by="p", **facts)


def failed_and_retried(at: float, fence: int, attempt: int) -> list[Entry]:
    failed = said(at, "failed", fence, seconds=0.2)
    return [
        *claimed(at, fence, attempt, no=attempt),
        failed,
        settled(at, fence, "retry", seconds=0.2),
    ]


def recovered(at: float, outcome: str = "waiting", number: int = 1) -> list[Entry]:
    lost = of_job(at, "recovered", replica="r", outcome=outcome, number=number, seconds=25)
    return [lost, entry(at, "looked for the dead")]


def effect(at: float, fence: int, *, ok: bool = True) -> Entry:
    return entry(at, "effect", by="sink", key="j", fence=fence, ok=ok)


def ended(attempt: int = 1, *, failures: int = 0, losses: int = 0) -> Entry:
    facts = {"attempt": attempt, "failures": failures, "losses": losses}
    return of_job(90, "final", 5, outcome="succeeded", number=1, **facts)


END = ended()
DONE = [*claimed(2, 5), effect(3, 5), settled(4, 5)]

RIGHT_JOBS = {
    "once": [*DONE, END],
    "repeated claim": [*claimed(2, 5), *claimed(3, 5), effect(3, 5), settled(4, 5), END],
    "repeated end": [*DONE, settled(5, 5, answer="repeated"), END],
    "recovered": [
        *claimed(2, 3),
        *recovered(12),
        *claimed(13, 5, 2, "s"),
        settled(13, 3, answer="lost"),
        effect(14, 5),
        settled(15, 5),
        ended(2, losses=1),
    ],
    "retried": [
        *claimed(2, 3),
        settled(3, 3, "retry"),
        *claimed(4, 5, 2, no=2),
        *DONE[2:],
        ended(2, failures=1),
    ],
    "cancelled": [
        of_job(2, "cancelled", answer="cancelled"),
        of_job(90, "final", outcome="cancelled", number=1),
    ],
    "overdue": [
        *claimed(2, 3, replica="s"),
        settled(3, 3, "handed back"),
        *claimed(4, 5, 2, replica="s", no=2),
        effect(5, 5),
        settled(6, 5),
        ended(2),
    ],
    "failed for good": [
        *failed_and_retried(2, 3, 1),
        *failed_and_retried(3, 4, 2),
        *claimed(4, 5, 3, no=3),
        said(4, "failed"),
        settled(4, 5, "failed"),
        of_job(90, "final", 5, outcome="failed", number=1, attempt=3, failures=3),
    ],
    "rejected": [
        *claimed(2, 5),
        said(3, "failed", detail="Reject"),
        settled(3, 5, "failed"),
        of_job(90, "final", 5, outcome="failed", number=1, attempt=1, failures=1),
    ],
    "finished, and its end is lost by the store": [
        *claimed(2, 3),
        entry(2, "copied"),
        said(3, "finished", 3),
        settled(3, 3),
        entry(4, "fell back"),
        settled(5, 3, "handed back"),
        *claimed(5, 5, 2, no=2),
        *DONE[2:],
        ended(2),
    ],
    "lost by the store": [entry(2, "emptied")],
    "left": [
        *claimed(2, 3),
        entry(3, "left", replica="r", ids=["j"]),
        *claimed(4, 5, 2, "s"),
        *DONE[2:],
        ended(2),
    ],
}

WRONG_JOBS = {
    "two at once": [*claimed(2, 3), *claimed(3, 5, 2, "s"), *DONE[2:], ended(2)],
    "an older fence settles": [
        *claimed(2, 3),
        *recovered(12),
        *claimed(13, 5, 2, "s"),
        settled(14, 3),
        effect(14, 5),
        settled(15, 5),
        ended(2, losses=1),
    ],
    "refused": [*claimed(2, 5), settled(3, 5, answer="lost"), effect(3, 5), settled(4, 5), END],
    "a repeat that is none": [*claimed(2, 5), settled(3, 5, "failed", "repeated"), *DONE[2:], END],
    "recovered from the living": [
        *claimed(2, 3),
        *recovered(5),
        *claimed(13, 5, 2, "s"),
        *DONE[2:],
        ended(2, losses=1),
    ],
    "claimed by the dead": [*claimed(11, 5), *DONE[2:], END],
    "attempt not counted": [
        *claimed(2, 3),
        settled(3, 3, "retry"),
        *claimed(4, 5, 1, no=2),
        *DONE[2:],
        ended(1, failures=1),
    ],
    "a fence that falls": [
        *claimed(2, 6),
        settled(3, 6, "retry"),
        *claimed(4, 5, 2, no=2),
        *DONE[2:],
        ended(2, failures=1),
    ],
    "losses not counted": [
        *claimed(2, 3),
        *recovered(12, number=0),
        *claimed(13, 5, 2, "s"),
        effect(14, 5),
        settled(15, 5),
        ended(2, losses=1),
    ],
    "counted otherwise": [*DONE, ended(1, losses=1)],
    "no end": [of_job(90, "final", outcome="waiting", number=1)],
    "gone": [entry(90, "final", job="x", outcome="cancelled", number=1)],
    "asked for by nobody": [
        *DONE,
        of_job(90, "final", 5, outcome="succeeded", number=2, attempt=1),
    ],
    "no effect": [*claimed(2, 5), settled(4, 5), END],
    "stored twice": [entry(2, "inserted", job="x", number=1, answer="created"), *DONE, END],
    "begun twice": [*DONE, *2 * [of_job(5, "began", 5, by="p")], END],
    "begun without a claim": [*DONE, of_job(5, "began", 4, by="p"), END],
    "a stale note": [*DONE, of_job(5, "noted", 5, ok=True), END],
    "a cancel that is forgotten": [
        *claimed(2, 5),
        of_job(3, "cancelled", answer="requested"),
        entry(3, "beaten", replica="r", ttl=10, ok=True),
        effect(3, 5),
        settled(4, 5),
        END,
    ],
    "the living called dead": [entry(2, "beaten", replica="r", ok=False), *DONE, END],
    "given up too early": [
        *failed_and_retried(2, 3, 1),
        *claimed(4, 5, 2, no=2),
        said(4, "failed"),
        settled(4, 5, "failed"),
        of_job(90, "final", 5, outcome="failed", number=1, attempt=2, failures=2),
    ],
    "tried once too often": [
        *failed_and_retried(2, 2, 1),
        *failed_and_retried(3, 3, 2),
        *failed_and_retried(4, 4, 3),
        *claimed(5, 5, 4, no=4),
        *DONE[2:],
        ended(4, failures=3),
    ],
    "tried again too early": [
        *claimed(2, 3),
        said(3, "failed", 3, seconds=0.2),
        settled(3, 3, "retry"),
        *claimed(4, 5, 2, no=2),
        *DONE[2:],
        ended(2, failures=1),
    ],
    "finished and handed back": [
        *claimed(2, 3),
        said(3, "finished", 3),
        settled(3, 3, "handed back"),
        *claimed(4, 5, 2, no=2),
        *DONE[2:],
        ended(2),
    ],
    "failed, and it has succeeded": [*DONE[:3], said(3, "failed"), DONE[3], END],
    "left with more": [
        *claimed(2, 3),
        entry(3, "left", replica="r"),
        *claimed(4, 5, 2, "s"),
        *DONE[2:],
        ended(2),
    ],
}


@pytest.mark.parametrize("history", RIGHT_JOBS.values(), ids=RIGHT_JOBS)
def test_jobs_that_are_right(history: list[Entry]):
    assert check_jobs([*BEGIN, *history])[0] == []


@pytest.mark.parametrize("history", WRONG_JOBS.values(), ids=WRONG_JOBS)
def test_jobs_that_are_wrong(history: list[Entry]):
    assert check_jobs([*BEGIN, *history])[0]


def test_only_jobs_that_the_store_has_lost_are_counted_and_forgiven():
    final = entry(90, "final", job="x", outcome="cancelled", number=1)
    others = entry(3, "inserted", job="x", number=1, key="u", answer="created")
    wrong, lost = check_jobs([*BEGIN, entry(2, "emptied"), others, final])
    assert lost == 1
    assert not any("accepted" in one for one in wrong)


@pytest.mark.parametrize("kept", [False, True])
def test_a_key_outlives_its_job_where_it_is_kept(kept: bool):
    def inserted(at: float, job: str, answer: str) -> Entry:
        return entry(at, "inserted", job=job, key="u", answer=answer, kept=kept)

    ended = [inserted(1, "j", "created"), of_job(2, "cancelled", answer="cancelled")]
    again, anew = inserted(3, "j", "existing"), inserted(3, "x", "created")
    assert bool(check_jobs([*ended, again])[0]) == (not kept)
    assert bool(check_jobs([*ended, anew])[0]) == kept


@pytest.mark.parametrize("outcome", ["retry", "failed", "handed back", "cancelled"])
def test_a_key_is_taken_until_its_job_has_ended(outcome: str):
    def inserted(at: float, job: str, answer: str) -> Entry:
        return entry(at, "inserted", job=job, number=1, key="u", answer=answer)

    joined = entry(1, "joined", replica="r", ttl=10)
    ended = [inserted(1, "j", "created"), joined, *claimed(2, 5), settled(2, 5, outcome)]
    is_free = outcome in ("failed", "cancelled")
    assert bool(check_jobs([*ended, inserted(3, "j", "existing")])[0]) == is_free
    assert bool(check_jobs([*ended, inserted(3, "x", "created")])[0]) == (not is_free)


def test_sections_of_holders_alone():
    def of(by: str, at: float, what: str, fence: int) -> Entry:
        return Entry(at=at, by=by, what=what, key="k", fence=fence, limit=1)

    first = [of("a", 1, "entered", 1), of("a", 3, "leaves", 1)]
    late = [of("b", 2, "entered", 2), of("b", 4, "leaves", 2)]
    assert not check_sections([*first, of("b", 3, "entered", 2), of("b", 4, "leaves", 2)])
    assert len(check_sections([*first, *late])) == 1
    assert not check_sections([*first, *late, of("a", 3.5, "told of a loss", 1)])
    assert not check_sections(
        [first[0], Entry(at=1.5, by="world", what="crash", detail="a"), *late]
    )
    pause = Entry(at=1.5, by="world", what="pause", detail="a")
    crash = Entry(at=5, by="world", what="crash", detail="a")
    assert not check_sections([first[0], pause, *late, crash])
    assert len(check_sections([first[0], *late, crash])) == 1
    long_dead = Entry(at=5, by="world", what="crash", detail="a", seconds=3.5)
    assert not check_sections([first[0], *late, long_dead])
    assert len(check_sections([*first, of("b", 3, "entered", 1), of("b", 4, "leaves", 1)])) == 1


def test_a_lease_that_lasts_is_given_to_nobody_else():
    def of(by: str, at: float, what: str, fence: int, seconds: float = 0) -> Entry:
        return Entry(at=at, by=by, what=what, key="k", fence=fence, limit=1, seconds=seconds)

    def entered(by: str, at: float, fence: int, lasts: float) -> list[Entry]:
        return [of(by, at, "entered", fence), of(by, at, "acts", fence, lasts)]

    first, told = entered("a", 1, 1, 3), of("a", 5, "told of a loss", 1)
    crash = Entry(at=1.5, by="world", what="crash", detail="a")
    for end in (told, crash):
        assert len(check_sections([*first, *entered("b", 2, 2, 3), end])) == 1
        assert not check_sections([*first, *entered("b", 4, 2, 3), end])
    robbed = [*first, *entered("b", 2, 2, 3), told, of("b", 5, "told of a loss", 2)]
    assert len(check_sections(robbed)) == 1
    late = [*entered("b", 2, 2, 0), of("b", 2, "sees a loss", 2)]
    assert not check_sections([*first, *late, of("a", 3, "leaves", 1)])
    woken = [of("a", 5, "acts", 1, 0), told]
    assert not check_sections([*first, *entered("b", 4, 2, 3), *woken])
    left = [*first, of("a", 1.5, "leaves", 1), crash]
    assert not check_sections([*left, *entered("b", 2, 2, 3), told])


def test_effects():
    given = [granted(1, "a", 1), granted(2, "b", 2)]

    def effects(*fences: tuple[int, bool]) -> list[Entry]:
        return [*given, *(entry(3, "effect", by="sink", key="k", fence=f, ok=o) for f, o in fences)]

    assert not check_effects(effects((1, True), (2, True), (1, False), (2, True)))
    assert len(check_effects(effects((2, True), (1, True)))) == 1
    assert len(check_effects(effects((1, True), (1, False)))) == 1
    assert len(check_effects(effects((3, True)))) == 1


def test_once_is_once():
    ran = entry(1, "ran once", by="p", key="o", ok=True)
    skipped = entry(1, "ran once", by="p", key="o")
    assert not check_once([ran, skipped, skipped])
    assert check_once([ran, ran])
    assert not check_once([ran, entry(2, "emptied"), ran])


def test_who_is_told_in_time():
    late = Entry(at=5, by="m0.1", what="sees a loss", ok=True, seconds=2)
    pause = Entry(at=2, by="world", what="pause", number=0, seconds=2.5)
    assert len(check_told_in_time([late])) == 1
    assert not check_told_in_time([pause, late])
    taken = Entry(at=5, by="m0.1", what="event", detail="ReplicaLost", ids=["j"])
    ran_on = Entry(at=6, by="m0.1", what="finished", job="j")
    assert len(check_told_in_time([taken, ran_on])) == 1
    assert not check_told_in_time([taken, Entry(at=6, by="m0.1", what="stopped", job="j")])


def of_handler(at: float, what: str, **facts: Any) -> Entry:
    return Entry(at=at, by="m0.1", what=what, job="j", fence=5, **facts)


PAUSED = Entry(at=3, by="world", what="pause", number=0, seconds=2)
TOLD = Entry(at=2, by="m0.1", what="told to cancel", ids=["j"])


@pytest.mark.parametrize(
    ("history", "is_right"),
    [
        ([TOLD, of_handler(2.01, "stopped")], True),
        ([TOLD, of_handler(2.01, "finished")], True),
        ([TOLD, of_handler(4, "finished")], False),
        ([TOLD, of_handler(4, "failed")], False),
        ([TOLD, PAUSED, of_handler(5, "finished")], True),
        ([PAUSED, replace(TOLD, at=6), of_handler(8, "finished")], False),
        ([TOLD, replace(TOLD, at=3), of_handler(3.01, "finished")], False),
        ([TOLD, of_handler(3, "began"), of_handler(9, "finished")], True),
    ],
)
def test_who_is_cancelled_stops(history: list[Entry], is_right: bool):
    assert len(check_told_in_time([of_handler(1, "began"), *history])) == (not is_right)


@pytest.mark.parametrize(
    ("history", "is_right"),
    [
        ([of_handler(4, "stopped")], True),
        ([of_handler(5, "stopped")], False),
        ([of_handler(5, "finished")], False),
        ([PAUSED, of_handler(5, "stopped")], True),
    ],
)
def test_attempts_end_with_their_time_out(history: list[Entry], is_right: bool):
    begin = [of_job(1, "inserted", answer="created", ttl=3.0), of_handler(1, "began")]
    assert len(check_told_in_time([*begin, *history])) == (not is_right)


@pytest.mark.parametrize("outcome", ["succeeded", "retry", "failed", "cancelled"])
def test_who_is_told_of_a_refused_end(outcome: str):
    joined = entry(0, "joined", replica="r", holder="m0.1", ttl=10)
    refused = of_job(2, "settled", 5, outcome=outcome, answer="lost", replica="r")
    told = Entry(at=3, by="m0.1", what="event", detail="AttemptLost", job="j", fence=5)
    crash = Entry(at=2, by="world", what="crash", detail="m0.1")
    assert len(check_told_of_stale_ends([joined, refused])) == 1
    assert not check_told_of_stale_ends([joined, refused, told])
    assert not check_told_of_stale_ends([joined, refused, crash])
    assert not check_told_of_stale_ends([joined, settled(2, 5), refused])
    given_back = of_job(2, "settled", 5, outcome="handed back", answer="lost", replica="r")
    assert not check_told_of_stale_ends([joined, given_back])


def test_fair_weather_costs_nothing():
    lost = Entry(at=1, by="m0.1", what="event", detail="HoldLost", key="k", answer="no more")
    over = Entry(
        at=1, by="m0.1", what="event", detail="HoldLost", key="k", answer="max_hold is over"
    )
    assert not check_fair([over], [])
    assert len(check_fair([lost, *recovered(2)], ["'k' of a"])) == 3


def test_holds_keep_within_their_bounds():
    entered = Entry(at=1, by="p", what="entered", key="k", holder="a", limit=1, seconds=2, ttl=5)
    acts = Entry(at=7, by="p", what="acts", key="k", holder="a")
    assert not check_bounds([entered, granted(3, "b", 2)])
    assert len(check_bounds([entered, granted(2, "b", 2)])) == 1
    assert len(check_bounds([entered, acts])) == 1
