"""What the page of events knows: events of this app, and replicas that come and go."""

import pytest

from tenure import Tenure
from tenure.observe import (
    AttemptLost,
    HoldLost,
    JobFailed,
    JobsRecovered,
    LockTakenOver,
    ReplicaExpired,
)
from tenure.testing import ManualClock
from tests.dashboard.desk import desk_on
from tests.rig.endings import bury


async def test_events_of_the_app_are_kept(still: Tenure) -> None:
    async with desk_on(still) as desk:
        emit = still._engine.events.emit
        emit(JobsRecovered(by="h:1", replicas=("r1",), waiting=("j1",)))
        emit(AttemptLost(job="j1", fence=3, outcome="succeeded"))
        emit(HoldLost(name="a", fence=1, reason="expired"))
        emit(LockTakenOver(name="<b>", fence=2))
        emit(ReplicaExpired(replica="r1", by="h:1"))
        emit(JobFailed(task="t", job="j", queue="q"))  # the list of jobs has it
        answer = await desk.get("api/events")
        kinds = [event["kind"] for event in answer["events"]]
        assert kinds == ["recovery", "refused", "loss", "take-over", "replica"]
        assert [event["n"] for event in answer["events"]] == [1, 2, 3, 4, 5]
        assert answer["events"][1]["link"] == "jobs/j1"
        assert answer["events"][2]["level"] == "warning"
        assert answer["next"] == 5
        assert "this process" in answer["scope"]
        later = await desk.get("api/events", after="3")
        assert [event["n"] for event in later["events"]] == [4, 5]
        await desk.get("api/events", 400, after="x")


async def test_replicas_that_come_and_go_are_noted(still: Tenure, clock: ManualClock) -> None:
    store = still._engine.services().store
    await store.jobs.beat(["old"], ttl=10, meta={"host": "h"})
    async with desk_on(still) as desk:
        await clock.advance(1)
        await desk.get("api/replicas")
        assert (await desk.get("api/events"))["events"] == []  # it was there before
        await store.jobs.beat(["new"], ttl=60, meta={"host": "h", "pid": "7"})
        await clock.advance(20)
        await desk.get("api/overview")
        await store.jobs.beat(["old"], ttl=60)
        await clock.advance(2)
        await desk.get("api/overview")
        texts = [event["text"] for event in (await desk.get("api/events"))["events"]]
    assert texts == [
        "replica old at h has expired: its heartbeats have stopped",
        "replica new at h:7 has joined",
        "replica old at h beats again",
    ]


async def test_replicas_that_are_gone_are_not_said_to_have_left(
    still: Tenure, clock: ManualClock
) -> None:
    @still.task
    async def work() -> None: ...

    store = still._engine.services().store
    for name, ttl in (("web-1", 600), ("web-2", 600), ("web-3", 10)):
        await store.jobs.beat([name], ttl=ttl, meta={"host": name, "pid": "7"})
    await work.enqueue()
    await store.jobs.claim("web-1", 1, ["default"], 1)
    async with desk_on(still) as desk:
        await clock.advance(20)
        await desk.get("api/replicas")
        for name in ("web-1", "web-2", "web-3"):
            await bury(store, name, [], delays=[0.0])  # as its supervisor does
        await clock.advance(2)
        assert (await desk.get("api/replicas"))["replicas"] == []
        events = (await desk.get("api/events"))["events"]
    killed = "is gone: it has left or was killed"
    assert [event["text"] for event in events] == [
        f"replica web-1 at web-1:7 {killed}, and ran 1 job when it was last seen",
        f"replica web-2 at web-2:7 {killed}",
        "replica web-3 at web-3:7 is gone: its jobs were recovered",
    ]


@pytest.mark.parametrize("number", [1, 1500])
async def test_the_newest_thousand_are_kept(still: Tenure, number: int) -> None:
    async with desk_on(still) as desk:
        for fence in range(number):
            still._engine.events.notify(HoldLost(name="a", fence=fence, reason="expired"))
        answer = await desk.get("api/events")
        assert len(answer["events"]) == min(number, 1000)
        assert answer["next"] == answer["events"][-1]["n"] == number
