"""Sound stores report no damage; stores report records that they cannot read."""

import pytest

from tenure.core.jobs.records import Unique
from tenure.runtime.timers.scheduling import Scheduling
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract import commit_calls
from tests.contract.calls import ask, take
from tests.contract.job_calls import claim, insert, join, new, settle
from tests.contract.schedule_calls import (
    SECOND,
    decisions,
    freeze,
    look_at,
    move,
    plant_all,
    register,
    registration,
    run,
    tick,
)
from tests.rig.lookups import stranded


async def test_sound_records_are_not_reported_as_damaged(store: Store):
    await take(store, "lock", "ann")
    await ask(store, "lock", "ben", waiting=30)
    await take(store, "pool", "ann", limit=3)
    await join(store, "ann")
    await insert(store, *(new(number) for number in range(1, 5)), new(5, delay=60))
    await insert(store, new(6, unique=Unique(key="welcome"), tags=("a", "b"), timeout=60.0))
    running = await claim(store)
    for job, outcome in zip(
        running, ("succeeded", "failed", "retry", "cancelled", "handed back"), strict=True
    ):
        assert await settle(store, job, outcome) == "settled"
    await store.jobs.pause("default")
    await register(store)
    assert (await tick(store, (await store.ping()).now)).outcome == "done"
    await freeze(store, "sync", reason="a rest")

    assert len(await store.leases.find()) == 3
    assert len(await store.jobs.replicas()) == 1
    assert len((await store.jobs.find()).jobs) == 7
    assert await store.jobs.counts()
    assert (await read_schedules(store)).all
    assert await decisions(store)
    assert await stranded(store) == []
    assert await stranded(store, [job.id for job in running]) == []
    assert [*store.damage] == []


# A store treats documents as text, so a commit can contain any text.

JUNK = {
    "nothing": "",
    "cut": '{"cursor":1',
    "null": "null",
    "list": "[1]",
    "text": '"text"',
    "no-cursor": "{}",
    "no-number": '{"cursor":"soon"}',
    "nul": '{"cursor":1,"successor":"a\\u0000"}',
    "deep": f'{{"cursor":1,"more":{"[" * 5000}{"]" * 5000}}}',
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
async def test_a_timer_with_an_unreadable_standing_starts_over_and_is_reported(
    store: Store, clock: ManualClock, junk: str
):
    await join(store, "ann", ttl=1000)
    await register(store)
    before = await run(store, clock.wall(), replica="ann")
    record = await commit_calls.look_at(store)
    await commit_calls.rewrite(store, record, standing=junk)
    clock.shift(10)

    assert (await read_schedules(store)).all == []
    assert [(damage.kind, damage.name) for damage in store.damage] == [("timer", "sync")]
    assert not await Scheduling(store).freeze("sync")
    registered = await register(store)
    assert (registered.ruler, registered.cursor) == ("first", clock.wall())
    clock.shift(1)
    answer = await Scheduling(store).advance(move(registered, clock.wall(), replica="ann"))
    assert answer.outcome == "done"
    # Late effects of the earlier run stay fenced off.
    assert answer.run is not None
    assert answer.run.fence > before.fence


@pytest.mark.parametrize("junk", ["{", "null", '{"definition":{},"digests":[]}'])
async def test_a_timer_with_an_unreadable_charter_continues_and_is_reported(
    store: Store, clock: ManualClock, junk: str
):
    await register(store)
    await run(store, clock.wall())
    record = await commit_calls.look_at(store)
    await commit_calls.rewrite(store, record, definition=junk)

    [schedule] = (await read_schedules(store)).all
    assert [(damage.kind, damage.name) for damage in store.damage] == [("timer", "sync")]
    # The next declared definition rules, whichever it is.
    cursor = schedule.standing.cursor
    clock.shift(1)
    registered = await register(store, definition=b"another")
    assert registered.ruler == "another"
    assert registered.cursor >= cursor
    assert (await look_at(store)).definition == b"another"
    assert (await tick(store, clock.wall() + SECOND, due=0)).outcome == "done"


async def test_a_timer_renamed_from_an_unreadable_one_starts_over(store: Store, clock: ManualClock):
    await register(store, "old")
    record = await commit_calls.look_at(store, "old")
    await commit_calls.rewrite(store, record, standing="junk")
    clock.shift(1)
    [registered] = await plant_all(store, [registration("new", renamed_from=("old",))])
    assert (registered.ruler, registered.cursor) == ("first", clock.wall())
    clock.shift(1)
    assert (await tick(store, clock.wall(), name="new")).outcome == "done"
    assert [(damage.kind, damage.name) for damage in store.damage] == [("timer", "old")]
