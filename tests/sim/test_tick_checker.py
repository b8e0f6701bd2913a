"""The tick oracle, on histories written by hand: what is right passes, what is wrong is told."""

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.rules import Every
from tenure.core.ticking import Definition, RunOptions
from tenure.testing.sim.checks.ticks import check_ticks
from tenure.testing.sim.history import Entry
from tests.sim.entries import SECOND, entry


def definition(seconds: float = 1.0, **options: Any) -> str:
    rule, run = Every(round(seconds * SECOND)), RunOptions(task="@t", queue="q")
    given = {"overlap": "allow", **options}
    return Definition(kind="timer", rule=rule, run=run, **given).encode().decode()


def planted(at: float, cursor: float, name: str = "t", revision: int = 1, **facts: Any) -> Entry:
    given = {
        "detail": "first",
        "answer": "each second",
        "seconds": 1.0,
        "holder": "p",
        "definition": definition(),
        **facts,
    }
    return entry(at, "planted", key=name, revision=revision, tick=round(cursor * SECOND), **given)


def moved(at: float, seen: float, tick: float, name: str = "t", **facts: Any) -> Entry:
    """Return a move that had a run, on the replica "r" under a fence, unless told otherwise."""
    given: dict[str, Any] = {
        "revision": 1,
        "answer": "run",
        "outcome": "done",
        "job": f"{name} {tick}",
        "replica": "r",
        "fence": round(at * SECOND),
        "holder": "p",
        "ids": [f"{name} {tick}"],
        **facts,
    }
    return entry(
        at, "moved", key=name, seen=round(seen * SECOND), tick=round(tick * SECOND), **given
    )


def skipped(at: float, seen: float, tick: float, why: str, **facts: Any) -> Entry:
    return moved(at, seen, tick, outcome="skipped", detail=why, job="", fence=0, **facts)


def ran(at: float, seen: float, tick: float, name: str = "t", **facts: Any) -> list[Entry]:
    move = moved(at, seen, tick, name, **facts)
    return [move, of_run(at, "claimed", move, replica=move.replica, attempt=1)]


def of_run(at: float, what: str, move: Entry, by: str = "store", **facts: Any) -> Entry:
    return entry(at, what, by=by, **{"job": move.job, "fence": move.fence, **facts})


def began(at: float, move: Entry, number: int = 1, by: str = "p", **facts: Any) -> Entry:
    given = {"attempt": number, "number": number, **facts}
    return of_run(at, "ticked", move, by=by, key=move.key, tick=move.tick, **given)


def settled(at: float, move: Entry, outcome: str = "succeeded") -> Entry:
    return of_run(at, "settled", move, outcome=outcome, answer="settled")


def recovered(at: float, move: Entry, outcome: str) -> Entry:
    return of_run(at, "recovered", move, replica="r", outcome=outcome)


BEGIN = [
    entry(0.1, "joined", replica="r", holder="p", ttl=10),
    entry(0.1, "joined", replica="s", holder="q", ttl=10),
    planted(0.5, 0.5),
]
ONE = ran(1, 0.5, 1)
AGAIN = ran(1, 0.5, 1, again=True)
TRIGGER = moved(1.5, 0, 1.5, answer="trigger", replica="", fence=0, again=True)
RENAMED = {"name": "u", "ids": ["t"]}
OPTION = {"detail": "second", "revision": 2}
RULE = {**OPTION, "answer": "every two seconds", "seconds": 2.0}
OWN = {"revision": 1}

EMPTIED, FELL_BACK = entry(2, "emptied"), entry(2, "fell back")
JOINED_ANEW = entry(2.4, "joined", replica="r", holder="p", ttl=10)

