"""Wake-ups about jobs, sent through one store object and received on another."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from tenure.core.jobs.records import SOON as DUE_SOON
from tenure.core.jobs.records import Note
from tenure.core.leases import Topic
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    ENDS,
    bring,
    claim,
    ended,
    id_of,
    insert,
    join,
    look,
    new,
    settle,
    start_one,
)
from tests.contract.worlds import World
from tests.rig.endings import bury, leave, recover
from tests.rig.sizes import SIZE

SOON = SIZE.patience
QUEUE: Topic = ("queue", "default")
JOB: Topic = ("job", id_of(1))
REPLICA: Topic = ("replica", "ann")


@pytest.fixture
async def here(real_world: World) -> Store:
    return await real_world.store()


@pytest.fixture
async def there(real_world: World) -> Store:
    return await real_world.store()


async def wake_ups_have_arrived(here: Store, there: Store) -> None:
    """Send one more wake-up and receive it: all earlier ones have then been received."""
    async with here.watch(("queue", "last call")) as last_call:
        await there.jobs.pause("last call", seconds=0)
        assert await last_call.wait(SOON)


async def heard(here: Store, there: Store, topic: Topic, call: Callable[[], Awaitable[object]]):
    """Return whether a call through `there` wakes a watch of `topic` through `here`."""
    await wake_ups_have_arrived(here, there)  # earlier wake-ups do not count
    async with here.watch(topic) as watch:
        await call()
        return await watch.wait(SOON)


async def expire(store: Store, replica: str = "ann") -> None:
    """Let a replica's time run out."""
    await store.jobs.beat([replica], ttl=0.001)
    await asyncio.sleep(0.02)


# A queue: a job waits that is due, or will be soon.


async def test_an_insert_wakes_its_queue(here: Store, there: Store):
    assert await heard(here, there, QUEUE, lambda: insert(there, new(1)))


async def test_an_insert_for_a_past_instant_wakes_its_queue(here: Store, there: Store):
    assert await heard(here, there, QUEUE, lambda: insert(there, new(1, at=0)))


async def test_an_insert_for_soon_wakes_its_queue(here: Store, there: Store):
    for number, delay in enumerate((0.5, DUE_SOON)):
        job = new(number, delay=delay)
        assert await heard(here, there, QUEUE, lambda job=job: insert(there, job))


async def test_an_insert_for_an_instant_soon_wakes_its_queue(here: Store, there: Store):
    job = new(1, at=(await there.ping()).now + round(DUE_SOON * 500_000))
    assert await heard(here, there, QUEUE, lambda: insert(there, job))


@pytest.mark.parametrize("outcome", ["retry", "handed back"])
async def test_a_retry_that_is_due_soon_wakes_the_queue(here: Store, there: Store, outcome: str):
    job = await start_one(there)
    assert await heard(here, there, QUEUE, lambda: settle(there, job, outcome, delay=DUE_SOON))


async def test_a_loss_whose_retry_is_due_soon_wakes_the_queue(here: Store, there: Store):
    await start_one(there)
    await expire(there)
    assert await heard(here, there, QUEUE, lambda: recover(there, delays=[DUE_SOON], grace=0))
    await start_one(there, 2, replica="ben")
    buried = partial(bury, there, "ben", [id_of(2)], delays=[DUE_SOON])
    assert await heard(here, there, QUEUE, buried)


async def test_an_insert_through_the_same_store_object_wakes_too(here: Store):
    assert await heard(here, here, QUEUE, lambda: insert(here, new(1)))


async def test_an_insert_wakes_all_its_queues_and_no_other(here: Store, there: Store):
    async with (
        here.watch(("queue", "a")) as first,
        here.watch(("queue", "b")) as second,
        here.watch(("queue", "A"), ("queue", "c"), ("job", "a"), ("lease", "a")) as other,
    ):
        await insert(there, new(1, queue="a"), new(2, queue="b"))
        assert await first.wait(SOON)
        assert await second.wait(SOON)
        await wake_ups_have_arrived(here, there)
        assert not await other.wait(0)


@pytest.mark.parametrize("outcome", ["retry", "handed back"])
async def test_an_attempt_that_ends_in_waiting_wakes_the_queue(
    here: Store, there: Store, outcome: str
):
    job = await start_one(there)
    assert await heard(here, there, QUEUE, lambda: settle(there, job, outcome))


