import pytest

from tenure.core.schedules.documents import DECLARED_FOR
from tenure.core.schedules.registration import Registered
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import join
from tests.contract.schedule_calls import (
    SECOND,
    advance,
    forget,
    freeze,
    look_at,
    look_at_all,
    move,
    plant_all,
    register,
    registration,
    run,
    thaw,
    tick,
)


async def rename(store: Store, *names: str) -> Registered:
    """Register a schedule under the last of these names, as the successor of the others."""
    *former, name = names
    (registered,) = await plant_all(store, [registration(name, renamed_from=tuple(former))])
    return registered


async def reason(store: Store, name: str) -> str:
    """Return why a schedule is frozen."""
    freeze = (await look_at(store, name)).freeze
    assert freeze is not None
    return freeze.reason


async def test_a_renamed_schedule_goes_on_where_it_was(store: Store, clock: ManualClock):
    old = await register(store, "old")
    await freeze(store, "old", reason="not now")
    clock.shift(5)
    await tick(store, clock.wall(), name="old")
    (new,) = await plant_all(store, [registration("new", renamed_from=("never", "old"))])
    assert new.cursor == clock.wall()
    record = await look_at(store, "new")
    assert record.freeze is not None
    assert record.freeze.reason == "not now"
    assert (await look_at(store, "old")).successor == "new"
    assert (await advance(store, move(old, clock.wall(), name="old"))).outcome == "passed"
    clock.shift(1)
    yields = await register(store, "old")
    assert yields.revision == 0


async def test_a_rename_that_is_taken_back_goes_on_as_well(store: Store, clock: ManualClock):
    await register(store, "old")
    stale = await rename(store, "old", "new")
    clock.shift(5)
    await run(store, clock.wall(), name="new")
    clock.shift(DECLARED_FOR + 1)
    back = await register(store, "old")
    assert back.revision > 0
    assert (back.cursor, back.last_run) == ((await look_at(store, "new")).cursor,) * 2
    assert (await look_at(store, "old")).successor == ""
    # A replica that was asleep meanwhile and still uses the new name.
    asleep = Registered(ruler=stale.ruler, revision=stale.revision, cursor=back.cursor, now=0)
    assert (await advance(store, move(asleep, clock.wall(), name="new"))).outcome == "passed"
    assert (await register(store, "new")).revision == 0


async def test_a_move_that_was_planned_before_a_rename_is_stale_after_it(
    store: Store, clock: ManualClock
):
    before = await register(store, "old")
    await rename(store, "old", "new")
    clock.shift(DECLARED_FOR + 1)
    back = await register(store, "old")
    assert back.cursor == before.cursor
    assert (await advance(store, move(before, clock.wall(), name="old"))).outcome == "passed"
    assert (await advance(store, move(back, clock.wall(), name="old"))).outcome == "done"


async def test_a_rename_that_comes_again_has_no_tick_under_both_names(
    store: Store, clock: ManualClock
):
    await register(store, "old")
    await rename(store, "old", "new")
    clock.shift(DECLARED_FOR + 1)
    await register(store, "old")
    await run(store, clock.wall(), name="old")
    again = await rename(store, "old", "new")
    assert (again.cursor, again.last_run) == (clock.wall(),) * 2
    assert again.revision == (await look_at(store, "new")).revision
    clock.shift(1)
    assert (await tick(store, clock.wall(), name="old")).outcome == "passed"
    assert (await register(store, "old")).revision == 0
    assert (await tick(store, clock.wall(), name="new")).outcome == "done"


async def test_a_name_takes_over_from_all_its_former_names(store: Store, clock: ManualClock):
    for name in ("first", "second", "third"):
        await register(store, name)
    clock.shift(5)
    await run(store, clock.wall(), name="second")
    clock.shift(5)
    await tick(store, clock.wall(), name="third", run=None)
    new = await rename(store, "never", "first", "third", "second", "new")
    assert (new.cursor, new.last_run) == (clock.wall(), clock.wall() - 5 * SECOND)
    assert {(await look_at(store, name)).successor for name in ("first", "second", "third")} == {
        "new"
    }


