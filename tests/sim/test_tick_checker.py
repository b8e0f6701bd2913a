"""The tick checker on histories written by hand: it reports the wrong ones only."""

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.calendar.rules import Every
from tenure.core.schedules.definition import Definition, RunOptions
from tests.sim.checks.ticks import check_ticks
from tests.sim.commit_entries import FOR_EVER
from tests.sim.entry_builders import SECOND, entry
from tests.sim.history import Entry


def definition(seconds: float = 1.0, **options: Any) -> str:
    rule, run = Every(round(seconds * SECOND)), RunOptions(task="@t", queue="q")
    fields = {"overlap": "allow", **options}
    return Definition(kind="timer", rule=rule, run=run, **fields).encode().decode()


def declares(at: float, name: str = "t", by: str = "p", **facts: Any) -> Entry:
    return entry(at, "declares", by=by, key=name, **{"detail": "first", **facts})


def looked(at: float, by: str = "p") -> Entry:
    return entry(at, "read schedules", holder=by)


def told_the_time(at: float, by: str = "p") -> Entry:
    return entry(at, "read the time", holder=by)


def registered(
    at: float, cursor: float, name: str = "t", revision: int = 1, **facts: Any
) -> list[Entry]:
    """Return what a process says before it plants a definition, and the registration.

    `ids` are the former names that it declares, `taken` are those that it takes over, and `look` is
    the instant that it was told before.
    """
    look, taken = facts.pop("look", at), facts.pop("taken", facts.get("ids", []))
    fields = {
        "detail": "first",
        "answer": "each second",
        "seconds": 1.0,
        "holder": "p",
        "definition": definition(),
        **facts,
    }
    declaration = {"by": fields["holder"], "ids": fields.pop("ids", []), "detail": fields["detail"]}
    at_cursor = {"tick": round(cursor * SECOND), "revision": revision}
    return [
        declares(at, name, **declaration),
        looked(look, fields["holder"]),
        entry(at, "registered", key=name, ids=taken, **at_cursor, **fields),
    ]


def declared(at: float, name: str = "t", *, ok: bool = True, detail: str = "first") -> Entry:
    return entry(at, "declared", key=name, holder="p", detail=detail, ok=ok)


def operates(at: float, what: str, name: str = "t", seconds: float = 0.0) -> Entry:
    return entry(at, "operates", by="p", key=name, detail=what, seconds=seconds)


def frozen(at: float, name: str = "t", seconds: float = 0.0) -> list[Entry]:
    until = round((at + seconds) * SECOND) if seconds else FOR_EVER
    request = [operates(at, "pause", name, seconds), looked(at)]
    return [*request, entry(at, "frozen", key=name, holder="p", tick=until)]


def thawed(at: float, name: str = "t", until: float | None = None) -> list[Entry]:
    ends = round((at if until is None else until) * SECOND)
    request = [operates(at, "resume", name), looked(at)]
    return [*request, entry(at, "thawed", key=name, holder="p", tick=ends)]


def reset(at: float, cursor: float, to: float, name: str = "t") -> list[Entry]:
    left = {"seen": round(cursor * SECOND), "tick": round(to * SECOND)}
    request = [operates(at, "reset", name), looked(at)]
    return [*request, entry(at, "reset", key=name, holder="p", **left)]


def forgotten(at: float, name: str = "t") -> Entry:
    return entry(at, "forgotten", key=name, holder="p")


def moved(at: float, seen: float, tick: float, name: str = "t", **facts: Any) -> Entry:
    """Return a move that had a run, on the replica "r" under a fence, unless told otherwise."""
    fields: dict[str, Any] = {
        "answer": "run",
        "outcome": "done",
        "job": f"{name} {tick}",
        "replica": "r",
        "fence": round(at * SECOND),
        "holder": "p",
        "ids": [f"{name} {tick}"],
        "number": 0,
        **facts,
    }
    nominal = round(tick * SECOND)
    fields.setdefault("lines", lines_of(nominal, fields))
    return entry(at, "moved", key=name, seen=round(seen * SECOND), tick=nominal, **fields)


