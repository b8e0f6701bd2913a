"""The standby of a PostgreSQL server takes over: with all hosts in the URL, work goes on there."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from tenure import Tenure
from tenure.observe import Event, ReplicaLost, StoreFailing, StoreRestored
from tests.rig.binaries import find_postgres
from tests.rig.fixtures import PrivatePostgres
from tests.rig.servers import Postgres
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async


@pytest.fixture
def primary(private_postgres: PrivatePostgres) -> Postgres:
    postgres = find_postgres()
    assert postgres is not None
    if not postgres.with_name("pg_basebackup").exists():
        pytest.skip("no pg_basebackup beside the server")
    return private_postgres()


@pytest.fixture
def standby() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


async def follow(standby: Postgres, primary: Postgres) -> str:
    """Start the standby and return the URL of both."""
    await asyncio.to_thread(standby.follow, primary)
    await asyncio.to_thread(standby.start)
    hosts = [urlsplit(server.url).netloc.rpartition("@")[2] for server in (primary, standby)]
    return f"postgresql://tenure@{','.join(hosts)}/tenure"


async def fetch(server: Postgres, query: str) -> object:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.mark.timeout(120)
async def test_a_standby_that_is_promoted_is_followed(primary: Postgres, standby: Postgres):
    url = await follow(standby, primary)
    app = Tenure(url, replica_ttl=30)
    seen: list[Event] = []
    app.on_event(seen.append)
    began, go_on = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @app.task
    async def work(number: int) -> int:
        runs.append(number)
        began.set()
        await go_on.wait()
        return number

    async with app, app.worker(), app.lock("leader", ttl=60) as hold:
        job = await work.enqueue(1)
        await began.wait()
        waiting = await work.using(delay=3600).enqueue(2)
        end = await fetch(primary, "SELECT pg_current_wal_lsn()::text")
        caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn"
        await wait_until_async(lambda: fetch(standby, caught_up), SIZE.patience)
        await asyncio.to_thread(primary.kill)
        await wait_until_async(
            lambda: any(isinstance(event, StoreFailing) for event in seen), SIZE.patience
        )
        assert await fetch(standby, "SELECT pg_promote(wait => true)")
        go_on.set()
        assert await job.result(SIZE.patience) == 1
        assert (await waiting.refresh()).state == "waiting"
        assert await (await work.enqueue(3)).result(SIZE.patience) == 3
        await hold.renew()
        assert hold.is_held
    assert runs == [1, 3]
    assert (job.attempt, job.losses) == (1, 0)
    assert not [event for event in seen if isinstance(event, ReplicaLost)]
    assert any(isinstance(event, StoreRestored) for event in seen)
