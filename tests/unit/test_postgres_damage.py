"""Rows of PostgreSQL that cannot be counted up: what refuses them, and how neighbours get by."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tenure.core.records import NewJob, Settlement
from tenure.stores.postgres import PostgresStore
from tests.rig.endings import settlement
from tests.rig.fixtures import Endpoint, PrivatePostgres
from tests.rig.rights import as_app
from tests.unit.postgres_inside import Open, connected, opening

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
REFUSED = [one for one in POISON if "2147483647" not in one]


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
    await store.join("ann", ttl=600, meta={})
    return store


@pytest.fixture
async def operator(store: PostgresStore, bare_postgres: Any) -> AsyncIterator[asyncpg.Connection]:
    """Somebody who owns the tables, and has dropped what guards those of jobs."""
    async with connected(bare_postgres.url) as connection:
        for table in ("job", "job_done"):
            await connection.execute(
                f"ALTER TABLE tenure.{table} DROP CONSTRAINT IF EXISTS {table}_sound"
            )
        yield connection


def new(number: int) -> NewJob:
    return NewJob(id=f"job-{number:06}", task="work", retention=600.0, timeout=60.0)


async def claimed(store: PostgresStore, number: int) -> list[Any]:
    got = await store.claim("ann", number, ["default"], 10)
    assert got is not None
    return got.jobs


def ends(jobs: list[Any], outcome: Any) -> list[Settlement]:
    return [settlement(id=job.id, fence=job.fence, outcome=outcome) for job in jobs]


@pytest.mark.parametrize("poison", REFUSED)
async def test_a_constraint_refuses_it(
    open_store: Open, postgres_server: Endpoint, namespace: str, poison: str
):
    store = await open_store(postgres_server.url)
    await store.insert([new(1)])
    async with connected(as_app(postgres_server.url)) as app:
        with pytest.raises(asyncpg.CheckViolationError):
            await app.execute(f"UPDATE tenure.job SET {poison} WHERE namespace = $1", namespace)


@pytest.mark.parametrize("poison", POISON)
async def test_one_row_that_waits_stops_no_queue(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, poison: str
):
    await store.insert([new(n) for n in range(4)])
    where = "WHERE namespace = $1 AND id = 'job-000000'"
    await operator.execute(f"UPDATE tenure.job SET {poison} {where}", namespace)
    jobs = await claimed(store, 1)
    assert {job.id for job in jobs} == {"job-000001", "job-000002", "job-000003"}
    assert await store.settle("ann", ends(jobs, "succeeded")) == ["settled"] * 3
    assert [one.id for one in await store.stranded()] == ["job-000000"]
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
    await store.insert([new(n) for n in range(4)])
    jobs = await claimed(store, 1)
    where = "WHERE namespace = $1 AND id = 'job-000000'"
    await operator.execute(f"UPDATE tenure.job SET {poison} {where}", namespace)
    assert (await store.settle("ann", ends(jobs, outcome)))[1:] == ["settled"] * 3


async def test_rows_that_break_a_constraint_are_set_aside(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    """Somebody has dropped the constraint, spoiled rows, and put it back without a look at them."""
    await store.insert([new(n) for n in range(4)])
    running = await claimed(store, 1)
    await store.insert([new(n) for n in range(4, 8)])
    for id_ in ("job-000000", "job-000004", "job-000005"):
        await operator.execute("UPDATE tenure.job SET losses = -1 WHERE id = $1", id_)
    await operator.execute(
        "ALTER TABLE tenure.job ADD CONSTRAINT job_sound CHECK (state = 'aside' OR losses >= 0) "
        "NOT VALID"
    )
    assert {job.id for job in await claimed(store, 2)} == {"job-000006", "job-000007"}
    assert {report.name for report in store.damage} == {"job-000004", "job-000005"}
    assert await store.settle("ann", ends(running, "retry")) == ["unreadable", *["settled"] * 3]
    stranded = {job.id for job in await store.stranded()}
    assert stranded == {"job-000000", "job-000004", "job-000005"}


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
    one = await store.acquire("one", holder="ann", limit=1, ttl=30, meta={})
    two = await store.acquire("two", holder="ann", limit=1, ttl=30, meta={})
    assert 0 < one.lease.fence <= two.lease.fence <= await store.now()
