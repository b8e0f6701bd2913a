import asyncio

import pytest

from tenure.core.jobs.records import BATCH_MAX, Claimed
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    MOMENT,
    TTL,
    claim,
    claim_ids,
    id_of,
    insert,
    join,
    look,
    new,
    new_claim_no,
    settle,
    start,
    start_one,
    states,
)
from tests.contract.worlds import World
from tests.rig.endings import leave, recover
from tests.rig.sizes import SIZE

DAY = 86_400.0


@pytest.fixture(autouse=True)
async def ann(store: Store) -> None:
    """A replica that claims."""
    await join(store, "ann", ttl=10 * DAY)


async def test_a_claimed_job_runs(store: Store, clock: ManualClock):
    await insert(store, new(1, payload=b"p"))
    before = await look(store)
    clock.shift(5)
    (job,) = await claim(store)
    assert (job.id, job.state, job.replica) == (id_of(1), "running", "ann")
    assert (job.attempt, job.failures, job.losses) == (1, 0, 0)
    assert job.started == clock.wall()
    assert job.fence >= clock.wall()
    assert job.revision > before.revision
    assert (job.payload, job.due, job.created) == (b"p", before.due, before.created)
    assert await look(store) == job


async def test_every_claim_counts_an_attempt(store: Store):
    await insert(store, new(1))
    for attempt in range(1, 6):
        (job,) = await claim(store)
        assert job.attempt == attempt
        await settle(store, job, "handed back")


async def test_a_claimed_job_is_not_claimed_again(store: Store):
    await insert(store, new(1))
    await join(store, "ben")
    assert await claim_ids(store, "ann") == [id_of(1)]
    assert await claim_ids(store, "ben") == []
    assert await claim_ids(store, "ann") == []


async def test_a_claim_returns_no_more_than_its_limit(store: Store):
    await insert(store, *(new(number) for number in range(5)))
    assert await claim_ids(store, limit=2) == [id_of(0), id_of(1)]
    assert await claim_ids(store, limit=1) == [id_of(2)]
    assert await claim_ids(store, limit=10) == [id_of(3), id_of(4)]
    assert await claim_ids(store, limit=10) == []


async def test_a_full_batch_comes_with_one_claim(store: Store):
    await insert(store, *(new(number) for number in range(BATCH_MAX)))
    jobs = await claim(store, limit=BATCH_MAX)
    assert [job.id for job in jobs] == [id_of(number) for number in range(BATCH_MAX)]
    assert {job.state for job in jobs} == {"running"}


# Order.


async def test_queues_are_served_in_the_order_given(store: Store):
    await insert(
        store,
        new(1, queue="b", priority=0),
        new(2, queue="a", priority=9),
        new(3, queue="c", priority=0),
        new(4, queue="a", priority=9),
    )
    assert await claim_ids(store, queues=["a", "b"], limit=1) == [id_of(2)]
    assert await claim_ids(store, queues=["b", "a"], limit=10) == [id_of(1), id_of(4)]


async def test_only_the_given_queues_are_served(store: Store):
    await insert(
        store, new(1, queue="a"), new(2, queue="A"), new(3, queue="a "), new(4, queue="ab")
    )
    assert await claim_ids(store, queues=["a"]) == [id_of(1)]
    assert await claim_ids(store, queues=["nowhere"]) == []
    assert await claim_ids(store, queues=[]) == []


async def test_a_queue_named_twice_is_served_once(store: Store):
    await insert(store, new(1, queue="a"), new(2, queue="b"), new(3, queue="a"))
    assert await claim_ids(store, queues=["a", "b", "a"]) == [id_of(1), id_of(3), id_of(2)]


async def test_smaller_priorities_come_first(store: Store):
    order = [4, 9, 0, 5, 1, 8, 2, 7, 3, 6]
    await insert(store, *(new(number, priority=p) for number, p in enumerate(order)))
    assert [job.priority for job in await claim(store)] == list(range(10))


async def test_delayed_jobs_of_every_priority_come_when_they_are_due(
    store: Store, clock: ManualClock
):
    await insert(store, *(new(number, priority=number, delay=5) for number in range(10)))
    assert await claim(store) == []
    clock.shift(5)
    assert [job.priority for job in await claim(store)] == list(range(10))


