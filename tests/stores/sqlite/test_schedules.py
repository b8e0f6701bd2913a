"""Schedules in the SQLite store: what calls cost, the disk, damaged rows."""

import re
from pathlib import Path

import pytest

from tenure.core.bounds import INSTANT_MAX
from tenure.core.jobs.records import BATCH_MAX, COUNT_MAX
from tenure.core.schedules.records import DECISIONS_MAX, Room, ScheduleRecord, Write
from tenure.stores.sqlite import SqliteStore, schedules
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
from tests.contract.job_calls import (
    AT_ONCE,
    claim,
    ended,
    join,
    new,
)
from tests.rig.endings import bury
from tests.rig.lookups import decisions
from tests.stores.sqlite.inside import (
    HandClock,
    change,
    count,
    forced,
    inside,
    opened,
    restarted,
    statements_of,
    steps_of,
)

DAY = 86_400.0
TABLES = ("tenure_schedule", "tenure_decision")
IS_WRITE = re.compile(r"\s*(INSERT|UPDATE|DELETE|WITH)")
NUMBERS = ("declared", "last_run", "last_fence")
TEXTS = ("version", "last_job", "ruler", "standing", "definition")
SPOILT = [
    *((column, junk) for column in NUMBERS for junk in ("'junk'", "x'00ff'", "1.5")),
    *((column, junk) for column in TEXTS for junk in ("x'00ff'", "CAST(x'ff' AS TEXT)")),
]


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenure.db"


@pytest.fixture
async def store(file: Path, clock: ManualClock):
    async with opened(file, clock) as store:
        await join(store, "ann", "ben", ttl=DAY)
        await create(store)
        yield store


# What a call costs.


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("RUNS", "(namespace=? AND schedule=?)"),
        ("RUNS_ON", "(namespace=? AND schedule=? AND holder=?)"),
    ],
)
async def test_runs_are_looked_up_in_an_index_of_unfinished_runs(store, name, by):
    text = getattr(schedules, name)
    values = dict.fromkeys(re.findall(r":(\w+)", text), 1)
    plan = await inside(
        store, lambda db: db.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    )
    assert f"SEARCH tenure_live USING COVERING INDEX tenure_live_run {by}" in str(plan)


async def fill(store: SqliteStore, schedule: str, runs: int, holder: str | None = None) -> None:
    """Store so many unfinished runs behind the store's back, and as many ordinary jobs."""
    for kind in (schedule, ""):
        await change(
            store,
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "
            "INSERT INTO tenure_live "
            "(number, namespace, id, queue, priority, due, retained, schedule, holder) "
            "SELECT 1000 + (SELECT max(number) FROM tenure_live) + n, 'app', ? || ? || n, 'else', "
            "5, 0, 0, ?, (SELECT number FROM tenure_replica WHERE id = ?) FROM n",
            *(runs, schedule, kind or "none", kind, holder),
        )


async def cost(store: SqliteStore, **details) -> int:
    """Return what a commit with a run takes, in steps of SQLite's machine."""
    record = await look_at(store)
    details = {"writes": (Write("sync", "moved"),), "run_line": tick_line(), **details}
    return await steps_of(store, send(store, plan_run(record, **details)))


async def test_a_commit_costs_the_same_however_many_jobs_there_are(store):
    rooms = (Room(1000), Room(1000, on="ann"))
    for _ in range(3):
        alone = await cost(store, start_on="ann", rooms=rooms)
    await fill(store, "other", 20_000)
    assert await cost(store, start_on="ann", rooms=rooms) <= alone + 100


async def test_a_commit_costs_the_same_however_many_schedules_there_are(store):
    for _ in range(3):
        alone = await cost(store, start_on="ann")
    for first in range(0, 1000, BATCH_MAX):
        names = [f"other-{number}" for number in range(first, first + BATCH_MAX)]
        await store.schedules.commit([plan(name, writes=(Write(name, "s"),)) for name in names])
    assert await cost(store, start_on="ann") <= alone + 100


