"""`app.health()` on real stores in trouble: the right word, within its own time limit."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import pytest
import redis

from tenure import Health, HealthCheck, StoreFull, Tenure, blocking
from tenure.core.clock import SystemClock
from tenure.stores.connect import connect
from tenure.stores.sqlite import SqliteStore
from tests.rig.fixtures import Endpoint, PrivatePostgres, PrivateValkey, ProxyTo
from tests.rig.servers import Postgres, Valkey
from tests.rig.wait import wait_until_async
from tests.stores.sqlite.inside import inside

LIMIT = 1.0
# Stores wait for 5 s before they call a server silent, so no answer within 4 s came from there.
SLACK = 3.0


async def look(app: Tenure) -> Health:
    """Return the health, which must come within its time limit."""
    began = time.monotonic()
    health = await app.health(timeout=LIMIT)
    assert time.monotonic() - began < LIMIT + SLACK
    return health


def check_of(health: Health, name: str) -> HealthCheck:
    [check] = [check for check in health.checks if check.name == name]
    return check


@asynccontextmanager
async def service(
    url: str, namespace: str, clock: SystemClock | None = None
) -> AsyncIterator[Tenure]:
    """Open an app that is healthy when it begins."""
    store = connect(url, namespace=namespace, clock=clock or SystemClock())
    async with Tenure(store, namespace=namespace) as app:
        yield app


@pytest.fixture(params=["redis", "postgres"])
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """A server shared by many tests, with the rights that a store needs."""
    kind = {"redis": "valkey_server", "postgres": "postgres_server"}[request.param]
    shared: Endpoint = request.getfixturevalue(kind)
    return shared


async def test_a_store_without_trouble_is_healthy_and_keeps_nothing(world_url: str, namespace: str):
    async with service(world_url, namespace) as app:
        for _ in range(2):
            health = await look(app)
            assert health.status == "healthy", health
        assert {check.name for check in health.checks} >= {"store", "writes", "clock", "grade"}
        assert await app.locks() == []


async def test_the_health_of_a_worker_counts_its_heartbeats(world_url: str, namespace: str):
    async with service(world_url, namespace) as app:
        async with app.worker() as worker:
            await worker.ready()
            health = await look(app)
            assert check_of(health, "heartbeat").status == "healthy"
            assert check_of(health, "workers").detail == "1 alive"
        assert "heartbeat" not in {check.name for check in (await look(app)).checks}


async def test_a_server_that_cannot_be_reached(endpoint: Endpoint, namespace: str, proxy: ProxyTo):
    line = proxy(endpoint)
    async with service(line.url(endpoint.app_url), namespace) as app:
        line.refuse()
        line.cut_all()
        health = await look(app)
        assert (health.status, health.is_ready) == ("unhealthy", False)
        assert check_of(health, "store").status == "unhealthy"
        assert check_of(health, "writes").detail == (
            "not checked, because the store does not answer"
        )
        line.heal()
        await wait_until_async(lambda: _is_healthy(app))


async def test_a_server_that_is_silent(endpoint: Endpoint, namespace: str, proxy: ProxyTo):
    line = proxy(endpoint)
    async with service(line.url(endpoint.app_url), namespace) as app:
        line.freeze()
        for _ in range(3):
            health = await look(app)
            assert check_of(health, "store").detail == "no answer within 1 s"
            assert health.status == "unhealthy"
        line.heal()
        await wait_until_async(lambda: _is_healthy(app))


async def test_a_server_that_is_slow(endpoint: Endpoint, namespace: str, proxy: ProxyTo):
    line = proxy(endpoint)
    async with service(line.url(endpoint.app_url), namespace) as app:
        line.delay(0.3)
        health = await app.health(timeout=20)
        assert (health.status, health.is_ready) == ("degraded", True)
        assert check_of(health, "store").detail.startswith("slow: a ping took ")
        assert check_of(health, "writes").status == "healthy"
        line.delay(0.7)
        health = await look(app)
        assert (health.status, health.is_ready) == ("unhealthy", False)
        line.delay(0.0)


async def test_a_clock_that_is_wrong(endpoint: Endpoint, namespace: str):
    class Late(SystemClock):
        def wall(self) -> int:
            return super().wall() - 90_000_000

    async with service(endpoint.app_url, namespace, Late()) as app:
        health = await look(app)
        assert (health.status, health.is_ready) == ("degraded", True)
        assert "1 min 30 s ahead of this host's" in check_of(health, "clock").detail


@pytest.fixture
def valkey(private_valkey: PrivateValkey) -> Valkey:
    """A server of this test alone."""
    return private_valkey()


async def test_a_redis_server_that_is_full_takes_no_jobs(valkey: Valkey, namespace: str):
    operator = redis.Redis.from_url(valkey.url)
    async with service(valkey.url, namespace) as app:

        @app.task
        async def send_mail() -> None: ...

        operator.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            await send_mail.enqueue()
        health = await look(app)
        assert (health.status, health.is_ready) == ("degraded", True)
        assert "is full and takes no new jobs" in check_of(health, "enqueue").detail
        assert check_of(health, "writes").status == "healthy"  # locks work

        operator.config_set("maxmemory", 0)
        await send_mail.enqueue()
        assert "enqueue" not in {check.name for check in (await look(app)).checks}


async def test_a_file_on_a_full_disk_takes_no_jobs(tmp_path: Path, namespace: str):
    def grow_no_more(db: sqlite3.Connection) -> None:
        [[pages]] = db.execute("PRAGMA page_count").fetchall()
        db.execute(f"PRAGMA max_page_count = {pages + 20}")

    store = SqliteStore(f"sqlite:///{tmp_path}/tenure.db", namespace=namespace, clock=SystemClock())
    async with Tenure(store, namespace=namespace) as app:

        @app.task
        async def carry(load: str) -> None: ...

        await inside(store, grow_no_more)
        with pytest.raises(StoreFull):
            await app.enqueue_many([carry.request("x" * 50_000) for _ in range(20)])
        health = await look(app)
        assert health.status in {"degraded", "unhealthy"}
        assert any("disk is full" in check.detail for check in health.checks)


def _stand_by(operator: redis.Redis) -> None:
    operator.replicaof("127.0.0.1", "1")


def _lose_replicas(operator: redis.Redis) -> None:
    operator.config_set("min-replicas-to-write", 1)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(_stand_by, "read-only replica"), (_lose_replicas, "too few replicas")],
)
async def test_a_redis_server_that_refuses_writes(
    valkey: Valkey, namespace: str, spoil: Callable[[redis.Redis], None], words: str
):
    async with service(valkey.url, namespace) as app:
        spoil(redis.Redis.from_url(valkey.url))
        health = await look(app)
        assert (health.status, health.is_ready) == ("unhealthy", False)
        assert any(words in check.detail for check in health.checks)


@pytest.fixture
def postgres(private_postgres: PrivatePostgres) -> Postgres:
    """A server of this test alone."""
    return private_postgres()


async def test_a_postgres_server_that_is_read_only(postgres: Postgres, namespace: str):
    async with service(postgres.url, namespace) as app:
        operator = await asyncpg.connect(postgres.url)
        await operator.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await operator.execute("SELECT pg_reload_conf()")
        await operator.close()

        async def is_refused() -> bool:  # connections learn of it a moment later
            writes = check_of(await look(app), "writes")
            return writes.status == "unhealthy" and "read-only" in writes.detail

        await wait_until_async(is_refused)
        assert check_of(await look(app), "store").status == "healthy"


async def test_a_file_that_another_program_has_locked(tmp_path: Path, namespace: str):
    path = tmp_path / "tenure.db"
    async with service(f"sqlite:///{path}", namespace) as app:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            health = await look(app)
            other.execute("ROLLBACK")
        assert health.status == "unhealthy"
        assert check_of(health, "store").status == "healthy"  # reading works
        assert check_of(health, "writes").detail == "a test lease was not granted within 1 s"
        await wait_until_async(lambda: _is_healthy(app))


async def test_a_file_that_was_moved_away(tmp_path: Path, namespace: str):
    folder = tmp_path / "folder"
    folder.mkdir()
    async with service(f"sqlite:///{folder / 'tenure.db'}", namespace) as app:
        folder.rename(tmp_path / "elsewhere")
        health = await look(app)
        assert health.status == "unhealthy"
        assert str(folder) in check_of(health, "store").detail


async def test_details_have_no_password_and_no_name_of_a_lock(valkey: Valkey, namespace: str):
    operator = redis.Redis.from_url(valkey.url)
    everything = {"keys": ["*"], "channels": ["*"], "categories": ["+@all"]}
    operator.acl_setuser("ann", enabled=True, passwords=["+hunter2"], **everything)
    url = valkey.url.replace("redis://", "redis://ann:hunter2@")
    async with service(url, namespace) as app, app.lock("customer:4711"):
        texts = [str((await look(app)).document())]
        operator.config_set("min-replicas-to-write", 1)
        texts.append(str((await look(app)).document()))
        operator.config_set("min-replicas-to-write", 0)
        await asyncio.to_thread(valkey.pause)
        texts.append(str((await look(app)).document()))
        await asyncio.to_thread(valkey.resume)
    assert not [text for text in texts if "hunter2" in text or "4711" in text]


def test_threads_get_the_same_answer(world_url: str, namespace: str):
    app = blocking.Tenure(world_url, namespace=namespace)
    assert app.health().status == "unhealthy"
    assert "is not open" in app.health().checks[0].detail
    with app:
        health = app.health(timeout="5s")
        assert health.status == "healthy", health
        threads = [threading.Thread(target=app.health) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert app.locks() == []
    assert app.health().status == "unhealthy"


async def _is_healthy(app: Tenure) -> bool:
    return (await app.health(timeout=LIMIT)).status == "healthy"
