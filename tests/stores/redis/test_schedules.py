"""Schedules on the Redis store alone: its scripts, its keys, its rights."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from statistics import median
from typing import TypeVar

import pytest

from tenure.core.jobs.records import BATCH_MAX, JobRecord
from tenure.core.schedules.records import (
    BLOCKING_MAX,
    DECISIONS_MAX,
    DECLARED_ANEW_AFTER,
    TIMERS_QUEUE,
    Room,
    ScheduleRecord,
    Write,
)
from tenure.stores.redis import RedisStore
from tenure.stores.redis.rights import NEEDED_RIGHTS
from tenure.stores.redis.scripts import SCRIPTS
from tenure.testing import ManualClock
from tests.contract.commit_calls import (
    as_expected,
    create,
    look_at,
    plan,
    plan_run,
    rewrite,
    run,
    send,
    tick_line,
)
from tests.contract.job_calls import id_of, join, new, prune_jobs, settle
from tests.rig.endings import leave
from tests.rig.fixtures import Endpoint, PrivateValkey
from tests.rig.lookups import decisions
from tests.rig.servers import Valkey
from tests.rig.sizes import SIZE
from tests.stores.redis.inside import Looker, Open, stores_of

WEEK = 7 * 24 * 3600.0
UNITS_MAX = 1.5

T = TypeVar("T")


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


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def fill(store: RedisStore, record: ScheduleRecord, amount: int) -> None:
    """Let a schedule have unfinished runs that wait."""
    for first in range(0, amount, BATCH_MAX):
        number = min(BATCH_MAX, amount - first)
        answers = await store.schedules.commit([plan_run(record) for _ in range(number)])
        assert {answer.outcome for answer in answers} == {"done"}


# What is left on the server.


async def test_schedules_that_are_over_leave_nothing_behind(
    open_store: Open, valkey_server: Endpoint, looker: Looker, clock: ManualClock
):
    store = await open_store(valkey_server.url, clock)
    before = looker.key_names()
    await join(store, "ann", ttl=WEEK)
    old, sync = await create(store, "old"), await create(store)
    expects = (as_expected(sync), as_expected(old))
    writes = (Write("sync", "s", "ruler", above=("old",)), Write("old", "s"))
    await send(store, plan(sync, expects=expects, writes=writes))
    sync = await look_at(store)
    for number, how in enumerate(("succeeded", "failed", "handed back", "cancelled")):
        clock.shift(1)
        job = {"tags": ("t",), "timeout": 5.0} if number else {}
        line = tick_line(how, like=how if number < 2 else "same")
        made = await run(store, sync, start_on="ann", job=job, run_line=line)
        await settle(store, made, how)
    await store.jobs.cancel([job.id for job in (await store.jobs.find(state="waiting")).jobs])
    await leave(store, "ann")
    clock.shift(60)
    assert await prune_jobs(store) == 4
    for name in ("old", "sync"):
        record = await look_at(store, name)
        answer = await send(store, plan(record, writes=(Write(name, None),), rooms=(Room(1),)))
        assert answer.outcome == "done"
    assert looker.key_names() == before


async def test_leftovers_of_a_damaged_record_go_with_the_schedule(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    store = await open_store(valkey_server.url)
    before = looker.key_names()
    lines = tuple(tick_line() for _ in range(10))
    await send(store, plan(await create(store), lines=lines))
    looker.redis.hset(looker.timer("schedules"), "sync", "junk")
    again = await create(store)
    assert again.latest is None
    await send(store, plan(again, writes=(Write("sync", None),)))
    assert looker.key_names() == before


async def test_no_more_lines_are_stored_than_are_remembered(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    store = await open_store(valkey_server.url)
    record = await create(store)
    for number in range(DECISIONS_MAX + 10):
        await send(store, plan(record, lines=(tick_line(f"line {number}"),)))
    assert looker.redis.hlen(looker.timer("decisions")) == DECISIONS_MAX
    lines = await decisions(store, "sync")
    expected = [f"line {number}" for number in range(10, DECISIONS_MAX + 10)]
    assert [line.body for line in lines] == expected[::-1]


async def test_a_tick_does_not_write_the_definition_again(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store = await open_store(server.url)
    record = await create(store, definition="x" * 100_000)
    before = looker.written()
    for _ in range(10):
        await run(store, record, run_line=tick_line())
        record = await rewrite(store, record, standing="moved")
    assert looker.written() - before < 100_000


# Scripts.


async def test_forgotten_scripts_are_loaded_again(open_store: Open, private: tuple[Valkey, Looker]):
    server, looker = private
    store = await open_store(server.url)
    record = await create(store)
    looker.redis.script_flush()
    await run(store, record)
    assert looker.redis.script_exists(SCRIPTS["commit"].sha.decode()) == [True]


async def test_a_tick_is_one_call_and_does_no_more_among_many_runs(
    open_store: Open, private: tuple[Valkey, Looker], clock: ManualClock
):
    server, looker = private
    store = await open_store(server.url, clock)
    await join(store, "ann", ttl=WEEK)
    await create(store)

    async def work() -> dict[str, int]:
        clock.shift(1)
        record = await look_at(store)
        looker.commands()
        done = await run(
            store,
            record,
            start_on="ann",
            writes=(Write("sync", "moved", "ruler"),),
            declares=True,
            rooms=(Room(1000), Room(2, on="ann")),
            run_line=tick_line(),
        )
        calls = looker.commands()
        await settle(store, done, "succeeded")
        return calls

    await work()  # loads the script
    few = await work()
    assert few == {
        "evalsha": 1,
        "hdel": 1,  # so that a full server runs the script
        "hget": 2,
        "hmget": 1,
        "zlexcount": 1,
        "zrangebylex": 1,
        "hset": 4,
        "hincrby": 1,
        "zadd": 4,
        "publish": 1,
    }
    await fill(store, await create(store, "other"), 300)
    await fill(store, await look_at(store), 300)
    for _ in range(100):
        await work()
    assert await work() == few


async def test_a_tick_that_comes_too_late_writes_nothing(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store = await open_store(server.url)
    record = await create(store)
    await rewrite(store, record)
    expects = (as_expected(record), as_expected("*"))
    looker.commands()
    assert (await send(store, plan_run(record, expects=expects))).outcome == "stale"
    assert looker.commands() == {"evalsha": 1, "hdel": 1, "hget": 1, "hmget": 1}


async def test_many_commits_are_one_call(open_store: Open, private: tuple[Valkey, Looker]):
    server, looker = private
    store = await open_store(server.url)
    names = [f"timer {number}" for number in range(100)]
    made = [plan(name, writes=(Write(name, "s", "r", "d"),)) for name in names]
    await store.schedules.commit(made[:1])
    looker.commands()
    await store.schedules.commit(made[1:])
    assert looker.commands()["evalsha"] == 1


async def test_a_run_that_waits_wakes_its_queue(open_store: Open, valkey_server: Endpoint):
    store = await open_store(valkey_server.url)
    record = await create(store)
    async with store.watch(("queue", TIMERS_QUEUE)) as bell:
        await run(store, record)
        assert await bell.wait(SIZE.patience)


async def test_a_look_at_many_schedules_examines_a_bounded_number_of_runs(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store = await open_store(server.url)
    few, many = "few", [f"schedule {number}" for number in range(30)]
    await store.schedules.commit(
        [plan(name, writes=(Write(name, "s", "r", "d"),)) for name in [few, *many]]
    )
    ids = [id_of(number) for number in range(500)]
    looker.redis.zadd(looker.job("unfinished"), dict.fromkeys(ids[1:], 0))
    for name in many:
        looker.redis.zadd(looker.job("live"), {f"{name}\0{id_}\0default": 0 for id_ in ids})
    looker.redis.zadd(looker.job("live"), {f"{few}\0{id_}\0default": 0 for id_ in ids[:10]})
    looker.commands()
    records = (await store.schedules.read()).records
    assert [record.live for record in records] == [9] + [500] * 30  # only few of them are looked at
    assert looker.commands()["zmscore"] == 1


async def test_a_young_declaration_is_not_written_again(
    open_store: Open, private: tuple[Valkey, Looker], clock: ManualClock
):
    server, looker = private
    store = await open_store(server.url, clock)
    names = ("a", "b", "c")
    for name in names:
        await create(store, name)
    await store.schedules.declare([])  # loads the script
    clock.shift(DECLARED_ANEW_AFTER - 1)
    looker.commands()
    await store.schedules.declare([(name, "ruler") for name in names])
    assert looker.commands() == {"evalsha": 1, "hdel": 1, "hmget": 3, "zscore": 3}
    clock.shift(1)
    await store.schedules.declare([(name, "ruler") for name in names])
    assert looker.commands()["zadd"] == 3


async def test_jobs_without_a_schedule_cost_no_command_more(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store = await open_store(server.url)
    await join(store, "ann")
    calls: dict[str, int] = {}
    for number in (1, 2):
        await store.jobs.insert([new(number)])
        claimed = await store.jobs.claim("ann", number, ["default"], 1)
        assert claimed is not None
        await store.jobs.beat(["ann"], ttl=10)
        await settle(store, claimed.jobs[0], "succeeded" if number == 1 else "failed")
        calls = looker.commands()
    assert calls == {
        "evalsha": 4,
        "publish": 2,
        "hset": 7,
        "hget": 3,
        "hmget": 5,
        "hincrby": 2,
        "hdel": 4,  # three of them so that a full server runs the script
        "zadd": 7,
        "zrem": 3,
        "hlen": 1,  # of jobs that were set aside: known, though not in the state
        "zlexcount": 1,
        "zrangebylex": 2,
        "zrangebyscore": 2,
        "zrevrangebyscore": 2,
    }
    assert not looker.redis.exists(looker.job("live"))


async def test_no_call_keeps_the_server_long_among_many_runs(
    open_store: Open, private: tuple[Valkey, Looker], clock: ManualClock
):
    server, looker = private
    store = await open_store(server.url, clock)
    await join(store, "ann", ttl=WEEK)
    busy = await create(store, "busy")
    await fill(store, busy, 1200)
    await fill(store, await create(store, "other"), 2000)
    claimed = 0
    for number in range(1, 6):
        batch = await store.jobs.claim("ann", number, [TIMERS_QUEUE], BATCH_MAX)
        assert batch is not None
        claimed += len(batch.jobs)
    assert claimed == 1000
    names = [f"timer {number}" for number in range(BATCH_MAX)]
    took: dict[str, list[float]] = defaultdict(list)

    async def measure(what: str, call: Awaitable[T]) -> T:
        before = looker.worked()
        answer = await call
        took[what].append(looker.worked() - before)
        return answer

    async def refuse(what: str, *rooms: Room) -> None:
        answer = await measure(what, send(store, plan_run(busy, rooms=rooms)))
        assert answer.outcome == "full"
        assert len(answer.blocking) == BLOCKING_MAX

    for _ in range(5):
        took["unit"].append(looker.work_unit())
        clock.shift(70)
        made = [plan(name, writes=(Write(name, "s", "ruler", "d"),)) for name in names]
        await measure("create", store.schedules.commit(made))
        await measure("declare", store.schedules.declare([(name, "ruler") for name in names]))
        await refuse("all", Room(1000))
        await refuse("own", Room(1000, on="ann"))
        records = (await measure("schedules", store.schedules.read())).records
        timers = [record for record in records if record.name in names]
        line = tick_line()
        ticks = [
            plan_run(record, start_on="ann", rooms=(Room(1),), run_line=line) for record in timers
        ]
        answers = await measure("tick", store.schedules.commit(ticks))
        assert {answer.outcome for answer in answers} == {"done"}
        gone = [plan(record, writes=(Write(record.name, None),)) for record in timers]
        await measure("delete", store.schedules.commit(gone))
        assert await settle_all(store, [answer.run for answer in answers if answer.run])
    unit = median(took.pop("unit"))
    units = {what: median(times) / unit for what, times in took.items()}
    # Two scripts each.
    halved = {"create", "tick", "delete"}
    slow = {what: many for what, many in units.items() if many > UNITS_MAX * (1 + (what in halved))}
    assert slow == {}, units


async def settle_all(store: RedisStore, runs: list[JobRecord]) -> bool:
    return all([await settle(store, run, "succeeded") == "settled" for run in runs])


# Jobs that cannot be read.


async def test_the_place_of_a_run_that_was_set_aside_is_free(
    open_store: Open, valkey_server: Endpoint, looker: Looker
):
    """Its record does not tell whose run it was, so its entry stays behind."""
    store = await open_store(valkey_server.url)
    record = await create(store)
    live = looker.job("live")
    ended = await run(store, record)
    (left,) = looker.redis.zrange(live, 0, -1)
    await store.jobs.cancel([ended.id])
    assert looker.redis.zrange(live, 0, -1) == []

    def leave_it() -> None:
        looker.redis.zadd(live, {left: 0})

    leave_it()
    assert (await look_at(store)).live == 0
    assert looker.redis.zrange(live, 0, -1) == []
    leave_it()
    held = await run(store, record, rooms=(Room(1),))
    leave_it()
    assert (await send(store, plan_run(record, rooms=(Room(1),)))).blocking == (held.id,)
    await store.jobs.cancel([held.id])
    leave_it()
    gone = plan(record, writes=(Write("sync", None),), rooms=(Room(1),))
    assert (await send(store, gone)).outcome == "done"


async def test_least_rights_are_enough(
    open_store: Open, private_valkey: PrivateValkey, clock: ManualClock
):
    server = private_valkey(config={"user": f"app on nopass {NEEDED_RIGHTS}"})
    store = await open_store(server.url.replace("redis://", "redis://app:any@"), clock)
    await every_call(store, clock)


async def every_call(store: RedisStore, clock: ManualClock) -> None:
    await join(store, "ann")
    record = await create(store)
    line = tick_line(like="same")
    await run(store, record, start_on="ann", run_line=line, rooms=(Room(1), Room(1, on="ann")))
    clock.shift(1)
    for room in (Room(1), Room(1, on="ann"), Room(1, instead=line)):
        answer = await send(store, plan_run(record, start_on="ann", rooms=(room,)))
        assert answer.outcome in {"full", "instead"}
    assert len(await decisions(store, "sync")) == 1
    clock.shift(60)
    assert (await store.schedules.declare([("sync", "ruler")])).lost == []
    clock.step(-60)
    spoke = as_expected(record, silent_for=1)
    assert (await send(store, plan(record, expects=(spoke,)))).outcome == "stale"
    await leave(store, "ann")
    assert (await send(store, plan(record, writes=(Write("sync", None),)))).outcome == "done"
    assert (await store.schedules.read()).records == []
