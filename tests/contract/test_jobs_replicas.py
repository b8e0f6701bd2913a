import pytest

from tenure.core.jobs.records import BATCH_MAX
from tenure.core.jobs.replicas import CANCELS_MAX, Beat, ReplicaRecord
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    MOMENT,
    TTL,
    bring,
    claim,
    claim_ids,
    id_of,
    insert,
    join,
    look,
    new,
    recover_all,
    settle,
    start,
    start_one,
    states,
)
from tests.contract.worlds import World
from tests.rig.endings import bury, leave, recover

HOUR = 3600.0
ODD_NAMES = ["it's", "{x}:{0}", "a b\n", "100%_*", "läuft 🌍", 'say "hi" \\', "x" * 200]


async def record_of(store: Store, replica: str = "ann") -> ReplicaRecord:
    (record,) = [record for record in await store.jobs.replicas() if record.id == replica]
    return record


async def beat(store: Store, replica: str = "ann", *, ttl: float = TTL) -> Beat:
    """Send a heartbeat that is accepted."""
    (answer,) = await store.jobs.beat([replica], ttl=ttl)
    assert answer is not None, f"the store does not know {replica!r}"
    return answer


async def is_known(store: Store, replica: str = "ann") -> bool:
    return await store.jobs.beat([replica], ttl=TTL) != [None]


# Joining.


async def test_a_replica_that_joined_is_listed(store: Store, clock: ManualClock):
    await store.jobs.beat(["ann"], ttl=12.5, meta={"host": "a1", "läuft": "🌍"})
    (record,) = await store.jobs.replicas()
    assert (record.id, record.meta) == ("ann", {"host": "a1", "läuft": "🌍"})
    assert record.joined == clock.wall()
    assert record.ttl == 12.5
    assert record.expires_in == pytest.approx(12.5)
    assert (record.dead, record.held) == (False, 0)


async def test_joining_again_is_harmless(store: Store, clock: ManualClock):
    await store.jobs.beat(["ann"], ttl=10, meta={"host": "a1"})
    joined = clock.wall()
    await insert(store, new(1))
    assert await claim_ids(store) == [id_of(1)]
    clock.shift(5)
    await store.jobs.beat(["ann"], ttl=10, meta={"host": "a1"})
    (record,) = await store.jobs.replicas()
    assert (record.joined, record.meta, record.held) == (joined, {"host": "a1"}, 1)
    assert record.expires_in == pytest.approx(10)
    assert (await look(store)).state == "running"


async def test_joining_again_does_not_begin_the_claims_anew(store: Store):
    await join(store, "ann")
    await insert(store, new(1), new(2))
    first = await store.jobs.claim("ann", 1, ["default"], 1)
    assert first is not None
    await join(store, "ann")
    again = await store.jobs.claim("ann", 1, ["default"], 1)
    assert again is not None
    assert again.jobs == first.jobs


async def test_a_dead_record_stays_dead(store: Store, clock: ManualClock):
    await start(store, new(1), new(2))
    clock.shift(TTL)
    assert len(await recover(store, delays=AT_ONCE, grace=0, limit=1)) == 1
    await join(store, "ann")
    assert (await record_of(store)).dead
    assert not await is_known(store)
    assert len(await recover_all(store)) == 1
    assert await store.jobs.replicas() == []


async def test_an_id_whose_record_is_gone_may_join(store: Store, clock: ManualClock):
    await start_one(store)
    clock.shift(TTL)
    await recover_all(store)
    assert not await is_known(store)
    await join(store, "ann")
    assert await is_known(store)
    assert await claim_ids(store) == [id_of(1)]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
async def test_a_replica_may_have_any_name(store: Store, clock: ManualClock, name: str):
    await store.jobs.beat([name], ttl=TTL, meta={name: name})
    await join(store, f"{name[:190]} ", name.swapcase()[:190] + "!")
    await insert(store, new(1))
    (job,) = await claim(store, name)
    assert job.replica == name
    assert (await record_of(store, name)).meta == {name: name}
    assert (await record_of(store, name)).held == 1
    await store.jobs.cancel([job.id])
    assert (await beat(store, name)).cancels == [job.id]
    assert await leave(store, name) == [job.id]
    assert len(await store.jobs.replicas()) == 2


