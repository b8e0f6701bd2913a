"""Which schedule takes over from a name after several renames."""

from tenure.core.schedules.documents import DECLARED_FOR
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.schedule_calls import forget, look_at, register, run, tick
from tests.contract.test_schedules_rename import rename


async def test_a_name_goes_on_now_if_the_last_of_its_successors_was_forgotten(
    store: Store, clock: ManualClock
):
    await register(store, "a")
    await rename(store, "a", "b")
    await rename(store, "b", "c")
    clock.shift(5)
    await tick(store, clock.wall(), name="c", run=None)
    clock.shift(DECLARED_FOR)
    assert await forget(store, idle=DECLARED_FOR) == 1
    back = await register(store, "a")
    # The cursor of the second does not count: the third has decided about later ticks.
    assert back.cursor == clock.wall() > (await look_at(store, "b")).cursor
    assert (await look_at(store, "b")).successor == "a"


async def test_an_existing_name_takes_nothing_from_a_successor(store: Store, clock: ManualClock):
    await register(store, "old")
    new = await rename(store, "old", "new")
    before = await register(store, "other")
    clock.shift(5)
    await run(store, clock.wall(), name="new")
    again = await rename(store, "old", "other")
    assert (again.cursor, again.last_run) == (before.cursor, 0)
    assert (await look_at(store, "old")).successor == "new"
    assert (await look_at(store, "new")).successor == ""
    assert (await register(store, "new")).revision == new.revision
