import asyncio

import pytest

from tenure.core.jobs.options import read_options, write_options
from tenure.core.schedules.documents import Decision
from tenure.core.schedules.records import DECISIONS_MAX
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    TTL,
    id_of,
    join,
    look,
    new,
    recover_all,
    settle,
    start,
)
from tests.contract.schedule_calls import (
    SECOND,
    TIMERS,
    advance,
    bound,
    decisions,
    freeze,
    look_at,
    move,
    plant_all,
    register,
    registration,
    run,
    tick,
)
from tests.contract.worlds import World
from tests.rig.endings import recover

ONCE = write_options(rerun=False)


@pytest.fixture(autouse=True)
async def ann(store: Store) -> None:
    """A replica, and a schedule."""
    await join(store, "ann", "ben")
    await register(store)


async def test_a_move_creates_a_run_that_is_running(store: Store, clock: ManualClock):
    clock.shift(2)
    to = clock.wall() - SECOND
    answer = await tick(store, to, replica="ann")
    assert (answer.outcome, answer.cursor, answer.last_run) == ("done", to, to)
    assert answer.now == clock.wall()
    run = answer.run
    assert run is not None
    assert (run.state, run.replica, run.attempt) == ("running", "ann", 1)
    assert (run.task, run.queue, run.schedule, read_options(run.options).rerun) == (
        "@sync",
        TIMERS,
        "sync",
        False,
    )
    assert run.started == run.created == clock.wall()
    assert run.fence >= clock.wall()
    assert (await store.jobs.get([run.id])) == [run]
    assert await settle(store, run, "succeeded", result=b"7") == "settled"
    assert (await look_at(store)).live == 0


async def test_a_run_without_a_replica_waits_in_its_queue(store: Store, clock: ManualClock):
    async with store.watch(("queue", TIMERS)) as bell:
        waiting = await run(store, clock.wall())
        assert await bell.wait(5)
    assert (waiting.state, waiting.replica, waiting.attempt) == ("waiting", "", 0)
    claimed = await store.jobs.claim("ben", 1, [TIMERS], 10)
    assert claimed is not None
    assert [(job.id, job.schedule) for job in claimed.jobs] == [(waiting.id, "sync")]


async def test_a_tick_at_or_below_the_cursor_never_runs_again(store: Store, clock: ManualClock):
    clock.shift(2)
    before = await register(store)
    to = clock.wall()
    assert (await advance(store, move(before, to))).outcome == "done"
    late = await advance(store, move(before, to))
    assert (late.outcome, late.cursor, late.run) == ("passed", to, None)
    assert (await look_at(store)).live == 1


async def test_a_cursor_never_goes_back(store: Store, clock: ManualClock):
    registered = await register(store)
    answer = await tick(store, registered.cursor - 1, run=None)
    assert (answer.outcome, answer.cursor) == ("passed", registered.cursor)


async def test_fences_grow_from_run_to_run_though_the_clock_is_set_back(
    store: Store, clock: ManualClock
):
    cursor = (await register(store)).cursor
    clock.shift(TTL / 2)
    first = await run(store, cursor, replica="ann")
    clock.shift(-TTL / 4)
    second = await run(store, cursor, replica="ben", due=0)
    (successor,) = await plant_all(store, [registration("successor", renamed_from=("sync",))])
    third = await run(store, successor.cursor, replica="ann", name="successor", due=0)
    assert first.fence < second.fence < third.fence


async def test_a_tick_that_is_not_due_is_refused(store: Store, clock: ManualClock):
    registered = await register(store)
    early = await tick(store, registered.cursor, due=clock.wall() + 2 * SECOND)
    assert (early.outcome, early.ready_in, early.run) == ("early", 2.0, None)
    assert (await look_at(store)).cursor == registered.cursor
    clock.shift(2)
    assert (await tick(store, registered.cursor + 1, due=clock.wall())).outcome == "done"


async def test_a_lost_reply_changes_nothing(store: Store, clock: ManualClock):
    clock.shift(1)
    registered = await register(store)
    tick_move = move(registered, clock.wall(), replica="ann", limit=bound(1))
    first = await advance(store, tick_move)
    assert await advance(store, tick_move) == first
    assert (await look_at(store)).live == 1
    clock.shift(1)
    await tick(store, clock.wall(), limit=None)
    repeated = await advance(store, tick_move)
    assert (repeated.outcome, repeated.run) == ("done", first.run)
    assert len(await decisions(store, "sync")) == 2


async def test_a_lost_reply_to_a_skip_or_a_mere_move_changes_nothing(
    store: Store, clock: ManualClock
):
    await run(store, clock.wall(), replica="ann")
    clock.shift(1)
    skip = move(await register(store), clock.wall(), limit=bound(1, "overlap"))
    first = await advance(store, skip)
    assert (first.outcome, first.reason) == ("skipped", "overlap")
    assert await advance(store, skip) == first
    clock.shift(1)
    mere = move(await register(store), clock.wall(), run=None)
    first = await advance(store, mere)
    assert (first.outcome, first.run, first.cursor) == ("done", None, clock.wall())
    assert await advance(store, mere) == first
    assert [decision.ticks for decision in await decisions(store, "sync")] == [1, 1]