def lines_of(tick: int, fields: dict[str, Any]) -> list[tuple[str, str, int, int, int]]:
    """Return the lines of a history that a move should write."""
    number = fields["number"]
    lines = [("missed", "late", tick - number * SECOND, tick - SECOND, number)] if number else []
    outcomes = {"done": ("ran", ""), "skipped": ("skipped", fields.get("detail", ""))}
    if fields["outcome"] in outcomes:
        lines.append((*outcomes[fields["outcome"]], tick, tick, 1))
    return lines


def skipped(at: float, seen: float, tick: float, why: str, **facts: Any) -> Entry:
    return moved(at, seen, tick, outcome="skipped", detail=why, job="", fence=0, **facts)


def ran(at: float, seen: float, tick: float, name: str = "t", **facts: Any) -> list[Entry]:
    move = moved(at, seen, tick, name, **facts)
    return [move, of_run(at, "claimed", move, replica=move.replica, attempt=1)]


def of_run(at: float, what: str, move: Entry, by: str = "store", **facts: Any) -> Entry:
    return entry(at, what, by=by, **{"job": move.job, "fence": move.fence, **facts})


def began(at: float, move: Entry, number: int = 1, by: str = "p", **facts: Any) -> Entry:
    fields = {"attempt": number, "number": number, **facts}
    return of_run(at, "ticked", move, by=by, key=move.key, tick=move.tick, **fields)


def settled(at: float, move: Entry, outcome: str = "succeeded") -> Entry:
    return of_run(at, "settled", move, outcome=outcome, answer="settled")


def recovered(at: float, move: Entry, outcome: str) -> Entry:
    return of_run(at, "recovered", move, replica="r", outcome=outcome)


JOINED = [
    entry(0.1, "joined", replica="r", holder="p", ttl=10),
    entry(0.1, "joined", replica="s", holder="q", ttl=10),
    declares(0.1, by="q"),
]
BEGIN = [*JOINED, *registered(0.5, 0.5)]
RUN = ran(1, 0.5, 1)
AGAIN = ran(1, 0.5, 1, again=True)
TRIGGER = moved(1.5, 0, 1.5, answer="trigger", replica="", fence=0, again=True, job="x", ids=["x"])
RENAMED: dict[str, Any] = {"name": "u", "ids": ["t"]}
OPTION: dict[str, Any] = {"detail": "second", "revision": 2}
RULE: dict[str, Any] = {**OPTION, "answer": "every two seconds", "seconds": 2.0}

EMPTIED, FELL_BACK = entry(2, "emptied"), entry(2, "rolled back")
JOINED_ANEW = entry(2.4, "joined", replica="r", holder="p", ttl=10)
BEAT = entry(10, "beat", replica="r", ttl=10, ok=True)

