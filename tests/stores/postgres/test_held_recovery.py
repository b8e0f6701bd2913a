"""Recovery beside a transaction that holds a job of the dead replica, in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tenure.core.jobs import loss_policy
from tenure.core.jobs.records import JobRecord, NewJob, Settlement
from tenure.core.jobs.replicas import Orphans
from tenure.runtime.replica.recovery import take
from tenure.stores.postgres import PostgresStore
from tests.jobs.replicas import claim_and_die
from tests.rig.fixtures import Endpoint
from tests.stores.postgres.inside import connected, opening


@pytest.fixture
async def store(namespace: str, postgres_server: Endpoint) -> AsyncIterator[PostgresStore]:
    async with opening(namespace) as make:
        yield await make(postgres_server.url)


@pytest.fixture
async def operator(postgres_server: Endpoint) -> AsyncIterator[asyncpg.Connection]:
    async with connected(postgres_server.url) as connection:
        yield connection


async def test_the_others_are_reported_although_one_is_held(
    store: PostgresStore, operator: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
):
    """A look leaves out what is held, so it is held right after the look."""
    jobs = [NewJob(id=f"job-{n}", task="work", queue="default", payload=b"") for n in range(20)]
    await store.jobs.insert(jobs)
    await claim_and_die(store, ttl=0.2)
    await asyncio.sleep(0.4)

    def lost(job: JobRecord, at: int) -> Settlement:
        return loss_policy.lost(job, by="ann", at=at, delays=[600.0])

    async def look_and_hold(**options: Any) -> Orphans:
        orphans = await look(**options)
        hold = "SELECT 1 FROM tenure.job WHERE namespace = $1 AND id = 'job-7' FOR UPDATE"
        assert await operator.fetchval(hold, store.namespace)
        return orphans

    look = store.jobs.orphans
    async with operator.transaction():
        monkeypatch.setattr(store.jobs, "orphans", look_and_hold)
        taken = await take(store, by="ann", end=lost)
        monkeypatch.undo()
    assert taken is not None
    assert {recovery.became.id for recovery in taken} == {job.id for job in jobs} - {"job-7"}
    after = await take(store, by="ann", end=lost)
    assert after is not None
    assert [recovery.became.id for recovery in after] == ["job-7"]
