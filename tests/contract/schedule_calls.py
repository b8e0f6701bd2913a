"""The schedule calls that tests make all the time."""

from itertools import count

from tenure.core.records import JobRecord
from tenure.core.schedules import Advance, Advanced, Bound, Full, Planted, Planting, ScheduleRecord
from tenure.stores.contract import Store
from tests.contract.job_calls import id_of, new

__all__ = ["SECOND", "TIMERS", "bound", "look_at", "move", "plant", "planting", "run", "tick"]

SECOND = 1_000_000
TIMERS = "@timers"

_numbers = count(1000)


def planting(name: str = "sync", definition: bytes = b"first", **details) -> Planting:
    """Return a schedule to plant; its digest and its calendar follow from its definition."""
    digest = definition.decode()
    given = {"calendar": digest, **details}
    return Planting(name=name, digest=digest, definition=definition, **given)


async def plant(store: Store, name: str = "sync", definition: bytes = b"first") -> Planted:
    """Plant one schedule."""
    (planted,) = await store.plant([planting(name, definition)])
    return planted


async def look_at(store: Store, name: str = "sync") -> ScheduleRecord:
    """Return a schedule that is there."""
    (found,) = await store.schedules([name])
    return found


def bound(most: int, reason: str = "limit", full: Full = "skip") -> Bound:
    return Bound(most=most, reason=reason, full=full)


def move(
    planted: Planted, to: int, *, name: str = "sync", rerun: bool = False, **details
) -> Advance:
    """Return a move from the cursor as it was planted, with a run unless `run=None`."""
    number = next(_numbers)
    given = {
        "id": id_of(number),
        "name": name,
        "revision": planted.revision,
        "seen": planted.cursor,
        "to": to,
        "due": to,
        "run": new(number, task="@sync", queue=TIMERS, schedule=name, rerun=rerun, retention=60.0),
        **details,
    }
    return Advance(**given)


async def tick(store: Store, to: int, *, name: str = "sync", **details) -> Advanced:
    """Move the cursor from where it is."""
    now = await look_at(store, name)
    from_here = Planted(revision=now.revision, cursor=now.cursor, now=0)
    return await store.advance(move(from_here, to, name=name, **details))


async def run(store: Store, to: int, **details) -> JobRecord:
    """Move the cursor, and have a run of it."""
    answer = await tick(store, to, **details)
    assert answer.outcome == "done", answer
    assert answer.run is not None
    return answer.run
