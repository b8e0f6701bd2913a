"""The checker of jobs, on histories written by hand."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.sim.checks.jobs import check_jobs
from tests.sim.entry_builders import SECOND, entry, of_job, recovered, settled
from tests.sim.history import Entry

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
    call = entry(at, "claim call", replica=replica, number=no, ok=True, ids=["j"])
    return [call, of_job(at, "claimed", fence, replica=replica, attempt=attempt)]


def by_handler(at: float, what: str, fence: int = 5, **facts: Any) -> Entry:
    return of_job(at, what, fence, by="p", **facts)


def failed_and_retried(at: float, fence: int, attempt: int) -> list[Entry]:
    failed = by_handler(at, "failed", fence, seconds=0.2)
    return [
        *claimed(at, fence, attempt, no=attempt),
        failed,
        settled(at, fence, "retry", seconds=0.2),
    ]


def effect(at: float, fence: int, *, ok: bool = True) -> Entry:
    return entry(at, "effect", by="resource", key="j", fence=fence, ok=ok)


def ended(attempt: int = 1, *, failures: int = 0, losses: int = 0) -> Entry:
    facts = {"attempt": attempt, "failures": failures, "losses": losses}
    return of_job(90, "final", 5, outcome="succeeded", number=1, **facts)


END = ended()
DONE = [*claimed(2, 5), effect(3, 5), settled(4, 5)]


def after_a_step(seconds: float, entries: list[Entry]) -> list[Entry]:
    """Return what the store does after its clock was set by so many seconds."""
    by = round(seconds * SECOND)
    return [
        entry(entries[0].at, "stepped", seconds=seconds),
        *(
            replace(entry, now=entry.now + by, seen=entry.seen and entry.seen + by)
            for entry in entries
        ),
    ]


BEATEN = entry(4, "beat", replica="r", ttl=100, ok=True)
RETRIED_LATER = [*claimed(2, 3), settled(3, 3, "retry", seconds=20)]
AGAIN = [*claimed(24, 5, 2, no=2), effect(25, 5), settled(26, 5)]

ELSEWHERE = [*claimed(2, 5, replica="s"), *DONE[2:]]
DECLARED_DEAD = entry(12, "declared dead", replica="r", seen=12 * SECOND)
JOINED_AGAIN = entry(13, "joined", replica="r", ttl=10)

RECOVERED = [*claimed(2, 3), entry(3, "copied"), *recovered(12), entry(13, "rolled back")]
RECOVERED_AGAIN = recovered(12)[1]
TAKEN_OVER = [*claimed(15, 5, 2, "s"), effect(16, 5), settled(17, 5), ended(2, losses=1)]

RIGHT_JOBS = {
    "due, and the clock is set back": [*after_a_step(-100, DONE), END],
    "handed back, and the clock is set back": [
        *claimed(2, 3),
        settled(3, 3, "handed back"),
        *after_a_step(-100, [*claimed(4, 5, 2, no=2), effect(5, 5), settled(6, 5)]),
        ended(2),
    ],
    "a pause that begins anew": [
        *RETRIED_LATER,
        *after_a_step(-100, [BEATEN, *AGAIN]),
        ended(2, failures=1),
    ],
    "recovered a ttl after a look that has found the clock set back": [
        *claimed(2, 3),
        *after_a_step(
            -100,
            [
                entry(3, "looked"),
                *recovered(14),
                *claimed(15, 5, 2, "s"),
                effect(16, 5),
                settled(17, 5),
            ],
        ),
        ended(2, losses=1),
    ],
    "recovered a ttl after a step ahead": [
        *claimed(2, 3),
        *after_a_step(60, [*recovered(12), *claimed(13, 5, 2, "s"), effect(14, 5), settled(15, 5)]),
        ended(2, losses=1),
    ],
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
        by_handler(4, "failed"),
        settled(4, 5, "failed"),
        of_job(90, "final", 5, outcome="failed", number=1, attempt=3, failures=3),
    ],
    "rejected": [
        *claimed(2, 5),
        by_handler(3, "failed", detail="Reject"),
        settled(3, 5, "failed"),
        of_job(90, "final", 5, outcome="failed", number=1, attempt=1, failures=1),
    ],
    "finished, and its end is lost by the store": [
        *claimed(2, 3),
        entry(2, "copied"),
        by_handler(3, "finished", 3),
        settled(3, 3),
        entry(4, "rolled back"),
        settled(5, 3, "handed back"),
        *claimed(5, 5, 2, no=2),
        *DONE[2:],
        ended(2),
    ],
    "a request to join that arrives after its replica was removed": [
        *ELSEWHERE,
        DECLARED_DEAD,
        entry(12, "removed", replica="r"),
        JOINED_AGAIN,
        entry(14, "beat", replica="r", ttl=10, ok=True),
        END,
    ],
    "recovered once more, after the store has lost that": [
        *RECOVERED,
        replace(RECOVERED_AGAIN, at=14, now=14 * SECOND),
        *TAKEN_OVER,
    ],
    "lost by the store": [entry(2, "emptied")],
    "left": [
        *claimed(2, 3),
        entry(3, "declared dead", replica="r", seen=3 * SECOND, ok=True),
        settled(3, 3, "handed back"),
        entry(3, "removed", replica="r"),
        *claimed(4, 5, 2, "s"),
        *DONE[2:],
        ended(2),
    ],
}

WRONG_JOBS = {
    "taken from who was just heard of, after a step ahead": [
        *claimed(2, 3),
        *after_a_step(60, [*recovered(4), *claimed(5, 5, 2, "s"), effect(6, 5), settled(7, 5)]),
        ended(2, losses=1),
    ],
    "a pause cut short by a step back": [
        *RETRIED_LATER,
        *after_a_step(-100, [BEATEN, *claimed(23, 5, 2, no=2), *AGAIN[2:]]),
        ended(2, failures=1),
    ],
    "a pause ended by no beat": [
        *RETRIED_LATER,
        *after_a_step(-100, AGAIN),
        ended(2, failures=1),
    ],
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
        entry(3, "beat", replica="r", ttl=10, ok=True),
        effect(3, 5),
        settled(4, 5),
        END,
    ],
    "the living called dead": [entry(2, "beat", replica="r", ok=False), *DONE, END],
    "the dead join": [*ELSEWHERE, DECLARED_DEAD, JOINED_AGAIN, END],
    "recovered from who came back to life with the store": [
        *RECOVERED,
        replace(RECOVERED_AGAIN, at=14, now=14 * SECOND, seen=14 * SECOND),
        *TAKEN_OVER,
    ],
    "given up too early": [
        *failed_and_retried(2, 3, 1),
        *claimed(4, 5, 2, no=2),
        by_handler(4, "failed"),
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
        by_handler(3, "failed", 3, seconds=0.2),
        settled(3, 3, "retry"),
        *claimed(4, 5, 2, no=2),
        *DONE[2:],
        ended(2, failures=1),
    ],
    "finished and handed back": [
        *claimed(2, 3),
        by_handler(3, "finished", 3),
        settled(3, 3, "handed back"),
        *claimed(4, 5, 2, no=2),
        *DONE[2:],
        ended(2),
    ],
    "failed, and it has succeeded": [*DONE[:3], by_handler(3, "failed"), DONE[3], END],
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
    assert not any("accepted" in complaint for complaint in wrong)


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
