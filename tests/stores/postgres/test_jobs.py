"""Jobs in PostgreSQL alone: plans, locks, and notifications."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tenure.core.jobs.records import JobRecord, NewJob, Note, Settlement, Unique
from tenure.errors import StoreUnavailable
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.notifier import (
    Notifier,
    channel_of,
    kind_in,
    payloads,
    topics_in,
)
from tests.rig.endings import bury, leave, recover, settlement
from tests.rig.fixtures import Endpoint, PrivatePostgres
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async
from tests.stores.postgres.inside import (
    EXPLAINING,
    FILL,
    FINISH,
    MANY,
    Open,
    blocks_another,
    buffers,
    connected,
    opening,
    walks_in,
)


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


def new(number: int, **details: Any) -> NewJob:
    return NewJob(
        **{
            "id": f"job-{number:06}",
            "task": "work",
            "retention": 600.0,
            "retention_failed": 600.0,
            **details,
        }
    )


async def claim(store: PostgresStore, number: int, limit: int = 1) -> list[JobRecord]:
    claimed = await store.jobs.claim("ann", number, ["default"], limit)
    assert claimed is not None
    return claimed.jobs


def success(job: JobRecord, **details: Any) -> Settlement:
    return settlement(**{"id": job.id, "fence": job.fence, "outcome": "succeeded", **details})


# Plans.

TAG = """
INSERT INTO tenure.job_tag (namespace, tag, id)
SELECT namespace, 'blue', id FROM tenure.job WHERE namespace = $1
UNION ALL
SELECT namespace, 'blue', id FROM tenure.job_done WHERE namespace = $1
"""
KEYS = """
INSERT INTO tenure.job_key (namespace, key, id, digest, until, free_at)
SELECT $1, 'k' || n, 'x' || n, '', 0, CASE WHEN n % 2 = 0 THEN 4e15::bigint END
FROM generate_series(1, $2::integer) AS n
"""


async def use_everything(store: PostgresStore) -> None:
    """Make every call, so that every statement of every function runs."""
    for replica in ("ann", "ben", "cid"):
        await store.jobs.beat([replica], ttl=600, meta={})
    key = Unique(key="once", keep=0.001)
    await store.jobs.insert([new(n, timeout=0.001, tags=("red",)) for n in range(30)])
    await store.jobs.insert([new(40, unique=key), new(41, unique=key), new(42, at=1)])
    await store.jobs.insert([new(40, unique=key), new(1)])
    ran = await claim(store, 1, 20)
    await claim(store, 1, 20)
    await store.jobs.note([Note(id=ran[0].id, fence=ran[0].fence, progress=0.5)])
    await store.jobs.cancel([ran[1].id, "job-000029", "nobody"])
    mixed = [success(ran[0]), success(ran[1], outcome="retry"), success(ran[2], outcome="retry")]
    await store.jobs.settle([*mixed, success(ran[3])])
    await store.jobs.settle([*mixed, success(ran[3], outcome="failed")])
    await store.jobs.insert([new(int(ran[3].id[4:]))])
    await store.jobs.requeue([ran[3].id, ran[4].id, "nobody"])
    await store.jobs.beat(["ann", "ben"], ttl=600)
    await store.jobs.replicas()
    await store.jobs.get([ran[0].id, ran[5].id])
    for how in (
        {},
        {"state": "running"},
        {"state": "waiting"},
        {"state": "failed"},
        {"state": "succeeded"},
        {"queue": "default"},
        {"task": "work"},
        {"tag": "red"},
        {"replica": "ann"},
        {"id_end": "0001"},
        {"id_end": "0001", "tag": "red"},
        {"error": "no answer"},
        {"error": "no answer", "state": "failed"},
    ):
        await store.jobs.find(limit=3, cursor="z", **how)  # type: ignore[arg-type]
    await store.jobs.pause("default", seconds=0.001)
    await store.jobs.counts()
    await store.jobs.count_tagged("red", unfinished=2, recent=2, within=600)
    await store.jobs.pause("default", seconds=0)
    await recover(store, delays=[0.0], grace=0.0, limit=2)
    await bury(store, "ann", [ran[9].id], delays=[])
    claimed = await store.jobs.claim("ben", 1, ["default", "other"], 100)
    assert claimed is not None
    await store.jobs.settle([success(job) for job in claimed.jobs])
    await leave(store, "ben")
    await store.jobs.beat(["dan"], ttl=0.001, meta={})
    await asyncio.sleep(0.01)
    await store.jobs.beat(["cid"], ttl=600)
    await recover(store, delays=[], grace=0.0)
    await store.prune(idle=600)


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
    for fill in (FILL, FINISH, KEYS):
        await connection.fetch(fill, namespace, MANY)
    await connection.fetch(TAG, namespace)
    await connection.execute("DELETE FROM tenure.job WHERE id LIKE 'job-%'")
    await connection.execute("DELETE FROM tenure.job_done WHERE id LIKE 'job-%'")
    if when == "with statistics":
        await connection.execute("ANALYZE")
    await connection.close()
    seen = server.log.stat().st_size
    await use_everything(store)
    log = server.log.read_bytes()[seen:].decode()
    assert log.count("Index Scan using job_pkey") > 20
    assert not walks_in(log)


async def test_finished_and_delayed_jobs_cost_nothing(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    numbers = iter(range(1, 100))

    async def costs() -> list[int]:
        poll = (
            f"SELECT * FROM tenure.job_claim('{namespace}', 'ann', %d, '{{q1,q2}}', 100, "
            "NULL, 100000, NULL)"
        )
        beat = (
            "SELECT * FROM tenure.replica_beat("
            f"'{namespace}', '{{ann}}', 60000000, 0, 9, 9, NULL, true, NULL)"
        )
        orphans = (
            "SELECT * FROM tenure.job_orphans("
            f"'{namespace}', 'eva', 5000000, NULL, 0, 100, NULL, 500, NULL)"
        )
        await buffers(operator, poll % next(numbers))
        return [await buffers(operator, query) for query in (poll % next(numbers), beat, orphans)]

    before = await costs()
    await operator.fetch(FILL, namespace, MANY)
    await operator.fetch(FINISH, namespace, MANY)
    # For each of forty look-ups up to two more levels of an index, and a few next jobs.
    allowed = [cheap + 200 for cheap in before]
    for _ in range(30):
        after = await costs()
        if all(now <= most for now, most in zip(after, allowed, strict=True)):
            return
        # A snapshot of another test on this server keeps the dead rows in the way for a moment.
        await asyncio.sleep(0.5)
    assert after <= allowed


async def test_counts_stop(store: PostgresStore, operator: asyncpg.Connection, namespace: str):
    await operator.fetch(FILL, namespace, 80_000)
    counted = await store.jobs.counts()
    assert max(count.waiting for count in counted) == 10_000


# Races.


async def test_a_beat_passes_a_claim_under_way(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    await store.jobs.insert([new(1)])
    async with operator.transaction():
        claimed = await operator.fetch(
            "SELECT * FROM tenure.job_claim($1, 'ann', 1, '{default}', 5, NULL, 1000, NULL)",
            namespace,
        )
        assert len(claimed) == 2
        async with asyncio.timeout(2):
            [beat] = await store.jobs.beat(["ann"], ttl=600)
        assert beat is not None
        # Recovery and the same claim are kept out meanwhile; no other replica gets the job.
        await store.jobs.beat(["ben"], ttl=600, meta={})
        other = await store.jobs.claim("ben", 1, ["default"], 5)
        assert other is not None
        assert other.jobs == []
    [beat] = await store.jobs.beat(["ann"], ttl=600)
    assert beat is not None
    assert beat.held == 1


async def test_a_replica_that_beats_during_a_look_at_others_keeps_its_jobs(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    """The look reads the rows of many replicas in parts, and comes to this one later."""
    names = [f"replica {number:02}" for number in range(20)]
    for name in names:
        await store.jobs.beat([name], ttl=600, meta={})
    await store.jobs.insert([new(1)])
    assert await store.jobs.claim(names[-1], 1, ["default"], 1)
    await operator.execute(
        "UPDATE tenure.replica SET renewed = 0 WHERE namespace = $1 AND id <> 'ann'", namespace
    )

    async with operator.transaction():
        await operator.execute(
            "SELECT FROM tenure.replica_claim WHERE namespace = $1 AND replica = $2 FOR UPDATE",
            *(namespace, names[0]),
        )
        look = asyncio.create_task(store.jobs.orphans(by="eva"))
        await wait_until_async(lambda: blocks_another(operator))
        assert await store.jobs.beat(names[-1:], ttl=600) != [None]
    assert (await look).jobs == []
    assert await store.jobs.beat(names[-1:], ttl=600) != [None]
    assert await store.jobs.beat(names[:1], ttl=600) == [None]


async def test_a_claim_that_leaves_delayed_jobs_wakes_workers_that_found_them_locked(
    open_store: Open, postgres_server: Endpoint, store: PostgresStore
):
    """They are due, and stand among the others by now; others may have looked while it did so."""
    sleeper = await open_store(postgres_server.url)
    at = (await store.ping()).now + 50_000
    await store.jobs.insert([new(1), new(2, at=at)])

    async def is_due() -> bool:
        return (await store.ping()).now > at

    await wait_until_async(is_due)
    async with sleeper.watch(("queue", "last call")) as last_call:
        await store.jobs.pause("last call", seconds=0)  # what rang before has been heard by then
        assert await last_call.wait(SIZE.patience)
    async with sleeper.watch(("queue", "default")) as bell:
        assert [job.id for job in await claim(store, 1)] == [new(1).id]
        assert await bell.wait(SIZE.patience)


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_key_that_a_transaction_is_about_to_take_is_busy_until_its_end(
    store: PostgresStore, operator: asyncpg.Connection, end: str
):
    key, free = Unique(key="key"), Unique(key="free")
    jobs = [new(2, unique=key), new(3), new(4, unique=free), new(5, unique=key)]
    await operator.execute("BEGIN")
    await store.within(operator, "within()").insert([new(1, unique=key)])
    for _ in range(2):  # a repeat gets the same answers
        outcomes = [answer.outcome for answer in await store.jobs.insert(jobs)]
        assert outcomes == ["busy", "created", "created", "busy"]
    assert [job.id for job in (await store.jobs.find()).jobs] == [new(4).id, new(3).id]
    await operator.execute(end)
    answer, *_ = await store.jobs.insert(jobs)
    expected = ("existing", new(1).id) if end == "commit" else ("created", new(2).id)
    assert (answer.outcome, answer.id) == expected


async def test_many_held_keys_are_told_apart_from_free_ones(
    store: PostgresStore, operator: asyncpg.Connection
):
    held = [new(number, unique=Unique(key=f"key {number}")) for number in range(0, 60, 2)]
    await operator.execute("BEGIN")
    await store.within(operator, "within()").insert(held)
    jobs = [new(100 + number, unique=Unique(key=f"key {number}")) for number in range(60)]
    outcomes = [answer.outcome for answer in await store.jobs.insert(jobs)]
    assert outcomes == ["busy", "created"] * 30
    [[timeout]] = await operator.fetch("SELECT current_setting('lock_timeout')")
    assert timeout == "0"  # the transaction is the user's


@pytest.mark.parametrize("call", ["cancel", "requeue"])
async def test_one_held_job_keeps_no_other_from_being_moved(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, call: str
):
    ids = [new(number).id for number in (1, 2, 3)]
    await store.jobs.insert([new(1), new(2), new(3)])
    if call == "requeue":
        await store.jobs.settle([success(job) for job in await claim(store, 1, 3)])
    async with operator.transaction():
        table = "job" if call == "cancel" else "job_done"
        await operator.execute(
            f"SELECT FROM tenure.{table} WHERE namespace = $1 AND id = $2 FOR UPDATE",
            *(namespace, ids[1]),
        )
        with pytest.raises(StoreUnavailable):
            await getattr(store.jobs, call)(ids)
        state = "cancelled" if call == "cancel" else "waiting"
        moved = (await store.jobs.find(state=state)).jobs
        assert sorted(job.id for job in moved) == [ids[0], ids[2]]


async def test_a_cancelled_caller_delays_only_calls_about_the_same_job(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    await store.jobs.insert([new(1), new(2)])
    async with operator.transaction():
        await operator.execute(
            "SELECT FROM tenure.job WHERE namespace = $1 AND id = $2 FOR UPDATE",
            *(namespace, new(1).id),
        )
        cancel = asyncio.create_task(store.jobs.cancel([new(1).id]))
        await wait_until_async(lambda: blocks_another(operator))
        cancel.cancel()
        await asyncio.wait([cancel])
        assert store._pool is not None
        [abandoned] = store._pool._abandoned
        others = asyncio.gather(
            store.jobs.get([new(2).id]),
            store.jobs.insert([new(3)]),
            claim(store, 1),
            store.jobs.counts(),
        )
        same = asyncio.ensure_future(store.jobs.get([new(1).id]))
        done, _ = await asyncio.wait([others, same, abandoned], return_when=asyncio.FIRST_COMPLETED)
        assert done == {others}
        await asyncio.wait([same])
        assert abandoned.done()


@pytest.mark.parametrize("call", ["note", "settle"])
async def test_a_read_waits_for_what_a_cancelled_caller_has_sent_about_its_job(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, call: str
):
    await store.jobs.insert([new(1), new(2)])
    [job] = await claim(store, 1)
    calls = {
        "note": lambda: store.jobs.note([Note(id=job.id, fence=job.fence, progress=0.5)]),
        "settle": lambda: store.jobs.settle([success(job)]),
    }
    async with operator.transaction():
        await operator.execute(
            "SELECT FROM tenure.job WHERE namespace = $1 AND id = $2 FOR UPDATE",
            *(namespace, job.id),
        )
        sent = asyncio.ensure_future(calls[call]())
        await wait_until_async(lambda: blocks_another(operator))
        sent.cancel()
        await asyncio.wait([sent])
        assert store._pool is not None
        [abandoned] = store._pool._abandoned
        same = asyncio.ensure_future(store.jobs.get([job.id]))
        # Two round trips of another read: a read that does not wait would be answered by now.
        for _ in range(2):
            await store.jobs.get([new(2).id])
        assert abandoned.done() or not same.done()
    await same


async def test_a_key_stays_with_a_job_that_finished_while_the_key_was_locked(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    unique = Unique(key="key", keep=1e-6, with_job=True)
    await store.jobs.insert([new(1, unique=unique, retention=600)])
    [job] = await claim(store, 1)
    async with operator.transaction():
        await operator.execute(
            "SELECT FROM tenure.job_key WHERE namespace = $1 FOR UPDATE", namespace
        )
        await store.jobs.settle([success(job)])
    assert [insertion.id for insertion in await store.jobs.insert([new(2, unique=unique)])] == [
        job.id
    ]
    await operator.execute("UPDATE tenure.job_done SET expires = 0 WHERE namespace = $1", namespace)
    assert [
        insertion.outcome for insertion in await store.jobs.insert([new(2, unique=unique)])
    ] == ["created"]


async def test_a_job_that_finishes_while_its_insert_is_repeated_is_not_stored_again(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    await store.jobs.insert([new(1, tags=("red",))])
    [job] = await claim(store, 1)
    await operator.execute("BEGIN")
    await operator.fetch(
        """
        SELECT * FROM tenure.job_settle($1, $2, $3, $4, '{0}', '{NULL}', '{NULL}',
                                           '{""}', '{NULL}', 0, NULL)
        """,
        namespace,
        [job.id],
        [str(job.fence)],
        [success(job).move],
    )
    repeat = asyncio.create_task(store.jobs.insert([new(1, tags=("red",))]))
    done, _ = await asyncio.wait([repeat], timeout=0.2)
    assert not done
    await operator.execute("COMMIT")
    assert [insertion.outcome for insertion in await repeat] == ["created"]
    assert [job.state for job in (await store.jobs.find()).jobs] == ["succeeded"]
    assert [job.state for job in (await store.jobs.find(tag="red")).jobs] == ["succeeded"]


async def test_64_tasks_at_the_same_jobs_never_block_each_other_for_good(
    open_store: Open, postgres_server: Endpoint, operator: asyncpg.Connection
):
    stores = [await open_store(postgres_server.url) for _ in range(4)]
    ids = [f"job-{n:06}" for n in range(60)]
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = await operator.fetchval(deadlocks)
    settled = 0

    async def work(number: int) -> None:
        nonlocal settled
        chance, store = random.Random(number), stores[number % 4]
        replica = f"r{number % 16}"
        for step in range(6):
            await store.jobs.beat([replica], ttl=600 if chance.random() < 0.9 else 0.001, meta={})
            sample = chance.sample(ids, 20)
            keys = [Unique(key=f"k{chance.randrange(9)}") for _ in sample]
            await store.jobs.insert(
                [new(int(id_[4:]), unique=key) for id_, key in zip(sample, keys, strict=True)]
            )
            claimed = await store.jobs.claim(replica, number + 100 * step + 1, ["default"], 20)
            jobs = claimed.jobs if claimed else []
            chance.shuffle(jobs)
            outcomes = ("succeeded", "retry", "failed", "handed back", "cancelled")
            ends = [success(job, outcome=chance.choice(outcomes)) for job in jobs[:15]]
            await store.jobs.cancel(chance.sample(ids, 10))
            settled += (await store.jobs.settle(ends)).count("settled")
            await store.jobs.requeue(chance.sample(ids, 20))
            await recover(store, delays=[0.0], grace=0.0, limit=30)
            if chance.random() < 0.3:
                await leave(store, replica)
            await store.prune(idle=600)

    async with asyncio.timeout(SIZE.patience * 4):
        await asyncio.gather(*(work(number) for number in range(64)))
    assert settled > 20
    assert await operator.fetchval(deadlocks) == before
    both = "SELECT count(*) FROM tenure.job JOIN tenure.job_done USING (namespace, id)"
    assert await operator.fetchval(both) == 0


async def test_a_record_that_cannot_be_counted_up_is_set_aside(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    await store.jobs.insert([new(n) for n in range(5)])
    await claim(store, 1, 5)
    await operator.execute(
        "UPDATE tenure.job SET losses = 2147483647 WHERE namespace = $1 AND id = $2",
        namespace,
        "job-000003",
    )
    buried = await bury(store, "ann", [f"job-{n:06}" for n in range(5)], delays=[0.0])
    states = {job.id[-1]: job.state for job in buried}
    waiting = dict.fromkeys("0124", "waiting")
    assert states == {**waiting, "3": None}
    assert await store.jobs.get(["job-000003"]) == [None]
    assert await store.jobs.cancel(["job-000003"]) == [None]
    assert len((await store.jobs.find()).jobs) == 4
    assert not await recover(store, delays=[0.0], grace=0.0)


# Notifications.


async def test_many_changes_make_few_notifications(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    heard: list[str] = []
    await operator.add_listener(channel_of(namespace), lambda *args: heard.append(str(args[-1])))
    began = asyncio.get_running_loop().time()
    for number in range(100):
        await store.jobs.insert([new(number)])
    while jobs := await claim(store, number := number + 1, 10):
        await store.jobs.settle([success(job) for job in jobs])
    await store.close()

    def topics_heard() -> set[Any]:
        return {topic for payload in heard for topic in topics_in(payload, namespace)}

    def everything_is_told() -> bool:
        return ("queue", "default") in topics_heard() and (
            any(kind_in(payload, namespace) == "job" for payload in heard)
            or topics_heard() >= {("job", f"job-{n:06}") for n in range(100)}
        )

    await wait_until_async(everything_is_told, SIZE.patience)
    took = asyncio.get_running_loop().time() - began
    assert len(heard) < 60 + took * 100


async def test_notifications_arrive_whatever_the_names():
    names = ["plain", "two\nlines", "sep\u2028arated", "", " blank", "ü" * 200]
    topics: list[Any] = [("queue", name) for name in names]
    topics += [("job", "ö" * 100 + f"{n}") for n in range(64)]
    texts = payloads("space", topics)
    assert max(len(payload.encode()) for payload in texts) < 8000
    heard = [topic for payload in texts for topic in topics_in(payload, "space")]
    assert sorted(heard) == sorted(topics)
    assert topics_in(texts[0], "spac") == []


async def test_a_single_change_is_announced_at_once_and_many_together():
    sent: list[list[str]] = []

    async def send(_channel: str, payloads: list[str]) -> None:
        sent.append(payloads)
        await asyncio.sleep(0)

    notifier = Notifier("space", send)
    notifier.tell([("job", "first")])
    await asyncio.sleep(0)
    assert sent == [["jobs space first"]]
    for number in range(1000):
        notifier.tell([("job", str(number))])
        await asyncio.sleep(0)
    await notifier.close()
    assert len(sent) < 50
    # So many that all waiters for a job are woken.
    assert kind_in(sent[-1][0], "space") == "job"
    assert kind_in(sent[-1][0], "spac") is None
