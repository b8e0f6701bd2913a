"""Schedules in PostgreSQL alone: plans, locks, durability, and the migration."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from tenure.core.clock import SystemClock
from tenure.core.jobs.records import JobRecord, NewJob
from tenure.core.schedules.records import (
    DECISIONS_MAX,
    Commit,
    Expected,
    Room,
    ScheduleRecord,
    Write,
)
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.records import commit_text
from tests.contract.commit_calls import (
    as_expected,
    create,
    look_at,
    plan,
    plan_run,
    run,
    send,
    tick_line,
)
from tests.rig.endings import bury, leave, recover
from tests.rig.fixtures import Endpoint, PrivatePostgres
from tests.rig.lookups import decisions
from tests.rig.sizes import SIZE
from tests.stores.postgres.inside import (
    EXPLAINING,
    FILL,
    FINISH,
    Open,
    buffers,
    connected,
    opening,
    walks_in,
)

MANY = 20_000


@pytest.fixture
async def open_store(namespace: str) -> AsyncIterator[Open]:
    """Open stores that are closed after the test."""
    async with opening(namespace) as make:
        yield make


@pytest.fixture
async def store(open_store: Open, postgres_server: Endpoint) -> PostgresStore:
    store = await open_store(postgres_server.url)
    await store.jobs.beat(["ann"], ttl=600, meta={})
    return store


@pytest.fixture
async def operator(postgres_server: Endpoint) -> AsyncIterator[asyncpg.Connection]:
    """A second session in the same database."""
    async with connected(postgres_server.url) as connection:
        yield connection


async def is_waiting(task: asyncio.Future[Any]) -> bool:
    done, _ = await asyncio.wait([task], timeout=0.2)
    return not done


COMMIT = "SELECT * FROM tenure.schedule_commit({}, {}, {}, 100, 200, NULL)"


def arguments(namespace: str, *commits: Commit) -> tuple[str, list[str], list[str]]:
    """Return what the store passes on for these commits."""
    names = {name for commit in commits for name in (commit.name, *_written(commit))}
    return namespace, [*names], [commit_text(commit) for commit in commits]


def _written(commit: Commit) -> list[str]:
    return [write.name for write in commit.writes]


async def commit_within(
    transaction: asyncpg.Connection, namespace: str, *commits: Commit
) -> list[str]:
    """Send commits in a transaction of another session, which stays open; return their outcomes."""
    statement = COMMIT.format("$1", "$2", "$3")
    rows = await transaction.fetch(statement, *arguments(namespace, *commits))
    return [row["outcome"] for row in rows]


def moved(record: ScheduleRecord | str, **details: Any) -> Commit:
    """Return a commit that writes a schedule."""
    name = as_expected(record).name
    return plan(record, writes=(Write(name, "moved", "ruler", "definition"),), **details)


# Plans.


async def use_everything(store: PostgresStore) -> None:
    """Make every call, so that every statement of every function runs."""
    await store.jobs.beat(["ann"], ttl=600, meta={})
    await store.jobs.beat(["short"], ttl=0.001, meta={})
    sync, old = await create(store), await create(store, "old")
    above = (Write("new", "s", "r", "d", above=("old", "never")), Write("old", "s", "r"))
    expects = (as_expected("new"), as_expected(old, silent_for=0.0))
    assert (await send(store, plan("new", expects=expects, writes=above))).outcome == "done"
    lines = (tick_line(like="same"), tick_line(like="same"), tick_line(like="other"))
    rooms = (Room(9), Room(9, "ann"))
    here: dict[str, Any] = {"start_on": "ann", "rooms": rooms, "run_line": tick_line()}
    tick = plan_run(sync, writes=(Write("sync", "moved", "r"),), lines=lines, **here)
    for outcome in ("done", "done"):
        assert (await send(store, tick)).outcome == outcome
    sync = await look_at(store)
    now = (await store.ping()).now
    for outcome, details in [
        ("stale", {"expects": (as_expected(sync, silent_for=600.0),)}),
        ("early", {"not_before": now + 10**9}),
        ("expired", {"start_on": "short"}),
        ("gone", {"start_on": "nobody"}),
        ("full", {"rooms": (Room(1),)}),
        ("full", {"rooms": (Room(1, "ann"),)}),
        ("instead", {"rooms": (Room(1, instead=tick_line("full")),)}),
        ("done", {"job": {"tags": ("one", "two")}}),
    ]:
        assert (await send(store, plan_run(sync, **details))).outcome == outcome
    (ran,) = await store.jobs.get([tick.id])
    assert ran is not None
    await store.jobs.requeue([ran.id])
    await leave(store, "ann")
    await store.jobs.requeue([ran.id])
    await store.schedules.read()
    await store.schedules.read(["sync", "old", "never"])
    await decisions(store, "sync")
    assert (await store.schedules.declare([("sync", "r"), ("old", "other")])).lost == ["old"]
    gone = [
        plan(await look_at(store, name), writes=(Write(name, None),)) for name in ("new", "old")
    ]
    assert [answer.outcome for answer in await store.schedules.commit(gone)] == ["done", "done"]
    await send(store, plan(sync, writes=(Write("sync", None),)))


OTHER_RUNS = """
UPDATE tenure.job SET schedule = 'other-' || length(id) || priority WHERE id LIKE 'x%5'
"""
SCHEDULES = """
INSERT INTO tenure.schedule (namespace, name, definition, ruler, version, standing, declared)
SELECT $1, 's' || n, 'd', 'r', 'v', 's', 0 FROM generate_series(1, 5000) AS n
"""
LINES = """
INSERT INTO tenure.schedule_decision
SELECT $1, 's' || n, m, '', 1, 1, 1, 1, ''
FROM generate_series(1, 5000) AS n, generate_series(1, 10) AS m
"""


@pytest.mark.draw(1)
@pytest.mark.parametrize("when", ["without statistics", "with statistics", "planned when empty"])
async def test_every_statement_finds_its_rows_by_an_index(
    open_store: Open, private_postgres: PrivatePostgres, namespace: str, when: str
):
    server = private_postgres(config={**EXPLAINING, "autovacuum": "off"})
    store = await open_store(server.url)
    if when == "planned when empty":
        await use_everything(store)
    connection = await asyncpg.connect(server.url)
    for fill in (FILL, FINISH):
        await connection.fetch(fill, namespace, MANY)
    for fill in (SCHEDULES, LINES):
        await connection.fetch(fill, namespace)
    await connection.execute(OTHER_RUNS)
    if when == "with statistics":
        await connection.execute("ANALYZE")
    await connection.close()
    seen = server.log.stat().st_size
    await use_everything(store)
    log = server.log.read_bytes()[seen:].decode()
    assert log.count("using job_run on job") > 20
    assert log.count("using schedule_pkey") > 40
    assert log.count("using schedule_decision_pkey") > 20
    assert not walks_in(log)


async def test_a_commit_costs_the_same_however_much_there_is(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    record = await create(store)

    async def cost() -> int:
        rooms = (Room(5), Room(5, "ann"), Room(5, instead=tick_line()))
        commit = plan_run(record, start_on="ann", rooms=rooms, run_line=tick_line())
        quote = "SELECT quote_literal($1), quote_literal($2::text[]), quote_literal($3::text[])"
        quoted = await operator.fetchrow(quote, *arguments(namespace, commit))
        return await buffers(operator, COMMIT.format(*quoted))

    await cost()
    before = await cost()
    await operator.fetch(FILL, namespace, MANY)
    await operator.fetch(FINISH, namespace, MANY)
    await operator.fetch(SCHEDULES, namespace)
    assert await cost() <= before + 100
    # As many runs of this very schedule, half of them on the same replica.
    await operator.execute(
        """
        UPDATE tenure.job SET schedule = 'sync', state = 'running',
                              replica = CASE WHEN id LIKE '%1' THEN 'ann' ELSE 'ben' END
        WHERE namespace = $1 AND id LIKE 'x%'
        """,
        namespace,
    )
    # Those that fill a room are named, and each may be on a page of its own.
    assert await cost() <= before + 300


CHANGES = """
SELECT pg_stat_get_xact_tuples_updated(c.oid), pg_stat_get_xact_tuples_hot_updated(c.oid),
       pg_stat_get_xact_tuples_inserted(c.reltoastrelid)
