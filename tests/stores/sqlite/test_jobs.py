"""Jobs in the SQLite store: what calls cost, what is on the disk, damaged rows."""

import asyncio
import re
import sqlite3
from pathlib import Path

import pytest

from tenure.core.jobs.records import BATCH_MAX, COUNT_MAX, Note, Pruned, Unique
from tenure.stores.sqlite import (
    SqliteStore,
    claims,
    finished,
    inserts,
    lists,
    orphans,
    queues,
    records,
    replicas,
    schedules,
    settlements,
    statements,
)
from tenure.stores.sqlite.database import Mode
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    claim,
    claim_ids,
    ended,
    find_all,
    id_of,
    insert,
    join,
    look,
    new,
    new_claim_no,
    settle,
    start,
    start_one,
    states,
)
from tests.rig.endings import bury, leave, recover
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


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenure.db"


@pytest.fixture
async def store(file: Path, clock: ManualClock):
    async with opened(file, clock) as store:
        yield store


# Every statement is served by an index.

STATEMENTS = {
    name: text
    for module in (
        *(claims, finished, inserts, settlements, queues, records, orphans, replicas),
        *(lists, schedules, statements),
    )
    for name, text in vars(module).items()
    if name.isupper() and isinstance(text, str) and not name.startswith("_")
    if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", text)
}

# What may be read from its first row to its last: lists in an argument or made on the way, and the
# last row of a table.
HARMLESS = re.compile(
    r"SCAN ([inqt]|json_each) VIRTUAL TABLE"  # the lists
    r"|SCAN (\d+ CONSTANT ROWS|CONSTANT ROW|\d+-ROW VALUES CLAUSE)$"
    r"|SCAN (p|s|w|given|known|\(subquery-\d+\))$"
)


@pytest.mark.parametrize("name", STATEMENTS)
async def test_no_statement_reads_a_whole_table(store, name):
    text = STATEMENTS[name]
    columns = re.search(r"given \((.+?)\)|INTO \w+ \((.+?)\)", text, re.DOTALL)
    if "@rows" in text:
        row = ", ".join("1" for _ in (columns[1] or columns[2]).split(","))
        text = text.replace("@rows", f"({row})")
    values = dict.fromkeys(re.findall(r":(\w+)", text), "[]")
    plan = await inside(
        store, lambda db: db.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    )
    scans = [step for *_, step in plan if step.startswith("SCAN") and not HARMLESS.match(step)]
    assert scans == []


# What a call costs.


async def insert_many(store: SqliteStore, numbers: range, **details) -> None:
    for first in numbers[::BATCH_MAX]:
        batch = range(first, min(first + BATCH_MAX, numbers.stop))
        await insert(store, *(new(number, **details) for number in batch))


async def finish_many(store: SqliteStore, amount: int) -> None:
    """Leave finished jobs behind."""
    await insert_many(store, range(amount), tags=("old",), retention=DAY)
    while jobs := await claim(store):
        await store.jobs.settle([ended(job, "succeeded") for job in jobs])


async def multiply(store: SqliteStore, times: int) -> None:
    """Make so many jobs of each that is there."""

    def copy(db: sqlite3.Connection) -> None:
        step = db.execute("SELECT max(number) FROM tenure_job").fetchone()[0]
        anew = {"number": f"number + {step} * n", "id": "id || '-' || n"}
        for table in ("tenure_job", "tenure_live", "tenure_done", "tenure_tag"):
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            values = ", ".join(anew.get(column, column) for column in columns)
            db.execute(
                f"WITH RECURSIVE copy (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy "
                f"WHERE n < {times - 1}) INSERT INTO {table} SELECT {values} FROM {table}, copy"
            )

    await inside(store, copy, Mode.WRITE)


