"""What viewers cost the store: nothing without them, and the same for two as for twenty."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from tenure import Tenure
from tenure.dashboard import Dashboard
from tenure.testing import Faults, ManualClock
from tests.dashboard.desk import Desk, Stream, desk_of
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
