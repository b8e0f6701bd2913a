"""Foreign writes to a file of SQLite keep no worker out and stop no queue."""

import math
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tenure import Tenure
from tenure.core.clock import SystemClock
from tenure.core.jobs.records import Unique
from tenure.core.jobs.replicas import Recovered
from tenure.core.leases import Granted
from tenure.errors import StoreError
from tenure.observe import Event, JobsRecovered
from tenure.stores.sqlite import SqliteStore
from tenure.stores.sqlite.doctor import _mebibytes
from tenure.stores.sqlite.lists import _next
from tests.contract.calls import ask, take
from tests.contract.commit_calls import create, plan_run, send
from tests.contract.job_calls import AT_ONCE, claim_ids, id_of, insert, join, new, start, states
from tests.rig.endings import leave, recover

JUNK = ["'junk'", "x'00ff'", "1.5", "-1", "9223372036854775807", "CAST(x'ff' AS TEXT)"]

Spoil = Callable[..., Any]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    url = f"sqlite:///{tmp_path}/damage.db"
    store = SqliteStore(url, namespace="n", clock=SystemClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def spoil(tmp_path: Path) -> Spoil:
    """Run a statement, whatever the constraints say."""

    def run(statement: str, *values: Any, guarded: bool = False) -> None:
        db = sqlite3.connect(tmp_path / "damage.db", isolation_level=None)
        try:
            if not guarded:
                db.execute("PRAGMA ignore_check_constraints = ON")
            db.execute(statement, values)
        finally:
            db.close()

    return run


@pytest.mark.parametrize(
    "change",
    [
        *("tenure_replica SET ttl = 'long'", "tenure_replica SET ttl = x'00'"),
        *("tenure_live SET fence = 9223372036854775807", "tenure_live SET attempt = 'many'"),
        *("tenure_lease SET expires = 1.5", "tenure_schedule SET declared = 'now'"),
        "tenure_job SET retention = 1e300",
    ],
)
async def test_a_constraint_refuses_it(store: SqliteStore, spoil: Spoil, change: str):
    await start(store, new(1))
    await take(store, "lock", "ann")
    await create(store)
    with pytest.raises(sqlite3.IntegrityError):
        spoil(f"UPDATE {change}", guarded=True)


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("column", ["ttl", "expires", "dead"])
async def test_a_replica_that_cannot_be_read_keeps_no_other_out(
    store: SqliteStore, spoil: Spoil, column: str, junk: str
):
    await start(store, new(1), replica="bad")
    spoil(f"UPDATE tenure_replica SET {column} = {junk}")
    await join(store, "good")
    [beat] = await store.jobs.beat(["good"], ttl=30)
    assert beat is not None
    assert "good" in {replica.id for replica in await store.jobs.replicas()}
    await insert(store, new(2))
    assert await claim_ids(store, "good") == [id_of(2)]
    await recover(store, grace=0, delays=AT_ONCE, limit=10)
    assert await leave(store, "good") == [id_of(2)]


@pytest.mark.parametrize("junk", ["'long'", "x'00'"])
async def test_such_a_replica_is_named_and_its_jobs_are_taken(
    store: SqliteStore, spoil: Spoil, junk: str
):
    await start(store, new(1), replica="bad")
    spoil(f"UPDATE tenure_replica SET ttl = {junk}")
    await join(store, "good")
    assert [replica.id for replica in await store.jobs.replicas()] == ["good"]
    assert [(damage.kind, damage.name) for damage in store.damage] == [("replica", "bad")]
    recovered = await recover(store, grace=0, delays=AT_ONCE, limit=10)
    assert [job.id for job in recovered] == [id_of(1)]
    assert await claim_ids(store, "good") == [id_of(1)]


async def test_a_recovery_that_finds_only_jobs_that_cannot_be_read_says_so(
    store: SqliteStore, spoil: Spoil
):
    await start(store, new(1), replica="bad")
    spoil("UPDATE tenure_live SET attempt = 'many'")
    spoil("UPDATE tenure_replica SET expires = 0")
    seen: list[Event] = []
    async with Tenure(store.clone()) as app:
        app.on_event(seen.append)
        recovered = await app.recover()
    assert recovered == [Recovered(id=id_of(1), replica="bad", state=None)]
    [event] = [event for event in seen if isinstance(event, JobsRecovered)]
    assert (event.replicas, event.unreadable) == (("bad",), (id_of(1),))


@pytest.mark.parametrize("junk", JUNK[:3])
async def test_an_unreadable_pause_pauses_nothing_and_is_reported(
    store: SqliteStore, spoil: Spoil, junk: str
):
    await join(store, "ann")
    await insert(store, new(1))
    await store.jobs.pause("default")
    spoil(f"UPDATE tenure_pause SET until = {junk}")
    assert [queue.paused_for for queue in await store.jobs.counts()] == [None]
    assert [(damage.kind, damage.name) for damage in store.damage] == [("queue", "default")]
    assert await claim_ids(store) == [id_of(1)]


async def test_a_damaged_reason_of_a_pause_harms_nothing(store: SqliteStore, spoil: Spoil):
    await store.jobs.pause("default", reason="migration")
    spoil("UPDATE tenure_pause SET reason = x'ff'")
    (queue,) = await store.jobs.counts()
    assert (queue.paused_for, queue.pause_reason) == (math.inf, repr(b"\xff"))


@pytest.mark.parametrize("junk", JUNK)
async def test_a_lock_that_cannot_be_read_is_held_and_named_and_harms_no_other(
    store: SqliteStore, spoil: Spoil, junk: str
):
    await take(store, "bad", "ann")
    good = await take(store, "good", "ann")
    spoil(f"UPDATE tenure_lease SET \"limit\" = {junk} WHERE key = 'bad'")
    assert await store.leases.renew([good]) == [True]
    assert [lease.key for lease in await store.leases.find()] == ["good"]
    assert [(damage.kind, damage.name) for damage in store.damage] == [("lock", "bad")]
    with pytest.raises(StoreError, match="'bad' cannot be acquired"):
        await ask(store, "bad", "ben")
    await store.prune(idle=0)
    spoil("DELETE FROM tenure_lease WHERE key = 'bad'")
    assert isinstance(await ask(store, "bad", "ben"), Granted)


@pytest.mark.parametrize("junk", JUNK)
async def test_a_timer_that_cannot_be_read_begins_anew_and_its_neighbour_goes_on(
    store: SqliteStore, spoil: Spoil, junk: str
):
    await create(store, "bad")
    good = await create(store, "good")
    spoil(f"UPDATE tenure_schedule SET last_fence = {junk} WHERE name = 'bad'")
    bad = await create(store, "bad")
    assert [(damage.kind, damage.name) for damage in store.damage] == [("timer", "bad")]
    await join(store, "ann")
    for schedule in (bad, good):
        assert (await send(store, plan_run(schedule, start_on="ann"))).outcome == "done"


async def test_a_recovery_that_removes_such_a_replica_says_so(store: SqliteStore, spoil: Spoil):
    await start(store, new(1), replica="bad")
    spoil("UPDATE tenure_replica SET ttl = 'long'")
    assert [job.id for job in await recover(store, grace=0, delays=AT_ONCE, limit=10)] == [id_of(1)]
    assert [(damage.kind, damage.name) for damage in store.damage] == [("replica", "bad")]
    assert await store.jobs.replicas() == []


@pytest.mark.parametrize("junk", ["'junk'", "x'00ff'", "9223372036854775807"])
@pytest.mark.parametrize("column", ["wall", "boot", "turn"])
async def test_an_invalid_trace_keeps_no_machine_out(
    store: SqliteStore, spoil: Spoil, column: str, junk: str
):
    await join(store, "ann")
    spoil(f"UPDATE tenure_machine SET {column} = {junk}")
    spoil("UPDATE tenure_machine SET host = CAST(x'ff' AS TEXT)")
    newcomer = store.clone()
    await newcomer.open()
    await join(newcomer, "ben")
    assert [replica.id for replica in await newcomer.jobs.replicas()] == ["ann", "ben"]
    await newcomer.close()
    assert all(finding.level != "error" for finding in await store.examine())


def test_a_page_goes_on_after_an_id_that_is_not_utf_8():
    assert _next(b"job\xff\xfe1", None) == "job1"
    assert _next(b"job\xff", "job") is None


@pytest.mark.parametrize(
    ("size", "text"), [(2**20, "1 MiB"), (2**30 - 2**20, "1023 MiB"), (2**30, "1.0 GiB")]
)
def test_sizes_of_a_gibibyte_are_told_in_gibibytes(size: int, text: str):
    assert _mebibytes(size) == text


async def test_every_queue_whose_name_is_not_text_is_reported(store: SqliteStore, spoil: Spoil):
    await insert(store, *(new(number, queue=f"q{number}") for number in (1, 2, 3)))
    spoil("UPDATE tenure_live SET queue = CAST(queue AS BLOB) WHERE queue IN ('q1', 'q3')")
    await store.jobs.counts()
    assert sorted(report.name for report in store.damage) == ["b'q1'", "b'q3'"]


@pytest.mark.parametrize("junk", JUNK)
async def test_a_damaged_count_of_wake_ups_refuses_no_call(
    store: SqliteStore, spoil: Spoil, junk: str
):
    await insert(store, new(1))
    spoil(f"UPDATE tenure_wake SET rung = {junk}")
    await insert(store, new(2))
    assert await states(store, 1, 2) == ["waiting", "waiting"]


@pytest.mark.parametrize("column", ["queue", "unique_key", "digest"])
async def test_a_finished_job_whose_text_is_damaged_is_requeued_past(
    store: SqliteStore, spoil: Spoil, column: str
):
    unique = {"unique": Unique(key="k", digest="d")}
    await insert(store, new(1, **unique), new(2))
    await store.jobs.cancel([id_of(1), id_of(2)])
    spoil(f"UPDATE tenure_job SET {column} = CAST(x'ff' AS TEXT) WHERE id = ?", id_of(1))
    assert await store.jobs.requeue([id_of(1), id_of(2)]) == [None, "requeued"]
