"""Ticks that replace a run which a transaction holds, in PostgreSQL."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.postgres import PostgresStore
from tests.contract.schedule_calls import bound, look_at, move, register, run
from tests.rig.fixtures import Endpoint
from tests.stores.postgres.inside import connected, opening


@pytest.fixture
async def store(namespace: str, postgres_server: Endpoint) -> AsyncIterator[PostgresStore]:
    async with opening(namespace) as make:
        store = await make(postgres_server.url)
        await store.jobs.beat(["ann"], ttl=600, meta={})
        yield store


@pytest.fixture
async def operator(postgres_server: Endpoint) -> AsyncIterator[asyncpg.Connection]:
    """A second session in the same database."""
    async with connected(postgres_server.url) as connection:
        yield connection


async def test_a_run_that_a_transaction_holds_is_cancelled_by_a_later_try(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    await register(store)
    now = (await store.ping()).now
    held = await run(store, now, replica="ann")
    newer = move(await look_at(store), now + 1, limit=bound(1, "newer", "cancel"))
    other = Scheduling(store)
    hold = "SELECT tenure.job_hold($1, $2, $3)"
    async with operator.transaction():
        assert await operator.fetchval(hold, namespace, held.id, held.fence)
        # It waits for the run for a moment, and then leaves that to its next try.
        assert (await other.advance(newer)).outcome == "held"
        (record,) = await store.jobs.get([held.id])
        assert record is not None
        assert not record.cancelling
    assert (await other.advance(newer)).outcome == "held"
    (record,) = await store.jobs.get([held.id])
    assert record is not None
    assert (record.cancelling, record.reason) == (True, "newer")