async def round_trip(store: SqliteStore, first: int) -> dict[str, int]:
    """Return what each of the calls that must stay fast takes, in steps of SQLite's machine."""
    steps = {}
    batch = [new(first + number, timeout=60) for number in range(10)]
    steps["insert"] = await steps_of(store, store.jobs.insert(batch))
    steps["empty"] = await steps_of(store, store.jobs.claim("ann", new_claim_no(), ["none"], 10))
    await store.jobs.beat(["ben"], ttl=10, meta={})
    steps["claim"] = await steps_of(store, store.jobs.claim("ben", 1, ["default"], 10))
    jobs = [job for job in await store.jobs.get([job.id for job in batch]) if job is not None]
    steps["beat"] = await steps_of(store, store.jobs.beat(["ben"], ttl=10))
    for outcome, job in zip(("succeeded", "failed", "retry", "handed back"), jobs, strict=False):
        again = ended(job, outcome, delay=1000.0)
        steps[outcome] = await steps_of(store, store.jobs.settle([again]))
    steps["note"] = await steps_of(
        store, store.jobs.note([Note(id=jobs[9].id, fence=jobs[9].fence, progress=0.5)])
    )
    steps["cancel"] = await steps_of(store, store.jobs.cancel([jobs[4].id]))
    steps["get"] = await steps_of(store, store.jobs.get([jobs[4].id]))
    steps["find"] = await steps_of(store, store.jobs.find(limit=5))
    steps["find failed"] = await steps_of(store, store.jobs.find(state="failed", limit=1))
    steps["find running"] = await steps_of(store, store.jobs.find(state="running", limit=1))
    store.clock.shift(10)
    await store.jobs.beat(["ann"], ttl=1000)
    steps["recover"] = await steps_of(store, recover(store, delays=(1000.0,), grace=0))
    return steps


async def test_finished_jobs_and_jobs_of_the_future_cost_nothing(store, clock):
    await join(store, "ann", ttl=1000)
    for first in (100_000, 100_100, 100_200):  # the first ones leave something to be found
        alone = await round_trip(store, first)
    await finish_many(store, 1_000)
    await insert_many(store, range(20_000, 21_000), delay=DAY)
    await multiply(store, 100)
    crowded = await round_trip(store, 200_000)
    assert await count(store, "tenure_done") >= 100_000
    assert await count(store, "tenure_live") >= 100_000
    # Some bells are rung for the first time, which takes longer, and ids differ in their bells.
    slack = 250
    slower = {name: took for name, took in crowded.items() if took > alone[name] + slack}
    assert slower == {}


async def test_jobs_of_a_tag_are_counted_among_the_newest_only(store, clock):
    await join(store, "ann", ttl=1000)
    await finish_many(store, 2_000)
    clock.shift(100)

    async def look() -> int:
        limits = {"unfinished": 5, "recent": 5, "within": 60.0}
        return await steps_of(store, store.jobs.count_tagged("old", **limits))

    few = await look()
    await multiply(store, 20)
    assert await count(store, "tenure_tag") >= 40_000
    assert await look() <= few + 10


async def test_an_empty_poll_does_not_look_at_the_future(store):
    await join(store, "ann", ttl=1000)

    async def poll(number):
        return await steps_of(store, store.jobs.claim("ann", number, ["default"], 10))

    await insert_many(store, range(200), delay=DAY)
    few = await poll(1)
    await multiply(store, 500)
    assert await poll(2) <= few + 10


async def test_a_batch_takes_a_few_statements(store):
    await join(store, "ann")
    batch = [new(number, tags=("t",)) for number in range(BATCH_MAX)]
    seen = await statements_of(store, store.jobs.insert(batch))
    assert len([statement for statement in seen if "tenure_wake" in statement]) == 1
    jobs = []

    async def get_them():
        jobs.extend(await claim(store))

    seen = await statements_of(store, get_them())
    assert len(jobs) == BATCH_MAX
    assert len(seen) <= 20
    seen = await statements_of(
        store, store.jobs.settle([ended(job, "handed back") for job in jobs])
    )
    assert (
        len([statement for statement in seen if "tenure_wake" in statement]) == 2
    )  # the jobs, and their queue
    assert len(seen) - BATCH_MAX <= 10


