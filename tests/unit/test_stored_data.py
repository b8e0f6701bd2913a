"""The loss of all data, told with everything that was in hand."""

from typing import Any

from tenure.observe.events import DataLost
from tenure.runtime.stored_data import InHand, StoredData


class Place:
    url, namespace = "memory://gone", "test"

    def __init__(self) -> None:
        self.found = "first"

    async def incarnation(self) -> str:
        return self.found


class Heard(list[Any]):
    def emit(self, event: Any) -> None:
        self.append(event)


async def test_what_several_calls_did_not_find_is_told_together():
    data, place, heard = StoredData(), Place(), Heard()
    store: Any = place
    events: Any = heard
    await data.confirm(store, events)
    place.found = "second"
    # Each is gone from the process by the time the next one is noticed.
    data.suspect(InHand(holds=("nightly",)))
    data.suspect(InHand(replica="ann", jobs=("job",)))
    await data.confirm(store, events)
    assert heard == [DataLost("memory://gone", "ann", ("job",), ("nightly",))]
    await data.confirm(store, events)
    assert len(heard) == 1