RIGHT = {
    "tick by tick": [*RUN, began(1, RUN[0]), settled(1, RUN[0]), *ran(2, 1, 2)],
    "one missed": [*RUN, *ran(3, 1, 3, number=1)],
    "renamed": [*RUN, *registered(1.5, 1, **RENAMED), *ran(2, 1, 2, "u")],
    "renamed and rolled back": [
        *registered(1.5, 0.5, **RENAMED),
        *registered(6, 0.5, revision=2, taken=["u"]),
        *ran(6, 0.5, 6, number=5),
    ],
    "an option": [*registered(1.5, 0.5, **OPTION), *ran(1.6, 0.5, 1)],
    "a rule": [*registered(1.5, 1.5, **RULE), *ran(2, 1.5, 2)],
    "a rule, asked for a while ago": registered(1.5, 1.2, look=1.2, **RULE),
    "an older release yields": [*registered(1, 0.5, **OPTION), declared(2, ok=False)],
    "an older release takes over": [*registered(1, 0.5, **OPTION), *registered(4, 0.5, revision=3)],
    "an older release takes over after the clock was set back": [
        *registered(1000, 0.5, **OPTION),
        entry(1, "refused commit", key="t", outcome="stale", ids=["t"]),
        *registered(4, 0.5, revision=3),
    ],
    "paused": [*frozen(0.9), skipped(1, 0.5, 1, "paused")],
    "paused for a while": [*frozen(0.9, seconds=0.2), skipped(1, 0.5, 1, "paused"), *ran(2, 1, 2)],
    "paused under another name": [
        *frozen(0.9),
        *registered(0.95, 0.5, seen=FOR_EVER, **RENAMED),
        skipped(1, 0.5, 1, "paused", name="u"),
    ],
    "a former name is paused": [
        *registered(0.9, 0.5, **RENAMED),
        *frozen(0.95),
        *ran(1, 0.5, 1, "u"),
    ],
    "resumed": [
        *frozen(0.9, "*"),
        *thawed(1.5, "*"),
        skipped(1.6, 0.5, 1, "paused"),
        *ran(2, 1, 2),
    ],
    "paused until an instant, by the time that was told": [
        told_the_time(0.8),
        operates(0.9, "pause", seconds=0.3),
        entry(0.9, "frozen", key="t", holder="p", tick=round(1.1 * SECOND)),
        skipped(1, 0.5, 1, "paused"),
        *ran(2, 1, 2),
    ],
    "triggered while paused": [*frozen(0.9), TRIGGER],
    "triggered while the clock is set back": [replace(TRIGGER, now=SECOND)],
    "triggered": [
        TRIGGER,
        of_run(2, "claimed", TRIGGER, fence=7, replica="s", attempt=1),
        began(2, TRIGGER, by="q", fence=7),
        *ran(2, 0.5, 2, number=1),
    ],
    "tried again": [*RUN, began(1, RUN[0]), began(1.1, RUN[0], 2)],
    "run again": [
        *AGAIN,
        began(1, AGAIN[0]),
        recovered(3, AGAIN[0], "waiting"),
        of_run(4, "claimed", AGAIN[0], fence=4 * SECOND, replica="s", attempt=2),
        began(4, AGAIN[0], by="q", fence=4 * SECOND, attempt=2),
    ],
    "lost, and not told": [*RUN, recovered(3, RUN[0], "failed"), began(4, RUN[0])],
    "lost by the store": [
        *RUN,
        EMPTIED,
        began(2.1, RUN[0]),
        JOINED_ANEW,
        *registered(2.5, 2.5),
        *ran(3, 2.5, 3),
    ],
    "lost with its cursor": [
        entry(0.9, "copied"),
        *RUN,
        began(1, RUN[0]),
        FELL_BACK,
        *ran(2.1, 0.5, 1, job="x"),
        began(2.2, moved(2.1, 0.5, 1, job="x")),
    ],
    "lost, and asked for again": [
        entry(0.9, "copied"),
        *RUN,
        FELL_BACK,
        *ran(2.1, 0.5, 1),
        began(2.2, RUN[0]),
        began(2.3, moved(2.1, 0.5, 1)),
    ],
    "lost, and found again": [
        *RUN,
        entry(1.5, "copied"),
        entry(1.8, "emptied"),
        FELL_BACK,
        *ran(2.1, 1, 2),
    ],
    "lost with its end": [
        *RUN,
        entry(1.5, "copied"),
        settled(1.6, RUN[0]),
        FELL_BACK,
        settled(2.2, RUN[0], "handed back"),
    ],
    "lost with the name": [
        entry(0.9, "copied"),
        *registered(1, 0.5, **RENAMED),
        FELL_BACK,
        *ran(2.1, 0.5, 2, number=1),
        *registered(2.2, 2, **RENAMED),
    ],
    "lost, and both names begin anew": [
        EMPTIED,
        JOINED_ANEW,
        *registered(2.5, 2.5, "u", ids=["t"], taken=[]),
        *registered(2.6, 2.6),
        *ran(3, 2.5, 3, "u"),
        *ran(3.1, 2.6, 3, fence=7),
        *registered(3.5, 3, "u", ids=["t"]),
        *ran(4, 3, 4, "u"),
    ],
    "forgotten": [
        *RUN,
        settled(1.1, RUN[0]),
        forgotten(6),
        *registered(6.5, 6.5),
        *ran(7, 6.5, 7),
    ],
    "forgotten, and registered by a commit from before it was there": [
        looked(0.3, "q"),
        *registered(0.4, 0.4, "u"),
        forgotten(6, "u"),
        *registered(6.5, 0.3, "u", holder="q"),
    ],
    "forgotten with its successor": [
        *registered(1.5, 0.5, **RENAMED),
        forgotten(6.5, "u"),
        forgotten(6.5),
        *registered(7, 7),
    ],
    "a successor is forgotten": [
        *registered(1.5, 0.5, **RENAMED),
        forgotten(6.5, "u"),
        *registered(7, 7, revision=2),
    ],
    "a successor is forgotten, and comes back": [
        *registered(1.5, 0.5, **RENAMED),
        forgotten(6.5, "u"),
        *registered(7, 7, **RENAMED),
    ],
    "a pause is forgotten with its name": [
        *registered(0.7, 0.5, **RENAMED),
        *frozen(0.9, "u"),
        forgotten(6.5, "u"),
        *registered(7, 7, revision=2),
        *ran(8, 7, 8),
    ],
    "reset": [
        *RUN,
        settled(1.1, RUN[0]),
        *reset(0.6, 1, 0.6),
        *ran(1.2, 0.6, 1, job="x"),
    ],
}

