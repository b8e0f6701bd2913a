"""The history of a schedule: lines that commits add, and lines that are merged."""

import pytest
from msgspec.structs import replace

from tenure.core.schedules.records import DECISIONS_MAX, Room, TickLine, Write
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.commit_calls import (
    TICK,
    create,
    look_at,
    plan,
    plan_run,
    rewrite,
    run,
    send,
    tick_line,
)
from tests.rig.lookups import decisions

SECOND = 1_000_000


async def add(store: Store, *lines: TickLine, name: str = "sync") -> None:
    """Add lines in one commit."""
    answer = await send(store, plan(await look_at(store, name), lines=lines))
    assert answer.outcome == "done"


async def bodies(store: Store, name: str = "sync") -> list[str]:
    """Return the bodies of the history lines, newest first."""
    return [line.body for line in await decisions(store, name)]


async def test_a_new_schedule_has_no_history(store: Store):
    assert await decisions(store, "sync") == []
    record = await create(store)
    assert record.latest is None
    assert await decisions(store, "sync") == []


async def test_lines_are_stored_unchanged_with_their_time(store: Store, clock: ManualClock):
    await create(store)
    clock.shift(5)
    line = tick_line("why", like="late", first=TICK, last=TICK + SECOND, ticks=2, at=7)
    await add(store, line)
    assert await decisions(store, "sync") == [replace(line, at=clock.wall())]
    assert (await look_at(store)).latest == replace(line, at=clock.wall())


async def test_the_line_of_the_run_comes_after_the_others(store: Store, clock: ManualClock):
    record = await create(store)
    clock.shift(5)
    lines = (tick_line("first"), tick_line("second", first=TICK + SECOND))
    ran = tick_line("ran", first=TICK + 2 * SECOND)
    await run(store, record, lines=lines, run_line=ran)
    expected = [replace(line, at=clock.wall()) for line in (ran, *reversed(lines))]
    assert await decisions(store, "sync") == expected
    assert (await look_at(store)).latest == expected[0]


async def test_the_line_of_a_full_room_comes_after_the_others(store: Store):
    record = await create(store)
    room = Room(0, instead=tick_line("full"))
    lines = (tick_line("first"), tick_line("second"))
    sent = plan_run(record, lines=lines, rooms=(room,), run_line=tick_line("ran"))
    assert (await send(store, sent)).outcome == "instead"
    assert await bodies(store) == ["full", "second", "first"]


async def test_a_schedule_may_begin_with_lines(store: Store):
    write = Write("sync", "standing", "ruler", "definition")
    lines = (tick_line("first"), tick_line("second"))
    assert (await send(store, plan("sync", writes=(write,), lines=lines))).outcome == "done"
    assert await bodies(store) == ["second", "first"]


async def test_lines_are_returned_newest_first_up_to_the_limit(store: Store):
    await create(store)
    for number in range(5):
        await add(store, tick_line(str(number)))
    assert await bodies(store) == ["4", "3", "2", "1", "0"]
    for limit in (1, 3, 5, 6):
        lines = await decisions(store, "sync", limit=limit)
        assert [line.body for line in lines] == ["4", "3", "2", "1", "0"][:limit]


async def test_a_line_like_the_newest_one_extends_it(store: Store, clock: ManualClock):
    await create(store)
    await add(store, tick_line("ran"))
    first = tick_line("skipped", like="full", first=TICK + SECOND, ticks=2)
    await add(store, first)
    clock.shift(5)
    await add(store, tick_line("later", like="full", first=TICK + 3 * SECOND))
    second = tick_line("last", like="full", first=TICK + 4 * SECOND, last=TICK + 9 * SECOND)
    await add(store, replace(second, ticks=4))
    newest, oldest = await decisions(store, "sync")
    assert oldest.body == "ran"
    assert newest == replace(first, last=TICK + 9 * SECOND, ticks=7, at=clock.wall())
    assert (await look_at(store)).latest == newest


async def test_lines_of_one_commit_extend_each_other(store: Store):
    record = await create(store)
    await add(store, tick_line("a", like="same"))
    lines = tuple(tick_line(str(number), like="same") for number in range(3))
    await run(store, record, lines=lines, run_line=tick_line("ran", like="same", last=TICK + 5))
    (line,) = await decisions(store, "sync")
    assert (line.body, line.ticks, line.last) == ("a", 5, TICK + 5)


