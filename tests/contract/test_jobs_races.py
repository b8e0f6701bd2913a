"""Many callers at once, on several store objects: exactly one of them wins."""

import asyncio
import random
from collections import Counter

import pytest

from tenure.core.jobs.records import Note, Unique
from tenure.core.jobs.replicas import RESERVED_FOR
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    TTL,
    bring,
    claim,
    ended,
    find_all,
    id_of,
    insert,
    join,
    look,
    new,
    new_claim_no,
    prune_jobs,
    settle,
    start,
    start_one,
    states,
)
from tests.contract.worlds import World
from tests.rig.endings import bury, leave, recover
from tests.rig.sizes import SIZE

AGES = 10_000_000.0
LIVES = ("ann", "ben", "cid", "dee", "eve", "fay")


@pytest.fixture
async def stores(world: World) -> list[Store]:
    return [await world.store() for _ in range(3)]


async def insert_many(store: Store, count: int, **details) -> None:
    for start_ in range(0, count, 100):
        numbers = range(start_, min(count, start_ + 100))
        await insert(store, *(new(number, **details) for number in numbers))


async def unfinished(store: Store) -> int:
    return sum(count.waiting + count.running for count in await store.jobs.counts())


# Claims.


async def test_no_job_is_claimed_twice(stores: list[Store]):
    await insert_many(stores[0], SIZE.jobs)
    got: list[str] = []

    async def work(number: int) -> None:
        store, replica = stores[number % 3], LIVES[number]
        await join(store, replica)
        while jobs := await claim(store, replica, limit=7):
            got.extend(job.id for job in jobs)
            assert {job.replica for job in jobs} == {replica}

    await asyncio.gather(*(work(number) for number in range(6)))
    assert Counter(got) == Counter(id_of(number) for number in range(SIZE.jobs))
    held = {record.id: record.held for record in await stores[0].jobs.replicas()}
    assert sum(held.values()) == SIZE.jobs


async def test_every_job_is_done_once_though_attempts_fail_and_replicas_leave(
    stores: list[Store],
):
    """No worker stops before all jobs are done, whatever comes back meanwhile."""
    await insert_many(stores[0], 100, retention=AGES)
    done: Counter[str] = Counter()

    async def work(number: int) -> None:
        store, chance, life = stores[number % 3], random.Random(number), 0
        await join(store, f"{number}-{life}")
        async with asyncio.timeout(SIZE.patience):
            while sum(done.values()) < 100:
                jobs = await claim(store, f"{number}-{life}", limit=4)
                if jobs and chance.random() < 0.1:
                    await leave(store, f"{number}-{life}")
                    life += 1
                    await join(store, f"{number}-{life}")
                    continue
                outcomes = [chance.choice(["succeeded", "succeeded", "retry"]) for _ in jobs]
                settlements = [
                    ended(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)
                ]
                answers = await store.jobs.settle(settlements)
                assert answers == ["settled"] * len(jobs)
                done.update(
                    settlement.id for settlement in settlements if settlement.outcome == "succeeded"
                )
                if not jobs:
                    await asyncio.sleep(0.001)

    await asyncio.gather(*(work(number) for number in range(6)))
    assert done == Counter(id_of(number) for number in range(100))
    assert await unfinished(stores[0]) == 0


async def test_a_job_is_either_claimed_or_deleted(stores: list[Store]):
    await join(stores[0], "ann", "ben")
    for first in range(0, 10 * SIZE.rounds, 10):
        numbers = range(first, first + 10)
        ids = [id_of(number) for number in numbers]
        await insert(stores[0], *(new(number) for number in numbers))
        outcomes, anns, bens = await asyncio.gather(
            stores[0].jobs.delete(ids),
            claim(stores[1], "ann", limit=5),
            claim(stores[2], "ben", limit=5),
        )
        started = {job.id for job in (*anns, *bens)}
        deleted = {id_ for id_, outcome in zip(ids, outcomes, strict=True) if outcome == "deleted"}
        assert {*outcomes} <= {"deleted", "running"}
        assert started.isdisjoint(deleted)
        await claim(stores[1], "ann", limit=10)
        jobs = await stores[0].jobs.get(ids)
        assert [job is None for job in jobs] == [id_ in deleted for id_ in ids]
        running = [job for job in jobs if job is not None]
        answers = await stores[0].jobs.settle([ended(job, "succeeded") for job in running])
        assert answers == ["settled"] * len(running)


async def test_a_claim_and_its_repeat_at_the_same_time_are_one(stores: list[Store]):
    await join(stores[0], "ann")
    await insert_many(stores[0], 5 * SIZE.rounds)
    for _ in range(SIZE.rounds):
        number = new_claim_no()
        answers = await asyncio.gather(
            *(store.jobs.claim("ann", number, ["default"], 5) for store in stores)
        )
        got = [{job.id: job.fence for job in answer.jobs} for answer in answers if answer]
        assert len(got[0]) == 5
        assert got == [got[0]] * 3


