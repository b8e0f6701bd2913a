"""Runs that commits create: how they begin, their fences, and their limits."""

import pytest

from tenure.core.jobs.records import BATCH_MAX
from tenure.core.schedules.records import BLOCKING_MAX, TIMERS_QUEUE, Room, Write
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.commit_calls import (
    TICK,
    as_expected,
    create,
    everything,
    look_at,
    plan,
    plan_run,
    run,
    send,
    tick_line,
)
from tests.contract.job_calls import (
    AT_ONCE,
    MOMENT,
    TTL,
    claim,
    insert,
    join,
    new,
    new_claim_no,
    recover_all,
    settle,
    start,
)
from tests.rig.endings import leave, recover
from tests.rig.lookups import decisions

SECOND = 1_000_000
HOUR = 3600.0
LONG = 10 * HOUR


@pytest.fixture(autouse=True)
async def replicas(store: Store) -> None:
    """Two replicas that run work."""
    await join(store, "ann", "ben", ttl=LONG)


# How a run begins.


async def test_a_run_created_on_a_replica_is_running(store: Store, clock: ManualClock):
    record = await create(store)
    clock.shift(5)
    job = {"payload": b"p", "tags": ("t",), "priority": 3, "options": "opaque", "timeout": 7.0}
    due = clock.wall() - 2 * SECOND
    answer = await send(store, plan_run(record, start_on="ann", not_before=due, job=job))
    assert (answer.outcome, answer.now) == ("done", clock.wall())
    made = answer.run
    assert made is not None
    assert (made.state, made.replica, made.attempt) == ("running", "ann", 1)
    assert (made.started, made.created, made.due) == (clock.wall(), clock.wall(), due)
    assert (made.task, made.queue, made.schedule) == ("@sync", TIMERS_QUEUE, "sync")
    assert (made.payload, made.tags, made.priority) == (b"p", ("t",), 3)
    assert (made.options, made.timeout, made.retention) == ("opaque", 7.0, 60.0)
    assert (made.failures, made.losses, made.finished) == (0, 0, 0)
    assert await store.jobs.get([made.id]) == [made]
    (beat,) = await store.jobs.beat(["ann"], ttl=LONG)
    assert beat is not None
    assert beat.held == 1
    assert await settle(store, made, "succeeded", result=b"7") == "settled"


async def test_a_run_without_a_replica_waits_and_is_due_at_once(store: Store, clock: ManualClock):
    record = await create(store)
    clock.shift(5)
    async with store.watch(("queue", TIMERS_QUEUE)) as bell:
        waits = await run(store, record, not_before=clock.wall() - SECOND, job={"options": "x"})
        assert await bell.wait(5)
    assert (waits.state, waits.replica, waits.attempt) == ("waiting", "", 0)
    assert (waits.started, waits.created, waits.due) == (0, clock.wall(), clock.wall())
    (claimed,) = await claim(store, queues=[TIMERS_QUEUE])
    assert (claimed.id, claimed.schedule, claimed.options) == (waits.id, "sync", "x")
    assert (claimed.replica, claimed.attempt) == ("ann", 1)


async def test_the_deadline_of_a_run_counts_from_its_start(store: Store, clock: ManualClock):
    record = await create(store)
    clock.shift(5)
    made = await run(store, record, start_on="ann", not_before=TICK, job={"timeout": 3.0})
    clock.shift(3 - MOMENT)
    assert await recover_all(store) == []
    clock.shift(MOMENT)
    assert [lost.id for lost in await recover_all(store)] == [made.id]


async def test_a_run_without_a_timeout_has_no_deadline(store: Store, clock: ManualClock):
    await run(store, await create(store), start_on="ann")
    clock.shift(HOUR)
    assert await recover_all(store) == []


async def test_no_claim_returns_a_run_created_on_a_replica(store: Store):
    record = await create(store)
    await insert(store, new(1))
    number = new_claim_no()
    first = await store.jobs.claim("ann", number, ["default", TIMERS_QUEUE], 1)
    await run(store, record, start_on="ann")
    assert await store.jobs.claim("ann", number, ["default", TIMERS_QUEUE], 1) == first
    assert await claim(store, queues=[TIMERS_QUEUE]) == []


