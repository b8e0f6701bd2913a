"""What viewers cost the store: nothing without them, and the same for two as for twenty."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from tenure import Tenure
from tenure.dashboard import Dashboard
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.dashboard.desk import Desk, Stream, desk_of, desk_on, passing
from tests.rig.wait import wait_until_async

PAGES = (
    *("api/overview", "api/jobs", "api/jobs?state=failed", "api/jobs?error=disk", "api/timers"),
    *("api/locks", "api/replicas", "api/events", "api/session"),
)

SECONDS = 6


async def calls_of(viewers: int, app: Tenure, faults: Faults, clock: ManualClock) -> Counter[str]:
    """Return the calls of seconds in which all viewers watch, and fetch every page each second."""
    dashboard = Dashboard(app)
    before = faults.calls.copy()
    async with AsyncExitStack() as stack:
        desk = await stack.enter_async_context(desk_of(dashboard))
        streams = [await stack.enter_async_context(Stream(dashboard)) for _ in range(viewers)]
        for stream in streams:
            await stream.tick()
        for _ in range(SECONDS):
            await asyncio.gather(*(_look(desk) for _ in range(viewers)))
            await clock.advance(1)
    await dashboard.close()
    return faults.calls - before


async def _look(desk: Desk) -> None:
    for page in PAGES:
        reply = await desk.client.get(page)
        assert reply.status_code == 200


async def test_twenty_viewers_cost_what_two_cost(
    still: Tenure, faults: Faults, clock: ManualClock
) -> None:
    @still.task
    async def work() -> None: ...

    await work.enqueue()
    few = await calls_of(2, still, faults, clock)
    many = await calls_of(20, still, faults, clock)
    assert many == few
    # A look of each kind per second: counts, replicas, timers twice, leases, a ping, jobs.
    assert sum(few.values()) <= (SECONDS + 1) * 16


async def test_nothing_is_asked_while_nobody_looks(
    still: Tenure, faults: Faults, clock: ManualClock
) -> None:
    before = faults.calls.copy()
    dashboard = Dashboard(still)
    await clock.advance(60)
    assert faults.calls == before
    async with Stream(dashboard) as stream:
        await stream.tick()
        await wait_until_async(lambda: faults.calls != before)
    await clock.advance(5)
    before = faults.calls.copy()
    await clock.advance(60)
    assert faults.calls == before
    await dashboard.close()


async def test_a_stream_asks_only_for_its_topics(
    still: Tenure, faults: Faults, clock: ManualClock
) -> None:
    dashboard = Dashboard(still)
    before = faults.calls.copy()
    async with Stream(dashboard, b"topics=locks") as stream:
        assert [*(await stream.tick())["topics"]] == ["locks"]
        for _ in range(5):
            await clock.advance(2)
    assert {*(faults.calls - before)} == {"find"}
    await dashboard.close()


async def test_a_mounted_dashboard_makes_no_events_and_no_calls(
    still: Tenure, faults: Faults
) -> None:
    """Events of normal work are made once somebody wants them; a dashboard does not."""
    events = still._engine.events
    assert not events.wants_details
    Dashboard(still)
    assert not events.wants_details
    assert not events.has_subscribers
    still.on_event(lambda _event: None)
    assert events.wants_details


async def calls_of_jobs(*, is_mounted: bool, number: int) -> Counter[str]:
    """Return the calls of a worker that runs so many jobs, beside a dashboard or without one."""
    faults, clock = Faults(), ManualClock()
    app = Tenure(FaultyStore("memory://", faults, clock=clock))

    @app.task
    async def work(number: int) -> int:
        return number

    async with app:
        if is_mounted:
            Dashboard(app)
        async with app.worker() as worker:
            await worker.ready()
            for first in range(number):
                job = await work.enqueue(first)
                await job.wait(20)
            await clock.advance(60)
    return faults.calls


async def test_a_worker_with_a_dashboard_makes_no_more_calls_than_without() -> None:
    alone = await calls_of_jobs(is_mounted=False, number=20)
    assert alone["settle"] >= 20
    assert await calls_of_jobs(is_mounted=True, number=20) == alone


async def test_a_slow_look_is_shared_for_longer(
    still: Tenure, faults: Faults, clock: ManualClock
) -> None:
    faults.delay("counts", 0.2)
    async with desk_on(still) as desk:
        for _ in range(40):
            await passing(clock, desk.get("api/overview"))
            await clock.advance(0.5)
        # Counting takes a twentieth of the time, and not two fifths.
        assert faults.calls["counts"] <= 6


@pytest.mark.parametrize("seconds", [0.0, 0.2])
async def test_no_page_stays_behind_the_last_change(
    still: Tenure, faults: Faults, clock: ManualClock, seconds: float
) -> None:
    """What another viewer has just looked at may be older than the change that a page is told."""

    @still.task
    async def work() -> None: ...

    dashboard = Dashboard(still)
    async with Stream(dashboard) as stream, desk_of(dashboard) as desk:
        await stream.tick()
        await clock.advance(3.5)
        faults.delay("find", seconds)
        assert (await passing(clock, desk.get("api/jobs")))["jobs"] == []
        await work.enqueue()
        for _ in range(5):
            await passing(clock, stream.tick())
            if (await passing(clock, desk.get("api/jobs")))["jobs"]:
                break
        else:
            pytest.fail("the page was not told again")
    await dashboard.close()


async def test_runs_of_timers_are_read_once(
    still: Tenure, faults: Faults, clock: ManualClock
) -> None:
    @still.timer(every="10s")
    async def sweep() -> None: ...

    async with desk_on(still) as desk, still.worker() as worker:
        await worker.ready()
        await clock.advance(60)
        [timer] = (await desk.get("api/timers"))["timers"]
        marks = [mark["outcome"] for mark in timer["history"]]
        assert marks == ["succeeded"] * len(marks)
        assert len(marks) >= 5
        reads = faults.calls["get"]
        await clock.advance(2)
        [again] = (await desk.get("api/timers"))["timers"]
        assert again["history"] == timer["history"]
        assert faults.calls["get"] == reads
        runs = await still.jobs(queue="@timers")
        await still._engine.services().store.jobs.delete([run.id for run in runs])
        await clock.advance(61)
        [timer] = (await desk.get("api/timers"))["timers"]
        assert {mark["outcome"] for mark in timer["history"][-len(marks) :]} == {"ran"}