RIGHT = {
    "tick by tick": [*ONE, began(1, ONE[0]), settled(1, ONE[0]), *ran(2, 1, 2)],
    "one missed": [*ONE, *ran(3, 1, 3, number=1)],
    "renamed": [*ONE, planted(1.5, 1, **RENAMED), *ran(2, 1, 2, "u")],
    "renamed and rolled back": [
        planted(1.5, 0.5, **RENAMED),
        planted(6, 0.5, revision=2),
        *ran(6, 0.5, 6, number=5, revision=2),
    ],
    "an option": [planted(1.5, 0.5, **OPTION), *ran(1.6, 0.5, 1, revision=2)],
    "a rule": [planted(1.5, 1.5, **RULE), *ran(2, 1.5, 2, revision=2)],
    "an older release yields": [planted(1, 0.5, **OPTION), planted(2, 0.5, revision=0)],
    "paused": [entry(0.9, "frozen", key="t", ok=True), skipped(1, 0.5, 1, "paused")],
    "paused under another name": [
        entry(0.9, "frozen", key="t", ok=True),
        planted(0.95, 0.5, **RENAMED),
        skipped(1, 0.5, 1, "paused", name="u"),
    ],
    "a former name is paused": [
        planted(0.9, 0.5, **RENAMED),
        entry(0.95, "frozen", key="t", ok=True),
        *ran(1, 0.5, 1, "u"),
    ],
    "resumed": [
        entry(0.9, "frozen", key="*", ok=True),
        entry(1.5, "thawed", key="*", ok=True),
        skipped(1.6, 0.5, 1, "paused"),
        *ran(2, 1, 2),
    ],
    "triggered while paused": [entry(0.9, "frozen", key="t", ok=True), TRIGGER],
    "triggered while the clock is set back": [replace(TRIGGER, now=SECOND)],
    "triggered": [
        TRIGGER,
        of_run(2, "claimed", TRIGGER, fence=7, replica="s", attempt=1),
        began(2, TRIGGER, by="q", fence=7),
        *ran(2, 0.5, 2, number=1),
    ],
    "tried again": [*ONE, began(1, ONE[0]), began(1.1, ONE[0], 2)],
    "run again": [
        *AGAIN,
        began(1, AGAIN[0]),
        recovered(3, AGAIN[0], "waiting"),
        of_run(4, "claimed", AGAIN[0], fence=4 * SECOND, replica="s", attempt=2),
        began(4, AGAIN[0], by="q", fence=4 * SECOND, attempt=2),
    ],
    "lost, and not told": [*ONE, recovered(3, ONE[0], "failed"), began(4, ONE[0])],
    "own": [*ran(1, 0, 1, **OWN), *ran(3, 0, 3, **OWN, number=1)],
    "own, arrived late": [*ran(2, 0, 2, **OWN, number=1), skipped(3, 0, 1, "per_replica", **OWN)],
    "lost by the store": [
        *ONE,
        EMPTIED,
        began(2.1, ONE[0]),
        JOINED_ANEW,
        planted(2.5, 2.5),
        *ran(3, 2.5, 3),
    ],
    "lost with its cursor": [
        entry(0.9, "copied"),
        *ONE,
        began(1, ONE[0]),
        FELL_BACK,
        *ran(2.1, 0.5, 1, job="x"),
        began(2.2, moved(2.1, 0.5, 1, job="x")),
    ],
    "lost, and asked for again": [
        entry(0.9, "copied"),
        *ONE,
        FELL_BACK,
        *ran(2.1, 0.5, 1),
        began(2.2, ONE[0]),
        began(2.3, moved(2.1, 0.5, 1)),
    ],
    "lost, and found again": [
        *ONE,
        entry(1.5, "copied"),
        entry(1.8, "emptied"),
        FELL_BACK,
        *ran(2.1, 1, 2),
    ],
    "lost with its end": [
        *ONE,
        entry(1.5, "copied"),
        settled(1.6, ONE[0]),
        FELL_BACK,
        settled(2.2, ONE[0], "handed back"),
    ],
    "lost with the name": [
        entry(0.9, "copied"),
        planted(1, 0.5, **RENAMED),
        FELL_BACK,
        *ran(2.1, 0.5, 2, number=1),
        planted(2.2, 2, **RENAMED),
    ],
}