FROM pg_class c WHERE c.oid = 'tenure.schedule'::regclass
"""


async def test_a_tick_is_one_heap_only_update_and_leaves_a_large_definition_alone(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    large = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=50_000))
    record = await create(store, definition=large)
    async with operator.transaction():
        tick = plan_run(
            record,
            writes=(Write("sync", "moved", "ruler"),),
            declares=True,
            start_on="ann",
            run_line=tick_line(),
        )
        assert await commit_within(operator, namespace, tick) == ["done"]
        assert tuple(await operator.fetchrow(CHANGES)) == (1, 1, 0)
    assert (await look_at(store)).definition == large


async def test_a_young_declaration_changes_nothing(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    await create(store)
    async with operator.transaction():
        declare = "SELECT lost FROM tenure.schedule_declare($1, $2, $3, 10000000, NULL)"
        assert await operator.fetchval(declare, namespace, ["sync"], ["ruler"]) == []
        assert await operator.fetchval("SELECT pg_current_xact_id_if_assigned()::text") is None


async def test_only_a_call_that_changed_something_waits_for_the_disk(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    record = await create(store)
    ran = plan_run(record)
    await send(store, ran)
    full, stale = plan_run(record, rooms=(Room(1),)), plan("sync")
    show = "SELECT current_setting('synchronous_commit')"
    for batch, answers, setting in [
        ((stale, full), ["stale", "full"], "off"),
        ((ran, stale), ["done", "stale"], "off"),
        ((stale, plan_run(record), full), ["stale", "done", "full"], "on"),
    ]:
        async with operator.transaction():
            assert await commit_within(operator, namespace, *batch) == answers
            assert await operator.fetchval(show) == setting


# Races.


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_declaration_waits_for_a_commit_that_changes_the_ruler(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, end: str
):
    record = await create(store)
    back = "UPDATE tenure.schedule SET declared = 0 WHERE namespace = $1"
    await operator.execute(back, namespace)
    await operator.execute("BEGIN")
    newer = plan(record, writes=(Write("sync", "standing", "newer"),))
    assert await commit_within(operator, namespace, newer) == ["done"]
    declared = asyncio.ensure_future(store.schedules.declare([("sync", "ruler")]))
    assert await is_waiting(declared)
    await operator.execute(end)
    assert (await declared).lost == (["sync"] if end == "commit" else [])
    assert ((await look_at(store)).declared == 0) == (end == "commit")


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_the_second_of_two_commits_waits_for_the_first(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, end: str
):
    record = await create(store)
    first, second = (plan_run(record, start_on="ann", **_moves()) for _ in range(2))
    await operator.execute("BEGIN")
    assert await commit_within(operator, namespace, first) == ["done"]
    waiting = asyncio.ensure_future(send(store, second))
    assert await is_waiting(waiting)
    await operator.execute(end)
    assert (await waiting).outcome == ("stale" if end == "commit" else "done")
    assert (await look_at(store)).live == 1


def _moves() -> dict[str, Any]:
    return {"writes": (Write("sync", "moved", "ruler"),)}


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_room_counts_what_another_commit_is_about_to_make(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, end: str
):
    record = await create(store)
    first, second = (plan_run(record, rooms=(Room(1),)) for _ in range(2))
    await operator.execute("BEGIN")
    assert await commit_within(operator, namespace, first) == ["done"]
    waiting = asyncio.ensure_future(send(store, second))
    assert await is_waiting(waiting)
    await operator.execute(end)
    assert (await waiting).outcome == ("full" if end == "commit" else "done")
    assert (await look_at(store)).live == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_the_second_commit_that_creates_a_schedule_waits_for_the_first(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, end: str
):
    first, second = moved("new"), moved("new")
    await operator.execute("BEGIN")
    assert await commit_within(operator, namespace, first) == ["done"]
    waiting = asyncio.ensure_future(send(store, second))
    assert await is_waiting(waiting)
    await operator.execute(end)
    assert (await waiting).outcome == ("stale" if end == "commit" else "done")
    version = first.id if end == "commit" else second.id
    assert (await look_at(store, "new")).version == version


async def test_a_repeat_that_overtakes_the_commit_which_makes_its_schedule_is_done(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    made = plan_run("new", writes=(Write("new", "standing", "ruler", "definition"),))
    async with operator.transaction():
        assert await commit_within(operator, namespace, made) == ["done"]
        repeat = asyncio.ensure_future(send(store, made))
        assert await is_waiting(repeat)
    assert (await repeat).outcome == "done"
    assert (await look_at(store, "new")).live == 1


async def test_schedules_that_are_only_expected_are_read_without_a_lock(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    sync, other = await create(store), await create(store, "other")
    ahead = "UPDATE tenure.schedule SET declared = $2 WHERE namespace = $1"
    future = (await store.ping()).now + 10**9
    async with operator.transaction():
        assert await commit_within(operator, namespace, moved(other)) == ["done"]
        expects = (as_expected(sync), as_expected(other))
        async with asyncio.timeout(SIZE.patience):
            assert (await send(store, moved(sync, expects=expects))).outcome == "done"
    # Nor does a declaration that is written back wait.
    sync, other = await look_at(store), await look_at(store, "other")
    await operator.execute(ahead, namespace, future)
    async with operator.transaction():
        assert await commit_within(operator, namespace, moved(other)) == ["done"]
        expects = (as_expected(sync, 60.0), as_expected(other, 60.0))
        async with asyncio.timeout(SIZE.patience):
            assert (await send(store, moved(sync, expects=expects))).outcome == "stale"
    assert (await look_at(store)).declared < future
    assert (await look_at(store, "other")).declared == future


async def test_a_beat_passes_a_commit_under_way_and_recovery_does_not(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    record = await create(store)
    await store.jobs.beat(["ben"], ttl=600, meta={})
    async with operator.transaction():
        commit = plan_run(record, start_on="ben")
        assert await commit_within(operator, namespace, commit) == ["done"]
        async with asyncio.timeout(SIZE.patience):
            assert await store.jobs.beat(["ben"], ttl=0.001) != [None]
        await asyncio.sleep(0.01)
        assert await recover(store, delays=[0.0], grace=0.0) == []
        assert "ben" in {replica.id for replica in await store.jobs.replicas()}
    lost = await recover(store, delays=[0.0], grace=0.0)
    assert [job.id for job in lost] == [commit.id]


async def test_the_latest_run_and_the_highest_fence_may_come_from_two_schedules(
    store: PostgresStore,
):
    fenced = await run(store, await create(store, "fenced"), start_on="ann", tick=1)
    latest = await run(store, await create(store, "latest"), tick=2)
    above = Write("sync", "standing", "ruler", above=("fenced", "latest"))
    assert (await send(store, plan("sync", writes=(above,)))).outcome == "done"
    record = await look_at(store)
    assert (record.last_run, record.last_job) == (2, latest.id)
    both = "SELECT last_fence FROM tenure.schedule WHERE namespace = $1 AND name = 'sync'"
    assert await store.fetch(both, store.namespace) == [(fenced.fence,)]


async def test_a_run_that_was_set_aside_takes_no_room(
    store: PostgresStore, operator: asyncpg.Connection
):
    record = await create(store)
    ran = await run(store, record, start_on="ann", rooms=(Room(1),))
    await operator.execute("UPDATE tenure.job SET losses = 2147483647 WHERE id = $1", ran.id)
    (buried,) = await bury(store, "ann", [ran.id], delays=[0.0])
    assert buried.state is None
    assert (await look_at(store)).live == 0
    await run(store, record, rooms=(Room(1), Room(1, "ann")))


DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def test_batches_in_any_order_never_block_each_other_for_good(
    open_store: Open, postgres_server: Endpoint, operator: asyncpg.Connection
):
    stores = [await open_store(postgres_server.url) for _ in range(4)]
    before = await operator.fetchval(DEADLOCKS)
    names = "abcdefgh"
    done = {"made": 0, "renamed": 0, "deleted": 0}

    async def work(number: int) -> None:
        chance, store = random.Random(number), stores[number % 4]
        for _ in range(15):
            records = {record.name: record for record in (await store.schedules.read()).records}
            kinds, batch = zip(*(_change(chance, names, records) for _ in range(4)), strict=True)
            await store.schedules.declare([(name, "ruler") for name in chance.sample(names, 4)])
            answers = await store.schedules.commit(batch)
            assert {answer.outcome for answer in answers} <= {"done", "stale"}
            for kind, answer in zip(kinds, answers, strict=True):
                done[kind] += answer.outcome == "done"

    # A deadlock, and who waits for a lock too long, is an error.
    async with asyncio.timeout(SIZE.patience * 4):
        await asyncio.gather(*(work(number) for number in range(16)))
    assert await operator.fetchval(DEADLOCKS) == before
    assert all(count > 5 for count in done.values()), done


def _change(
    chance: random.Random, names: Sequence[str], records: dict[str, ScheduleRecord]
) -> tuple[str, Commit]:
    """Return a commit that makes, renames or deletes schedules as they were read."""
    first, second = chance.sample(names, 2)
    expected = {name: as_expected(records.get(name, name)) for name in (first, second)}
    write = Write(first, "standing", "ruler", "definition", above=(second,))
    if second in records and chance.random() < 0.5:
        kind, writes = "renamed", (write, Write(second, chance.choice(("rests", None)), "ruler"))
    elif first in records:
        kind, writes = "deleted", (Write(first, None),)
    else:
        kind, writes = "made", (write,)
    commit = plan(first, id=SystemClock().token(), expects=(*expected.values(),), writes=writes)
    return kind, commit


async def test_declarations_in_any_order_never_block_each_other_for_good(
    open_store: Open, postgres_server: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.stores.postgres.schedules.DECLARED_ANEW_AFTER", 0.0)
    stores = [await open_store(postgres_server.url) for _ in range(4)]
    rulers = [(name, "ruler") for name in "abcdefghijkl"]
    for name, _ in rulers:
        await create(stores[0], name)

    async def work(number: int) -> None:
        chance = random.Random(number)
        for _ in range(30):
            sample = chance.sample(rulers, len(rulers))
            assert (await stores[number % 4].schedules.declare(sample)).lost == []

    async with asyncio.timeout(SIZE.patience * 4):
        await asyncio.gather(*(work(number) for number in range(8)))


async def test_many_at_the_same_schedules_never_block_each_other_for_good(
    open_store: Open, postgres_server: Endpoint, operator: asyncpg.Connection, namespace: str
):
    stores = [await open_store(postgres_server.url) for _ in range(4)]
    names = "abcdefgh"
    for name in names:
        await create(stores[0], name)
    before = await operator.fetchval(DEADLOCKS)
    ran: list[JobRecord] = []

    async def tick_some(store: PostgresStore, chance: random.Random, replica: str) -> None:
        records = (await store.schedules.read(chance.sample(names, 3))).records
        chance.shuffle(records)
        answers = await store.schedules.commit(
            [_tick(record, chance, replica) for record in records]
        )
        ran.extend(answer.run for answer in answers if answer.run is not None)

    async def work(number: int) -> None:
        chance, store = random.Random(number), stores[number % 4]
        replica = f"r{number % 5}"
        for _ in range(6):
            await store.jobs.beat([replica], ttl=600, meta={})
            await store.schedules.declare([(name, "ruler") for name in chance.sample(names, 4)])
            for _ in range(3):
                await tick_some(store, chance, replica)
            await store.jobs.cancel([job.id for job in chance.sample(ran, min(5, len(ran)))])
            if chance.random() < 0.2:
                await leave(store, replica)

    async with asyncio.timeout(SIZE.patience * 4):
        await asyncio.gather(*(work(number) for number in range(24)))
    assert len(ran) > 20
    assert len({job.id for job in ran}) == len(ran)
    assert await operator.fetchval(DEADLOCKS) == before
    counts = "SELECT count(*) FROM tenure.job WHERE namespace = $1 GROUP BY schedule"
    assert all(row["count"] <= 2 for row in await operator.fetch(counts, namespace))


def _tick(record: ScheduleRecord, chance: random.Random, replica: str) -> Commit:
    instead = chance.choice((None, tick_line("full", like="full")))
    id_ = SystemClock().token()
    return plan(
        id=id_,
        name=record.name,
        expects=(Expected(record.name, record.version),),
        writes=(Write(record.name, id_, "ruler"),),
        declares=True,
        run=NewJob(id=id_, task="@sync", schedule=record.name),
        start_on=chance.choice(("", replica)),
        rooms=(Room(2, instead=instead),),
        run_line=tick_line(),
    )


@pytest.mark.parametrize("call", ["declare", "commit"])
async def test_a_call_reports_a_schedule_that_cannot_be_used(
    open_store: Open, private_postgres: PrivatePostgres, call: str
):
    url = private_postgres().url
    store = await open_store(url)
    sync, broken = await create(store), await create(store, "broken")
    async with connected(url) as owner:
        await owner.execute("ALTER TABLE tenure.schedule DROP CONSTRAINT schedule_sound")
        poison = "UPDATE tenure.schedule SET declared = 9223372036854775807 WHERE name = 'broken'"
        await owner.execute(poison)
    if call == "declare":
        lost = (
            await store.schedules.declare([("sync", "ruler"), ("broken", "ruler"), ("no", "r")])
        ).lost
        assert lost == ["broken", "no"]
    else:
        answers = await store.schedules.commit([moved(sync), moved(broken), moved("new")])
        assert [answer.outcome for answer in answers] == ["done", "stale", "done"]
    (report,) = store.damage
    assert (report.kind, report.name, report.where) == ("timer", "broken", "tenure.schedule")


async def test_old_lines_are_not_kept(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    record = await create(store)
    for number in range(DECISIONS_MAX + 5):
        await send(store, plan(record, lines=(tick_line(str(number)),)))
    several = tuple(tick_line(f"last {number}") for number in range(3))
    await send(store, plan(record, lines=several))
    count = "SELECT count(*) FROM tenure.schedule_decision WHERE namespace = $1"
    assert await operator.fetchval(count, namespace) == DECISIONS_MAX
    assert [line.body for line in await decisions(store, "sync", limit=4)] == [
        "last 2",
        "last 1",
        "last 0",
        str(DECISIONS_MAX + 4),
    ]