async def test_claims_of_several_queues_do_not_block_each_other(stores: list[Store]):
    for number, queue in enumerate("abc"):
        await insert(stores[0], *(new(40 * number + n, queue=queue) for n in range(40)))
    got: list[str] = []

    async def work(number: int) -> None:
        store, replica = stores[number % 3], LIVES[number]
        await join(store, replica)
        queues = random.Random(number).sample("abc", 3)
        while jobs := await claim(store, replica, queues=queues, limit=3):
            got.extend(job.id for job in jobs)

    await asyncio.gather(*(work(number) for number in range(6)))
    assert sorted(got) == [id_of(number) for number in range(120)]


# Inserts.


async def test_many_inserts_with_one_key_are_one_job(stores: list[Store]):
    for turn in range(3):
        unique = Unique(key=f"key-{turn}", digest="d")
        numbers = range(100 * turn, 100 * turn + 50)
        answers = await asyncio.gather(
            *(stores[number % 3].jobs.insert([new(number, unique=unique)]) for number in numbers)
        )
        outcomes = Counter(answer.outcome for (answer,) in answers)
        assert outcomes == {"created": 1, "existing": 49}
        (owner,) = {answer.id for (answer,) in answers}
        present = [number for number in numbers if (await states(stores[0], number)) != [None]]
        assert [id_of(number) for number in present] == [owner]


