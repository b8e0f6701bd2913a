"""The request checker on histories written by hand: it reports the wrong ones only."""

from typing import Any

import pytest

from tests.sim.checks.http import check_http
from tests.sim.entry_builders import entry
from tests.sim.history import Entry


def by_client(at: float, what: str, by: str = "c0", **facts: Any) -> Entry:
    return entry(at, what, by=by, **{"holder": "ann", **facts})


def offered(at: float, number: int = 1, **facts: Any) -> Entry:
    return by_client(at, "offered", key="k", number=number, **facts)


def accepted(at: float, job: str = "j", number: int = 1, **facts: Any) -> Entry:
    fields = {"key": "k", "detail": f"/jobs/{job}", "ids": [job], **facts}
    return by_client(at, "accepted", job=job, number=number, **fields)


def saw(at: float, outcome: str, revision: int, began: float, **facts: Any) -> Entry:
    return by_client(
        at, "saw", **{"job": "j", "outcome": outcome, "revision": revision, **facts}, seconds=began
    )


def streamed(at: float, outcome: str, revision: int, **facts: Any) -> Entry:
    answer = "result" if outcome == "succeeded" else "state"
    fields = {"job": "j", "outcome": outcome, "revision": revision, "answer": answer, "ok": True}
    return by_client(at, "streamed", **{**fields, **facts})


def final(job: str = "j", number: int = 1, outcome: str = "succeeded") -> Entry:
    return entry(9, "final", job=job, number=number, outcome=outcome)


REQUESTED = [offered(1), accepted(2)]
FOLLOWS = [*REQUESTED, by_client(3, "follows", job="j")]
LOST = entry(2.5, "emptied")
ANEW = [
    entry(1.5, "inserted", job="j", answer="created"),
    *REQUESTED,
    LOST,
    entry(3, "inserted", job="i", answer="created"),
    offered(3),
    accepted(3.1, "i"),
]

