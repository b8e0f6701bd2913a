"""Several commits in one call: each sees the effects of earlier ones, and none affects another."""

from tenure.core.jobs.records import BATCH_MAX
from tenure.core.schedules.records import Expected, Room, Write
from tenure.stores.contract import Store
from tests.contract.commit_calls import (
    TICK,
    as_found,
    create,
    look_at,
    plan,
    plan_run,
    rewrite,
    send,
    tick_line,
)
from tests.rig.lookups import decisions


async def test_a_call_without_commits_is_answered(store: Store):
    assert await store.schedules.commit([]) == []


async def test_commits_of_one_call_see_the_effects_of_earlier_ones(store: Store):
    first = plan("sync", writes=(Write("sync", "first", "ruler", "definition"),))
    second = plan(
        expects=(Expected("sync", first.id),),
        writes=(Write("sync", "second", "ruler"),),
        lines=(tick_line(like="same"),),
    )
    late = plan(expects=(Expected("sync", first.id),), writes=(Write("sync", "late"),))
    third = plan_run(
        expects=(Expected("sync", second.id),), rooms=(Room(1),), run_line=tick_line(like="same")
    )
    full = plan_run(expects=(Expected("sync", second.id),), rooms=(Room(1),))
    again = plan("sync", writes=(Write("sync", "again"),))
    answers = await store.schedules.commit([first, second, late, third, full, again])
    assert [answer.outcome for answer in answers] == [
        "done",
        "done",
        "stale",
        "done",
        "full",
        "stale",
    ]
    assert [head.version for head in answers[2].heads] == [second.id]
    assert answers[4].blocking == (third.id,)
    record = await look_at(store)
    assert (record.version, record.standing, record.last_job) == (second.id, "second", third.id)
    assert (record.definition, record.live) == ("definition", 1)
    assert [line.ticks for line in await decisions(store, "sync")] == [2]


async def test_a_commit_that_is_repeated_in_its_own_call_is_done_once(store: Store):
    made = plan_run(await create(store), run_line=tick_line())
    first, second = await store.schedules.commit([made, made])
    assert first == second
    assert first.outcome == "done"
    assert (await look_at(store)).live == 1
    assert len(await decisions(store, "sync")) == 1


async def test_a_schedule_may_be_deleted_and_made_anew_in_one_call(store: Store):
    record = await create(store)
    await send(store, plan(record, lines=(tick_line(like="same"),)))
    gone = plan(record, writes=(Write("sync", None),))
    back = plan("sync", writes=(Write("sync", "back", "r", "d"),), lines=(tick_line(like="same"),))
    answers = await store.schedules.commit([gone, back])
    assert [answer.outcome for answer in answers] == ["done", "done"]
    assert (await look_at(store)).version == back.id
    assert [line.ticks for line in await decisions(store, "sync")] == [1]


async def test_a_refused_commit_does_not_affect_the_others(store: Store):
    records = [await create(store, f"timer-{number}") for number in range(6)]
    newer = await rewrite(store, records[3], standing="newer")
    batch = [
        plan_run(
            record, tick=TICK + number, writes=(Write(record.name, "moved"),), run_line=tick_line()
        )
        for number, record in enumerate(records)
    ]
    answers = await store.schedules.commit(batch)
    assert [answer.outcome for answer in answers] == ["done"] * 3 + ["stale"] + ["done"] * 2
    assert answers[3].heads == (as_found(newer),)
    runs = [answer.run and answer.run.id for answer in answers]
    assert runs == [None if number == 3 else commit.id for number, commit in enumerate(batch)]
    listed = (await store.schedules.read()).records
    assert [record.last_run and record.last_run - TICK for record in listed] == [0, 1, 2, 0, 4, 5]
    assert listed[3] == newer


async def test_a_call_takes_many_commits(store: Store):
    names = [f"timer-{number:03}" for number in range(BATCH_MAX)]
    made = [plan(name, writes=(Write(name, "standing", "ruler", name),)) for name in names]
    answers = await store.schedules.commit(made)
    assert [answer.outcome for answer in answers] == ["done"] * BATCH_MAX
    assert (await store.schedules.declare([(name, "ruler") for name in names])).lost == []
    records = (await store.schedules.read(names)).records
    assert {record.name: record.version for record in records} == {
        commit.name: commit.id for commit in made
    }
    runs = [plan_run(record, run_line=tick_line()) for record in records]
    answers = await store.schedules.commit(runs)
    assert [answer.run and answer.run.id for answer in answers] == [commit.id for commit in runs]
