"""Concurrent commits: exactly one per version wins, and rooms are exact."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import pytest

from tenure.core.schedules.records import (
    DECLARED_ANEW_AFTER,
    Commit,
    Committed,
    Room,
    ScheduleRecord,
    Write,
)
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.commit_calls import (
    as_expected,
    as_found,
    create,
    everything,
    look_at,
    plan,
    plan_run,
    send,
    tick_line,
)
from tests.contract.job_calls import find_all, join, prune_jobs, settle
from tests.contract.test_common import cancel_everywhere
from tests.contract.worlds import World
from tests.rig.endings import leave
from tests.rig.lookups import decisions
from tests.rig.sizes import SIZE

LONG = 100_000.0


@pytest.fixture
async def stores(world: World) -> AsyncIterator[list[Store]]:
    """Two stores that were opened separately, and a clone of one of them."""
    first, second = await world.store(), await world.store()
    clone = first.clone()
    await clone.open("skip")
    await join(first, "ann", "ben", ttl=LONG)
    yield [first, second, clone]
    await clone.close()


async def send_all(stores: Sequence[Store], commits: Sequence[Commit]) -> list[Committed]:
    """Send commits concurrently, spread over all stores."""
    calls = [send(stores[number % len(stores)], commit) for number, commit in enumerate(commits)]
    return await asyncio.gather(*calls)


def outcomes(answers: Sequence[Committed]) -> Counter[str]:
    return Counter(answer.outcome for answer in answers)


def overwrite(records: Sequence[ScheduleRecord], standing: str) -> Commit:
    """Return a commit that writes schedules which are as they were read."""
    expects = tuple(as_expected(record) for record in records)
    writes = tuple(Write(record.name, standing, "ruler") for record in records)
    return plan(records[0], expects=expects, writes=writes)


async def test_of_many_commits_of_one_version_exactly_one_is_carried_out(stores: list[Store]):
    record = await create(stores[0])
    for turn in range(SIZE.rounds):
        write = (Write("sync", f"standing {turn}", "ruler"),)
        commits = [
            plan_run(record, writes=write, start_on=start_on, run_line=tick_line())
            for start_on in ("ann", "ben", "") * 2
        ]
        answers = await send_all(stores, commits)
        assert outcomes(answers) == {"done": 1, "stale": 5}
        (winner,) = [answer.run.id for answer in answers if answer.run]
        record = await look_at(stores[1])
        assert (record.version, record.last_job, record.live) == (winner, winner, turn + 1)
        heads = {heads for answer in answers for heads in answer.heads}
        assert heads == {as_found(record)}
    assert len(await find_all(stores[0])) == SIZE.rounds
    assert len(await decisions(stores[0], "sync")) == min(100, SIZE.rounds)


async def test_of_many_commits_that_create_a_schedule_exactly_one_does(stores: list[Store]):
    for turn in range(SIZE.rounds):
        name = f"timer-{turn}"
        commits = [
            plan(name, writes=(Write(name, str(number), "r", "d"),), lines=(tick_line(),))
            for number in range(6)
        ]
        answers = await send_all(stores, commits)
        assert outcomes(answers) == {"done": 1, "stale": 5}
        record = await look_at(stores[0], name)
        winner = [answer.outcome for answer in answers].index("done")
        assert (record.version, record.standing) == (commits[winner].id, str(winner))
        assert {head for answer in answers for head in answer.heads} == {as_found(record)}
        assert len(await decisions(stores[0], name)) == 1


async def test_of_many_repeats_of_one_commit_one_makes_the_run(stores: list[Store]):
    record = await create(stores[0])
    for _ in range(SIZE.rounds):
        writes = (Write("sync", "standing", "ruler"),)
        made = plan_run(record, writes=writes, start_on="ann", run_line=tick_line())
        answers = await send_all(stores, [made] * 6)
        assert outcomes(answers) == {"done": 6}
        assert len({answer.run and answer.run.fence for answer in answers}) == 1
        assert [job.id for job in await find_all(stores[0], state="running")] == [made.id]
        assert answers[0].run is not None
        await settle(stores[0], answers[0].run, "succeeded")
        record = await look_at(stores[1])
    assert len(await decisions(stores[0], "sync")) == min(100, SIZE.rounds)


async def test_renames_in_opposite_directions_are_carried_out_one_after_the_other(
    stores: list[Store],
):
    """They write the same two schedules in opposite order: none waits forever, one is stale."""
    pair = [await create(stores[0], name) for name in ("a", "b")]
    for _ in range(SIZE.rounds):
        commits = [
            overwrite(pair if number % 2 else pair[::-1], str(number)) for number in range(6)
        ]
        answers = await send_all(stores, commits)
        assert outcomes(answers) == {"done": 1, "stale": 5}
        pair = [await look_at(stores[1], name) for name in ("a", "b")]
        assert pair[0].version == pair[1].version
        assert pair[0].standing == pair[1].standing


async def test_two_names_that_take_over_from_each_other_are_not_both_created(stores: list[Store]):
    for turn in range(SIZE.rounds):
        first, second = f"one-{turn}", f"two-{turn}"
        expects = (as_expected(first), as_expected(second))
        there = (
            Write(first, "rests", "r", "d"),
            Write(second, "goes on", "r", "d", above=(first,)),
        )
        back = (
            Write(second, "rests", "r", "d"),
            Write(first, "goes on", "r", "d", above=(second,)),
        )
        answers = await send_all(
            stores,
            [
                plan(second, expects=expects, writes=there),
                plan(first, expects=expects[::-1], writes=back),
            ],
        )
        assert outcomes(answers) == {"done": 1, "stale": 1}
        standings = [(await look_at(stores[0], name)).standing for name in (first, second)]
        assert sorted(standings) == ["goes on", "rests"]


async def test_concurrent_calls_in_opposite_order_do_not_block_each_other(
    stores: list[Store], clock: ManualClock
):
    names = [f"timer-{number}" for number in range(30)]
    records = {name: await create(stores[0], name) for name in names}
    chance = random.Random(7)
    for _ in range(SIZE.rounds // 2):
        clock.shift(DECLARED_ANEW_AFTER)
        batches = [
            [overwrite([records[name]], "moved") for name in chance.sample(names, count)]
            for count in (5, 10, 15, 20, 25, 30)
        ]
        declared = [(name, "ruler") for name in chance.sample(names, len(names))]
        sent = [stores[number % 3].schedules.commit(batch) for number, batch in enumerate(batches)]
        answers, *_ = await asyncio.gather(
            asyncio.gather(*sent),
            stores[0].schedules.declare(declared),
            stores[1].schedules.declare(declared[::-1]),
        )
        done = [
            commit.id
            for batch, replies in zip(batches, answers, strict=True)
            for commit, answer in zip(batch, replies, strict=True)
            if answer.outcome == "done"
        ]
        records = {name: await look_at(stores[2], name) for name in names}
        assert sorted(done) == sorted(record.version for record in records.values())


@pytest.mark.parametrize("on", ["", "ann"], ids=["everywhere", "on a replica"])
async def test_a_room_is_exact_for_any_number_of_concurrent_commits(
    stores: list[Store], clock: ManualClock, on: str
):
    record = await create(stores[0])
    for turn in range(SIZE.rounds // 2):
        room = Room(3, on=on, instead=tick_line(like="full") if turn % 2 else None)
        commits = [plan_run(record, start_on="ann", rooms=(room,)) for _ in range(8)]
        answers = await send_all(stores, commits)
        assert outcomes(answers) == {"done": 3, "instead" if turn % 2 else "full": 5}
        runs = [answer.run for answer in answers if answer.run]
        assert len({made.fence for made in runs}) == 3
        for answer in answers:
            assert {*answer.blocking} <= {made.id for made in runs}
        assert (await look_at(stores[1])).live == 3
        for made in runs:
            await settle(stores[0], made, "succeeded")


async def test_either_the_run_or_the_deletion_comes_first(stores: list[Store]):
    for turn in range(SIZE.rounds):
        record = await create(stores[0], f"timer-{turn}")
        gone = plan(record, writes=(Write(record.name, None),), rooms=(Room(1),))
        made, deleted = await send_all(stores[1:], [plan_run(record, start_on="ann"), gone])
        assert (made.outcome, deleted.outcome) in {("done", "full"), ("stale", "done")}
        assert (made.run is None) == (made.outcome == "stale")


async def test_runs_of_one_schedule_at_once_have_fences_of_their_own(stores: list[Store]):
    record = await create(stores[0])
    fences: list[int] = []
    for _ in range(SIZE.rounds // 2):
        commits = [plan_run(record, start_on=name) for name in ("ann", "ben") * 3]
        answers = await send_all(stores, commits)
        made = {answer.run.fence: answer.run.id for answer in answers if answer.run}
        assert min(made) > max(fences, default=0)
        fences += made
        assert (await look_at(stores[0])).last_job == made[max(made)]
    assert len(fences) == SIZE.rounds // 2 * 6


async def test_a_replica_that_leaves_leaves_no_run_behind(stores: list[Store]):
    record = await create(stores[0])
    for turn in range(SIZE.rounds):
        replica = f"r{turn}"
        await join(stores[0], replica)
        batch = [plan_run(record, start_on=replica) for _ in range(8)]
        answers, _ = await asyncio.gather(
            stores[1].schedules.commit(batch), leave(stores[2], replica)
        )
        assert {*outcomes(answers)} <= {"done", "gone"}
        assert replica not in {record.id for record in await stores[0].jobs.replicas()}
        assert await find_all(stores[0], state="running") == []
        made = [answer.run.id for answer in answers if answer.run]
        assert await stores[0].jobs.cancel(made) == ["cancelled"] * len(made)


async def test_names_that_expect_each_others_silence_do_not_block_each_other(
    stores: list[Store], clock: ManualClock
):
    """Their declarations are in the future, so each commit wants to write back what it reads."""
    pair = [await create(stores[0], name) for name in ("a", "b")]
    for _ in range(SIZE.rounds):
        clock.step(-1)
        orders = [pair, pair[::-1]] * 3
        commits = [
            plan(
                mine,
                expects=(as_expected(mine), as_expected(other, LONG)),
                writes=(Write(mine.name, "back"),),
            )
            for mine, other in orders
        ]
        assert outcomes(await send_all(stores, commits)) == {"stale": 6}
        # Under contention a store may leave it to the next commit.
        assert outcomes([await send(stores[0], commit) for commit in commits[:2]]) == {"stale": 2}
        records = (await stores[1].schedules.read()).records
        assert [record.declared for record in records] == [clock.wall()] * 2


# Cancelled callers.


async def test_the_effect_of_a_cancelled_commit_is_decided_before_the_next_call(store: Store):
    def commit() -> Coroutine[Any, Any, Any]:
        writes = (Write("sync", "s", "r", "d"),)
        return store.schedules.commit([plan_run("sync", writes=writes, job={"retention": 0.0})])

    async def check() -> None:
        # Lists cover everything and wait for no call. This call concerns the schedule.
        there = (await store.schedules.read(["sync"])).records
        before = await everything(store)
        for _ in range(3):
            await asyncio.sleep(0.001)
            assert await everything(store) == before
        assert len(before[2]) == len(there)
        for record in there:
            await store.jobs.cancel([record.last_job])
            gone = plan(record, writes=(Write("sync", None),), rooms=(Room(1),))
            assert (await send(store, gone)).outcome == "done"
        await prune_jobs(store)

    await cancel_everywhere(commit, check)
