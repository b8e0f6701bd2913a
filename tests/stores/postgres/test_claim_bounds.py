"""Claims while an old snapshot keeps PostgreSQL from forgetting jobs that were claimed."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from itertools import count
from statistics import median
from typing import Any

import asyncpg
import pytest

from tenure.core.clock import SystemClock
from tenure.core.jobs.records import Claimed, JobRecord, NewJob, Settlement
from tenure.stores.contract import Store
from tenure.stores.memory import MemoryStore
from tenure.stores.postgres import PostgresStore, claim_bounds
from tenure.stores.postgres.claim_bounds import Bounds, Look
from tenure.testing import ManualClock
from tests.rig.endings import settlement
from tests.rig.fixtures import Endpoint, PrivatePostgres
from tests.rig.sizes import SIZE
from tests.stores.postgres.inside import connected

JOBS = 4_000 if SIZE.name == "short" else 80_000
BATCH, LIMIT = 200, 10
PAGES = """
SELECT sum(pg_stat_get_xact_blocks_fetched(c.oid))::bigint FROM pg_class c
WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'i') AND c.relname LIKE $1
"""


class Meter:
    """Sends claims and beats of a store through a session of its own, and counts their pages."""

    def __init__(
        self, store: PostgresStore, session: asyncpg.Connection, tables: str = "%"
    ) -> None:
        self._session = session
        self._tables = tables
        self._fetch, store.fetch = store.fetch, self.fetch  # type: ignore[method-assign]
        self.claims: list[int] = []
        self.beats: list[int] = []

    async def fetch(self, statement: str, *arguments: object, about: Any = ()) -> list[Any]:
        counts = {"job_claim": self.claims, "replica_beat": self.beats}
        for name, pages in counts.items():
            if name in statement:
                before = await self._session.fetchval(PAGES, self._tables)
                rows = await self._session.fetch(statement, *arguments)
                pages.append(await self._session.fetchval(PAGES, self._tables) - before)
                return rows
        return await self._fetch(statement, *arguments, about=about)


def success(job: JobRecord) -> Settlement:
    return settlement(id=job.id, fence=job.fence, outcome="succeeded")


@pytest.mark.parametrize("holder", ["reader", "writer"])
async def test_claims_and_beats_cost_the_same_however_many_jobs_ran_since_an_old_snapshot(
    private_postgres: PrivatePostgres, holder: str
):
    url = private_postgres(config={"autovacuum": "off"}).url  # without snapshots of other tests
    clock = ManualClock()
    store = PostgresStore(url, namespace="n", clock=clock)
    await store.open()
    await store.jobs.beat(["ann"], ttl=6000, meta={})
    number = 0

    async def run_jobs(jobs: int) -> None:
        nonlocal number
        for _ in range(jobs // BATCH):
            ids = [f"{number:06}-{place:03}" for place in range(BATCH)]
            await store.jobs.insert([NewJob(id=id_, task="t", timeout=30.0) for id_ in ids])
            for _ in range(BATCH // LIMIT):
                number += 1
                claimed = await store.jobs.claim("ann", number, ["default"], LIMIT)
                assert claimed is not None
                assert len(claimed.jobs) == LIMIT
                await store.jobs.settle([success(job) for job in claimed.jobs])
            await clock.advance(0.2)
            await store.jobs.beat(["ann"], ttl=6000, count=False)

    async with connected(url) as session, connected(url) as old:
        meter = Meter(store, session)
        await run_jobs(BATCH * 2)
        fresh, fresh_beat = median(meter.claims), median(meter.beats)
        await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await old.fetch("SELECT count(*) FROM tenure.job")
        if holder == "writer":
            await old.fetch("SELECT pg_current_xact_id()")
        await run_jobs(JOBS)
    await store.close()
    # One claim of a second, which has a hundred here, begins at the first entry.
    *most, _ = sorted(meter.claims[-80:])
    assert max(most) <= 2 * fresh
    assert max(meter.beats[-5:]) <= 2 * fresh_beat


async def test_claims_find_the_last_one_however_many_there_were_since_an_old_snapshot(
    private_postgres: PrivatePostgres,
):
    url = private_postgres(config={"autovacuum": "off"}).url
    store = PostgresStore(url, namespace="n", clock=ManualClock())
    await store.open()
    await store.jobs.beat(["ann"], ttl=6000, meta={})
    async with connected(url) as session, connected(url) as old:
        meter = Meter(store, session, "replica_claim%")
        await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await old.fetch("SELECT count(*) FROM tenure.job")
        for number in range(1, 601):
            assert await store.jobs.claim("ann", number, ["default"], LIMIT) is not None
    await store.close()
    assert median(meter.claims[-50:]) <= median(meter.claims[:50]) + 2


# What bounds do to the order. They are always in use here.

TTL = 6000.0


class Desk:
    """A store that a test claims from, with one replica."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self._number = 0
        self._claims = 0
        self.next_in: float | None = None

    async def insert(self, *jobs: dict[str, Any]) -> list[str]:
        return [answer.id for answer in await self.store.jobs.insert(self.new(*jobs))]

    def new(self, *jobs: dict[str, Any]) -> list[NewJob]:
        """Return jobs with ids in the order of calls."""
        made = []
        for options in jobs:
            self._number += 1
            made.append(NewJob(**{"id": f"job-{self._number:06}", "task": "t", **options}))
        return made

    async def take(self, limit: int = 10, queues: Sequence[str] = ("default",)) -> list[JobRecord]:
        self._claims += 1
        claimed = await self.store.jobs.claim("ann", self._claims, queues, limit)
        assert isinstance(claimed, Claimed)
        self.next_in = claimed.next_in
        return claimed.jobs

    async def claim(self, limit: int = 10, queues: Sequence[str] = ("default",)) -> list[str]:
        return [job.id for job in await self.take(limit, queues)]

    async def settle(self, job: JobRecord, outcome: Any, delay: float = 0.0) -> None:
        ending = settlement(id=job.id, fence=job.fence, outcome=outcome, delay=delay)
        assert await self.store.jobs.settle([ending]) == ["settled"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def desk(
    postgres_server: Endpoint, namespace: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Desk]:
    monkeypatch.setattr(claim_bounds, "_QUEUE_PAGES", -1000)
    store = PostgresStore(postgres_server.url, namespace=namespace, clock=clock)
    await store.open()
    await store.jobs.beat(["ann"], ttl=TTL, meta={})
    desk = Desk(store, clock)
    await desk.insert({}, {})
    await desk.claim()
    assert store.jobs._bounds._lines
    yield desk
    await store.close()


@pytest.fixture
async def user(postgres_server: Endpoint) -> AsyncIterator[asyncpg.Connection]:
    """A user of the same database, with transactions of their own."""
    async with connected(postgres_server.url) as connection:
        yield connection


async def comes_within_a_second(desk: Desk, id_: str) -> None:
    """Check that a job that came late is claimed by the time at which workers look again."""
    claimed = await desk.claim()
    if not claimed:
        assert desk.next_in is not None
        assert 0 <= desk.next_in <= 1
        await desk.clock.advance(desk.next_in)
        claimed = await desk.claim()
    assert claimed == [id_]


async def test_a_job_that_is_handed_back_comes_within_a_second(desk: Desk):
    await desk.insert({})
    [job] = await desk.take()
    await desk.clock.advance(0.1)
    [other] = await desk.insert({})
    assert await desk.claim() == [other]
    await desk.settle(job, "handed back")
    await comes_within_a_second(desk, job.id)


async def test_a_job_with_an_instant_in_the_past_comes_within_a_second(desk: Desk):
    [late] = await desk.insert({"at": desk.clock.wall() - 60_000_000})
    await comes_within_a_second(desk, late)


@pytest.mark.parametrize("seconds", [0.5, 20.0])
async def test_jobs_come_once_their_transaction_is_committed(
    desk: Desk, user: asyncpg.Connection, seconds: float
):
    await user.execute("BEGIN")
    store = desk.store
    assert isinstance(store, PostgresStore)
    [job] = desk.new({})
    await store.within(user, "within()").insert([job])
    for _ in range(10):
        await desk.clock.advance(seconds / 10)
        [other] = await desk.insert({})
        assert await desk.claim() == [other]
    await user.execute("COMMIT")
    if seconds < 1:
        assert await desk.claim() == [job.id]  # no bound goes past a transaction that is young
    else:
        await comes_within_a_second(desk, job.id)


async def test_a_clock_that_is_set_back_hides_no_job(desk: Desk):
    await desk.clock.advance(0.5)
    await desk.insert({})
    await desk.claim()
    desk.clock.step(-3600)
    [job] = await desk.insert({})
    await comes_within_a_second(desk, job)
    [job] = await desk.insert({})
    assert await desk.claim() == [job]


async def test_a_store_that_is_cheap_again_uses_no_bounds(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.undo()
    await desk.clock.advance(1)
    await desk.claim()
    [late] = await desk.insert({"at": desk.clock.wall() - 60_000_000})
    assert await desk.claim() == [late]


@pytest.mark.parametrize("seed", range(SIZE.rounds // 5))
async def test_jobs_that_come_in_time_are_claimed_as_without_bounds(
    desk: Desk, clock: ManualClock, seed: int
):
    memory = MemoryStore("memory://", namespace="spec", clock=clock)
    await memory.open()
    await memory.jobs.beat(["ann"], ttl=TTL, meta={})
    spec = Desk(memory, clock)
    await spec.insert({}, {})
    await spec.claim()
    chance = random.Random(seed)
    for _ in range(40):
        if chance.random() < 0.5:
            jobs = [
                {
                    "queue": chance.choice("ab"),
                    "priority": chance.choice([0, 5, 9]),
                    "delay": chance.choice([0.0, 0.0, 0.03, 0.4]),
                }
                for _ in range(chance.choice([1, 3, 8]))
            ]
            assert await desk.insert(*jobs) == await spec.insert(*jobs)
        if chance.random() < 0.1:
            queue = chance.choice("ab")
            for store in (desk.store, spec.store):
                await store.jobs.pause(queue, seconds=0.2)
        if chance.random() < 0.1:
            for store in (desk.store, spec.store):
                await store.jobs.pause("a", seconds=0)
        if chance.random() < 0.7:
            limit, queues = chance.choice([1, 2, 5]), chance.choice(["ab", "ba", "a"])
            got, expected = await desk.take(limit, queues), await spec.take(limit, queues)
            assert [job.id for job in got] == [job.id for job in expected]
            delay = chance.choice([0.02, 0.3])
            outcome = chance.choice(["succeeded", "retry"])
            for place, job in enumerate(got):
                await desk.settle(job, outcome, delay)
                await spec.settle(expected[place], outcome, delay)
        await clock.advance(chance.choice([0.0, 0.001, 0.01, 0.1]))


async def test_no_job_is_lost_while_many_insert_and_claim(
    desk: Desk, postgres_server: Endpoint, namespace: str
):
    stores = [
        PostgresStore(postgres_server.url, namespace=namespace, clock=SystemClock())
        for _ in range(3)
    ]
    left = {f"{place}-{number:03}" for place in range(3) for number in range(SIZE.jobs // 2)}

    async def insert(place: int) -> None:
        for id_ in sorted(left):
            if id_.startswith(f"{place}-"):
                delay = 0.05 if id_.endswith("3") else 0.0
                await stores[place].jobs.insert(
                    [NewJob(id=id_, task="t", queue="many", delay=delay)]
                )

    async def claim(place: int) -> None:
        store = stores[place]
        await store.jobs.beat([f"ben{place}"], ttl=TTL, meta={})
        for number in count(1):
            claimed = await store.jobs.claim(f"ben{place}", number, ["many"], 5)
            assert claimed is not None
            for job in claimed.jobs:
                left.remove(job.id)  # once
            if not left:
                break
            await store.jobs.settle([success(job) for job in claimed.jobs])

    for store in stores:
        await store.open()
    async with asyncio.timeout(SIZE.patience):
        await asyncio.gather(*(call(place) for place in range(3) for call in (insert, claim)))
    for store in stores:
        await store.close()


# The rule itself.


def look(at: int, snapshot: str, **details: Any) -> Look:
    return Look(
        **{
            "at": at * 1000,
            "snapshot": snapshot,
            "open": ["q"],
            "taken": [],
            "limit": 5,
            **details,
        }
    )


def starts_after(*looks: Look) -> list[int]:
    """Return the bounds after these looks: of jobs that wait for their time, then by priority."""
    rule = Bounds()
    for number, seen in enumerate(looks):
        rule.end(["q"], rule.begin(["q"], number / 100), seen, 0, number / 100)
    starts = rule.begin(["q"], len(looks) / 100)
    assert starts is not None
    return [int(start) for start in starts]


FIRST = -(2**63)


def test_bounds_go_to_the_last_look_if_nothing_was_running():
    assert starts_after(look(500, "70:70:70:")) == [500] * 11


def test_bounds_stay_behind_transactions_that_may_hold_jobs():
    first = look(500, "70:70:70:")
    assert starts_after(first, look(510, "75:72:78:72,74")) == [500] * 11
    # Numbers from the end of the snapshot on can be those of transactions that have begun.
    assert starts_after(first, look(510, "75:73:73:")) == [500] * 11
    assert starts_after(look(510, "75:69:80:69")) == [FIRST] * 11


def test_transactions_that_are_open_for_long_hold_no_bound_back():
    assert starts_after(look(500, "70:69:70:69"), look(1600, "90:69:90:69")) == [1600] * 11


def test_bounds_stop_where_jobs_may_be_left():
    full = [("q", 3, 480_000), ("q", 3, 490_500)]
    before = look(400, "70:70:70:")
    after = look(500, "80:80:80:", taken=full, limit=2)
    assert starts_after(before, after) == [500, 500, 500, 500, 490] + [400] * 6
    moved = look(500, "80:80:80:", taken=full, limit=2, moved=2)
    assert starts_after(before, moved) == [400, 500, 500, 500, 490] + [400] * 6


def test_a_queue_that_is_paused_keeps_its_bounds():
    assert starts_after(look(400, "70:70:70:"), look(500, "80:80:80:", open=[])) == [400] * 11


def test_a_claim_begins_at_the_first_entry_unless_that_was_expensive():
    rule = Bounds()
    assert rule.begin(["q"], 0) is None
    rule.end(["q"], None, look(500, "70:70:70:"), 0, 0)
    assert rule.begin(["q"], 0.9) == ["500"] * 11
    assert rule.begin(["q", "r"], 0.9) is None
    assert rule.begin(["q"], 1.0) is None
    rule.end(["q"], None, None, 1, 1)
    assert rule.begin(["q"], 1) is None


def test_expensive_looks_take_one_hundredth_of_the_time():
    rule = Bounds()
    rule.end(["q"], None, look(500, "70:70:70:"), 10.0, 10.25)
    assert [rule.whole_in(10.25), rule.whole_in(20.25), rule.whole_in(90)] == [25, 15, 0]