async def test_many_repeats_of_an_insert_are_one_job(stores: list[Store]):
    for turn in range(SIZE.rounds // 4):
        job = new(turn, unique=Unique(key=f"key-{turn}"))
        answers = await asyncio.gather(*(stores[n % 3].jobs.insert([job]) for n in range(12)))
        assert {(answer.outcome, answer.id) for (answer,) in answers} == {("created", job.id)}
    assert len(await find_all(stores[0])) == SIZE.rounds // 4


async def test_concurrent_batches_of_inserts_in_opposite_order_agree(stores: list[Store]):
    """The same keys in every order: no call may deadlock, and every key has one job."""
    chance = random.Random(7)
    for turn in range(SIZE.rounds // 4):
        keys = [f"{turn}-{number}" for number in range(8)]

        async def store_all(worker: int, turn: int = turn, keys: list[str] = keys):
            order = chance.sample(keys, len(keys))
            jobs = [
                new(10_000 * turn + 100 * worker + n, unique=Unique(key=key))
                for n, key in enumerate(order)
            ]
            answers = await stores[worker % 3].jobs.insert(jobs)
            return list(zip(order, answers, strict=True))

        answers = [
            answer for batch in await asyncio.gather(*map(store_all, range(6))) for answer in batch
        ]
        for key in keys:
            mine = [answer for own, answer in answers if own == key]
            assert sorted(answer.outcome for answer in mine) == ["created"] + ["existing"] * 5
            assert len({answer.id for answer in mine}) == 1
    assert len(await find_all(stores[0], limit=200)) == 8 * (SIZE.rounds // 4)


# Settling.


async def test_of_many_settlements_of_one_attempt_one_counts(stores: list[Store]):
    for turn in range(SIZE.rounds):
        job = await start_one(stores[0], turn, retention=AGES)
        outcomes = ["succeeded", "failed", "cancelled"] * 2
        answers = await asyncio.gather(
            *(settle(stores[n % 3], job, outcome) for n, outcome in enumerate(outcomes))
        )
        (winner,) = [o for o, answer in zip(outcomes, answers, strict=True) if answer == "settled"]
        for outcome, answer in zip(outcomes, answers, strict=True):
            if answer != "settled":
                assert answer == ("repeated" if outcome == winner else "lost")
        assert (await look(stores[0], turn)).state == winner


@pytest.mark.parametrize("outcome", ["succeeded", "retry"])
async def test_either_the_settlement_or_the_recovery_wins(
    stores: list[Store], clock: ManualClock, outcome: str
):
    for turn in range(SIZE.rounds):
        job = await start_one(stores[0], turn, replica=f"r{turn}", retention=AGES)
        clock.shift(TTL)
        calls = [
            settle(stores[1], job, outcome, delay=AGES),
            recover(stores[2], delays=[AGES], grace=0),
        ]
        if turn % 2:
            calls.reverse()
        answers = await asyncio.gather(*calls)
        settled, recovered = reversed(answers) if turn % 2 else answers
        after = await look(stores[0], turn)
        if settled == "settled":
            assert recovered == []
            assert (after.losses, after.failures) == (0, outcome == "retry")
        else:
            assert settled == "lost"
            assert [job.id for job in recovered] == [job.id]
            assert (after.state, after.losses, after.failures) == ("waiting", 1, 0)
        await recover(stores[0], delays=[AGES], grace=0)  # the replica's own settlement won


async def test_many_recoveries_take_each_job_once(stores: list[Store], clock: ManualClock):
    for turn in range(SIZE.rounds // 4):
        numbers = range(100 * turn, 100 * turn + 30)
        for offset in range(3):
            await start(
                stores[0], *(new(n) for n in numbers[offset::3]), replica=f"{turn}-{offset}"
            )
        clock.shift(TTL)

        async def rescue(store: Store, by: str) -> list[str]:
            taken: list[str] = []
            while batch := await recover(store, delays=[AGES], grace=0, limit=4, by=by):
                taken += [job.id for job in batch]
            return taken

        taken = await asyncio.gather(*(rescue(stores[n % 3], f"rescuer {n}") for n in range(6)))
        # The last recoveries may have found nothing while others were still in progress.
        clock.shift(RESERVED_FOR)
        rest = await rescue(stores[0], "last")
        ids = [id_ for batch in (*taken, rest) for id_ in batch]
        assert sorted(ids) == [id_of(number) for number in numbers]
        jobs = await stores[0].jobs.get([id_of(number) for number in numbers])
        assert {(job and job.losses, job and job.state) for job in jobs} == {(1, "waiting")}
        assert await stores[0].jobs.replicas() == []


async def test_either_the_beat_or_the_recovery_wins(stores: list[Store], clock: ManualClock):
    for turn in range(SIZE.rounds):
        job = await start_one(stores[0], turn, replica=f"r{turn}", retention=AGES)
        clock.shift(TTL)
        (beat,), recovered = await asyncio.gather(
            stores[1].jobs.beat([f"r{turn}"], ttl=TTL), recover(stores[2], delays=[AGES], grace=0)
        )
        if beat is None:
            assert [job.id for job in recovered] == [job.id]
        else:
            assert recovered == []
            assert beat.held == 1
            assert await settle(stores[0], job, "succeeded") == "settled"
            await leave(stores[0], f"r{turn}")


async def test_either_the_claim_or_the_recovery_wins(stores: list[Store], clock: ManualClock):
    """Jobs that a replica claims while it is declared dead are never left behind."""
    for turn in range(SIZE.rounds):
        replica = f"r{turn}"
        await join(stores[0], replica)
        clock.shift(TTL)
        await insert(stores[0], new(turn, retention=AGES))

        async def revive_and_claim(replica: str = replica) -> list[str]:
            await stores[1].jobs.beat([replica], ttl=TTL)
            answer = await stores[1].jobs.claim(replica, new_claim_no(), ["default"], 1)
            return [] if answer is None else [job.id for job in answer.jobs]

        got, _, _ = await asyncio.gather(
            revive_and_claim(),
            recover(stores[2], delays=AT_ONCE, grace=0),
            bury(stores[0], f"{replica} of another", [], delays=AT_ONCE),
        )
        job = await look(stores[0], turn)
        registered = {record.id for record in await stores[0].jobs.replicas()}
        if job.state == "running":
            assert got == [job.id]
            assert job.replica in registered
            await leave(stores[0], replica)
        assert await stores[0].jobs.cancel([job.id]) == ["cancelled"]


async def test_a_replica_that_leaves_leaves_no_job_behind(stores: list[Store]):
    """A claim beside a leave: the job does not run, or runs on a record that exists."""
    for turn in range(SIZE.rounds):
        replica = f"r{turn}"
        await join(stores[0], replica)
        await insert(stores[0], new(turn, retention=AGES))
        await asyncio.gather(
            stores[1].jobs.claim(replica, 1, ["default"], 1), leave(stores[2], replica)
        )
        assert await states(stores[0], turn) == ["waiting"]
        assert await stores[0].jobs.replicas() == []
        assert await stores[0].jobs.cancel([id_of(turn)]) == ["cancelled"]


async def test_joins_beside_a_removal_are_known(stores: list[Store]):
    for _ in range(SIZE.rounds):
        await join(stores[0], "ann")
        (first,), (second,), _ = await asyncio.gather(
            stores[0].jobs.beat(["ann"], ttl=TTL, meta={}),
            stores[1].jobs.beat(["ann"], ttl=TTL, meta={}),
            stores[2].jobs.orphans(by="ann", replica="ann"),
        )
        assert first is not None
        assert second is not None
        assert len(await stores[0].jobs.replicas()) <= 1


# Cancelling.


async def test_a_cancel_beside_a_success_gets_the_true_answer(stores: list[Store]):
    for turn in range(SIZE.rounds):
        job = await start_one(stores[0], turn, retention=AGES)
        settled, (cancelled,) = await asyncio.gather(
            settle(stores[1], job, "succeeded"), stores[2].jobs.cancel([job.id])
        )
        assert settled == "settled"
        assert cancelled in ("requested", "finished")
        after = await look(stores[0], turn)
        assert (after.state, after.cancelling) == ("succeeded", False)


async def test_a_cancel_beside_a_retry_always_cancels(stores: list[Store]):
    for turn in range(SIZE.rounds):
        job = await start_one(stores[0], turn, retention=AGES)
        settled, (cancelled,) = await asyncio.gather(
            settle(stores[1], job, "retry"), stores[2].jobs.cancel([job.id], reason="enough")
        )
        assert settled == ("settled" if cancelled == "cancelled" else "cancelled")
        assert cancelled in ("requested", "cancelled")
        after = await look(stores[0], turn)
        assert (after.state, after.reason, after.failures) == ("cancelled", "enough", 1)


async def test_a_cancel_beside_a_claim_is_delivered_or_comes_first(stores: list[Store]):
    await join(stores[0], "ann")
    for turn in range(SIZE.rounds):
        await insert(stores[0], new(turn, retention=AGES))
        jobs, (cancelled,) = await asyncio.gather(
            claim(stores[1], "ann", limit=1), stores[2].jobs.cancel([id_of(turn)])
        )
        (beat,) = await stores[0].jobs.beat(["ann"], ttl=TTL)
        assert beat is not None
        if jobs:
            assert cancelled == "requested"
            assert beat.cancels == [id_of(turn)]
            assert await settle(stores[0], jobs[0], "cancelled") == "settled"
        else:
            assert (cancelled, beat.cancels) == ("cancelled", [])


# Finished jobs.


async def test_either_the_requeue_or_the_insert_gets_the_key(stores: list[Store]):
    for turn in range(SIZE.rounds):
        unique = Unique(key=f"key-{turn}")
        old, young = 2 * turn, 2 * turn + 1
        await bring(stores[0], "failed", old, unique=unique, retention=AGES)
        (requeued,), (inserted,) = await asyncio.gather(
            stores[1].jobs.requeue([id_of(old)]), stores[2].jobs.insert([new(young, unique=unique)])
        )
        assert (requeued, inserted.outcome) in {("requeued", "existing"), ("conflict", "created")}
        winner = old if requeued == "requeued" else young
        assert inserted.id == id_of(winner)
        assert await stores[0].jobs.cancel([id_of(winner)]) == ["cancelled"]


async def test_either_the_requeue_or_the_prune_gets_the_job(stores: list[Store]):
    for turn in range(SIZE.rounds):
        await bring(stores[0], "failed", turn)
        (requeued,), pruned = await asyncio.gather(
            stores[1].jobs.requeue([id_of(turn)]), prune_jobs(stores[2])
        )
        assert (requeued, pruned) in {("requeued", 0), (None, 1)}
        assert await states(stores[0], turn) == ["waiting" if requeued else None]
        await stores[0].jobs.cancel([id_of(turn)])
        await prune_jobs(stores[0])


async def test_many_prunes_remove_each_job_once(stores: list[Store]):
    await insert_many(stores[0], 100)
    await stores[0].jobs.cancel([id_of(number) for number in range(100)])
    counts = await asyncio.gather(*(prune_jobs(stores[n % 3], limit=20) for n in range(9)))
    assert sum(counts) + await prune_jobs(stores[0]) == 100


# Batches.


async def test_concurrent_batches_in_opposite_order_do_not_block_each_other(stores: list[Store]):
    jobs = await start(stores[0], *(new(number, retention=AGES) for number in range(20)))
    chance = random.Random(7)
    answers: list[str] = []

    async def work(worker: int) -> None:
        store = stores[worker % 3]
        for _ in range(SIZE.rounds // 4):
            order = chance.sample(jobs, len(jobs))
            notes = [Note(id=job.id, fence=job.fence, progress=0.5) for job in order]
            assert len(await store.jobs.note(notes)) == len(order)
            await store.jobs.cancel([job.id for job in chance.sample(jobs, len(jobs))])
            await store.jobs.beat(["ann"], ttl=TTL)
        order = chance.sample(jobs, len(jobs))
        answers.extend(await store.jobs.settle([ended(job, "cancelled") for job in order]))
        await store.jobs.requeue([job.id for job in chance.sample(jobs, len(jobs))])

    await asyncio.gather(*(work(worker) for worker in range(6)))
    assert Counter(answers) == {"settled": 20, "repeated": 100}