async def test_a_search_looks_at_a_bounded_number_of_jobs(store, monkeypatch):
    monkeypatch.setattr(lists, "LOOKS_MAX", 10)
    await insert(store, *(new(number, queue="rare" if number < 2 else "b") for number in range(35)))
    page = await store.jobs.find(queue="rare")
    assert (page.jobs, page.cursor) == ([], id_of(25))
    jobs = await find_all(store, queue="rare")
    assert [job.id for job in jobs] == [id_of(1), id_of(0)]


async def test_failed_jobs_are_found_among_many_that_succeeded(store, monkeypatch):
    monkeypatch.setattr(lists, "LOOKS_MAX", 10)
    await join(store, "ann", ttl=1000)
    jobs = await start(store, *(new(number, retention=DAY) for number in range(100)))
    outcomes = {0: "failed", 1: "cancelled"}
    await store.jobs.settle(
        [ended(job, outcomes.get(at, "succeeded")) for at, job in enumerate(jobs)]
    )
    for at, outcome in outcomes.items():
        page = await store.jobs.find(state=outcome)
        assert [job.id for job in page.jobs] == [id_of(at)]
        assert page.cursor is None


async def test_counting_stops(store, monkeypatch):
    monkeypatch.setattr(queues, "COUNT_MAX", 20)
    await insert_many(store, range(200))
    few = await steps_of(store, store.jobs.counts())
    await insert_many(store, range(200, 2_000))
    assert await steps_of(store, store.jobs.counts()) <= few + 10
    assert [count.waiting for count in await store.jobs.counts()] == [20]
    assert COUNT_MAX > 20


# Wake-ups.


async def test_many_jobs_at_once_wake_other_processes_by_one_bell(store):
    other = store.clone()
    await other.open()
    try:
        jobs = await start(store, *(new(number) for number in range(BATCH_MAX)))
        async with (
            other.watch(("job", jobs[7].id)) as watch,
            other.watch(("lease", "ben")) as aside,
        ):
            await store.jobs.settle([ended(job, "succeeded") for job in jobs])
            assert await watch.wait(None)
            assert not await aside.wait(0)
    finally:
        await other.close()
    assert await count(store, "tenure_wake") < 70


# The disk.


async def test_every_change_of_a_job_is_on_the_disk(store, clock):
    await join(store, "ann", "ben", "cid")
    jobs = await start(store, *(new(number, retention=DAY) for number in range(3)))
    first, second, third = jobs
    for call in (
        store.jobs.insert([new(10)]),
        store.jobs.settle([ended(first, "succeeded")]),
        store.jobs.settle([ended(second, "retry")]),
        store.jobs.note([Note(id=third.id, fence=third.fence, checkpoint=b"c")]),
        store.jobs.cancel([third.id, id_of(10)]),
        store.jobs.requeue([first.id]),
        store.jobs.claim("ben", 1, ["default"], 10),
        leave(store, "ben"),
        store.jobs.claim("cid", 1, ["default"], 10),
        bury(store, "cid", [], delays=AT_ONCE),
        store.jobs.pause("default"),
        store.jobs.pause("default", seconds=0),
    ):
        assert await forced(store, call)
    clock.shift(DAY)
    assert await forced(store, recover(store, delays=AT_ONCE, grace=0))
    assert not await forced(store, store.jobs.orphans(by="ann"))  # a look that finds nothing


async def test_a_claim_that_gets_nothing_writes_nothing(store, clock):
    await join(store, "late", ttl=1)
    await join(store, "ann", ttl=DAY)
    await insert(store, new(1, queue="paused"), new(2, queue="future", delay=DAY), new(3))
    await store.jobs.pause("paused")
    clock.shift(2)
    first = await store.jobs.claim("ann", 5, ["default"], 10)
    calls = {
        "an empty queue": ("ann", 6, ["empty"]),
        "no queue": ("ann", 7, []),
        "jobs of the future": ("ann", 8, ["future"]),
        "a paused queue": ("ann", 9, ["paused"]),
        "the last number again": ("ann", 9, ["default"]),
        "an older number": ("ann", 5, ["default"]),
        "an expired replica": ("late", 1, ["default"]),
        "an unknown replica": ("nobody", 1, ["default"]),
    }
    await insert(store, new(4))
    for what, (replica, number, served) in calls.items():
        changes, log = await written(store)
        answer = []

        async def claim_it(call=(replica, number, served, 10), answer=answer):
            answer.append(await store.jobs.claim(*call))

        seen = await statements_of(store, claim_it())
        assert answer[0] is None or not answer[0].jobs, what
        assert not [
            statement for statement in seen if statement.startswith(("BEGIN IMMEDIATE", "UPDATE"))
        ], what
        assert await written(store) == (changes, log), what
    assert [job.id for job in first.jobs] == [id_of(3)]
    assert [job.id for job in (await store.jobs.claim("ann", 10, ["default"], 10)).jobs] == [
        id_of(4)
    ]


