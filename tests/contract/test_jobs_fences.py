import pytest

from tenure.core.jobs.records import JobRecord, Note
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    TTL,
    claim,
    id_of,
    insert,
    join,
    look,
    new,
    recover_all,
    settle,
    start_one,
)
from tests.contract.worlds import World
from tests.rig.endings import bury, leave

HOUR = 3600.0


async def claimed(store: Store) -> JobRecord:
    await join(store, "ann")
    (job,) = await claim(store)
    return job


async def retry(store: Store, clock: ManualClock) -> None:
    await settle(store, await look(store), "retry")


async def hand_back(store: Store, clock: ManualClock) -> None:
    await settle(store, await look(store), "handed back")


async def go_away(store: Store, clock: ManualClock) -> None:
    await leave(store, "ann")


async def bury_started(store: Store, clock: ManualClock) -> None:
    await bury(store, "ann", [id_of(1)], delays=AT_ONCE)


async def bury_unstarted(store: Store, clock: ManualClock) -> None:
    await bury(store, "ann", [], delays=AT_ONCE)


async def recover(store: Store, clock: ManualClock) -> None:
    # A beat first: it counts from now, wherever the clock was set to.
    await store.jobs.beat(["ann"], ttl=TTL)
    clock.shift(TTL)
    assert len(await recover_all(store)) == 1


async def requeue(store: Store, clock: ManualClock) -> None:
    await settle(store, await look(store), "failed")
    assert await store.jobs.requeue([id_of(1)]) == ["requeued"]


WAYS_BACK = [retry, hand_back, go_away, bury_started, bury_unstarted, recover, requeue]
ways_back = pytest.mark.parametrize("way", WAYS_BACK, ids=lambda way: way.__name__)
steps = pytest.mark.parametrize("step", [0, HOUR, -HOUR], ids=["still", "forward", "back"])


@ways_back
@steps
async def test_a_fence_grows_with_every_claim_and_every_return(
    store: Store, clock: ManualClock, way, step: float
):
    await insert(store, new(1, retention=10 * HOUR, at=0))
    last = (await look(store)).fence
    for _ in range(3):
        job = await claimed(store)
        assert job.fence >= max(last + 1, clock.wall())
        assert (await look(store)).fence == job.fence
        clock.step(step)
        await way(store, clock)
        back = await look(store)
        assert back.state == "waiting"
        assert back.fence >= max(job.fence + 1, clock.wall())
        last = back.fence
        clock.shift(-min(step, 0))  # a job that is due again must be due by the clock


@ways_back
async def test_a_call_with_an_old_fence_changes_nothing(store: Store, clock: ManualClock, way):
    await insert(store, new(1, retention=HOUR))
    old = await claimed(store)
    await way(store, clock)
    waiting = await look(store)
    await settle(store, old, "succeeded", result=b"late")
    assert await look(store) == waiting
    running = await claimed(store)
    assert await settle(store, old, "succeeded", result=b"late") == "lost"
    assert await store.jobs.note([Note(id=old.id, fence=old.fence, progress=1.0)]) == [False]
    assert await look(store) == running
    assert await settle(store, running, "succeeded") == "settled"


async def test_a_fence_carries_the_time_of_the_stores_clock(real_world: World):
    store = await real_world.store()
    before = (await store.ping()).now
    job = await start_one(store)
    assert before <= job.fence <= (await store.ping()).now
    await settle(store, job, "retry")
    (again,) = await claim(store)
    assert again.fence >= job.fence + 2


async def test_the_end_of_a_job_keeps_its_fence(store: Store):
    for number, outcome in enumerate(("succeeded", "failed", "cancelled")):
        job = await start_one(store, number)
        await settle(store, job, outcome)
        assert (await look(store, number)).fence == job.fence


async def test_fences_fit_into_a_double(store: Store, clock: ManualClock):
    job = await start_one(store)
    assert float(job.fence) == job.fence < 2**53


async def test_a_revision_grows_with_every_change_and_only_then(store: Store, clock: ManualClock):
    await insert(store, new(1, retention=HOUR))
    revisions = [(await look(store)).revision]

    async def changed() -> JobRecord:
        job = await look(store)
        revisions.append(job.revision)
        return job

    await claimed(store)
    job = await changed()
    await settle(store, job, "retry")
    await changed()
    await claimed(store)
    await changed()
    await recover(store, clock)
    await changed()
    await claimed(store)
    await changed()
    await store.jobs.cancel([id_of(1)])
    await changed()
    await go_away(store, clock)
    await changed()
    await store.jobs.requeue([id_of(1)])
    await changed()
    await store.jobs.cancel([id_of(1)])
    last = await changed()
    assert revisions == sorted(set(revisions))
    await store.jobs.cancel([id_of(1)])
    await store.jobs.insert([new(1)])
    await settle(store, job, "succeeded")
    assert await look(store) == last
