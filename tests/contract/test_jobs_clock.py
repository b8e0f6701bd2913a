"""The clock of the store is set while jobs wait and run."""

from tenure.core.records import Beat
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import AT_ONCE, MOMENT, TTL, id_of, join, look, start_one

HOUR = 3600.0


async def beat(store: Store, replica: str = "ann", **details) -> Beat:
    """Beat for a replica that is known."""
    [answer] = await store.beat([replica], **{"ttl": TTL, **details})
    assert answer is not None
    return answer


# Beats tell how the clock goes by which replicas expire.


async def test_beats_tell_how_much_time_has_passed(store: Store, clock: ManualClock):
    await join(store, "ann", "ben")
    before = (await beat(store)).now
    clock.shift(7.5)
    assert (await beat(store)).now - before == 7_500_000
    [ann, ben] = await store.beat(["ann", "ben"], ttl=TTL)
    assert ann is not None
    assert ben is not None
    assert ann.now == ben.now == before + 7_500_000


async def test_a_step_that_ends_records_shows_in_the_beats(store: Store, clock: ManualClock):
    """Where a step is not felt it ends none, and does not show."""
    await join(store, "ann", "ben")
    before = (await beat(store)).now
    clock.step(HOUR)
    after = await beat(store)
    assert after.now - before == (HOUR * 1e6 if after.expired else 0)


# Recovery goes by the time of a beat.


async def test_what_had_not_expired_by_a_beat_is_left_alone_after_a_step_ahead(
    store: Store, clock: ManualClock
):
    await start_one(store, replica="ben")
    await join(store, "ann")
    clock.shift(TTL - MOMENT)
    as_of = (await beat(store)).now
    clock.step(HOUR)
    assert await store.recover(delays=AT_ONCE, grace=0, as_of=as_of) == []
    [ben] = await store.beat(["ben"], ttl=TTL)
    assert ben is not None
    assert ben.held == 1


async def test_what_had_expired_by_a_beat_is_recovered_whatever_the_clock_does(
    store: Store, clock: ManualClock
):
    await start_one(store, replica="ben")
    await join(store, "ann")
    clock.shift(TTL)
    as_of = (await beat(store)).now
    clock.step(HOUR)
    [lost] = await store.recover(delays=AT_ONCE, grace=0, as_of=as_of)
    assert (lost.id, lost.replica, lost.state) == (id_of(1), "ben", "waiting")
    assert [replica.id for replica in await store.replicas()] == ["ann"]


async def test_a_replica_that_beats_after_the_beat_to_go_by_is_left_alone(
    store: Store, clock: ManualClock
):
    await start_one(store, replica="ben")
    await join(store, "ann")
    clock.shift(TTL)
    as_of = (await beat(store)).now
    await beat(store, "ben")
    assert await store.recover(delays=AT_ONCE, grace=0, as_of=as_of) == []


async def test_an_instant_of_the_future_recovers_no_more_than_now(store: Store, clock: ManualClock):
    await start_one(store, replica="ben", timeout=5)
    await join(store, "ann")
    as_of = (await beat(store)).now + 3_600_000_000
    clock.shift(5 - MOMENT)
    assert await store.recover(delays=AT_ONCE, grace=0, as_of=as_of) == []
    clock.shift(MOMENT)
    assert len(await store.recover(delays=AT_ONCE, grace=0, as_of=as_of)) == 1


async def test_a_deadline_is_judged_by_the_beat_as_well(store: Store, clock: ManualClock):
    await start_one(store, replica="ann", timeout=5)
    clock.shift(7)
    early = (await beat(store)).now
    clock.shift(2)
    late = (await beat(store)).now
    assert await store.recover(delays=AT_ONCE, grace=3, as_of=early) == []
    assert len(await store.recover(delays=AT_ONCE, grace=3, as_of=late)) == 1


# Deadlines.


async def test_a_beat_postpones_the_deadlines_of_its_replicas_alone(
    store: Store, clock: ManualClock
):
    for number, replica in enumerate(["ann", "ben", "cid"], 1):
        await start_one(store, number, replica=replica, timeout=5)
    await start_one(store, 4, replica="ann")
    await store.beat(["ann", "ben"], ttl=HOUR, ahead=30)
    await beat(store, "cid", ttl=HOUR)
    revision = (await look(store)).revision
    clock.shift(5)
    [lost] = await store.recover(delays=[HOUR], grace=0)
    assert lost.replica == "cid"
    clock.shift(30 - MOMENT)
    assert await store.recover(delays=[HOUR], grace=0) == []
    assert not (await beat(store, ttl=HOUR)).expired
    clock.shift(MOMENT)
    assert (await beat(store, ttl=HOUR)).expired
    lost = await store.recover(delays=[HOUR], grace=0)
    assert sorted(one.id for one in lost) == [id_of(1), id_of(2)]
    assert (await look(store)).revision > revision


async def test_a_step_ahead_ends_no_attempt_of_a_replica_that_tells_its_lead(
    store: Store, clock: ManualClock
):
    await start_one(store, timeout=60)
    before = (await beat(store, ttl=2 * HOUR)).now
    clock.step(HOUR)
    after = (await beat(store, ttl=2 * HOUR)).now
    now = await beat(store, ttl=2 * HOUR, ahead=(after - before) / 1e6)
    assert not now.expired
    assert await store.recover(delays=AT_ONCE, grace=0) == []
    clock.shift(60)
    assert len(await store.recover(delays=AT_ONCE, grace=0)) == 1
