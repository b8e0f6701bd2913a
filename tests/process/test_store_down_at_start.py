"""Workers and services that start while the server of their store is down."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tenure import StoreUnavailable, Tenure
from tenure.supervisor.health import ask_health
from tests.process.test_supervisor import supervised
from tests.process.workshop import Workshop
from tests.rig.servers import Postgres, Valkey
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async


def _status(health: Path) -> dict[str, Any]:
    try:
        return ask_health(health, 5)
    except OSError:
        return {}


@pytest.fixture
def health(tmp_path: Path) -> Path:
    """Where the worker answers."""
    return tmp_path / "health"


@pytest.mark.on("redis", "postgres")
async def test_a_worker_joins_when_its_store_appears(
    shop: Workshop, server: Valkey | Postgres, health: Path
):
    await asyncio.to_thread(server.stop)
    worker = supervised(shop, "--health", health)
    await wait_until_async(lambda: _status(health), SIZE.patience)
    status = _status(health)
    assert not status["ready"]
    assert status["waiting_for_store"]
    assert status["children"] == []
    assert "the store has failed the call open: the store" in worker.stderr
    await asyncio.to_thread(server.start)
    await wait_until_async(lambda: _status(health).get("ready"), SIZE.patience)
    job = await shop.tasks.count.enqueue(1)
    await shop.finished(job)
    assert job.state == "succeeded"
    assert "the store answers again, after" in worker.stderr
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, SIZE.patience) == 0


@pytest.mark.on("redis")
async def test_a_worker_that_waits_for_its_store_can_be_stopped(
    shop: Workshop, server: Valkey, health: Path
):
    await asyncio.to_thread(server.stop)
    worker = supervised(shop, "--health", health)
    await wait_until_async(lambda: _status(health).get("waiting_for_store"), SIZE.patience)
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, SIZE.patience) == 0
    assert worker.stderr.count("SIGTERM: stopping") == 1
    await asyncio.to_thread(server.start)


@pytest.mark.on("redis", "postgres")
async def test_a_service_starts_without_its_store(shop: Workshop, server: Valkey | Postgres):
    await asyncio.to_thread(server.stop)
    async with Tenure(shop.site.url, namespace=shop.site.namespace, connect="lazy") as app:
        with pytest.raises(StoreUnavailable):
            await app.locks()
        outcome = await app.with_lock("cron", lambda: 7, ttl=5, on_unavailable="run")
        assert (outcome.unlocked, outcome.value) == (True, 7)
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(SIZE.patience):
            await app.ready()
        assert await app.with_lock("cron", lambda: 7, ttl=5, on_unavailable="run")
