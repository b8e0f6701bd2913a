"""Calls about schedules that most tests of the store contract make."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from tenure.core.jobs.records import JobRecord
from tenure.core.schedules.records import (
    TIMERS_QUEUE,
    Commit,
    Committed,
    Expected,
    ScheduleHead,
    ScheduleRecord,
    TickLine,
    Write,
)
from tenure.stores.contract import Store
from tests.contract.job_calls import find_all, id_of, new
from tests.rig.lookups import decisions

__all__ = [
    "TICK",
    "as_expected",
    "as_found",
    "create",
    "everything",
    "look_at",
    "plan",
    "plan_run",
    "rewrite",
    "run",
    "send",
    "tick_line",
]

TICK = 1_700_000_000_000_000
"""A nominal instant; long before the clock of the tests."""

_numbers = count(1000)


def plan(of: ScheduleRecord | str = "sync", **details: Any) -> Commit:
    """Return a commit that expects a schedule as it was read; for a name: that it is unknown."""
    expected = as_expected(of)
    defaults = {"id": id_of(next(_numbers)), "name": expected.name, "expects": (expected,)}
    return Commit(**{**defaults, **details})


def plan_run(
    of: ScheduleRecord | str = "sync", *, job: Mapping[str, Any] | None = None, **details: Any
) -> Commit:
    """Return a commit with a run, which waits unless `start_on` is given."""
    number = next(_numbers)
    name = as_expected(of).name
    defaults = {"task": "@sync", "queue": TIMERS_QUEUE, "schedule": name, "retention": 60.0}
    made = new(number, **{**defaults, **(job or {})})
    return plan(of, **{"id": made.id, "run": made, "tick": TICK, **details})


def as_expected(of: ScheduleRecord | str, silent_for: float | None = None) -> Expected:
    """Return the expectation that a schedule is as it was read; for a name: that it is unknown."""
    if isinstance(of, str):
        return Expected(of, "", silent_for)
    return Expected(of.name, of.version, silent_for)


def as_found(record: ScheduleRecord) -> ScheduleHead:
    """Return how a refusal describes a schedule."""
    return ScheduleHead(
        record.name,
        record.version,
        record.standing,
        record.ruler,
        record.last_run,
        record.last_job,
    )


def tick_line(body: str = "ran", *, like: str = "", first: int = TICK, **details: Any) -> TickLine:
    """Return a line of history, of one tick by default."""
    return TickLine(**{"like": like, "first": first, "last": first, "body": body, **details})


async def send(store: Store, commit: Commit) -> Committed:
    """Send one commit; return any answer."""
    (answer,) = await store.schedules.commit([commit])
    return answer


async def create(store: Store, name: str = "sync", **details: Any) -> ScheduleRecord:
    """Create a schedule that does not exist yet."""
    defaults = {"standing": "standing", "ruler": "ruler", "definition": "definition"}
    answer = await send(store, plan(name, writes=(Write(name, **{**defaults, **details}),)))
    assert answer.outcome == "done", answer
    return await look_at(store, name)


async def rewrite(store: Store, record: ScheduleRecord, **details: Any) -> ScheduleRecord:
    """Write a schedule that has not changed since it was read."""
    defaults = {"standing": record.standing, "ruler": record.ruler}
    write = Write(record.name, **{**defaults, **details})
    answer = await send(store, plan(record, writes=(write,)))
    assert answer.outcome == "done", answer
    return await look_at(store, record.name)


async def run(store: Store, of: ScheduleRecord | str, **details: Any) -> JobRecord:
    """Commit a run of a schedule."""
    answer = await send(store, plan_run(of, **details))
    assert answer.outcome == "done", answer
    assert answer.run is not None
    return answer.run


async def look_at(store: Store, name: str = "sync") -> ScheduleRecord:
    """Return an existing schedule."""
    (record,) = (await store.schedules.read([name])).records
    return record


async def everything(store: Store) -> list[Any]:
    """Return all schedules and jobs of the store."""
    records = (await store.schedules.read()).records
    histories = [await decisions(store, record.name) for record in records]
    return [records, histories, await find_all(store)]
