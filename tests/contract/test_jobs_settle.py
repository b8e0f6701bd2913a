import pytest

from tenure.core.jobs.history import AttemptLine, write_history
from tenure.core.jobs.records import BATCH_MAX, JobRecord, Note
from tenure.core.jobs.states import FINISHED
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    ENDS,
    MOMENT,
    TTL,
    claim,
    claim_ids,
    ended,
    id_of,
    insert,
    join,
    look,
    new,
    prune_jobs,
    settle,
    start,
    start_one,
    states,
)
from tests.contract.worlds import World
from tests.rig.endings import recover

COUNTED = {"failed", "retry"}
FINISHING = [outcome for outcome, state in ENDS.items() if state in FINISHED]
RETURNING = [outcome for outcome, state in ENDS.items() if state == "waiting"]


@pytest.fixture
async def job(store: Store, clock: ManualClock) -> JobRecord:
    """A job that has been running for a second."""
    job = await start_one(store, retention=100)
    clock.shift(1)
    return job


async def settle_and_look(store: Store, job: JobRecord, outcome: str, **details) -> JobRecord:
    assert await settle(store, job, outcome, **details) in ("settled", "cancelled")
    return await look(store)


# What each outcome does.


@pytest.mark.parametrize("outcome", ENDS)
async def test_an_attempt_ends(store: Store, job: JobRecord, outcome: str):
    after = await settle_and_look(store, job, outcome)
    assert after.state == ENDS[outcome]
    assert after.failures == (outcome in COUNTED)
    assert (after.attempt, after.losses) == (1, 0)
    assert (after.replica, after.cancelling) == ("", False)
    assert after.started == job.started
    assert after.revision > job.revision


@pytest.mark.parametrize("outcome", FINISHING)
async def test_a_settled_job_finished_now(
    store: Store, clock: ManualClock, job: JobRecord, outcome: str
):
    after = await settle_and_look(store, job, outcome)
    assert after.finished == clock.wall()
    assert await claim_ids(store) == []


@pytest.mark.parametrize("outcome", RETURNING)
@pytest.mark.parametrize("delay", [0.0, 0.25, 60.0])
async def test_a_job_that_comes_back_is_due_after_its_delay(
    store: Store, clock: ManualClock, job: JobRecord, outcome: str, delay: float
):
    after = await settle_and_look(store, job, outcome, delay=delay)
    assert after.due == (clock.wall() + round(delay * 1e6) if delay else job.due)
    assert after.finished == 0
    assert after.fence > job.fence
    if delay:
        clock.shift(delay - MOMENT)
        await store.jobs.beat(["ann"], ttl=TTL)
        assert await claim_ids(store) == []
        clock.shift(MOMENT)
    (again,) = await claim(store)
    assert (again.id, again.attempt) == (job.id, 2)
    assert again.fence > after.fence


@pytest.mark.parametrize(
    "content",
    [None, b"", b"\0", bytes(range(256)), bytes(range(256)) * 800],
    ids=lambda value: "none" if value is None else f"{len(value)} bytes",
)
async def test_a_result_is_kept_byte_by_byte(store: Store, job: JobRecord, content: bytes | None):
    after = await settle_and_look(store, job, "succeeded", result=content)
    assert after.result == content


@pytest.mark.parametrize("outcome", ["failed", "retry"])
@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 800], ids=["empty", "large"])
async def test_an_error_is_kept_byte_by_byte(
    store: Store, job: JobRecord, outcome: str, content: bytes
):
    after = await settle_and_look(store, job, outcome, error=content)
    assert after.error == content


async def test_the_last_failure_leaves_its_error(store: Store, job: JobRecord):
    await settle(store, job, "retry", error=b"first")
    (job,) = await claim(store)
    assert job.error == b"first"
    await settle(store, job, "handed back")
    (job,) = await claim(store)
    assert job.error == b"first"
    after = await settle_and_look(store, job, "failed", error=b"second", reason="error")
    assert (after.error, after.reason, after.failures) == (b"second", "error", 2)


