import pytest

from tenure.core.jobs.history import AttemptLine, read_history, write_history
from tenure.core.jobs.replicas import Recovered
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    MOMENT,
    TTL,
    claim,
    claim_ids,
    id_of,
    join,
    look,
    new,
    prune_jobs,
    recover_all,
    settle,
    start,
    start_one,
    states,
)
from tests.rig.endings import bury, recover

HOUR = 3600.0


async def lose(store: Store, clock: ManualClock, *, delays=AT_ONCE) -> Recovered:
    """Let the one running job lose its replica."""
    clock.shift(TTL)
    (job,) = await recover(store, delays=delays, grace=0)
    return job


# One loss.


async def test_the_jobs_of_an_expired_replica_wait_again(store: Store, clock: ManualClock):
    job = await start_one(store)
    clock.shift(TTL)
    assert await recover(store, delays=[0.0], grace=0) == [
        Recovered(id=id_of(1), replica="ann", state="waiting", losses=1)
    ]
    after = await look(store)
    assert (after.state, after.replica, after.due) == ("waiting", "", job.due)
    assert (after.attempt, after.failures, after.losses) == (1, 0, 1)
    assert after.fence > job.fence
    assert after.revision > job.revision
    assert after.started == job.started


async def test_a_living_replica_keeps_its_jobs(store: Store, clock: ManualClock):
    job = await start_one(store)
    clock.shift(TTL - MOMENT)
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    assert await look(store) == job


async def test_waiting_and_finished_jobs_are_left_alone(store: Store, clock: ManualClock):
    first, second = await start(store, new(1), new(2))
    await settle(store, first, "succeeded")
    await settle(store, second, "retry", delay=HOUR)
    before = await store.jobs.get([first.id, second.id])
    clock.shift(TTL)
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    assert await store.jobs.get([first.id, second.id]) == before


async def test_jobs_of_others_are_left_alone(store: Store, clock: ManualClock):
    await start_one(store, 1, replica="ann")
    kept = await start_one(store, 2, replica="ben")
    await store.jobs.beat(["ben"], ttl=HOUR)
    clock.shift(TTL)
    assert [job.id for job in await recover_all(store)] == [id_of(1)]
    assert await look(store, 2) == kept


async def test_a_recovered_job_can_be_claimed_by_another(store: Store, clock: ManualClock):
    first = await start_one(store, payload=b"p")
    await lose(store, clock)
    await join(store, "ben")
    (job,) = await claim(store, "ben")
    assert (job.id, job.attempt, job.losses, job.payload) == (id_of(1), 2, 1, b"p")
    assert job.fence > first.fence


# Delays and the budget.


async def test_each_loss_has_its_own_delay(store: Store, clock: ManualClock):
    delays = [0.0, 5.5, 60.0]
    first = await start_one(store)
    for losses, delay in enumerate(delays, start=1):
        answer = await lose(store, clock, delays=delays)
        assert (answer.state, answer.losses) == ("waiting", losses)
        job = await look(store)
        assert job.due == (clock.wall() + round(delay * 1e6) if delay else first.due)
        if delay:
            clock.shift(delay - MOMENT)
            await join(store, "ann")
            assert await claim_ids(store) == []
            clock.shift(MOMENT)
        await join(store, "ann")
        assert await claim_ids(store) == [id_of(1)]


async def test_a_job_with_more_losses_than_delays_fails(store: Store, clock: ManualClock):
    await start_one(store, retention=100)
    for _ in range(2):
        assert (await lose(store, clock, delays=[0, 0])).state == "waiting"
        await join(store, "ann")
        assert await claim_ids(store) == [id_of(1)]
    assert await lose(store, clock, delays=[0, 0]) == Recovered(
        id=id_of(1), replica="ann", state="failed", losses=3
    )
    job = await look(store)
    assert (job.state, job.reason, job.losses, job.failures) == ("failed", "lost", 3, 0)
    assert (job.finished, job.replica) == (clock.wall(), "")
    assert len(read_history(job.history)) == 3
    clock.shift(100 - MOMENT)
    assert await prune_jobs(store) == 0
    clock.shift(MOMENT)
    assert await prune_jobs(store) == 1


async def test_without_delays_the_first_loss_is_the_last(store: Store, clock: ManualClock):
    await start_one(store)
    assert (await lose(store, clock, delays=[])).state == "failed"
    assert (await look(store)).reason == "lost"