async def test_a_replica_that_is_gone_gets_no_run(store: Store, clock: ManualClock):
    before = await register(store)
    assert (await tick(store, clock.wall(), replica="nobody")).outcome == "gone"
    clock.shift(TTL)
    held = await tick(store, clock.wall(), replica="ann")
    assert (held.outcome, held.reason) == ("held", "expired")
    await store.jobs.beat(["ann"], ttl=TTL)
    clock.shift(TTL)
    await recover(store, delays=(0.0,), grace=0.0)
    assert (await tick(store, clock.wall(), replica="ann")).outcome == "gone"
    assert (await look_at(store)).cursor == before.cursor


async def test_a_replica_whose_jobs_are_being_recovered_gets_no_run(
    store: Store, clock: ManualClock
):
    await start(store, new(1), new(2), replica="ann")
    clock.shift(TTL)
    assert len(await recover(store, delays=AT_ONCE, grace=0.0, limit=1)) == 1
    assert (await tick(store, clock.wall(), replica="ann")).outcome == "gone"


async def test_a_move_of_an_unknown_schedule_is_answered_as_unknown(
    store: Store, clock: ManualClock
):
    registered = await register(store)
    answer = await advance(store, move(registered, clock.wall(), name="other"))
    assert (answer.outcome, answer.cursor, answer.revision) == ("unknown", 0, 0)


async def test_a_limit_counts_unfinished_runs_everywhere(store: Store, clock: ManualClock):
    first = await run(store, clock.wall(), replica="ann", limit=bound(2))
    clock.shift(1)
    await run(store, clock.wall(), replica="ben", limit=bound(2))
    clock.shift(1)
    full = await tick(store, clock.wall(), replica="ann", limit=bound(2))
    assert (full.outcome, full.reason, full.cursor) == ("skipped", "limit", clock.wall())
    assert full.run is None
    await settle(store, first, "failed")
    clock.shift(1)
    await run(store, clock.wall(), limit=bound(2))
    clock.shift(1)
    assert (await tick(store, clock.wall(), limit=bound(2))).outcome == "skipped"  # it waits
    assert (await look_at(store)).live == 2


async def test_a_limit_of_its_own_counts_what_runs_there(store: Store, clock: ManualClock):
    await run(store, clock.wall(), replica="ann")
    clock.shift(1)
    own = bound(1, "overlap")
    assert (await tick(store, clock.wall(), replica="ann", own=own)).reason == "overlap"
    clock.shift(1)
    await run(store, clock.wall(), replica="ben", own=own)


async def test_a_tick_that_is_held_changes_nothing(store: Store, clock: ManualClock):
    job = await run(store, clock.wall(), replica="ann")
    clock.shift(1)
    held = move(await register(store), clock.wall(), limit=bound(1, "overlap", "hold"))
    answer = await advance(store, held)
    assert (answer.outcome, answer.reason) == ("held", "overlap")
    assert (await look_at(store)).cursor == held.seen
    assert len(await decisions(store, "sync")) == 1
    await settle(store, job, "succeeded")
    assert (await advance(store, held)).outcome == "done"


async def test_a_tick_may_cancel_the_runs_before_it(store: Store, clock: ManualClock):
    runs = await run(store, clock.wall(), replica="ann")
    clock.shift(1)
    waits = await run(store, clock.wall())
    clock.shift(1)
    newer = move(await register(store), clock.wall(), limit=bound(1, "newer", "cancel"))
    assert (await advance(store, newer)).outcome == "held"
    (beat,) = await store.jobs.beat(["ann"], ttl=TTL)
    assert beat is not None
    assert beat.cancels == [runs.id]
    (cancelled,) = await store.jobs.get([waits.id])
    assert cancelled is not None
    assert (cancelled.state, cancelled.reason) == ("cancelled", "newer")
    await settle(store, runs, "cancelled")
    assert (await advance(store, newer)).outcome == "done"


async def test_a_schedule_may_rest_after_its_last_run(store: Store, clock: ManualClock):
    job = await run(store, clock.wall(), replica="ann", rest=5.0)
    clock.shift(1)
    busy = await tick(store, clock.wall(), replica="ann", rest=5.0)
    assert (busy.outcome, busy.reason) == ("held", "running")
    await settle(store, job, "succeeded")
    clock.shift(2)
    early = await tick(store, clock.wall(), replica="ann", rest=5.0)
    assert (early.outcome, early.ready_in) == ("early", 3.0)
    clock.shift(3)
    await run(store, clock.wall(), replica="ann", rest=5.0)


async def test_a_trigger_leaves_the_cursor_alone(store: Store, clock: ManualClock):
    registered = await register(store)
    clock.shift(7)
    await freeze(store, "sync")
    forced = move(registered, clock.wall(), seen=None, forced=True)
    answer = await advance(store, forced)
    assert (answer.outcome, answer.cursor) == ("done", registered.cursor)
    assert await advance(store, forced) == answer
    (decision,) = await decisions(store, "sync")
    assert (decision.outcome, decision.reason) == ("ran", "triggered")
    full = await tick(store, clock.wall(), seen=None, forced=True, limit=bound(1))
    assert (full.outcome, full.reason) == ("skipped", "limit")


