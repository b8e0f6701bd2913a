"""Taking and giving back, in virtual time."""

import asyncio

import pytest

from tenure import AcquireTimeout, StoreError, StoreUnavailable, Tenure, WouldDeadlock
from tenure.app import engine_of
from tenure.observe import LimitsDiffer, LockRefused


async def names_held(app: Tenure) -> list[str]:
    return [lease.key for lease in await app.locks() if not lease.waiting]


async def test_a_lock_is_held_inside_its_block_only(app):
    async with app.lock("invoice:42") as hold:
        assert hold.is_held
        assert hold.name == "invoice:42"
        assert await names_held(app) == ["invoice:42"]
    assert await names_held(app) == []
    assert not hold.is_held
    assert not hold.is_lost


async def test_fences_rise_from_hold_to_hold(app):
    fences = []
    for _ in range(5):
        async with app.lock("invoice:42") as hold:
            fences.append(hold.fence)
    assert fences == sorted(set(fences))


async def test_a_lock_may_be_described_before_the_app_is_open(clock):
    app = Tenure("memory://", clock=clock)
    lock = app.lock("early")
    with pytest.raises(StoreError, match="is not open"):
        await lock.acquire()
    async with app, lock as hold:
        assert hold.is_held


async def test_an_app_can_be_opened_again(clock):
    app = Tenure("memory://", clock=clock)
    for _ in range(2):
        async with app, app.lock("again"):
            pass


async def test_two_tasks_share_a_lock_object_but_never_a_hold(app):
    lock = app.lock("shared")
    entered: list[int] = []
    inside = 0

    async def section() -> None:
        nonlocal inside
        async with lock as hold:
            inside += 1
            assert inside == 1
            entered.append(hold.fence)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(section() for _ in range(10)))
    assert entered == sorted(set(entered))
    assert await app.locks() == []


async def test_holder_ids_are_random(app):
    async with app.lock("a") as first, app.lock("b") as second:
        assert first.holder != second.holder
        assert len(first.holder) == 32


async def test_try_acquire_answers_none_when_taken(app, rival):
    async with app.lock("busy"):
        assert await rival.lock("busy").try_acquire() is None
    hold = await rival.lock("busy").try_acquire()
    assert hold is not None
    assert await hold.release()


async def test_releasing_twice_is_harmless(app):
    hold = await app.lock("twice").acquire()
    assert await hold.release()
    assert not await hold.release()
    assert not hold.is_lost


async def test_a_lock_is_neither_true_nor_false(app):
    with pytest.raises(TypeError, match="try_acquire"):
        bool(app.lock("x"))


async def test_waiting_ends_with_a_timeout_that_names_the_lock(app, rival, clock):
    async with app.lock("busy"):
        waiting = asyncio.create_task(rival.lock("busy", wait=5).acquire())
        await clock.advance(4.9)
        assert not waiting.done()
        await clock.advance(0.2)
        with pytest.raises(AcquireTimeout, match="'busy' was not free within 5 s") as caught:
            await waiting
        assert isinstance(caught.value, TimeoutError)
        await clock.advance(0)
        assert [lease.waiting for lease in await app.locks()] == [False]


async def test_acquire_overrides_the_wait_of_the_lock(app, rival):
    async with app.lock("busy"):
        with pytest.raises(AcquireTimeout):
            await rival.lock("busy", wait=None).acquire(wait=0)


async def test_waiting_for_ever_survives_many_renewals_of_the_holder(app, rival, clock):
    async with app.lock("busy", ttl=10):
        waiting = asyncio.create_task(rival.lock("busy").acquire())
        await clock.advance(300)
        assert not waiting.done()
    await clock.advance(0)
    hold = await asyncio.wait_for(waiting, 5)
    await hold.release()


async def test_a_dead_holders_lock_is_free_after_its_ttl(app, rival, clock):
    hold = await app.lock("dead", ttl=10).acquire()
    hold._holds.drop(hold._kept)  # it is not renewed any more
    waiting = asyncio.create_task(rival.lock("dead").acquire())
    await clock.advance(9.9)
    assert not waiting.done()
    await clock.advance(0.5)
    successor = await waiting
    assert successor.fence > hold.fence
    await successor.release()
    await hold.release()


async def test_tasks_of_one_process_are_served_in_order_and_are_one_waiter_on_the_store(app, rival):
    served: list[int] = []

    async def section(number: int) -> None:
        async with app.lock("line"):
            served.append(number)

    async with rival.lock("line"):
        tasks = []
        for number in range(20):
            tasks.append(asyncio.create_task(section(number)))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiters = [lease for lease in await rival.locks() if lease.waiting]
        assert len(waiters) == 1
    await asyncio.gather(*tasks)
    assert served == list(range(20))


async def test_a_task_that_would_wait_for_itself_gets_an_error(app):
    async with app.lock("mine"):
        with pytest.raises(WouldDeadlock, match="'mine'"):
            await app.lock("mine").acquire(wait=1)
        assert await app.lock("mine").try_acquire() is None
        # Another task may wait: it is not the one that has to release.
        with pytest.raises(AcquireTimeout):
            await asyncio.create_task(app.lock("mine").acquire(wait=0))


