"""Declarations of schedules, the silence of a schedule, and lists of schedules."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.schedules.records import DECLARED_ANEW_AFTER, Commit, Room, Write
from tenure.errors import StoreError
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.commit_calls import (
    as_expected,
    as_found,
    create,
    everything,
    look_at,
    plan,
    plan_run,
    rewrite,
    run,
    send,
    tick_line,
)
from tests.contract.job_calls import MOMENT, join, settle
from tests.contract.test_names import LOOKALIKES, ODD_NAMES
from tests.contract.worlds import World
from tests.rig.lookups import decisions

SECOND = 1_000_000
MINUTE = 60.0
HOUR = 3600.0


# Declarations.


async def test_a_declaration_under_the_stored_ruler_is_noted(store: Store, clock: ManualClock):
    before = await create(store)
    clock.shift(MINUTE)
    declared = await store.schedules.declare([("sync", "ruler")])
    assert (declared.now, declared.lost) == (clock.wall(), [])
    assert await look_at(store) == replace(before, declared=clock.wall())


async def test_names_that_are_unknown_or_have_another_ruler_are_lost(
    store: Store, clock: ManualClock
):
    await create(store, "taken", ruler="other")
    await create(store, "mine", ruler="ruler")
    await create(store, "too", ruler="ruler")
    clock.shift(MINUTE)
    before = await everything(store)
    rulers = [("absent", "ruler"), ("taken", "ruler"), ("mine", "Ruler"), ("too", "")]
    declared = await store.schedules.declare(rulers)
    assert sorted(declared.lost) == ["absent", "mine", "taken", "too"]
    assert await everything(store) == before


async def test_a_lost_name_does_not_affect_the_others(store: Store, clock: ManualClock):
    for name in ("a", "b", "c"):
        await create(store, name, ruler=f"ruler of {name}")
    clock.shift(MINUTE)
    declared = await store.schedules.declare(
        [(name, f"ruler of {name}") for name in ("c", "x", "a")]
    )
    assert declared.lost == ["x"]
    records = (await store.schedules.read()).records
    assert [clock.wall() - record.declared for record in records] == [0, 60 * SECOND, 0]


async def test_a_call_without_declarations_is_answered(store: Store, clock: ManualClock):
    declared = await store.schedules.declare([])
    assert (declared.now, declared.lost) == (clock.wall(), [])


async def test_a_young_declaration_is_left_as_it_is(store: Store, clock: ManualClock):
    first = await create(store)
    clock.shift(DECLARED_ANEW_AFTER - MOMENT)
    assert (await store.schedules.declare([("sync", "ruler")])).lost == []
    assert await look_at(store) == first
    clock.shift(MOMENT)
    await store.schedules.declare([("sync", "ruler")])
    assert await look_at(store) == replace(first, declared=clock.wall())


async def test_a_declaration_of_the_future_is_made_anew(store: Store, clock: ManualClock):
    """Otherwise a schedule without replicas would count as declared for as long as the step."""
    await create(store)
    clock.step(-HOUR)
    assert (await store.schedules.declare([("sync", "ruler")])).lost == []
    assert (await look_at(store)).declared == clock.wall()


async def test_a_rewritten_schedule_is_lost_to_its_former_ruler(store: Store, clock: ManualClock):
    await rewrite(store, await create(store), ruler="newer")
    clock.shift(MINUTE)
    assert (await store.schedules.declare([("sync", "ruler")])).lost == ["sync"]
    assert (await store.schedules.declare([("sync", "newer")])).lost == []
    assert (await look_at(store)).declared == clock.wall()


async def test_a_commit_declares_its_schedule_on_request(store: Store, clock: ManualClock):
    first, other = await create(store), await create(store, "other")
    clock.shift(MINUTE)
    expects = (as_expected(first), as_expected(other))
    writes = (Write("sync", "s", "r"), Write("other", "s", "r"))
    await send(store, plan(first, expects=expects, writes=writes))
    assert {record.declared for record in (await store.schedules.read()).records} == {
        first.declared
    }
    await run(store, await look_at(store))
    assert (await look_at(store)).declared == first.declared
    await send(store, plan(await look_at(store), declares=True))
    assert (await look_at(store)).declared == clock.wall()
    assert (await look_at(store, "other")).declared == first.declared


async def test_every_new_schedule_is_declared(store: Store, clock: ManualClock):
    old = await create(store, "old")
    clock.shift(MINUTE)
    expects = (as_expected(old), as_expected("a"), as_expected("b"))
    writes = (Write("a", "s", "r", "d"), Write("old", "s", "r"), Write("b", "s", "r", "d"))
    await send(store, plan("a", expects=expects, writes=writes))
    records = (await store.schedules.read()).records
    assert [clock.wall() - record.declared for record in records] == [0, 0, 60 * SECOND]


# Silence.


def silent(of: Any, seconds: float, **details: Any) -> Commit:
    """Return a commit that expects that no replica has declared the schedule for `seconds`."""
    expects = (as_expected(of, seconds),)
    return plan(of, **{"expects": expects, "writes": (Write("sync", "taken", "other"),), **details})


async def test_a_recently_declared_schedule_makes_a_commit_stale(store: Store, clock: ManualClock):
    record = await create(store)
    taken = silent(record, MINUTE)
    clock.shift(MINUTE - MOMENT)
    answer = await send(store, taken)
    assert (answer.outcome, answer.heads) == ("stale", (as_found(record),))
    assert await look_at(store) == record
    clock.shift(MOMENT)
    assert (await send(store, taken)).outcome == "done"
    assert (await look_at(store)).standing == "taken"


async def test_every_declaration_counts_against_silence(store: Store, clock: ManualClock):
    record = await create(store)
    clock.shift(MINUTE)
    await store.schedules.declare([("sync", "ruler")])
    assert (await send(store, silent(record, MINUTE))).outcome == "stale"
    clock.shift(MINUTE)
    await send(store, plan(record, declares=True))
    assert (await send(store, silent(record, MINUTE))).outcome == "stale"
    clock.shift(MINUTE)
    assert (await send(store, silent(record, MINUTE))).outcome == "done"


async def test_silence_and_version_count_both(store: Store, clock: ManualClock):
    record = await create(store)
    newer = await rewrite(store, record)
    clock.shift(MINUTE)
    assert (await send(store, silent(record, MINUTE))).outcome == "stale"
    assert (await send(store, silent(newer, 0.0))).outcome == "done"


async def test_a_schedule_that_is_only_expected_may_have_to_be_silent(
    store: Store, clock: ManualClock
):
    record, successor = await create(store), await create(store, "successor")
    expects = (as_expected(record), as_expected(successor, MINUTE))
    back = plan(record, expects=expects, writes=(Write("sync", "back"),))
    answer = await send(store, back)
    assert (answer.outcome, answer.heads) == ("stale", (as_found(successor),))
    clock.shift(MINUTE)
    assert (await send(store, back)).outcome == "done"


async def test_an_unknown_schedule_is_silent(store: Store):
    assert (await send(store, silent("sync", MINUTE))).outcome == "done"


async def test_a_declaration_of_the_future_counts_as_one_of_now(store: Store, clock: ManualClock):
    """It is written back, so that the silence begins now, not when the clock has caught up."""
    record = await create(store)
    clock.step(-HOUR)
    assert (await send(store, silent(record, MINUTE))).outcome == "stale"
    assert await look_at(store) == replace(record, declared=clock.wall())
    clock.shift(MINUTE - MOMENT)
    assert (await send(store, silent(record, MINUTE))).outcome == "stale"
    clock.shift(MOMENT)
    assert (await send(store, silent(record, MINUTE))).outcome == "done"


@pytest.mark.parametrize("reason", ["early", "gone", "full"])
async def test_a_declaration_of_the_future_is_corrected_even_if_the_commit_is_refused(
    store: Store, clock: ManualClock, reason: str
):
    record = await create(store)
    clock.step(-HOUR)
    details = {
        "early": {"not_before": clock.wall() + SECOND},
        "gone": {"start_on": "nobody"},
        "full": {"rooms": (Room(0),)},
    }[reason]
    sent = plan_run(record, expects=(as_expected(record, 0.0),), **details)
    assert (await send(store, sent)).outcome == reason
    assert await look_at(store) == replace(record, declared=clock.wall())


async def test_a_declaration_of_the_future_is_corrected_where_it_is_only_expected(
    store: Store, clock: ManualClock
):
    record, successor = await create(store), await create(store, "successor")
    clock.step(-HOUR)
    expects = (as_expected(record), as_expected(successor, MINUTE))
    assert (await send(store, plan(record, expects=expects))).outcome == "stale"
    assert await look_at(store, "successor") == replace(successor, declared=clock.wall())
    assert await look_at(store) == record


# Lists.


async def test_schedules_are_listed_in_pages_by_the_bytes_of_their_names(
    store: Store, clock: ManualClock
):
    names = ["\uffff", "\U0001f30d", "Z", "a", "aa", "a ", "é", "e", "10", "9", "_", "日", "~"]
    for name in names:
        await create(store, name)
    clock.shift(1)
    ordered = sorted(names, key=str.encode)
    everyone = await store.schedules.read()
    assert everyone.now == clock.wall()
    assert [record.name for record in everyone.records] == ordered
    listed, after = [], ""
    while page := (await store.schedules.read(after=after, limit=4)).records:
        assert len(page) <= 4
        listed += [record.name for record in page]
        after = listed[-1]
    assert listed == ordered
    page = (await store.schedules.read(after="ab", limit=1)).records
    assert [record.name for record in page] == ["e"]


async def test_schedules_can_be_read_by_name(store: Store, clock: ManualClock):
    for name in ("a", "b", "c"):
        await create(store, name)
    reading = await store.schedules.read(["c", "x", "a"])
    assert reading.now == clock.wall()
    assert sorted(record.name for record in reading.records) == ["a", "c"]
    twice = await store.schedules.read(["b", "a", "b"])
    assert sorted(record.name for record in twice.records) == ["a", "b"]
    assert (await store.schedules.read([])).records == []
    assert (await store.schedules.read(["x"])).records == []


async def test_a_schedule_is_listed_with_its_unfinished_runs(store: Store):
    await join(store, "ann")
    record, other = await create(store), await create(store, "other")
    runs = [await run(store, record, start_on=name) for name in ("ann", "", "ann")]
    await run(store, other)
    for live, made in zip((2, 1), runs[::2], strict=True):
        await settle(store, made, "succeeded")
        assert [listed.live for listed in (await store.schedules.read()).records] == [1, live]
        assert (await look_at(store)).live == live


async def test_no_schedule_is_ever_pruned(store: Store, clock: ManualClock):
    record = await create(store)
    await send(store, plan(record, lines=(tick_line(),)))
    before = await everything(store)
    clock.shift(1e8)
    await store.prune(idle=0)
    assert await everything(store) == before


async def test_two_namespaces_share_no_schedules(world: World, clock: ManualClock):
    here, there = await world.store(), await world.store(f"{world.namespace}-other")
    mine, theirs = await create(here), await create(there)
    await run(there, theirs, run_line=tick_line())
    clock.shift(MINUTE)
    before = await everything(there)
    assert (await send(here, plan(theirs))).outcome == "stale"
    assert (await send(here, plan(mine, rooms=(Room(1),)))).outcome == "done"
    await here.schedules.declare([("sync", "ruler")])
    made = await run(here, mine, run_line=tick_line())
    await here.jobs.cancel([made.id])
    await send(here, plan(mine, writes=(Write("sync", None),)))
    assert await everything(there) == before


# Names, and stores that are not open.
@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
async def test_names_and_documents_are_not_interpreted(store: Store, name: str):
    await join(store, name)
    first = await create(store, name, standing=name, ruler=name, definition=name)
    assert (first.name, first.standing, first.ruler, first.definition) == (name,) * 4
    line = tick_line(name, like=name)
    made = await run(store, first, start_on=name, job={"options": name}, run_line=line)
    assert (made.schedule, made.replica, made.options) == (name,) * 3
    (decision,) = await decisions(store, name)
    assert (decision.body, decision.like) == (name, name)
    assert (await store.schedules.declare([(name, name)])).lost == []
    full = await send(store, plan(first, rooms=(Room(1, on=name),)))
    assert (full.outcome, full.blocking) == ("full", (made.id,))
    stale = await send(store, plan(name))
    assert stale.heads == (as_found(await look_at(store, name)),)
    assert (await send(store, plan(first, writes=(Write(name, None),)))).outcome == "done"
    assert (await store.schedules.read()).records == []


@pytest.mark.parametrize(("name", "alike"), LOOKALIKES, ids=ascii)
async def test_names_that_look_alike_are_two_schedules(store: Store, name: str, alike: str):
    first, second = await create(store, name), await create(store, alike)
    await run(store, first, run_line=tick_line())
    assert await look_at(store, alike) == second
    assert (await send(store, plan(second, rooms=(Room(1),)))).outcome == "done"
    assert await decisions(store, alike) == []


CALLS: dict[str, Callable[[Store], Coroutine[Any, Any, Any]]] = {
    "schedules": lambda store: store.schedules.read(),
    "declare": lambda store: store.schedules.declare([("sync", "ruler")]),
    "commit": lambda store: store.schedules.commit([plan(writes=(Write("sync", "standing"),))]),
    "decisions": lambda store: decisions(store, "sync"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_store_that_is_not_open_raises_an_error(world: World, name: str):
    store = world.unopened()
    with pytest.raises(StoreError):
        await CALLS[name](store)
    await store.open()
    await CALLS[name](store)
    await store.close()
    with pytest.raises(StoreError):
        await CALLS[name](store)