async def test_runs_elsewhere_are_not_counted_for_a_room_on_one_replica(store):
    for _ in range(3):
        alone = await cost(store, start_on="ben", rooms=(Room(1000, on="ben"),))
    await fill(store, "sync", 20_000, "ann")
    assert await cost(store, start_on="ben", rooms=(Room(1000, on="ben"),)) <= alone + 100


async def test_counting_stops_at_the_limit(store):
    await run(store, await look_at(store))
    await fill(store, "sync", 1000)
    few = await cost(store, rooms=(Room(500),))
    await fill(store, "sync more", 1000)
    await change(store, "UPDATE tenure_live SET schedule = 'sync' WHERE schedule = 'sync more'")
    assert await cost(store, rooms=(Room(500),)) <= few + 100


async def test_the_count_of_unfinished_runs_stops_somewhere(store):
    await run(store, await look_at(store))
    await fill(store, "sync", COUNT_MAX)
    assert (await look_at(store)).live == COUNT_MAX


async def test_other_jobs_pay_nothing(store):
    await run(store, await look_at(store), start_on="ben")
    seen = await statements_of(store, store.jobs.insert([new(1), new(2)]))
    jobs = []

    async def get_them():
        jobs.extend(await claim(store))

    seen += await statements_of(store, get_them())
    seen += await statements_of(store, store.jobs.beat(["ann"], ttl=DAY))
    seen += await statements_of(
        store, store.jobs.settle([ended(jobs[0], "succeeded"), ended(jobs[1], "retry")])
    )
    assert not [statement for statement in seen if any(table in statement for table in TABLES)]
    assert not [
        statement
        for statement in seen
        if "tenure_live_run" in statement or "SET schedule" in statement
    ]


async def test_many_are_declared_in_two_statements(store, clock):
    names = [f"s{number}" for number in range(BATCH_MAX)]
    await store.schedules.commit([plan(name, writes=(Write(name, "s", "r"),)) for name in names])
    clock.shift(20)
    rulers = [(name, "r") for name in names]
    seen = await statements_of(store, store.schedules.declare(rulers))
    assert len([statement for statement in seen if "tenure_" in statement]) == 2
    records = (await store.schedules.read(names)).records
    assert {record.declared for record in records} == {clock.wall()}


async def test_a_recent_declaration_is_not_written_again(store, clock):
    clock.shift(9)
    seen = await statements_of(
        store, store.schedules.declare([("sync", "ruler"), ("other", "ruler")])
    )
    assert not [statement for statement in seen if IS_WRITE.match(statement)]


async def test_a_document_is_written_once_with_its_run(store):
    record = await look_at(store)
    details = {"writes": (Write("sync", "moved"),), "declares": True, "run_line": tick_line()}
    seen = await statements_of(store, send(store, plan_run(record, start_on="ann", **details)))
    assert (
        len(
            [
                statement
                for statement in seen
                if IS_WRITE.match(statement) and "tenure_schedule" in statement
            ]
        )
        == 1
    )


async def test_a_commit_that_is_refused_writes_nothing(store, clock):
    before = await look_at(store)
    await run(store, before, start_on="ann")
    after = await rewrite(store, before, standing="moved")
    for refused in (
        plan_run(before, start_on="ben"),
        plan_run(after, not_before=clock.wall() + 1),
        plan_run(after, start_on="nobody"),
        plan_run(after, rooms=(Room(1),)),
        plan("sync", writes=(Write("sync", "mine"),)),
    ):
        seen = await statements_of(store, send(store, refused))
        assert not [statement for statement in seen if IS_WRITE.match(statement)]
        assert not any(statement.startswith("COMMIT") for statement in seen)


async def test_a_run_that_is_born_running_wakes_no_worker(store):
    born = plan_run(await look_at(store), start_on="ann")
    seen = await statements_of(store, send(store, born))
    assert not [statement for statement in seen if "tenure_wake" in statement]