# Beats.


async def test_a_beat_gives_the_full_ttl_again(store: Store, clock: ManualClock):
    await join(store, "ann", ttl=10)
    clock.shift(9)
    await beat(store, ttl=20)
    record = await record_of(store)
    assert record.ttl == 20
    assert record.expires_in == pytest.approx(20)
    clock.shift(20 - MOMENT)
    await join(store, "ben", ttl=HOUR)
    assert not (await beat(store, "ben")).expired
    clock.shift(MOMENT)
    assert (await beat(store, "ben")).expired


async def test_a_beat_may_shorten_the_ttl(store: Store, clock: ManualClock):
    await join(store, "ann", ttl=HOUR)
    await beat(store, ttl=5)
    assert (await record_of(store)).expires_in == pytest.approx(5)


async def test_a_beat_revives_an_expired_record(store: Store, clock: ManualClock):
    job = await start_one(store)
    clock.shift(100 * TTL)
    assert (await record_of(store)).expires_in <= 0
    assert (await beat(store)).held == 1
    assert (await record_of(store)).expires_in == pytest.approx(TTL)
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    assert await look(store) == job


async def test_a_beat_of_an_unknown_replica_gets_none(store: Store):
    assert await store.jobs.beat(["nobody"], ttl=TTL) == [None]
    assert await store.jobs.replicas() == []


async def test_a_beat_of_a_replica_under_recovery_gets_none(store: Store, clock: ManualClock):
    await start(store, new(1), new(2))
    clock.shift(TTL)
    await recover(store, delays=AT_ONCE, grace=0, limit=1)
    assert await store.jobs.beat(["ann"], ttl=TTL) == [None]
    (record,) = await store.jobs.replicas()
    assert (record.dead, record.held) == (True, 1)


async def test_one_beat_serves_many_replicas(store: Store, clock: ManualClock):
    for number, replica in enumerate(["ann", "ben", "cid"]):
        await start_one(store, number, replica=replica)
    await store.jobs.cancel([id_of(1)])
    clock.shift(TTL)
    answers = await store.jobs.beat(["cid", "nobody", "ben", "ann"], ttl=TTL)
    assert [answer and (answer.cancels, answer.held, answer.expired) for answer in answers] == [
        ([], 1, False),
        None,
        ([id_of(1)], 1, False),
        ([], 1, False),
    ]
    assert [record.expires_in for record in await store.jobs.replicas()] == [pytest.approx(TTL)] * 3
    assert await store.jobs.beat([], ttl=TTL) == []


async def test_held_counts_running_jobs(store: Store):
    jobs = await start(store, *(new(number) for number in range(5)))
    assert (await beat(store)).held == 5
    await settle(store, jobs[0], "succeeded")
    await settle(store, jobs[1], "retry", delay=60)
    assert (await beat(store)).held == 3
    assert (await record_of(store)).held == 3
    await start_one(store, 9, replica="ben")
    assert (await beat(store)).held == 3
    assert (await beat(store, "ben")).held == 1


# Cancels.


async def test_a_beat_delivers_cancels_until_the_job_settles(store: Store):
    first, second, _ = await start(store, new(1), new(2), new(3))
    assert (await beat(store)).cancels == []
    await store.jobs.cancel([first.id, second.id])
    for _ in range(3):
        assert sorted((await beat(store)).cancels) == [first.id, second.id]
    await settle(store, first, "cancelled")
    assert (await beat(store)).cancels == [second.id]
    await settle(store, second, "retry")
    assert (await beat(store)).cancels == []


async def test_a_beat_delivers_only_its_own_cancels(store: Store):
    await start_one(store, 1, replica="ann")
    await start_one(store, 2, replica="ben")
    await bring(store, "waiting", 3, delay=60)
    await store.jobs.cancel([id_of(2), id_of(3)])
    assert (await beat(store, "ann")).cancels == []
    assert (await beat(store, "ben")).cancels == [id_of(2)]