async def test_a_semaphore_admits_as_many_as_its_limit(app, rival):
    holds = [await app.semaphore("gpu", 3).acquire() for _ in range(2)]
    holds.append(await rival.semaphore("gpu", 3).acquire())
    assert await app.semaphore("gpu", 3).try_acquire() is None
    with pytest.raises(AcquireTimeout):
        await rival.semaphore("gpu", 3).acquire(wait=0)
    assert len({hold.fence for hold in holds}) == 3
    for hold in holds:
        await hold.release()


async def test_one_semaphore_object_may_be_entered_more_than_once_by_a_task(app):
    semaphore = app.semaphore("gpu", 3)
    async with semaphore as first, semaphore as second:
        assert first.fence != second.fence
        async with semaphore:
            with pytest.raises(WouldDeadlock):
                await semaphore.acquire()
    assert await app.locks() == []


async def test_different_limits_are_reported_and_the_smaller_one_rules(app, rival):
    seen: list[object] = []
    rival.on_event(seen.append)
    async with app.semaphore("deploy", 1):
        assert await rival.semaphore("deploy", 5).try_acquire() is None
    assert seen == [LimitsDiffer("deploy", 5, 1), LockRefused("deploy", 5)]


async def test_a_waiter_reports_a_different_limit_once(app, rival, clock):
    """It asks the store about once a second, and the log must not fill up."""
    seen: list[object] = []
    rival.on_event(seen.append)
    async with app.semaphore("deploy", 1):
        waiting = asyncio.create_task(rival.semaphore("deploy", 5).acquire())
        await clock.advance(30)
        assert seen == [LimitsDiffer("deploy", 5, 1)]
    await clock.advance(2)
    await (await waiting).release()
    assert [event for event in seen if isinstance(event, LimitsDiffer)] == seen[:1]


async def test_a_smaller_limit_is_served_while_larger_ones_come_and_go(app, rival, clock):
    """Six tasks of the old release hold a place of ten for a second each, without a pause."""
    places = app.semaphore("deploy", 10)
    served: list[float] = []

    async def come_and_go() -> None:
        while True:
            async with places:
                await clock.sleep(1)
                served.append(clock.boot())

    async with asyncio.TaskGroup() as tasks:
        old = [tasks.create_task(come_and_go()) for _ in range(6)]
        await clock.advance(0.5)
        async with asyncio.timeout(5):
            new = tasks.create_task(rival.semaphore("deploy", 3).acquire(wait=8))
            await clock.advance(4)
            hold = await new
        assert len(await names_held(app)) <= 3
        before = len(served)
        await clock.advance(3)
        assert len(served) > before
        for task in old:
            task.cancel()
        await hold.release()


async def test_try_acquire_with_a_larger_limit_overtakes_no_waiter(app, rival, clock):
    holds = [await app.semaphore("deploy", 10).acquire() for _ in range(4)]
    waiting = asyncio.create_task(rival.semaphore("deploy", 3).acquire())
    await clock.advance(0.1)
    assert await app.semaphore("deploy", 10).try_acquire() is None
    for hold in holds[:2]:
        await hold.release()
    await clock.advance(0.1)
    for hold in (await waiting, *holds[2:]):
        await hold.release()
    assert await app.locks() == []


async def test_strict_refuses_a_different_limit_and_leaves_nothing_behind(app, rival):
    async with app.semaphore("deploy", 3):
        for refused in (rival.semaphore("deploy", 2, strict=True),):
            with pytest.raises(Exception, match="live holders use 3"):
                await refused.try_acquire()
        await asyncio.sleep(0)
        assert len(await app.locks()) == 1


async def test_locks_shows_who_holds_and_who_waits(app, rival, clock):
    async with app.lock("seen", meta={"why": "demo"}):
        waiting = asyncio.create_task(rival.lock("seen").acquire())
        await clock.advance(1)
        holder, waiter = await app.locks("se")
        assert holder.meta["why"] == "demo"
        assert {"host", "pid"} <= holder.meta.keys()
        assert (holder.waiting, waiter.waiting) == (False, True)
        assert holder.held_for == pytest.approx(1, abs=0.01)
        waiting.cancel()
    assert await app.locks("other") == []


async def test_a_hold_can_be_entered_by_itself(app):
    async with await app.lock("bare").acquire() as hold:
        assert hold.is_held
    assert await app.locks() == []


async def test_a_forgotten_hold_is_not_renewed_for_ever(app, clock):
    with pytest.warns(ResourceWarning, match="never released"):
        await app.lock("forgotten", ttl=10).acquire()
    await clock.advance(11)
    assert await app.locks() == []


async def test_try_acquire_fails_after_one_retry_if_the_store_is_unreachable(app, faults):
    faults.lose_request("acquire", times=100)
    trying = asyncio.create_task(app.lock("down").try_acquire())
    await engine_of(app).store.clock.advance(1)
    with pytest.raises(StoreUnavailable):
        await trying
    assert faults.calls["acquire"] == 2


async def test_a_waiter_survives_a_short_outage(app, faults, clock):
    faults.lose_request("acquire", times=4)
    trying = asyncio.create_task(app.lock("restart", wait=10).acquire())
    await clock.advance(2)
    hold = await trying
    await hold.release()


async def test_a_waiter_gives_up_on_a_long_outage(app, faults, clock):
    faults.lose_request("acquire", times=10_000)
    trying = asyncio.create_task(app.lock("down", wait=None).acquire())
    await clock.advance(10)
    with pytest.raises(StoreUnavailable):
        await trying
