"""One scenario on the tree that PYTHONPATH names; it uses only what both trees have.

`recover URL JOBS`: a replica dies with so many jobs, another one recovers them.
`burst URL TIMERS REPLICAS`: that many timers on each replica are due at one instant.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from tenure import Tenure, Tick
from tenure.testing import Faults, FaultyStore

SLICE = 200
# Seconds after the instant by which all ticks are decided, on a machine with two cores.
WINDOW = 25.0


async def recover(url: str, jobs: int) -> dict[str, Any]:
    faults = Faults()
    app = Tenure(FaultyStore(url, faults))

    @app.task
    async def work() -> None: ...

    async with app:
        store: Any = app._store  # noqa: SLF001 - what a dead process did has no public call
        jobs_of: Any = getattr(store, "jobs", store)  # before stores were composed of parts
        for _ in range(jobs // SLICE):
            await app.enqueue_many([work.request() for _ in range(SLICE)])
        if jobs_of is store:
            await jobs_of.join("dead", ttl=0.5, meta={})
        else:
            await jobs_of.beat(["dead"], ttl=0.5, meta={})
        for number in range(jobs // SLICE):
            await jobs_of.claim("dead", number + 1, ["default"], SLICE)
            await jobs_of.beat(["dead"], ttl=0.5)
        await asyncio.sleep(1)
        before, begin = Counter(faults.calls), time.perf_counter()
        recovered = await app.recover()
        seconds = time.perf_counter() - begin
        calls = Counter(faults.calls) - before
    count = recovered if isinstance(recovered, int) else len(recovered)
    assert count == jobs, f"{count} of {jobs}"
    return {"seconds": seconds, "calls": calls.total()}


class Replica:
    """One app of the fleet in this process, with counts of its store calls."""

    def __init__(self, url: str, timers: int, late: dict[str, float]) -> None:
        self.faults = Faults()
        store = _Counting(FaultyStore(url, self.faults))
        self.answers = store.outcomes
        self.app = Tenure(store)

        async def work(tick: Tick) -> None:
            at = f"{tick.name} {tick.nominal}"
            assert at not in late, "a tick ran twice"
            late[at] = time.time() - tick.scheduled.timestamp()

        for number in range(timers):
            self.app.timer(cron="*/1 * * * *", name=f"timer {number}")(work)


class _Counting:
    """Counts how the store answers ticks: moves, commits, and those sent through a part of it."""

    def __init__(self, store: Any, outcomes: Counter[str] | None = None) -> None:
        self._store = store
        self.outcomes: Counter[str] = Counter() if outcomes is None else outcomes
        if hasattr(store, "schedules") and not callable(store.schedules):
            self.schedules = _Counting(store.schedules, self.outcomes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def clone(self) -> Any:
        return self._store.clone()

    async def advance(self, move: Any) -> Any:
        answer = await self._store.advance(move)
        self.outcomes[answer.outcome] += 1
        return answer

    async def commit(self, commits: Any) -> Any:
        answers = await self._store.commit(commits)
        self.outcomes.update(answer.outcome for answer in answers)
        return answers


async def burst(url: str, timers: int, replicas: int) -> dict[str, Any]:
    late: dict[str, float] = {}
    fleet = [Replica(url, timers, late) for _ in range(replicas)]
    # Start early in a minute: all replicas have to join before the next instant.
    if (passed := time.time() % 60) > 20:
        await asyncio.sleep(60 - passed)
    async with AsyncExitStack() as stack:
        for replica in fleet:
            await stack.enter_async_context(replica.app)
            await stack.enter_async_context(replica.app.worker(timer_concurrency=timers))
        assert time.time() % 60 < 55, "the replicas took too long to start"
        before = [Counter(replica.faults.calls) for replica in fleet]
        outcomes = [Counter(replica.answers) for replica in fleet]
        await asyncio.sleep(60 - time.time() % 60 + WINDOW)
        calls = [
            Counter(replica.faults.calls) - then
            for replica, then in zip(fleet, before, strict=True)
        ]
        answers = [replica.answers - then for replica, then in zip(fleet, outcomes, strict=True)]
    assert len(late) == timers, f"{len(late)} of {timers} ticks ran"
    return {
        "late": sorted(late.values()),
        "calls": max(counts["commit"] + counts["advance"] for counts in calls),
        "refused": max(counts["stale"] + counts["passed"] for counts in answers),
    }


if __name__ == "__main__":
    logging.disable()
    role, url, *sizes = sys.argv[1:]
    scenario: Any = {"recover": recover, "burst": burst}[role]
    print(json.dumps(asyncio.run(scenario(url, *map(int, sizes)))))
