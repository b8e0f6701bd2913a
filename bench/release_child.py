"""One scenario on the tree that PYTHONPATH names; it uses only what both trees have.

`recover URL JOBS`: a replica dies with so many jobs, another one recovers them.
`burst URL TIMERS PROCESSES REPLICAS START`: a fleet of so many processes with so many replicas in
each, all with the same timers, which are due at one instant in START seconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from tenure import Tenure, Tick
from tenure.testing import Faults, FaultyStore

SLICE = 200
# Seconds after the instant by which all ticks are decided, on a busy machine with two cores.
WINDOW = 150.0
# A replica has decided all of its ticks after so many seconds without a call or an answer.
QUIET = 4.0


async def recover(url: str, jobs: int) -> dict[str, Any]:
    faults = Faults()
    app = Tenure(FaultyStore(url, faults))

    @app.task
    async def work() -> None: ...

    async with app:
        # What a dead process did has no public call. Older releases have no engine.
        engine: Any = getattr(app, "_engine", None)
        store: Any = app._store if engine is None else engine.store  # noqa: SLF001 - as above
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

    def __init__(self, url: str, cron: str, timers: int) -> None:
        self.faults = Faults()
        store = _Counting(FaultyStore(url, self.faults))
        self.answers, self.waiting = store.outcomes, store.waiting
        self.timers = timers
        self.late: dict[str, float] = {}
        self.app = Tenure(store)

        async def work(tick: Tick) -> None:
            assert tick.name not in self.late, "a tick ran twice"
            self.late[tick.name] = time.time() - tick.scheduled.timestamp()

        for number in range(timers):
            self.app.timer(cron=cron, name=f"timer {number}")(work)

    def begin(self) -> None:
        self.faults.calls.clear()
        self.answers.clear()

    async def has_decided(self) -> bool:
        """Return whether it knows the outcome of all ticks.

        It does not send all of them: declarations, too, tell it which ones have passed.
        """
        before = self.answers.total()
        if before < self.timers:
            await asyncio.sleep(QUIET)
        return 0 < before == self.answers.total() and not self.waiting.total()

    def counts(self) -> dict[str, int]:
        """Return how often it has sent ticks, and was refused."""
        calls, answers = self.faults.calls, self.answers
        return {
            "calls": calls["commit"] + calls["advance"],
            "refusals": answers["stale"] + answers["passed"],
        }


class _Counting:
    """Counts how the store answers ticks: moves, commits, and those sent through a part of it."""

    def __init__(self, store: Any, whole: _Counting | None = None) -> None:
        self._store = store
        self.outcomes: Counter[str] = Counter() if whole is None else whole.outcomes
        self.waiting: Counter[str] = Counter() if whole is None else whole.waiting
        if hasattr(store, "schedules") and not callable(store.schedules):
            self.schedules = _Counting(store.schedules, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def clone(self) -> Any:
        return _Counting(self._store.clone(), self)

    async def advance(self, move: Any) -> Any:
        with self._waits():
            answer = await self._store.advance(move)
        self.outcomes[answer.outcome] += 1
        return answer

    async def commit(self, commits: Any) -> Any:
        with self._waits():
            answers = await self._store.commit(commits)
        self.outcomes.update(answer.outcome for answer in answers)
        return answers

    @contextmanager
    def _waits(self) -> Iterator[None]:
        self.waiting["calls"] += 1
        try:
            yield
        finally:
            self.waiting["calls"] -= 1


async def run_part(fleet: list[Replica], at: int, timers: int) -> dict[str, Any]:
    """Run the replicas of one process until they have decided the ticks of the second `at`."""
    async with AsyncExitStack() as stack:
        for replica in fleet:
            await stack.enter_async_context(replica.app)
            worker = replica.app.worker(timer_concurrency=timers)
            await (await stack.enter_async_context(worker)).ready()
        await asyncio.sleep(1)  # timers wait for their instants
        assert time.time() < at - 1, "the replicas took too long to start"
        await asyncio.sleep(at - 0.5 - time.time())
        for replica in fleet:
            replica.begin()
        await asyncio.sleep(at - time.time())
        while not all([await replica.has_decided() for replica in fleet]):
            assert time.time() < at + WINDOW, "the replicas took too long to decide"
        counts = [replica.counts() for replica in fleet]
        late = {name: seconds for replica in fleet for name, seconds in replica.late.items()}
        await asyncio.to_thread(_all_decided.wait, WINDOW)  # others would notice that these leave
    return {"late": late, "fleet": counts}


def burst(url: str, timers: int, processes: int, replicas: int, start: int) -> dict[str, Any]:
    """Fork the processes after the timers are declared, which takes longer than to run them."""
    global _all_decided  # noqa: PLW0603 - forked processes inherit it
    fork = multiprocessing.get_context("fork")
    _all_decided = fork.Barrier(processes)
    at = int(time.time()) + start
    moment = time.gmtime(at)
    cron = f"{moment.tm_sec} {moment.tm_min} * * * *"
    fleet = [Replica(url, cron, timers) for _ in range(replicas)]
    reports: Any = fork.SimpleQueue()

    def run() -> None:
        report = {"error": "ended before its report"}
        try:
            report = asyncio.run(run_part(fleet, at, timers))
        except Exception as error:  # noqa: BLE001 - the parent waits for each report
            _all_decided.abort()
            report = {"error": repr(error)}
        finally:
            reports.put(report)

    parts = [fork.Process(target=run, daemon=True) for _ in range(processes)]
    for part in parts:
        part.start()
    answers = [reports.get() for _ in parts]
    for part in parts:
        part.join()
    if errors := [report["error"] for report in answers if "error" in report]:
        return {"errors": errors}
    late = [seconds for report in answers for seconds in report["late"].values()]
    names = {name for report in answers for name in report["late"]}
    assert len(late) == len(names) == timers, f"{len(names)} of {timers} ticks, {len(late)} runs"
    counts = [replica for report in answers for replica in report["fleet"]]
    return {
        "late": sorted(late),
        "calls": max(replica["calls"] for replica in counts),
        "refusals": max(replica["refusals"] for replica in counts),
    }


if __name__ == "__main__":
    logging.disable()
    role, url, *sizes = sys.argv[1:]
    numbers = [int(size) for size in sizes]
    report = asyncio.run(recover(url, *numbers)) if role == "recover" else burst(url, *numbers)
    print(json.dumps(report))