async def test_a_replica_that_leaves_wakes_the_queue(here: Store, there: Store):
    await start_one(there)
    assert await heard(here, there, QUEUE, lambda: leave(there, "ann"))


@pytest.mark.parametrize("started", [True, False])
async def test_burying_a_replica_wakes_the_queue(here: Store, there: Store, started: bool):
    await start_one(there)
    ids = [id_of(1)] if started else []
    assert await heard(here, there, QUEUE, lambda: bury(there, "ann", ids, delays=AT_ONCE))


async def test_a_recovery_wakes_the_queue(here: Store, there: Store):
    await start_one(there)
    await expire(there)
    assert await heard(here, there, QUEUE, lambda: recover(there, delays=AT_ONCE, grace=0))


async def test_a_requeue_wakes_the_queue(here: Store, there: Store):
    await bring(there, "failed", retention=100)
    assert await heard(here, there, QUEUE, lambda: there.jobs.requeue([id_of(1)]))


async def test_a_resume_wakes_the_queue(here: Store, there: Store):
    await there.jobs.pause("default")
    await insert(there, new(1))
    assert await heard(here, there, QUEUE, lambda: there.jobs.pause("default", seconds=0))


async def test_a_woken_worker_can_claim(here: Store, there: Store):
    await join(here, "ann")
    for number in range(5):
        async with here.watch(QUEUE) as watch:
            assert await claim(here) == []
            await insert(there, new(number))
            assert await watch.wait(SOON)
            while not (jobs := await claim(here)):  # a spurious wake-up
                assert await watch.wait(SOON)
        assert [job.id for job in jobs] == [id_of(number)]


async def test_after_a_burst_of_inserts_no_worker_sleeps_while_jobs_wait(here: Store, there: Store):
    """However wake-ups are bundled, one more follows the last insert."""
    await join(here, "ann")
    got: list[str] = []

    async def work() -> None:
        async with here.watch(QUEUE) as watch:
            while len(got) < 60:
                got.extend(job.id for job in await claim(here))
                if len(got) < 60:
                    assert await watch.wait(SOON), f"asleep with {60 - len(got)} jobs waiting"

    worker = asyncio.create_task(work())
    for number in range(60):
        await insert(there, new(number))
        if number % 7 == 0:
            await asyncio.sleep(0.005)
    await worker
    assert sorted(got) == [id_of(number) for number in range(60)]


# A job: its revision has changed.


async def test_a_claim_wakes_the_watchers_of_the_job(here: Store, there: Store):
    await join(there, "ann")
    await insert(there, new(1))
    assert await heard(here, there, JOB, lambda: claim(there))


@pytest.mark.parametrize("outcome", ENDS)
async def test_every_end_of_an_attempt_wakes_the_watchers_of_the_job(
    here: Store, there: Store, outcome: str
):
    job = await start_one(there)
    assert await heard(here, there, JOB, lambda: settle(there, job, outcome))


async def test_a_delayed_retry_wakes_the_watchers_of_the_job(here: Store, there: Store):
    job = await start_one(there)
    assert await heard(here, there, JOB, lambda: settle(there, job, "retry", delay=60))


async def test_a_note_wakes_the_watchers_of_the_job(here: Store, there: Store):
    job = await start_one(there)
    note = Note(id=job.id, fence=job.fence, progress=0.5)
    assert await heard(here, there, JOB, lambda: there.jobs.note([note]))


@pytest.mark.parametrize("state", ["waiting", "running"])
async def test_a_cancel_wakes_the_watchers_of_the_job(here: Store, there: Store, state):
    await bring(there, state)
    assert await heard(here, there, JOB, lambda: there.jobs.cancel([id_of(1)]))


async def test_a_requeue_wakes_the_watchers_of_the_job(here: Store, there: Store):
    await bring(there, "failed", retention=100)
    assert await heard(here, there, JOB, lambda: there.jobs.requeue([id_of(1)]))


@pytest.mark.parametrize("state", ["waiting", "failed"])
async def test_a_delete_wakes_the_watchers_of_the_job(here: Store, there: Store, state):
    await bring(there, state, retention=100)
    assert await heard(here, there, JOB, lambda: there.jobs.delete([id_of(1)]))


async def test_a_replica_that_leaves_wakes_the_watchers_of_its_jobs(here: Store, there: Store):
    await start_one(there)
    assert await heard(here, there, JOB, lambda: leave(there, "ann"))


