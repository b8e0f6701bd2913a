"""Schedules that a newer release has written, or that this one cannot read."""

from typing import Any

import msgspec
import pytest

from tenure.core.schedules.documents import DECLARED_FOR, DOCUMENT_FORMAT, EVERYTHING
from tenure.core.schedules.records import ScheduleRecord
from tenure.errors import StoreError
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.commit_calls import look_at as look_at_record
from tests.contract.commit_calls import rewrite
from tests.contract.damage import Meddled, plant_by
from tests.contract.job_calls import join, recover_all
from tests.contract.schedule_calls import (
    forget,
    freeze,
    look_at,
    move,
    plant_all,
    register,
    registration,
    run,
    thaw,
    tick,
)
from tests.contract.test_schedules_rename import rename
from tests.rig.endings import leave

NEWER = {"needs": DOCUMENT_FORMAT + 1}


async def extend(
    store: Store,
    name: str = "sync",
    *,
    standing: dict[str, Any] | None = None,
    definition: dict[str, Any] | None = None,
) -> ScheduleRecord:
    """Add fields to the documents of a schedule, as another release does."""
    record = await look_at_record(store, name)
    texts: dict[str, str] = {}
    if standing is not None:
        texts["standing"] = extended(record.standing, standing)
    if definition is not None:
        texts["definition"] = extended(record.definition, definition)
    return await rewrite(store, record, **texts)


def extended(text: str, fields: dict[str, Any]) -> str:
    return msgspec.json.encode({**msgspec.json.decode(text), **fields}).decode()


async def test_fields_that_a_newer_release_has_added_stay(store: Store, clock: ManualClock):
    await register(store)
    await extend(store, standing={"colour": [1, 2]}, definition={"owner": {"team": "a"}})
    clock.shift(1)
    await run(store, clock.wall())
    await freeze(store, "sync", reason="release")
    await thaw(store, "sync")
    await register(store, definition=b"second")
    clock.step(-10)
    assert await Scheduling(store).reset("sync")
    await rename(store, "sync", "successor")
    record = await look_at_record(store)
    assert msgspec.json.decode(record.standing)["colour"] == [1, 2]
    assert msgspec.json.decode(record.definition)["owner"] == {"team": "a"}


async def test_documents_in_the_format_of_a_newer_release_are_left_to_it(
    store: Store, clock: ManualClock
):
    registered = await register(store)
    newer = await extend(store, standing=NEWER)
    clock.shift(1)
    assert (await Scheduling(store).advance(move(registered, clock.wall()))).outcome == "passed"
    for definition in (b"first", b"second"):
        assert (await register(store, definition=definition)).ruler == ""
    assert (await rename(store, "sync", "successor")).ruler == ""
    clock.step(-10)
    scheduling = Scheduling(store)
    for change in (scheduling.freeze, scheduling.thaw, scheduling.reset):
        with pytest.raises(StoreError, match="newer version of Tenure"):
            await change("sync")
    clock.shift(100 * DECLARED_FOR)
    assert await forget(store, idle=DECLARED_FOR) == 0
    assert (await look_at_record(store)) == newer


async def test_a_freeze_of_everything_that_a_newer_release_has_written_holds(
    store: Store, clock: ManualClock
):
    await register(store)
    await freeze(store, EVERYTHING, reason="release")
    await extend(store, EVERYTHING, standing=NEWER)
    clock.shift(1)
    assert (await tick(store, clock.wall())).reason == "paused"
    with pytest.raises(StoreError, match="the freeze of all timers"):
        await thaw(store, EVERYTHING)


async def test_a_schedule_with_an_unreadable_standing_starts_over(store: Store, clock: ManualClock):
    registered = await register(store)
    await rewrite(store, await look_at_record(store), standing="{")
    clock.shift(1)
    assert (await Scheduling(store).advance(move(registered, clock.wall()))).outcome == "unknown"
    again = await plant_by(Scheduling(Meddled(store)), "sync")
    assert (again.ruler, again.cursor) == ("first", clock.wall())
    clock.shift(1)
    assert (await tick(store, clock.wall())).outcome == "done"


async def test_a_former_name_with_an_unreadable_standing_delays_no_other(
    store: Store, clock: ManualClock
):
    await register(store, "old")
    await rewrite(store, await look_at_record(store, "old"), standing="[]")
    clock.shift(1)
    successor = await plant_by(Scheduling(Meddled(store)), "new", "old")
    assert (successor.ruler, successor.cursor) == ("first", clock.wall())


async def test_a_schedule_with_an_unreadable_definition_is_defined_anew(
    store: Store, clock: ManualClock
):
    await register(store)
    await run(store, clock.wall())
    await freeze(store, "sync", reason="release")
    await rewrite(store, await look_at_record(store), definition="{")
    clock.shift(1)
    again = await register(store)
    assert (again.ruler, again.revision) == ("first", 2)
    assert again.cursor == clock.wall()
    schedule = await look_at(store)
    assert (schedule.definition, schedule.registered) == (b"first", clock.wall())
    assert schedule.freeze is not None


async def test_successors_that_go_round_in_a_circle_end_nothing(store: Store, clock: ManualClock):
    await plant_all(store, [registration("a"), registration("b")])
    await extend(store, "a", standing={"successor": "b"})
    await extend(store, "b", standing={"successor": "a"})
    clock.shift(DECLARED_FOR + 1)
    assert (await register(store, "a")).ruler == "first"
    assert [(await look_at(store, name)).successor for name in "ab"] == ["", "a"]


@pytest.mark.parametrize("how", ["recover", "leave"])
async def test_a_run_with_unreadable_options_does_not_run_again(
    store: Store, clock: ManualClock, how: str
):
    await join(store, "ann")
    registered = await register(store)
    tick_move = move(registered, clock.wall(), replica="ann", rerun=True)
    assert tick_move.run is not None
    tick_move = msgspec.structs.replace(
        tick_move, run=msgspec.structs.replace(tick_move.run, options="{")
    )
    made = (await Scheduling(store).advance(tick_move)).run
    assert made is not None
    if how == "leave":
        await leave(store, "ann")
    else:
        clock.shift(3600)
        await recover_all(store)
    (lost,) = await store.jobs.get([made.id])
    assert lost is not None
    assert lost.state == "failed"
