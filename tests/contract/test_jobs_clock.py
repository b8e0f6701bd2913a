"""The clock of the store is set forward or back while jobs wait and run."""

import pytest

from tenure.core.jobs.records import QueueCounts
from tenure.core.jobs.replicas import RESTARTS_MAX, Beat
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    MOMENT,
    TTL,
    bring,
    claim_ids,
    id_of,
    insert,
    join,
    look,
    new,
    new_claim_no,
    settle,
    start_one,
)
from tests.rig.endings import bury, leave, recover

HOUR = 3600.0


async def beat(store: Store, replica: str = "ann", **details) -> Beat:
    """Send a heartbeat of a replica that has joined."""
    [answer] = await store.jobs.beat([replica], **{"ttl": TTL, **details})
    assert answer is not None
    return answer


# Beats report the clock by which replicas expire.


async def test_beats_report_how_much_time_has_passed(store: Store, clock: ManualClock):
    await join(store, "ann", "ben")
    before = (await beat(store)).now
    clock.shift(7.5)
    assert (await beat(store)).now - before == 7_500_000
    [ann, ben] = await store.jobs.beat(["ann", "ben"], ttl=TTL)
    assert ann is not None
    assert ben is not None
    assert ann.now == ben.now == before + 7_500_000


async def test_a_step_that_ends_records_shows_in_the_beats(store: Store, clock: ManualClock):
    """A store that does not notice the step ends no record and does not report it."""
    await join(store, "ann", "ben")
    before = (await beat(store)).now
    clock.step(HOUR)
    after = await beat(store)
    assert after.now - before == (HOUR * 1e6 if after.expired else 0)


# Recovery goes by the time of a beat.


async def test_after_a_step_ahead_replicas_that_had_not_expired_by_a_beat_are_left_alone(
    store: Store, clock: ManualClock
):
    await start_one(store, replica="ben")
    await join(store, "ann")
    clock.shift(TTL - MOMENT)
    as_of = (await beat(store)).now
    clock.step(HOUR)
    assert await recover(store, delays=AT_ONCE, grace=0, as_of=as_of) == []
    [ben] = await store.jobs.beat(["ben"], ttl=TTL)
    assert ben is not None
    assert ben.held == 1


async def test_replicas_that_had_expired_by_a_beat_are_recovered_whatever_the_clock_does(
    store: Store, clock: ManualClock
):
    await start_one(store, replica="ben")
    await join(store, "ann")
    clock.shift(TTL)
    as_of = (await beat(store)).now
    clock.step(HOUR)
    [lost] = await recover(store, delays=AT_ONCE, grace=0, as_of=as_of)
    assert (lost.id, lost.replica, lost.state) == (id_of(1), "ben", "waiting")
    assert [replica.id for replica in await store.jobs.replicas()] == ["ann"]


async def test_a_replica_that_beats_after_the_beat_to_go_by_is_left_alone(
    store: Store, clock: ManualClock
):
    await start_one(store, replica="ben")
    await join(store, "ann")
    clock.shift(TTL)
    as_of = (await beat(store)).now
    await beat(store, "ben")
    assert await recover(store, delays=AT_ONCE, grace=0, as_of=as_of) == []


async def test_an_instant_of_the_future_recovers_no_more_than_now(store: Store, clock: ManualClock):
    await start_one(store, replica="ben", timeout=5)
    await join(store, "ann")
    as_of = (await beat(store)).now + 3_600_000_000
    clock.shift(5 - MOMENT)
    assert await recover(store, delays=AT_ONCE, grace=0, as_of=as_of) == []
    clock.shift(MOMENT)
    assert len(await recover(store, delays=AT_ONCE, grace=0, as_of=as_of)) == 1


async def test_a_deadline_is_judged_by_the_beat_as_well(store: Store, clock: ManualClock):
    await start_one(store, replica="ann", timeout=5)
    clock.shift(7)
    early = (await beat(store)).now
    clock.shift(2)
    late = (await beat(store)).now
    assert await recover(store, delays=AT_ONCE, grace=3, as_of=early) == []
    assert len(await recover(store, delays=AT_ONCE, grace=3, as_of=late)) == 1


