"""A job that was lost twice may kill its workers, so it runs alone."""

import asyncio

import pytest

from tenure import Tenure
from tests.jobs.replicas import lose_times


@pytest.fixture
def ran(app: Tenure, clock) -> list[str]:
    """The jobs that ran, each with the jobs that ran beside it."""
    ran: list[str] = []
    inside: set[str] = set()

    @app.task
    async def work(name: str, seconds: float) -> None:
        inside.add(name)
        ran.append("+".join(sorted(inside)))
        try:
            await clock.sleep(seconds)
        finally:
            inside.discard(name)

    app.work = work
    return ran


async def test_after_one_loss_a_job_runs_beside_others(app, store, clock, ran):
    await app.work.enqueue("once lost", 5)
    await lose_times(store, clock, 1)
    async with app.worker():
        await app.work.enqueue("other", 5)
        await clock.advance(20)
    assert ran[-1] == "once lost+other"


async def test_after_two_losses_a_job_runs_alone(app, store, clock, ran):
    await app.work.enqueue("poison", 5)
    await lose_times(store, clock, 2)
    async with app.worker():
        await app.pause_queue("default")
        await clock.advance(1)
        await app.work.using(priority=0).enqueue("before", 8)
        await app.work.using(priority=9).enqueue("behind", 1)
        await app.resume_queue("default")
        await clock.advance(0.1)
        assert ran == ["before"]
        await clock.advance(7.8)
        assert ran == ["before"]
        await clock.advance(0.2)
        assert ran == ["before", "poison"]
        late = await app.work.using(priority=0).enqueue("late", 1)
        await clock.advance(4.5)
        assert ran == ["before", "poison"]
        await clock.advance(5)
        assert (await late.refresh()).state == "succeeded"
    assert sorted(ran[2:]) in (["behind", "behind+late"], ["behind+late", "late"])
    assert await app.queues() == []


async def test_a_suspect_that_cannot_be_alone_within_30_seconds_goes_back_uncounted(
    app, store, clock, ran
):
    poison = await app.work.enqueue("poison", 5)
    await lose_times(store, clock, 2)
    await app.pause_queue("default")
    async with app.worker():
        await clock.advance(1)
        await app.work.using(priority=0).enqueue("endless", 100)
        await app.resume_queue("default")
        await clock.advance(29)
        await poison.refresh()
        assert (poison.state, ran) == ("running", ["endless"])
        await clock.advance(1.5)
        await poison.refresh()
        assert (poison.state, poison.losses, poison.failures) == ("waiting", 2, 0)
        other = await app.work.enqueue("other", 1)
        await clock.advance(2)
        assert (await other.refresh()).state == "succeeded"
        await clock.advance(200)
        assert (await poison.refresh()).state == "succeeded"
    assert "poison" in ran
    assert not any("+" in beside and "poison" in beside for beside in ran)


async def test_a_suspect_that_waits_for_another_job_blocks_no_job(app, store, clock, ran):
    @app.task
    async def parent() -> str:
        child = await app.work.enqueue("child", 1)
        await child.result()
        return "done"

    job = await parent.enqueue()
    await lose_times(store, clock, 2)
    async with app.worker():
        await clock.advance(10)
        assert ran == ["child"]
        other = await app.work.enqueue("other", 1)
        await clock.advance(10)
        assert (await other.refresh()).state == "succeeded"
        assert await job.result(0) == "done"


async def test_timers_do_not_start_beside_a_suspect(app, store, clock, ran):
    ticks = []

    @app.timer(every="1s")
    async def sweep() -> None:
        ticks.append(clock.boot())

    await app.work.enqueue("poison", 10)
    await lose_times(store, clock, 2)
    async with app.worker():
        await clock.advance(0.1)
        assert ran == ["poison"]
        began = clock.boot()
        await clock.advance(9)
        assert ticks == []
        await clock.advance(5)
        assert len(ticks) >= 4
    assert min(ticks) >= began + 9.8