async def test_the_run_becomes_the_last_one_of_its_schedule(store: Store):
    record, other = await create(store), await create(store, "other")
    for tick, start_on in [(TICK, "ann"), (TICK + 2 * SECOND, ""), (TICK + SECOND, "ann")]:
        made = await run(store, record, tick=tick, start_on=start_on)
        now = await look_at(store)
        assert (now.last_run, now.last_job) == (tick, made.id)
    assert now.live == 3
    assert await look_at(store, "other") == other


async def test_a_schedule_may_begin_with_a_run(store: Store):
    write = Write("sync", "standing", "ruler", "definition")
    made = await run(store, "sync", writes=(write,), start_on="ann", run_line=tick_line())
    record = await look_at(store)
    assert (record.version, record.last_run, record.last_job) == (made.id, TICK, made.id)
    assert (record.live, record.standing) == (1, "standing")
    assert record.latest is not None


async def test_a_replica_that_is_unknown_or_was_declared_dead_is_gone(
    store: Store, clock: ManualClock
):
    record = await create(store)
    assert (await send(store, plan_run(record, start_on="nobody"))).outcome == "gone"
    await leave(store, "ben")
    assert (await send(store, plan_run(record, start_on="ben"))).outcome == "gone"
    await join(store, "cid", ttl=TTL)
    await start(store, new(1), new(2), replica="cid")
    clock.shift(TTL)
    assert len(await recover(store, delays=AT_ONCE, grace=0.0, limit=1)) == 1
    assert (await send(store, plan_run(record, start_on="cid"))).outcome == "gone"


async def test_a_replica_that_has_missed_its_heartbeats_is_expired(
    store: Store, clock: ManualClock
):
    record = await create(store)
    await join(store, "cid", ttl=TTL)
    clock.shift(TTL - MOMENT)
    await run(store, record, start_on="cid")
    clock.shift(MOMENT)
    late = plan_run(record, start_on="cid")
    assert (await send(store, late)).outcome == "expired"
    await store.jobs.beat(["cid"], ttl=TTL)
    assert (await send(store, late)).outcome == "done"


# Fences.


async def test_fences_of_runs_created_on_a_replica_grow(store: Store, clock: ManualClock):
    record, fences = await create(store), []
    for step in (0, -HOUR, 0, HOUR / 2, -2 * HOUR):
        clock.step(step)
        fences.append((await run(store, record, start_on="ann")).fence)
        await run(store, record)
        batch = [plan_run(record, start_on=name) for name in ("ben", "ann")]
        fences += [answer.run.fence for answer in await store.schedules.commit(batch) if answer.run]
    assert len(fences) == 15
    assert fences == sorted(set(fences))


async def test_a_schedule_goes_on_above_the_fences_of_others(store: Store, clock: ManualClock):
    fences = {}
    for name in ("a", "b"):
        record = await create(store, name)
        fences[name] = (await run(store, record, start_on="ann")).fence
        clock.step(-HOUR)
    records = [await look_at(store, name) for name in ("a", "b")]
    expects = (as_expected("c"), *(as_expected(record) for record in records))
    successor = Write("c", "s", "r", "d", above=("a", "b", "never"))
    first = await run(store, "c", expects=expects, writes=(successor,), start_on="ann")
    assert first.fence > max(fences.values())
    successor = Write("d", "s", "r", "d", above=("c",))
    await send(store, plan("d", writes=(successor,)))
    clock.step(-HOUR)
    assert (await run(store, await look_at(store, "d"), start_on="ben")).fence > first.fence


async def test_a_schedule_goes_on_after_the_latest_of_the_last_runs(store: Store):
    made = {}
    for name, tick in (("a", TICK + SECOND), ("b", TICK + 2 * SECOND), ("c", TICK)):
        made[name] = await run(store, await create(store, name), tick=tick)
    first = await create(store, "successor", above=("a", "b", "c", "never"))
    assert (first.last_run, first.last_job) == (TICK + 2 * SECOND, made["b"].id)
    assert (first.live, first.latest) == (0, None)
    own = await run(store, first, tick=TICK + 3 * SECOND)
    writes = (Write("successor", "s", "r", above=("a", "b")),)
    await send(store, plan(first, writes=writes))
    again = await look_at(store, "successor")
    assert (again.last_run, again.last_job) == (TICK + 3 * SECOND, own.id)
    assert (await create(store, "new", above=("never",))).last_run == 0


