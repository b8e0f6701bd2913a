"""A Redis server that is full: it takes no new jobs, and everything else goes on."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import redis

from tenure.core.jobs.records import Inserted, Note, Pruned, Unique
from tenure.core.leases import Granted
from tenure.core.schedules.records import Write
from tenure.errors import StoreFull, StoreUnavailable
from tenure.stores.redis import RedisStore
from tenure.stores.redis.address import Address
from tenure.testing import ManualClock
from tests.contract.calls import ask, holders, line, take
from tests.contract.commit_calls import create, look_at, plan, plan_run, rewrite, send, tick_line
from tests.contract.job_calls import (
    AT_ONCE,
    claim,
    claim_ids,
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
from tests.rig.endings import bury, leave, recover
from tests.rig.fixtures import PrivateValkey
from tests.rig.lookups import decisions
from tests.rig.servers import Valkey
from tests.rig.sizes import SIZE
from tests.stores.redis.inside import stores_of


class Full:
    """A store on a server of its own that is full whenever the test says so."""

    def __init__(self, server: Valkey, store: RedisStore, clock: ManualClock) -> None:
        self.server = server
        self.store = store
        self.clock = clock
        self._operator = redis.Redis.from_url(server.url)

    def fill(self) -> None:
        self._operator.config_set("maxmemory", 1)

    def free(self) -> None:
        self._operator.config_set("maxmemory", 0)


@pytest.fixture
async def full(private_valkey: PrivateValkey, namespace: str) -> AsyncIterator[Full]:
    server, clock = private_valkey(), ManualClock()
    async with stores_of(namespace) as open_store:
        yield Full(server, await open_store(server.url, clock), clock)


async def test_a_new_job_is_refused_and_nothing_of_it_is_stored(full: Full):
    full.fill()
    with pytest.raises(StoreFull, match=r"full.*Nothing was stored.*maxmemory") as caught:
        await full.store.jobs.insert([new(1, tags=("t",), unique=Unique(key="k"))])
    assert isinstance(caught.value, StoreUnavailable)
    assert full.server.url.rpartition("@")[2] in str(caught.value)
    full.free()
    assert await full.store.jobs.get([id_of(1)]) == [None]
    await insert(full.store, new(2, unique=Unique(key="k")))


async def test_an_insert_whose_reply_was_lost_is_answered_though_the_store_is_full(full: Full):
    await insert(full.store, new(1))
    full.fill()
    assert await full.store.jobs.insert([new(1)]) == [Inserted("created", id_of(1))]


async def test_jobs_are_claimed_noted_and_settled(full: Full):
    await insert(full.store, *(new(number, timeout=5) for number in range(4)))
    await join(full.store, "ann")
    full.fill()
    first, second, third, fourth = await claim(full.store)
    assert await claim(full.store) == []
    note = Note(id=first.id, fence=first.fence, progress=0.5, message="m", checkpoint=bytes(50_000))
    assert await full.store.jobs.note([note]) == [True]
    assert await settle(full.store, first, "succeeded", result=bytes(50_000)) == "settled"
    assert await settle(full.store, second, "retry", error=b"e") == "settled"
    assert await settle(full.store, third, "failed", error=b"e") == "settled"
    assert await settle(full.store, fourth, "handed back", history=b"h") == "settled"
    expected = ["succeeded", "waiting", "failed", "waiting"]
    assert await states(full.store, 0, 1, 2, 3) == expected
    assert (await look(full.store, 0)).checkpoint == bytes(50_000)


async def test_a_worker_that_starts_is_taken_in(full: Full, namespace: str):
    await insert(full.store, new(1))
    full.fill()
    async with stores_of(namespace) as open_store:
        late = await open_store(full.server.url, full.clock)
        await join(late, "ann")
        assert await claim_ids(late) == [id_of(1)]


async def test_workers_beat_and_leave_and_the_dead_are_recovered(full: Full):
    await start(full.store, new(1), new(2))
    await join(full.store, "ben", "eve", ttl=100)
    full.fill()
    full.clock.shift(9)
    [ann, ben] = await full.store.jobs.beat(["ann", "ben"], ttl=10)
    assert ann is not None
    assert ann.held == 2
    assert ben is not None
    full.clock.shift(10)
    recovered = await recover(full.store, delays=AT_ONCE, grace=0)
    assert {recovery.id: recovery.state for recovery in recovered} == {
        id_of(1): "waiting",
        id_of(2): "waiting",
    }
    assert set(await claim_ids(full.store, "eve", limit=1)) == {id_of(1)}
    assert await leave(full.store, "eve") == [id_of(1)]
    await join(full.store, "ida")
    [job, _] = await claim(full.store, "ida")
    assert len(await bury(full.store, "ida", [job.id], delays=AT_ONCE)) == 2


async def test_a_claim_that_finds_nothing_is_answered(full: Full):
    await join(full.store, "ann")
    full.fill()
    assert await claim(full.store) == []


@pytest.mark.parametrize("unique", [None, Unique(key="k")], ids=["plain", "unique"])
async def test_jobs_are_cancelled_requeued_and_pruned(full: Full, unique: Unique | None):
    running = await start_one(full.store, 1)
    await insert(full.store, new(2, unique=unique, retention=10))
    full.fill()
    assert await full.store.jobs.cancel([id_of(1), id_of(2)]) == ["requested", "cancelled"]
    [beat] = await full.store.jobs.beat(["ann"], ttl=100)
    assert beat is not None
    assert beat.cancels == [id_of(1)]
    assert await full.store.jobs.requeue([id_of(2)]) == ["requeued"]
    assert await full.store.jobs.cancel([id_of(2)]) == ["cancelled"]
    assert await settle(full.store, running, "cancelled") == "settled"
    full.clock.shift(11)
    assert await prune_jobs(full.store) == 2


async def test_queues_are_paused_and_resumed(full: Full):
    await insert(full.store, new(1))
    await join(full.store, "ann")
    full.fill()
    await full.store.jobs.pause("default")
    assert await claim(full.store) == []
    await full.store.jobs.pause("default", seconds=0)
    assert len(await claim(full.store)) == 1


async def test_locks_are_taken_renewed_marked_and_given_back(full: Full):
    held = await take(full.store, "old", "ann")
    full.fill()
    full.clock.shift(20)
    assert await full.store.leases.renew([held]) == [True]
    full.clock.shift(20)
    assert await holders(full.store, "old") == ["ann"]
    fresh = await take(full.store, "new", "ben")
    assert isinstance(await ask(full.store, "new", "ben"), Granted)  # a repeat
    assert await full.store.leases.mark("once", fresh, "done")
    assert await full.store.leases.release([held, fresh]) == [True, True]
    assert await full.store.prune(idle=0) == Pruned(0, 0, more=False)


async def test_semaphores_and_lines_go_on(full: Full):
    held = [await take(full.store, "pool", holder, limit=2) for holder in "ab"]
    full.fill()
    for holder in "cd":
        await ask(full.store, "pool", holder, limit=2, waiting=60)
    assert await line(full.store, "pool") == ["c", "d"]
    assert await full.store.leases.renew(held) == [True, True]
    assert await full.store.leases.release(held[:1]) == [True]
    await take(full.store, "pool", "c", limit=2)
    assert await full.store.leases.release(held[1:]) == [True]
    assert await holders(full.store, "pool") == ["c"]


async def test_timers_tick_and_are_declared_rewritten_and_deleted(full: Full):
    await join(full.store, "ann", ttl=100)
    record = await create(full.store)
    full.clock.shift(60)
    full.fill()
    moved = (Write("sync", "moved", "ruler"),)
    ticked = plan_run(record, start_on="ann", writes=moved, declares=True, run_line=tick_line())
    assert (await send(full.store, ticked)).outcome == "done"
    assert (await look_at(full.store)).latest is not None
    other = await rewrite(full.store, await create(full.store, "other"), definition="larger")
    full.clock.shift(60)
    assert (await full.store.schedules.declare([("sync", "ruler")])).lost == []
    gone = plan(other, writes=(Write("other", None),))
    assert (await send(full.store, gone)).outcome == "done"
    assert [record.name for record in (await full.store.schedules.read()).records] == ["sync"]


async def test_sleeping_workers_are_woken(full: Full):
    job = await start_one(full.store, 1)
    full.fill()
    async with full.store.watch(("queue", "default")) as bell:
        assert await settle(full.store, job, "handed back") == "settled"
        assert await bell.wait(SIZE.patience)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("MISCONF Errors writing to the AOF file: No space left on device", StoreFull),
        ("MISCONF Errors writing to the AOF file: Input/output error", StoreUnavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
        # As Redis 6.2 puts it.
        ("ERR Error running script (call to f_0): @user_script:1: -OOM command not", StoreFull),
    ],
)
def test_a_full_disk_is_distinguished_from_a_broken_one(message: str, kind: type[StoreUnavailable]):
    fault = Address("redis://host:6379/0").fault(redis.ResponseError(message))
    assert type(fault) is kind


@asynccontextmanager
async def _read_only(full: Full) -> AsyncIterator[None]:
    """Let the server refuse every write, as one does whose disk is full."""
    operator = redis.Redis.from_url(full.server.url)
    operator.config_set("min-replicas-to-write", 1)
    yield
    operator.config_set("min-replicas-to-write", 0)


READS: dict[str, Callable[[RedisStore], Awaitable[object]]] = {
    "get": lambda store: store.jobs.get([id_of(1)]),
    "find": lambda store: store.jobs.find(),
    "counts": lambda store: store.jobs.counts(),
    "count_tagged": lambda store: store.jobs.count_tagged("t", unfinished=1, recent=1, within=1),
    "replicas": lambda store: store.jobs.replicas(),
    "leases": lambda store: store.leases.find(),
    "schedules": lambda store: store.schedules.read(),
    "decisions": lambda store: decisions(store, "sync"),
    "marked": lambda store: store.leases.marked(["once"]),
}


@pytest.mark.parametrize("name", READS)
async def test_a_server_that_refuses_writes_is_still_read(full: Full, name: str):
    await start(full.store, new(1, tags=("t",)))
    await create(full.store)
    await take(full.store, "lock", "ann")
    await READS[name](full.store)
    async with _read_only(full):
        with pytest.raises(StoreUnavailable, match="too few replicas"):
            await full.store.jobs.beat(["ann"], ttl=10)
        await READS[name](full.store)
