"""The checkers of leases and of their holders, on histories written by hand."""

import pytest

from tests.sim.checks.critical_sections import check_sections
from tests.sim.checks.effects import check_effects, check_once
from tests.sim.checks.leases import check_leases
from tests.sim.entry_builders import entry, granted, of_holder
from tests.sim.history import Entry


def busy(at: float, holder: str, life: float = 3, limit: int = 1) -> Entry:
    return entry(at, "busy", key="k", holder=holder, limit=limit, ttl=life)


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
    "behind a smaller limit": [
        granted(1, "a", 1, limit=5),
        granted(1, "b", 2, limit=5),
        busy(1, "c", limit=2),
        busy(2, "d", limit=5),
        of_holder(2, "released", "a", 1, ok=True),
        granted(2, "c", 3, limit=2),
        busy(2, "d", limit=5),
    ],
    "before a smaller limit": [
        granted(1, "a", 1, limit=2),
        granted(1, "b", 2, limit=2),
        busy(1, "c", limit=2),
        busy(1, "d", limit=1),
        of_holder(2, "released", "a", 1, ok=True),
        granted(2, "c", 3, limit=2),
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
        entry(2, "rolled back"),
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
    "a waiter overtaken by a larger limit": [
        granted(1, "a", 1, limit=5),
        granted(1, "b", 2, limit=5),
        busy(1, "c", limit=2),
        granted(2, "d", 3, limit=5),
    ],
    "refused although free": [busy(1, "a")],
    "refused for a smaller limit behind it": [
        granted(1, "a", 1, limit=2),
        granted(1, "b", 2, limit=2),
        busy(1, "c", limit=2),
        busy(1, "d", limit=1),
        of_holder(2, "released", "a", 1, ok=True),
        busy(2, "c", limit=2),
    ],
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


def test_sections_of_holders_alone():
    def of(by: str, at: float, what: str, fence: int) -> Entry:
        return Entry(at=at, by=by, what=what, key="k", fence=fence, limit=1)

    first = [of("a", 1, "entered", 1), of("a", 3, "leaves", 1)]
    late = [of("b", 2, "entered", 2), of("b", 4, "leaves", 2)]
    assert not check_sections([*first, of("b", 3, "entered", 2), of("b", 4, "leaves", 2)])
    assert len(check_sections([*first, *late])) == 1
    assert not check_sections([*first, *late, of("a", 3.5, "notified of loss", 1)])
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


def test_a_lease_that_lasts_goes_to_no_other_holder():
    def of(by: str, at: float, what: str, fence: int, seconds: float = 0) -> Entry:
        return Entry(at=at, by=by, what=what, key="k", fence=fence, limit=1, seconds=seconds)

    def entered(by: str, at: float, fence: int, lasts: float) -> list[Entry]:
        return [of(by, at, "entered", fence), of(by, at, "acts", fence, lasts)]

    first, notice = entered("a", 1, 1, 3), of("a", 5, "notified of loss", 1)
    crash = Entry(at=1.5, by="world", what="crash", detail="a")
    for end in (notice, crash):
        assert len(check_sections([*first, *entered("b", 2, 2, 3), end])) == 1
        assert not check_sections([*first, *entered("b", 4, 2, 3), end])
    robbed = [*first, *entered("b", 2, 2, 3), notice, of("b", 5, "notified of loss", 2)]
    assert len(check_sections(robbed)) == 1
    late = [*entered("b", 2, 2, 0), of("b", 2, "noticed loss", 2)]
    assert not check_sections([*first, *late, of("a", 3, "leaves", 1)])
    woken = [of("a", 5, "acts", 1, 0), notice]
    assert not check_sections([*first, *entered("b", 4, 2, 3), *woken])
    left = [*first, of("a", 1.5, "leaves", 1), crash]
    assert not check_sections([*left, *entered("b", 2, 2, 3), notice])


def test_effects():
    grants = [granted(1, "a", 1), granted(2, "b", 2)]

    def effects(*fences: tuple[int, bool]) -> list[Entry]:
        return [
            *grants,
            *(entry(3, "effect", by="resource", key="k", fence=f, ok=o) for f, o in fences),
        ]

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