async def test_a_confirmed_cancel_leaves_the_error_of_the_attempt_before(
    store: Store, job: JobRecord
):
    await settle(store, job, "retry", error=b"first")
    (job,) = await claim(store)
    await store.jobs.cancel([job.id])
    after = await settle_and_look(store, job, "cancelled")
    assert (after.state, after.error) == ("cancelled", b"first")


async def test_a_success_removes_the_error(store: Store, job: JobRecord):
    await settle(store, job, "retry", error=b"first")
    (job,) = await claim(store)
    after = await settle_and_look(store, job, "succeeded", result=b"good")
    assert (after.error, after.result, after.reason) == (None, b"good", "")
    assert after.failures == 1


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
async def test_a_reason_is_kept(store: Store, job: JobRecord, outcome: str):
    after = await settle_and_look(store, job, outcome, reason="läuft 🌍 nicht")
    assert after.reason == "läuft 🌍 nicht"


async def test_failures_add_up_over_retries_and_nothing_else(store: Store, job: JobRecord):
    for outcome, failures in (("retry", 1), ("handed back", 1), ("retry", 2), ("failed", 3)):
        after = await settle_and_look(store, job, outcome)
        assert after.failures == failures
        if outcome != "failed":
            (job,) = await claim(store)


async def test_progress_message_and_checkpoint_stay_over_attempts(store: Store, job: JobRecord):
    note = Note(id=job.id, fence=job.fence, progress=0.5, message="half", checkpoint=b"c")
    assert await store.jobs.note([note]) == [True]
    for outcome in ("retry", "handed back"):
        after = await settle_and_look(store, job, outcome)
        assert (after.progress, after.message, after.checkpoint) == (0.5, "half", b"c")
        (job,) = await claim(store)
        assert (job.progress, job.message, job.checkpoint) == (0.5, "half", b"c")
    after = await settle_and_look(store, job, "succeeded")
    assert (after.progress, after.message, after.checkpoint) == (0.5, "half", b"c")


# Retention.


@pytest.mark.parametrize("outcome", FINISHING)
async def test_a_finished_job_is_kept_for_its_retention(
    store: Store, clock: ManualClock, job: JobRecord, outcome: str
):
    await settle(store, job, outcome)
    clock.shift(100 - MOMENT)
    assert await prune_jobs(store) == 0
    assert await states(store, 1) == [ENDS[outcome]]
    clock.shift(MOMENT)
    assert await prune_jobs(store) == 1
    assert await states(store, 1) == [None]


# History.


@pytest.mark.parametrize("outcome", ENDS)
async def test_a_history_replaces_what_is_stored(store: Store, job: JobRecord, outcome: str):
    first = write_history(
        [AttemptLine(1, "ann", job.started, job.started + 5, "retry", "läuft 🌍")]
    )
    after = await settle_and_look(store, job, outcome, history=first)
    assert after.history == first


@pytest.mark.parametrize("outcome", ENDS)
async def test_no_history_leaves_what_is_stored(store: Store, job: JobRecord, outcome: str):
    await settle(store, job, "retry", history=b"first\n")
    (job,) = await claim(store)
    assert job.history == b"first\n"
    after = await settle_and_look(store, job, outcome)
    assert after.history == b"first\n"


async def test_an_empty_history_replaces_what_is_stored_too(store: Store, job: JobRecord):
    await settle(store, job, "retry", history=b"first\n")
    (job,) = await claim(store)
    assert (await settle_and_look(store, job, "retry", history=b"")).history == b""


# Repeats.


@pytest.mark.parametrize("outcome", ENDS)
async def test_a_repeat_is_recognised_and_changes_nothing(
    store: Store, clock: ManualClock, job: JobRecord, outcome: str
):
    before = await settle_and_look(store, job, outcome, result=b"r", delay=5)
    clock.shift(1)
    assert await settle(store, job, outcome, result=b"other", delay=9) == "repeated"
    assert await look(store) == before