async def test_the_line_of_a_full_room_extends_the_newest_one(store: Store):
    record = await create(store)
    for number in range(1, 4):
        line = tick_line("full", like="full", first=TICK + number)
        await send(store, plan_run(record, rooms=(Room(0, instead=line),)))
    (line,) = await decisions(store, "sync")
    assert (line.first, line.last, line.ticks) == (TICK + 1, TICK + 3, 3)


async def test_only_the_newest_line_is_extended(store: Store):
    await create(store)
    for like in ("a", "b", "a", "a", "b"):
        await add(store, tick_line(like, like=like))
    assert [(line.body, line.ticks) for line in await decisions(store, "sync")] == [
        ("b", 1),
        ("a", 2),
        ("b", 1),
        ("a", 1),
    ]


@pytest.mark.parametrize(("first", "second"), [("", ""), ("a", ""), ("", "a"), ("a", "A")])
async def test_lines_that_are_not_alike_stay_apart(store: Store, first: str, second: str):
    await create(store)
    await add(store, tick_line("same", like=first))
    await add(store, tick_line("same", like=second))
    await add(store, tick_line("other", like=first), tick_line("other", like=second))
    assert await bodies(store) == ["other", "other", "same", "same"]


async def test_lines_are_extended_over_writes_and_runs(store: Store):
    record = await create(store)
    await add(store, tick_line("a", like="same"))
    await run(store, record)
    await rewrite(store, record, standing="moved")
    await add(store, tick_line("b", like="same"))
    assert [(line.body, line.ticks) for line in await decisions(store, "sync")] == [("a", 2)]


async def test_old_lines_are_forgotten(store: Store):
    await create(store)
    numbers = range(2 * DECISIONS_MAX + 30)
    for start in range(0, len(numbers), 23):
        await add(store, *(tick_line(str(number)) for number in numbers[start : start + 23]))
        kept = [str(number) for number in reversed(numbers[: start + 23])][:DECISIONS_MAX]
        lines = await decisions(store, "sync", limit=10 * DECISIONS_MAX)
        assert [line.body for line in lines] == kept
    await add(store, tick_line("last"))
    assert len(await decisions(store, "sync")) == DECISIONS_MAX
    latest = (await look_at(store)).latest
    assert latest is not None
    assert latest.body == "last"


async def test_one_commit_may_have_more_lines_than_are_kept(store: Store):
    await create(store)
    await add(store, *(tick_line(str(number)) for number in range(DECISIONS_MAX + 5)))
    numbers = [int(line.body) for line in await decisions(store, "sync")]
    assert numbers == [*range(5, DECISIONS_MAX + 5)][::-1]


async def test_schedules_have_histories_of_their_own(store: Store):
    for name in ("a", "b"):
        await create(store, name)
        await add(store, tick_line(name, like="same"), name=name)
    await add(store, tick_line("more", like="same"), name="a")
    assert [line.ticks for line in await decisions(store, "a")] == [2]
    assert [line.ticks for line in await decisions(store, "b")] == [1]
    latest = [record.latest for record in (await store.schedules.read()).records]
    assert latest == [*await decisions(store, "a"), *await decisions(store, "b")]


async def test_a_commit_leaves_the_lines_with_its_own_schedule(store: Store):
    """Also if it writes other schedules, one of which continues it."""
    record = await create(store)
    await add(store, tick_line("old"))
    expects = (*plan(record).expects, *plan("successor").expects)
    writes = (Write("successor", "s", "r", "d", above=("sync",)), Write("sync", "at rest"))
    await send(store, plan("successor", expects=expects, writes=writes, lines=(tick_line("new"),)))
    assert (await bodies(store), await bodies(store, "successor")) == (["old"], ["new"])


async def test_lines_may_be_long(store: Store):
    record = await create(store)
    body = "\N{EARTH GLOBE EUROPE-AFRICA}'\"\\" * 10_000
    await run(store, record, run_line=tick_line(body, like="ü" * 100))
    (line,) = await decisions(store, "sync")
    assert (line.body, line.like) == (body, "ü" * 100)
