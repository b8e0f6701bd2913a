"""Schedules in the SQLite store: what calls cost, the disk, older files, damaged rows."""

import re
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from tenure.core.records import BATCH_MAX
from tenure.core.schedules import DECISIONS_MAX, EVERYTHING
from tenure.stores.sqlite import SqliteStore, schedule_statements, schema
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    claim,
    ended,
    id_of,
    join,
    new,
    settle,
    start_one,
    states,
)
from tests.contract.schedule_calls import (
    bound,
    look_at,
    move,
    plant,
    planting,
    run,
    tick,
)
from tests.rig.endings import bury, leave
from tests.unit.sqlite_inside import (
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
TABLES = ("tenure_schedule", "tenure_decision", "tenure_freeze")


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
        await plant(store)
        yield store


# What a call costs.


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("COUNT_RUNS", "(namespace=? AND schedule=?)"),
        ("COUNT_OWN_RUNS", "(namespace=? AND schedule=? AND holder=?)"),
    ],
)
async def test_runs_are_counted_in_an_index_of_unfinished_runs(store, name, by):
    text = getattr(schedule_statements, name)
    values = dict.fromkeys(re.findall(r":(\w+)", text), 1)
    plan = await inside(
        store, lambda db: db.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    )
    assert f"SEARCH tenure_live USING COVERING INDEX tenure_live_run {by}" in str(plan)


async def fill(store: SqliteStore, schedule: str, runs: int, holder: str | None = None) -> None:
    """Store so many unfinished runs behind the store's back, and as many ordinary jobs."""
    for kind in (schedule, None):
        await change(
            store,
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "
            "INSERT INTO tenure_live "
            "(number, namespace, id, queue, priority, due, retained, schedule, holder) "
            "SELECT 1000 + (SELECT max(number) FROM tenure_live) + n, 'app', ? || ? || n, 'else', "
            "5, 0, 0, ?, (SELECT number FROM tenure_replica WHERE id = ?) FROM n",
            *(runs, schedule, kind or "none", kind, holder),
        )


async def cost(store: SqliteStore, clock: ManualClock, **details) -> int:
    """Return what a move takes, in steps of SQLite's machine."""
    clock.shift(1)
    now = await plant(store)
    return await steps_of(store, store.advance(move(now, clock.wall(), **details)))


async def test_a_move_costs_the_same_however_many_jobs_there_are(store, clock):
    bounds = {"limit": bound(1000), "own": bound(1000)}
    for _ in range(3):
        alone = await cost(store, clock, replica="ann", **bounds)
    await fill(store, "other", 20_000)
    assert await cost(store, clock, replica="ann", **bounds) <= alone + 100


async def test_what_runs_elsewhere_is_not_counted_for_a_limit_of_its_own(store, clock):
    for _ in range(3):
        alone = await cost(store, clock, replica="ben", own=bound(1000))
    await fill(store, "sync", 20_000, "ann")
    assert await cost(store, clock, replica="ben", own=bound(1000)) <= alone + 100


async def test_counting_stops_at_the_limit(store, clock):
    await run(store, clock.wall())
    await fill(store, "sync", 1000)
    few = await cost(store, clock, limit=bound(500))
    await fill(store, "sync more", 1000)
    await change(store, "UPDATE tenure_live SET schedule = 'sync' WHERE schedule = 'sync more'")
    assert await cost(store, clock, limit=bound(500)) <= few + 100


async def test_other_jobs_pay_nothing(store, clock):
    await run(store, clock.wall(), replica="ben")
    seen = await statements_of(store, store.insert([new(1), new(2)]))
    jobs = []

    async def get_them():
        jobs.extend(await claim(store))

    seen += await statements_of(store, get_them())
    seen += await statements_of(store, store.beat(["ann"], ttl=DAY))
    seen += await statements_of(
        store, store.settle("ann", [ended(jobs[0], "succeeded"), ended(jobs[1], "retry")])
    )
    assert not [one for one in seen if any(table in one for table in TABLES)]
    assert not [one for one in seen if "tenure_live_run" in one or "SET schedule" in one]


async def test_many_are_planted_in_a_few_statements(store, clock):
    many = [planting(f"s{number}") for number in range(BATCH_MAX)]
    await store.plant(many)
    clock.shift(20)
    seen = await statements_of(store, store.plant(many))
    assert len([one for one in seen if "tenure_" in one]) == 2
    assert {one.declared for one in await store.schedules([one.name for one in many])} == {
        clock.wall()
    }


async def test_a_former_name_costs_nothing_once_it_was_taken_over(store, clock):
    renamed = [planting("newer", renamed_from=("never", "new", "sync"))]
    await store.plant([planting("new", renamed_from=("sync",))])
    await store.plant(renamed)
    clock.shift(20)
    seen = await statements_of(store, store.plant(renamed))
    assert len([one for one in seen if "tenure_" in one]) == 2
    assert not await forced(store, store.plant(renamed))


async def test_a_chain_of_names_is_read_at_once(store):
    names = ["sync", *(f"s{number}" for number in range(20))]
    for former, name in pairwise(names):
        await store.plant([planting(name, renamed_from=(former,))])
    seen = await statements_of(store, store.plant([planting()]))
    assert len([one for one in seen if "tenure_" in one]) == 1


async def test_a_move_that_comes_too_late_writes_nothing(store, clock):
    clock.shift(1)
    before = await plant(store)
    await store.advance(move(before, clock.wall(), replica="ann"))
    for late in (
        move(before, clock.wall(), replica="ben"),
        move(before, clock.wall(), seen=None, due=clock.wall() + 1),
        move(before, clock.wall(), name="other"),
    ):
        seen = await statements_of(store, store.advance(late))
        assert not [one for one in seen if re.match(r"\s*(INSERT|UPDATE|DELETE|WITH)", one)]