async def test_priority_goes_before_due_time(store: Store, clock: ManualClock):
    early, late = clock.wall() - 60_000_000, clock.wall()
    await insert(store, new(1, priority=6, at=early), new(2, priority=5, at=late))
    assert await claim_ids(store) == [id_of(2), id_of(1)]


async def test_jobs_that_are_due_earlier_come_first(store: Store, clock: ManualClock):
    now = clock.wall()
    await insert(store, *(new(number, at=now - number * 1000) for number in range(5)))
    assert await claim_ids(store) == [id_of(number) for number in (4, 3, 2, 1, 0)]


async def test_within_a_millisecond_the_id_decides(store: Store, clock: ManualClock):
    milli = clock.wall() - 5_000
    assert milli % 1000 == 0
    await insert(
        store,
        new(3, at=milli),
        new(2, at=milli + 500),
        new(1, at=milli + 999),
        new(0, at=milli + 1000),
        new(4, at=milli - 1),
    )
    assert await claim_ids(store) == [id_of(number) for number in (4, 1, 2, 3, 0)]


async def test_among_equals_the_oldest_id_comes_first(store: Store):
    await insert(store, *(new(number) for number in (3, 1, 2)))
    assert await claim_ids(store, limit=2) == [id_of(1), id_of(2)]
    await insert(store, new(0))
    assert await claim_ids(store) == [id_of(0), id_of(3)]