# The disk.


async def test_changes_of_a_commit_are_on_the_disk(store):
    record = await look_at(store)
    for commit in (
        plan_run(record),
        plan_run(record, start_on="ann"),
        plan(record, lines=(tick_line(),)),
        plan(record, rooms=(Room(1, instead=tick_line()),)),
        plan("new", writes=(Write("new", "s"),)),
        plan(record, writes=(Write("sync", "moved"),)),
    ):
        assert await forced(store, send(store, commit))


async def test_that_a_schedule_is_declared_need_not_be_on_the_disk(store, clock):
    clock.shift(20)
    assert not await forced(store, store.schedules.declare([("sync", "ruler")]))


async def test_a_batch_of_commits_waits_for_the_disk_once(store):
    names = [f"s{number}" for number in range(BATCH_MAX)]
    batch = [plan(name, writes=(Write(name, "s"),)) for name in names]
    stale = plan("sync", writes=(Write("sync", "mine"),))
    seen = await statements_of(store, store.schedules.commit([*batch[1:], stale, batch[0]]))
    assert len([statement for statement in seen if statement.startswith("COMMIT")]) == 1
    assert len((await store.schedules.read()).records) == BATCH_MAX + 1
    assert (await look_at(store)).standing == "standing"


# Time.


async def test_a_replica_from_before_the_machine_started_gets_no_run(file, clock):
    async with opened(file, clock) as store:
        await join(store, "ann")
        record = await create(store)
    async with opened(file, restarted(clock)) as store:
        assert (await send(store, plan_run(record, start_on="ann"))).outcome == "expired"


# Rows that cannot be read.


async def test_an_unreadable_run_does_not_keep_its_place(store):
    held = await run(store, await look_at(store), start_on="ann", rooms=(Room(1),))
    await change(store, "UPDATE tenure_live SET attempt = 'many' WHERE id = ?", held.id)
    (answer,) = await bury(store, "ann", [held.id], delays=AT_ONCE)
    assert answer.state is None
    assert await count(store, "tenure_aside") == 1
    after = await look_at(store)
    assert after.live == 0
    await run(store, after, start_on="ben", rooms=(Room(1),))


async def test_a_repeat_whose_run_was_set_aside_makes_no_other(store):
    """The batch that it comes with is carried out."""
    sent = plan_run(await look_at(store), start_on="ann")
    await send(store, sent)
    await change(store, "UPDATE tenure_live SET attempt = 'many' WHERE id = ?", sent.id)
    await bury(store, "ann", [sent.id], delays=AT_ONCE)
    again, other = await store.schedules.commit(
        [sent, plan("other", writes=(Write("other", "s"),))]
    )
    assert (again.outcome, again.run, other.outcome) == ("done", None, "done")


@pytest.mark.parametrize(("column", "junk"), SPOILT)
async def test_a_schedule_that_cannot_be_read_counts_as_not_there(store, column, junk):
    before = await look_at(store)
    good = await create(store, "good", standing="good")
    await send(store, plan(before, lines=(tick_line("old", like="same"),)))
    await change(store, f"UPDATE tenure_schedule SET {column} = {junk} WHERE name = 'sync'")
    assert (await store.schedules.read()).records == [good]
    assert (await store.schedules.read(["sync", "good"])).records == [good]
    assert (await store.schedules.declare([("good", "ruler"), ("sync", "ruler")])).lost == ["sync"]
    assert [(damage.kind, damage.name) for damage in store.damage] == [("timer", "sync")]
    stale, moved = await store.schedules.commit(
        [plan(before), plan(good, writes=(Write("good", "moved"),))]
    )
    assert [(head.name, head.version) for head in stale.heads] == [("sync", "")]
    assert moved.outcome == "done"
    again = await create(store, standing="anew")
    assert (again.standing, again.last_run, again.latest) == ("anew", 0, None)
    await send(store, plan(again, lines=(tick_line("new", like="same"),)))
    assert [line.body for line in await decisions(store, "sync")] == ["new"]


