"""What needs attention, from records: which lines there are, and in what order."""

from typing import Any

from tenure import Tenure
from tenure.core.jobs.records import JobRecord, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.schedules.documents import DECLARED_FOR
from tenure.core.why import Fleet, Surroundings
from tenure.core.worker_info import write_serving
from tenure.dashboard.attention import attention, failures
from tenure.testing import ManualClock
from tenure.timers import TimerViews
from tests.dashboard.desk import desk_on
from tests.rig.wait import wait_until_async

NOW = 1_800_000_000_000_000
HOUR = 3600 * 1_000_000


def replica(name: str, **changed: Any) -> ReplicaRecord:
    meta = write_serving(queues=["mail"], slots=4, timers=[], timer_slots=2)
    fields = {"id": name, "meta": meta, "joined": NOW, "ttl": 10.0, "expires_in": 5.0}
    return ReplicaRecord(**{**fields, **changed})


def failed(number: int, ago: int, task: str = "send", reason: str = "no address") -> JobRecord:
    return JobRecord(
        id=f"job-{number}",
        task=task,
        queue="mail",
        priority=5,
        state="failed",
        payload=b"",
        created=NOW,
        due=NOW,
        finished=NOW - ago,
        reason=reason,
    )


def lines(
    *replicas: ReplicaRecord,
    queues: tuple[QueueCounts, ...] = (),
    late: tuple[str, ...] = (),
    timers: TimerViews | None = None,
    failed: tuple[dict[str, Any], ...] = (),
) -> list[tuple[str, str]]:
    """Return the level and the text of each line."""
    by_name = {queue.queue: queue for queue in queues}
    around = Surroundings(now=NOW, fleet=Fleet(replicas), queues=by_name)
    listed = attention(
        around,
        replicas,
        TimerViews(timers=[], pause=None) if timers is None else timers,
        queues=[*by_name],
        late=late,
        failed=failed,
    )
    return [(line["level"], line["text"]) for line in listed]


def test_the_worst_stands_first() -> None:
    away = QueueCounts(queue="away", waiting=1, running=0, oldest=9.0)
    slow = QueueCounts(queue="mail", waiting=2, running=0, oldest=90.0)
    paused = QueueCounts(queue="paused", waiting=1, running=0, oldest=1.0, paused_for=60.0)
    shown = lines(replica("web-1"), queues=(paused, slow, away), late=("mail",))
    assert [(level, text.partition(":")[0]) for level, text in shown] == [
        ("error", "Queue away"),
        ("warning", "Queue mail"),
        ("note", "Queue paused"),
    ]


def test_a_failure_is_old_after_an_hour() -> None:
    jobs = [failed(1, HOUR), failed(2, 5), failed(3, HOUR + 1), failed(4, HOUR + 1, "other")]
    [line] = failures(jobs, NOW)
    assert (line["task"], line["count"], line["job"]) == ("send", 2, "job-2")
    [shown] = lines(replica("web-1"), failed=(line,))
    assert shown == ("warning", "Task send: 2 jobs failed for good in the last hour: no address")


def test_only_a_worker_that_left_work_behind_is_a_trouble() -> None:
    idle, busy = replica("web-2", expires_in=-1.0), replica("web-3", dead=True, held=3)
    assert lines(replica("web-1"), idle) == []
    text = "1 worker stopped beating with 3 running."
    assert lines(replica("web-1"), idle, busy) == [("warning", text)]


async def test_timers_need_a_worker_too(still: Tenure, clock: ManualClock) -> None:
    @still.timer(cron="0 3 1 1 *")
    async def report() -> None: ...

    async with desk_on(still, None) as desk:
        async with still.worker():
            await wait_until_async(still.timers)
            overview = await desk.get("api/overview")
            assert overview["attention"] == []
            assert [tick["timer"] for tick in overview["ticks"]] == ["report"]
        await clock.advance(2)
        [line] = (await desk.get("api/overview"))["attention"]
        assert line["text"] == "No worker is alive: timers do not tick."
        await clock.advance(DECLARED_FOR)
        # Its rule has ticks, and no process declares it any more.
        assert (await desk.get("api/overview"))["ticks"] == []


async def test_a_dead_worker_is_busy_with_nothing(still: Tenure, clock: ManualClock) -> None:
    @still.task
    async def work() -> None: ...

    jobs = still._engine.services().store.jobs
    await still.enqueue_many([work.request() for _ in range(3)])
    serving = write_serving(queues=["default"], slots=4, timers=[], timer_slots=2)
    for name, ttl, number in (("web-1", 60.0, 2), ("web-2", 5.0, 1)):
        await jobs.beat([name], ttl=ttl, meta=serving)
        await jobs.claim(name, 1, ["default"], number)
    await clock.advance(6)
    async with desk_on(still) as desk:
        replicas = (await desk.get("api/overview"))["replicas"]
    assert replicas == {"alive": 1, "expired": 1, "slots": 4, "busy": 2}