async def test_cancels_come_in_bounded_portions(store: Store):
    numbers = range(CANCELS_MAX + 1)
    jobs = [
        *await start(store, *(new(number) for number in numbers[:-1])),
        *await start(store, new(numbers[-1])),
    ]
    await store.jobs.cancel([job.id for job in jobs[:-1]])
    await store.jobs.cancel([jobs[-1].id])
    first = (await beat(store)).cancels
    assert len(set(first)) == CANCELS_MAX
    by_id = {job.id: job for job in jobs}
    for id_ in first[:10]:
        await settle(store, by_id[id_], "cancelled")
    second = (await beat(store)).cancels
    assert len(second) == CANCELS_MAX - 9
    assert set(first) | set(second) == set(by_id)


# Whether a replica needs recovery.


async def test_a_beat_reports_an_expired_replica(store: Store, clock: ManualClock):
    await join(store, "ben", ttl=HOUR)
    await start_one(store, replica="ann")
    clock.shift(TTL - MOMENT)
    assert not (await beat(store, "ben", ttl=HOUR)).expired
    clock.shift(MOMENT)
    assert (await beat(store, "ben", ttl=HOUR)).expired
    await recover_all(store)
    assert not (await beat(store, "ben", ttl=HOUR)).expired


async def test_a_beat_reports_an_unfinished_recovery(store: Store, clock: ManualClock):
    await join(store, "ben", ttl=HOUR)
    await start(store, new(1), new(2), replica="ann")
    clock.shift(TTL)
    await recover(store, delays=AT_ONCE, grace=0, limit=1)
    assert (await beat(store, "ben", ttl=HOUR)).expired
    await recover_all(store)
    assert not (await beat(store, "ben", ttl=HOUR)).expired


async def test_a_beat_reports_a_job_far_past_its_deadline(store: Store, clock: ManualClock):
    await start_one(store, timeout=5)
    assert not (await beat(store, ttl=HOUR)).expired
    clock.shift(5 - MOMENT)
    assert not (await beat(store, ttl=HOUR)).expired
    clock.shift(60)
    assert (await beat(store, ttl=HOUR)).expired
    await recover_all(store)
    assert not (await beat(store, ttl=HOUR)).expired


async def test_a_beat_does_not_count_its_own_replica_as_expired(store: Store, clock: ManualClock):
    await join(store, "ann", "ben")
    clock.shift(2 * TTL)
    answers = await store.jobs.beat(["ann", "ben"], ttl=TTL)
    assert [answer and answer.expired for answer in answers] == [False, False]


# Leaving.


async def test_a_replica_that_leaves_hands_back_its_running_jobs(store: Store, clock: ManualClock):
    jobs = await start(store, new(1), new(2))
    clock.shift(1)
    assert sorted(await leave(store, "ann")) == [id_of(1), id_of(2)]
    assert await store.jobs.replicas() == []
    for job in jobs:
        (after,) = await store.jobs.get([job.id])
        assert after is not None
        assert (after.state, after.replica, after.due) == ("waiting", "", job.due)
        assert (after.attempt, after.failures, after.losses) == (1, 0, 0)
        assert after.history == b""
        assert after.fence > job.fence
        assert after.revision > job.revision
    await join(store, "ben")
    assert await claim_ids(store, "ben") == [id_of(1), id_of(2)]


async def test_a_replica_that_leaves_cancels_jobs_with_a_pending_cancel(
    store: Store, clock: ManualClock
):
    await start(store, new(1), new(2))
    await store.jobs.cancel([id_of(1)], reason="enough")
    assert sorted(await leave(store, "ann")) == [id_of(1), id_of(2)]
    job = await look(store, 1)
    assert (job.state, job.reason, job.cancelling) == ("cancelled", "enough", False)
    assert (job.finished, job.losses) == (clock.wall(), 0)
    assert await states(store, 2) == ["waiting"]


async def test_an_unknown_replica_that_leaves_hands_back_nothing(store: Store):
    await start_one(store)
    assert await leave(store, "nobody") == []
    assert await leave(store, "ann") == [id_of(1)]
    assert await leave(store, "ann") == []


async def test_a_replica_that_leaves_hands_back_only_its_own_jobs(store: Store):
    await start_one(store, 1, replica="ann")
    kept = await start_one(store, 2, replica="ben")
    await leave(store, "ann")
    assert await look(store, 2) == kept
    assert [record.id for record in await store.jobs.replicas()] == ["ben"]


