"""What only concerns schedules in PostgreSQL: plans, locks, and the migration."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tenure.core.clock import SystemClock
from tenure.core.records import JobRecord, NewJob
from tenure.core.schedules import DECISIONS_MAX, Advance, Decision, Planting
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.schedule_rows import move_argument, plantings_argument
from tests.contract.schedule_calls import bound, look_at, move, plant, planting, run, tick
from tests.rig.endings import bury, leave, recover
from tests.rig.fixtures import Endpoint, PrivatePostgres
from tests.rig.sizes import SIZE
from tests.unit.postgres_inside import (
    EXPLAINING,
    FILL,
    FINISH,
    Open,
    buffers,
    connected,
    make_format,
    opening,
    plain_ann,
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
    await store.join("ann", ttl=600, meta={})
    return store


@pytest.fixture
async def operator(postgres_server: Endpoint) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else at the same database."""
    async with connected(postgres_server.url) as connection:
        yield connection


_ADVANCE = "SELECT * FROM tenure.schedule_advance_v1($1, $2, 100, NULL)"


async def is_waiting(task: asyncio.Future[Any]) -> bool:
    done, _ = await asyncio.wait([task], timeout=0.2)
    return not done


# Plans.


async def use_everything(store: PostgresStore) -> None:
    """Make every call, so that every statement of every function runs."""
    await store.join("ann", ttl=600, meta={})
    await store.join("short", ttl=0.001, meta={})
    await store.plant([planting("old"), planting()])
    await store.freeze("old", reason="now")
    for _ in range(2):
        await store.plant([planting("new", renamed_from=("never", "old")), planting()])
    await store.plant([planting("newer", renamed_from=("new",))])
    await store.plant([planting("old"), planting("sync", b"second")])
    await store.plant([planting("old", renamed_from=("newer",))])
    await store.plant([planting("sync", b"first"), planting("sync", b"second")])
    now = await store.now()
    missed = Decision(outcome="missed", reason="late", first=1, last=2, ticks=2)
    first = move(
        (await store.plant([planting("sync", b"second")]))[0],
        now,
        replica="ann",
        limit=bound(9),
        own=bound(9),
        passed=(missed,),
    )
    await store.advance(first)
    await store.advance(first)
    await tick(store, now + 1, replica="short")
    await tick(store, now + 1, replica="nobody")
    await tick(store, now + 1, due=now + 10**9)
    for number, full in enumerate(("skip", "skip", "hold", "cancel")):
        here = {"replica": "ann", "own": bound(1, "overlap", full)}
        await tick(store, now + 10 + number, **here)
        await tick(store, now + 20 + number, limit=bound(1, "limit", full))
    await tick(store, now + 30, rest=1.0)
    ran = (await store.get([first.id]))[0]
    assert ran is not None
    await store.requeue([ran.id])
    await leave(store, "ann")
    await tick(store, now + 30, rest=1.0)
    await store.requeue([ran.id])
    await tick(store, now + 40, run=None)
    await store.freeze("*")
    await tick(store, now + 50)
    await store.schedules()
    await store.schedules(["sync", "*"])
    await store.decisions("sync")
    await store.thaw("*")
    await store.prune_schedules(idle=600)
    assert await store.prune_schedules(idle=0) > 0


OTHER_RUNS = """
UPDATE tenure.job SET schedule = 'other-' || length(id) || priority WHERE id LIKE 'x%5'
"""
SCHEDULES = """
INSERT INTO tenure.schedule (namespace, name, revision, digests, declared, decided)
SELECT $1, 's' || n, 1, '{a}', 4e15, 1 FROM generate_series(1, 5000) AS n
"""
DECISIONS = """
INSERT INTO tenure.schedule_decision (namespace, name, number, outcome, reason, first, last, ticks,
                                      at, job, replica)
SELECT $1, 's' || n, m, 'ran', '', 1, 1, 1, 1, '', ''
FROM generate_series(1, 5000) AS n, generate_series(1, 10) AS m
"""


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
    for fill in (SCHEDULES, DECISIONS):
        await connection.fetch(fill, namespace)
    await connection.execute(OTHER_RUNS)
    if when == "with statistics":
        await connection.execute("ANALYZE")
    await connection.close()
    seen = server.log.stat().st_size
    await use_everything(store)
    log = server.log.read_bytes()[seen:].decode()
    assert log.count("using job_run on job") > 20
    assert log.count("using schedule_decision_pkey") > 20
    assert not walks_in(log)