@pytest.mark.parametrize("outcome", RETURNING)
async def test_a_repeat_is_recognised_after_a_new_claim(store: Store, job: JobRecord, outcome: str):
    await settle(store, job, outcome)
    (again,) = await claim(store)
    assert await settle(store, job, outcome) == "repeated"
    assert await look(store) == again
    assert await settle(store, again, "succeeded") == "settled"


@pytest.mark.parametrize("outcome", FINISHING)
async def test_a_repeat_is_recognised_after_a_requeue(store: Store, job: JobRecord, outcome: str):
    await settle(store, job, outcome)
    await store.jobs.requeue([job.id])
    before = await look(store)
    assert await settle(store, job, outcome) == "repeated"
    assert await look(store) == before


@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", ENDS)
async def test_another_outcome_under_a_settled_fence_is_lost(
    store: Store, job: JobRecord, first: str, second: str
):
    if first == second:
        return  # a repeat
    before = await settle_and_look(store, job, first)
    assert await settle(store, job, second, result=b"late", reason="late") == "lost"
    assert await look(store) == before


async def test_the_same_settlement_twice_in_one_call_counts_once(store: Store, job: JobRecord):
    settlement = ended(job, "retry")
    assert await store.jobs.settle([settlement, settlement]) == ["settled", "repeated"]
    assert (await look(store)).failures == 1


async def test_of_two_outcomes_in_one_call_the_first_counts(store: Store, job: JobRecord):
    both = [ended(job, "succeeded", result=b"good"), ended(job, "failed", error=b"bad")]
    assert await store.jobs.settle(both) == ["settled", "lost"]
    after = await look(store)
    assert (after.state, after.result, after.failures) == ("succeeded", b"good", 0)


# Settlements that are lost.


@pytest.mark.parametrize("outcome", ENDS)
@pytest.mark.parametrize("off", [-1, 1, 1_000_000])
async def test_another_fence_is_lost(store: Store, job: JobRecord, outcome: str, off: int):
    (answer,) = await store.jobs.settle([ended(job, outcome, fence=job.fence + off)])
    assert answer == "lost"
    assert await look(store) == job


@pytest.mark.parametrize("outcome", ENDS)
async def test_a_job_that_never_ran_has_no_fence_to_settle(store: Store, outcome: str):
    await insert(store, new(1))
    before = await look(store)
    for fence in (0, before.fence, 1):
        (answer,) = await store.jobs.settle([ended(before, outcome, fence=fence)])
        assert answer == "lost"
    assert await look(store) == before


@pytest.mark.parametrize("outcome", ENDS)
async def test_a_settlement_of_an_unknown_job_is_lost(store: Store, job: JobRecord, outcome: str):
    (answer,) = await store.jobs.settle([ended(job, outcome, id=id_of(99))])
    assert answer == "lost"
    assert await states(store, 99) == [None]


@pytest.mark.parametrize("outcome", ENDS)
async def test_an_attempt_that_was_recovered_is_lost(
    store: Store, clock: ManualClock, job: JobRecord, outcome: str
):
    clock.shift(TTL)
    await recover(store, delays=[60], grace=0)
    before = await look(store)
    assert await settle(store, job, outcome, result=b"late") == "lost"
    assert await look(store) == before


@pytest.mark.parametrize("outcome", ENDS)
async def test_an_attempt_that_was_taken_over_is_lost(
    store: Store, clock: ManualClock, job: JobRecord, outcome: str
):
    clock.shift(TTL)
    await recover(store, delays=AT_ONCE, grace=0)
    await join(store, "ben")
    (taken,) = await claim(store, "ben")
    assert await settle(store, job, outcome, result=b"late") == "lost"
    assert await look(store) == taken
    assert await settle(store, taken, "succeeded", result=b"good") == "settled"
    assert (await look(store)).result == b"good"


async def test_a_cancelled_waiting_job_cannot_be_settled(store: Store, job: JobRecord):
    await settle(store, job, "retry", delay=60)
    await store.jobs.cancel([job.id])
    before = await look(store)
    (answer,) = await store.jobs.settle([ended(before, "succeeded")])
    assert answer == "lost"
    assert await look(store) == before