async def test_failures_and_losses_are_counted_apart(store: Store, clock: ManualClock):
    job = await start_one(store)
    await settle(store, job, "retry")
    assert await claim_ids(store) == [id_of(1)]
    await lose(store, clock)
    job = await look(store)
    assert (job.failures, job.losses, job.attempt) == (1, 1, 2)


# History.


async def test_a_loss_is_a_line_of_history(store: Store, clock: ManualClock):
    job = await start_one(store)
    await lose(store, clock)
    line = f'{{"attempt":1,"replica":"ann","started":{job.started},"ended":{clock.wall()},'
    assert (await look(store)).history == f'{line}"outcome":"lost"}}\n'.encode()


@pytest.mark.parametrize(
    "replica", ['say "hi"', "back\\slash", "läuft 🌍", "tab\tnew\nline\r", "\x01\x7f", "</a>&'"]
)
async def test_a_line_of_history_can_be_read_whatever_the_name(
    store: Store, clock: ManualClock, replica: str
):
    job = await start_one(store, replica=replica)
    await lose(store, clock)
    (line,) = read_history((await look(store)).history)
    assert line == AttemptLine(1, replica, job.started, clock.wall(), "lost")


async def test_a_loss_appends_a_line_to_the_history(store: Store, clock: ManualClock):
    job = await start_one(store)
    first = AttemptLine(1, "ann", job.started, clock.wall(), "retry", "it's läuft 🌍")
    await settle(store, job, "retry", history=write_history([first]))
    expected = [first]
    for attempt in (2, 3):
        await join(store, "ann")
        (job,) = await claim(store)
        assert job.attempt == attempt
        await lose(store, clock)
        expected.append(AttemptLine(attempt, "ann", job.started, clock.wall(), "lost"))
    assert read_history((await look(store)).history) == expected


# With a pending cancel.


@pytest.mark.parametrize("delays", [[0.0], [60.0], []], ids=["due", "later", "past the budget"])
async def test_a_pending_cancel_wins(store: Store, clock: ManualClock, delays: list[float]):
    await start_one(store)
    await store.jobs.cancel([id_of(1)], reason="enough")
    answer = await lose(store, clock, delays=delays)
    assert (answer.state, answer.losses) == ("cancelled", 1)
    job = await look(store)
    assert (job.state, job.reason, job.cancelling) == ("cancelled", "enough", False)
    assert (job.finished, job.losses) == (clock.wall(), 1)
    assert [line.outcome for line in read_history(job.history)] == ["lost"]


# Batches.


async def test_a_batch_is_bounded(store: Store, clock: ManualClock):
    await start(store, *(new(number) for number in range(7)))
    clock.shift(TTL)
    sizes = [len(await recover(store, delays=AT_ONCE, grace=0, limit=3)) for _ in range(4)]
    assert sizes == [3, 3, 1, 0]
    assert await states(store, *range(7)) == ["waiting"] * 7
    assert {(await look(store, number)).losses for number in range(7)} == {1}


async def test_the_record_of_a_dead_replica_goes_with_its_last_job(
    store: Store, clock: ManualClock
):
    await start(store, new(1), new(2), new(3))
    clock.shift(TTL)
    for held in (2, 1):
        await recover(store, delays=AT_ONCE, grace=0, limit=1)
        (record,) = await store.jobs.replicas()
        assert (record.dead, record.held) == (True, held)
    await recover(store, delays=AT_ONCE, grace=0, limit=1)
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    assert await store.jobs.replicas() == []


async def test_the_record_of_a_dead_replica_without_jobs_goes_at_once(
    store: Store, clock: ManualClock
):
    await join(store, "ann")
    clock.shift(TTL)
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    assert await store.jobs.replicas() == []
    assert await store.jobs.beat(["ann"], ttl=TTL) == [None]


async def test_only_replicas_that_were_touched_are_dead(store: Store, clock: ManualClock):
    for number, replica in enumerate(["ann", "ben", "cid"]):
        await start(store, new(2 * number), new(2 * number + 1), replica=replica)
    clock.shift(TTL)
    taken = await recover(store, delays=AT_ONCE, grace=0, limit=3)
    assert len(taken) == 3
    touched = {job.replica for job in taken}
    assert len(touched) == 2
    (free,) = {"ann", "ben", "cid"} - touched
    for replica in touched:
        assert await store.jobs.beat([replica], ttl=TTL) == [None]
    (revived,) = await store.jobs.beat([free], ttl=TTL)
    assert revived is not None
    assert revived.held == 2
    assert len(await recover_all(store)) == 1
    assert [record.id for record in await store.jobs.replicas()] == [free]