async def test_the_order_holds_over_many_small_claims(store: Store, clock: ManualClock):
    now = clock.wall()
    jobs = [
        new(number, priority=number * 7 % 10, at=now - number * 37 % 5 * 1000)
        for number in range(40)
    ]
    await insert(store, *jobs)
    expected = sorted(jobs, key=lambda job: (job.priority, (job.at or 0) // 1000, job.id))
    got = [await claim_ids(store, limit=3) for _ in range(14)]
    assert [id_ for ids in got for id_ in ids] == [job.id for job in expected]


async def test_a_job_that_comes_back_later_goes_by_its_new_due_time(
    store: Store, clock: ManualClock
):
    first, _ = await start(store, new(1), new(2))
    await insert(store, new(3))
    await settle(store, first, "retry", delay=1)
    clock.shift(1)
    assert await claim_ids(store) == [id_of(3), id_of(1)]


@pytest.mark.parametrize("outcome", ["retry", "handed back"])
async def test_a_job_that_comes_back_without_a_delay_keeps_its_place(
    store: Store, clock: ManualClock, outcome: str
):
    first, _ = await start(store, new(1), new(2))
    clock.shift(1)
    await insert(store, new(3))
    clock.shift(1)
    await settle(store, first, outcome)
    assert await claim_ids(store) == [id_of(1), id_of(3)]


async def test_a_lost_job_does_not_wait_behind_newer_ones(store: Store, clock: ManualClock):
    await start(store, new(1), new(2))
    clock.shift(TTL)
    await insert(store, new(3))
    clock.shift(1)
    await recover(store, delays=[0.0], grace=0)
    await join(store, "ben")
    assert await claim_ids(store, "ben") == [id_of(1), id_of(2), id_of(3)]


# Due times.


@pytest.mark.parametrize("delay", [0.000_001, 0.0015, 1.0, 3600.000_999, 400 * DAY])
async def test_a_job_is_never_claimed_early(store: Store, clock: ManualClock, delay: float):
    await insert(store, new(1, delay=delay))
    clock.shift(delay - MOMENT)
    await store.jobs.beat(["ann"], ttl=TTL)
    assert await claim_ids(store) == []
    clock.shift(MOMENT)
    assert await claim_ids(store) == [id_of(1)]


async def test_a_retry_is_never_claimed_early(store: Store, clock: ManualClock):
    job = await start_one(store)
    await settle(store, job, "retry", delay=1.000_7)
    clock.shift(1.000_7 - MOMENT)
    assert await claim_ids(store) == []
    clock.shift(MOMENT)
    assert await claim_ids(store) == [id_of(1)]


async def test_an_instant_is_kept_to_the_microsecond(store: Store, clock: ManualClock):
    await insert(store, new(1, at=clock.wall() + 1_234_567))
    clock.shift(1.234_566)
    assert await claim_ids(store) == []
    clock.shift(0.000_001)
    assert await claim_ids(store) == [id_of(1)]


async def test_an_instant_that_has_passed_is_due(store: Store, clock: ManualClock):
    await insert(store, new(1, at=clock.wall() - 1), new(2, at=0))
    assert await claim_ids(store) == [id_of(2), id_of(1)]


async def test_delayed_jobs_do_not_block_jobs_that_are_due(store: Store):
    await insert(store, *(new(number, priority=0, delay=60) for number in range(100)))
    await insert(store, new(100, priority=9))
    assert await claim_ids(store, limit=5) == [id_of(100)]


async def test_a_job_that_is_not_due_yet_hides_none_of_the_same_millisecond(
    store: Store, clock: ManualClock
):
    now = clock.wall()
    await insert(store, new(1, at=now + 700), new(2, at=now + 300), new(3, at=now))
    for expected in ([3], [2], [1]):
        assert await claim_ids(store, limit=1) == [id_of(number) for number in expected]
        clock.shift(0.000_4)


async def test_a_clock_set_back_makes_a_job_wait_again(store: Store, clock: ManualClock):
    await insert(store, new(1, delay=10))
    clock.shift(10)
    clock.step(-1)
    assert await claim_ids(store) == []
    clock.step(1)
    assert await claim_ids(store) == [id_of(1)]


async def test_due_times_go_by_the_clock_of_the_store(real_world: World):
    store = await real_world.store()
    await join(store, "ann", ttl=60)
    before = (await store.ping()).now
    await insert(store, new(1, delay=0.15), new(2, at=before + 100_000))
    due: list[int] = []
    async with asyncio.timeout(SIZE.patience):
        while len(due) < 2:
            answer = await store.jobs.claim("ann", new_claim_no(), ["default"], 5)
            assert answer is not None
            assert all(before < job.due <= job.started <= job.fence for job in answer.jobs)
            due += [job.due for job in answer.jobs]
            await asyncio.sleep(min(answer.next_in or 0.01, 1))
    assert due == sorted(due)


# When the next job is due.


async def test_a_claim_below_its_limit_reports_when_the_next_job_is_due(
    store: Store, clock: ManualClock
):
    await insert(
        store,
        new(1),
        new(2, delay=30, priority=0),
        new(3, delay=20, priority=9),
        new(4, delay=10, queue="other"),
    )
    answer = await store.jobs.claim("ann", 1, ["default"], 2)
    assert answer is not None
    assert len(answer.jobs) == 1
    assert answer.next_in == pytest.approx(20, abs=0.001)
    clock.shift(5)
    answer = await store.jobs.claim("ann", 2, ["default", "other"], 2)
    assert answer is not None
    assert answer.next_in == pytest.approx(5, abs=0.001)


async def test_a_claim_that_reached_its_limit_reports_no_next_due_time(store: Store):
    await insert(store, new(1), new(2), new(3, delay=10))
    answer = await store.jobs.claim("ann", 1, ["default"], 2)
    assert answer is not None
    assert (len(answer.jobs), answer.next_in) == (2, None)


async def test_an_empty_queue_has_no_next_due_time(store: Store):
    await start_one(store)
    assert await store.jobs.claim("ann", 10**6, ["default"], 5) == Claimed([], None)


async def test_the_next_due_time_is_never_reported_too_late(store: Store, clock: ManualClock):
    await insert(store, new(1, delay=0.000_4), new(2, delay=7.000_9))
    for claim_no, left in ((1, 0.000_4), (2, 7.000_5)):
        answer = await store.jobs.claim("ann", claim_no, ["default"], 5)
        assert answer is not None
        assert answer.next_in is not None
        assert 0 <= answer.next_in <= left + 2 * MOMENT
        clock.shift(0.000_4)


# Paused queues.


async def test_a_paused_queue_is_skipped(store: Store):
    await insert(store, new(1, queue="a"), new(2, queue="b"))
    await store.jobs.pause("a")
    assert await claim_ids(store, queues=["a", "b"]) == [id_of(2)]
    assert await states(store, 1) == ["waiting"]
    await store.jobs.pause("a", seconds=0)
    assert await claim_ids(store, queues=["a", "b"]) == [id_of(1)]


async def test_a_pause_ends_by_itself(store: Store, clock: ManualClock):
    await insert(store, new(1))
    await store.jobs.pause("default", seconds=60)
    clock.shift(60 - MOMENT)
    assert await claim_ids(store) == []
    clock.shift(MOMENT)
    assert await claim_ids(store) == [id_of(1)]


async def test_a_pause_without_a_duration_never_ends_by_itself(store: Store, clock: ManualClock):
    await insert(store, new(1))
    await store.jobs.pause("default")
    clock.shift(9 * DAY)
    assert await claim_ids(store) == []


@pytest.mark.parametrize(("first", "second"), [(60, 30), (30, 60), (None, 45), (60, 0.5)])
async def test_the_last_pause_counts(
    store: Store, clock: ManualClock, first: float | None, second: float
):
    await insert(store, new(1))
    await store.jobs.pause("default", seconds=first)
    await store.jobs.pause("default", seconds=second)
    clock.shift(second - MOMENT)
    assert await claim_ids(store) == []
    clock.shift(MOMENT)
    assert await claim_ids(store) == [id_of(1)]


async def test_a_pause_for_a_while_can_become_one_without_an_end(store: Store, clock: ManualClock):
    await insert(store, new(1))
    await store.jobs.pause("default", seconds=10)
    await store.jobs.pause("default")
    clock.shift(100)
    assert await claim_ids(store) == []


async def test_a_paused_queue_is_not_waited_for(store: Store):
    await insert(store, new(1, queue="a", delay=5), new(2, queue="b", delay=9))
    await store.jobs.pause("a")
    answer = await store.jobs.claim("ann", 1, ["a", "b"], 1)
    assert answer is not None
    assert answer.next_in == pytest.approx(9, abs=0.001)


async def test_a_queue_is_waited_for_again_when_its_pause_has_ended(
    store: Store, clock: ManualClock
):
    await insert(store, new(1, delay=100), new(2, delay=60))
    await store.jobs.pause("default", seconds=60)
    paused = await store.jobs.claim("ann", 1, ["default"], 1)
    assert paused is not None
    assert paused.next_in is None
    clock.shift(60)
    await join(store, "ben")
    resumed = await store.jobs.claim("ben", 1, ["default"], 2)
    assert resumed is not None
    assert [job.id for job in resumed.jobs] == [id_of(2)]
    assert resumed.next_in == pytest.approx(40)


async def test_a_paused_queue_accepts_inserts_and_keeps_its_running_jobs(store: Store):
    job = await start_one(store)
    await store.jobs.pause("default")
    await insert(store, new(2))
    assert await settle(store, job, "succeeded") == "settled"


async def test_resuming_a_queue_that_is_not_paused_is_harmless(store: Store):
    await store.jobs.pause("default", seconds=0)
    await insert(store, new(1))
    assert await claim_ids(store) == [id_of(1)]


# Claim numbers.


async def test_a_repeated_claim_returns_the_jobs_of_the_first(store: Store, clock: ManualClock):
    await insert(store, *(new(number) for number in range(5)))
    first = await store.jobs.claim("ann", 1, ["default"], 3)
    assert first is not None
    clock.shift(1)
    again = await store.jobs.claim("ann", 1, ["default"], 3)
    assert again is not None
    assert {job.id: job for job in again.jobs} == {job.id: job for job in first.jobs}
    assert await states(store, 3, 4) == ["waiting"] * 2


async def test_a_repeated_claim_claims_nothing_new_even_if_the_first_was_empty(store: Store):
    assert await store.jobs.claim("ann", 1, ["default"], 3) == Claimed([])
    await insert(store, new(1))
    again = await store.jobs.claim("ann", 1, ["default"], 3)
    assert again is not None
    assert again.jobs == []
    assert await states(store, 1) == ["waiting"]
    assert await claim_ids(store) == [id_of(1)]


async def test_a_repeated_claim_returns_only_jobs_that_still_run(store: Store):
    await insert(store, *(new(number) for number in range(4)))
    first = await store.jobs.claim("ann", 1, ["default"], 4)
    assert first is not None
    await settle(store, first.jobs[0], "succeeded")
    await settle(store, first.jobs[1], "retry")
    again = await store.jobs.claim("ann", 1, ["default"], 4)
    assert again is not None
    assert sorted(job.id for job in again.jobs) == [id_of(2), id_of(3)]


async def test_a_repeated_claim_does_not_return_the_jobs_of_a_later_claim(store: Store):
    await join(store, "ben")
    await insert(store, new(1))
    first = await store.jobs.claim("ann", 1, ["default"], 1)
    assert first is not None
    await settle(store, first.jobs[0], "handed back")
    assert await claim_ids(store, "ben") == [id_of(1)]
    again = await store.jobs.claim("ann", 1, ["default"], 1)
    assert again is not None
    assert again.jobs == []
    assert (await look(store)).replica == "ben"


async def test_an_older_number_gets_nothing_after_a_repeated_join(store: Store):
    for number in (1, 2):
        assert (await store.jobs.claim("ann", number, ["default"], 1)) == Claimed([])
    await insert(store, new(1))
    await join(store, "ann")
    older = await store.jobs.claim("ann", 1, ["default"], 1)
    assert older is not None
    assert older.jobs == []


async def test_an_older_number_gets_nothing(store: Store):
    await insert(store, *(new(number) for number in range(4)))
    await store.jobs.claim("ann", 3, ["default"], 1)
    await store.jobs.claim("ann", 7, ["default"], 1)
    for older in (1, 3, 6):
        answer = await store.jobs.claim("ann", older, ["default"], 1)
        assert answer is not None
        assert answer.jobs == [], older
    assert await states(store, 0, 1, 2, 3) == ["running", "running", "waiting", "waiting"]


async def test_a_number_older_than_that_of_an_empty_claim_gets_nothing(store: Store):
    assert await store.jobs.claim("ann", 7, ["default"], 1) == Claimed([])
    await insert(store, new(1))
    for older in (1, 6, 7):
        answer = await store.jobs.claim("ann", older, ["default"], 1)
        assert answer is not None
        assert answer.jobs == [], older
    newer = await store.jobs.claim("ann", 8, ["default"], 1)
    assert newer is not None
    assert [job.id for job in newer.jobs] == [id_of(1)]


async def test_an_id_that_joins_anew_after_an_empty_claim_begins_anew(store: Store):
    assert await store.jobs.claim("ann", 9, ["default"], 1) == Claimed([])
    await leave(store, "ann")
    await join(store, "ann")
    await insert(store, new(1))
    answer = await store.jobs.claim("ann", 1, ["default"], 1)
    assert answer is not None
    assert [job.id for job in answer.jobs] == [id_of(1)]


async def test_claim_numbers_of_two_replicas_are_independent(store: Store):
    await join(store, "ben")
    await insert(store, new(1), new(2))
    for replica, number in (("ann", 5), ("ben", 1)):
        answer = await store.jobs.claim(replica, number, ["default"], 1)
        assert answer is not None
        assert len(answer.jobs) == 1


async def test_an_id_that_joins_anew_begins_anew(store: Store):
    await insert(store, new(1))
    await store.jobs.claim("ann", 9, ["default"], 1)
    await leave(store, "ann")
    await join(store, "ann")
    answer = await store.jobs.claim("ann", 1, ["default"], 1)
    assert answer is not None
    assert [job.id for job in answer.jobs] == [id_of(1)]


# Replicas that may claim.


async def test_an_unknown_replica_gets_none_from_a_claim(store: Store):
    await insert(store, new(1))
    assert await store.jobs.claim("nobody", 1, ["default"], 1) is None
    assert await states(store, 1) == ["waiting"]


async def test_a_replica_that_has_left_gets_none_from_a_claim(store: Store):
    await insert(store, new(1))
    await leave(store, "ann")
    assert await store.jobs.claim("ann", 1, ["default"], 1) is None
    assert await states(store, 1) == ["waiting"]


async def test_an_expired_replica_gets_nothing_until_a_beat(store: Store, clock: ManualClock):
    await join(store, "ben", ttl=10)
    await insert(store, new(1))
    clock.shift(10)
    answer = await store.jobs.claim("ben", 1, ["default"], 1)
    assert answer is not None
    assert answer.jobs == []
    assert await states(store, 1) == ["waiting"]
    assert (await store.jobs.beat(["ben"], ttl=10))[0] is not None
    assert await claim_ids(store, "ben") == [id_of(1)]


async def test_an_expired_replica_does_not_use_up_its_number(store: Store, clock: ManualClock):
    await join(store, "ben", ttl=10)
    await insert(store, new(1))
    clock.shift(10)
    await store.jobs.claim("ben", 1, ["default"], 1)
    await store.jobs.beat(["ben"], ttl=10)
    answer = await store.jobs.claim("ben", 1, ["default"], 1)
    assert answer is not None
    assert [job.id for job in answer.jobs] == [id_of(1)]


async def test_a_replica_claims_until_it_expires(store: Store, clock: ManualClock):
    await join(store, "ben", ttl=10)
    await insert(store, new(1))
    clock.shift(10 - MOMENT)
    assert await claim_ids(store, "ben") == [id_of(1)]


async def test_a_replica_under_recovery_gets_none_from_a_claim(store: Store, clock: ManualClock):
    await start(store, new(1), new(2), replica="ben")
    clock.shift(TTL)
    assert len(await recover(store, delays=AT_ONCE, grace=0, limit=1)) == 1
    assert await store.jobs.claim("ben", 10**9, ["default"], 5) is None


# Deadlines.


async def test_the_deadline_counts_from_the_claim(store: Store, clock: ManualClock):
    await insert(store, new(1, timeout=30))
    clock.shift(100)
    assert await claim_ids(store) == [id_of(1)]
    clock.shift(30 - MOMENT)
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    clock.shift(MOMENT)
    assert [job.id for job in await recover(store, delays=AT_ONCE, grace=0)] == [id_of(1)]


async def test_every_attempt_has_its_own_deadline(store: Store, clock: ManualClock):
    job = await start_one(store, timeout=30)
    await store.jobs.beat(["ann"], ttl=DAY)
    clock.shift(20)
    await settle(store, job, "retry")
    assert await claim_ids(store) == [id_of(1)]
    clock.shift(20)
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    clock.shift(10)
    assert len(await recover(store, delays=AT_ONCE, grace=0)) == 1


async def test_a_job_that_waits_again_has_no_deadline(store: Store, clock: ManualClock):
    job = await start_one(store, timeout=30)
    await settle(store, job, "handed back", delay=DAY)
    clock.shift(100)
    assert await recover(store, delays=AT_ONCE, grace=0) == []


async def test_without_a_timeout_there_is_no_deadline(store: Store, clock: ManualClock):
    await start_one(store)
    await store.jobs.beat(["ann"], ttl=100 * DAY)
    clock.shift(99 * DAY)
    assert await recover(store, delays=AT_ONCE, grace=0) == []


async def test_a_claim_reports_when_the_next_job_is_due(store: Store, clock: ManualClock):
    await join(store, "ann", ttl=1000)

    async def next_in(limit: int = 5) -> tuple[list[str], float | None]:
        answer = await store.jobs.claim("ann", new_claim_no(), ["default"], limit)
        return [job.id for job in answer.jobs], answer.next_in

    assert await next_in() == ([], None)
    first, second, third = new(1, delay=10), new(2, delay=30), new(3, delay=30)
    await insert(store, first, second, third)
    assert await next_in() == ([], pytest.approx(10, abs=0.01))
    clock.shift(10)
    assert await next_in() == ([first.id], pytest.approx(20, abs=0.01))
    clock.shift(5)
    assert await next_in() == ([], pytest.approx(15, abs=0.01))
    clock.shift(20)
    # There are more jobs than its limit: it has to claim again at once.
    ids, after = await next_in(limit=1)
    assert (ids, after or 0) == ([second.id], 0)
    assert await next_in() == ([third.id], None)
