"""What happens when a lease is lost, in virtual time."""

import asyncio
from contextlib import suppress

import pytest

from tenure import Hold, LeaseLost
from tenure.app import engine_of
from tenure.observe import HoldLost, LockAcquired, LockReleased, RenewalFailing, RenewalRestored


async def rest(clock) -> None:
    await clock.sleep(1000)


async def lose(app, clock, hold) -> None:
    """Remove the lease behind its holder's back, and wait until the next renewal notices."""
    await engine_of(app).store.leases.release([hold._kept.lease])
    await clock.advance(10)


async def test_a_hold_lives_as_long_as_its_block(app, clock):
    async with app.lock("long", ttl=10) as hold:
        fence = hold.fence
        await clock.advance(1000)
        assert hold.is_held
        assert hold.fence == fence


async def test_loss_cancels_the_block_and_is_raised_at_its_end(app, clock):
    reached = []

    async def work() -> None:
        async with app.lock("lost", ttl=10) as hold:
            reached.append(hold)
            await rest(clock)
            reached.append("too far")

    task = asyncio.create_task(work())
    await clock.advance(0)
    await lose(app, clock, reached[0])
    with pytest.raises(LeaseLost, match="'lost'") as caught:
        await task
    assert caught.value.fence == reached[0].fence
    assert len(reached) == 1
    assert reached[0].lost.is_set()


async def test_an_outside_cancellation_wins_over_the_loss(app, clock):
    entered = asyncio.Event()

    async def work() -> None:
        async with app.lock("lost", ttl=10) as hold:
            entered.set()
            try:
                await rest(clock)
            finally:
                await lose(app, clock, hold)
                task.cancel()
                await asyncio.sleep(0)

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_bodys_own_error_is_kept_with_the_loss_as_a_note(app, clock):
    async with app.lock("other", ttl=10):
        pass

    async def work() -> None:
        async with app.lock("lost", ttl=10) as hold:
            await engine_of(app).store.leases.release([hold._kept.lease])
            try:
                await rest(clock)
            except asyncio.CancelledError:
                raise KeyError("mine") from None

    task = asyncio.create_task(work())
    await clock.advance(10)
    with pytest.raises(KeyError, match="mine") as caught:
        await task
    assert any("'lost'" in note for note in caught.value.__notes__)


async def test_a_body_that_swallows_the_cancellation_still_gets_the_loss(app, clock):
    async def work() -> None:
        async with app.lock("lost", ttl=10) as hold:
            await engine_of(app).store.leases.release([hold._kept.lease])
            with suppress(asyncio.CancelledError):
                await rest(clock)

    task = asyncio.create_task(work())
    await clock.advance(10)
    with pytest.raises(LeaseLost):
        await task
    assert task.cancelling() == 0


async def test_a_timeout_around_and_after_a_loss_still_works(app, clock):
    async def work() -> str:
        try:
            async with asyncio.timeout(3600), app.lock("lost", ttl=10) as hold:
                await engine_of(app).store.leases.release([hold._kept.lease])
                await rest(clock)
        except LeaseLost:
            pass
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"

    task = asyncio.create_task(work())
    await clock.advance(10)
    assert await task == "timed out"


async def test_a_loss_at_the_very_end_of_the_block_is_raised_and_cancels_nothing_after_it(
    app, clock
):
    async def work() -> str:
        with pytest.raises(LeaseLost):
            async with app.lock("lost", ttl=10) as hold:
                hold._kept.lose("said so")
                # The cancellation is on its way but cannot be delivered before the block ends.
        await asyncio.sleep(0)
        return "went on"

    assert await asyncio.create_task(work()) == "went on"


async def test_the_first_look_after_a_pause_is_honest(app, rival, clock):
    hold = await app.lock("paused", ttl=10).acquire()
    clock.shift(60)  # the process is stopped: time passes and nothing runs
    assert hold.is_lost
    assert hold.expires_in() == 0
    with pytest.raises(LeaseLost):
        hold.check()
    successor = await rival.lock("paused").acquire()
    assert successor.fence > hold.fence
    assert not await hold.release()
    assert [lease.fence for lease in await app.locks()] == [successor.fence]
    await successor.release()


async def test_once_lost_always_lost(app, clock):
    hold = await app.lock("paused", ttl=10).acquire()
    clock.shift(9.95)  # past the margin, before the store's own end
    assert hold.is_lost
    with pytest.raises(LeaseLost):
        await hold.renew()
    assert hold.is_lost
    await hold.release()


async def test_trust_is_counted_from_sending_not_from_the_answer(app, faults, clock):
    faults.delay("acquire", 4)
    faults.lose_request("renew", times=1000)
    taking = asyncio.create_task(app.lock("slow", ttl=10).acquire())
    await clock.advance(4.5)
    hold = await taking
    assert hold.expires_in() <= 10 - 4.5
    faults.heal()
    await hold.release()