async def test_a_name_that_is_there_already_takes_over_as_well(store: Store, clock: ManualClock):
    first = await register(store, "new")
    clock.shift(5)
    await register(store, "old")
    again = await rename(store, "old", "new")
    assert again.cursor == clock.wall() > first.cursor
    assert again.revision == first.revision
    assert (await look_at(store, "old")).successor == "new"


async def test_a_name_taken_over_twice_yields_to_the_last_one(store: Store, clock: ManualClock):
    await register(store, "a")
    await rename(store, "a", "b")
    clock.shift(DECLARED_FOR + 1)
    await rename(store, "b", "c")
    assert (await register(store, "a")).revision == 0
    clock.shift(DECLARED_FOR + 1)
    await tick(store, clock.wall(), name="c")
    assert (await register(store, "a")).revision == 0
    clock.shift(DECLARED_FOR + 1)
    back = await register(store, "a")
    assert back.revision > 0
    assert back.cursor == (await look_at(store, "c")).cursor
    assert [schedule.successor for schedule in await look_at_all(store)] == ["", "c", "a"]


async def test_a_name_at_rest_is_remembered_as_long_as_its_successor(
    store: Store, clock: ManualClock
):
    await register(store, "old")
    await rename(store, "old", "new")
    clock.shift(DECLARED_FOR + 1)
    await register(store, "new")
    clock.shift(1)
    assert await forget(store, idle=DECLARED_FOR) == 0
    assert (await register(store, "old")).revision == 0
    clock.shift(DECLARED_FOR)
    assert await forget(store, idle=DECLARED_FOR) == 1
    assert await forget(store, idle=DECLARED_FOR) == 1
    assert await look_at_all(store) == []


async def test_a_name_whose_successor_was_forgotten_goes_on_now(store: Store, clock: ManualClock):
    await join(store, "ann", ttl=1000)
    await register(store, "old")
    await run(store, clock.wall(), name="old", replica="ann")
    await rename(store, "old", "new")
    clock.shift(5)
    await tick(store, clock.wall(), name="new", run=None)
    clock.shift(DECLARED_FOR)
    assert await forget(store, idle=DECLARED_FOR) == 1
    back = await register(store, "old")
    assert (back.revision, back.cursor) == (2, clock.wall())


async def test_a_name_that_another_one_has_taken_stays_with_it(store: Store, clock: ManualClock):
    await plant_all(store, [registration("old", calendar="daily")])
    first = registration("first", calendar="hourly", renamed_from=("old",))
    await plant_all(store, [first])
    clock.shift(5)
    await run(store, clock.wall(), name="first")
    # A new successor refers to the schedule that has the old name now.
    (second,) = await plant_all(
        store, [registration("second", calendar="hourly", renamed_from=("old",))]
    )
    assert (second.cursor, second.last_run) == (clock.wall(),) * 2
    clock.shift(5)
    (yields,) = await plant_all(store, [first])
    assert yields.revision == 0
    (same,) = await plant_all(
        store, [registration("second", calendar="hourly", renamed_from=("old",))]
    )
    assert (same.revision, same.cursor) == (second.revision, second.cursor)
    assert [(schedule.successor, schedule.revision) for schedule in await look_at_all(store)] == [
        ("second", 2),
        ("first", 2),
        ("", 1),
    ]


async def test_undecided_ticks_survive_renames(store: Store, clock: ManualClock):
    await plant_all(store, [registration("a", b"hourly")])
    await plant_all(store, [registration("b", b"daily", renamed_from=("a",))])
    decided = clock.wall()
    clock.shift(5)
    (third,) = await plant_all(store, [registration("c", b"daily", renamed_from=("b", "a"))])
    assert third.cursor == decided
    clock.shift(5)
    # Back under a name that had another calendar then.
    (again,) = await plant_all(store, [registration("a", b"daily", renamed_from=("c",))])
    assert again.cursor == decided


async def test_the_last_run_goes_along_with_a_rename(store: Store, clock: ManualClock):
    await join(store, "ann", ttl=1000)
    await register(store, "old")
    before = await run(store, clock.wall(), name="old", replica="ann")
    await rename(store, "old", "new")
    assert (await look_at(store, "new")).last_job == before.id
    clock.shift(1)
    held = await tick(store, clock.wall(), name="new", replica="ann", rest=60.0)
    assert (held.outcome, held.reason) == ("held", "running")


