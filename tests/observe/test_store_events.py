"""The events of a store, on every store: each call once, each outage once."""

import asyncio
from collections import Counter

import pytest

from tenure import ConfigError, StoreUnavailable, Tenure
from tenure.observe import Event, StoreCalled, StoreFailing, StoreRestored
from tenure.observe.events import Events
from tenure.runtime.store_retry import Outages, Retrier
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.contract.worlds import World
from tests.rig.wait import wait_until_async


class Service:
    """An app with one task, whose store fails on demand, and what its subscriber has seen."""

    def __init__(self, world: World, **settings: float) -> None:
        self.faults = Faults()
        self.app = Tenure(FaultyStore(world.unopened(), self.faults), grace=0, **settings)
        self.seen: list[Event] = []
        self.app.on_event(self.seen.append)
        self.work = self.app.task(lambda: None, name="work")

    def outages(self) -> list[str]:
        return [
            f"{type(event).__name__} {event.call}"
            for event in self.seen
            if isinstance(event, StoreFailing | StoreRestored)
        ]


@pytest.fixture
def service(real_world: World) -> Service:
    return Service(real_world)


@pytest.mark.parametrize("call", ["claim", "settle"])
@pytest.mark.parametrize("lost", ["lose_request", "lose_reply"])
async def test_an_outage_is_one_event_and_its_end_another(service: Service, call: str, lost: str):
    getattr(service.faults, lost)(call, times=3)
    async with service.app, service.app.worker():
        jobs = await service.app.enqueue_many(service.work.request() for _ in range(3))
        for job in jobs:
            await job.wait(20)
        await wait_until_async(lambda: len(service.outages()) == 2)
    assert service.outages() == [f"StoreFailing {call}", f"StoreRestored {call}"]
    [restored] = [event for event in service.seen if isinstance(event, StoreRestored)]
    assert restored.failures == 3


async def test_an_outage_is_one_event_whichever_calls_of_whichever_thread_fail(real_world: World):
    service = Service(real_world, replica_ttl=1)
    service.app.timer(every="1s", name="tick")(_nothing)
    fails = ("beat", "claim", "commit")
    async with service.app, service.app.worker():
        await wait_until_async(lambda: service.faults.calls["commit"])
        before = Counter(service.faults.calls)
        for call in (*fails, "settle", "read", "declare", "counts", "ping"):
            service.faults.lose_request(call, times=10_000)
        await service.work.enqueue()
        await wait_until_async(
            lambda: all(service.faults.calls[call] > before[call] for call in fails), 20
        )
        service.faults.heal()
        await wait_until_async(lambda: len(service.outages()) == 2)
    failing, restored = service.outages()
    call = failing.removeprefix("StoreFailing ")
    assert restored == f"StoreRestored {call}"


async def test_a_call_that_fails_by_itself_hides_no_outage(clock: ManualClock):
    events, seen = Events(), []
    events.subscribe(seen.append)
    retriers = [Retrier(clock, events, outages) for outages in [Outages()] * 2]
    is_away = {"settle": True, "beat": False}

    async def call(name: str) -> None:
        if is_away[name]:
            raise StoreUnavailable(name)

    async def send(name: str, retrier: Retrier) -> None:
        await retrier.until_answered(name, lambda: call(name))

    settling = asyncio.ensure_future(send("settle", retriers[0]))
    await clock.advance(5)
    await send("beat", retriers[1])  # answered: a transaction keeps the job of the other call
    is_away["beat"] = True
    beating = asyncio.ensure_future(send("beat", retriers[1]))
    await clock.advance(5)
    is_away["beat"] = False
    await clock.advance(5)
    await beating
    is_away["settle"] = False
    await clock.advance(5)
    await settling
    assert [f"{type(event).__name__} {event.call}" for event in seen] == [
        "StoreFailing settle",
        "StoreFailing beat",
        "StoreRestored beat",
        "StoreRestored settle",
    ]


async def test_each_call_of_the_store_is_one_event_also_if_it_failed(service: Service):
    async with service.app:
        before = Counter(service.faults.calls)
        service.seen.clear()
        service.faults.lose_reply("insert")
        service.faults.lose_request("acquire")
        job = await service.work.enqueue()
        await job.refresh()
        await job.cancel()
        async with service.app.lock("orders"):
            pass
        called = [event for event in service.seen if isinstance(event, StoreCalled)]
        calls = Counter(service.faults.calls) - before
    assert Counter(event.call for event in called) == calls
    assert {"insert", "cancel", "get", "acquire", "release"} <= set(calls)
    failed = Counter(event.call for event in called if event.error)
    assert failed == {"insert": 1, "acquire": 1}
    assert {event.error for event in called} == {"", "StoreUnavailable"}
    assert all(event.seconds >= 0 for event in called)


def test_an_async_subscriber_is_refused_because_nothing_would_await_it():
    async def subscriber(event: Event) -> None: ...

    with pytest.raises(ConfigError, match=r"app\.on_event takes a plain function"):
        Tenure("memory://").on_event(subscriber)  # type: ignore[arg-type]


async def _nothing() -> None: ...
