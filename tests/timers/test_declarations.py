"""Workers declare their timers repeatedly and notice changes in between."""

import logging

import pytest

from tenure.core.schedules.records import Write
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.commit_calls import look_at, plan, send
from tests.timers.fleet import BEGIN, Fleet, notes_ticks

NOTICED = 21  # seconds; they declare every 20
DAY = 86_400


async def test_a_former_name_that_comes_back_is_taken_over_again(store: Store, clock: ManualClock):
    """The store did not know it when the new name was registered: forgotten, or never there."""
    new = Fleet(store, clock, notes_ticks(every="5s", name="after", renamed_from="before"))
    async with new.running(1):
        await clock.advance(1)
        old = Fleet(store, clock, notes_ticks(every="5s", name="before"))
        async with old.running(1):
            await clock.advance(NOTICED)
            before = old.ran.copy()
            await clock.advance(60)
            assert old.ran == before
    assert len(new.ran) == 16


async def test_a_timer_that_the_store_has_lost_is_planted_again_before_its_tick(
    store: Store, clock: ManualClock
):
    fleet = Fleet(store, clock, notes_ticks(every="1h", name="work"))
    async with fleet.running(1):
        await clock.advance(1)
        record = await look_at(store, "work")
        deleted = plan(record, writes=(Write("work", None),))
        assert (await send(store, deleted)).outcome == "done"
        await clock.advance(NOTICED)
        assert (await look_at(store, "work")).ruler == record.ruler
        await clock.advance(3600)
    assert sorted(fleet.ran) == [BEGIN + 3600]


async def test_a_timer_that_is_replaced_yields_before_its_tick(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "tenure")
    async with Fleet(store, clock, notes_ticks(every="1h")).running(1):
        await clock.advance(1)
        async with Fleet(store, clock, notes_ticks(every="2h")).running(1):
            await clock.advance(NOTICED)
            [line] = [line for line in caplog.messages if "does not tick here" in line]
    assert line.startswith("timer 'work' does not tick here: another definition of it rules")


async def test_a_timer_is_forgotten_two_weeks_after_its_last_declaration(
    store: Store, clock: ManualClock
):
    async with Fleet(store, clock, notes_ticks(every="1h", name="former")).running(1):
        await clock.advance(1)
    present = Fleet(store, clock, notes_ticks(every="1h", name="present"))
    for shift, names in ((14 * DAY - 200, ["former", "present"]), (200, ["present"])):
        clock.shift(shift)
        async with present.running(1):  # each worker looks in its first minute
            await clock.advance(61)
        stored = await store.schedules.read()
        assert [record.name for record in stored.records] == names