async def test_a_run_that_is_born_running_wakes_nobody(store, clock):
    clock.shift(1)
    now = await plant(store)
    seen = await statements_of(store, store.advance(move(now, clock.wall(), replica="ann")))
    assert not [one for one in seen if "tenure_wake" in one]


# The disk.


async def test_every_move_is_on_the_disk(store, clock):
    clock.shift(1)
    now = await plant(store)
    waits = move(now, clock.wall(), limit=bound(9))
    for call in (
        store.advance(waits),
        store.advance(move(now, clock.wall(), seen=None, limit=bound(1))),
        store.plant([planting("new")]),
        store.plant([planting("new", b"second")]),
        store.plant([planting("newer", renamed_from=("new",))]),
        store.freeze("sync"),
        store.thaw("sync"),
    ):
        assert await forced(store, call)


async def test_who_declares_a_schedule_need_not_be_on_the_disk(store):
    assert not await forced(store, store.plant([planting()]))
    assert not await forced(store, store.prune_schedules(idle=DAY))


# Time.


async def test_a_replica_from_before_the_machine_started_gets_no_run(file, clock):
    async with opened(file, clock) as store:
        await join(store, "ann")
        await plant(store)
    later = restarted(clock)
    async with opened(file, later) as store:
        answer = await tick(store, later.wall(), replica="ann")
        assert (answer.outcome, answer.reason) == ("held", "expired")


# Older files.


async def test_a_file_of_format_2_is_upgraded(file, clock, monkeypatch):
    with closing(sqlite3.connect(file, isolation_level=None)) as db, monkeypatch.context() as patch:
        patch.setattr(schema, "FORMAT", 2)
        patch.setattr(schema, "_STEPS", schema._STEPS[:2])
        schema.bring_up_to_date(db, "auto", "the file")
        # A job that runs, one that waits and one that has failed, as format 2 knows them.
        db.execute(
            "INSERT INTO tenure_replica (namespace, id, meta, joined, ttl, boot_id, renewed, "
            "expires) VALUES ('app', 'ann', '{}', 0, 10000000, ?, ?, ?)",
            (clock.boot_id, round(clock.boot() * 1e6), round(clock.boot() * 1e6) + 10_000_000),
        )
        for number in (1, 2, 3):
            db.execute(
                "INSERT INTO tenure_job (number, namespace, id, task, queue, priority, created, "
                "retention, tags, payload) VALUES (?, 'app', ?, 'work', 'default', 5, 0, 60.0, '', "
                "x'')",
                (number, id_of(number)),
            )
        for number, holder in ((1, 1), (2, None)):
            db.execute(
                "INSERT INTO tenure_live (number, namespace, id, queue, priority, due, retained, "
                "holder, fence) VALUES (?, 'app', ?, 'default', 5, 0, 0, ?, 7)",
                (number, id_of(number), holder),
            )
        db.execute(
            "INSERT INTO tenure_done (number, namespace, id, state, due, fence, revision, attempt, "
            "failures, losses, started, finished, expires, message, reason, history) VALUES "
            "(3, 'app', ?, 'failed', 0, 5, 3, 1, 1, 0, 0, 0, ?, '', '', x'')",
            (id_of(3), clock.wall() + 1),
        )
    async with opened(file, clock) as store:
        assert await states(store, 1, 2, 3) == ["running", "waiting", "failed"]
        (running,) = await store.get([id_of(1)])
        assert running is not None
        assert (running.schedule, running.rerun) == ("", True)
        assert await settle(store, running, "handed back") == "settled"
        assert await store.requeue([id_of(3)]) == ["requeued"]
        assert len(await claim(store)) == 3
        await plant(store)
        await run(store, clock.wall(), replica="ann")
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT version FROM tenure_format").fetchall() == [(schema.FORMAT,)]


# Rows that cannot be read.


@pytest.mark.parametrize("damage", ["rerun = 'x'", "attempt = 'many'"])
async def test_an_unreadable_run_does_not_keep_its_place(store, clock, damage):
    one = await run(store, clock.wall(), replica="ann", limit=bound(1))
    await change(store, f"UPDATE tenure_live SET {damage} WHERE id = ?", one.id)
    (answer,) = await bury(store, "ann", [one.id], delays=AT_ONCE)
    assert answer.state is None
    assert await count(store, "tenure_aside") == 1
    clock.shift(1)
    assert (await look_at(store)).live == 0
    await run(store, clock.wall(), replica="ben", limit=bound(1))


# What is left behind.


async def test_pruning_leaves_nothing(store, clock):
    await store.freeze("sync")
    await store.freeze(EVERYTHING)
    for number in range(DECISIONS_MAX + 20):
        clock.shift(1)
        await tick(store, clock.wall(), forced=number % 2 == 0, replica="ann")
    assert await count(store, "tenure_decision") == DECISIONS_MAX
    for job in (await store.find(state="running", limit=1000)).jobs:
        await settle(store, job, "succeeded")
    clock.shift(10)
    assert await store.prune_schedules(idle=10) == 1
    assert [await count(store, table) for table in TABLES] == [0, 0, 1]


async def test_a_job_that_may_not_run_again_need_not_be_of_a_schedule(store):
    job = await start_one(store, rerun=False)
    assert (job.schedule, job.rerun) == ("", False)
    await leave(store, "ann")
    assert await states(store, 1) == ["failed"]