async def test_a_batch_that_ends_with_a_replica_leaves_the_next_one_alone(
    store: Store, clock: ManualClock
):
    for number, replica in enumerate(["ann", "ben"]):
        await start(store, new(2 * number), new(2 * number + 1), replica=replica)
    clock.shift(TTL)
    taken = await recover(store, delays=AT_ONCE, grace=0, limit=2)
    (gone,) = {job.replica for job in taken}
    (free,) = {"ann", "ben"} - {gone}
    assert [record.id for record in await store.jobs.replicas() if not record.dead] == [free]
    assert (await store.jobs.beat([free], ttl=TTL))[0] is not None
    assert await recover_all(store) == []
    assert [record.id for record in await store.jobs.replicas()] == [free]


async def test_a_dead_replica_stays_dead_though_the_clock_is_set_back(
    store: Store, clock: ManualClock
):
    await start(store, new(1), new(2))
    clock.shift(TTL)
    await recover(store, delays=AT_ONCE, grace=0, limit=1)
    clock.step(-TTL)
    assert await store.jobs.beat(["ann"], ttl=TTL) == [None]
    assert len(await recover_all(store)) == 1


async def test_many_replicas_are_recovered_together(store: Store, clock: ManualClock):
    for number in range(10):
        await start(store, new(2 * number), new(2 * number + 1), replica=f"replica {number}")
    await join(store, "idle")
    clock.shift(TTL)
    recovered = await recover_all(store, limit=7)
    assert [job.id for job in recovered] == [id_of(number) for number in range(20)]
    assert {job.id: job.replica for job in recovered}[id_of(13)] == "replica 6"
    assert await store.jobs.replicas() == []


async def test_replicas_without_jobs_do_not_hide_replicas_with_jobs(
    store: Store, clock: ManualClock
):
    await join(store, *(f"ann {number}" for number in range(5)))
    await start(store, new(1), new(2), replica="ben")
    await join(store, *(f"cid {number}" for number in range(5)))
    clock.shift(TTL)
    assert [job.id for job in await recover_all(store, limit=1)] == [id_of(1), id_of(2)]
    assert await store.jobs.replicas() == []


# Deadlines.


async def test_a_job_past_its_deadline_and_grace_is_taken_from_a_living_replica(
    store: Store, clock: ManualClock
):
    late, fine = await start(store, new(1, timeout=5), new(2))
    await store.jobs.beat(["ann"], ttl=HOUR)
    clock.shift(15 - MOMENT)
    assert await recover(store, delays=AT_ONCE, grace=10) == []
    clock.shift(MOMENT)
    assert await recover(store, delays=AT_ONCE, grace=10) == [
        Recovered(id=late.id, replica="ann", state="waiting", losses=1)
    ]
    assert await look(store, 2) == fine
    assert await settle(store, late, "succeeded") == "lost"
    (beat,) = await store.jobs.beat(["ann"], ttl=HOUR)
    assert beat is not None
    assert (beat.held, beat.expired) == (1, False)
    (line,) = read_history((await look(store)).history)
    assert line == AttemptLine(1, "ann", late.started, clock.wall(), "lost")


async def test_a_late_job_uses_the_same_loss_budget(store: Store, clock: ManualClock):
    await start_one(store, timeout=5)
    await store.jobs.beat(["ann"], ttl=HOUR)
    clock.shift(5)
    (job,) = await recover(store, delays=[], grace=0)
    assert (job.state, (await look(store)).reason) == ("failed", "lost")


async def test_a_late_job_with_a_pending_cancel_is_cancelled(store: Store, clock: ManualClock):
    await start_one(store, timeout=5)
    await store.jobs.beat(["ann"], ttl=HOUR)
    await store.jobs.cancel([id_of(1)])
    clock.shift(5)
    (job,) = await recover(store, delays=AT_ONCE, grace=0)
    assert job.state == "cancelled"


async def test_late_jobs_come_in_bounded_batches(store: Store, clock: ManualClock):
    await start(store, *(new(number, timeout=5) for number in range(5)))
    await store.jobs.beat(["ann"], ttl=HOUR)
    clock.shift(5)
    sizes = [len(await recover(store, delays=AT_ONCE, grace=0, limit=2)) for _ in range(4)]
    assert sizes == [2, 2, 1, 0]


