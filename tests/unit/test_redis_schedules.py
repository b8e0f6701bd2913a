"""What only concerns schedules on the Redis store: its scripts, its keys, older versions."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from statistics import median
from typing import Any, TypeVar

import pytest
import redis

from tenure.core.records import BATCH_MAX
from tenure.core.schedules import DECISIONS_MAX
from tenure.stores.redis import RedisStore
from tenure.stores.redis.rights import NEEDED_RIGHTS
from tenure.stores.redis.scripts import ADVANCE
from tenure.testing import ManualClock
from tests.contract.job_calls import id_of, join, new, settle
from tests.contract.schedule_calls import (
    TIMERS,
    bound,
    look_at,
    move,
    plant,
    planting,
    run,
    tick,
)
from tests.rig.endings import leave
from tests.rig.fixtures import Endpoint, PrivateValkey
from tests.rig.servers import Valkey
from tests.unit.redis_inside import Looker, Open, stores_of

WEEK = 7 * 24 * 3600.0

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
    """A server that nobody else talks to, and a look at it."""
    server = private_valkey()
    return server, Looker(server, namespace)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def fill(store: RedisStore, clock: ManualClock, name: str, amount: int) -> None:
    """Let a schedule have unfinished runs that wait."""
    planted = await plant(store, name)
    moves = [move(planted, clock.wall(), name=name, seen=None, due=0) for _ in range(amount)]
    for first in range(0, amount, 500):
        await asyncio.gather(*(store.advance(one) for one in moves[first : first + 500]))


# What is left on the server.


async def test_schedules_that_are_over_leave_nothing_behind(
    open_store: Open, valkey_server: Endpoint, looker: Looker, clock: ManualClock
):
    store = await open_store(valkey_server.url, clock)
    before = looker.key_names()
    await join(store, "ann", ttl=WEEK)
    await plant(store)
    await store.plant([planting("new", renamed_from=("sync",)), planting("other", b"second")])
    await store.freeze("other", reason="release")
    await tick(store, clock.wall(), name="other")
    for how in ("succeeded", "failed", "handed back"):
        clock.shift(1)
        one = await run(store, clock.wall(), name="new", replica="ann")
        await settle(store, one, how)
    clock.shift(1)
    tagged = new(1, tags=("t",), timeout=5, queue=TIMERS, schedule="new", rerun=True)
    await run(store, clock.wall(), name="new", id=tagged.id, run=tagged)
    await store.claim("ann", 1, [TIMERS], 1)
    await leave(store, "ann")
    await tick(store, clock.wall(), name="new", limit=bound(1, full="cancel"))
    clock.shift(60)
    assert await store.prune_jobs() == 4
    assert await store.prune_schedules(idle=60) == 2
    assert await store.prune_schedules(idle=60) == 1
    assert looker.key_names() == before


async def test_no_more_decisions_are_stored_than_are_remembered(
    open_store: Open, valkey_server: Endpoint, looker: Looker, clock: ManualClock
):
    store = await open_store(valkey_server.url, clock)
    await plant(store)
    for _ in range(DECISIONS_MAX + 10):
        clock.shift(1)
        await run(store, clock.wall())
    assert looker.redis.hlen(looker.timer("decisions")) == DECISIONS_MAX
    newest, *_, oldest = await store.decisions("sync")
    assert newest.last - oldest.last == (DECISIONS_MAX - 1) * 1_000_000


async def test_a_name_at_rest_is_forgotten_by_a_later_call_than_its_successor(
    open_store: Open, valkey_server: Endpoint, clock: ManualClock
):
    store = await open_store(valkey_server.url, clock)
    # More than one script looks at: the successors by the first ones, as they have smaller names.
    await store.plant([planting(f"old {number}") for number in range(BATCH_MAX)])
    await store.plant(
        [planting(f"new {number}", renamed_from=(f"old {number}",)) for number in range(BATCH_MAX)]
    )
    for _ in range(2):
        assert await store.prune_schedules(idle=0) == BATCH_MAX
    assert await store.schedules() == []


async def test_a_tick_does_not_write_the_definition_again(
    open_store: Open, private: tuple[Valkey, Looker], clock: ManualClock
):
    server, looker = private
    store = await open_store(server.url, clock)
    await plant(store, definition=b"x" * 100_000)
    before = looker.written()
    for _ in range(10):
        clock.shift(1)
        await run(store, clock.wall())
    assert looker.written() - before < 100_000


# Scripts.


async def test_forgotten_scripts_are_loaded_again(
    open_store: Open, private: tuple[Valkey, Looker], clock: ManualClock
):
    server, looker = private
    store = await open_store(server.url, clock)
    await plant(store)
    looker.redis.script_flush()
    await run(store, clock.wall())
    assert looker.redis.script_exists(ADVANCE.sha.decode()) == [True]


async def test_a_move_is_one_call_and_does_no_more_among_many_runs(
    open_store: Open, private: tuple[Valkey, Looker], clock: ManualClock
):
    server, looker = private
    store = await open_store(server.url, clock)
    await join(store, "ann", ttl=WEEK)
    await plant(store)
    bounds = {"limit": bound(1000), "own": bound(2, "overlap")}

    async def work() -> dict[str, int]:
        clock.shift(1)
        planted = await plant(store)
        looker.commands()
        done = await store.advance(move(planted, clock.wall(), replica="ann", **bounds))
        calls = looker.commands()
        assert done.run is not None
        await settle(store, done.run, "succeeded")
        return calls

    await work()  # loads the script
    few = await work()
    assert few["evalsha"] == 1
    await fill(store, clock, "other", 300)
    await fill(store, clock, "sync", 300)
    for _ in range(100):
        await work()
    assert await work() == few


async def test_a_look_at_many_schedules_examines_a_bounded_number_of_runs(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store = await open_store(server.url)
    names = [f"schedule {number}" for number in range(30)]
    await store.plant([planting(name) for name in names])
    ids = [id_of(number) for number in range(500)]
    for name in names:
        looker.redis.zadd(looker.job("live"), {f"{name}\0{id_}\0default": 0 for id_ in ids})
    looker.redis.zadd(looker.job("unfinished"), dict.fromkeys(ids[1:], 0))
    await store.schedules()  # four of them are counted exactly
    looker.redis.zadd(looker.job("live"), {f"{name}\0{ids[0]}\0default": 0 for name in names})
    looker.commands()
    found = await store.schedules()
    assert [one.live for one in found] == [499] * 4 + [500] * 26
    assert looker.commands()["zmscore"] == 4


async def test_planting_again_writes_the_declaration_alone(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store = await open_store(server.url)
    await plant(store, "oldest")
    await store.plant([planting("old", renamed_from=("oldest",))])
    renamed = [planting("new", renamed_from=("never", "old", "oldest")), planting("other")]
    for _ in range(2):
        looker.commands()
        await store.plant(renamed)
    assert looker.commands() == {"evalsha": 1, "hdel": 1, "hget": 7, "zadd": 2}


async def test_jobs_without_a_schedule_cost_no_command_more(
    open_store: Open, private: tuple[Valkey, Looker]
):
    server, looker = private
    store = await open_store(server.url)
    await join(store, "ann")
    calls: dict[str, int] = {}
    for number in (1, 2):
        await store.insert([new(number)])
        claimed = await store.claim("ann", number, ["default"], 1)
        assert claimed is not None
        await store.beat(["ann"], ttl=10)
        await settle(store, claimed.jobs[0], "succeeded" if number == 1 else "failed")
        calls = looker.commands()
    assert calls == {
        "evalsha": 4,
        "publish": 2,
        "hset": 7,
        "hget": 4,
        "hmget": 4,
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
    await fill(store, clock, "busy", 1200)
    await fill(store, clock, "other", 2000)
    claimed = 0
    for number in range(1, 6):
        some = await store.claim("ann", number, [TIMERS], BATCH_MAX)
        assert some is not None
        claimed += len(some.jobs)
    assert claimed == 1000
    names = [f"timer {number}" for number in range(BATCH_MAX)]
    took: dict[str, list[float]] = defaultdict(list)

    async def measure(what: str, call: Awaitable[T]) -> T:
        before = looker.worked()
        answer = await call
        took[what].append(looker.worked() - before)
        return answer

    async def busy_tick(what: str, **details: Any) -> None:
        clock.shift(1)
        one = move(await plant(store, "busy"), clock.wall(), name="busy", **details)
        assert (await measure(what, store.advance(one))).reason == what

    for _ in range(5):
        clock.shift(70)
        await measure("plant", store.plant([planting(one, renamed_from=("a",)) for one in names]))
        await measure("plant again", store.plant([planting(one) for one in names]))
        await busy_tick("limit", limit=bound(1000))
        await busy_tick("overlap", replica="ann", own=bound(1000, "overlap"))
        await busy_tick("newer", limit=bound(1000, "newer", "cancel"))
        assert len(await measure("schedules", store.schedules())) == BATCH_MAX + 2
        clock.shift(70)
        await plant(store, "busy")
        assert await measure("prune", store.prune_schedules(idle=70)) == BATCH_MAX
        await join(store, "ann", ttl=WEEK)
    typical = {what: median(times) for what, times in took.items()}
    assert {what: seconds for what, seconds in typical.items() if seconds > 0.02} == {}


# Versions that know no schedules.


async def test_places_of_runs_that_an_older_version_ended_are_free(
    open_store: Open, valkey_server: Endpoint, looker: Looker, clock: ManualClock
):
    store = await open_store(valkey_server.url, clock)
    await plant(store)
    live = looker.job("live")
    ended = await run(store, clock.wall())
    (left,) = looker.redis.zrange(live, 0, -1)
    await store.cancel([ended.id])
    assert looker.redis.zrange(live, 0, -1) == []

    def leave_it() -> None:
        looker.redis.zadd(live, {left: 0})

    leave_it()
    assert (await look_at(store)).live == 0
    leave_it()
    clock.shift(1)
    one = await run(store, clock.wall(), limit=bound(1))
    leave_it()
    clock.shift(1)
    assert (await tick(store, clock.wall(), limit=bound(1))).outcome == "skipped"
    await store.cancel([one.id])
    leave_it()
    assert await store.prune_schedules(idle=0) == 1


# What cannot be read.


@pytest.mark.parametrize("record", ["no record at all, for sure", "", "\x01", "\xff" * 99])
async def test_a_schedule_that_cannot_be_read_begins_anew(
    open_store: Open, valkey_server: Endpoint, looker: Looker, clock: ManualClock, record: str
):
    store = await open_store(valkey_server.url, clock)
    await store.plant([planting("a"), planting("b")])
    looker.redis.hset(looker.timer("schedules"), "a", record)
    clock.shift(5)
    assert [one.name for one in await store.schedules()] == ["b"]
    assert (await store.advance(move(await plant(store, "b"), 0, name="a"))).outcome == "unknown"
    a, b = await store.plant([planting("a"), planting("b")])
    assert (a.cursor, b.cursor) == (clock.wall(), clock.wall() - 5_000_000)


@pytest.mark.parametrize("record", ["no record at all, for sure", "", "\x01", "\xff" * 99])
async def test_where_a_definition_cannot_be_read_the_next_one_rules(
    open_store: Open, valkey_server: Endpoint, looker: Looker, clock: ManualClock, record: str
):
    store = await open_store(valkey_server.url, clock)
    await store.plant([planting("a"), planting("b")])
    for name in ("a", "b"):
        looker.redis.hset(looker.timer("definitions"), name, record)
    clock.shift(5)
    assert [one.definition for one in await store.schedules()] == [b"", b""]
    planted = await store.plant([planting("b"), planting("c", renamed_from=("a",))])
    assert [(one.revision, one.cursor) for one in planted] == [(2, clock.wall()), (1, clock.wall())]
    assert (await look_at(store, "b")).definition == b"first"


async def test_a_circle_of_successors_keeps_nobody(
    open_store: Open, valkey_server: Endpoint, looker: Looker, clock: ManualClock
):
    store = await open_store(valkey_server.url, clock)
    await plant(store, "old")
    await store.plant([planting("new", renamed_from=("old",))])
    raw = redis.Redis.from_url(valkey_server.url)
    schedules = looker.timer("schedules")
    raw.hset(schedules, "new", raw.hget(schedules, "old"))
    assert (await look_at(store, "new")).successor == "new"
    assert (await plant(store, "old")).revision == 0
    assert (await plant(store, "new")).revision > 0
    assert (await look_at(store, "new")).successor == ""


async def test_least_rights_are_enough(
    open_store: Open, private_valkey: PrivateValkey, clock: ManualClock
):
    server = private_valkey(config={"user": f"app on nopass {NEEDED_RIGHTS}"})
    store = await open_store(server.url.replace("redis://", "redis://app:any@"), clock)
    await every_call(store, clock)


async def every_call(store: RedisStore, clock: ManualClock) -> None:
    await join(store, "ann")
    await plant(store)
    await run(store, clock.wall(), replica="ann", limit=bound(1), own=bound(1))
    clock.shift(1)
    await tick(store, clock.wall(), replica="ann", limit=bound(1, full="cancel"))
    await tick(store, clock.wall(), replica="ann", own=bound(1))
    await store.decisions("sync")
    assert await store.freeze("sync")
    assert await store.thaw("sync")
    await leave(store, "ann")
    assert await store.prune_schedules(idle=0) == 1
