"""A store that is down when a service starts: with connect="lazy" it starts all the same."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenure import ConfigError, StoreError, StoreUnavailable, Tenure, blocking
from tenure.core.clock import SystemClock
from tenure.observe import Event, RanUnlocked, StoreFailing, StoreRestored
from tenure.stores.connect import connect
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.contract.worlds import World
from tests.rig.interrupts import INTERRUPTS, interrupted
from tests.rig.sizes import SIZE

MANY = 10**6


class Service:
    """An app that was opened while its store was down, in virtual time."""

    def __init__(self, clock: ManualClock, **options: object) -> None:
        self.clock = clock
        self.faults = Faults()
        self.faults.lose_request("open", MANY)
        self.world = connect("memory://", namespace="test", clock=clock)
        self.app = Tenure(FaultyStore(self.world.clone(), self.faults), **options)
        self.events: list[Event] = []
        self.app.on_event(self.events.append)

    async def restore_store(self) -> None:
        self.faults.heal()
        await self.clock.advance(2)


@pytest.fixture
async def service(clock: ManualClock) -> AsyncIterator[Service]:
    service = Service(clock, connect="lazy")
    async with service.app:
        yield service


async def test_without_being_asked_it_fails_at_once(clock: ManualClock):
    app = Service(clock).app
    with pytest.raises(StoreUnavailable):
        await app.open()
    assert not app.is_open


async def test_the_service_starts_and_the_first_success_opens_the_store(service: Service):
    app = service.app
    assert app.is_open
    assert not app.is_ready
    for call in (app.locks, app.queues, app.lock("x").acquire, app.lock("x").try_acquire):
        with pytest.raises(StoreUnavailable, match="has not reached its store so far"):
            await call()
    await service.clock.advance(30)
    assert not app.is_ready
    await service.restore_store()
    assert app.is_ready
    async with app.lock("x"):
        assert len(await app.locks()) == 1
    events = [event for event in service.events if isinstance(event, StoreFailing | StoreRestored)]
    assert [type(event) for event in events] == [StoreFailing, StoreRestored]
    assert events[0].call == "open"


async def test_every_run_without_the_lock_is_reported(
    service: Service, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, logger="tenure")
    for number in range(3):
        outcome = await service.app.with_lock("cron", lambda: "done", ttl=60, on_unavailable="run")
        assert (outcome.unlocked, outcome.value, bool(outcome)) == (True, "done", False)
        events = [event for event in service.events if isinstance(event, RanUnlocked)]
        assert len(events) == number + 1
    assert events[0].name == "cron"
    records = [record for record in caplog.records if "without the lock" in record.getMessage()]
    assert [record.levelno for record in records] == [logging.WARNING] * 3
    assert (await service.app.with_lock("cron", int, ttl=60, on_unavailable="skip")).skipped
    with pytest.raises(StoreUnavailable):
        await service.app.with_lock("cron", int, ttl=60)
    await service.restore_store()
    assert await service.app.with_lock("cron", int, ttl=60, on_unavailable="run")
    assert len([event for event in service.events if isinstance(event, RanUnlocked)]) == 3


async def test_a_later_outage_is_reported_in_the_same_way(
    app: Tenure, faults: Faults, clock: ManualClock
):
    events: list[Event] = []
    app.on_event(events.append)
    faults.lose_request("acquire", MANY)
    running = asyncio.create_task(app.with_lock("cron", int, ttl=60, on_unavailable="run"))
    await clock.advance(30)
    assert (await running).unlocked
    assert [event.name for event in events if isinstance(event, RanUnlocked)] == ["cron"]


async def test_jobs_are_refused_until_then(service: Service):
    @service.app.task
    async def double(number: int) -> int:
        return 2 * number

    with pytest.raises(StoreUnavailable):
        await double.enqueue(1)
    await service.restore_store()
    assert (await double.enqueue(1)).id


async def test_ready_waits_for_the_store(service: Service):
    waiting = [asyncio.create_task(service.app.ready()) for _ in range(3)]
    await service.clock.advance(10)
    assert not any(task.done() for task in waiting)
    await service.restore_store()
    await asyncio.gather(*waiting)
    await service.app.ready()


async def test_an_election_waits_for_the_store(service: Service):
    async def lead() -> int:
        async for term in service.app.election("indexer").terms():
            return term.fence
        raise AssertionError

    leading = asyncio.create_task(lead())
    await service.clock.advance(30)
    assert not leading.done()
    await service.restore_store()
    await service.clock.advance(2)
    assert await leading > 0


async def test_a_worker_joins_when_the_store_appears(clock: ManualClock):
    entered: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Tenure) -> AsyncIterator[None]:
        await app.locks()  # which needs the store
        entered.append("in")
        yield
        entered.append("out")

    service = Service(clock, connect="lazy", lifespan=lifespan)

    @service.app.task
    async def double(number: int) -> int:
        return 2 * number

    async with service.app:
        async with service.app.worker() as worker:
            await clock.advance(20)
            assert worker.replica is None
            assert entered == []
            await service.restore_store()
            await worker.ready()
            job = await double.enqueue(4)
            await clock.advance(1)
            assert await job.result() == 8
        assert entered == ["in", "out"]


async def test_waiting_for_a_worker_that_cannot_begin_raises_what_went_wrong(clock: ManualClock):
    @asynccontextmanager
    async def lifespan(app: Tenure) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    service = Service(clock, connect="lazy", lifespan=lifespan)
    async with service.app:
        worker = service.app.worker()
        await worker.__aenter__()
        waiting = asyncio.create_task(worker.ready())
        await service.restore_store()
        await clock.advance(5)
        assert waiting.done()
        for ready in (waiting, worker.ready()):
            with pytest.raises(RuntimeError, match="no database"):
                await ready
        with pytest.raises(RuntimeError, match="no database"):
            await worker.__aexit__()


async def test_waiting_for_a_worker_that_was_stopped_before_it_began_raises(service: Service):
    async with service.app.worker() as worker:
        waiting = asyncio.create_task(worker.ready())
        await service.clock.advance(5)
        worker.stop()
        await worker.ended()
        await service.clock.advance(1)
        assert waiting.done()
        with pytest.raises(StoreError, match="stopped before it had joined"):
            await waiting


async def test_a_worker_that_still_waits_can_be_left(service: Service):
    async with service.app.worker() as worker:
        await service.clock.advance(5)
        worker.stop()
        await worker.ended()
    assert worker.replica is None


async def test_a_worker_without_its_modules_fails_at_once(clock: ManualClock):
    service = Service(clock, connect="lazy", imports=["tests.no_such_module"])
    async with service.app:
        with pytest.raises(ModuleNotFoundError):
            async with service.app.worker():
                pass


async def test_run_worker_waits_by_itself_unless_told_otherwise(clock: ManualClock):
    service = Service(clock)
    working = asyncio.create_task(service.app.run_worker())
    await clock.advance(20)
    assert not working.done()
    await service.restore_store()
    await clock.advance(2)
    async with Tenure(service.world.clone()) as rival:
        assert len(await rival.replicas()) == 1
    working.cancel()
    await clock.advance(2)
    await asyncio.wait([working])
    with pytest.raises(StoreUnavailable):
        await Service(clock, connect="eager").app.run_worker()


async def test_a_store_that_turns_out_to_be_unusable_is_reported_and_ends_workers(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.ERROR, logger="tenure")
    service = Service(clock, connect="lazy", require="A")
    async with service.app:
        worker = service.app.worker()
        await worker.__aenter__()
        await service.restore_store()
        for call in (service.app.ready, service.app.locks):
            with pytest.raises(ConfigError, match="require='A'"):
                await call()
        await clock.advance(30)
        errors = [record for record in caplog.records if "cannot be opened" in record.getMessage()]
        assert len(errors) == 1
        await worker.ended()
        with pytest.raises(ConfigError, match="require='A'"):
            await worker.__aexit__()


async def test_closing_ends_the_attempts(service: Service):
    app, faults = service.app, service.faults
    waiting = asyncio.create_task(app.ready())
    await service.clock.advance(1)
    await app.close()
    with pytest.raises(StoreError, match="not open"):
        await waiting
    tried = faults.calls["open"]
    await service.clock.advance(30)
    assert faults.calls["open"] == tried
    faults.heal()
    await app.open()
    assert app.is_ready


@pytest.mark.parametrize("first", ["open", "close"])
async def test_a_lazy_app_works_on_after_its_loop_was_closed(first: str):
    faults = Faults()
    faults.lose_request("open", MANY)
    store = connect("memory://", namespace="test", clock=SystemClock())
    app = Tenure(FaultyStore(store, faults), connect="lazy")
    await asyncio.to_thread(asyncio.run, app.open())
    faults.heal()
    assert not app.is_open
    if first == "close":
        await app.close()
    async with app:
        assert app.is_ready


def test_threads_can_start_without_the_store_too():
    faults = Faults()
    faults.lose_request("open", MANY)
    store = connect("memory://", namespace="test", clock=SystemClock())
    with blocking.Tenure(Tenure(FaultyStore(store, faults), connect="lazy")) as app:
        assert not app.is_ready
        with pytest.raises(StoreUnavailable), app.lock("x"):
            pass
        main = threading.current_thread()
        outcome = app.with_lock("cron", threading.current_thread, ttl=60, on_unavailable="run")
        assert (outcome.unlocked, outcome.value) == (True, main)
        faults.heal()
        app.ready()
        assert app.is_ready
        with app.lock("x"):
            pass


@pytest.mark.parametrize("kind", INTERRUPTS)
def test_waiting_for_the_store_can_be_interrupted(kind: str):
    faults = Faults()
    faults.lose_request("open", MANY)
    store = connect("memory://", namespace="test", clock=SystemClock())
    error = INTERRUPTS[kind]()
    with blocking.Tenure(Tenure(FaultyStore(store, faults), connect="lazy")) as app:
        with pytest.raises(type(error)), interrupted(error, lambda: True):
            app.ready()
        faults.heal()
        app.ready()
        with app.lock("x"):
            pass


async def test_every_store_is_looked_at_when_it_appears(blank_world: World):
    """Its format is made then, as opening does."""
    faults = Faults()
    faults.lose_request("open", MANY)
    store = connect(blank_world.url, namespace=blank_world.namespace, clock=SystemClock())
    async with Tenure(FaultyStore(store, faults), connect="lazy") as app:
        with pytest.raises(StoreUnavailable):
            await app.locks()
        faults.heal()
        async with asyncio.timeout(SIZE.patience):
            await app.ready()
        async with app.lock("x"):
            assert len(await app.locks()) == 1


@pytest.mark.parametrize("kind", ["valkey", "postgres"])
async def test_a_wrong_user_or_password_fails_at_once(request: pytest.FixtureRequest, kind: str):
    url: str = request.getfixturevalue(f"{kind}_server").app_url
    scheme, _, place = url.partition("://")
    host = place.rpartition("@")[2]
    app = Tenure(f"{scheme}://stranger:wrong@{host}", connect="lazy")
    with pytest.raises((StoreError, ConfigError), match="refused") as caught:
        await app.open()
    assert not isinstance(caught.value, StoreUnavailable)
    assert not app.is_open


async def test_a_wrong_url_fails_at_once():
    with pytest.raises(ConfigError):
        Tenure("redsi://cache", connect="lazy")
    with pytest.raises(ConfigError, match="connect must be 'eager' or 'lazy', not 'later'"):
        Tenure("memory://", connect="later")


async def test_ready_waits_again_when_an_unusable_store_goes_away(clock):
    service = Service(clock, connect="lazy", require="A")
    async with service.app:
        await service.restore_store()
        with pytest.raises(ConfigError, match="require='A'"):
            await service.app.ready()
        service.faults.lose_request("open", MANY)
        await clock.advance(5)
        waiting = asyncio.create_task(service.app.ready())
        await clock.advance(5)
        assert not waiting.done()
        waiting.cancel()