async def test_how_many_losses_make_a_job_run_alone_is_a_setting(make, store, clock):
    app = await make(isolate_after=5)
    inside: list[str] = []

    @app.task
    async def work(name: str) -> None:
        inside.append(name)
        await clock.sleep(5)

    await work.enqueue("lost")
    await lose_times(store, clock, 2)
    await work.enqueue("other")
    async with app.worker():
        await clock.advance(1)
        assert sorted(inside) == ["lost", "other"]
        await clock.advance(10)


async def test_a_suspect_that_goes_back_counts_no_attempt(app, store, clock, ran):
    poison = await app.work.enqueue("poison", 5)
    await lose_times(store, clock, 2)
    await app.pause_queue("default")
    async with app.worker():
        await clock.advance(1)
        await app.work.using(priority=0).enqueue("endless", 100)
        await app.resume_queue("default")
        await clock.advance(250)
    await poison.refresh()
    assert poison.record.attempt > 3  # it was claimed in vain
    assert (poison.state, poison.losses, poison.attempt) == ("succeeded", 2, 3)
    assert [(entry.attempt, entry.outcome) for entry in poison.history] == [
        (1, "lost"),
        (2, "lost"),
        (3, "succeeded"),
    ]


async def test_two_suspects_do_not_run_together(app, store, clock, ran):
    for name in ("a", "b", "c"):
        await app.work.enqueue(name, 3)
    await lose_times(store, clock, 2)
    async with app.worker():
        await clock.advance(60)
    assert sorted(ran) == ["a", "b", "c"]


async def test_a_suspect_starts_after_the_others_have_been_handed_back(make, faults, store, clock):
    """A job whose hand-back has not arrived would be lost with it and count a loss."""
    app = await make(faulty=True)
    running: list[list[str]] = []

    @app.task
    async def poison() -> None:
        page = await app.jobs(state="running")
        running.append([job.task for job in page])

    @app.task
    async def neighbour() -> None: ...

    for task in (poison, neighbour, neighbour):
        await task.enqueue()
    await lose_times(store, clock, 2)
    faults.delay("settle", 2)
    async with app.worker():
        await clock.advance(60)
    assert running == [["poison"]]


async def test_a_suspect_can_be_cancelled_while_it_waits_to_be_alone(app, store, clock, ran):
    poison = await app.work.enqueue("poison", 5)
    await lose_times(store, clock, 2)
    await app.pause_queue("default")
    async with app.worker():
        await clock.advance(1)
        await app.work.using(priority=0).enqueue("before", 20)
        await app.resume_queue("default")
        await clock.advance(1)
        await poison.cancel("found it")
        await clock.advance(40)
        await poison.refresh()
    assert (poison.state, poison.reason) == ("cancelled", "found it")
    assert ran == ["before"]


async def test_stopping_hands_back_a_waiting_suspect(app, store, clock, ran):
    poison = await app.work.enqueue("poison", 5)
    await lose_times(store, clock, 2)
    await app.pause_queue("default")
    worker = await app.worker(grace=30).__aenter__()
    await clock.advance(1)
    await app.work.using(priority=0).enqueue("before", 20)
    await app.resume_queue("default")
    await clock.advance(1)
    left = asyncio.ensure_future(worker.__aexit__(None, None, None))
    await clock.advance(1)
    assert (await poison.refresh()).state == "waiting"
    await clock.advance(20)
    await left
    assert ran == ["before"]
    assert poison.losses == 2


async def test_a_suspect_waits_for_a_tick_in_flight(make, faults, store, clock):
    """The run of that tick may already exist on this replica and would be lost with it."""
    app = await make(faulty=True)
    running: list[list[str]] = []

    @app.task
    async def poison() -> None:
        running.append([job.task for job in (await store.jobs.find(state="running")).jobs])

    @app.timer(every="10s")
    async def tick() -> None: ...

    await poison.enqueue()
    await lose_times(store, clock, 2)
    await app.pause_queue("default")
    async with app.worker():
        await clock.advance(1)
        faults.lose_reply("commit", times=1_000_000)
        await clock.advance(10)
        assert [job.task for job in (await store.jobs.find(state="running")).jobs] == ["@tick"]
        await app.resume_queue("default")
        await clock.advance(5)
        faults.heal()
        await clock.advance(2)
    assert running == [["poison"]]
