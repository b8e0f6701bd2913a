"""The events of a store, on every store: each call once, each outage once."""

from collections import Counter

import pytest

from tenure import ConfigError, Tenure
from tenure.observe import Event, StoreCalled, StoreFailing, StoreRestored
from tenure.testing import Faults, FaultyStore
from tests.contract.worlds import World
from tests.rig.wait import wait_until_async


class Service:
    """An app with one task, whose store fails on demand, and what its subscriber has seen."""

    def __init__(self, world: World) -> None:
        self.faults = Faults()
        self.app = Tenure(FaultyStore(world.unopened(), self.faults), grace=0)
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
