"""The loss of all data, reported with every lease and job that is gone."""

import asyncio
from typing import Any

import pytest

from tenure.core.leases import Pong
from tenure.errors import StoreError, StoreUnavailable
from tenure.observe import DataLost
from tenure.runtime.data_loss import DataLossDetector, Holdings


class Place:
    namespace = "test"

    def __init__(self, url: str = "memory://gone") -> None:
        self.url = url
        self.data_id = "first"
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.error: Exception | None = None

    async def ping(self) -> Pong:
        data_id = self.data_id
        self.was_asked.set()
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return Pong(0, data_id)


class Heard(list[Any]):
    def emit(self, event: Any) -> None:
        self.append(event)


async def test_losses_that_several_calls_noticed_are_reported_together():
    data, place, heard = DataLossDetector(), Place(), Heard()
    store: Any = place
    events: Any = heard
    await data.confirm(store, events)
    place.data_id = "second"
    # Each is gone from the process by the time the next one is noticed.
    data.suspect(Holdings(holds=("nightly",)))
    data.suspect(Holdings(replica="ann", jobs=("job",)))
    await data.confirm(store, events)
    assert heard == [DataLost("memory://gone", "ann", ("job",), ("nightly",))]
    await data.confirm(store, events)
    assert len(heard) == 1


async def test_a_suspicion_that_comes_while_the_store_is_asked_is_not_forgotten():
    data, place, heard = DataLossDetector(), Place("memory://gone-meanwhile"), Heard()
    store: Any = place
    events: Any = heard
    await data.confirm(store, events)
    data.suspect()
    place.may_answer.clear()
    place.was_asked.clear()
    asking = asyncio.create_task(data.confirm(store, events))
    await place.was_asked.wait()  # it was answered before the loss
    place.data_id = "second"
    data.suspect(Holdings(holds=("nightly",)))
    place.may_answer.set()
    await asking
    assert heard == []
    assert data.is_suspected
    await data.confirm(store, events)
    assert heard == [DataLost("memory://gone-meanwhile", "", (), ("nightly",))]
    assert not data.is_suspected


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreError("no rights")])
async def test_a_suspicion_stays_while_the_store_cannot_say(error):
    url = f"memory://gone-after-{type(error).__name__}"
    data, place, heard = DataLossDetector(), Place(url), Heard()
    store: Any = place
    events: Any = heard
    await data.confirm(store, events)
    place.data_id, place.error = "second", error
    data.suspect(Holdings(holds=("nightly",)))
    if isinstance(error, StoreUnavailable):
        with pytest.raises(StoreUnavailable):
            await data.confirm(store, events)
    else:
        await data.confirm(store, events)
    assert data.is_suspected
    place.error = None
    await data.confirm(store, events)
    assert heard == [DataLost(url, "", (), ("nightly",))]