async def test_an_expired_replica_may_leave(store: Store, clock: ManualClock):
    await start_one(store)
    clock.shift(TTL)
    assert await leave(store, "ann") == [id_of(1)]
    assert (await look(store)).losses == 0
    assert await recover_all(store) == []


@pytest.mark.parametrize("way", ["leave", "bury"])
async def test_a_replica_with_more_jobs_than_a_batch_hands_all_of_them_back(store: Store, way: str):
    numbers = range(BATCH_MAX + 50)
    for part in (numbers[:BATCH_MAX], numbers[BATCH_MAX:]):
        await start(store, *(new(number) for number in part))
    if way == "leave":
        returned = await leave(store, "ann")
    else:
        started = [id_of(number) for number in numbers[:BATCH_MAX]]
        returned = [job.id for job in await bury(store, "ann", started, delays=AT_ONCE)]
    assert sorted(returned) == [id_of(number) for number in numbers]
    assert await store.jobs.replicas() == []
    (counts,) = await store.jobs.counts()
    assert (counts.waiting, counts.running) == (len(numbers), 0)


# The list.


async def test_replicas_are_listed_in_the_order_they_joined(store: Store, clock: ManualClock):
    for replica in ("cid", "ann", "ben"):
        await join(store, replica)
        clock.shift(0.5)
    await join(store, "ann")
    assert [record.id for record in await store.jobs.replicas()] == ["cid", "ann", "ben"]
    assert [record.id for record in await store.jobs.replicas(limit=2)] == ["cid", "ann"]


async def test_an_expired_replica_is_listed_until_it_is_recovered(store: Store, clock: ManualClock):
    await join(store, "ann")
    clock.shift(TTL + 5)
    record = await record_of(store)
    assert record.expires_in <= 0
    assert not record.dead
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    assert await store.jobs.replicas() == []


async def test_replicas_are_seen_by_all_store_objects(world: World):
    here, there = await world.store(), await world.store()
    await join(here, "ann")
    assert await is_known(there)
    await leave(there, "ann")
    assert not await is_known(here)


# Steps of the clock.


async def test_after_a_step_back_a_record_lives_no_longer_than_its_ttl(
    store: Store, clock: ManualClock
):
    await start_one(store)
    clock.step(-HOUR)
    await recover_all(store)  # a replica that looks after the step
    assert (await record_of(store)).expires_in <= TTL
    clock.shift(TTL)
    assert [job.id for job in await recover_all(store)] == [id_of(1)]


async def test_after_a_step_back_a_replica_continues(store: Store, clock: ManualClock):
    job = await start_one(store)
    for _ in range(3):
        clock.step(-HOUR)
        assert (await beat(store)).held == 1
        clock.shift(TTL - 1)
        assert await recover_all(store) == []
    assert await settle(store, job, "succeeded") == "settled"


async def test_a_step_forward_loses_at_most_what_a_beat_revives(store: Store, clock: ManualClock):
    job = await start_one(store)
    clock.step(HOUR)
    assert (await beat(store)).held == 1
    assert await recover_all(store) == []
    assert await look(store) == job


async def test_after_a_step_forward_the_answers_agree_with_each_other(
    store: Store, clock: ManualClock
):
    """A step may end a record early or go unnoticed, but all calls agree."""
    job = await start_one(store)
    await join(store, "ben")
    clock.step(HOUR)
    await beat(store, "ben")
    recovered = await recover_all(store)
    assert await is_known(store) == (not recovered)
    answer = await settle(store, job, "succeeded")
    assert answer == ("lost" if recovered else "settled")


async def test_after_a_step_forward_and_back_replicas_still_work(store: Store, clock: ManualClock):
    for number, step in enumerate((HOUR, -2 * HOUR, HOUR, -HOUR)):
        replica = f"replica {number}"
        job = await start_one(store, number, replica=replica)
        clock.step(step)
        await beat(store, replica)
        assert all(record.expires_in <= record.ttl for record in await store.jobs.replicas())
        assert await settle(store, job, "succeeded") == "settled"
        assert await leave(store, replica) == []
