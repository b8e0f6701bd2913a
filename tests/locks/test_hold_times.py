"""min_hold and max_hold."""

import asyncio

import pytest

from tenure import ConfigError, LeaseLost


async def test_min_hold_keeps_others_out_after_a_quick_release(app, rival, clock):
    async with app.lock("tick", ttl=30, min_hold=5):
        pass
    await clock.advance(4.9)
    assert await rival.lock("tick").try_acquire() is None
    await clock.advance(0.2)
    hold = await rival.lock("tick").try_acquire()
    assert hold is not None
    await hold.release()


async def test_a_min_hold_of_less_than_a_second_counts_too(app, rival, clock):
    async with app.lock("tick", ttl=30, min_hold=0.5):
        pass
    await clock.advance(0.4)
    assert await rival.lock("tick").try_acquire() is None
    await clock.advance(0.2)
    hold = await rival.lock("tick").try_acquire()
    assert hold is not None
    await hold.release()


async def test_a_hold_longer_than_min_hold_is_given_back_at_once(app, rival, clock):
    async with app.lock("tick", ttl=30, min_hold=5):
        await clock.advance(6)
    assert await rival.locks() == []


async def test_a_waiter_gets_it_when_min_hold_is_over(app, rival, clock):
    async with app.lock("tick", min_hold=5):
        waiting = asyncio.create_task(rival.lock("tick").acquire())
        await clock.advance(0.1)
    await clock.advance(4)
    assert not waiting.done()
    await clock.advance(2)
    await (await waiting).release()


async def test_max_hold_takes_a_stuck_lock_away(app, rival, clock):
    async def stuck() -> None:
        async with app.lock("stuck", ttl=10, max_hold=25):
            await clock.sleep(10_000)

    task = asyncio.create_task(stuck())
    await clock.advance(24.9)
    assert await rival.lock("stuck").try_acquire() is None
    await clock.advance(0.2)
    with pytest.raises(LeaseLost, match="max_hold is over"):
        await task
    assert await rival.locks() == []


async def test_max_hold_is_honest_without_the_keeper(app, clock):
    hold = await app.lock("stuck", ttl=10, max_hold=3).acquire()
    clock.shift(3)
    assert hold.is_lost
    await hold.release()


async def test_max_hold_is_told_in_time_beside_other_holds(app, clock):
    async with app.lock("other", ttl=60):
        await clock.advance(1)
        hold = await app.lock("stuck", ttl=600, max_hold=2).acquire()
        await clock.advance(2.1)
        assert hold.lost.is_set()
        await hold.release()


async def test_a_renewal_in_flight_does_not_undo_min_hold(app, rival, faults, clock):
    faults.delay("renew", 0.5)

    async def work() -> None:
        async with app.lock("tick", ttl=10, min_hold=4):
            await clock.sleep(3.1)  # a renewal is on its way
            faults.heal()  # and what is sent from now on overtakes it

    task = asyncio.create_task(work())
    await clock.advance(6)
    await task
    hold = await rival.lock("tick").try_acquire()
    assert hold is not None
    await hold.release()


@pytest.mark.parametrize(("least", "most"), [(-1, None), (5, 4), (0, 0), ("soon", None)])
async def test_impossible_times_are_refused(app, least, most):
    with pytest.raises(ConfigError, match="_hold"):
        app.lock("x", min_hold=least, max_hold=most)
