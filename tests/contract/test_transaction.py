"""within: calls that take part in a user's transaction, and stores without transactions.

All kinds of connections, and what users see of it, are in tests/jobs/transactions.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from tenure.core.jobs.records import Inserted, Unique
from tenure.errors import ConfigError, StoreUnavailable
from tenure.stores.contract import Store, UserTransaction
from tests.contract import job_calls as calls
from tests.contract.worlds import World
from tests.rig.endings import bury, recover, settlement


@asynccontextmanager
async def connected(world: World) -> AsyncIterator[object]:
    """Open a connection of the user; None if the store cannot use one."""
    if world.family == "sqlite":
        db = sqlite3.connect(world.url.removeprefix("sqlite:///"), isolation_level=None)
        yield db
        db.close()
    elif world.family == "postgres":
        connection = await asyncpg.connect(world.url)
        yield connection
        await connection.close()
    else:
        yield None


@asynccontextmanager
async def taking_part(store: Store, world: World) -> AsyncIterator[UserTransaction | None]:
    """Take part in a transaction; None if the store reports that it has none."""
    async with connected(world) as connection:
        assert store.traits.transactional == (connection is not None)
        if connection is None:
            with pytest.raises(ConfigError, match="no transactions"):
                store.within(object(), "transaction()")
            yield None
        else:
            own = store.within(connection, "transaction()")
            assert own.blocks == (world.family == "sqlite")
            yield own


@pytest.mark.parametrize("purpose", ["guard()", "within()", "transaction()"])
async def test_an_object_that_is_no_connection_is_refused(store: Store, purpose):
    with pytest.raises(ConfigError) as refused:
        store.within(object(), purpose)
    assert purpose in str(refused.value)
    assert ("Pass a " in str(refused.value)) == store.traits.transactional


async def test_an_inserted_job_is_visible_only_after_the_commit(store: Store, world: World):
    job = calls.new(1, unique=Unique(key="k", digest="d"), tags=("t",), queue="q")
    async with taking_part(store, world) as own:
        if own is None:
            return
        for end, states in ((own.rollback, []), (own.commit, ["waiting"])):
            await own.begin(on_loop=True)
            [answer] = await own.insert([job])
            assert answer == Inserted("created", job.id)
            assert await own.insert([job]) == [Inserted("created", job.id)]  # a repeat
            [seen] = await own.get([job.id])
            assert seen is not None
            assert answer.at == seen.created
            assert await store.jobs.get([job.id]) == [None]
            await end()
            assert [job.state for job in await store.jobs.get([job.id]) if job] == states
        assert await store.jobs.get([job.id]) == [seen]
        assert (await store.jobs.find(tag="t")).jobs == [seen]
        await own.begin(on_loop=True)
        other = calls.new(2, unique=Unique(key="k", digest="d"))
        mismatch = calls.new(3, unique=Unique(key="k", digest="other"))
        assert await own.insert([other, mismatch]) == [
            Inserted("existing", job.id),
            Inserted("mismatch", job.id),
        ]
        await own.rollback()


async def test_nothing_is_done_outside_of_a_transaction(store: Store, world: World):
    async with taking_part(store, world) as own:
        if own is None:
            return
        with pytest.raises(ConfigError, match="none is open"):
            await own.insert([calls.new(1)])
        assert await store.jobs.get([calls.id_of(1)]) == [None]


async def test_an_attempt_ends_only_with_the_commit(store: Store, world: World):
    job = await calls.start_one(store)
    end = settlement(id=job.id, fence=job.fence, outcome="succeeded", result=b"1", history=b"{}\n")
    async with taking_part(store, world) as own:
        if own is None:
            return
        await own.begin(on_loop=True)
        assert await own.hold(job.id, job.fence)
        assert await own.settle(end) == "settled"
        await own.rollback()
        assert await calls.look(store) == job
        await own.begin(on_loop=True)
        assert await own.hold(job.id, job.fence)
        assert await own.settle(end) == "settled"
        await own.commit()
        ended = await calls.look(store)
        assert (ended.state, ended.result, ended.history) == ("succeeded", b"1", b"{}\n")
        # An attempt that has ended like this is over: its writes must not be made twice.
        await own.begin(on_loop=True)
        assert not await own.hold(job.id, job.fence)
        assert await own.settle(end) == "repeated"
        await own.rollback()


async def test_only_the_current_attempt_is_held(store: Store, world: World):
    job = await calls.start_one(store)
    await calls.insert(store, calls.new(77))
    waiting = await calls.look(store, 77)
    async with taking_part(store, world) as own:
        if own is None:
            return
        await own.begin(on_loop=True)
        assert not await own.hold(job.id, job.fence - 1)
        assert not await own.hold(job.id, job.fence + 1)
        assert not await own.hold(waiting.id, waiting.fence)
        assert not await own.hold(calls.id_of(99), job.fence)
        assert await own.hold(job.id, job.fence)
        stale = settlement(id=job.id, fence=job.fence - 1, outcome="succeeded")
        assert await own.settle(stale) == "lost"
        await own.rollback()


async def test_a_pending_cancel_does_not_stop_a_commit(store: Store, world: World):
    job = await calls.start_one(store)
    assert await store.jobs.cancel([job.id]) == ["requested"]
    async with taking_part(store, world) as own:
        if own is None:
            return
        await own.begin(on_loop=True)
        assert await own.hold(job.id, job.fence)
        success = settlement(id=job.id, fence=job.fence, outcome="succeeded")
        assert await own.settle(success) == "settled"
        await own.commit()
        assert (await calls.look(store)).state == "succeeded"


async def test_one_namespace_never_sees_another(store: Store, world: World):
    job = await calls.start_one(store)
    stranger = await world.store("another")
    async with taking_part(stranger, world) as own:
        if own is None:
            return
        await own.begin(on_loop=True)
        assert await own.get([job.id]) == [None]
        assert not await own.hold(job.id, job.fence)
        await own.rollback()


async def test_a_job_that_is_held_does_not_keep_its_neighbours(store: Store, world: World):
    """On SQLite every call waits for the user's commit; other stores hold nothing."""
    if world.family != "postgres":
        return
    held, *others = await calls.start(store, *(calls.new(n) for n in range(1, 5)))
    settled, *rest = others
    async with connected(world) as connection:
        own = store.within(connection, "transaction()")
        await own.begin(on_loop=True)
        assert await own.hold(held.id, held.fence)
        ends = [calls.ended(job, "succeeded") for job in (held, settled)]
        with pytest.raises(StoreUnavailable):
            await store.jobs.settle(ends)
        assert await calls.states(store, 2, 1) == ["succeeded", "running"]
        buried = await bury(store, "ann", [held.id], delays=calls.AT_ONCE)
        assert [job.id for job in buried] == [job.id for job in rest]
        assert [record.dead for record in await store.jobs.replicas()] == [True]
        await own.rollback()
    [lost] = await recover(store, delays=calls.AT_ONCE, grace=0, by="undertaker")
    assert (lost.id, lost.state, lost.losses) == (held.id, "waiting", 1)
    assert await store.jobs.replicas() == []