# In every state of the replica.


@pytest.mark.parametrize("outcome", ENDS)
async def test_an_expired_replica_may_still_settle(
    store: Store, clock: ManualClock, job: JobRecord, outcome: str
):
    clock.shift(10 * TTL)
    after = await settle_and_look(store, job, outcome)
    assert after.state == ENDS[outcome]
    assert after.losses == 0
    assert await recover(store, delays=AT_ONCE, grace=0) == []


async def test_a_replica_under_recovery_settles_the_jobs_it_still_has(
    store: Store, clock: ManualClock
):
    jobs = await start(store, new(1), new(2), new(3))
    clock.shift(TTL)
    (taken,) = await recover(store, delays=[60], grace=0, limit=1)
    answers = await store.jobs.settle([ended(job, "succeeded") for job in jobs])
    assert answers == ["lost" if job.id == taken.id else "settled" for job in jobs]
    assert await recover(store, delays=[60], grace=0) == []
    assert await store.jobs.replicas() == []


async def test_a_job_past_its_deadline_may_still_be_settled(store: Store, clock: ManualClock):
    job = await start_one(store, timeout=5)
    clock.shift(6)
    assert await settle(store, job, "succeeded") == "settled"


# With a pending cancel.


@pytest.mark.parametrize("outcome", RETURNING)
async def test_a_pending_cancel_wins_over_a_return_to_waiting(
    store: Store, clock: ManualClock, job: JobRecord, outcome: str
):
    await store.jobs.cancel([job.id], reason="enough")
    after = await settle_and_look(store, job, outcome, error=b"e", delay=5)
    assert (after.state, after.reason, after.cancelling) == ("cancelled", "enough", False)
    assert after.finished == clock.wall()
    assert after.failures == (outcome in COUNTED)
    assert await settle(store, job, outcome) == "repeated"
    clock.shift(5)
    assert await claim_ids(store) == []


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_a_job_may_finish_in_spite_of_a_pending_cancel(
    store: Store, job: JobRecord, outcome: str
):
    await store.jobs.cancel([job.id], reason="enough")
    after = await settle_and_look(store, job, outcome)
    assert (after.state, after.cancelling) == (outcome, False)
    assert after.reason == ("" if outcome == "succeeded" else "enough")


async def test_a_confirmed_cancel_keeps_its_reason(store: Store, job: JobRecord):
    await store.jobs.cancel([job.id], reason="enough")
    assert (await settle_and_look(store, job, "cancelled")).reason == "enough"


@pytest.mark.parametrize("outcome", ["cancelled", "failed"])
async def test_a_reason_replaces_that_of_a_pending_cancel(
    store: Store, job: JobRecord, outcome: str
):
    await store.jobs.cancel([job.id], reason="enough")
    assert (await settle_and_look(store, job, outcome, reason="mine")).reason == "mine"


async def test_a_job_may_cancel_itself(store: Store, job: JobRecord):
    after = await settle_and_look(store, job, "cancelled", reason="not needed")
    assert (after.state, after.reason) == ("cancelled", "not needed")


# Many at once.


async def test_every_settlement_of_a_call_gets_its_own_answer(store: Store):
    jobs = await start(store, *(new(number) for number in range(8)))
    await settle(store, jobs[5], "succeeded")
    settlements = [
        ended(jobs[0], "succeeded", result=b"0"),
        ended(jobs[1], "failed", error=b"1"),
        ended(jobs[2], "retry"),
        ended(jobs[3], "handed back", delay=5),
        ended(jobs[4], "cancelled", reason="4"),
        ended(jobs[5], "succeeded"),
        ended(jobs[6], "succeeded", fence=jobs[6].fence + 1),
        ended(jobs[7], "succeeded", id=id_of(99)),
    ]
    answers = await store.jobs.settle(settlements)
    assert answers == ["settled"] * 5 + ["repeated", "lost", "lost"]
    assert await states(store, *range(8)) == [
        "succeeded",
        "failed",
        "waiting",
        "waiting",
        "cancelled",
        "succeeded",
        "running",
        "running",
    ]


