"""Batches of inserts, and unique keys that an open transaction holds, in virtual time."""

import asyncio
from collections.abc import Sequence

import pytest

from tenure.core.jobs.records import Inserted, NewJob, Unique
from tenure.core.store_policy import INSERT_PATIENCE, KEY_PATIENCE
from tenure.errors import StoreUnavailable
from tenure.jobs.inserter import Inserter
from tenure.stores.memory import MemoryStore
from tenure.stores.memory.jobs import Jobs
from tenure.testing import ManualClock


class Place(MemoryStore):
    """A store in which a test says which unique keys are held."""

    def __init__(self) -> None:
        super().__init__("memory://", namespace="n", clock=ManualClock())
        self.jobs = HeldJobs(self)
        self.held = {"held"}
        self.batches: list[list[str]] = []
        self.is_down = False


class HeldJobs(Jobs):
    """The jobs of such a store."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._place = place

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        self._place.batches.append([job.id for job in jobs])
        if self._place.is_down:
            raise StoreUnavailable("down")
        answers: list[Inserted] = []
        for job in jobs:
            if job.unique is not None and job.unique.key in self._place.held:
                answers.append(Inserted("busy", job.id))
            else:
                answers += await super().insert([job])
        return answers


@pytest.fixture
async def place() -> Place:
    place = Place()
    await place.open()
    return place


def new(id_: str, key: str | None = None) -> NewJob:
    return NewJob(id=id_, task="t", unique=None if key is None else Unique(key=key))


async def advance(place: Place, seconds: float) -> None:
    assert isinstance(place.clock, ManualClock)
    await place.clock.advance(seconds)


async def test_a_held_key_is_asked_for_apart_from_other_jobs(place: Place):
    inserter = Inserter(place)
    first = asyncio.create_task(inserter.insert(new("a", "held")))
    together = asyncio.create_task(inserter.insert(new("b")))
    assert (await together).outcome == "created"
    assert place.batches == [["a", "b"]]
    second = asyncio.create_task(inserter.insert(new("c", "held")))
    neighbour = asyncio.create_task(inserter.insert(new("d", "free")))
    assert (await neighbour).outcome == "created"
    assert place.batches == [["a", "b"], ["d"]]
    await advance(place, 3)
    apart = place.batches[2:]
    assert len(apart) >= 3
    assert {id_ for batch in apart for id_ in batch} == {"a", "c"}
    place.held.clear()
    await advance(place, 2)
    answers = await asyncio.gather(first, second)
    assert {answer.outcome for answer in answers} == {"created", "existing"}
    # The key is known to be free again.
    place.batches.clear()
    await asyncio.gather(inserter.insert(new("e", "held")), inserter.insert(new("f")))
    assert place.batches == [["e", "f"]]


async def test_a_key_that_stays_held_is_busy_after_a_while(place: Place):
    inserter = Inserter(place)
    waiting = asyncio.create_task(inserter.insert(new("a", "held")))
    await advance(place, KEY_PATIENCE - 0.1)
    assert not waiting.done()
    await advance(place, 1.2)  # a pause takes up to a second
    assert (await waiting).outcome == "busy"


async def test_only_jobs_with_a_held_key_wait(place: Place):
    inserter = Inserter(place)
    news = [new("a"), new("b", "held"), new("c", "free"), new("d", "held")]
    waiting = asyncio.create_task(inserter.insert_many(news))
    await advance(place, 1)
    records = await place.jobs.get(["a", "b", "c"])
    assert [record is not None for record in records] == [True, False, True]
    place.held.clear()
    await advance(place, 2)
    outcomes = [answer.outcome for answer in await waiting]
    assert outcomes.count("created") == 3
    assert (outcomes[0], outcomes[2]) == ("created", "created")


async def test_an_outage_ends_the_wait_for_a_key(place: Place):
    inserter = Inserter(place)
    single = asyncio.create_task(inserter.insert(new("a", "held")))
    many = asyncio.create_task(inserter.insert_many([new("b", "held"), new("c")]))
    await advance(place, 1)
    place.is_down = True
    await advance(place, 30)
    for call in (single, many):
        with pytest.raises(StoreUnavailable, match="down"):
            await call


async def test_a_cancelled_caller_no_longer_asks(place: Place):
    inserter = Inserter(place)
    waiting = asyncio.create_task(inserter.insert(new("a", "held")))
    await advance(place, 1)
    waiting.cancel()
    await asyncio.wait([waiting])
    place.batches.clear()
    await advance(place, 5)
    assert place.batches == []
    await asyncio.gather(inserter.insert(new("b")), inserter.insert(new("c", "free")))
    assert not inserter._held


async def test_a_process_that_was_suspended_during_a_pause_repeats_no_insert(place: Place):
    inserter = Inserter(place)
    place.is_down = True
    call = asyncio.create_task(inserter.insert(new("a")))
    await advance(place, 0.001)
    assert place.batches == [["a"]]
    place.is_down = False
    place.clock.shift(INSERT_PATIENCE)  # by now the job may have run, and be forgotten soon
    await advance(place, 2)
    with pytest.raises(StoreUnavailable, match="down"):
        await call
    assert place.batches == [["a"]]
