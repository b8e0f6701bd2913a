"""Commits: what they expect, what they write, and what they answer when they are repeated."""

import pytest
from msgspec.structs import replace

from tenure.core.schedules.records import Commit, Expected, Room, ScheduleHead, Write
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.commit_calls import (
    TICK,
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
from tests.contract.job_calls import MOMENT, TTL, join, prune_jobs, settle
from tests.rig.lookups import decisions

SECOND = 1_000_000
MINUTE = 60.0


# Writes.


async def test_a_commit_makes_a_schedule(store: Store, clock: ManualClock):
    made = plan("sync", writes=(Write("sync", "standing", "ruler", "definition"),))
    answer = await send(store, made)
    assert (answer.outcome, answer.now, answer.run) == ("done", clock.wall(), None)
    assert (answer.room, answer.blocking, answer.heads) == (0, (), ())
    record = await look_at(store)
    assert (record.name, record.version) == ("sync", made.id)
    assert (record.definition, record.standing, record.ruler) == (
        "definition",
        "standing",
        "ruler",
    )
    assert (record.declared, record.live, record.latest) == (clock.wall(), 0, None)
    assert (record.last_run, record.last_job) == (0, "")


async def test_a_write_replaces_the_documents_and_keeps_a_definition_that_it_does_not_have(
    store: Store,
):
    first = await create(store)
    second = plan(first, writes=(Write("sync", "moved", "other"),))
    await send(store, second)
    kept = await look_at(store)
    assert kept == replace(first, version=second.id, standing="moved", ruler="other")
    third = plan(kept, writes=(Write("sync", "", "", ""),))
    await send(store, third)
    emptied = replace(kept, version=third.id, standing="", ruler="", definition="")
    assert await look_at(store) == emptied


async def test_only_a_write_changes_the_version(store: Store, clock: ManualClock):
    await join(store, "ann", ttl=1000)
    before = await create(store)
    clock.shift(MINUTE)
    details = {"declares": True, "lines": (tick_line(),), "run_line": tick_line()}
    await run(store, before, start_on="ann", **details)
    await run(store, before, **details)
    await store.schedules.declare([("sync", "ruler")])
    after = await look_at(store)
    assert (after.version, after.standing) == (before.version, before.standing)
    assert after.live == 2


async def test_every_schedule_that_a_commit_writes_gets_its_id_as_version(store: Store):
    old = await create(store, "old")
    other = await create(store, "other")
    writes = (Write("new", "a", "r", "d"), Write("old", "b", "r"))
    moved = plan("new", expects=(as_expected("new"), as_expected(old)), writes=writes)
    assert (await send(store, moved)).outcome == "done"
    written = [await look_at(store, name) for name in ("new", "old")]
    assert [(record.version, record.standing) for record in written] == [
        (moved.id, "a"),
        (moved.id, "b"),
    ]
    assert await look_at(store, "other") == other


async def test_a_schedule_that_is_deleted_leaves_nothing_to_the_next_of_its_name(store: Store):
    first = await create(store)
    ended = await run(store, first, run_line=tick_line("ran", like="same"))
    await store.jobs.cancel([ended.id])
    gone = plan(first, writes=(Write("sync", None),))
    assert (await send(store, gone)).outcome == "done"
    assert (await store.schedules.read()).records == []
    assert (await store.schedules.read(["sync"])).records == []
    assert await decisions(store, "sync") == []
    assert (await send(store, plan(first))).heads == (ScheduleHead("sync", ""),)
    again = await create(store)
    assert (again.last_run, again.last_job, again.latest) == (0, "", None)
    assert await decisions(store, "sync") == []
    await send(store, plan(again, lines=(tick_line("new", like="same"),)))
    assert [line.body for line in await decisions(store, "sync")] == ["new"]


async def test_deleting_one_schedule_leaves_the_others(store: Store):
    sync, other = await create(store), await create(store, "other")
    await send(store, plan(other, lines=(tick_line(),)))
    await send(store, plan(sync, writes=(Write("sync", None),)))
    assert [record.name for record in (await store.schedules.read()).records] == ["other"]
    assert len(await decisions(store, "other")) == 1


async def test_documents_may_be_large(store: Store):
    """A batch of the largest definitions there are is carried out as well."""
    definition = "\N{EARTH GLOBE EUROPE-AFRICA}" * (64 * 1024)
    names = [f"large-{number:02}" for number in range(20)]
    batch = [plan(name, writes=(Write(name, "s", "r", definition),)) for name in names]
    assert {answer.outcome for answer in await store.schedules.commit(batch)} == {"done"}
    records = (await store.schedules.read()).records
    assert [record.name for record in records] == names
    assert all(record.definition == definition for record in records)


# Expectations.


async def test_a_commit_that_expects_another_version_is_stale(store: Store, clock: ManualClock):
    first = await create(store)
    await run(store, first, tick=TICK)
    second = await rewrite(store, first, standing="moved", ruler="other")
    clock.shift(1)
    answer = await send(store, plan(first, writes=(Write("sync", "mine"),)))
    assert (answer.outcome, answer.now, answer.run) == ("stale", clock.wall(), None)
    assert answer.heads == (as_found(second),)
    assert answer.heads[0].last_run == TICK
    assert await look_at(store) == second


async def test_a_commit_that_expects_no_schedule_is_stale_where_there_is_one(store: Store):
    there = await create(store)
    answer = await send(store, plan("sync", writes=(Write("sync", "mine"),)))
    assert (answer.outcome, answer.heads) == ("stale", (as_found(there),))


async def test_a_commit_that_expects_a_schedule_is_stale_where_there_is_none(store: Store):
    expects = (Expected("sync", "some version"),)
    answer = await send(store, plan(expects=expects, writes=(Write("sync", "mine"),)))
    assert (answer.outcome, answer.heads) == ("stale", (ScheduleHead("sync", ""),))
    assert (await store.schedules.read()).records == []


async def test_schedules_that_a_commit_expects_but_does_not_write_are_compared_too(store: Store):
    sync, other = await create(store), await create(store, "other")
    newer = await rewrite(store, other)
    write = (Write("sync", "mine"),)

    def expecting(*others: Expected) -> Commit:
        return plan(sync, expects=(as_expected(sync), *others), writes=write)

    before = await everything(store)
    for wrong, head in [
        (as_expected(other), as_found(newer)),
        (as_expected("other"), as_found(newer)),
        (Expected("absent", "some version"), ScheduleHead("absent", "")),
    ]:
        answer = await send(store, expecting(wrong))
        assert (answer.outcome, answer.heads) == ("stale", (head,))
    assert await everything(store) == before
    right = expecting(as_expected(newer), as_expected("absent"))
    assert (await send(store, right)).outcome == "done"


async def test_a_stale_commit_gets_every_version_that_differs(store: Store):
    records = {name: await create(store, name, standing=name) for name in "abc"}
    newer = {name: await rewrite(store, records[name], ruler="newer") for name in "ab"}
    expects = (*(as_expected(records[name]) for name in "abc"), Expected("d", "v"))
    answer = await send(store, plan("a", expects=expects))
    assert {head.name: head for head in answer.heads} == {
        "a": as_found(newer["a"]),
        "b": as_found(newer["b"]),
        "d": ScheduleHead("d", ""),
    }


# The order of checks, and refusals.


async def refusals(store: Store, clock: ManualClock) -> dict[str, dict]:
    """Return reasons to refuse a commit of `sync`, in the order in which they are checked."""
    await join(store, "expired")
    clock.shift(TTL)
    await join(store, "ann", ttl=1000)
    record = await create(store)
    await run(store, record, tick=TICK - SECOND)
    return {
        "stale": {"expects": (Expected("sync", "some version"),)},
        "early": {"not_before": clock.wall() + 1},
        "gone": {"start_on": "nobody"},
        "expired": {"start_on": "expired"},
        "full": {"rooms": (Room(1),)},
    }


async def test_a_refused_commit_changes_nothing(store: Store, clock: ManualClock):
    """A batch of many that are refused changes nothing either."""
    why = await refusals(store, clock)
    record = await look_at(store)
    changes = {
        "writes": (Write("sync", "mine", "mine", "mine"),),
        "declares": True,
        "lines": (tick_line("before"),),
        "run_line": tick_line("run"),
    }
    before = await everything(store)
    batch = [plan_run(record, **changes, **reason) for reason in why.values()]
    answers = await store.schedules.commit(batch)
    assert [answer.outcome for answer in answers] == list(why)
    assert {answer.run for answer in answers} == {None}
    for reason in why.values():
        await send(store, plan_run(record, **changes, **reason))
    assert await everything(store) == before
    assert (await send(store, plan_run(record, **changes, start_on="ann"))).outcome == "done"


async def test_a_refused_commit_gets_the_first_reason(store: Store, clock: ManualClock):
    why = await refusals(store, clock)
    record = await look_at(store)
    order = list(why)
    for place, reason in enumerate(order):
        later = [name for name in order[place:] if {reason, name} != {"gone", "expired"}]
        details = {key: value for name in reversed(later) for key, value in why[name].items()}
        answer = await send(store, plan_run(record, **details))
        assert answer.outcome == reason, later


async def test_the_repeat_of_a_commit_with_a_run_is_recognised_before_any_refusal(
    store: Store, clock: ManualClock
):
    why = await refusals(store, clock)
    made = plan_run(await look_at(store))
    assert (await send(store, made)).outcome == "done"
    for reason in why.values():
        assert (await send(store, replace(made, **reason))).outcome == "done"


async def test_a_commit_without_a_run_needs_no_replica(store: Store, clock: ManualClock):
    why = await refusals(store, clock)
    for reason in ("gone", "expired"):
        assert (await send(store, plan(await look_at(store), **why[reason]))).outcome == "done"


async def test_a_commit_is_in_time_at_the_instant_that_it_names(store: Store, clock: ManualClock):
    record = await create(store)
    waits = plan(record, not_before=clock.wall() + SECOND, writes=(Write("sync", "moved"),))
    clock.shift(1 - MOMENT)
    assert (await send(store, waits)).outcome == "early"
    clock.shift(MOMENT)
    assert (await send(store, waits)).outcome == "done"


# Repeats.


@pytest.mark.parametrize("start_on", ["ann", ""], ids=["born", "waiting"])
async def test_a_commit_with_a_run_is_answered_as_before(
    store: Store, clock: ManualClock, start_on: str
):
    await join(store, "ann", ttl=1000)
    record = await create(store)
    details = {"lines": (tick_line("before"),), "run_line": tick_line(), "declares": True}
    sent = plan_run(record, start_on=start_on, writes=(Write("sync", "moved"),), **details)
    first = await send(store, sent)
    assert first.outcome == "done"
    assert first.run is not None
    assert first.run.id == sent.id
    before = await everything(store)
    assert await send(store, sent) == first
    clock.shift(MINUTE)
    assert await send(store, sent) == replace(first, now=clock.wall())
    assert await everything(store) == before


@pytest.mark.parametrize("how", ["moved on", "ended", "deleted"])
async def test_a_commit_with_a_run_is_answered_as_before_in_any_state_of_schedule_and_run(
    store: Store, clock: ManualClock, how: str
):
    await join(store, "ann", ttl=1000)
    sent = plan_run(await create(store), start_on="ann", run_line=tick_line())
    made = (await send(store, sent)).run
    assert made is not None
    clock.shift(1)
    if how == "moved on":
        newer = await rewrite(store, await look_at(store), standing="moved")
        await run(store, newer, run_line=tick_line())
    elif how == "ended":
        await settle(store, made, "succeeded", result=b"7")
    else:
        await send(store, plan(await look_at(store), writes=(Write("sync", None),)))
    before = await everything(store)
    repeated = await send(store, sent)
    (now_there,) = await store.jobs.get([made.id])
    assert (repeated.outcome, repeated.run) == ("done", now_there)
    assert await everything(store) == before


async def test_a_repeat_after_its_run_was_removed_is_stale(store: Store, clock: ManualClock):
    sent = plan_run(await create(store), writes=(Write("sync", "moved"),))
    await send(store, sent)
    await store.jobs.cancel([sent.id])
    clock.shift(MINUTE)
    assert await prune_jobs(store) == 1
    before = await everything(store)
    again = await send(store, sent)
    assert (again.outcome, [head.version for head in again.heads]) == ("stale", [sent.id])
    assert await everything(store) == before


async def test_a_repeat_without_a_run_is_stale_and_finds_its_own_id(store: Store):
    sent = plan("sync", writes=(Write("sync", "standing", "ruler"),), lines=(tick_line(),))
    assert (await send(store, sent)).outcome == "done"
    before = await everything(store)
    again = await send(store, sent)
    assert (again.outcome, [head.version for head in again.heads]) == ("stale", [sent.id])
    assert await everything(store) == before


async def test_a_repeat_of_a_commit_that_has_deleted_finds_nothing(store: Store):
    sent = plan(await create(store), writes=(Write("sync", None),))
    assert (await send(store, sent)).outcome == "done"
    again = await send(store, sent)
    assert (again.outcome, again.heads) == ("stale", (ScheduleHead("sync", ""),))
