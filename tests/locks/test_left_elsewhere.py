"""Blocks that are left in another task or thread than they were entered in.

A fixture, an exit stack, a session object and a FastAPI dependency do that. Each way to enter is
combined with each place to leave, while other blocks of the same shared object go on.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from typing import Any

import pytest

import tenure
from tenure import AcquireTimeout, ConfigError, LeaseLost, WouldDeadlock, blocking
from tenure.app import engine_of
from tests.rig.wait import wait_until

TTL = 600

# Asynchronous code. A way to enter returns the hold, and what leaves its block.

Leave = Callable[[], Awaitable[object]]


async def by_generator(lock: tenure.Semaphore) -> tuple[tenure.Hold, Leave]:
    @asynccontextmanager
    async def dependency() -> AsyncIterator[tenure.Hold]:
        async with lock as hold:
            yield hold

    manager = dependency()
    return await manager.__aenter__(), lambda: manager.__aexit__(None, None, None)


async def by_stack(lock: tenure.Semaphore) -> tuple[tenure.Hold, Leave]:
    stack = AsyncExitStack()
    return await stack.enter_async_context(lock), stack.aclose


async def by_hand(lock: tenure.Semaphore) -> tuple[tenure.Hold, Leave]:
    return await lock.__aenter__(), lambda: lock.__aexit__(None, None, None)


async def by_hold(lock: tenure.Semaphore) -> tuple[tenure.Hold, Leave]:
    hold = await lock.acquire()
    await hold.__aenter__()
    return hold, lambda: hold.__aexit__(None, None, None)


async def here(leave: Leave) -> None:
    await leave()


async def in_another_task(leave: Leave) -> None:
    await asyncio.create_task(here(leave))


ENTERED = {"generator": by_generator, "stack": by_stack, "by hand": by_hand, "hold": by_hold}
LEFT = {"here": here, "in another task": in_another_task}


class Bystander:
    """A task inside of a block of its own, until it is let go."""

    def __init__(self, lock: tenure.Semaphore) -> None:
        self.inside: asyncio.Future[tenure.Hold] = asyncio.get_running_loop().create_future()
        self._go = asyncio.Event()
        self._task = asyncio.create_task(self._stay(lock))

    async def _stay(self, lock: tenure.Semaphore) -> None:
        async with lock as hold:
            self.inside.set_result(hold)
            await self._go.wait()
            hold.check()

    async def leave(self) -> None:
        self._go.set()
        await self._task


@pytest.mark.parametrize("leave_in", LEFT)
@pytest.mark.parametrize("enter_by", ENTERED)
@pytest.mark.parametrize("enter_in", ["this task", "a task that ends", "a task that goes on"])
async def test_leaving_a_block_releases_its_own_hold(app, enter_by, enter_in, leave_in):
    shared = app.semaphore("shared", 5, ttl=TTL)
    earlier, later = Bystander(shared), None
    await earlier.inside
    going_on = asyncio.Event()
    entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def enter() -> None:
        entered.set_result(await ENTERED[enter_by](shared))
        if enter_in == "a task that goes on":
            await going_on.wait()

    entering = None if enter_in == "this task" else asyncio.create_task(enter())
    if entering is None:
        await enter()
    hold, leave = await entered
    if enter_in == "a task that ends":
        await entering
    later = Bystander(shared)
    others = [await earlier.inside, await later.inside]
    await LEFT[leave_in](leave)
    assert not hold.is_held
    assert all(other.is_held for other in others)
    assert {lease.fence for lease in await app.locks()} == {other.fence for other in others}
    await earlier.leave()
    await later.leave()
    going_on.set()
    if entering is not None:
        await entering
    assert await app.locks() == []


async def test_blocks_of_one_object_in_one_task_may_end_in_any_order(app):
    shared = app.semaphore("shared", 5)
    first, second = AsyncExitStack(), AsyncExitStack()
    first_hold = await first.enter_async_context(shared)
    second_hold = await asyncio.create_task(second.enter_async_context(shared))
    await second.aclose()
    assert (first_hold.is_held, second_hold.is_held) == (True, False)
    async with shared as third_hold:
        await first.aclose()
        assert (first_hold.is_held, third_hold.is_held) == (False, True)
    assert await app.locks() == []


async def test_a_loss_reaches_the_task_that_entered_and_the_place_where_the_block_is_left(
    app, clock
):
    stack, entered = AsyncExitStack(), asyncio.Event()

    async def session() -> None:
        await stack.enter_async_context(app.lock("session", ttl=10))
        entered.set()
        await clock.sleep(1000)

    task = asyncio.create_task(session())
    await entered.wait()
    [lease] = await app.locks()
    await engine_of(app).store.leases.release([lease])
    await clock.advance(10)
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(LeaseLost):
        await stack.aclose()


async def test_leaving_elsewhere_after_a_loss_takes_no_cancellation_away(app, clock):
    stack, entered = AsyncExitStack(), asyncio.Event()

    async def session() -> None:
        await stack.enter_async_context(app.lock("session", ttl=10))
        entered.set()
        with suppress(asyncio.CancelledError):
            await clock.sleep(1000)
        await clock.sleep(1000)

    task = asyncio.create_task(session())
    await entered.wait()
    [lease] = await app.locks()
    await engine_of(app).store.leases.release([lease])
    await clock.advance(10)

    async def close() -> None:
        async with stack:
            await asyncio.Event().wait()

    closing = asyncio.create_task(close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert task.cancelling() == 1  # by the loss: it never left the block itself
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_direct_calls_that_cannot_be_told_apart_release_nothing(app):
    shared = app.semaphore("shared", 5)
    inside = asyncio.Event()

    async def session() -> tenure.Hold:
        hold = await shared.__aenter__()
        await inside.wait()
        return hold

    sessions = [asyncio.create_task(session()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ConfigError, match=r"2 such blocks are open.*release\(\)"):
        await shared.__aexit__(None, None, None)
    inside.set()
    holds = await asyncio.gather(*sessions)
    assert all(hold.is_held for hold in holds)
    for hold in holds:
        await hold.release()


# Synchronous code.

SyncLeave = Callable[[], object]


def sync_by_generator(lock: blocking.Semaphore) -> tuple[blocking.Hold, SyncLeave]:
    @contextmanager
    def dependency() -> Iterator[blocking.Hold]:
        with lock as hold:
            yield hold

    manager = dependency()
    return manager.__enter__(), lambda: manager.__exit__(None, None, None)


def sync_by_stack(lock: blocking.Semaphore) -> tuple[blocking.Hold, SyncLeave]:
    stack = ExitStack()
    return stack.enter_context(lock), stack.close


def sync_by_hand(lock: blocking.Semaphore) -> tuple[blocking.Hold, SyncLeave]:
    return lock.__enter__(), lambda: lock.__exit__(None, None, None)


def sync_by_hold(lock: blocking.Semaphore) -> tuple[blocking.Hold, SyncLeave]:
    hold = lock.acquire()
    hold.__enter__()
    return hold, lambda: hold.__exit__(None, None, None)


SYNC_ENTERED = {
    "generator": sync_by_generator,
    "stack": sync_by_stack,
    "by hand": sync_by_hand,
    "hold": sync_by_hold,
}


@pytest.fixture
def sync_app() -> Iterator[blocking.Tenure]:
    with blocking.Tenure("memory://") as app:
        yield app


def in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a thread that ends with it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(20)


@pytest.mark.parametrize("enter_by", SYNC_ENTERED)
@pytest.mark.parametrize("enter_in", ["this thread", "a thread that ends", "a thread that goes on"])
@pytest.mark.parametrize("leave_in", ["this thread", "a new thread", "the thread that goes on"])
def test_leaving_a_block_in_any_thread_releases_its_own_hold(
    sync_app, enter_by, enter_in, leave_in
):
    shared = sync_app.semaphore("shared", 5, ttl=TTL)
    with (
        ThreadPoolExecutor(1) as going_on,
        ThreadPoolExecutor(1) as bystander,
        ExitStack() as inside,
    ):
        threads = {
            "this thread": lambda function: function(),
            "a thread that ends": in_thread,
            "a new thread": in_thread,
            "a thread that goes on": lambda function: going_on.submit(function).result(20),
            "the thread that goes on": lambda function: going_on.submit(function).result(20),
        }
        earlier = bystander.submit(inside.enter_context, shared).result(20)
        hold, leave = threads[enter_in](lambda: SYNC_ENTERED[enter_by](shared))
        later = bystander.submit(inside.enter_context, shared).result(20)
        threads[leave_in](leave)
        assert not hold.is_held
        assert earlier.is_held
        assert later.is_held
        assert {lease.fence for lease in sync_app.locks()} == {earlier.fence, later.fence}
    assert sync_app.locks() == []


def test_a_loss_is_raised_in_the_thread_that_leaves(sync_app):
    manager, leave = in_thread(lambda: sync_by_generator(sync_app.lock("x", ttl=1)))
    [lease] = sync_app.locks()
    sync_app._portal().call(engine_of(sync_app._app).store.leases.release([lease]))
    assert manager.lost.wait(20)
    with pytest.raises(LeaseLost):
        leave()


def test_another_request_in_the_same_thread_of_a_pool_waits_for_the_first(sync_app):
    """A pool runs each call in a copy of the context that it was made in."""
    lock = sync_app.lock("x", ttl=TTL, wait=0.05)
    with lock:
        pass  # whatever this context knows is copied below
    with ThreadPoolExecutor(1) as pool:

        def call(function: Callable[[], Any]) -> Any:
            return pool.submit(copy_context().run, function).result(20)

        _, leave = call(lambda: sync_by_generator(lock))
        with pytest.raises(AcquireTimeout):
            call(lock.acquire)
        with pytest.raises(AcquireTimeout):
            call(lambda: sync_app.with_lock("x", print, ttl=TTL, wait=0.05) or lock.acquire())
        call(leave)
        call(lock.acquire).release()


def test_one_call_that_waits_for_itself_in_a_pool_is_told(sync_app):
    lock = sync_app.lock("x", ttl=TTL)

    def nested() -> None:
        with lock, pytest.raises(WouldDeadlock):
            lock.acquire()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(copy_context().run, nested).result(20)
        pool.submit(nested).result(20)


def test_a_forgotten_hold_of_a_thread_is_not_renewed_for_ever(sync_app):
    """Without the help of the garbage collector."""
    hold = sync_app.lock("x", ttl=1).acquire()
    with pytest.warns(ResourceWarning, match="never released"):
        del hold
    wait_until(lambda: sync_app.locks() == [], timeout=20)


def test_threads_share_a_semaphore_object(sync_app):
    shared = sync_app.semaphore("x", 3, ttl=TTL)
    barrier = threading.Barrier(3)

    def visit() -> int:
        with shared as hold:
            barrier.wait(20)
            assert hold.is_held
            return hold.fence

    with ThreadPoolExecutor(3) as pool:
        fences = [visit.result(20) for visit in [pool.submit(visit) for _ in range(9)]]
    assert len(set(fences)) == 9
    assert sync_app.locks() == []


async def test_a_task_that_did_not_get_in_by_hand_has_nothing_to_leave(app):
    lock = app.lock("shared", wait=0)
    held = await asyncio.create_task(lock.__aenter__())

    async def rival() -> None:
        with pytest.raises(AcquireTimeout):
            await lock.__aenter__()
        with pytest.raises(ConfigError, match="was not entered"):
            await lock.__aexit__(None, None, None)

    await asyncio.create_task(rival())
    assert held.is_held
    await lock.__aexit__(None, None, None)
    assert await app.locks() == []


def test_a_thread_that_did_not_get_in_by_hand_has_nothing_to_leave(sync_app):
    lock = sync_app.lock("shared", wait=0)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(lock.__enter__).result()
        with pytest.raises(AcquireTimeout):
            lock.__enter__()
        with pytest.raises(ConfigError, match="was not entered"):
            lock.__exit__(None, None, None)
        assert held.is_held
        lock.__exit__(None, None, None)  # a second call is that of the one block that is open
    assert sync_app.locks() == []


async def test_a_stack_leaves_what_was_pushed_and_what_was_entered(app):
    pushed, entered = app.lock("pushed"), app.lock("entered")
    async with AsyncExitStack() as stack:
        await pushed.__aenter__()
        stack.push_async_exit(pushed)
        await stack.enter_async_context(entered)
        assert len(await app.locks()) == 2
    assert await app.locks() == []


def test_a_synchronous_stack_leaves_what_was_pushed_and_what_was_entered(sync_app):
    pushed, entered = sync_app.lock("pushed"), sync_app.lock("entered")
    with ExitStack() as stack:
        pushed.__enter__()
        stack.push(pushed)
        stack.enter_context(entered)
        assert len(sync_app.locks()) == 2
    assert sync_app.locks() == []


def test_a_method_that_was_looked_up_and_kept_belongs_to_no_block(sync_app):
    lock = sync_app.lock("reports", ttl=TTL)
    kept = lock.__exit__
    with lock:
        assert len(sync_app.locks()) == 1
    assert sync_app.locks() == []
    del kept


STRAYS: dict[str, Callable[[Any], object]] = {
    "__exit__": lambda lock: hasattr(lock, "__exit__"),
    "__enter__": lambda lock: hasattr(lock, "__enter__"),
    "both": lambda lock: hasattr(lock, "__enter__") and hasattr(lock, "__exit__"),
    "of the class": lambda lock: type(lock).__exit__,
}


@pytest.mark.parametrize("stray", STRAYS)
@pytest.mark.parametrize("enter_by", SYNC_ENTERED)
def test_a_method_that_is_only_looked_up_belongs_to_no_block(sync_app, enter_by: str, stray: str):
    lock = sync_app.lock("reports", ttl=TTL)
    STRAYS[stray](lock)
    _, leave = SYNC_ENTERED[enter_by](lock)
    STRAYS[stray](lock)
    leave()
    assert sync_app.locks() == []


@pytest.mark.parametrize("stray", ["__aenter__", "__aexit__"])
async def test_an_async_method_that_is_only_looked_up_belongs_to_no_block(app, stray: str):
    lock = app.lock("reports", ttl=TTL)
    for enter in (by_generator, by_stack, by_hand, by_hold):
        assert hasattr(lock, stray)
        _, leave = await enter(lock)
        assert hasattr(lock, stray)
        await leave()
        assert await app.locks() == []


async def test_a_task_leaves_the_blocks_it_entered_by_hand_from_the_inside_out(app):
    semaphore = app.semaphore("shared", 2, ttl=TTL)
    outer, inner = await semaphore.__aenter__(), await semaphore.__aenter__()
    await semaphore.__aexit__(None, None, None)
    assert (outer.is_held, inner.is_held) == (True, False)
    await semaphore.__aexit__(None, None, None)
    assert not outer.is_held


def test_a_thread_leaves_the_blocks_it_entered_by_hand_from_the_inside_out(sync_app):
    semaphore = sync_app.semaphore("shared", 2, ttl=TTL)
    outer, inner = semaphore.__enter__(), semaphore.__enter__()
    semaphore.__exit__(None, None, None)
    assert (outer.is_held, inner.is_held) == (True, False)
    semaphore.__exit__(None, None, None)
    assert not outer.is_held