async def test_an_answer_slower_than_the_ttl_is_never_trusted(app, faults, clock):
    faults.delay("acquire", 11)
    taking = asyncio.create_task(app.lock("slow", ttl=10, wait=20).acquire())
    await clock.advance(11.01)
    faults.heal()
    await clock.advance(12)
    hold = await taking
    assert hold.expires_in() > 8
    await hold.release()


async def test_failed_renewals_are_unknown_until_the_deadline(app, faults, clock):
    seen: list[object] = []
    app.on_event(seen.append)
    hold = await app.lock("outage", ttl=10).acquire()
    faults.lose_request("renew", times=3)
    await clock.advance(9)
    assert hold.is_held
    await clock.advance(60)
    assert hold.is_held
    assert [type(event) for event in seen] == [LockAcquired, RenewalFailing, RenewalRestored]
    await hold.release()


@pytest.mark.parametrize("ttl", [1, 10, 60])
async def test_an_outage_that_ends_shortly_before_the_deadline_costs_no_lease(
    app, faults, clock, ttl
):
    hold = await app.lock("outage", ttl=ttl, on_lost="raise").acquire()
    faults.lose_request("renew", times=1_000_000)
    await clock.advance(hold.expires_in() - 0.15 * min(ttl, 10))
    faults.heal()
    await clock.advance(3 * ttl)
    assert hold.is_held
    await hold.release()


async def test_loss_is_declared_at_the_deadline_even_if_a_renewal_hangs(app, faults, clock):
    seen: list[object] = []
    app.on_event(seen.append)
    faults.delay("renew", 10_000)
    hold = await app.lock("hung", ttl=10).acquire()
    await clock.advance(9.85)
    assert not hold.lost.is_set()
    await clock.advance(0.1)
    assert hold.lost.is_set()
    assert seen[1:] == [HoldLost("hung", hold.fence, "it could not be renewed in time")]
    faults.heal()
    await hold.release()


async def test_on_lost_raise_lets_the_block_finish(app, clock):
    done = []

    async def work() -> None:
        async with app.lock("lost", ttl=10, on_lost="raise") as hold:
            await engine_of(app).store.leases.release([hold._kept.lease])
            await hold.lost.wait()
            done.append(hold)

    task = asyncio.create_task(work())
    await clock.advance(10)
    with pytest.raises(LeaseLost):
        await task
    assert done


async def test_on_lost_function_is_called_once_and_nothing_is_raised(app, clock):
    lost = []

    async def work() -> None:
        async with app.lock("lost", ttl=10, on_lost=lost.append) as hold:
            await engine_of(app).store.leases.release([hold._kept.lease])
            await hold.lost.wait()

    task = asyncio.create_task(work())
    await clock.advance(10)
    await task
    assert [hold.name for hold in lost] == ["lost"]


async def test_on_lost_ignore_raises_nothing(app, clock):
    async def work() -> None:
        async with app.lock("lost", ttl=10, on_lost="ignore") as hold:
            await engine_of(app).store.leases.release([hold._kept.lease])
            await hold.lost.wait()

    task = asyncio.create_task(work())
    await clock.advance(10)
    await task


async def test_a_lost_bare_acquire_cancels_no_task(app, clock):
    async def work() -> str:
        hold = await app.lock("lost", ttl=10).acquire()
        await engine_of(app).store.leases.release([hold._kept.lease])
        await hold.lost.wait()
        return "not cancelled"

    task = asyncio.create_task(work())
    await clock.advance(10)
    assert await task == "not cancelled"


async def test_a_lease_that_was_gone_at_release_is_a_loss(app):
    with pytest.raises(LeaseLost, match="no longer had it"):
        async with app.lock("removed", ttl=10) as hold:
            await engine_of(app).store.leases.release([hold._kept.lease])


async def test_a_renewal_that_crosses_the_release_is_no_loss(app, faults, clock):
    seen: list[object] = []
    app.on_event(seen.append)
    faults.delay("renew", 0.5)

    async def work() -> Hold:
        async with app.lock("crossed", ttl=10) as hold:
            await clock.sleep(3.2)
        return hold

    task = asyncio.create_task(work())
    await clock.advance(10)
    hold = await task
    assert not hold.is_lost
    assert [type(event) for event in seen] == [LockAcquired, LockReleased]


async def test_renew_by_hand(app, faults, clock):
    faults.lose_request("renew", times=1000)
    async with app.lock("by hand", ttl=10) as hold:
        await clock.advance(5)
        faults.heal()
        await hold.renew()
        assert hold.expires_in() == pytest.approx(9.9)


async def test_the_keeper_renews_many_holds_in_one_call(app, faults, clock):
    holds = [await app.lock(f"many:{number}", ttl=10).acquire() for number in range(100)]
    await clock.advance(9)
    assert all(hold.is_held for hold in holds)
    assert faults.calls["renew"] < 30
    for hold in holds:
        await hold.release()
