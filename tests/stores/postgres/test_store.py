"""The PostgreSQL store alone: its URL, its connections, its rows, its errors."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenure.core.clock import Clock, SystemClock
from tenure.core.leases import Busy, Grade, Granted, Lease
from tenure.errors import ConfigError, StoreError, StoreFull, StoreUnavailable
from tenure.stores.postgres import PostgresStore
from tenure.stores.postgres.address import Address
from tenure.stores.postgres.errors import translate
from tenure.stores.postgres.server import Server
from tenure.testing import ManualClock
from tests.contract.calls import ask, be_refused, renew, take
from tests.rig.fixtures import Endpoint, PrivatePostgres
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async
from tests.stores.postgres.inside import connected

Open = Callable[..., Awaitable[PostgresStore]]


@pytest.fixture
async def open_store(namespace: str) -> AsyncIterator[Open]:
    """Open stores that are closed after the test; nothing of them may be left then."""
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:

        async def make(url: str, clock: Clock | None = None, **how: Any) -> PostgresStore:
            store = PostgresStore(url, namespace=namespace, clock=clock or SystemClock())
            stack.push_async_callback(store.close)
            await store.open(**how)
            return store

        yield make
    assert asyncio.all_tasks() - before <= {asyncio.current_task()}
    gc.collect()
    assert not noise


@pytest.fixture
async def store(open_store: Open, postgres_server: Endpoint) -> PostgresStore:
    return await open_store(postgres_server.url)


@pytest.fixture
async def operator(postgres_server: Endpoint) -> AsyncIterator[asyncpg.Connection]:
    """A second session in the same database."""
    async with connected(postgres_server.url) as connection:
        yield connection


async def counts(operator: asyncpg.Connection, namespace: str) -> list[tuple[int, ...]]:
    """Return, for each key, what is counted and what is there."""
    rows = await operator.fetch(
        """
        SELECT k.held, k.waiting,
               (SELECT count(*) FROM tenure.lease l
                WHERE l.namespace = k.namespace AND l.key = k.key),
               (SELECT count(*) FROM tenure.waiter w
                WHERE w.namespace = k.namespace AND w.key = k.key)
        FROM tenure.lease_key k WHERE k.namespace = $1
        """,
        namespace,
    )
    return [tuple(row) for row in rows]


# The URL.


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgres://ann@host:1/db", "postgres://ann@host:1/db"),
        ("postgresql://ann:secret@host:1/db", "postgresql://ann:***@host:1/db"),
        ("postgresql://ann:s%40cret@one,two:2/db", "postgresql://ann:***@one,two:2/db"),
        ("postgresql://host/db?password=secret&user=ann", None),
        ("postgresql://host/db?sslpassword=secret", None),
        ("postgresql:///db?host=%2Frun%2Fpostgresql", "postgresql:///db?host=%2Frun%2Fpostgresql"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str | None):
    address = Address.parse(url)
    assert "cret" not in address.shown
    assert shown in (None, address.shown)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:se@cret@host/db",
        "postgresql://ann:se/cret@host/db",
        "postgresql://ann:se#cret@host/db",
        "postgresql://ann:se?cret@host/db",
        "postgresql://ann:secret@[host/db",
        "postgresql://ann:secret@host/db?nonsense",
        "postgresql://ann:secret@host/db?statement_cache_size=few",
    ],
)
def test_a_url_that_cannot_be_meant_so_is_refused_without_quoting_it(url: str):
    with pytest.raises(ConfigError) as caught:
        Address.parse(url)
    assert "cret" not in str(caught.value)


def test_the_url_may_override_our_settings():
    settings = Address.parse("postgresql://h/d?jit=on&application_name=me").options()
    assert {"jit", "application_name"}.isdisjoint(settings["server_settings"])
    assert "statement_timeout" in settings["server_settings"]


def test_behind_a_pooler_nothing_is_left_in_a_session():
    address = Address.parse("postgresql://h/d?statement_cache_size=0")
    assert address.shares_sessions
    assert "statement_cache_size" not in address.options()["dsn"]
    assert list(address.options()["server_settings"]) == ["application_name"]


@pytest.mark.parametrize(
    ("url", "session_attrs"),
    [
        ("postgresql://one/d", None),
        ("postgresql://one,two/d", "read-write"),
        ("postgresql://one,two/d?target_session_attrs=any", None),
    ],
)
def test_a_url_with_several_hosts_means_the_one_that_takes_writes(
    url: str, session_attrs: str | None
):
    assert Address.parse(url).options().get("target_session_attrs") == session_attrs


# Setting up.


async def test_a_clone_opens_without_another_look_and_knows_the_grade(
    open_store: Open, private_postgres: PrivatePostgres
):
    server = private_postgres(durable=True)
    store = await open_store(server.url)
    clone = store.clone()
    assert clone.traits == store.traits
    assert clone.traits.grade is Grade.A
    await clone.open("skip")
    try:
        assert await renew(clone, await take(store, "key", "ann")) == [True]
    finally:
        await clone.close()


async def test_a_newer_format_is_refused(open_store: Open, private_postgres: PrivatePostgres):
    url = private_postgres().url
    await open_store(url)
    async with connected(url) as operator:
        await operator.execute("INSERT INTO tenure.format VALUES (1000, 999)")
    for how in ("auto", "check"):
        with pytest.raises(ConfigError, match="1000"):
            await open_store(url, migrate=how)


async def test_a_newer_format_that_this_release_can_use_is_left_as_it_is(
    open_store: Open, private_postgres: PrivatePostgres
):
    url = private_postgres().url
    first = await open_store(url)
    before = await first.ping()
    async with connected(url) as operator:
        await operator.execute("INSERT INTO tenure.format VALUES (1000, 1)")
        for how in ("auto", "check"):
            store = await open_store(url, migrate=how)
            assert (await store.ping()).incarnation == before.incarnation
        assert await operator.fetchval("SELECT max(number) FROM tenure.format") == 1000


async def test_an_empty_database_is_only_set_up_where_migrations_are_allowed(
    open_store: Open, private_postgres: PrivatePostgres
):
    url = private_postgres().url
    with pytest.raises(ConfigError, match=r"'tenure migrate'.*migrate=\"auto\""):
        await open_store(url, migrate="check")
    await open_store(url)
    await open_store(url, migrate="check")


async def test_a_plain_role_needs_a_little_help(
    open_store: Open, private_postgres: PrivatePostgres
):
    server = private_postgres()
    plain = server.url.replace("tenure@", "ann@")
    async with connected(server.url) as operator:
        await operator.execute("CREATE ROLE ann LOGIN")
        with pytest.raises(ConfigError, match="GRANT USAGE"):
            await open_store(plain)
        await open_store(server.url)
        with pytest.raises(ConfigError, match="GRANT USAGE"):
            await open_store(plain)
        await operator.execute(
            """
            GRANT USAGE ON SCHEMA tenure TO ann;
            GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenure TO ann
            """
        )
        store = await open_store(plain)
        assert await store.leases.release([await take(store, "key", "ann")]) == [True]
        await operator.execute("REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM ann")
        # Callers that retry must be able to go on, so this is no ConfigError.
        with pytest.raises(StoreError, match="GRANT USAGE"):
            await ask(store, "key", "ann")


async def test_a_wrong_password_is_a_matter_of_configuration(
    open_store: Open, private_postgres: PrivatePostgres, tmp_path: Path
):
    rules = tmp_path / "hba.conf"
    rules.write_text("host all ann 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    server = private_postgres(config={"hba_file": str(rules)})
    async with connected(server.url) as operator:
        await operator.execute("CREATE ROLE ann LOGIN PASSWORD 'right'")
    with pytest.raises(ConfigError, match="password") as caught:
        await open_store(server.url.replace("tenure@", "ann:hunter2@"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="Create the database"):
        await open_store(f"{server.url.rpartition('/')[0]}/nowhere")
    async with connected(server.url) as operator:
        await operator.execute("GRANT CREATE ON DATABASE tenure TO ann")
        store = await open_store(server.url.replace("tenure@", "ann:right@"))
        await operator.execute("ALTER ROLE ann PASSWORD 'rotated'")
        await operator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ann'"
        )
        [(connection, _)] = store._pool._idle
        await wait_until_async(connection.is_closed, SIZE.patience)
        # Callers that retry must be able to go on, so this is no ConfigError any more.
        with pytest.raises(StoreError, match="Check user and password"):
            await ask(store, "key", "ann")


async def test_a_database_that_takes_no_writes_is_refused(
    open_store: Open, private_postgres: PrivatePostgres
):
    server = private_postgres(config={"default_transaction_read_only": "on"})
    with pytest.raises(ConfigError, match="default_transaction_read_only"):
        await open_store(server.url)


async def test_strict_isolation_by_default_does_not_reach_us(
    open_store: Open, private_postgres: PrivatePostgres
):
    server = private_postgres(config={"default_transaction_isolation": "serializable"})
    store = await open_store(server.url)
    answers = await asyncio.gather(*(ask(store, "key", f"h{n}", limit=5) for n in range(40)))
    assert sum(isinstance(answer, Granted) for answer in answers) == 5
    with pytest.raises(ConfigError, match="read committed"):
        await open_store(f"{server.url}?statement_cache_size=0")


@pytest.mark.parametrize(
    ("facts", "grade"),
    [
        ({}, Grade.A),
        ({"waits_for": "remote_apply"}, Grade.A),
        ({"waits_for": "off"}, Grade.C),
        ({"lagging_standbys": 1}, Grade.C),
        ({"flushes": False, "lagging_standbys": 1}, Grade.D),
    ],
)
def test_the_grade_follows_from_the_settings(facts: dict[str, Any], grade: Grade):
    usual = {"release": 18, "encoding": "UTF8", "read_only": False, "isolation": "read committed"}
    safe = {"standby": False, "flushes": True, "waits_for": "on", "lagging_standbys": 0}
    assert Server(**{"version": "18", **usual, **safe, **facts}).grade is grade


# Connections.


async def test_many_callers_share_few_connections(store: PostgresStore, postgres_server: Endpoint):
    mine = f"{postgres_server.url}?application_name={store.namespace}"
    crowded = PostgresStore(mine, namespace=store.namespace, clock=SystemClock())
    await crowded.open()
    try:
        await asyncio.gather(*(take(crowded, f"key-{n}", "ann") for n in range(100)))
        assert await sessions(store) == 8
    finally:
        await crowded.close()
    await wait_until_async(lambda: none_left(store), SIZE.patience)


async def sessions(store: PostgresStore) -> int:
    [[number]] = await store.fetch(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", store.namespace
    )
    return number


async def none_left(store: PostgresStore) -> bool:
    return await sessions(store) == 0


async def test_connections_that_were_long_idle_are_given_back(
    open_store: Open, store: PostgresStore, postgres_server: Endpoint
):
    clock = ManualClock()
    other = await open_store(f"{postgres_server.url}?application_name={store.namespace}", clock)
    await asyncio.gather(*(take(other, f"key-{n}", "ann") for n in range(100)))
    clock.shift(61)

    async def shrunk() -> bool:
        await other.leases.find()
        return await sessions(store) == 1

    await wait_until_async(shrunk, SIZE.patience)


async def test_a_call_leaves_nothing_in_its_session(store: PostgresStore):
    await take(store, "key", "ann")
    await be_refused(store, "key", "ben")
    for setting, value in (("synchronous_commit", "on"), ("enable_seqscan", "on")):
        assert [tuple(row) for row in await store.fetch(f"SHOW {setting}")] == [(value,)]


async def test_a_server_that_says_nothing_is_given_up_in_time_and_found_again(
    open_store: Open, private_postgres: PrivatePostgres
):
    server = private_postgres()
    store = await open_store(server.url)
    await take(store, "key", "ann")
    server.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.leases.find()
    assert time.monotonic() - began < 7
    server.resume()
    assert [lease.holder for lease in await store.leases.find()] == ["ann"]


async def test_a_store_on_a_server_that_says_nothing_can_be_closed(
    open_store: Open, private_postgres: PrivatePostgres
):
    server = private_postgres()
    store = await open_store(server.url)
    await asyncio.gather(*(take(store, f"key-{n}", "ann") for n in range(20)))
    async with store.watch(("lease", "ann")):
        server.pause()
        caller = asyncio.create_task(store.leases.find())
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await store.close()
        assert time.monotonic() - began < 4
    with pytest.raises(StoreError):
        await caller


async def test_after_a_restart_calls_and_wake_ups_work_again(
    open_store: Open, private_postgres: PrivatePostgres
):
    server = private_postgres()
    here, there = await open_store(server.url), await open_store(server.url)
    ann = await take(there, "key", "ann", ttl=600)
    await be_refused(here, "key", "ben", waiting=600)
    async with here.watch(("lease", "ben")) as watch:
        await asyncio.to_thread(server.restart)
        assert await watch.wait(SIZE.patience)  # wake-ups may have been missed
        assert not await watch.wait(0)
        assert await there.leases.release([ann]) == [True]
        assert await watch.wait(SIZE.patience)


async def test_without_a_connection_to_listen_on_waiters_go_on_and_hear_later(
    open_store: Open, private_postgres: PrivatePostgres, caplog: pytest.LogCaptureFixture
):
    server = private_postgres()
    await open_store(server.url)
    async with connected(server.url) as operator:
        await operator.execute(
            """
            CREATE ROLE ann LOGIN CONNECTION LIMIT 1;
            GRANT USAGE ON SCHEMA tenure TO ann;
            GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenure TO ann
            """
        )
        store = await open_store(server.url.replace("tenure@", "ann@"))
        lease = await take(store, "key", "ann", ttl=600)
        for _ in range(2):
            async with store.watch(("lease", "ben")) as watch:
                assert not await watch.wait(0.01)
        few, message = [record.getMessage() for record in caplog.records]
        assert "has 0 more connections for this process" in few
        assert "No wake-ups" in message
        assert "too many connections" in message
        async with store.watch(("lease", "ben")) as watch:
            await be_refused(store, "key", "ben", waiting=600)
            await operator.execute("ALTER ROLE ann CONNECTION LIMIT 2")
            assert await watch.wait(SIZE.patience)  # for what may have been missed
            await store.leases.release([lease])
            assert await watch.wait(SIZE.patience)
    assert len(caplog.records) == 2


async def test_a_refused_listen_is_tried_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def refuse(*_: object) -> None:
        raise asyncpg.ReadOnlySQLTransactionError("cannot execute LISTEN during recovery")

    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "add_listener", refuse)
        async with store.watch(("lease", "ben")) as watch:
            assert not await watch.wait(0.01)
    assert "cannot execute LISTEN" in caplog.text
    async with store.watch(("lease", "ben")) as watch:
        assert await watch.wait(SIZE.patience)


async def test_a_session_that_was_ended_is_replaced(
    store: PostgresStore, operator: asyncpg.Connection
):
    for _ in range(3):
        [[pid]] = await store.fetch("SELECT pg_backend_pid()")
        await operator.execute(f"SELECT pg_terminate_backend({pid})")
        [(connection, _)] = store._pool._idle
        await wait_until_async(connection.is_closed, SIZE.patience)
        assert await store.leases.find() == []


async def test_the_wait_for_a_key_locked_by_another_transaction_is_bounded(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    lease = await take(store, "key", "ann")
    async with operator.transaction():
        await operator.execute(
            "SELECT FROM tenure.lease_key WHERE namespace = $1 FOR UPDATE", namespace
        )
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await ask(store, "key", "ben")
        assert 3 < time.monotonic() - began < 6
        assert await renew(store, lease) == [True]
    await be_refused(store, "key", "ben")


# Rows.


async def test_batches_in_any_order_do_not_deadlock(open_store: Open, postgres_server: Endpoint):
    stores = [await open_store(postgres_server.url) for _ in range(4)]
    for turn in range(SIZE.rounds):
        keys = [f"key-{turn}-{number}" for number in range(12)]
        leases = [await take(stores[0], key, "ann") for key in keys]
        batches = [leases, leases[::-1], leases[6:] + leases[:6], leases[::2] + leases[1::2]]
        pairs = zip(stores, batches, strict=True)
        answers = await asyncio.gather(*(store.leases.release(batch) for store, batch in pairs))
        assert sum(map(sum, answers)) == len(leases)


async def test_a_lease_that_another_transaction_has_is_neither_renewed_nor_lost(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    mine, other = await take(store, "key", "ann"), await take(store, "other", "ann")
    gone = Lease(key="key", holder="ann", fence=mine.fence + 1, ttl=30)
    async with operator.transaction():
        await operator.execute(
            "SELECT FROM tenure.lease WHERE namespace = $1 AND key = 'key' FOR UPDATE", namespace
        )
        assert await store.leases.renew([mine, other, gone]) == [None, True, False]
    assert await store.leases.renew([mine, other, gone]) == [True, True, False]


async def test_a_guarded_lease_can_be_given_back_at_once_but_not_taken_over(
    store: PostgresStore, operator: asyncpg.Connection
):
    ann = await take(store, "key", "ann")
    async with operator.transaction():
        assert await store.within(operator, "guard()").hold_lease(ann)
        assert await renew(store, ann) == [True]
        assert await store.leases.release([ann]) == [True]
        assert await store.leases.release([ann]) == [False]
        assert await renew(store, ann) == [False]
        assert not await store.leases.mark("done", ann, "v1")
        assert await store.leases.find() == []
        for holder in ("ben", "ann"):
            assert 0 < (await be_refused(store, "key", holder)).retry_in <= 1
    assert (await take(store, "key", "ben")).fence > ann.fence


async def test_a_guarded_lease_keeps_its_place_after_its_end(
    open_store: Open, postgres_server: Endpoint, operator: asyncpg.Connection, namespace: str
):
    clock = ManualClock()
    store = await open_store(postgres_server.url, clock)
    ann = await take(store, "key", "ann", limit=2, ttl=10)
    async with operator.transaction():
        assert await store.within(operator, "guard()").hold_lease(ann)
        clock.shift(10)
        await take(store, "key", "ben", limit=2)
        await be_refused(store, "key", "cid", limit=2)
        assert not await store.within(operator, "guard()").hold_lease(ann)
        assert (await store.prune(idle=0)).leases == 0
    await take(store, "key", "cid", limit=2)
    assert await counts(operator, namespace) == [(2, 0, 2, 0)]


async def test_rows_deleted_by_hand_are_noticed(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str
):
    for holder in "abc":
        await take(store, "key", holder, limit=3)
    await be_refused(store, "key", "ben", limit=3, waiting=60)
    await operator.execute("DELETE FROM tenure.lease WHERE namespace = $1", namespace)
    await operator.execute("DELETE FROM tenure.waiter WHERE namespace = $1", namespace)
    await be_refused(store, "key", "cid", limit=3)
    await take(store, "key", "cid", limit=3)
    assert await counts(operator, namespace) == [(1, 0, 1, 0)]


async def test_counts_stay_true_while_all_kinds_of_calls_meet(
    open_store: Open, postgres_server: Endpoint, operator: asyncpg.Connection, namespace: str
):
    stores = [await open_store(postgres_server.url) for _ in range(3)]

    async def use(store: PostgresStore, name: str) -> None:
        for turn in range(SIZE.rounds):
            holder = f"{name}-{turn}"
            answer = await ask(store, "key", holder, limit=1 + turn % 3, waiting=turn % 2)
            if isinstance(answer, Busy) or turn % 5:
                await store.leases.release([Lease(key="key", holder=holder)])
            await store.prune(idle=0)

    await asyncio.gather(*(use(store, f"{n}-{m}") for n, store in enumerate(stores) for m in "ab"))
    for held, waiting, leases, waiters in await counts(operator, namespace):
        assert (held, waiting) == (leases, waiters)


async def test_a_refusal_reads_no_more_of_a_large_semaphore(
    open_store: Open, private_postgres: PrivatePostgres
):
    store = await open_store(private_postgres().url)
    read = {}
    for limit in (10, 1000):
        for number in range(limit):
            await take(store, f"of-{limit}", f"h{number}", limit=limit)
        before = await rows_read(store)
        for _ in range(20):
            await be_refused(store, f"of-{limit}", "ben", limit=limit)
        read[limit] = await rows_read(store) - before
    assert 0 < read[10] <= read[1000] <= 20 * 5


async def rows_read(store: PostgresStore) -> int:
    """Return how many leases were read by calls one after the other, which share a session."""
    await store.fetch("SELECT pg_stat_force_next_flush()")
    [[read]] = await store.fetch(
        "SELECT sum(idx_tup_read)::bigint FROM pg_stat_all_indexes WHERE relname = 'lease'"
    )
    return read


# Errors.


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError("refused"), StoreUnavailable),
        (TimeoutError(), StoreUnavailable),
        (asyncpg.CannotConnectNowError("starting"), StoreUnavailable),
        (asyncpg.ConnectionDoesNotExistError("gone"), StoreUnavailable),
        (asyncpg.AdminShutdownError("stopping"), StoreUnavailable),
        (asyncpg.QueryCanceledError("timeout"), StoreUnavailable),
        (asyncpg.DeadlockDetectedError("deadlock"), StoreUnavailable),
        (asyncpg.SerializationError("again"), StoreUnavailable),
        (asyncpg.LockNotAvailableError("locked"), StoreUnavailable),
        (asyncpg.TooManyConnectionsError("full"), StoreUnavailable),
        (asyncpg.DiskFullError("could not extend file: No space left on device"), StoreFull),
        (asyncpg.ReadOnlySQLTransactionError("standby"), StoreUnavailable),
        (asyncpg.InterfaceError("connection is closed"), StoreUnavailable),
        (asyncpg.InvalidPasswordError("wrong"), StoreError),
        (asyncpg.UndefinedFunctionError("no such function"), StoreError),
        (asyncpg.CharacterNotInRepertoireError("what"), StoreError),
    ],
)
def test_errors_of_the_driver_become_errors_of_tenure(error: Exception, kind: type[StoreError]):
    fault = translate(error, "postgresql://host/db")
    assert type(fault) is kind
    assert fault.__cause__ is error


def test_an_error_that_may_quote_the_password_is_not_passed_on():
    fault = translate(ValueError("bad port 'secret'"), "postgresql://host/db", opening=True)
    assert "secret" not in str(fault)
    assert fault.__cause__ is None


async def test_a_key_that_is_locked_does_not_hold_up_a_prune(
    open_store: Open, postgres_server: Endpoint, operator: asyncpg.Connection, namespace: str
):
    clock = ManualClock()
    store = await open_store(postgres_server.url, clock)
    for key in ("free", "locked"):
        await store.leases.release([await take(store, key, "ann")])
    clock.shift(2 * 86_400)
    async with operator.transaction():
        await operator.fetch(
            "SELECT FROM tenure.lease_key WHERE namespace = $1 AND key = 'locked' FOR UPDATE",
            namespace,
        )
        assert (await store.prune(idle=3600)).leases == 1
    assert (await store.prune(idle=3600)).leases == 1


async def test_a_late_release_counts_although_another_has_the_row_locked(
    open_store: Open, postgres_server: Endpoint, operator: asyncpg.Connection, namespace: str
):
    clock = ManualClock()
    store = await open_store(postgres_server.url, clock)
    lease = await take(store, "key", "ann")
    async with operator.transaction():  # as a guard does
        await operator.fetch(
            "SELECT FROM tenure.lease WHERE namespace = $1 FOR KEY SHARE", namespace
        )
        clock.shift(lease.ttl)
        assert await store.leases.release([lease]) == [False]
    answer = await ask(store, "key", "ben")
    assert isinstance(answer, Granted)
    assert not answer.took_over


async def test_a_pool_without_a_free_connection_fails_in_time(
    store: PostgresStore, operator: asyncpg.Connection, namespace: str, monkeypatch
):
    await take(store, "key", "ann")
    monkeypatch.setattr("tenure.stores.postgres.pool.CALL_TIMEOUT", 0.2)
    async with operator.transaction():
        await operator.fetch(
            "SELECT FROM tenure.lease_key WHERE namespace = $1 FOR UPDATE", namespace
        )
        busy = [asyncio.create_task(ask(store, "key", "ben")) for _ in range(8)]
        await wait_until_async(store._pool._room.locked, SIZE.patience)
        with pytest.raises(StoreUnavailable, match="all 8 connections of this process are in"):
            await store.ping()
    await asyncio.gather(*busy, return_exceptions=True)


async def test_each_failure_to_listen_makes_the_next_try_later(
    open_store: Open, private_postgres: PrivatePostgres, monkeypatch
):
    failures: list[int] = []

    def pause(count: int, chance: float, *, refused: bool) -> float:
        failures.append(count)
        return 0.01

    monkeypatch.setattr("tenure.stores.postgres.listener.pause_before_listening", pause)
    server = private_postgres()
    store = await open_store(server.url)
    server.kill()
    async with store.watch(("lease", "ben")):
        await wait_until_async(lambda: len(failures) > 3, SIZE.patience)
        assert failures[:4] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("facts", "error", "message"),
    [
        ({"standby": True}, StoreUnavailable, "read-only standby"),
        ({"release": 12, "version": "12.3"}, ConfigError, "is PostgreSQL 12.3"),
        ({"encoding": "LATIN1"}, ConfigError, "has the encoding LATIN1"),
        ({"read_only": True}, ConfigError, "default_transaction_read_only"),
    ],
)
def test_a_server_that_cannot_hold_leases_is_refused(
    facts: dict[str, Any], error: type[Exception], message: str
):
    usual = {"release": 18, "encoding": "UTF8", "read_only": False, "isolation": "read committed"}
    safe = {"standby": False, "flushes": True, "waits_for": "on", "lagging_standbys": 0}
    good = {"version": "18", **usual, **safe}
    Server(**good).check("url")
    with pytest.raises(error, match=message):
        Server(**{**good, **facts}).check("url")