# Deadlines.


async def test_a_beat_postpones_the_deadlines_of_its_replicas_alone(
    store: Store, clock: ManualClock
):
    for number, replica in enumerate(["ann", "ben", "cid"], 1):
        await start_one(store, number, replica=replica, timeout=5)
    await start_one(store, 4, replica="ann")
    await store.jobs.beat(["ann", "ben"], ttl=HOUR, ahead=30)
    await beat(store, "cid", ttl=HOUR)
    revision = (await look(store)).revision
    clock.shift(5)
    [lost] = await recover(store, delays=[HOUR], grace=0)
    assert lost.replica == "cid"
    clock.shift(30 - MOMENT)
    assert await recover(store, delays=[HOUR], grace=0) == []
    assert not (await beat(store, ttl=HOUR)).expired
    clock.shift(MOMENT)
    assert (await beat(store, ttl=HOUR)).expired
    lost = await recover(store, delays=[HOUR], grace=0)
    assert sorted(job.id for job in lost) == [id_of(1), id_of(2)]
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
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    clock.shift(60)
    assert len(await recover(store, delays=AT_ONCE, grace=0)) == 1


# The clock is set back: jobs that need not wait for a time do not wait.


async def test_a_job_that_was_due_at_once_still_is_after_a_step_back(
    store: Store, clock: ManualClock
):
    await join(store, "ann")
    await insert(store, new(1), new(2, at=clock.wall() - 1), new(3, queue="other", priority=0))
    clock.step(-HOUR)
    assert await claim_ids(store, queues=["default", "other"]) == [id_of(2), id_of(1), id_of(3)]


async def test_a_worker_that_joins_after_a_step_back_gets_jobs_that_were_due_before(
    store: Store, clock: ManualClock
):
    await insert(store, new(1))
    clock.step(-HOUR)
    await join(store, "ann")
    assert await claim_ids(store) == [id_of(1)]


async def test_delayed_jobs_do_not_hide_a_job_that_is_due_after_a_step_back(
    store: Store, clock: ManualClock
):
    """They are before it in the queue: due earlier, but not yet."""
    await join(store, "ann")
    clock.step(-HOUR)
    await insert(store, *(new(number, delay=600) for number in range(1, 30)))
    clock.step(HOUR)
    await insert(store, new(30))
    clock.step(-HOUR)
    claimed = await store.jobs.claim("ann", new_claim_no(), ["default"], 10)
    assert claimed is not None
    assert [job.id for job in claimed.jobs] == [id_of(30)]
    assert claimed.next_in == pytest.approx(600)


async def test_after_a_step_back_jobs_are_served_in_the_order_they_had(
    store: Store, clock: ManualClock
):
    await join(store, "ann")
    for number in (3, 1, 2):
        await insert(store, new(number, priority=5))
        clock.shift(1)
    await insert(store, new(4, priority=1))
    clock.step(-HOUR)
    assert await claim_ids(store, limit=2) == [id_of(4), id_of(3)]
    assert await claim_ids(store) == [id_of(1), id_of(2)]


@pytest.mark.parametrize("outcome", ["handed back", "retry"])
async def test_a_job_handed_back_before_a_step_back_stays_due(
    store: Store, clock: ManualClock, outcome: str
):
    job = await start_one(store)
    await settle(store, job, outcome)
    clock.step(-HOUR)
    assert await claim_ids(store) == [id_of(1)]


async def test_a_job_handed_back_after_a_step_back_is_due(store: Store, clock: ManualClock):
    """It keeps its due time, which is now in the future."""
    (handed, lost, buried, left) = [
        await start_one(store, number, replica=replica)
        for number, replica in enumerate(["ann", "ben", "cid", "dan"], 1)
    ]
    clock.step(-HOUR)
    await settle(store, handed, "handed back")
    await bury(store, "cid", [buried.id], delays=AT_ONCE)
    await leave(store, "dan")
    await beat(store, ttl=HOUR)
    clock.shift(TTL)
    await beat(store, ttl=HOUR)
    assert [job.id for job in await recover(store, delays=AT_ONCE, grace=0)] == [lost.id]
    assert await claim_ids(store) == [handed.id, lost.id, buried.id, left.id]
    assert (await look(store)).due == handed.due