async def test_a_run_in_the_same_commit_is_the_last_one(store: Store):
    await run(store, await create(store, "old"), tick=TICK + SECOND)
    successor = Write("new", "s", "r", "d", above=("old",))
    made = await run(store, "new", writes=(successor,), tick=TICK)
    record = await look_at(store, "new")
    assert (record.last_run, record.last_job) == (TICK, made.id)


# Rooms.


async def test_a_room_counts_unfinished_runs_wherever_they_are(store: Store):
    record, other = await create(store), await create(store, "other")
    await run(store, other, start_on="ann")
    runs = [
        await run(store, record, start_on=name, rooms=(Room(3),)) for name in ("ann", "ben", "")
    ]
    full = await send(store, plan_run(record, rooms=(Room(3),)))
    assert (full.outcome, full.run, full.room) == ("full", None, 0)
    assert sorted(full.blocking) == [made.id for made in runs]
    assert (await look_at(store)).live == 3
    await settle(store, runs[0], "failed")
    await store.jobs.cancel([runs[2].id])
    assert (await look_at(store)).live == 1
    assert (await send(store, plan_run(record, rooms=(Room(2),)))).outcome == "done"
    assert (await send(store, plan_run(record, rooms=(Room(2),)))).outcome == "full"


async def test_a_deleted_run_that_waited_makes_room_for_the_next(store: Store):
    record = await create(store)
    first, second = [await run(store, record, rooms=(Room(2),)) for _ in range(2)]
    assert (await send(store, plan_run(record, rooms=(Room(2),)))).outcome == "full"
    assert await store.jobs.delete([first.id]) == ["deleted"]
    assert (await look_at(store)).live == 1
    assert (await send(store, plan_run(record, rooms=(Room(2),)))).outcome == "done"
    (claimed, _) = await claim(store, queues=[TIMERS_QUEUE])
    assert claimed.id == second.id
    assert await store.jobs.delete([second.id]) == ["running"]
    assert (await look_at(store)).live == 2


async def test_a_room_of_a_replica_counts_the_runs_on_it(store: Store):
    record = await create(store)
    on_ann, on_ben = Room(1, on="ann"), Room(1, on="ben")
    waits = await run(store, record, rooms=(on_ann,))
    first = await run(store, record, start_on="ann", rooms=(on_ann,))
    full = await send(store, plan_run(record, start_on="ann", rooms=(on_ann,)))
    assert (full.outcome, full.blocking) == ("full", (first.id,))
    await run(store, record, start_on="ben", rooms=(on_ben,))
    await settle(store, first, "succeeded")
    assert (await send(store, plan(record, rooms=(on_ann,)))).outcome == "done"
    (claimed,) = await claim(store, "ann", queues=[TIMERS_QUEUE])
    full = await send(store, plan(record, rooms=(on_ann,)))
    assert (claimed.id, full.blocking) == (waits.id, (waits.id,))
    await settle(store, claimed, "handed back")
    assert (await send(store, plan(record, rooms=(on_ann,)))).outcome == "done"
    assert (await send(store, plan(record, rooms=(Room(3),)))).outcome == "done"
    assert (await send(store, plan(record, rooms=(Room(2),)))).outcome == "full"


async def test_the_first_room_that_is_full_decides(store: Store):
    record = await create(store)
    line = tick_line("skipped")
    first = await run(store, record, start_on="ann")
    rooms = (Room(5), Room(2, on="ann"), Room(1, on="ben"), Room(1), Room(1, instead=line))
    full = await send(store, plan_run(record, rooms=rooms))
    assert (full.outcome, full.room, full.blocking) == ("full", 3, (first.id,))
    rooms = (Room(5), Room(1, on="ann", instead=line), Room(1))
    answer = await send(store, plan_run(record, rooms=rooms))
    assert (answer.outcome, answer.room) == ("instead", 1)
    assert (await send(store, plan_run(record, rooms=(Room(0),)))).outcome == "full"


