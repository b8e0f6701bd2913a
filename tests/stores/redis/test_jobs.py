"""Jobs on the Redis store alone: its scripts, its keys, its bells."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from unittest.mock import ANY

import pytest
from msgspec.structs import replace

from tenure.core.jobs.records import BATCH_MAX, NewJob, Note, Settlement, Tagged, Unique
from tenure.core.jobs.replicas import Recovered, Stats
from tenure.errors import StoreUnavailable
from tenure.stores.redis import RedisStore
from tenure.stores.redis.scripts import SCRIPTS
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    claim,
    claim_ids,
    ended,
    id_of,
    insert,
    join,
    new,
    prune_jobs,
    recover_all,
    settle,
    start,
    start_one,
)
from tests.rig.endings import bury, leave, recover
from tests.rig.fixtures import Endpoint, PrivateValkey, ProxyTo
from tests.rig.servers import Valkey
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async
from tests.stores.redis.inside import Looker, Open, stores_of

HOUR = 3600.0
WEEK = 7 * 24 * HOUR
UNITS_MAX = 1.0


@pytest.fixture
async def open_store(namespace: str) -> AsyncIterator[Open]:
    async with stores_of(namespace) as make:
        yield make


@pytest.fixture
def looker(valkey_server: Endpoint, namespace: str) -> Looker:
    return Looker(valkey_server, namespace)


@pytest.fixture
def private(private_valkey: PrivateValkey, namespace: str) -> tuple[Valkey, Looker]:
    """A server without other clients, and a look at it."""
    server = private_valkey()
    return server, Looker(server, namespace)


# What is left on the server.


async def test_jobs_that_are_over_and_replicas_that_left_leave_nothing_behind(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    before = looker.key_names()
    unique = Unique(key="key", keep=60)
    jobs = [
        new(1, tags=("a", "b"), timeout=5, retention=60),
        new(2, unique=unique, timeout=5, retention=60, queue="other"),
        new(3, delay=60),
        new(4, priority=0),
        new(5, tags=("a",)),
    ]
    await join(store, "ann")
    await insert(store, *jobs)
    assert len(await claim(store, queues=("default", "other"))) == 4
    await store.jobs.cancel([id_of(1), id_of(3)])
    await store.jobs.note([Note(id=id_of(4), fence=1)])
    await store.jobs.pause("default", seconds=60)
    assert len(await leave(store, "ann")) == 4
    await join(store, "ben")
    await store.jobs.pause("default", seconds=0)
    for job in await claim(store, "ben", queues=("default", "other")):
        assert await settle(store, job, "failed", reason="error") == "settled"
    await store.jobs.requeue([id_of(4)])
    (again,) = await claim(store, "ben")
    await settle(store, again, "succeeded", result=b"1")
    assert looker.key_names() > before
    await leave(store, "ben")
    clock.shift(60)
    assert await prune_jobs(store) == 5
    assert looker.key_names() == before


async def test_a_replica_that_died_leaves_nothing_behind(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    before = looker.key_names()
    await start(store, new(1, timeout=5), new(2))
    await store.jobs.cancel([id_of(2)])
    clock.shift(HOUR)
    lost = await recover(store, delays=(), grace=0)
    assert {recovery.id: recovery.state for recovery in lost} == {
        id_of(1): "failed",
        id_of(2): "cancelled",
    }
    assert await prune_jobs(store) == 2
    assert looker.key_names() == before


async def test_old_stats_are_removed(open_store: Open, valkey_server: Endpoint, looker: Looker):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    for number in range(120):
        await store.jobs.beat([], ttl=10, stats=Stats(f"old {number}", b"o"))
    clock.shift(HOUR)
    for _ in range(2):
        await store.jobs.beat([], ttl=10, stats=Stats("new", b"n"))
    assert looker.redis.hkeys(looker.job("stats")) == ["new"]
    assert looker.redis.zrange(looker.job("stated"), 0, -1) == ["new"]
    for name in ("stats", "stated"):
        assert HOUR < looker.redis.ttl(looker.job(name)) <= 2 * HOUR


async def test_unique_keys_of_finished_jobs_are_forgotten_though_others_are_still_taken(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    live = [new(n, unique=Unique(key=f"live {n}"), delay=HOUR) for n in range(300)]
    await insert(store, *live)
    job = await start_one(store, 1000, unique=Unique(key="done", keep=10))
    await settle(store, job, "succeeded")
    assert looker.redis.hlen(looker.job("unique")) == 301
    clock.shift(10)
    await prune_jobs(store)
    assert looker.redis.hlen(looker.job("unique")) == 300
    await store.jobs.cancel([job.id for job in live])
    assert looker.redis.hlen(looker.job("unique")) == 0


async def test_a_payload_is_written_once(open_store: Open, private: tuple[Valkey, Looker]):
    server, looker = private
    store = await open_store(server.url)
    payload = b"x" * 200_000

    start_size = looker.written()
    job = await start_one(store, 1, payload=payload)
    assert job.payload == payload
    await settle(store, job, "retry", error=b"e")
    (job,) = await claim(store)
    await settle(store, job, "succeeded", result=b"r")
    assert looker.written() - start_size < 1.5 * len(payload)


# Scripts.


async def test_forgotten_scripts_are_loaded_again(open_store: Open, private: tuple[Valkey, Looker]):
    server, looker = private
    store = await open_store(server.url)
    await join(store, "ann")
    looker.redis.script_flush()
    several = [store.jobs.insert([new(number)]) for number in range(1, 4)]
    await asyncio.gather(*several)
    looker.redis.script_flush()
    assert await claim_ids(store) == [id_of(1), id_of(2), id_of(3)]
    assert looker.redis.script_exists(SCRIPTS["claim"].sha.decode()) == [True]


async def test_no_call_does_more_because_many_jobs_have_finished_or_are_not_due(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    clock = ManualClock()
    store = await open_store(server.url, clock)
    await join(store, "ann", ttl=WEEK)

    async def work() -> dict[str, int]:
        looker.commands()
        await insert(store, new(1, priority=9), new(2, priority=9, timeout=1))
        first, second = await claim(store, limit=10)
        await settle(store, first, "succeeded")
        await settle(store, second, "retry")
        await store.jobs.beat(["ann"], ttl=WEEK)
        assert await claim_ids(store, limit=1) == [id_of(2)]
        clock.shift(2)
        assert len(await recover(store, delays=AT_ONCE, grace=0)) == 1
        await store.jobs.cancel([id_of(2)])
        calls = looker.commands()
        clock.shift(1)
        assert await prune_jobs(store, limit=2) == 2
        return calls

    async def fill(first: int, **details: Any) -> list[str]:
        jobs = [new(number, **details) for number in range(first, first + 10 * SIZE.jobs)]
        await store.jobs.insert(jobs)
        return [job.id for job in jobs]

    await fill(100_000, delay=HOUR, priority=9)
    await work()  # loads the scripts
    few = await work()
    await fill(200_000, delay=2 * HOUR, priority=9)
    await store.jobs.cancel(await fill(300_000, retention=WEEK))
    assert await work() == few


async def test_no_script_takes_long_among_many_jobs(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store = await open_store(server.url)
    await join(store, "ann", ttl=WEEK)
    numbers = iter(range(1_000_000))

    async def fill(amount: int, **details: Any) -> list[str]:
        jobs = [new(next(numbers), tags=("t",), **details) for _ in range(amount)]
        await store.jobs.insert(jobs)
        return [job.id for job in jobs]

    async def call_everything() -> None:
        await fill(BATCH_MAX)
        ended_well, ended_badly = await claim(store), await claim(store)
        running = [job.id for job in await claim(store)]
        await store.jobs.settle([ended(job, "succeeded", result=b"1") for job in ended_well])
        await store.jobs.settle([ended(job, "retry", delay=9) for job in ended_badly])
        await store.jobs.settle([ended(job, "failed") for job in await claim(store)])
        for state in (None, "waiting", "running", "succeeded", "failed"):
            await store.jobs.find(state=state, task="none")
        await store.jobs.find(tag="t", limit=1000)
        await store.jobs.get(running)
        await store.jobs.counts()
        await store.jobs.beat(["ann"], ttl=WEEK)
        await store.jobs.cancel(running)
        await store.jobs.cancel([job.id for job in ended_badly])
        await store.jobs.requeue([job.id for job in ended_well])
        lost = await claim(store)
        await bury(store, "ann", [job.id for job in lost], delays=AT_ONCE)
        await join(store, "ann", ttl=WEEK)

    many = 20_000 if SIZE.name == "short" else 60_000
    await fill(many)
    await fill(many, delay=HOUR)
    await store.jobs.cancel(await fill(many, retention=WEEK))
    await call_everything()  # loads the scripts
    looker.log_scripts()
    for _ in range(5):
        looker.work_unit()
        await call_everything()
    typical = looker.script_times()
    assert len(typical) > 10
    assert {name: units for name, units in typical.items() if units > UNITS_MAX} == {}


# Orphans.


@pytest.mark.parametrize("size", [10, 5000])
async def test_a_look_for_orphans_returns_no_payloads(
    open_store: Open, valkey_server: Endpoint, size: int
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    job = await start_one(store, payload=b"p" * size)
    note = Note(id=job.id, fence=job.fence, checkpoint=b"c" * size)
    assert await store.jobs.note([note]) == [True]
    clock.shift(HOUR)
    (orphan,) = (await store.jobs.orphans(by="eva")).jobs
    assert orphan == replace(job, payload=b"", checkpoint=None, revision=job.revision + 1)


async def test_large_payloads_of_orphans_stay_on_the_server(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    clock = ManualClock()
    store = await open_store(server.url, clock)
    await start(store, *(new(number, payload=b"p" * 100_000) for number in range(20)))
    clock.shift(HOUR)
    before = looker.sent()
    assert len((await store.jobs.orphans(by="eva")).jobs) == 20
    assert looker.sent() - before < 100_000


@pytest.mark.parametrize("delay", [0, 1, HOUR])
async def test_a_first_loss_is_recorded_as_any_other(
    open_store: Open, valkey_server: Endpoint, delay: float
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    first, other = await start(store, new(1, timeout=5), new(2, timeout=5))
    # The script has a short way for records in which nothing but the claim has happened.
    assert await store.jobs.note([Note(id=other.id, fence=other.fence, message="half")]) == [True]
    settlements = [
        Settlement(
            id=job.id,
            fence=job.fence,
            outcome="lost",
            state="waiting",
            by="eva",
            delay=delay,
            losses=1,
            error=b"e",
            history=b"h",
        )
        for job in (first, other)
    ]
    assert await store.jobs.settle(settlements) == ["settled", "settled"]
    assert await store.jobs.settle(settlements) == ["repeated", "repeated"]
    records = await store.jobs.get([first.id, other.id])
    assert records[0] is not None
    assert records[1] == replace(
        records[0], id=other.id, message="half", revision=records[0].revision + 1
    )
    clock.shift(delay)
    await join(store, "eva")
    assert await claim_ids(store, "eva") == [first.id, other.id]


# Records that cannot be read.


@pytest.mark.parametrize("record", ["no record at all, for sure", "", "\x01", "\xff" * 99])
async def test_recover_sets_unreadable_jobs_aside(
    open_store: Open, valkey_server: Endpoint, looker: Looker, record: str
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    before = looker.key_names()
    await start(store, new(1), new(2, timeout=1), new(3))
    looker.spoil(2, record)
    clock.shift(HOUR)
    assert await recover_all(store) == [
        Recovered(id=id_of(1), replica="ann", state="waiting", losses=1),
        Recovered(id=id_of(2), replica="ann", state=None),
        Recovered(id=id_of(3), replica="ann", state="waiting", losses=1),
    ]
    assert await store.jobs.get([id_of(2)]) == [None]
    assert looker.redis.hkeys(looker.job("broken")) == [id_of(2)]
    assert [(count.waiting, count.running) for count in await store.jobs.counts()] == [(2, 0)]
    await store.jobs.cancel([id_of(1), id_of(3)])
    clock.shift(WEEK)
    assert await prune_jobs(store) == 2
    assert looker.key_names() == before


async def test_recover_sets_unreadable_jobs_past_their_deadline_aside(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    await start(store, new(1, timeout=1), new(2, timeout=1))
    looker.spoil(1)
    clock.shift(2)
    assert {
        recovery.id: recovery.state for recovery in await recover(store, delays=AT_ONCE, grace=0)
    } == {
        id_of(1): None,
        id_of(2): "waiting",
    }
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    assert await leave(store, "ann") == [id_of(1)]
    assert [(count.waiting, count.running) for count in await store.jobs.counts()] == [(1, 0)]


async def test_entries_without_a_job_block_no_other(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    clock = ManualClock()
    store = await open_store(valkey_server.url, clock)
    await insert(store, new(1), new(2))
    await join(store, "ann")
    looker.redis.zadd(looker.job("held"), {f"ann\0{id_of(1)}\0default": 0})
    looker.redis.zadd(looker.job("deadlines"), {id_of(2): 1})
    clock.shift(HOUR)
    await recover(store, delays=AT_ONCE, grace=0)
    assert await recover(store, delays=AT_ONCE, grace=0) == []
    await join(store, "ben")
    assert await claim_ids(store, "ben") == [id_of(1), id_of(2)]


async def test_an_unreadable_job_does_not_block_claims_of_others(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    store = await open_store(valkey_server.url)
    await join(store, "ann")
    await insert(store, new(1), new(2), new(3))
    looker.spoil(1)
    assert await claim_ids(store) == [id_of(2), id_of(3)]
    assert await store.jobs.settle([ended(await lookup(store, 2), "failed")]) == ["settled"]
    looker.spoil(2)
    looker.spoil(3)
    assert (await store.jobs.find()).jobs == []
    assert await store.jobs.get([id_of(1), id_of(2), id_of(3)]) == [None] * 3
    assert await store.jobs.cancel([id_of(3)]) == [None]
    assert await leave(store, "ann") == [id_of(3)]


async def lookup(store: RedisStore, number: int) -> Any:
    (job,) = await store.jobs.get([id_of(number)])
    return job


# Wake-ups.


async def test_only_the_first_job_after_a_worker_went_to_sleep_notifies(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store, sleeper = await open_store(server.url), await open_store(server.url)
    looker.commands()
    await insert(store, new(1), new(2, queue="other"))
    assert "publish" not in looker.commands()
    async with sleeper.watch(("queue", "default")) as watch:
        await sleeper.now()  # everything that it had sent before has been done
        assert looker.redis.hkeys(looker.job("sleeping")) == ["default"]
        assert 0 < looker.redis.pttl(looker.job("sleeping")) <= 86_400_000
        looker.commands()
        await insert(store, new(3, queue="other"), new(4, delay=HOUR))
        assert "publish" not in looker.commands()
        await insert(store, new(5), new(6), new(7, queue="other"))
        assert looker.commands()["publish"] == 1
        assert await watch.wait(SIZE.patience)
        await sleeper.now()  # having been woken, it has asked to be told again
    looker.redis.delete(looker.job("sleeping"))
    await insert(store, new(8))
    assert "publish" not in looker.commands()


async def test_one_watch_is_woken_again_and_again(open_store: Open, valkey_server: Endpoint):
    store, sleeper = await open_store(valkey_server.url), await open_store(valkey_server.url)
    await join(sleeper, "ann")
    async with sleeper.watch(("queue", "default")) as watch:
        for number in range(1, 1 + SIZE.rounds):
            assert await claim_ids(sleeper) == []
            await insert(store, new(number))
            assert await watch.wait(SIZE.patience)
            assert await claim_ids(sleeper) == [id_of(number)]


async def test_watchers_that_died_do_not_swallow_the_wake_ups_of_others(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    store, first_store, second_store = [await open_store(valkey_server.url) for _ in range(3)]
    looker.redis.hset(looker.job("sleeping"), "default", "1")  # left by a worker that is gone
    async with first_store.watch(("queue", "default")) as first:
        await insert(store, new(1))
        assert await first.wait(SIZE.patience)
        async with second_store.watch(("queue", "default")) as second:
            await first_store.close()
            await insert(store, new(2))
            assert await second.wait(SIZE.patience)
            await insert(store, new(3))
            assert await second.wait(SIZE.patience)


async def test_after_a_lost_connection_the_flag_is_back_before_anybody_looks(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store, sleeper = await open_store(server.url), await open_store(server.url)
    async with sleeper.watch(("queue", "default"), ("job", id_of(1))) as watch:
        looker.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        looker.redis.delete(looker.job("sleeping"))
        assert await watch.wait(SIZE.patience)  # who knows what was missed
        await sleeper.jobs.get([id_of(1)])
        assert looker.redis.hkeys(looker.job("sleeping")) == ["default"]
        await insert(store, new(1))
        assert await watch.wait(SIZE.patience)
        await store.jobs.cancel([id_of(1)])
        assert await watch.wait(SIZE.patience)


async def test_a_bell_is_heard_only_while_a_watcher_listens(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    store, watcher = await open_store(valkey_server.url), await open_store(valkey_server.url)
    await insert(store, new(1), new(2))
    async with watcher.watch(("lease", "ann")):
        assert looker.listeners("job") == 0
    for _ in range(2):
        async with watcher.watch(("job", id_of(1)), ("replica", "ann")) as watch:
            assert (looker.listeners("job"), looker.listeners("replica")) == (1, 1)
            await store.jobs.cancel([id_of(2)])
            await store.jobs.cancel([id_of(1)])
            assert await watch.wait(SIZE.patience)
        await store.jobs.requeue([id_of(1), id_of(2)])  # no worker waits
        await wait_until_async(lambda: looker.listeners("job") == 0, SIZE.patience)


async def test_watches_that_begin_together_all_hear(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    store, watcher = await open_store(valkey_server.url), await open_store(valkey_server.url)
    await start_one(store)

    async def hear(turns: int, kind: Any, name: str) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)  # each at another stage of the first one's connection
        async with watcher.watch((kind, name)) as watch:
            assert looker.listeners(kind) == 1
            assert await watch.wait(SIZE.patience)

    kinds = [("replica", "ann"), ("job", id_of(1)), ("queue", "default")]
    ears = [
        asyncio.create_task(hear(turns, kind, name))
        for turns, (kind, name) in zip((0, 3, 6), kinds, strict=True)
    ]
    await wait_until_async(
        lambda: all(looker.listeners(kind) == 1 for kind, _ in kinds), SIZE.patience
    )
    await wait_until_async(lambda: "job:sleeping" in looker.key_names(), SIZE.patience)
    await store.jobs.cancel([id_of(1)])
    await insert(store, new(2))
    await asyncio.gather(*ears)


async def test_a_call_rings_each_bell_once(open_store: Open, private: tuple[Valkey, Looker]):
    server, looker = private
    store = await open_store(server.url)
    jobs = await start(store, *(new(number) for number in range(1, 100)))
    async with store.watch(("queue", "default")):
        looker.commands()
        await store.jobs.settle([ended(job, "handed back") for job in jobs])
        assert looker.commands()["publish"] == 2  # the queue, and the jobs
        await claim(store)
        assert looker.commands()["publish"] == 1
        await store.jobs.cancel([job.id for job in jobs])
        assert looker.commands()["publish"] == 2  # the jobs, and the replica


# A batch is one commit.


@pytest.mark.parametrize("command", [1, 2])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_connection_cut_in_a_full_batch_leaves_all_of_it_or_nothing(
    open_store: Open, valkey_server: Endpoint, proxy: ProxyTo, command: int, after: bool
):
    way = proxy(valkey_server)
    store = await open_store(way.url(valkey_server.url))
    await insert(store, new(BATCH_MAX))  # so that the script is known, and sent once
    (way.cut_after if after else way.cut_before)(command, b"EVALSHA")
    jobs = [new(number) for number in range(BATCH_MAX)]
    with suppress(StoreUnavailable):
        await store.jobs.insert(jobs)
    way.heal()
    assert await _stored(store, jobs) in (0, BATCH_MAX)


async def test_memory_that_ends_in_a_full_batch_leaves_all_of_it_or_nothing(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store = await open_store(server.url)
    used = looker.redis.info("memory")["used_memory"]
    looker.redis.config_set("maxmemory", used + 3_000_000)
    jobs = [new(number, payload=bytes(20_000)) for number in range(BATCH_MAX)]
    with suppress(StoreUnavailable):
        await store.jobs.insert(jobs)
    assert await _stored(store, jobs) in (0, BATCH_MAX)


async def _stored(store: RedisStore, jobs: list[NewJob]) -> int:
    return sum(job is not None for job in await store.jobs.get([job.id for job in jobs]))


async def test_large_results_are_not_read_for_a_count_beyond_some_megabytes(
    open_store: Open, valkey_server: Endpoint
):
    store = await open_store(valkey_server.url)
    await store.jobs.beat(["ann"], ttl=600, meta={})
    for number in range(10):
        job = await start_one(store, number, tags=("red",), retention=600)
        assert await settle(store, job, "succeeded", result=bytes(1_000_000)) == "settled"
    await store.jobs.insert([new(number, tags=("red",)) for number in range(10, 13)])
    assert await store.jobs.count_tagged("red", unfinished=9, recent=99, within=600) == Tagged(
        3, 3 + 4, ANY
    )


async def test_all_that_runs_is_found_though_many_replicas_run_jobs(open_store, valkey_server):
    """So many that of each only a few are looked at in a script."""
    store = await open_store(valkey_server.url)
    await insert(store, *(new(number) for number in range(149)))
    running = set()
    for number in range(50):
        await join(store, f"r{number}", ttl=WEEK)
        claimed = await store.jobs.claim(f"r{number}", 1, ["default"], 1 if number else 100)
        running |= {job.id for job in claimed.jobs}
    assert len(running) == 149
    ids, cursor = [], None
    while True:
        page = await store.jobs.find(state="running", limit=200, cursor=cursor)
        ids += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    assert ids == sorted(running, reverse=True)
