"""An app on a store that keeps leases only: locks work, other calls name what they need."""

import pytest

from tenure import ConfigError, Tenure
from tenure.stores.connect import connect
from tenure.testing import ManualClock


class LeasesAlone:
    """The leases of a memory store, and nothing else of it."""

    def __init__(self, store):
        self._store = store
        self.leases, self.clock, self.damage = store.leases, store.clock, store.damage
        self.namespace, self.url, self.traits = store.namespace, "leases://", store.traits
        for name in ("open", "close", "abandon", "ping", "watch", "prune", "examine", "within"):
            setattr(self, name, getattr(store, name))

    def clone(self):
        return LeasesAlone(self._store.clone())


@pytest.fixture
async def app():
    clock = ManualClock()
    async with Tenure(LeasesAlone(connect("memory://", namespace="t", clock=clock))) as app:
        yield app


async def test_locks_semaphores_elections_and_run_once_work(app: Tenure):
    async with app.lock("invoice") as hold:
        assert hold.fence > 0
        assert await app.lock("invoice").try_acquire() is None
    async with app.semaphore("api", limit=2), app.semaphore("api", limit=2):
        assert len(await app.locks("api")) == 2

    assert await app.once("migration", lambda: None)
    assert not await app.once("migration", lambda: None)
    async for term in app.election("primary").terms():
        assert term.fence > 0
        break


async def test_calls_that_need_jobs_name_stores_that_keep_them(app: Tenure):
    @app.task
    async def send(number: int) -> None: ...

    for call in (lambda: send.enqueue(7), app.queues, app.replicas, app.timers, app.jobs):
        with pytest.raises(ConfigError, match=r"leases:// keeps locks only; it has no .* Use a"):
            await call()
    with pytest.raises(ConfigError, match="keeps locks only"):
        app.worker()


async def test_it_is_healthy_without_jobs_also_with_a_subscriber():
    stores = connect("memory://", namespace="t", clock=ManualClock())
    app = Tenure(LeasesAlone(stores))
    app.on_event(lambda _: None)
    async with app:
        health = await app.health()
    assert health.status == "healthy"
    assert not {"workers", "queues"} & {check.name for check in health.checks}