WRONG = {
    "after a loss, run twice": [
        EMPTIED,
        JOINED_ANEW,
        planted(2.5, 2.5),
        *ran(3, 2.5, 3),
        *ran(3.5, 2.5, 3, job="x"),
    ],
    "after a loss, moved from where it was before": [
        entry(0.9, "copied"),
        *ONE,
        FELL_BACK,
        *ran(2.1, 1, 2, number=1),
    ],
    "after a loss, passed in silence": [entry(0.9, "copied"), *ONE, FELL_BACK, *ran(2.1, 0.5, 2)],
    "after a loss, a run that has ended goes on": [
        *ONE,
        settled(1.2, ONE[0]),
        entry(1.5, "copied"),
        FELL_BACK,
        settled(2.2, ONE[0], "handed back"),
    ],
    "after a loss, begun by another": [*ONE, EMPTIED, began(2.1, ONE[0], by="q")],
    "after a loss, on a replica that the store does not know": [
        EMPTIED,
        planted(2.5, 2.5),
        *ran(3, 2.5, 3),
    ],
    "after a loss, a pause that is lost although it was there": [
        entry(0.9, "frozen", key="t", ok=True),
        entry(1, "copied"),
        FELL_BACK,
        *ran(2.1, 0.5, 2, number=1),
    ],
    "run twice": [*ONE, *ran(1.5, 0.5, 1)],
    "moved from elsewhere": ran(2, 1, 2),
    "early": ran(1, 0.5, 2, number=1),
    "passed in silence": ran(3, 0.5, 3),
    "under both names": [*ONE, planted(1.5, 0.5, **RENAMED), *ran(1.6, 0.5, 1, "u")],
    "a former name ticks": [planted(0.9, 0.5, **RENAMED), *ONE],
    "a former name rules": [planted(0.9, 0.5, **RENAMED), planted(1, 0.5, revision=2)],
    "an option drops ticks": [planted(1.5, 1.5, **OPTION)],
    "a rule makes up for ticks": [planted(1.5, 0.5, **RULE)],
    "an older definition rules": [planted(1, 0.5, **OPTION), planted(2, 0.5, revision=3)],
    "an older definition ticks": [planted(0.9, 0.5, **OPTION), *ONE],
    "a revision again": [planted(0.9, 0.5, detail="second")],
    "the ruling one is refused": [planted(0.9, 0.5, revision=0)],
    "run while paused": [entry(0.9, "frozen", key="t", ok=True), *ONE],
    "run while all are frozen": [entry(0.9, "frozen", key="*", ok=True), *ONE],
    "paused by nobody": [skipped(1, 0.5, 1, "paused")],
    "a pause that is lost with the name": [
        entry(0.9, "frozen", key="t", ok=True),
        planted(0.95, 0.5, **RENAMED),
        *ran(1, 0.5, 1, "u"),
    ],
    "a trigger that moves the cursor": [TRIGGER, *ran(2, 1.5, 2)],
    "begun twice": [*ONE, began(1, ONE[0]), began(1.1, ONE[0])],
    "begun by another": [*ONE, began(1, ONE[0], by="q")],
    "begun by nobody's leave": [began(1, ONE[0])],
    "begun after its end": [*ONE, settled(1, ONE[0], "handed back"), began(1.1, ONE[0])],
    "begun after it was told": [
        *ONE,
        recovered(3, ONE[0], "failed"),
        entry(3, "event", by="p", detail="ReplicaLost", replica="r"),
        began(4, ONE[0]),
    ],
    "two at once": [
        *AGAIN,
        of_run(4, "claimed", AGAIN[0], fence=4 * SECOND, replica="s", attempt=2),
    ],
    "born where nobody lives": ran(20, 0.5, 20, number=19),
    "lost, and run again": [*ONE, recovered(3, ONE[0], "waiting")],
    "a fence that falls": [*ONE, *ran(2, 1, 2, fence=5)],
    "a fence that falls with a name": [
        *ONE,
        planted(1.5, 1, **RENAMED),
        *ran(2, 1, 2, "u", fence=5),
    ],
    "an own tick left out": [*ran(1, 0, 1, **OWN), *ran(3, 0, 3, **OWN)],
    "an own tick run twice": [
        *ran(1, 0, 1, **OWN),
        began(1, ONE[0]),
        *ran(1.5, 0, 1, **OWN, job="x"),
        began(1.5, moved(1.5, 0, 1, job="x")),
    ],
}


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT)
def test_ticks_that_are_right(history: list[Entry]):
    assert check_ticks([*BEGIN, *history], declared_for=3.0)[0] == []


