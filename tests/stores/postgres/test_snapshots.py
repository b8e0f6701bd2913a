"""Beats while an old snapshot keeps PostgreSQL from forgetting finished jobs and old records."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure.core.jobs.records import NewJob
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.replicas import _Looks
from tenure.testing import ManualClock
from tests.rig.endings import recover, settlement
from tests.rig.fixtures import PrivatePostgres
from tests.stores.postgres.inside import connected

ROUNDS, JOBS = 170, 20
TTL = 10.0


@pytest.fixture
async def url(private_postgres: PrivatePostgres) -> str:
    """A server of its own: snapshots of other tests must not matter."""
    return private_postgres(config={"autovacuum": "off"}).url


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, namespace="n", clock=ManualClock())
    await store.open()
    await store.jobs.beat(["ann"], ttl=TTL, meta={})
    await store.jobs.beat(["ann"], ttl=TTL)  # planned while all tables are empty
    yield store
    await store.close()


async def run_jobs(store: PostgresStore, rounds: range) -> None:
    """Let jobs through in each round, which takes a second, and beat after it."""
    assert isinstance(store.clock, ManualClock)
    for number in rounds:
        ids = [f"{number:04}-{place:03}" for place in range(JOBS)]
        await store.jobs.insert([NewJob(id=id_, task="t", timeout=30.0) for id_ in ids])
        claimed = await store.jobs.claim("ann", number, ["default"], JOBS)
        assert claimed is not None
        done = [settlement(id=job.id, fence=job.fence, outcome="succeeded") for job in claimed.jobs]
        await store.jobs.settle(done)
        await store.clock.advance(1)
        await store.jobs.beat(["ann"], ttl=TTL, count=False)


class Meter:
    """Counts the pages that the beats of a store touch."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._fetch, store.fetch = store.fetch, self.fetch  # type: ignore[method-assign]
        self.pages: list[int] = []

    async def fetch(self, statement: str, *arguments: object, about: Any = ()) -> list[Any]:
        if "replica_beat" in statement:
            explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
            [[plan]] = await self._fetch(explain, *arguments)
            top = json.loads(plan)[0]["Plan"]
            self.pages.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
        return await self._fetch(statement, *arguments, about=about)


async def test_beats_cost_the_same_however_many_jobs_ran_since_an_old_snapshot(
    store: PostgresStore, url: str
):
    meter = Meter(store)
    async with connected(url) as holder:
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await holder.fetch("SELECT count(*) FROM tenure.job")
        await run_jobs(store, range(1, 1 + ROUNDS))
    # Deadlines pass from the thirtieth round on. Beats look at those of the last seconds, and once
    # a minute at all of them.
    early, late = sorted(meter.pages[45:50]), sorted(meter.pages[-5:])
    assert late[2] <= 2 * early[2]
    assert len([pages for pages in meter.pages[45:] if pages > 2 * late[2]]) <= 2


async def test_every_beat_reports_what_expires(store: PostgresStore):
    clock = store.clock
    assert isinstance(clock, ManualClock)
    await store.jobs.beat(["ben"], ttl=1, meta={})
    await store.jobs.insert([NewJob(id="a", task="t", timeout=48.0)])
    assert await store.jobs.claim("ann", 1, ["default"], 1) is not None

    async def expired() -> bool:
        [beat] = await store.jobs.beat(["ann"], ttl=TTL)
        assert beat is not None
        return beat.expired

    async def looks() -> list[bool]:
        answers = []
        for _ in range(4):
            answers.append(await expired())
            await clock.advance(6)  # all of it is more than the time that a look goes back
        return answers

    assert not await expired()
    await clock.advance(2)
    assert await looks() == [True] * 4  # ben
    assert await recover(store, delays=[0], grace=0) == []
    assert await looks() == [False] * 4
    await clock.advance(2)
    assert await looks() == [True] * 4  # the deadline of the job


def test_looks_begin_where_the_last_one_found_nothing():
    looks = _Looks()
    assert looks.begin(0) is None
    looks.end(None, 50_000_000, has_expired=False)
    assert looks.begin(3) == 40_000_000
    looks.end(40_000_000, 53_000_000, has_expired=True)
    assert [looks.begin(6), looks.begin(9)] == [None, None]
    looks.end(40_000_000, 54_000_000, has_expired=False)  # one that was sent before the find
    assert looks.begin(10) is None
    looks.end(None, 60_000_000, has_expired=False)
    assert looks.begin(69) == 50_000_000
    assert looks.begin(70) is None  # once a minute from the first on
    looks.end(None, 20_000_000, has_expired=False)  # the clock was set back
    assert looks.begin(71) is None
    looks.end(None, 21_000_000, has_expired=False)
    assert looks.begin(72) == 11_000_000
