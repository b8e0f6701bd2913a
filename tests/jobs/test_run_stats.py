"""`app.run_stats`: what the attempts of the last hour did, over all workers."""

import asyncio
from collections import Counter

from tenure import Backoff, Tenure, blocking
from tenure.testing import Faults
from tests.rig.endings import leave


def totals(stats) -> dict[tuple[str, str], Counter]:
    sums: dict[tuple[str, str], Counter] = {}
    for line in stats:
        counts = {
            name: getattr(line, name)
            for name in ("started", "succeeded", "failed", "retried", "cancelled", "lost")
        }
        sums.setdefault((line.task, line.queue), Counter()).update(counts)
    return {pair: +counts for pair, counts in sums.items()}


async def test_every_kind_of_end_is_counted(app: Tenure, clock):
    @app.task(retry=Backoff(max_attempts=2, base=1), queue="mail")
    async def work(what: str) -> None:
        await clock.sleep(2)
        if what == "fail":
            raise ValueError
        if what == "wait":
            await clock.sleep(1000)

    async with app.worker():
        await app.enqueue_many([work.request(what) for what in ("a", "b", "fail")])
        waits = await work.enqueue("wait")
        await clock.advance(10)
        await waits.cancel()
        await clock.advance(20)
        stats = await app.run_stats()
        assert totals(stats) == {
            ("work", "mail"): Counter(started=5, succeeded=2, failed=1, retried=1, cancelled=1)
        }
        assert sum(line.seconds for line in stats) == 2 + 2 + 2 + 2 + 10
        assert max(line.longest for line in stats) == 10
        assert all(line.minute.second == 0 for line in stats)


async def test_they_cost_no_call_and_only_if_something_changed(make, clock, faults: Faults):
    """As many beats with jobs as without."""
    app = await make(faulty=True)

    @app.task
    async def work() -> None: ...

    async with app.worker():
        await clock.advance(60)
        assert await app.run_stats() == []
        beats = faults.calls["beat"]
        await clock.advance(60)
        idle = faults.calls["beat"] - beats
        before = Counter(faults.calls)
        await app.enqueue_many([work.request() for _ in range(50)])
        await clock.advance(60)
        made = faults.calls - before
        assert abs(made["beat"] - idle) <= 1
        assert made["stats"] == 0
    assert totals(await app.run_stats()) == {("work", "default"): Counter(started=50, succeeded=50)}


async def test_the_counts_of_all_workers_are_added_and_outlive_them(make, clock):
    first, second = await make(), await make()
    for app in (first, second):

        @app.task(name="work")
        async def work() -> None:
            await clock.sleep(1)

        async with app.worker(concurrency=1):
            await app.enqueue_many([work.request() for _ in range(3)])
            await clock.advance(5)
    assert totals(await first.run_stats()) == {("work", "default"): Counter(started=6, succeeded=6)}
    await clock.advance(3700)
    assert await second.run_stats() == []


async def test_a_worker_that_was_declared_dead_is_not_counted_twice(make, clock, faults: Faults):
    app, other = await make(faulty=True), await make()

    @app.task
    async def work() -> None:
        await clock.sleep(1)

    async with app.worker():
        await app.enqueue_many([work.request() for _ in range(3)])
        await clock.advance(30)
        first = {record.id for record in await app.replicas()}
        faults.lose_request("beat", 100)
        await clock.advance(15)
        await other.recover()
        faults.heal()
        await clock.advance(15)
        assert first.isdisjoint({record.id for record in await app.replicas()})
        await work.enqueue()
        await clock.advance(30)
        assert totals(await app.run_stats()) == {
            ("work", "default"): Counter(started=4, succeeded=4)
        }


async def test_a_result_that_comes_too_late_counts_as_lost(app: Tenure, store, clock):
    """And the attempt that follows counts as every other."""

    @app.task
    async def work() -> None:
        await clock.sleep(1)

    async with app.worker():
        await work.enqueue()
        await clock.advance(0.5)
        [record] = await app.replicas()
        await leave(store, record.id)
        await clock.advance(60)
        assert totals(await app.run_stats()) == {
            ("work", "default"): Counter(started=2, succeeded=1, lost=1)
        }


async def test_runs_of_timers_are_counted_under_their_names(app: Tenure, clock):
    @app.timer(every="10m", name="sweep")
    async def sweep() -> None: ...

    async with app.worker():
        await clock.advance(1300)
        counts = totals(await app.run_stats())
    assert counts["@sweep", "@timers"] == Counter(started=2, succeeded=2)


async def test_lost_beats_lose_no_counts(make, clock, faults: Faults):
    app = await make(faulty=True)

    @app.task
    async def work() -> None: ...

    async with app.worker():
        await work.enqueue()
        await clock.advance(14)
        faults.lose_reply("beat")
        await clock.advance(40)
        assert totals(await app.run_stats()) == {
            ("work", "default"): Counter(started=1, succeeded=1)
        }


async def test_on_every_store_and_for_threads(real_app: Tenure):
    @real_app.task
    async def work() -> None: ...

    async with real_app.worker():
        jobs = await real_app.enqueue_many([work.request() for _ in range(5)])
        for job in jobs:
            await job.wait(20)
    expected = {("work", "default"): Counter(started=5, succeeded=5)}
    assert totals(await real_app.run_stats()) == expected
    if not real_app._engine.store.url.startswith("memory"):
        with blocking.Tenure(real_app.clone()) as sync:
            assert totals(await asyncio.to_thread(sync.run_stats)) == expected