async def test_a_name_that_was_left_out_takes_over_from_the_last_one(
    store: Store, clock: ManualClock
):
    await register(store, "first")
    await rename(store, "first", "second", "third")
    clock.shift(5)
    await run(store, clock.wall(), name="third")
    # A release that was never deployed before: it knows nothing of the third name.
    second = await rename(store, "first", "second")
    assert (second.cursor, second.last_run) == (clock.wall(),) * 2
    assert (await tick(store, clock.wall() + 1, name="third")).outcome == "passed"
    third = await rename(store, "first", "second", "third")
    assert (third.revision > 0, third.cursor) == (True, clock.wall())
    assert (await rename(store, "first", "second")).revision == 0


async def test_a_freeze_goes_with_the_name_that_ticks(store: Store, clock: ManualClock):
    await register(store, "old")
    await freeze(store, "old", reason="first")
    await rename(store, "old", "new")
    await freeze(store, "new", reason="second")
    clock.shift(DECLARED_FOR + 1)
    await register(store, "old")
    assert await reason(store, "old") == "second"
    await rename(store, "old", "new")
    assert await thaw(store, "new")
    assert await reason(store, "new") == "second"
    clock.shift(DECLARED_FOR + 1)
    await register(store, "old")
    assert await reason(store, "old") == "second"
    assert not await thaw(store, "old")


async def test_of_several_freezes_the_longest_counts(store: Store, clock: ManualClock):
    lengths = {"over": -1, "short": 10, "long": 20, "ends": 15}
    for name, seconds in lengths.items():
        await register(store, name)
        await freeze(store, name, reason=name, until=clock.wall() + seconds * SECOND)
    await rename(store, "over", "short", "long", "ends")
    assert await reason(store, "ends") == "long"
    await register(store, "endless")
    await freeze(store, "endless", reason="endless")
    await rename(store, "endless", "ends")
    assert await reason(store, "ends") == "endless"


async def test_a_freeze_left_behind_does_not_come_back(store: Store, clock: ManualClock):
    await register(store, "a")
    await freeze(store, "a", reason="a")
    await register(store, "b")
    await rename(store, "a", "b")
    await thaw(store, "b")
    await freeze(store, "b", reason="b")
    await rename(store, "a", "b", "c")
    assert await reason(store, "c") == "b"


async def test_a_new_name_with_another_calendar_begins_now(store: Store, clock: ManualClock):
    await plant_all(store, [registration("old", calendar="daily")])
    clock.shift(5)
    news = [
        registration("same", calendar="daily", renamed_from=("old",)),
        registration("other", calendar="hourly", renamed_from=("same",)),
    ]
    same, other = await plant_all(store, news)
    assert (same.cursor, other.cursor) == (clock.wall() - 5 * SECOND, clock.wall())


async def test_a_cursor_never_goes_back_with_a_name(store: Store, clock: ManualClock):
    await plant_all(store, [registration("old", b"daily")])
    clock.shift(100)
    await run(store, clock.wall(), name="old")
    latest = clock.wall()
    clock.shift(-50)
    (new,) = await plant_all(store, [registration("new", b"hourly", renamed_from=("old",))])
    assert new.cursor == latest
    clock.shift(DECLARED_FOR + 1)
    await tick(store, latest + 1, name="new", run=None, due=0)
    clock.shift(-50)
    (back,) = await plant_all(store, [registration("old", b"daily", renamed_from=("new",))])
    assert back.cursor == latest + 1


@pytest.mark.parametrize("former", [("a", "b"), ("b", "a")])
async def test_the_successor_of_two_continues_after_the_later_one_if_the_clock_was_set_back(
    store: Store, clock: ManualClock, former: tuple[str, str]
):
    for name in former:
        await register(store, name)
    clock.shift(100)
    late, early = clock.wall(), clock.wall() - 50_000_000
    await tick(store, late, name="a", run=None)
    await tick(store, early, name="b", run=None)
    clock.step(-1000)
    (successor,) = await plant_all(
        store, [registration("c", b"another calendar", renamed_from=former)]
    )
    assert successor.cursor == late
