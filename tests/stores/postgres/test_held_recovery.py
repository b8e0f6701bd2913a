"""Recovery beside transactions that hold jobs of the dead or leaving replica, in PostgreSQL."""

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
from tests.rig.endings import leave
from tests.rig.fixtures import Endpoint
from tests.rig.wait import wait_until_async
from tests.stores.postgres.inside import blocks_another, connected, opening


@pytest.fixture
async def store(namespace: str, postgres_server: Endpoint) -> AsyncIterator[PostgresStore]:
    async with opening(namespace) as make:
        yield await make(postgres_server.url)


@pytest.fixture
async def operator(postgres_server: Endpoint) -> AsyncIterator[asyncpg.Connection]:
    async with connected(postgres_server.url) as connection:
        yield connection


async def insert(store: PostgresStore, count: int) -> list[NewJob]:
    """Store due jobs, in the order in which they are claimed and locked."""
    jobs = [NewJob(id=f"job-{n}", task="work", queue="default", payload=b"") for n in range(count)]
    await store.jobs.insert(jobs)
    return jobs


async def hold(operator: asyncpg.Connection, store: PostgresStore, id_: str) -> None:
    """Lock a job until the end of the transaction."""
    statement = "SELECT 1 FROM tenure.job WHERE namespace = $1 AND id = $2 FOR UPDATE"
    assert await operator.fetchval(statement, store.namespace, id_)


async def test_the_others_are_reported_although_one_is_held(
    store: PostgresStore, operator: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
):
    """A look leaves out what is held, so it is held right after the look."""
    jobs = await insert(store, 20)
    await claim_and_die(store, ttl=0.2)
    await asyncio.sleep(0.4)

    def lost(job: JobRecord, at: int) -> Settlement:
        return loss_policy.lost(job, by="ann", at=at, delays=[600.0])

    async def look_and_hold(**options: Any) -> Orphans:
        orphans = await look(**options)
        await hold(operator, store, "job-7")
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


async def test_a_leaving_replica_hands_back_a_job_that_another_claim_has_found(
    store: PostgresStore, operator: asyncpg.Connection
):
    """The other claim looked while the job was waiting, and locks it though it runs by now."""
    first, second = await insert(store, 2)
    async with operator.transaction():
        search = await operator.cursor(
            "SELECT id FROM tenure.job WHERE namespace = $1 AND state = 'waiting' ORDER BY id "
            "FOR UPDATE SKIP LOCKED",
            store.namespace,
        )
        assert (await search.fetchrow())["id"] == first.id
        assert [job.id for job in await claim_and_die(store, "ann")] == [second.id]
        assert await search.fetchrow() is None
        leaving = asyncio.create_task(leave(store, "ann"))

        async def is_waiting_or_done() -> bool:
            return leaving.done() or await blocks_another(operator)

        await wait_until_async(is_waiting_or_done)
    assert await leaving == [second.id]
    assert await store.jobs.replicas() == []
    jobs = await store.jobs.get([first.id, second.id])
    assert [job and (job.state, job.losses) for job in jobs] == [("waiting", 0)] * 2


async def test_a_leaving_replica_gives_way_to_a_transaction_that_waits_for_its_jobs(
    store: PostgresStore, operator: asyncpg.Connection
):
    """PostgreSQL would end one of the two, perhaps the transaction of the user."""
    first, second = await insert(store, 2)
    await claim_and_die(store, "ann")
    async with operator.transaction():
        await hold(operator, store, second.id)
        leaving = asyncio.create_task(leave(store, "ann"))
        await wait_until_async(lambda: blocks_another(operator))
        await hold(operator, store, first.id)
    handed_back = [*await leaving, *await leave(store, "ann")]
    assert sorted(handed_back) == [first.id, second.id]