RIGHT = {
    "a life": [
        *REQUESTED,
        offered(2.1),
        accepted(2.2, ok=True),
        offered(2.3, 2),
        by_client(2.4, "refused", key="k", number=2, detail="idempotency-key-reused"),
        by_client(3, "follows", job="j"),
        streamed(3.1, "waiting", 1),
        saw(3.2, "running", 2, 3.1),
        streamed(3.4, "running", 4),
        streamed(3.5, "succeeded", 5),
        by_client(3.6, "closed", job="j"),
        by_client(3.7, "denied", by="c1", holder="ben", job="j"),
        by_client(3.8, "paged", ids=["j"], seconds=3.75),
        saw(4, "succeeded", 5, 3.9),
        by_client(4.1, "got", job="j", number=1, answer="200"),
        final(),
    ],
    "two owners with one key": [
        *REQUESTED,
        offered(2, by="c1", holder="ben"),
        accepted(3, "i", by="c1", holder="ben"),
        final(),
        final("i"),
    ],
    "an older state asked for before": [
        *REQUESTED,
        saw(3, "failed", 3, 2),
        saw(4, "running", 2, 2.5),
    ],
    "a store that forgets": [
        *FOLLOWS,
        LOST,
        by_client(4, "denied", job="j"),
        accepted(5, "i", 2),
        by_client(6, "closed", job="j"),
        final("i", 2),
    ],
    "lost, and done anew": [
        *ANEW,
        by_client(3.2, "denied", job="j"),
        saw(3.3, "succeeded", 5, 3.2, job="i"),
        by_client(4, "paged", ids=["i"], seconds=3.75),
        final("i"),
    ],
    "lost, and stored late": [
        *ANEW[:-3],
        entry(3, "inserted", job="j", answer="created"),
        saw(3.1, "succeeded", 5, 2.4),
        saw(3.2, "waiting", 1, 3.1),
        final(),
    ],
}
WRONG = {
    "done anew, and gone": (
        [*ANEW, by_client(4, "denied", job="i")],
        "it was accepted, and is gone",
    ),
    "done anew, and not in the list": (
        [*ANEW, by_client(4, "paged", seconds=3.5)],
        "['i'] are missing",
    ),
    "done anew, and at two addresses": (
        [*ANEW, entry(4, "inserted", job="h", answer="created"), accepted(4, "h", ok=True)],
        "it was /jobs/i before",
    ),
    "done anew, and older than before": (
        [*ANEW, saw(4, "running", 5, 3.9, job="i"), saw(4.2, "waiting", 1, 4.1, job="i")],
        "it was at revision 5",
    ),
    "done anew, and twice": ([*ANEW, final("i"), final("h")], "1 owners have 2 jobs of k"),
    "another address": ([*REQUESTED, accepted(3, "i", ok=True)], "it was /jobs/j before"),
    "another body": ([*REQUESTED, offered(3, 2), accepted(4, number=2, ok=True)], "asked for 1"),
    "new twice": ([*REQUESTED, accepted(3)], "new for the second time"),
    "another job shown": ([offered(1), accepted(2, ids=["i"])], "it shows ['i']"),
    "refused for nothing": (
        [offered(1), by_client(2, "refused", key="k", number=1, detail="idempotency-key-reused")],
        "nothing else was asked for",
    ),
    "refused though accepted": (
        [
            *REQUESTED,
            offered(3, 2),
            by_client(4, "refused", key="k", number=1, detail="idempotency-key-reused"),
            final(),
        ],
        "this request has the job j",
    ),
    "another's job accepted": ([*REQUESTED, accepted(3, by="c1", holder="ben")], "a job of ann"),
    "another's job seen": ([*REQUESTED, saw(3, "running", 2, 2.5, holder="ben")], "a job of ann"),
    "another's job read": ([*REQUESTED, streamed(3, "running", 2, holder="ben")], "a job of ann"),
    "another's job listed": (
        [*REQUESTED, LOST, by_client(3, "paged", holder="ben", ids=["j"])],
        "a job of ann",
    ),
    "another's result": (
        [*REQUESTED, by_client(3, "got", holder="ben", job="j", number=1, answer="200")],
        "a job of ann",
    ),
    "gone": ([*REQUESTED, by_client(3, "denied", job="j")], "it was accepted, and is gone"),
    "not in the list": ([*REQUESTED, by_client(4, "paged", seconds=3)], "['j'] are missing"),
    "gone in the end": ([*REQUESTED, final("i", 3)], "in the end it is None"),
    "does something else": ([*REQUESTED, final("j", 3)], "in the end it is"),
    "stored twice": ([*REQUESTED, final(), final("i")], "1 owners have 2 jobs of k"),
    "not final": (
        [*REQUESTED, saw(3, "failed", 3, 2), saw(5, "succeeded", 4, 4)],
        "it was failed at 3",
    ),
    "another end": ([*REQUESTED, saw(3, "failed", 3, 2), final()], "in the end it is"),
    "back to an older state": (
        [*REQUESTED, saw(3, "running", 3, 2), saw(5, "running", 2, 4)],
        "it was at revision 3",
    ),
    "an event again": (
        [*FOLLOWS, streamed(4, "running", 2), streamed(5, "running", 2)],
        "revision 2 was told before",
    ),
    "an event after the last": (
        [*FOLLOWS, streamed(4, "failed", 2), streamed(5, "failed", 3)],
        "after the last event",
    ),
    "an event of another job": ([*FOLLOWS, streamed(4, "failed", 2, ok=False)], "another job"),
    "an event of another kind": (
        [*FOLLOWS, streamed(4, "failed", 2, answer="result")],
        "the kind of the event",
    ),
    "no last event": ([*FOLLOWS, streamed(4, "running", 2), final()], "not got the last event"),
    "told to stop": ([*FOLLOWS, by_client(4, "closed", job="j")], "before the last event"),
    "never told to stop": ([*FOLLOWS, by_client(4, "reopened", job="j")], "given a stream again"),
    "no result": (
        [*REQUESTED, by_client(3, "got", job="j", number=1, answer="not-ready"), final()],
        "in the end it is",
    ),
    "another result": (
        [*REQUESTED, by_client(3, "got", job="j", number=2, answer="200"), final()],
        "the result of 2, and it does 1",
    ),
}


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT)
def test_right_histories_pass(history: list[Entry]):
    assert check_http(history) == []


@pytest.mark.parametrize(("history", "why"), WRONG.values(), ids=WRONG)
def test_wrong_histories_are_reported(history: list[Entry], why: str):
    wrong = check_http(history)
    assert wrong
    assert why in wrong[0]