async def written(store) -> tuple[int, int]:
    """Return how many rows the store has changed, and how long its log is."""
    log = Path(f"{store.path}-wal")
    return await inside(store, lambda db: (db.total_changes, log.stat().st_size))


async def test_a_claim_beside_a_beat_does_not_write_either(store):
    await join(store, "ann")
    changes, _ = await written(store)
    await asyncio.gather(
        store.jobs.beat(["ann"], ttl=10), store.jobs.claim("ann", 1, ["default"], 10)
    )
    assert (await written(store))[0] == changes + 1


async def test_numbers_of_claims_that_got_nothing_are_forgotten_with_old_replicas(store):
    for number in range(200):
        replica = f"r{number}"
        await join(store, replica)
        await store.jobs.claim(replica, 1, ["default"], 10)
        await leave(store, replica)
    assert len(store.jobs._empty_claims) <= 100


async def test_records_of_replicas_need_not_be_on_the_disk(store):
    assert not await forced(store, store.jobs.beat(["ann"], ttl=10, meta={}))
    assert not await forced(store, store.jobs.beat(["ann"], ttl=10))
    assert not await forced(store, store.prune(idle=60))


# Time.


async def test_a_new_start_of_the_machine_expires_all_replicas(file, clock):
    async with opened(file, clock) as store:
        job = await start_one(store)
    later = restarted(clock)
    async with opened(file, later) as store:
        (record,) = await store.jobs.replicas()
        assert (record.expires_in, record.dead, record.held) == (0, False, 1)
        await join(store, "ben")
        assert [beat.expired for beat in await store.jobs.beat(["ben"], ttl=10)] == [True]
        assert await claim_ids(store, "ann") == []
        (lost,) = await recover(store, delays=AT_ONCE, grace=0)
        assert (lost.id, lost.replica, lost.state) == (job.id, "ann", "waiting")
        assert await store.jobs.beat(["ann"], ttl=10) == [None]
        assert [replica.id for replica in await store.jobs.replicas()] == ["ben"]
        assert list(store.damage) == []


@pytest.mark.parametrize("boot_id", ["!", "~"])
async def test_a_replica_of_another_start_is_recovered_and_not_damaged(file, clock, boot_id: str):
    async with opened(file, clock) as store:
        job = await start_one(store)
    later = restarted(clock)
    later.boot_id = boot_id  # sorts before, or after, the one of the replica
    async with opened(file, later) as store:
        await join(store, "ben")
        (lost,) = await recover(store, delays=AT_ONCE, grace=0)
        assert lost.id == job.id
        assert list(store.damage) == []


async def test_a_replica_that_has_expired_is_recovered_and_not_damaged(store, clock):
    job = await start_one(store)
    await clock.advance(11)
    (lost,) = await recover(store, delays=AT_ONCE, grace=0)
    assert lost.id == job.id
    assert list(store.damage) == []


async def test_the_wall_clock_expires_no_replica(store, clock):
    job = await start_one(store)
    for seconds in (3600, -7200):
        clock.step(seconds)
        assert await recover(store, delays=AT_ONCE, grace=0) == []
        assert (await store.jobs.replicas())[0].expires_in == 10
    assert await settle(store, job, "succeeded") == "settled"