async def test_instead_of_a_run_a_full_room_gets_its_line(store: Store, clock: ManualClock):
    record = await create(store)
    first = await run(store, record, start_on="ann")
    clock.shift(60)
    skipped = tick_line("skipped", first=TICK + SECOND)
    sent = plan_run(
        record,
        tick=TICK + SECOND,
        writes=(Write("sync", "moved", "other"),),
        declares=True,
        rooms=(Room(1, instead=skipped),),
        lines=(tick_line("missed"),),
        run_line=tick_line("ran"),
    )
    answer = await send(store, sent)
    assert (answer.outcome, answer.run, answer.room) == ("instead", None, 0)
    assert answer.now == clock.wall()
    assert await store.jobs.get([sent.id]) == [None]
    now = await look_at(store)
    assert (now.version, now.standing, now.ruler) == (sent.id, "moved", "other")
    assert (now.definition, now.declared, now.live) == ("definition", clock.wall(), 1)
    assert (now.last_run, now.last_job) == (TICK, first.id)
    assert [line.body for line in await decisions(store, "sync")] == ["skipped", "missed"]
    before = await everything(store)
    again = await send(store, sent)
    assert (again.outcome, [head.version for head in again.heads]) == ("stale", [sent.id])
    assert await everything(store) == before


async def test_a_run_that_finds_room_leaves_no_line_of_a_full_one(store: Store):
    room = Room(1, instead=tick_line("skipped"))
    await run(store, await create(store), rooms=(room,), run_line=tick_line("ran"))
    assert [line.body for line in await decisions(store, "sync")] == ["ran"]


@pytest.mark.parametrize("start_on", ["ann", ""], ids=["running", "waiting"])
async def test_a_commit_without_a_run_needs_room_as_well(store: Store, start_on: str):
    """So a schedule is deleted only when it has no unfinished runs."""
    record = await create(store)
    made = await run(store, record, start_on=start_on)
    gone = plan(record, writes=(Write("sync", None),), rooms=(Room(1),))
    before = await everything(store)
    full = await send(store, gone)
    assert (full.outcome, full.blocking) == ("full", (made.id,))
    assert await everything(store) == before
    if start_on:
        await settle(store, made, "succeeded")
    else:
        await store.jobs.cancel([made.id])
    assert (await send(store, gone)).outcome == "done"
    assert (await store.schedules.read()).records == []


async def test_the_runs_of_a_schedule_that_was_deleted_count_for_the_next_of_its_name(store: Store):
    made = await run(store, await create(store), start_on="ann")
    await send(store, plan(await look_at(store), writes=(Write("sync", None),)))
    again = await create(store)
    assert again.live == 1
    full = await send(store, plan(again, rooms=(Room(1),)))
    assert (full.outcome, full.blocking) == ("full", (made.id,))
    assert await settle(store, made, "succeeded") == "settled"
    assert (await look_at(store)).live == 0


async def test_a_refusal_names_a_part_of_very_many_runs(store: Store):
    record = await create(store)
    commits = [plan_run(record) for _ in range(BLOCKING_MAX + 5)]
    for first in range(0, len(commits), BATCH_MAX):
        answers = await store.schedules.commit(commits[first : first + BATCH_MAX])
        assert {answer.outcome for answer in answers} == {"done"}
    assert (await look_at(store)).live == len(commits)
    full = await send(store, plan(record, rooms=(Room(1),)))
    assert (full.outcome, len(set(full.blocking))) == ("full", BLOCKING_MAX)
    assert {*full.blocking} <= {commit.id for commit in commits}
    last = await send(store, plan(record, rooms=(Room(len(commits)),)))
    assert (last.outcome, len(last.blocking)) == ("full", BLOCKING_MAX)
    assert (await send(store, plan(record, rooms=(Room(len(commits) + 1),)))).outcome == "done"