async def test_the_deadline_of_a_run_counts_from_its_start(store: Store, clock: ManualClock):
    timed = new(1, task="@sync", queue=TIMERS, schedule="sync", options=ONCE, timeout=3.0)
    clock.shift(1)
    await run(store, clock.wall(), id=timed.id, run=timed, replica="ann")
    clock.shift(3)
    (lost,) = await recover_all(store)
    assert (lost.id, lost.state) == (id_of(1), "failed")
    assert (await look(store)).reason == "lost"


async def test_decisions_record_the_outcome_of_each_tick(store: Store, clock: ManualClock):
    zero = clock.wall()
    missed = Decision(outcome="missed", reason="late", first=zero + 1, last=zero + 3, ticks=3)
    clock.shift(5)
    ran = await run(store, zero + 4, replica="ann", passed=(missed,))
    assert await decisions(store, "sync") == [
        Decision(
            outcome="ran", first=zero + 4, last=zero + 4, at=clock.wall(), job=ran.id, replica="ann"
        ),
        Decision(
            outcome="missed", reason="late", first=zero + 1, last=zero + 3, ticks=3, at=clock.wall()
        ),
    ]
    record = await look_at(store)
    assert record.latest == (await decisions(store, "sync", limit=1))[0]
    assert (record.last_run, record.last_job, record.live) == (zero + 4, ran.id, 1)


async def test_decisions_that_are_alike_are_merged(store: Store, clock: ManualClock):
    await run(store, clock.wall(), replica="ann")
    begin = clock.wall()
    for _ in range(5):
        clock.shift(1)
        await tick(store, clock.wall(), limit=bound(1, "overlap"))
    newest, oldest = await decisions(store, "sync")
    assert oldest.outcome == "ran"
    assert newest == Decision(
        outcome="skipped",
        reason="overlap",
        first=begin + SECOND,
        last=begin + 5 * SECOND,
        ticks=5,
        at=clock.wall(),
    )
    clock.shift(1)
    await tick(store, clock.wall(), limit=bound(1, "other"))
    assert [decision.reason for decision in await decisions(store, "sync")] == [
        "other",
        "overlap",
        "",
    ]


async def test_old_decisions_are_forgotten_and_their_ticks_stay_decided(
    store: Store, clock: ManualClock
):
    first = move(await register(store), clock.wall(), replica="ann")
    await advance(store, first)
    for _ in range(DECISIONS_MAX + 5):
        clock.shift(1)
        await store.jobs.beat(["ann"], ttl=TTL)
        job = await run(store, clock.wall(), replica="ann")
        await settle(store, job, "succeeded")
    kept = await decisions(store, "sync", limit=1000)
    assert len(kept) == DECISIONS_MAX
    assert kept[0].last == clock.wall()
    clock.shift(100)
    await store.prune(idle=3600)
    again = move(await register(store), first.to, seen=first.seen)
    assert (await advance(store, again)).outcome == "passed"


async def test_of_many_replicas_that_see_a_tick_one_runs_it(world: World, clock: ManualClock):
    stores = [await world.store() for _ in range(3)]
    for _ in range(20):
        clock.shift(1)
        await stores[0].jobs.beat(["ann", "ben"], ttl=TTL)
        registered = await register(stores[0])
        answers = await asyncio.gather(
            *(
                advance(
                    stores[number % 3],
                    move(registered, clock.wall(), replica="ann" if number % 2 else "ben"),
                )
                for number in range(9)
            )
        )
        outcomes = sorted(answer.outcome for answer in answers)
        assert outcomes == ["done", *["passed"] * 8]
        (run,) = [answer.run for answer in answers if answer.run is not None]
        await settle(stores[0], run, "succeeded")


async def test_a_limit_is_exact_for_any_number_of_concurrent_calls(
    world: World, clock: ManualClock
):
    stores = [await world.store() for _ in range(3)]
    for _ in range(10):
        clock.shift(1)
        await stores[0].jobs.beat(["ann", "ben"], ttl=TTL)
        registered = await register(stores[0])
        answers = await asyncio.gather(
            *(
                advance(
                    stores[number % 3],
                    move(registered, clock.wall(), seen=None, replica="ann", limit=bound(3)),
                )
                for number in range(8)
            )
        )
        runs = [answer.run for answer in answers if answer.run is not None]
        assert len(runs) == 3
        assert sum(answer.outcome == "skipped" for answer in answers) == 5
        for job in runs:
            await settle(stores[0], job, "succeeded")


async def test_a_large_limit_costs_no_more_calls(store: Store, clock: ManualClock):
    for _ in range(20):
        clock.shift(0.1)
        await run(store, clock.wall(), limit=bound(1000))
    assert (await look_at(store)).live == 20
