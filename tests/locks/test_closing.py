"""Closing, at awkward moments."""

import asyncio
import gc
import threading
import weakref

import pytest

from tenure import StoreError, Tenure
from tenure.app import engine_of
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore
from tests.rig.wait import wait_until_async


async def test_an_app_closed_inside_a_block_keeps_the_error_of_the_block(clock):
    app = Tenure("memory://", clock=clock)
    await app.open()
    with pytest.raises(KeyError, match="mine"):
        async with app.lock("x"):
            await app.close()
            raise KeyError("mine")


async def test_an_app_closed_and_opened_again_inside_a_block(clock):
    app = Tenure("memory://", clock=clock)
    await app.open()
    async with app.lock("x"):
        await app.close()
        await app.open()
    await app.close()


async def test_a_close_that_was_cancelled_can_be_finished(clock):
    faults = Faults()
    store = connect("memory://", namespace="test", clock=clock)
    app = Tenure(FaultyStore(store, faults))
    await app.open()
    hold = await app.lock("x").acquire()
    faults.delay("release", 1)
    giving_back = asyncio.create_task(hold.release())
    await clock.advance(0.1)
    giving_back.cancel()
    await clock.advance(0)
    closing = asyncio.create_task(app.close())
    await clock.advance(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    finishing = asyncio.create_task(app.close())
    await clock.advance(3)
    await finishing
    with pytest.raises(StoreError, match="not open"):
        await app.locks()


async def test_a_lock_acquired_while_closing_is_released(clock):
    faults = Faults()
    store = FaultyStore(connect("memory://", namespace="test", clock=clock), faults)
    app, rival = Tenure(store), Tenure(store._store.clone())
    async with rival:
        await app.open()
        faults.delay("acquire", 1)
        taking = asyncio.create_task(app.lock("x").acquire())
        await clock.advance(0.5)
        holds = engine_of(app).holds()
        holds.closed = True  # as it is in the middle of closing
        await clock.advance(2)
        with pytest.raises(StoreError, match="closed"):
            await taking
        assert await rival.locks() == []
        await app.close()


async def test_a_finalizer_inside_the_keeper_does_not_wait_for_it(real_app):
    hold = await real_app.lock("x").acquire()
    keeper = engine_of(real_app).holds()._keeper
    with keeper._changing, pytest.warns(ResourceWarning, match="never released"):
        hold.__del__()
    await hold.release()


async def test_a_slow_prune_costs_no_lease(app, faults, clock):
    faults.delay("prune", 10_000)
    async with app.lock("x", ttl=10) as hold:
        await clock.advance(2000)
        assert faults.calls["prune"] == 1  # and no second one beside it
        assert hold.is_held


async def test_closing_leaves_no_thread():
    before = threading.enumerate()

    def ours() -> list[str]:
        new = [thread.name for thread in threading.enumerate() if thread not in before]
        return [name for name in new if name.startswith("tenure")]

    async with Tenure("memory://") as app, app.lock("x", ttl=1):
        assert ours() == ["tenure-host"]
    assert ours() == []


async def test_a_store_that_came_back_empty_keeps_what_is_granted_since(private_valkey, namespace):
    server = private_valkey()
    async with Tenure(server.url, namespace=namespace) as app:
        server.restart(empty=True)
        async with app.lock("x", ttl=2, wait=20) as hold:
            await asyncio.sleep(3)
            assert hold.is_held


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the hold that is dropped as well
def test_a_waiter_that_outlives_its_event_loop_can_be_dropped():
    """As the interpreter does at exit if a program closes a loop before its tasks have ended."""
    ended: list[object] = []

    async def wait(app: Tenure) -> None:
        await app.lock("x", ttl=600).acquire()

    async def waits(app: Tenure) -> asyncio.Task[None]:
        await app.open()
        await wait(app)
        waiting = asyncio.create_task(wait(app))

        async def has_a_waiter() -> bool:
            return any(lease.waiting for lease in await app.locks())

        await wait_until_async(has_a_waiter, 20)
        return waiting

    def drop() -> None:
        loop = asyncio.new_event_loop()
        waiting = loop.run_until_complete(waits(Tenure("memory://")))
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        try:
            ended.append(waiting.get_coro().close())
        except RuntimeError as error:
            ended.append(error)

    thread = threading.Thread(target=drop)
    thread.start()
    thread.join(20)
    assert ended == [None]


async def test_nothing_of_a_released_hold_stays_on_its_loop(real_app):
    """A deadline that is watched on would cost a process with many short holds its memory."""
    hold = await real_app.lock("x", ttl=600).acquire()
    kept = weakref.ref(hold._kept)
    await hold.release()
    del hold
    gc.collect()
    await wait_until_async(lambda: kept() is None)
