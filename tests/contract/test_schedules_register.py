import pytest

from tenure.core.schedules.documents import DECLARED_FOR, DIGESTS_MAX
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import join
from tests.contract.schedule_calls import (
    SECOND,
    advance,
    decisions,
    forget,
    freeze,
    look_at,
    look_at_all,
    move,
    plant_all,
    register,
    registration,
    run,
    tick,
)


async def test_a_new_schedule_begins_now(store: Store, clock: ManualClock):
    registered = await register(store)
    assert registered.revision == 1
    assert registered.cursor == registered.now == clock.wall()
    assert registered.last_run == 0
    record = await look_at(store)
    assert (record.definition, record.cursor, record.live) == (b"first", clock.wall(), 0)
    assert (record.registered, record.declared) == (clock.wall(), clock.wall())
    assert (record.freeze, record.latest, record.successor) == (None, None, "")


async def test_planting_again_changes_nothing_but_when_it_was_declared(
    store: Store, clock: ManualClock
):
    before = await register(store)
    clock.shift(20)
    again = await register(store)
    assert (again.revision, again.cursor) == (before.revision, before.cursor)
    record = await look_at(store)
    assert (record.registered, record.declared) == (before.now, clock.wall())


async def test_a_schedule_keeps_its_cursor_and_last_run_while_no_replica_runs(
    store: Store, clock: ManualClock
):
    registered = await register(store)
    await run(store, registered.cursor)
    clock.shift(10 * DECLARED_FOR)
    again = await register(store)
    assert (again.revision, again.cursor) == (registered.revision, registered.cursor)
    assert again.last_run == registered.cursor


async def test_a_definition_that_was_never_seen_rules_at_once(store: Store, clock: ManualClock):
    old = await register(store)
    clock.shift(5)
    new = await register(store, definition=b"second")
    assert new.revision == old.revision + 1
    assert new.cursor == clock.wall()
    assert (await look_at(store)).definition == b"second"
    assert (await advance(store, move(old, clock.wall()))).outcome == "passed"


async def test_an_older_definition_yields_while_the_newer_one_is_declared(
    store: Store, clock: ManualClock
):
    await register(store)
    new = await register(store, definition=b"second")
    clock.shift(DECLARED_FOR - 1)
    yields = await register(store)
    assert yields.revision == 0
    assert (await look_at(store)).definition == b"second"
    clock.shift(2)
    back = await register(store)
    assert back.revision == new.revision + 1
    assert back.cursor == clock.wall()
    assert (await register(store, definition=b"second")).revision == 0


async def test_moving_the_cursor_declares_the_schedule(store: Store, clock: ManualClock):
    await register(store)
    await register(store, definition=b"second")
    clock.shift(DECLARED_FOR - 1)
    await run(store, clock.wall())
    clock.shift(DECLARED_FOR - 1)
    assert (await register(store)).revision == 0


async def test_a_replica_can_trigger_a_schedule_that_it_does_not_declare(
    store: Store, clock: ManualClock
):
    await register(store)
    await register(store, definition=b"second")
    before = (await look_at(store)).declared
    clock.shift(DECLARED_FOR - 1)
    assert (await tick(store, clock.wall(), seen=None, forced=True)).outcome == "done"
    assert (await look_at(store)).declared == before
    clock.shift(2)
    assert (await register(store)).revision > 0


async def test_very_old_definitions_are_new_again(store: Store):
    for number in range(DIGESTS_MAX + 1):
        await register(store, definition=str(number).encode())
    assert (await register(store, definition=b"1")).revision == 0
    assert (await register(store, definition=b"0")).revision == DIGESTS_MAX + 2


async def test_the_cursor_never_goes_back(store: Store, clock: ManualClock):
    clock.shift(100)
    registered = await register(store)
    clock.step(-50)
    assert (await register(store, definition=b"second")).cursor == registered.cursor


async def test_a_clock_that_was_set_back_keeps_no_definition_alive(
    store: Store, clock: ManualClock
):
    await register(store)
    new = await register(store, definition=b"second")
    clock.step(-3600)
    assert (await register(store)).revision == 0
    clock.shift(DECLARED_FOR)
    assert (await register(store)).revision == new.revision + 1


async def test_several_are_planted_in_one_call(store: Store):
    await register(store, "b")
    both = await plant_all(store, [registration("a"), registration("b", b"second")])
    assert [schedule.revision for schedule in both] == [1, 2]
    assert [schedule.name for schedule in await look_at_all(store)] == ["a", "b"]
    assert [schedule.name for schedule in await look_at_all(store, limit=1)] == ["a"]
    assert [schedule.name for schedule in await look_at_all(store, ["b", "c"])] == ["b"]
    assert await plant_all(store, []) == []
    assert await look_at_all(store, []) == []


async def test_another_calendar_begins_now(store: Store, clock: ManualClock):
    (registered,) = await plant_all(store, [registration(definition=b"first", calendar="daily")])
    clock.shift(5)
    (changed,) = await plant_all(store, [registration(definition=b"second", calendar="daily")])
    assert (changed.revision, changed.cursor) == (2, registered.cursor)
    (changed,) = await plant_all(store, [registration(definition=b"third", calendar="hourly")])
    assert (changed.revision, changed.cursor) == (3, clock.wall())
    clock.shift(5)
    (same,) = await plant_all(store, [registration(definition=b"fourth", calendar="hourly")])
    assert (same.revision, same.cursor) == (4, changed.cursor)


async def test_schedules_that_no_replica_declares_are_forgotten_in_the_end(
    store: Store, clock: ManualClock
):
    await join(store, "ann", ttl=1000)
    await register(store, "idle")
    await register(store, "busy")
    await run(store, clock.wall(), name="busy", replica="ann")
    clock.shift(100)
    await register(store, "young")
    assert await forget(store, idle=200) == 0
    assert await forget(store, idle=100) == 1
    assert [schedule.name for schedule in await look_at_all(store)] == ["busy", "young"]
    assert await decisions(store, "idle") == []


@pytest.mark.parametrize("name", ["naïve", "a b", "日次", "x:y/z{}%*?[]", "'; --"])
async def test_names_are_stored_unchanged(store: Store, clock: ManualClock, name: str):
    await register(store, name, b'{"every": 5}')
    await run(store, clock.wall(), name=name)
    assert [schedule.name for schedule in await look_at_all(store)] == [name]
    assert (await decisions(store, name))[0].last == clock.wall()


async def test_one_namespace_never_sees_another(world, clock: ManualClock):
    here, there = await world.store(), await world.store("elsewhere")
    await register(here)
    await freeze(here, "*")
    assert await look_at_all(there) == []
    later = await register(there)
    clock.shift(1)
    assert (await tick(there, later.cursor + SECOND)).outcome == "done"