async def test_a_job_requeued_before_a_step_back_stays_due(store: Store, clock: ManualClock):
    await bring(store, "failed")
    await store.jobs.requeue([id_of(1)])
    clock.step(-HOUR)
    assert await claim_ids(store) == [id_of(1)]


async def test_a_job_that_was_due_before_a_step_back_counts_as_due_now(
    store: Store, clock: ManualClock
):
    await insert(store, new(1), new(2, delay=60))
    clock.step(-HOUR)
    (counts,) = await store.jobs.counts()
    assert (counts.waiting, counts.oldest) == (2, 0)


async def test_a_job_that_was_due_before_a_step_back_can_be_cancelled(
    store: Store, clock: ManualClock
):
    await join(store, "ann")
    await insert(store, new(1), new(2), new(3, delay=5))
    clock.step(-HOUR)
    assert await store.jobs.cancel([id_of(1), id_of(3)]) == ["cancelled", "cancelled"]
    assert await claim_ids(store) == [id_of(2)]
    assert await store.jobs.counts() == [QueueCounts(queue="default", waiting=0, running=1)]


# Pauses begin anew.


async def test_a_pause_before_a_retry_begins_anew_with_the_first_beat_after_a_step_back(
    store: Store, clock: ManualClock
):
    for number, how in enumerate(["retry", "handed back"], 1):
        job = await start_one(store, number)
        await settle(store, job, how, delay=10 * number)
    lost = await start_one(store, 3, replica="ben")
    await bury(store, "ben", [lost.id], delays=[30])
    await insert(store, new(4, delay=40))
    before = [(await look(store, number)).revision for number in range(1, 5)]
    clock.shift(3)
    clock.step(-HOUR)
    await beat(store, ttl=HOUR)
    for number in range(1, 5):
        job = await look(store, number)
        assert job.due - clock.wall() == 10_000_000 * number
        assert job.revision > before[number - 1]
    for number in range(1, 5):
        clock.shift(10 - MOMENT)
        claimed = await store.jobs.claim("ann", new_claim_no(), ["default"], 10)
        assert claimed is not None
        assert claimed.jobs == []
        assert claimed.next_in == pytest.approx(MOMENT)
        clock.shift(MOMENT)
        assert await claim_ids(store) == [id_of(number)]


async def test_a_pause_begins_anew_only_once(store: Store, clock: ManualClock):
    await join(store, "ann")
    await insert(store, new(1, delay=10))
    clock.step(-HOUR)
    await beat(store, ttl=HOUR)
    clock.shift(6)
    await beat(store, ttl=HOUR)
    due, revision = (await look(store)).due, (await look(store)).revision
    clock.shift(4 - MOMENT)
    await beat(store, ttl=HOUR)
    assert await claim_ids(store) == []
    assert ((await look(store)).due, (await look(store)).revision) == (due, revision)
    clock.shift(MOMENT)
    assert await claim_ids(store) == [id_of(1)]


async def test_beats_report_that_more_pauses_have_to_begin_anew(store: Store, clock: ManualClock):
    """A beat handles some of them at a time, because other calls wait meanwhile."""
    await join(store, "ann")
    for first in range(0, 2 * RESTARTS_MAX + 10, 200):
        numbers = range(first, min(first + 200, 2 * RESTARTS_MAX + 10))
        await insert(store, *(new(number, delay=10) for number in numbers))
    assert not (await beat(store, ttl=HOUR)).more
    clock.step(-HOUR)
    [answer, unknown] = await store.jobs.beat(["ann", "nobody"], ttl=HOUR)
    assert answer is not None
    assert unknown is None
    assert answer.more
    assert (await beat(store, ttl=HOUR)).more
    assert not (await beat(store, ttl=HOUR)).more
    clock.shift(10)
    due = 0
    while claimed := await claim_ids(store, limit=200):
        due += len(claimed)
    assert due == 2 * RESTARTS_MAX + 10


