"""The stream of a page: it tells which pages have changed, and ends by itself."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tenure import Tenure
from tenure.core.jobs.records import Note
from tenure.dashboard import Dashboard, stream
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.dashboard.desk import Stream, desk_of
from tests.rig.wait import wait_until_async


async def next_tick(stream: Stream, clock: ManualClock) -> dict[str, Any]:
    """Let time pass until there is a tick."""
    tick = asyncio.create_task(stream.tick())
    for _ in range(20):
        await clock.advance(1)
        if tick.done():
            break
    return await tick


async def test_a_change_is_told_for_its_pages(still: Tenure, clock: ManualClock) -> None:
    @still.task
    async def work() -> None: ...

    dashboard = Dashboard(still)
    async with Stream(dashboard) as stream:
        first = (await stream.tick())["topics"]
        assert stream.headers["content-type"] == "text/event-stream"
        await clock.advance(3)
        assert stream.is_quiet
        await work.enqueue()
        second = (await next_tick(stream, clock))["topics"]
        changed = {topic for topic in first if second[topic] != first[topic]}
        assert changed == {"overview", "jobs"}
        async with still.lock("lamp"):
            third = (await next_tick(stream, clock))["topics"]
            assert {topic for topic in second if third[topic] != second[topic]} == {"locks"}
        store = still._engine.services().store
        await store.jobs.beat(["r1"], ttl=60, meta={"host": "h"})
        fourth = third
        while fourth["replicas"] == third["replicas"]:
            fourth = (await next_tick(stream, clock))["topics"]
        assert fourth["events"] != third["events"]  # it has joined
    await dashboard.close()


async def test_what_no_count_shows_is_told(still: Tenure, clock: ManualClock) -> None:
    """A pause by another program, and the progress of a job."""

    @still.task
    async def work() -> None: ...

    @still.timer(cron="0 3 1 1 *")
    async def report() -> None: ...

    async with still.worker():
        await wait_until_async(still.timers)
    await work.using(delay=1000).enqueue()
    job = await work.enqueue()
    jobs = still._engine.services().store.jobs
    await jobs.beat(["r1"], ttl=600, meta={})
    [record] = (await jobs.claim("r1", 1, ["default"], 1)).jobs
    dashboard = Dashboard(still)
    async with Stream(dashboard) as stream:
        before = (await stream.tick())["topics"]
        await clock.advance(3)
        assert await jobs.note([Note(id=job.id, fence=record.fence, progress=0.5, message="")])
        now = (await next_tick(stream, clock))["topics"]
        assert {topic for topic in before if now[topic] != before[topic]} == {"overview", "jobs"}
        await still.pause_queue("default")
        before, now = now, (await next_tick(stream, clock))["topics"]
        assert {topic for topic in before if now[topic] != before[topic]} == {"overview"}
        await still.timer_handle("report").pause()
        before, now = now, (await next_tick(stream, clock))["topics"]
        assert {topic for topic in before if now[topic] != before[topic]} == {"timers"}
    await dashboard.close()


async def test_a_quiet_stream_shows_that_it_is_there(still: Tenure, clock: ManualClock) -> None:
    """Proxies cut connections on which nothing comes for a minute, or less."""
    dashboard = Dashboard(still)
    async with Stream(dashboard, b"topics=locks") as page:
        await page.tick()
        for _ in range(int(stream.STREAM_FOR) - 5):
            await clock.advance(1)
        assert page._parts.get_nowait() == b": still here\n\n"
        assert page.is_quiet
    await dashboard.close()


async def test_an_action_is_told_at_once(still: Tenure) -> None:
    dashboard = Dashboard(still, auth=lambda _scope: "ann")
    async with Stream(dashboard) as stream, desk_of(dashboard) as desk:
        first = (await stream.tick())["topics"]
        await desk.post("api/queues/mail/pause", seconds=None, reason="")
        second = (await stream.tick())["topics"]
        assert all(second[topic] > first[topic] for topic in first)
    await dashboard.close()


async def test_a_stream_ends_so_that_servers_can_stop(still: Tenure, clock: ManualClock) -> None:
    dashboard = Dashboard(still)
    async with Stream(dashboard) as page:
        await page.tick()
        for _ in range(int(stream.STREAM_FOR) + 1):
            await clock.advance(1)
        await page.ended()
    await dashboard.close()


async def test_the_number_of_streams_is_limited(
    still: Tenure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STREAMS_MAX", 1)
    dashboard = Dashboard(still)
    async with desk_of(dashboard) as desk:
        async with Stream(dashboard) as page:
            await page.tick()
            reply = await desk.client.get("api/stream")
            assert (reply.status_code, reply.headers["retry-after"]) == (429, "30")
        async with Stream(dashboard) as page:
            await page.tick()
            assert page.status == 200
    await dashboard.close()


async def test_streams_that_are_opened_together_are_limited(
    still: Tenure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STREAMS_MAX", 2)
    dashboard = Dashboard(still)
    for _ in range(2):  # those that were refused or have left take no room
        async with AsyncExitStack() as stack:
            pages = [await stack.enter_async_context(Stream(dashboard)) for _ in range(5)]
            assert sorted([await _status(page) for page in pages]) == [200, 200, 429, 429, 429]
    await dashboard.close()


async def _status(page: Stream) -> int:
    await wait_until_async(lambda: page.status)
    return page.status


async def test_a_stream_that_cannot_be_sent_takes_no_room(
    still: Tenure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "STREAMS_MAX", 1)
    dashboard = Dashboard(still)

    async def broken(_message: object) -> None:
        raise OSError("the connection is gone")

    for _ in range(3):
        page = Stream(dashboard)
        monkeypatch.setattr(page, "_send", broken)
        async with page:
            await page.ended()
    async with Stream(dashboard) as page:
        await page.tick()
    await dashboard.close()


async def test_trouble_is_told_and_its_end(
    still: Tenure, faults: Faults, clock: ManualClock
) -> None:
    dashboard = Dashboard(still)
    async with Stream(dashboard, b"topics=overview") as page:
        await page.tick()
        await clock.advance(3)
        faults.lose_request("counts", 100)
        assert (await next_tick(page, clock))["trouble"]
        faults.heal()
        assert (await next_tick(page, clock))["trouble"] is None
    await dashboard.close()


async def test_trouble_of_one_page_hides_no_change_of_others(
    still: Tenure, faults: Faults, clock: ManualClock
) -> None:
    dashboard = Dashboard(still)
    async with Stream(dashboard, b"topics=timers") as timers:
        await timers.tick()
        faults.lose_request("read", 100)
        assert (await next_tick(timers, clock))["trouble"]
        async with Stream(dashboard, b"topics=locks") as locks:
            first = (await locks.tick())["topics"]["locks"]
            await clock.advance(3)
            async with still.lock("mine"):
                assert (await next_tick(locks, clock))["topics"]["locks"] > first
    await dashboard.close()


async def test_streams_end_with_the_dashboard(still: Tenure) -> None:
    dashboard = Dashboard(still)
    async with Stream(dashboard) as page:
        await page.tick()
        await dashboard.close()
        assert not any("_poll" in repr(task) for task in asyncio.all_tasks())


async def test_streams_end_with_the_app(faults: Faults, clock: ManualClock) -> None:
    """Looks would open the store anew, for nobody: the service is about to stop."""
    app = Tenure(FaultyStore("memory://", faults, clock=clock))
    dashboard = Dashboard(app)
    async with app, Stream(dashboard) as page:
        await page.tick()
        await app.close()
        opened = faults.calls["open"]
        ending = asyncio.create_task(page.ended())
        await clock.advance(3)
        await asyncio.wait_for(ending, 10)
        assert faults.calls["open"] == opened
    async with app, Stream(dashboard) as page:  # it may be opened again
        await page.tick()
        await app.pause_queue("mail")
        await next_tick(page, clock)
    await dashboard.close()


async def test_versions_rise_over_restarts(still: Tenure, clock: ManualClock) -> None:
    versions = []
    for _ in range(2):
        dashboard = Dashboard(still)
        async with Stream(dashboard) as page:
            versions.append((await page.tick())["topics"]["jobs"])
        await dashboard.close()
        await clock.advance(1)
    assert versions[0] < versions[1]