async def test_a_move_costs_the_same_however_much_there_is(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    planted = await plant(store)
    numbers = iter(range(1, 1000))

    async def cost() -> int:
        limits = {"limit": bound(5, full="hold"), "own": bound(5, full="hold")}
        one = move(planted, next(numbers), seen=None, replica="ann", **limits)
        statement = "SELECT * FROM tenure.schedule_advance_v1({}, {}, 100, NULL)"
        quote = "SELECT quote_literal($1), quote_literal($2)"
        quoted = await operator.fetchrow(quote, namespace, move_argument(one))
        return await buffers(operator, statement.format(*quoted))

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
    assert await cost() <= before + 100


# The migration.

OLD_CLAIM = "SELECT * FROM tenure.job_claim_v1($1, $2, $3, '{default}', 5, NULL)"
OLD_INSERT = """
SELECT * FROM tenure.job_insert_v1($1, $2, '{work}', '{default}', '{5}', '{""}', NULL, '{0}',
                                   '{NULL}', '{NULL}', '{600}', '{600}', NULL, NULL, NULL, NULL,
                                   NULL, NULL)
"""
OLD_SETTLE = """
SELECT * FROM tenure.job_settle_v1($1, $2, $3, $4, '{0}', '{NULL}', '{NULL}', '{""}', '{NULL}', 0,
                                   NULL)
"""
OLD_JOIN = "SELECT tenure.replica_join_v1($1, $2, $3, '{}', NULL)"


OLD_GET = "SELECT * FROM tenure.job_get_v1($1, $2)"
NEW_GET = "SELECT * FROM tenure.job_get_v2($1, $2)"
OLD_FIND = "SELECT * FROM tenure.job_find_v1($1, $2, $3, $4, $5, $6, $7, $8)"
NEW_FIND = "SELECT * FROM tenure.job_find_v2($1, $2, $3, $4, $5, $6, $7, $8)"


async def test_the_release_before_sees_the_same_jobs(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    await store.join("ann", ttl=600, meta={})
    jobs = [
        NewJob(id=f"job-{number}", task=task, queue=queue, tags=tags, retention=600.0)
        for number, (task, queue, tags) in enumerate(
            [("a", "x", ("t",)), ("b", "x", ()), ("a", "y", ("t", "u")), ("b", "y", ("u",))] * 2
        )
    ]
    await store.insert(jobs)
    await store.claim("ann", claim_no=1, queues=["x"], limit=2)
    await store.cancel(["job-7"], reason="enough")
    ids = [job.id for job in jobs]
    assert await old_and_new(operator, OLD_GET, NEW_GET, namespace, [*ids[::2], "nobody"])
    filters = {
        1: ("waiting", "running", "cancelled", "failed"),
        2: ("x", "y", "z"),
        3: ("a", "b"),
        4: ("t", "u"),
        5: ("ann", "ben"),
    }
    for place, values in {0: (None,), **filters}.items():
        for value in values:
            for limit, before in ((1, None), (2, "job-5"), (8, None), (100, None), (3, "job-0")):
                asked: list[Any] = [namespace, None, None, None, None, None, limit, before]
                if place:
                    asked[place] = value
                await old_and_new(operator, OLD_FIND, NEW_FIND, *asked)


async def old_and_new(
    operator: asyncpg.Connection, old: str, new: str, *asked: Any
) -> list[tuple[Any, ...]]:
    """Check that both releases get the same; the old one knows nothing of schedules."""
    before, now = await operator.fetch(old, *asked), await operator.fetch(new, *asked)
    width = len(before[0]) if before else 0
    assert [tuple(row) for row in before] == [tuple(row)[:width] for row in now], asked
    return before


def _job(number: int) -> NewJob:
    return NewJob(id=f"job-{number}", task="@sync", schedule="sync", rerun=False, retention=600.0)


async def test_a_migration_lets_others_pass_while_somebody_holds_a_job(
    open_store: Open, private_postgres: PrivatePostgres, namespace: str
):
    url = private_postgres().url
    holder, other = await asyncpg.connect(url), await asyncpg.connect(url)
    await make_format(holder, 2)
    await holder.fetch(OLD_INSERT, namespace, ["held"])
    await holder.execute("BEGIN")
    await holder.fetch("SELECT FROM tenure.job WHERE id = 'held' FOR KEY SHARE")
    migration = asyncio.ensure_future(open_store(url))
    for number in range(8):
        async with asyncio.timeout(SIZE.patience):
            await other.fetch(OLD_INSERT, namespace, [f"job-{number}"])
        assert await is_waiting(migration)
    await holder.execute("COMMIT")
    async with asyncio.timeout(SIZE.patience):
        store = await migration
    assert len((await store.find()).jobs) == 9
    holder.terminate()
    other.terminate()


# Races.


_PLANT = "SELECT * FROM tenure.schedule_plant_v1($1, $2, 60000000, 10, NULL)"


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize(
    "change", [planting(definition=b"second"), planting("new", renamed_from=("sync",))]
)
async def test_who_declares_waits_for_another_definition_or_name(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, change: Planting, end: str
):
    first = await plant(store)
    await operator.execute("BEGIN")
    await operator.fetch(_PLANT, namespace, plantings_argument([change]))
    again = asyncio.ensure_future(plant(store))
    assert await is_waiting(again)
    await operator.execute(end)
    assert (await again).revision == (0 if end == "commit" else first.revision)


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_of_two_moves_the_second_waits_for_the_first(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, end: str
):
    planted = await plant(store)
    now = await store.now()
    await operator.execute("BEGIN")
    await operator.fetch(_ADVANCE, namespace, move_argument(move(planted, now, replica="ann")))
    second = asyncio.ensure_future(store.advance(move(planted, now, replica="ann")))
    assert await is_waiting(second)
    await operator.execute(end)
    assert (await second).outcome == ("passed" if end == "commit" else "done")
    assert (await look_at(store)).live == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_limit_counts_what_another_move_is_about_to_make(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, end: str
):
    planted = await plant(store)
    now = await store.now()
    one, two = (move(planted, now, seen=None, limit=bound(1)) for _ in range(2))
    await operator.execute("BEGIN")
    await operator.fetch(_ADVANCE, namespace, move_argument(one))
    second = asyncio.ensure_future(store.advance(two))
    assert await is_waiting(second)
    await operator.execute(end)
    assert (await second).outcome == ("skipped" if end == "commit" else "done")
    assert (await look_at(store)).live == 1


async def test_a_beat_passes_a_move_under_way_and_recovery_does_not(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    planted = await plant(store)
    await store.join("ben", ttl=600, meta={})
    async with operator.transaction():
        one = move(planted, await store.now(), replica="ben")
        moved = await operator.fetchrow(_ADVANCE, namespace, move_argument(one))
        assert moved["outcome"] == "done"
        async with asyncio.timeout(SIZE.patience):
            assert await store.beat(["ben"], ttl=0.001) != [None]
        await asyncio.sleep(0.01)
        assert await recover(store, delays=[0.0], grace=0.0) == []
    lost = await recover(store, delays=[0.0], grace=0.0)
    assert [(job.id, job.state) for job in lost] == [(one.id, "failed")]


async def test_a_schedule_that_moves_is_not_forgotten(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    planted = await plant(store)
    async with operator.transaction():
        one = move(planted, await store.now(), replica="ann")
        await operator.fetch(_ADVANCE, namespace, move_argument(one))
        assert await store.prune_schedules(idle=0) == 0
    assert (await look_at(store)).live == 1


# Whoever is no superuser waits at the first schedule, in the middle of a statement.
SLOW = """
CREATE FUNCTION slow(_name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF _name = 'first' THEN
        PERFORM pg_advisory_xact_lock_shared(1);
    END IF;
    RETURN true;
END
$$;
ALTER TABLE tenure.schedule ENABLE ROW LEVEL SECURITY;
CREATE POLICY slow ON tenure.schedule USING (slow(name));
"""


@pytest.mark.parametrize("change", ["triggered", "renamed"])
async def test_a_schedule_that_is_needed_from_now_on_is_not_forgotten(
    open_store: Open, private_postgres: PrivatePostgres, namespace: str, change: str
):
    url = private_postgres().url
    async with connected(url) as operator:
        await make_format(operator, 2)
        store = await open_store(url)
        await plant(store, "first")
        planted = await plant(store, "last")
        trigger = move(planted, await store.now(), name="last", seen=None, forced=True)
        pruning = await open_store(plain_ann(url))
        await operator.execute(SLOW)
        await operator.execute("SELECT pg_advisory_lock(1)")
        prune = asyncio.ensure_future(pruning.prune_schedules(idle=0))
        assert await is_waiting(prune)
        if change == "triggered":
            assert (await store.advance(trigger)).outcome == "done"
        else:
            await store.plant([planting("new", renamed_from=("last",))])
        await operator.execute("SELECT pg_advisory_unlock(1)")
        assert await prune == 1
    kept = await look_at(store, "last")
    assert (kept.live, kept.successor) == ((1, "") if change == "triggered" else (0, "new"))


async def test_a_run_that_was_set_aside_takes_no_place(
    store: PostgresStore, operator: asyncpg.Connection
):
    await plant(store)
    now = await store.now()
    one = await run(store, now, replica="ann", limit=bound(1))
    await operator.execute("UPDATE tenure.job SET losses = 2147483647 WHERE id = $1", one.id)
    (buried,) = await bury(store, "ann", [one.id], delays=[0.0])
    assert buried.state is None
    assert (await look_at(store)).live == 0
    await run(store, now + 1, limit=bound(1), rest=5.0)


async def test_a_cancel_is_told_to_the_replica_that_runs(store: PostgresStore):
    await plant(store)
    now = await store.now()
    one = await run(store, now, replica="ann")
    async with store.watch(("replica", "ann"), ("job", one.id)) as bell:
        held = await tick(store, now + 1, limit=bound(1, "newer", "cancel"))
        assert held.outcome == "held"
        assert await bell.wait(SIZE.patience)
    # Whoever tries again does not wait for somebody who holds the run.
    (before,) = await store.get([one.id])
    await tick(store, now + 1, limit=bound(1, "newer", "cancel"))
    assert await store.get([one.id]) == [before]


async def test_a_run_that_a_transaction_holds_is_cancelled_by_a_later_try(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    await plant(store)
    now = await store.now()
    one = await run(store, now, replica="ann")
    newer = move((await store.plant([planting()]))[0], now + 1, limit=bound(1, "newer", "cancel"))
    hold = "SELECT tenure.job_hold_v1($1, $2, $3)"
    async with operator.transaction():
        assert await operator.fetchval(hold, namespace, one.id, one.fence)
        # Were it to wait for the run, it would fail for want of the lock.
        assert (await store.advance(newer)).outcome == "held"
        (held,) = await store.get([one.id])
        assert held is not None
        assert not held.cancelling
    assert (await store.advance(newer)).outcome == "held"
    (found,) = await store.get([one.id])
    assert found is not None
    assert (found.cancelling, found.reason) == (True, "newer")


async def test_renames_in_any_order_never_block_each_other_for_good(
    open_store: Open, postgres_server: Endpoint
):
    stores = [await open_store(postgres_server.url) for _ in range(4)]
    lasting, renamed = "aceg", "bdfh"

    def some(chance: random.Random) -> list[Planting]:
        """Return what is only declared again, or some of that together with renames."""
        names = chance.sample(lasting, 3) + chance.sample(renamed, chance.choice((0, 2)))
        chance.shuffle(names)
        return [
            planting(name, renamed_from=tuple(chance.sample(renamed, 2) if name in renamed else ()))
            for name in names
        ]

    async def work(number: int) -> None:
        chance, store = random.Random(number), stores[number % 4]
        for _ in range(15):
            planted = await store.plant(some(chance))
            assert all(one.cursor for one in planted)
            if chance.random() < 0.1:
                await store.prune_schedules(idle=0, limit=2)

    # A deadlock, and who waits for a lock too long, is an error.
    async with asyncio.timeout(SIZE.patience * 4):
        await asyncio.gather(*(work(number) for number in range(16)))


async def test_many_at_the_same_schedules_never_block_each_other_for_good(
    open_store: Open, postgres_server: Endpoint, operator: asyncpg.Connection, namespace: str
):
    stores = [await open_store(postgres_server.url) for _ in range(4)]
    names = "abcdefgh"
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = await operator.fetchval(deadlocks)
    ran: list[JobRecord] = []

    async def move_one(store: PostgresStore, chance: random.Random, replica: str) -> None:
        name = chance.choice(names)
        for one in await store.schedules([name]):
            details: dict[str, Any] = {
                "limit": bound(2, full=chance.choice(("skip", "hold", "cancel"))),
                "replica": chance.choice(("", replica)),
            }
            to = max(one.cursor + 1, await store.now() - 10**6)
            answer = await store.advance(_move(one.revision, one.cursor, to, name, **details))
            if answer.run is not None and answer.outcome == "done":
                ran.append(answer.run)

    async def work(number: int) -> None:
        chance, store = random.Random(number), stores[number % 4]
        replica = f"r{number % 5}"
        for _ in range(6):
            await store.join(replica, ttl=600, meta={})
            await store.plant([_planting(name, chance) for name in chance.sample(names, 4)])
            for _ in range(3):
                await move_one(store, chance, replica)
            await store.freeze(chance.choice(names), until=1)
            await store.cancel([job.id for job in chance.sample(ran, min(5, len(ran)))])
            if chance.random() < 0.2:
                await leave(store, replica)
            if chance.random() < 0.1:
                await store.prune_schedules(idle=0, limit=2)

    async with asyncio.timeout(SIZE.patience * 4):
        await asyncio.gather(*(work(number) for number in range(24)))
    assert len(ran) > 20
    assert len({job.id for job in ran}) == len(ran)
    assert await operator.fetchval(deadlocks) == before
    counts = "SELECT count(*) FROM tenure.job WHERE namespace = $1 GROUP BY schedule"
    assert all(row["count"] <= 2 for row in await operator.fetch(counts, namespace))


def _planting(name: str, chance: random.Random) -> Planting:
    from_ = (chance.choice("abcdefgh"),) if chance.random() < 0.1 else ()
    return planting(name, chance.choice((b"first", b"first", b"second")), renamed_from=from_)


def _move(revision: int, seen: int, to: int, name: str, **details: Any) -> Advance:
    id_ = SystemClock().token()
    job = NewJob(id=id_, task="@sync", schedule=name, rerun=False)
    return Advance(
        id=id_, name=name, revision=revision, seen=seen, to=to, due=to, run=job, **details
    )


async def test_old_decisions_are_not_kept(
    open_store: Open, postgres_server: Endpoint, operator: asyncpg.Connection, namespace: str
):
    store = await open_store(postgres_server.url)
    await plant(store)
    zero = (await look_at(store)).cursor
    for number in range(1, DECISIONS_MAX + 6):
        late = Decision(
            outcome="missed", reason=str(number), first=zero + number, last=zero + number
        )
        await tick(store, zero + number, due=0, run=None, passed=(late,))
    count = "SELECT count(*) FROM tenure.schedule_decision WHERE namespace = $1"
    assert await operator.fetchval(count, namespace) == DECISIONS_MAX
    [newest, *_] = await store.decisions("sync")
    assert newest.reason == str(DECISIONS_MAX + 5)