async def test_a_delayed_job_that_is_requeued_is_due_after_a_step_back(
    store: Store, clock: ManualClock
):
    await join(store, "ann")
    await insert(store, new(1, delay=1000), new(2, at=clock.wall() + 5_000_000))
    await store.jobs.cancel([id_of(1), id_of(2)])
    assert await store.jobs.requeue([id_of(1), id_of(2)]) == ["requeued", "requeued"]
    clock.step(-HOUR)
    assert sorted(await claim_ids(store)) == [id_of(1), id_of(2)]


async def test_a_pause_that_began_before_the_step_goes_on(store: Store, clock: ManualClock):
    """The clock was not set back behind anything that this job has recorded."""
    await join(store, "ann")
    await insert(store, new(1, delay=HOUR))
    clock.shift(HOUR / 2)
    clock.step(-60)
    await beat(store, ttl=HOUR)
    clock.shift(HOUR / 2)
    assert await claim_ids(store) == []
    clock.shift(60)
    assert await claim_ids(store) == [id_of(1)]


async def test_a_fixed_instant_does_not_move_with_the_clock(store: Store, clock: ManualClock):
    await join(store, "ann")
    at = clock.wall() + 600_000_000
    await insert(store, new(1, at=at))
    clock.step(-HOUR)
    await beat(store, ttl=2 * HOUR)
    assert (await look(store)).due == at
    clock.shift(HOUR + 600 - MOMENT)
    assert await claim_ids(store) == []
    clock.shift(MOMENT)
    assert await claim_ids(store) == [id_of(1)]


async def test_a_step_back_while_no_worker_runs_does_not_lengthen_a_pause(
    store: Store, clock: ManualClock
):
    await insert(store, new(1, delay=10))
    clock.step(-HOUR)
    clock.shift(HOUR / 2)
    await join(store, "ann")
    await beat(store, ttl=HOUR)
    clock.shift(10)
    assert await claim_ids(store) == [id_of(1)]


async def test_a_delayed_job_keeps_its_place_among_those_that_are_due(
    store: Store, clock: ManualClock
):
    """Delayed and undelayed jobs are served in one order."""
    await join(store, "ann")
    for number, details in enumerate([{"delay": 2}, {}, {"delay": 1}, {}, {"at": 1}], 1):
        await insert(store, new(number, **details))
        clock.shift(0.75)
    clock.shift(5)
    assert await claim_ids(store, limit=2) == [id_of(5), id_of(2)]
    await insert(store, new(6))
    assert await claim_ids(store) == [id_of(1), id_of(4), id_of(3), id_of(6)]


async def test_every_delayed_job_that_is_due_comes_by_its_priority(
    store: Store, clock: ManualClock
):
    """Also if there are many of them and the claim is small."""
    await join(store, "ann")
    await insert(store, *(new(number, delay=1, priority=9) for number in range(1, 20)))
    await insert(store, new(30, delay=2, priority=0), new(31, priority=5))
    clock.shift(3)
    assert await claim_ids(store, limit=1) == [id_of(30)]
    assert await claim_ids(store, limit=2) == [id_of(31), id_of(1)]
    assert await claim_ids(store, limit=2) == [id_of(2), id_of(3)]


# What is counted for a tag.


async def test_jobs_of_the_future_are_not_recent(store: Store, clock: ManualClock):
    """Otherwise an owner at its limit before the step could submit nothing until it is over."""
    await insert(store, *(new(number, tags=("t",)) for number in range(3)))
    counted = await store.jobs.count_tagged("t", unfinished=10, recent=10, within=60)
    assert (counted.unfinished, counted.recent) == (3, 3)
    clock.step(-HOUR)
    counted = await store.jobs.count_tagged("t", unfinished=10, recent=10, within=60)
    assert (counted.unfinished, counted.recent, counted.oldest) == (3, 0, 0)