WRONG = {
    "after a loss, run twice": [
        EMPTIED,
        JOINED_ANEW,
        *registered(2.5, 2.5),
        *ran(3, 2.5, 3),
        *ran(3.5, 2.5, 3, job="x"),
    ],
    "after a loss, moved from where it was before": [
        entry(0.9, "copied"),
        *RUN,
        FELL_BACK,
        *ran(2.1, 1, 2, number=1),
    ],
    "after a loss, passed in silence": [entry(0.9, "copied"), *RUN, FELL_BACK, *ran(2.1, 0.5, 2)],
    "after a loss, a run that has ended goes on": [
        *RUN,
        settled(1.2, RUN[0]),
        entry(1.5, "copied"),
        FELL_BACK,
        settled(2.2, RUN[0], "handed back"),
    ],
    "after a loss, begun by another": [*RUN, EMPTIED, began(2.1, RUN[0], by="q")],
    "after a loss, on a replica that the store does not know": [
        EMPTIED,
        *registered(2.5, 2.5),
        *ran(3, 2.5, 3),
    ],
    "after a loss, a pause that is lost although it was there": [
        *frozen(0.9),
        entry(1, "copied"),
        FELL_BACK,
        *ran(2.1, 0.5, 2, number=1),
    ],
    "run twice": [*RUN, *ran(1.5, 0.5, 1)],
    "moved from elsewhere": ran(2, 1, 2),
    "early": ran(1, 0.5, 2, number=1),
    "passed in silence": ran(3, 0.5, 3),
    "passed without a line": ran(3, 0.5, 3, number=2, lines=[("ran", "", *[3 * SECOND] * 2, 1)]),
    "run without a line": ran(1, 0.5, 1, lines=[]),
    "two lines of one run": ran(1, 0.5, 1, lines=2 * [("ran", "", *[SECOND] * 2, 1)]),
    "a line of a run that is none": [skipped(1, 0.5, 1, "", lines=[("ran", "", *[SECOND] * 2, 1)])],
    "moved by nobody": [moved(1, 0, 1)],
    "under both names": [*RUN, *registered(1.5, 0.5, **RENAMED), *ran(1.6, 0.5, 1, "u")],
    "a former name ticks": [*registered(0.9, 0.5, **RENAMED), *RUN],
    "a former name rules": [
        *registered(0.9, 0.5, **RENAMED),
        *registered(1, 0.5, revision=2, taken=["u"]),
    ],
    "a rename that leaves the former name alone": registered(0.9, 0.5, taken=[], **RENAMED),
    "an option drops ticks": registered(1.5, 1.5, **OPTION),
    "a rule makes up for ticks": registered(1.5, 0.5, **RULE),
    "a rule begins at an instant that nobody was told": registered(1.5, 1.4, **RULE),
    "an older definition rules": [*registered(1, 0.5, **OPTION), *registered(2, 0.5, revision=3)],
    "an older definition ticks": [*registered(0.9, 0.5, holder="q", **OPTION), *RUN],
    "a revision again": registered(0.9, 0.5, detail="second"),
    "the ruling one is refused": [declared(0.9, ok=False)],
    "another one than the ruling one is heard": [declared(0.9, detail="second")],
    "registered by a process that does not declare it": [
        entry for entry in registered(0.9, 0.5, **OPTION) if entry.what != "declares"
    ],
    "changed by a refusal": [entry(1, "changed by a refusal", key="t", outcome="stale")],
    "run while paused": [*frozen(0.9), *RUN],
    "run while all are frozen": [*frozen(0.9, "*"), *RUN],
    "paused by nobody": [skipped(1, 0.5, 1, "paused")],
    "a pause that nobody has asked for": frozen(0.9)[-1:],
    "a pause that is too long": [*frozen(0.9, seconds=0.2)[:-1], frozen(0.9, seconds=2)[-1]],
    "a pause that is for ever": [*frozen(0.9, seconds=0.2)[:-1], frozen(0.9)[-1]],
    "a pause that ends by itself": [*frozen(0.9), thawed(1)[-1]],
    "a pause that ends too early": [*frozen(0.9), *thawed(1.5, until=0.6)],
    "a pause that is lost with the name": [*frozen(0.9), *registered(0.95, 0.5, **RENAMED)],
    "a pause that went with the name, and is not kept": [
        *frozen(0.9),
        *registered(0.95, 0.5, seen=FOR_EVER, **RENAMED),
        *ran(1, 0.5, 1, "u"),
    ],
    "a pause that comes with a name": registered(0.9, 0.5, seen=FOR_EVER, **OPTION),
    "a trigger that moves the cursor": [TRIGGER, *ran(2, 1.5, 2)],
    "a trigger that moves the cursor itself": [replace(TRIGGER, seen=SECOND // 2)],
    "begun twice": [*RUN, began(1, RUN[0]), began(1.1, RUN[0])],
    "begun by another": [*RUN, began(1, RUN[0], by="q")],
    "begun by nobody's leave": [began(1, RUN[0])],
    "begun after its end": [*RUN, settled(1, RUN[0], "handed back"), began(1.1, RUN[0])],
    "begun after it was told": [
        *RUN,
        recovered(3, RUN[0], "failed"),
        entry(3, "event", by="p", detail="ReplicaLost", replica="r"),
        began(4, RUN[0]),
    ],
    "two at once": [
        *AGAIN,
        of_run(4, "claimed", AGAIN[0], fence=4 * SECOND, replica="s", attempt=2),
    ],
    "born where nobody lives": ran(20, 0.5, 20, number=19),
    "lost, and run again": [*RUN, recovered(3, RUN[0], "waiting")],
    "a fence that falls": [*RUN, *ran(2, 1, 2, fence=5)],
    "a fence that falls with a name": [
        *RUN,
        *registered(1.5, 1, **RENAMED),
        *ran(2, 1, 2, "u", fence=5),
    ],
    "forgotten too early": [forgotten(2)],
    "forgotten although it was declared": [declared(2), forgotten(6)],
    "forgotten with a run": [*RUN, forgotten(6)],
    "forgotten before its successor": [
        *registered(1.5, 0.5, **RENAMED),
        forgotten(6.5),
    ],
    "forgotten, and run again": [
        *RUN,
        settled(1.1, RUN[0]),
        forgotten(6),
        *registered(6.5, 0.5, look=0.5),
        *ran(6.6, 0.5, 1, job="x"),
    ],
    "forgotten, and registered by a commit from when it was there": [
        *registered(0.4, 0.4, "u"),
        looked(0.7, "q"),
        forgotten(6, "u"),
        *registered(6.5, 0.7, "u", holder="q"),
    ],
    "a successor is forgotten, and its ticks are not": [
        *registered(1.5, 0.5, **RENAMED),
        forgotten(6.5, "u"),
        *registered(7, 0.5, revision=2),
    ],
    "a successor comes back, and its ticks with it": [
        *registered(1.5, 0.5, **RENAMED),
        forgotten(6.5, "u"),
        *registered(7, 0.5, **RENAMED),
    ],
    "reset to the past": [*ran(3, 0.5, 3, number=2), *reset(4, 3, 1)],
    "reset by nobody": [*RUN, reset(0.6, 1, 0.6)[-1]],
}


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT)
def test_ticks_that_are_right(history: list[Entry]):
    assert check_ticks([*BEGIN, *history], declared_for=3.0, forgotten_after=5.0)[0] == []


@pytest.mark.parametrize("history", WRONG.values(), ids=WRONG)
def test_ticks_that_are_wrong(history: list[Entry]):
    assert check_ticks([*BEGIN, *history], declared_for=3.0, forgotten_after=5.0)[0]


@pytest.mark.parametrize(("declared_at", "wrong"), [(1.2, 0), (1.5, 1)])
def test_a_declaration_counts_if_it_is_not_too_young(declared_at: float, wrong: int):
    """A store need not write down each of them."""
    history = [*registered(1, 0.5, **OPTION), declared(declared_at, detail="second")]
    history += registered(4.1, 0.5, revision=3)
    complaints, _ = check_ticks([*BEGIN, *history], declared_for=3.0, declared_anew_after=0.5)
    assert len(complaints) == wrong


def held(at: float, seen: float, tick: float, **facts: Any) -> Entry:
    fields = {"outcome": "held", "detail": "full", "job": "", "fence": 0, **facts}
    return moved(at, seen, tick, **fields)


def refused(at: float, move: Entry, *in_the_way: str) -> Entry:
    return entry(at, "received full", by="p", key="t", job=move.ids[0], ids=list(in_the_way))


HELD, HELD_AGAIN = held(2, 1, 2), held(2.5, 1, 2, ids=["t 2, again"])
REFUSAL = refused(2.1, HELD, "t 1")
CANCELS = entry(2.1, "sent cancel", by="p", ids=["t 1"])
NEWEST = {"overlap": "cancel_previous"}
QUEUED = {"overlap": "queue_one"}
EACH = {"each": "replica", "overlap": "skip"}
OWN = {"each": "replica"}
RESTS = {"rests": True, "overlap": "skip"}
RESTS_AND_ALLOWS = {"rests": True, "overlap": "allow"}
BORN_HERE = {"each": "cluster", "per_replica": 1}

# The options of the definition, and what comes of its ticks from second 1 on.
KEPT: dict[str, tuple[dict[str, Any], list[Entry]]] = {
    "up to its limit": ({"limit": 2}, [*ran(1, 0.5, 1), *ran(2, 1, 2)]),
    "skipped at its limit": ({"limit": 1}, [*RUN, skipped(2, 1, 2, "limit")]),
    "skipped": ({"overlap": "skip"}, [*RUN, skipped(2, 1, 2, "overlap")]),
    "waits": (QUEUED, [*RUN, HELD, settled(2.5, RUN[0]), *ran(2.5, 1, 2)]),
    "waits, and cancels nobody": (QUEUED, [*RUN, HELD, REFUSAL, HELD_AGAIN]),
    "waits for a place here": (BORN_HERE, [*RUN, held(2, 1, 2, detail="per_replica")]),
    "cancels": (NEWEST, [*RUN, HELD, REFUSAL, CANCELS, HELD_AGAIN]),
    "cancels when it is told": (NEWEST, [*RUN, HELD, HELD_AGAIN]),
    "arrives twice before it cancels": (NEWEST, [*RUN, HELD, REFUSAL, HELD, CANCELS, HELD_AGAIN]),
    "a trigger cancels nobody": (
        NEWEST,
        [*RUN, held(2, 0, 2, answer="trigger"), REFUSAL, HELD_AGAIN],
    ),
    "waits to be made up for": ({"overlap": "skip", "catch_up": "all"}, [*RUN, held(9, 1, 2)]),
    "all made up for": ({"catch_up": "all"}, [*ran(9, 0.5, 1), *ran(9.1, 1, 2)]),
    "too many to make up for": ({"catch_up": "all"}, [BEAT, *ran(19, 0.5, 9, number=8)]),
    "one on each replica": (
        EACH,
        [*ran(1, 0, 1), *ran(1.1, 0, 1, replica="s", holder="q", job="x")],
    ),
    "own": (OWN, [*ran(1, 0, 1), *ran(3, 0, 3, number=1)]),
    "own, counted from another look": (OWN, [looked(2.5), *ran(3, 0, 3)]),
    "own, arrived late": (
        {**OWN, "per_replica": 1},
        [*ran(2, 0, 2, number=1), skipped(3, 0, 1, "per_replica")],
    ),
    "rests, beside a run from when that was allowed": (
        RESTS_AND_ALLOWS,
        [
            *ran(1.5, 0.5, 1.5),
            TRIGGER,
            of_run(1.7, "claimed", TRIGGER, fence=7, replica="s", attempt=1),
            of_run(1.8, "settled", TRIGGER, fence=7, outcome="succeeded", answer="settled"),
            *registered(2, 1.5, definition=definition(**RESTS), **{**OPTION, "seconds": 0.0}),
            skipped(3, 1.5, 3, "overlap"),
        ],
    ),
    "rests": (RESTS, [*ran(1.5, 0.5, 1.5), settled(2, moved(1.5, 0.5, 1.5)), *ran(3, 1.5, 3)]),
}
BROKEN: dict[str, tuple[dict[str, Any], list[Entry]]] = {
    "beyond its limit": ({"limit": 1}, [*ran(1, 0.5, 1, limit=9), *ran(2, 1, 2, limit=9)]),
    "skipped below its limit": ({"limit": 2}, [*RUN, skipped(2, 1, 2, "limit")]),
    "skipped without need": ({"overlap": "skip"}, [skipped(1, 0.5, 1, "overlap")]),
    "two at once": ({"overlap": "skip"}, [*RUN, *ran(2, 1, 2)]),
    "does not skip": ({"overlap": "skip"}, [*RUN, HELD]),
    "waits although it may be skipped": ({"limit": 1}, [*RUN, HELD]),
    "waits for nothing": (QUEUED, [held(1, 0.5, 1)]),
    "waits for nothing here": (BORN_HERE, [held(1, 0.5, 1, detail="per_replica")]),
    "skipped with a place here": (
        {**OWN, "per_replica": 2},
        [*ran(1, 0, 1), skipped(2, 0, 2, "per_replica")],
    ),
    "queued beside another": (QUEUED, [*RUN, *ran(2, 1, 2)]),
    "queued and dropped": (QUEUED, [*RUN, skipped(2, 1, 2, "overlap")]),
    "cancels nobody": (NEWEST, [*RUN, HELD, REFUSAL, HELD_AGAIN]),
    "cancels another one": (
        NEWEST,
        [*RUN, HELD, REFUSAL, replace(CANCELS, ids=["x"]), HELD_AGAIN],
    ),
    "cancelled and not waited for": (NEWEST, [*RUN, HELD, REFUSAL, CANCELS, *ran(3, 1, 2)]),
    "not made up for": ({"catch_up": "all"}, ran(9, 0.5, 9, number=8)),
    "two on one replica": (EACH, [*ran(1, 0, 1), *ran(2, 0, 2)]),
    "triggered beyond its limit": ({"limit": 1}, [*RUN, TRIGGER]),
    "an own tick left out": (OWN, [*ran(1, 0, 1), *ran(3, 0, 3)]),
    "own ticks left out before the time was asked for": (OWN, [told_the_time(2.5), *ran(3, 0, 3)]),
    "an own tick run twice": (
        OWN,
        [
            *ran(1, 0, 1),
            began(1, moved(1, 0, 1)),
            *ran(1.5, 0, 1, job="x"),
            began(1.5, moved(1.5, 0, 1, job="x")),
        ],
    ),
    "an own tick that moves the cursor": (OWN, ran(1, 0.5, 1)),
    "does not rest after a tick": (RESTS, ran(1.2, 0.5, 1.2)),
    "does not wait for the end of the last run": (
        RESTS_AND_ALLOWS,
        [*ran(1.5, 0.5, 1.5), *ran(3, 1.5, 3)],
    ),
    "does not wait for the end of a triggered run": (RESTS_AND_ALLOWS, [TRIGGER, *ran(3, 0.5, 3)]),
    "does not rest": (
        RESTS,
        [*ran(1.5, 0.5, 1.5), settled(2, moved(1.5, 0.5, 1.5)), *ran(2.6, 1.5, 2.6)],
    ),
    "drops a tick instead of waiting": (
        RESTS,
        [*ran(1.5, 0.5, 1.5), skipped(3, 1.5, 3, "overlap")],
    ),
}


def wrong_with(options: dict[str, Any], history: list[Entry]) -> list[str]:
    seconds = 0.0 if options.get("rests") else 1.0
    begin = [*JOINED, *registered(0.5, 0.5, definition=definition(**options), seconds=seconds)]
    return check_ticks([*begin, *history], declared_for=3.0)[0]


@pytest.mark.parametrize(("options", "history"), KEPT.values(), ids=KEPT)
def test_options_that_are_kept(options: dict[str, Any], history: list[Entry]):
    assert wrong_with(options, history) == []


@pytest.mark.parametrize(("options", "history"), BROKEN.values(), ids=BROKEN)
def test_options_that_are_broken(options: dict[str, Any], history: list[Entry]):
    assert len(wrong_with(options, history)) == 1