async def test_a_late_job_of_an_expired_replica_is_lost_once(store: Store, clock: ManualClock):
    await start_one(store, timeout=5)
    clock.shift(TTL)
    assert len(await recover_all(store)) == 1
    assert (await look(store)).losses == 1


# Burying.


async def test_a_buried_replica_loses_the_jobs_that_it_had_started(
    store: Store, clock: ManualClock
):
    started, unstarted = await start(store, new(1), new(2))
    clock.shift(1)
    answers = await bury(store, "ann", [started.id], delays=[5.0])
    assert sorted(answers, key=lambda answer: answer.id) == [
        Recovered(id=id_of(1), replica="ann", state="waiting", losses=1),
        Recovered(id=id_of(2), replica="ann", state="waiting", losses=0),
    ]
    first, second = await look(store, 1), await look(store, 2)
    assert (first.losses, first.due) == (1, clock.wall() + 5_000_000)
    assert (second.losses, second.due) == (0, unstarted.due)
    assert read_history(first.history) == [
        AttemptLine(1, "ann", started.started, clock.wall(), "lost")
    ]
    assert second.history == b""
    assert first.fence > started.fence
    assert second.fence > unstarted.fence
    assert await store.jobs.replicas() == []
    assert await store.jobs.beat(["ann"], ttl=TTL) == [None]
    assert await store.jobs.claim("ann", 10**9, ["default"], 1) is None


async def test_jobs_that_a_buried_replica_had_not_started_wait_for_the_pause(
    store: Store, clock: ManualClock
):
    started, unstarted = await start(store, new(1), new(2))
    await bury(store, "ann", [started.id], delays=AT_ONCE, pause=30.0)
    clock.shift(30 - MOMENT)
    await join(store, "ben")
    assert await claim_ids(store, "ben") == [started.id]
    clock.shift(MOMENT)
    assert await claim_ids(store, "ben") == [unstarted.id]


async def test_a_job_of_a_buried_replica_past_the_loss_budget_fails(
    store: Store, clock: ManualClock
):
    await start(store, new(1), new(2))
    await bury(store, "ann", [id_of(1)], delays=[])
    job = await look(store, 1)
    assert (job.state, job.reason, job.finished) == ("failed", "lost", clock.wall())
    assert await states(store, 2) == ["waiting"]


async def test_a_job_of_a_buried_replica_with_a_pending_cancel_is_cancelled(store: Store):
    await start(store, new(1), new(2))
    await store.jobs.cancel([id_of(1), id_of(2)], reason="enough")
    answers = await bury(store, "ann", [id_of(1)], delays=AT_ONCE)
    assert {answer.id: (answer.state, answer.losses) for answer in answers} == {
        id_of(1): ("cancelled", 1),
        id_of(2): ("cancelled", 0),
    }
    assert (await look(store, 2)).reason == "enough"


async def test_burying_takes_only_the_jobs_of_that_replica(store: Store):
    await start_one(store, 1, replica="ann")
    kept = await start_one(store, 2, replica="ben")
    await bury(store, "ann", [id_of(1), id_of(2), id_of(99)], delays=AT_ONCE)
    assert await look(store, 2) == kept
    assert await states(store, 99) == [None]


async def test_burying_an_unknown_replica_or_one_twice_does_nothing(store: Store):
    await start_one(store)
    assert len(await bury(store, "ann", [id_of(1)], delays=AT_ONCE)) == 1
    before = await look(store)
    assert await bury(store, "ann", [id_of(1)], delays=AT_ONCE) == []
    assert await bury(store, "nobody", [id_of(1)], delays=AT_ONCE) == []
    assert await look(store) == before


async def test_a_replica_under_recovery_can_be_buried(store: Store, clock: ManualClock):
    await start(store, new(1), new(2))
    clock.shift(TTL)
    (taken,) = await recover(store, delays=AT_ONCE, grace=0, limit=1)
    (buried,) = await bury(store, "ann", [id_of(1), id_of(2)], delays=AT_ONCE)
    assert {taken.id, buried.id} == {id_of(1), id_of(2)}
    assert await store.jobs.replicas() == []
    assert {(await look(store, number)).losses for number in (1, 2)} == {1}