async def test_without_a_boot_id_replicas_from_before_live_one_ttl_at_most(file, clock):
    clock.boot_id = ""
    clock.shift(1_000_000)
    async with opened(file, clock) as store:
        await start_one(store)
    later = restarted(clock, "")
    async with opened(file, later) as store:
        assert [replica.expires_in for replica in await store.jobs.replicas()] == [10]
        assert await recover(store, delays=AT_ONCE, grace=0) == []
        later.shift(10)
        assert len(await recover(store, delays=AT_ONCE, grace=0)) == 1


# Rows that cannot be read.


@pytest.mark.parametrize(
    "damage",
    [
        "attempt = 'many'",
        "losses = x'00'",
        "history = 7",
        "cancelling = 2",
        "started = 0.5",
        "id = CAST(x'ff' AS TEXT)",
    ],
)
@pytest.mark.parametrize("way", ["recover", "overdue", "bury", "leave"])
async def test_one_unreadable_row_does_not_stop_the_others(store, clock, damage, way, caplog):
    key = Unique(key="k")
    await start(store, new(1, timeout=1), new(2, timeout=1, unique=key), new(3, timeout=1))
    await change(store, f"UPDATE tenure_live SET {damage} WHERE id = ?", id_of(2))
    clock.shift(5 if way == "overdue" else 10)
    if way == "bury":
        answers = await bury(store, "ann", [id_of(1)], delays=AT_ONCE)
    elif way == "leave":
        assert len(await leave(store, "ann")) == 3
        answers = None
    else:
        answers = await recover(store, delays=AT_ONCE, grace=0)
        assert await recover(store, delays=AT_ONCE, grace=0) == []
    if answers is not None:
        assert sorted(str(answer.state) for answer in answers) == ["None", "waiting", "waiting"]
    assert await states(store, 1, 2, 3) == ["waiting", None, "waiting"]
    assert await count(store, "tenure_aside") == 1
    assert "set aside" in caplog.text
    await insert(store, new(4, unique=key))  # its key is free


async def test_unreadable_tags_do_not_stay_first_in_their_queue(store):
    await join(store, "ann")
    await insert(store, new(0, tags=("t",)), new(1))
    await change(store, "UPDATE tenure_job SET tags = '{' WHERE id = ?", id_of(0))
    assert await claim_ids(store, limit=1) == [id_of(1)]
    assert await count(store, "tenure_aside") == 1


async def test_a_claim_returns_what_is_stored(store):
    """Whether it is made up from little, as for new jobs, or read back."""
    await join(store, "ann")
    await insert(store, new(1, priority=9), new(2, tags=("t",), timeout=0.5, payload=b"p"))
    for _ in range(2):
        jobs = await claim(store)
        assert [job.id for job in jobs] == [id_of(2), id_of(1)]
        assert jobs == await store.jobs.get([job.id for job in jobs])
        await store.jobs.note([Note(id=job.id, fence=job.fence, message="m") for job in jobs])
        await store.jobs.settle([ended(job, "retry", error=b"e") for job in jobs])


# What is left behind.


async def test_pruning_leaves_nothing(store, clock):
    jobs = await start(
        store,
        *(new(number, tags=("t", "s"), unique=Unique(key=str(number))) for number in range(5)),
    )
    assert await count(store, "tenure_tag") == 10
    await store.jobs.settle([ended(job, "succeeded") for job in jobs])
    clock.shift(1)
    assert await store.prune(idle=60, limit=3) == Pruned(leases=0, jobs=3, more=True)
    assert await store.prune(idle=60, limit=3) == Pruned(leases=0, jobs=2, more=False)
    for table in ("job", "live", "done", "tag", "unique"):
        assert await count(store, f"tenure_{table}") == 0


async def test_a_settled_attempt_is_known_after_a_requeue(store):
    job = await start_one(store, retention=DAY)
    await settle(store, job, "succeeded", result=b"r")
    assert await store.jobs.requeue([job.id]) == ["requeued"]
    assert await settle(store, job, "succeeded") == "repeated"
    assert await settle(store, job, "failed") == "lost"
    assert (await look(store)).state == "waiting"