async def test_a_full_batch_is_settled_in_one_call(store: Store):
    jobs = await start(store, *(new(number) for number in range(BATCH_MAX)))
    settlements = [ended(job, "succeeded", result=job.id.encode()) for job in jobs]
    assert await store.jobs.settle(settlements) == ["settled"] * BATCH_MAX
    settled = await store.jobs.get([job.id for job in jobs])
    assert [job and job.result for job in settled] == [job.id.encode() for job in jobs]
    assert await store.jobs.settle(settlements) == ["repeated"] * BATCH_MAX


async def test_nothing_is_settled_by_a_call_without_settlements(store: Store):
    assert await store.jobs.settle([]) == []


async def test_one_store_object_settles_jobs_that_another_claimed(world: World):
    here, there = await world.store(), await world.store()
    job = await start_one(here)
    assert await settle(there, job, "succeeded") == "settled"
    assert await settle(here, job, "succeeded") == "repeated"


# Notes.


async def test_a_running_job_stores_its_progress(store: Store, job: JobRecord):
    note = Note(id=job.id, fence=job.fence, progress=0.25, message="läuft 🌍", checkpoint=b"\0c")
    assert await store.jobs.note([note]) == [True]
    after = await look(store)
    assert (after.progress, after.message, after.checkpoint) == (0.25, "läuft 🌍", b"\0c")
    assert after.state == "running"
    assert after.revision > job.revision
    assert after.fence == job.fence


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"progress": 0.75}, (0.75, "half", b"c")),
        ({"progress": 0.0}, (0.0, "half", b"c")),
        ({"message": "more"}, (0.5, "more", b"c")),
        ({"message": ""}, (0.5, "", b"c")),
        ({"checkpoint": b"d" * 200_000}, (0.5, "half", b"d" * 200_000)),
        ({"checkpoint": b""}, (0.5, "half", b"")),
        ({}, (0.5, "half", b"c")),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
async def test_fields_that_a_note_does_not_set_stay(store: Store, job: JobRecord, part, expected):
    name = {"id": job.id, "fence": job.fence}
    await store.jobs.note([Note(**name, progress=0.5, message="half", checkpoint=b"c")])
    assert await store.jobs.note([Note(**name, **part)]) == [True]
    after = await look(store)
    assert (after.progress, after.message, after.checkpoint) == expected


async def test_a_note_of_another_attempt_changes_nothing(store: Store, job: JobRecord):
    def note(**details) -> Note:
        return Note(**{"id": job.id, "fence": job.fence, "progress": 0.9, **details})

    assert await store.jobs.note([note(fence=job.fence - 1), note(fence=job.fence + 1)]) == [
        False,
        False,
    ]
    assert await store.jobs.note([note(id=id_of(99))]) == [False]
    assert await look(store) == job
    await settle(store, job, "retry")
    waiting = await look(store)
    assert await store.jobs.note([note(), note(fence=waiting.fence)]) == [False, False]
    assert await look(store) == waiting
    (again,) = await claim(store)
    assert await store.jobs.note([note()]) == [False]
    assert await look(store) == again
    await settle(store, again, "succeeded")
    done = await look(store)
    assert await store.jobs.note([note(fence=again.fence)]) == [False]
    assert await look(store) == done


async def test_every_note_of_a_call_gets_its_own_answer(store: Store):
    jobs = await start(store, *(new(number) for number in range(3)))
    await settle(store, jobs[1], "succeeded")
    notes = [Note(id=job.id, fence=job.fence, progress=0.5) for job in jobs]
    assert await store.jobs.note(notes) == [True, False, True]
    assert [(await look(store, number)).progress for number in range(3)] == [0.5, None, 0.5]
    assert await store.jobs.note([]) == []


async def test_an_expired_replica_may_still_take_notes(
    store: Store, clock: ManualClock, job: JobRecord
):
    clock.shift(TTL)
    assert await store.jobs.note([Note(id=job.id, fence=job.fence, progress=1.0)]) == [True]