@pytest.mark.parametrize("delays", [[0.0], [60.0], []], ids=["due", "later", "failed"])
async def test_a_loss_wakes_the_watchers_of_the_job(here: Store, there: Store, delays):
    await start_one(there)
    assert await heard(here, there, JOB, lambda: bury(there, "ann", [id_of(1)], delays=delays))
    await join(there, "ben")
    await start_one(there, 2, replica="ben", queue="other")
    await expire(there, "ben")
    topic: Topic = ("job", id_of(2))
    assert await heard(here, there, topic, lambda: recover(there, delays=delays, grace=0))


async def test_a_batch_wakes_for_each_of_its_jobs(here: Store, there: Store):
    jobs = [await start_one(there, number) for number in range(3)]
    async with (
        here.watch(("job", jobs[0].id)) as first,
        here.watch(("job", jobs[2].id)) as last,
    ):
        await there.jobs.settle([ended(job, "succeeded") for job in jobs])
        assert await first.wait(SOON)
        assert await last.wait(SOON)


async def test_a_woken_waiter_sees_the_result(here: Store, there: Store):
    job = await start_one(there)
    async with here.watch(JOB) as watch:
        assert (await look(here)).state == "running"
        await settle(there, job, "succeeded", result=b"r")
        assert await watch.wait(SOON)
        while (seen := await look(here)).state == "running":  # woken by the claim before
            assert await watch.wait(SOON)
        assert seen.result == b"r"


# A replica: one of its running jobs is to be cancelled.


async def test_a_cancel_of_a_running_job_wakes_its_replica(here: Store, there: Store):
    await start_one(there)
    await start_one(there, 2, replica="ben")
    async with here.watch(REPLICA) as ann, here.watch(("replica", "ben")) as ben:
        await there.jobs.cancel([id_of(1)])
        assert await ann.wait(SOON)
        (beat,) = await here.jobs.beat(["ann"], ttl=10)
        assert beat is not None
        assert beat.cancels == [id_of(1)]
        await wake_ups_have_arrived(here, there)
        assert not await ben.wait(0)


# All topics.


async def test_one_watch_may_be_for_topics_of_all_kinds(here: Store, there: Store):
    await start_one(there)
    for call in (
        lambda: insert(there, new(2)),
        lambda: there.jobs.cancel([id_of(1)]),
        lambda: there.jobs.pause("default", seconds=0),
    ):
        await wake_ups_have_arrived(here, there)
        async with here.watch(QUEUE, JOB, REPLICA, ("lease", "ann")) as watch:
            await call()
            assert await watch.wait(SOON)


@pytest.mark.parametrize("name", ["it's", "{x}", "a b", "100%_*", "läuft 🌍", "A", "x" * 200])
async def test_a_queue_and_a_replica_of_any_name_are_woken(here: Store, there: Store, name: str):
    topics: list[Topic] = [("queue", name), ("replica", name)]
    await join(there, name)
    assert await heard(here, there, topics[0], lambda: insert(there, new(1, queue=name)))
    await claim(there, name, queues=[name])
    assert await heard(here, there, topics[1], lambda: there.jobs.cancel([id_of(1)]))


async def test_one_namespace_does_not_wake_another(real_world: World, here: Store, there: Store):
    elsewhere = await real_world.store(f"{real_world.namespace}-other")
    async with here.watch(QUEUE) as watch, elsewhere.watch(QUEUE) as right:
        await insert(elsewhere, new(1))
        assert await right.wait(SOON)
        await wake_ups_have_arrived(here, there)
        assert not await watch.wait(0)


async def test_wake_ups_come_while_the_clock_is_moved_by_hand(world: World, clock: ManualClock):
    here, there = await world.store(), await world.store()
    async with here.watch(QUEUE) as watch:
        wait = asyncio.create_task(watch.wait(3600))
        await insert(there, new(1))
        async with asyncio.timeout(SOON):
            while not wait.done():
                await clock.advance(0.05)
                await asyncio.sleep(0.005)
        assert await wait is True


async def test_one_among_very_many_changes_wakes(here: Store, there: Store):
    """However a store bundles messages, a watcher of one of the jobs is woken."""
    await join(there, "ann")
    await insert(there, *(new(number) for number in range(200)))
    jobs = await claim(there, limit=200)

    async def settle_all() -> None:
        await there.jobs.settle([ended(job, "succeeded") for job in jobs])

    assert await heard(here, there, ("job", jobs[150].id), settle_all)
