import pytest

from tenure.core.jobs.records import Inserted, NewJob, Unique
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    TTL,
    claim,
    claim_ids,
    find_all,
    id_of,
    insert,
    join,
    look,
    new,
    prune_jobs,
    recover_all,
    settle,
    start_one,
    states,
)
from tests.contract.test_names import LOOKALIKES, ODD_NAMES
from tests.contract.worlds import World
from tests.rig.endings import leave, recover


def named(number: int, name: str) -> NewJob:
    """Return a job all of whose names are `name`."""
    return new(
        number,
        task=name,
        queue=name,
        tags=(name,),
        unique=Unique(key=name, digest=name),
        retention=100,
    )


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
async def test_a_name_is_kept_unchanged_and_not_interpreted(
    store: Store, clock: ManualClock, name: str
):
    await store.jobs.beat([name], ttl=TTL, meta={name: name})
    await insert(store, named(1, name))
    assert await store.jobs.insert([named(2, name)]) == [Inserted("existing", id_of(1))]
    (job,) = await claim(store, name, queues=[name])
    assert (job.task, job.queue, job.tags, job.replica) == (name, name, (name,), name)
    assert [record.id for record in await store.jobs.replicas()] == [name]
    assert [count.queue for count in await store.jobs.counts()] == [name]
    assert [job.id for job in await find_all(store, replica=name, tag=name, task=name)] == [job.id]
    assert await store.jobs.cancel([job.id], reason=name) == ["requested"]
    assert (await look(store)).reason == name
    clock.shift(TTL)
    (lost,) = await recover_all(store)
    assert (lost.replica, lost.state) == (name, "cancelled")
    assert await store.jobs.requeue([job.id]) == ["requeued"]
    await store.jobs.pause(name)
    assert [count.queue for count in await store.jobs.counts()] == [name]
    await store.jobs.pause(name, seconds=0)


@pytest.mark.parametrize(("first", "second"), LOOKALIKES, ids=ascii)
async def test_names_that_look_alike_are_two_names(
    store: Store, clock: ManualClock, first: str, second: str
):
    await join(store, first)
    clock.shift(1)
    await join(store, second)
    await insert(store, named(1, first), named(2, second))
    await store.jobs.pause(second)
    assert await claim_ids(store, first, queues=[second, first]) == [id_of(1)]
    await store.jobs.pause(second, seconds=0)
    assert await claim_ids(store, second, queues=[second, first]) == [id_of(2)]
    assert [record.held for record in await store.jobs.replicas()] == [1, 1]
    for number, name in enumerate((first, second), start=1):
        for field in ("queue", "task", "tag", "replica"):
            assert [job.id for job in await find_all(store, **{field: name})] == [id_of(number)]
    assert await leave(store, first) == [id_of(1)]
    assert await states(store, 1, 2) == ["waiting", "running"]


async def test_all_odd_names_live_side_by_side(store: Store):
    names = ODD_NAMES
    await insert(store, *(named(number, name) for number, name in enumerate(names)))
    assert [count.queue for count in await store.jobs.counts()] == sorted(names)
    await join(store, "ann")
    assert len(await claim(store, queues=names)) == len(names)


@pytest.mark.parametrize(
    "suffix", ["2", ":job", "-", ".", "_", "x"], ids=lambda suffix: f"with{suffix}"
)
async def test_a_namespace_never_sees_one_whose_name_starts_with_its_own(
    world: World, clock: ManualClock, suffix: str
):
    here = await world.store()
    there = await world.store(world.namespace + suffix)
    mine = await start_one(here, 1, queue="q", unique=Unique(key="key"), retention=100)
    await insert(there, new(1, queue="q", unique=Unique(key="key"), payload=b"theirs"))
    await insert(there, new(2, queue=":q"), new(3, queue="2:q"))
    await there.jobs.pause("q")

    assert [job.id for job in await find_all(here)] == [id_of(1)]
    assert len(await find_all(there)) == 3
    assert [count.queue for count in await here.jobs.counts()] == ["q"]
    assert len(await there.jobs.counts()) == 3
    assert await there.jobs.replicas() == []
    assert await here.jobs.cancel([id_of(2)]) == [None]
    assert await settle(here, mine, "succeeded") == "settled"
    assert await states(there, 1) == ["waiting"]
    clock.shift(1000)
    assert await prune_jobs(there) == 0
    assert await prune_jobs(here) == 1
    assert await states(there, 1) == ["waiting"]


async def test_two_namespaces_share_nothing(world: World, clock: ManualClock):
    """Both sides have the same ids, queues, keys and replicas. Only one side changes anything."""
    here = await world.store()
    there = await world.store(f"{world.namespace}-other")
    for store in (here, there):
        await join(store, "ann")
        await insert(store, new(1, unique=Unique(key="key"), retention=100), new(2, timeout=5))
    mine = await claim(here)
    before = await there.jobs.get([id_of(1), id_of(2)])

    assert await there.jobs.settle([]) == []
    assert [await settle(there, job, "succeeded") for job in mine] == ["lost", "lost"]
    await here.jobs.pause("default")
    await here.jobs.cancel([id_of(2)])
    (beat,) = await there.jobs.beat(["ann"], ttl=TTL)
    assert beat is not None
    assert (beat.held, beat.cancels) == (0, [])
    clock.shift(TTL)
    await there.jobs.beat(["ann"], ttl=TTL)
    assert await recover(there, delays=AT_ONCE, grace=0) == []
    assert len(await recover(here, delays=AT_ONCE, grace=0)) == 2
    assert (await there.jobs.beat(["ann"], ttl=TTL))[0] is not None
    await prune_jobs(here)
    assert await there.jobs.get([id_of(1), id_of(2)]) == before
    assert await claim_ids(there) == [id_of(1), id_of(2)]
    assert [record.held for record in await there.jobs.replicas()] == [2]
    assert await here.jobs.replicas() == []


@pytest.mark.parametrize("letter", ["Aa", "._", ":-"])
async def test_namespaces_that_look_alike_are_two(world: World, letter: str):
    first, second = [await world.store(world.namespace + end) for end in letter]
    await start_one(first)
    assert await find_all(second) == []
    assert await second.jobs.replicas() == []
    assert await second.jobs.counts() == []
    await insert(second, new(1, payload=b"theirs"))
    assert (await look(first)).payload == b""
