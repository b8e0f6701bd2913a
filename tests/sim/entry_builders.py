"""Builds entries for the tests of the checkers, which write histories by hand."""

from typing import Any

from tests.sim.history import Entry

SECOND = 1_000_000


def entry(at: float, what: str, by: str = "store", **facts: Any) -> Entry:
    return Entry(at=at, by=by, what=what, now=round(at * SECOND), **facts)


def granted(at: float, holder: str, fence: int, *, ttl: float = 10, limit: int = 1) -> Entry:
    return entry(at, "granted", key="k", holder=holder, fence=fence, ttl=ttl, limit=limit)


def of_holder(at: float, what: str, holder: str, fence: int, **facts: Any) -> Entry:
    return entry(at, what, key="k", holder=holder, fence=fence, **facts)


def of_job(at: float, what: str, fence: int = 0, **facts: Any) -> Entry:
    return entry(at, what, job="j", fence=fence, **facts)


def settled(
    at: float, fence: int, outcome: str = "succeeded", answer: str = "settled", **facts: Any
) -> Entry:
    return of_job(at, "settled", fence, outcome=outcome, answer=answer, **facts)


def recovered(at: float, outcome: str = "waiting", number: int = 1, fence: int = 3) -> list[Entry]:
    by = round(at * SECOND)
    facts: dict[str, Any] = {"outcome": outcome, "number": number, "seconds": 25, "seen": by}
    dead = entry(at, "declared dead", replica="r", seen=by)
    lost = of_job(at, "recovered", fence, replica="r", **facts)
    return [dead, lost, entry(at, "removed", replica="r")]