@pytest.mark.parametrize("history", WRONG.values(), ids=WRONG)
def test_ticks_that_are_wrong(history: list[Entry]):
    assert check_ticks([*BEGIN, *history], declared_for=3.0)[0]


def held(at: float, seen: float, tick: float, **facts: Any) -> Entry:
    return moved(at, seen, tick, outcome="held", detail="overlap", job="", fence=0, **facts)


CANCELLED = of_run(2, "cancelled", ONE[0], answer="requested")
BEAT = entry(10, "beaten", replica="r", ttl=10, ok=True)
NEWEST = {"overlap": "cancel_previous"}
QUEUED = {"overlap": "queue_one"}
EACH = {"each": "replica", "overlap": "skip"}

# The options of the definition, and what comes of its ticks from second 1 on.
KEPT: dict[str, tuple[dict[str, Any], list[Entry]]] = {
    "up to its limit": ({"limit": 2}, [*ran(1, 0.5, 1), *ran(2, 1, 2)]),
    "skipped at its limit": ({"limit": 1}, [*ONE, skipped(2, 1, 2, "limit")]),
    "skipped": ({"overlap": "skip"}, [*ONE, skipped(2, 1, 2, "overlap")]),
    "waits": (QUEUED, [*ONE, held(2, 1, 2), settled(2.5, ONE[0]), *ran(2.5, 1, 2)]),
    "cancels": (NEWEST, [*ONE, CANCELLED, held(2, 1, 2)]),
    "waits to be made up for": ({"overlap": "skip", "catch_up": "all"}, [*ONE, held(9, 1, 2)]),
    "all made up for": ({"catch_up": "all"}, [*ran(9, 0.5, 1), *ran(9.1, 1, 2)]),
    "too many to make up for": ({"catch_up": "all"}, [BEAT, *ran(19, 0.5, 9, number=8)]),
    "one on each replica": (EACH, [*ran(1, 0, 1), *ran(1.1, 0, 1, replica="s", job="x")]),
}
BROKEN: dict[str, tuple[dict[str, Any], list[Entry]]] = {
    "beyond its limit": ({"limit": 1}, [*ran(1, 0.5, 1, limit=9), *ran(2, 1, 2, limit=9)]),
    "skipped below its limit": ({"limit": 2}, [*ONE, skipped(2, 1, 2, "limit")]),
    "skipped without need": ({"overlap": "skip"}, [skipped(1, 0.5, 1, "overlap")]),
    "two at once": ({"overlap": "skip"}, [*ONE, *ran(2, 1, 2)]),
    "does not skip": ({"overlap": "skip"}, [*ONE, held(2, 1, 2)]),
    "queued beside another": (QUEUED, [*ONE, *ran(2, 1, 2)]),
    "queued and dropped": (QUEUED, [*ONE, skipped(2, 1, 2, "overlap")]),
    "cancels nobody": (NEWEST, [*ONE, held(2, 1, 2)]),
    "cancelled and not waited for": (NEWEST, [*ONE, CANCELLED, *ran(2, 1, 2)]),
    "not made up for": ({"catch_up": "all"}, ran(9, 0.5, 9, number=8)),
    "two on one replica": (EACH, [*ran(1, 0, 1), *ran(2, 0, 2)]),
    "triggered beyond its limit": ({"limit": 1}, [*ONE, TRIGGER]),
}


@pytest.mark.parametrize(("options", "history"), KEPT.values(), ids=KEPT)
def test_options_that_are_kept(options: dict[str, Any], history: list[Entry]):
    begin = [*BEGIN[:2], planted(0.5, 0.5, definition=definition(**options))]
    assert check_ticks([*begin, *history], declared_for=3.0)[0] == []


@pytest.mark.parametrize(("options", "history"), BROKEN.values(), ids=BROKEN)
def test_options_that_are_broken(options: dict[str, Any], history: list[Entry]):
    begin = [*BEGIN[:2], planted(0.5, 0.5, definition=definition(**options))]
    assert len(check_ticks([*begin, *history], declared_for=3.0)[0]) == 1
