"""Rows of PostgreSQL with counters out of bounds: constraints refuse them, neighbours go on."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tenure.core.bounds import INSTANT_MAX
from tenure.core.jobs.records import NewJob, Settlement
from tenure.core.schedules.records import Expected, ScheduleHead, Write
from tenure.stores.postgres import PostgresStore
from tests.contract.commit_calls import create, look_at, plan, rewrite, run, send, tick_line
from tests.rig.endings import settlement
from tests.rig.fixtures import Endpoint, PrivatePostgres
from tests.rig.lookups import decisions, stranded
from tests.rig.rights import as_app
from tests.stores.postgres.inside import Open, connected, opening

# What stopped a whole queue once, in one row of it.
POISON = [
    "attempt = 2147483647",
    "attempt = -2147483648",
    "failures = 2147483647",
    "fence = 9223372036854775807",
    "revision = 9223372036854775807",
    "timeout = 'NaN'",
    "timeout = 'Infinity'",
    "timeout = 1e300",
    "retention = 'NaN'",
    "retention = '-Infinity'",
    "retention = 1e300",
    "due = -9223372036854775808",
    "created = 9223372036854775807",
]
REFUSED = [text for text in POISON if "2147483647" not in text]


@pytest.fixture
async def open_store(namespace: str) -> AsyncIterator[Open]:
    async with opening(namespace) as make:
        yield make


@pytest.fixture(scope="module")
def bare_postgres() -> Any:
    """A server for this module, the constraints of which a test may drop."""
    from tests.rig.fixtures import require
    from tests.rig.servers import Postgres

    require("postgres")
    with Postgres() as server:
        yield server


@pytest.fixture
async def store(open_store: Open, bare_postgres: Any) -> PostgresStore:
    store = await open_store(bare_postgres.url)
    await store.jobs.beat(["ann"], ttl=600, meta={})
    return store


@pytest.fixture
async def operator(store: PostgresStore, bare_postgres: Any) -> AsyncIterator[asyncpg.Connection]:
    """A session of the owner, who has dropped the constraints of jobs and schedules."""
    async with connected(bare_postgres.url) as connection:
        for table in ("job", "job_done", "schedule", "schedule_decision"):
            await connection.execute(
                f"ALTER TABLE tenure.{table} DROP CONSTRAINT IF EXISTS {table}_sound"
            )
        for column in ("standing", "declared"):
            await connection.execute(f"ALTER TABLE tenure.schedule ALTER {column} DROP NOT NULL")
        yield connection


def new(number: int) -> NewJob:
    return NewJob(id=f"job-{number:06}", task="work", retention=600.0, timeout=60.0)


async def claimed(store: PostgresStore, number: int) -> list[Any]:
    got = await store.jobs.claim("ann", number, ["default"], 10)
    assert got is not None
    return got.jobs


def ends(jobs: list[Any], outcome: Any) -> list[Settlement]:
    return [settlement(id=job.id, fence=job.fence, outcome=outcome) for job in jobs]


@pytest.mark.parametrize("poison", REFUSED)
async def test_a_constraint_refuses_it(
    open_store: Open, postgres_server: Endpoint, namespace: str, poison: str
):
    store = await open_store(postgres_server.url)
    await store.jobs.insert([new(1)])
    async with connected(as_app(postgres_server.url)) as app:
        with pytest.raises(asyncpg.CheckViolationError):
            await app.execute(f"UPDATE tenure.job SET {poison} WHERE namespace = $1", namespace)


@pytest.mark.parametrize("poison", POISON)
async def test_one_row_that_waits_stops_no_queue(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, poison: str
):
    await store.jobs.insert([new(n) for n in range(4)])
    where = "WHERE namespace = $1 AND id = 'job-000000'"
    await operator.execute(f"UPDATE tenure.job SET {poison} {where}", namespace)
    jobs = await claimed(store, 1)
    assert {job.id for job in jobs} == {"job-000001", "job-000002", "job-000003"}
    assert await store.jobs.settle(ends(jobs, "succeeded")) == ["settled"] * 3
    assert [job.id for job in await stranded(store)] == ["job-000000"]
    assert await claimed(store, 2) == []


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "retry", "handed back"])
@pytest.mark.parametrize("poison", POISON)
async def test_one_row_that_runs_stops_no_settlement(
    store: PostgresStore,
    operator: asyncpg.Connection,
    namespace: str,
    poison: str,
    outcome: str,
):
    await store.jobs.insert([new(n) for n in range(4)])
    jobs = await claimed(store, 1)
    where = "WHERE namespace = $1 AND id = 'job-000000'"
    await operator.execute(f"UPDATE tenure.job SET {poison} {where}", namespace)
    assert (await store.jobs.settle(ends(jobs, outcome)))[1:] == ["settled"] * 3


async def test_rows_that_break_a_constraint_are_set_aside(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    """The constraint was dropped and put back without a check of the rows spoiled meanwhile."""
    await store.jobs.insert([new(n) for n in range(4)])
    running = await claimed(store, 1)
    await store.jobs.insert([new(n) for n in range(4, 8)])
    for id_ in ("job-000000", "job-000004", "job-000005"):
        await operator.execute("UPDATE tenure.job SET losses = -1 WHERE id = $1", id_)
    await operator.execute(
        "ALTER TABLE tenure.job ADD CONSTRAINT job_sound CHECK (state = 'aside' OR losses >= 0) "
        "NOT VALID"
    )
    assert {job.id for job in await claimed(store, 2)} == {"job-000006", "job-000007"}
    assert {report.name for report in store.damage} == {"job-000004", "job-000005"}
    assert await store.jobs.settle(ends(running, "retry")) == ["unreadable", *["settled"] * 3]
    assert {job.id for job in await stranded(store)} == {"job-000000", "job-000004", "job-000005"}


async def test_fences_go_on_by_the_clock_after_one_that_is_out_of_bounds(
    open_store: Open, private_postgres: PrivatePostgres, namespace: str
):
    server = private_postgres()
    store = await open_store(server.url)
    async with connected(server.url) as operator:
        await operator.execute("ALTER TABLE tenure.space DROP CONSTRAINT space_sound")
        await operator.execute(
            "INSERT INTO tenure.space VALUES ($1, 9223372036854775807)", namespace
        )
    first = await store.leases.acquire("one", holder="ann", limit=1, ttl=30, meta={})
    second = await store.leases.acquire("two", holder="ann", limit=1, ttl=30, meta={})
    assert 0 < first.lease.fence <= second.lease.fence <= (await store.ping()).now


UNUSABLE = [
    "declared = 9223372036854775807",
    "declared = -9223372036854775808",
    "declared = NULL",
    "last_run = 9223372036854775807",
    "standing = NULL",
]


@pytest.mark.parametrize("poison", UNUSABLE)
async def test_a_schedule_that_cannot_be_used_counts_as_not_there(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, poison: str
):
    broken, sound = await create(store, "broken"), await create(store, "sound")
    await send(store, plan(broken, lines=(tick_line("before", like="same"),)))
    where = "WHERE namespace = $1 AND name = 'broken'"
    await operator.execute(f"UPDATE tenure.schedule SET {poison} {where}", namespace)
    assert (await store.schedules.read()).records == [sound]
    assert {(report.kind, report.name) for report in store.damage} == {("timer", "broken")}
    assert (await store.schedules.declare([("broken", "ruler"), ("sound", "ruler")])).lost == [
        "broken"
    ]
    silent = Expected("broken", broken.version, silent_for=0.0)
    answers = await store.schedules.commit([plan(broken, expects=(silent,)), plan(sound)])
    assert [answer.outcome for answer in answers] == ["stale", "done"]
    assert answers[0].heads == (ScheduleHead("broken", ""),)
    # What expects no such schedule takes its place.
    above = Write("sound", "standing", "ruler", above=("broken",))
    await send(store, plan(sound, writes=(above,)))
    again = await create(store, "broken")
    assert (again.last_run, again.last_job, again.latest) == (0, "", None)
    await send(store, plan(again, lines=(tick_line("after", like="same"),)))
    assert [line.body for line in await decisions(store, "broken")] == ["after"]


@pytest.mark.parametrize("fence", [9223372036854775807, -1])
async def test_fences_of_runs_go_on_by_the_clock_after_one_that_is_out_of_bounds(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, fence: int
):
    record = await create(store)
    poison = "UPDATE tenure.schedule SET last_fence = $2 WHERE namespace = $1"
    await operator.execute(poison, namespace, fence)
    record = await rewrite(store, record)
    before = (await store.ping()).now
    first, second = [await run(store, record, start_on="ann") for _ in range(2)]
    assert before <= first.fence < second.fence <= INSTANT_MAX


LINES = [
    "first = 9223372036854775807",
    "last = -9223372036854775808",
    "ticks = 9223372036854775807",
    "ticks = -9223372036854775808",
    "at = 9223372036854775807",
]


@pytest.mark.parametrize("poison", LINES)
async def test_a_line_that_cannot_be_used_is_left_out(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, poison: str
):
    record = await create(store)
    await send(
        store, plan(record, lines=(tick_line("one", like="one"), tick_line("two", like="two")))
    )
    where = "WHERE namespace = $1 AND number = 2"
    await operator.execute(f"UPDATE tenure.schedule_decision SET {poison} {where}", namespace)
    assert [line.body for line in await decisions(store, "sync")] == ["one"]
    assert (await look_at(store)).latest is None
    assert {report.kind for report in store.damage} == {"decision"}
    more = (tick_line("three", like="two"), tick_line("four"))
    assert (await send(store, plan(record, lines=more))).outcome == "done"
    bodies = [line.body for line in await decisions(store, "sync")]
    assert bodies[0] == "four"
    assert bodies[-1] == "one"


@pytest.mark.parametrize("number", [9223372036854775807, INSTANT_MAX, -9223372036854775808])
async def test_a_line_with_a_number_that_cannot_be_counted_up_fails_no_commit(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, number: int
):
    record = await create(store)
    await send(store, plan(record, lines=(tick_line(like="same"),)))
    poison = "UPDATE tenure.schedule_decision SET number = $2 WHERE namespace = $1"
    await operator.execute(poison, namespace, number)
    for like in ("", "same", "same"):
        assert (await send(store, plan(record, lines=(tick_line(like=like),)))).outcome == "done"
    assert await decisions(store, "sync")
