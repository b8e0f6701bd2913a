"""What `app.health()` finds on memory, in virtual time; real stores are in tests/process."""

import asyncio
from typing import Any

import pytest

from tenure import HealthCheck, StoreFull, Tenure
from tenure.app import engine_of
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.jobs.replicas import Make


async def check(app: Tenure, name: str) -> HealthCheck | None:
    checks = {check.name: check for check in (await app.health()).checks}
    return checks.get(name)


async def test_a_worker_whose_record_has_expired_is_not_alive(
    make: Make, store: Store, clock: ManualClock
):
    app = await make()
    await app.task(name="work")(_nothing).enqueue()
    await store.jobs.beat(["r-1"], ttl=10, meta={})
    alive = await check(app, "workers")
    clock.shift(11)
    dead = await check(app, "workers")
    assert alive is not None
    assert dead is not None
    assert (alive.status, alive.detail) == ("healthy", "1 alive")
    assert (dead.status, dead.detail) == ("degraded", "none is alive; unfinished jobs: 1")


async def test_a_refused_enqueue_counts_for_a_minute(
    make: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def refuse(*_: object) -> None:
        raise StoreFull("the store is full")

    app = await make()
    work = app.task(name="work")(_nothing)
    monkeypatch.setattr(engine_of(app).services().store.jobs, "insert", refuse, raising=False)
    with pytest.raises(StoreFull):
        await work.enqueue()
    clock.shift(59)
    refused = await check(app, "enqueue")
    assert refused is not None
    assert (refused.status, refused.detail) == ("degraded", "the store is full")
    clock.shift(1)
    assert await check(app, "enqueue") is None


async def test_a_test_lease_that_is_granted_too_late_is_released(
    make: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    app = await make()
    leases = engine_of(app).services().store.leases
    acquire = leases.acquire

    async def acquire_slowly(*arguments: Any, **options: Any) -> Any:
        answer = await acquire(*arguments, **options)
        await clock.sleep(60)
        return answer

    monkeypatch.setattr(leases, "acquire", acquire_slowly, raising=False)
    looking = asyncio.ensure_future(app.health(timeout=1))
    await clock.advance(2)
    [writes] = [each for each in (await looking).checks if each.name == "writes"]
    assert writes.status == "unhealthy"
    assert await app.locks() == []


async def _nothing() -> None: ...
