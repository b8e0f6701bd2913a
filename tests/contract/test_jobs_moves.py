"""Random calls in random order: jobs change state only as the table of moves allows."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.states import FINISHED, MOVES, Move
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import ENDS, TTL, claim, ended, id_of, join, new, prune_jobs
from tests.rig.endings import bury, leave, recover
from tests.rig.sizes import SIZE

COUNTERS = ("attempt", "failures", "losses")
NUMBERS = range(6)

BY_SETTLING = {
    "succeeded": "succeed",
    "failed": "fail",
    "retry": "retry",
    "handed back": "hand back",
    "cancelled": "confirm",
}


class Walk:
    """Random calls to one store."""

    def __init__(self, store: Store, clock: ManualClock, seed: int) -> None:
        self.store = store
        self.clock = clock
        self.chance = random.Random(seed)
        self.seen: list[JobRecord] = []

    async def insert(self) -> set[str]:
        number = self.chance.choice(NUMBERS)
        delay = self.chance.choice([0.0, 0.0, 5.0])
        await self.store.jobs.insert([new(number, delay=delay, timeout=7, retention=30)])
        return {"insert"}

    async def claim(self) -> set[str]:
        replica = self.chance.choice("pq")
        await join(self.store, replica)
        if replica in {record.id for record in await self.store.jobs.replicas() if not record.dead}:
            self.seen += await claim(self.store, replica, limit=self.chance.choice([1, 3]))
        return {"claim"}

    async def settle(self) -> set[str]:
        outcome = self.chance.choice(list(ENDS))
        if self.seen:
            job = self.chance.choice(self.seen[-4:])
            await self.store.jobs.settle([ended(job, outcome)])
        return {BY_SETTLING[outcome], "stop"}

    async def recover(self) -> set[str]:
        await recover(self.store, delays=[0.0, 5.0], grace=0, limit=2)
        return {"recover", "give up", "stop"}

    async def bury(self) -> set[str]:
        started = [id_of(number) for number in NUMBERS[:3]]
        await bury(self.store, self.chance.choice("pq"), started, delays=[0.0])
        return {"recover", "hand back", "give up", "stop"}

    async def leave(self) -> set[str]:
        await leave(self.store, self.chance.choice("pq"))
        return {"hand back", "stop"}

    async def cancel(self) -> set[str]:
        await self.store.jobs.cancel([id_of(self.chance.choice(NUMBERS))])
        return {"cancel"}

    async def requeue(self) -> set[str]:
        await self.store.jobs.requeue([id_of(number) for number in self.chance.sample(NUMBERS, 3)])
        return {"requeue"}

    async def prune(self) -> set[str]:
        await prune_jobs(self.store)
        return set()

    async def beat(self) -> set[str]:
        await self.store.jobs.beat(["p", "q"], ttl=TTL)
        return set()

    async def pass_time(self) -> set[str]:
        self.clock.shift(self.chance.choice([0.5, 3.0, TTL]))
        return set()

    def steps(self) -> list[Callable[[], Awaitable[set[str]]]]:
        often = [self.insert, self.claim, self.claim, self.settle, self.settle, self.recover]
        return [
            *often,
            self.bury,
            self.leave,
            self.cancel,
            self.requeue,
            self.prune,
            self.beat,
            self.pass_time,
        ]


def counted(before: JobRecord | None, after: JobRecord) -> dict[str, int]:
    return {
        name: getattr(after, name) - (getattr(before, name) if before else 0) for name in COUNTERS
    }


def fits(move: Move, before: JobRecord | None, after: JobRecord) -> bool:
    """Return whether a job may have made this move, and its counts fit."""
    if (move.start, move.end) != (before and before.state, after.state):
        return False
    counts = counted(before, after)
    if move.call == "requeue":
        return (after.failures, after.losses, counts["attempt"]) == (0, 0, 0)
    if move.call == "stop":  # counts what a return to waiting would have counted
        return counts["attempt"] == 0 and counts["failures"] + counts["losses"] <= 1
    return counts == {name: int(name == move.counts) for name in COUNTERS}


def check(calls: set[str], before: JobRecord | None, after: JobRecord | None) -> None:
    if after is None:
        assert before is None or before.state in FINISHED
    elif before is None or before.state != after.state:
        ways = [move for move in MOVES if move.call in calls and fits(move, before, after)]
        assert ways, f"{calls} made {before} into {after}"
    else:
        assert not any(counted(before, after).values())
    if before is not None and after is not None and before != after:
        assert after.revision > before.revision
        assert after.fence >= before.fence


def check_record(job: JobRecord) -> None:
    """Check the invariants of a job."""
    assert (job.state == "running") == bool(job.replica)
    assert (job.state in FINISHED) == bool(job.finished)
    assert not job.cancelling or job.state == "running"
    assert (job.attempt > 0) == bool(job.started)


@pytest.mark.parametrize("seed", range(4))
async def test_jobs_change_state_only_as_the_table_allows(
    store: Store, clock: ManualClock, seed: int
):
    walk = Walk(store, clock, seed)
    ids = [id_of(number) for number in NUMBERS]
    made: set[tuple[Any, Any]] = set()
    for _ in range(10 * SIZE.steps):
        before = await store.jobs.get(ids)
        calls = await walk.chance.choice(walk.steps())()
        after = await store.jobs.get(ids)
        for old, now in zip(before, after, strict=True):
            check(calls, old, now)
            made.add((old and old.state, now and now.state))
            if now is not None:
                check_record(now)
    assert {(move.start, move.end) for move in MOVES} <= made