async def test_a_schedule_that_cannot_be_read_can_be_deleted(store):
    await change(store, "UPDATE tenure_schedule SET declared = 'junk'")
    assert (await send(store, plan("sync", writes=(Write("sync", None),)))).outcome == "done"
    assert await count(store, "tenure_schedule") == 0


async def add(store: SqliteStore, *bodies: str, like: str = "") -> ScheduleRecord:
    """Add lines to a history."""
    lines = tuple(tick_line(body, like=like) for body in bodies)
    assert (await send(store, plan(await look_at(store), lines=lines))).outcome == "done"
    return await look_at(store)


@pytest.mark.parametrize("junk", ["'junk'", "x'00ff'", "1.5"])
@pytest.mark.parametrize("column", ["first", "ticks", "at"])
async def test_a_line_that_cannot_be_read_is_left_out_and_the_next_one_replaces_it(
    store, column, junk
):
    await add(store, "old", "bad", like="")
    await change(store, f"UPDATE tenure_decision SET {column} = {junk} WHERE body = 'bad'")
    assert (await look_at(store)).latest is None
    assert [line.body for line in await decisions(store, "sync")] == ["old"]
    assert [(damage.kind, damage.name) for damage in store.damage] == [("decision", "sync")]
    await add(store, "new")
    assert [line.body for line in await decisions(store, "sync")] == ["new", "old"]
    assert await count(store, "tenure_decision") == 2


@pytest.mark.parametrize("column", ["like", "body"])
async def test_a_line_that_is_not_utf_8_is_left_out_and_replaced(store, column):
    await add(store, "bad", like="same")
    await change(store, f"UPDATE tenure_decision SET \"{column}\" = CAST(x'ff' AS TEXT)")
    after = await add(store, "new", like="same")
    assert after.latest is not None
    assert (after.latest.body, after.latest.ticks) == ("new", 1)


@pytest.mark.parametrize("number", ["'many'", "-7", f"{INSTANT_MAX}", f"{2**63 - 1}"])
async def test_a_line_whose_number_was_changed_is_no_longer_one(store, number):
    await add(store, "lost")
    await change(store, f"UPDATE tenure_decision SET number = {number}")
    await add(store, "one", "two")
    assert [line.body for line in await decisions(store, "sync")] == ["two", "one"]


async def test_a_line_of_as_many_ticks_as_can_be_takes_more(store):
    await add(store, "many", like="same")
    await change(store, "UPDATE tenure_decision SET ticks = ?", INSTANT_MAX)
    after = await add(store, "one more", like="same")
    assert after.latest is not None
    assert (after.latest.body, after.latest.ticks) == ("many", INSTANT_MAX)


# What is left behind.


async def test_a_schedule_that_is_deleted_leaves_nothing(store):
    for number in range(DECISIONS_MAX + 20):
        details = {"start_on": "ann" if number % 2 else "", "run_line": tick_line(f"{number}")}
        made = await run(store, await look_at(store), tick=TICK + number, **details)
        await store.jobs.cancel([made.id])
        assert await count(store, "tenure_decision") == min(number + 1, DECISIONS_MAX)
    assert [line.body for line in await decisions(store, "sync", limit=2)] == ["119", "118"]
    await send(store, plan(await look_at(store), writes=(Write("sync", None),)))
    assert [await count(store, table) for table in TABLES] == [0, 0]


async def test_more_lines_than_are_kept_can_be_added_at_once(store):
    await add(store, *(f"{number}" for number in range(DECISIONS_MAX + 20)))
    lines = await decisions(store, "sync", limit=1000)
    assert [line.body for line in lines] == [f"{number}" for number in range(119, 19, -1)]
    assert await count(store, "tenure_decision") == DECISIONS_MAX
