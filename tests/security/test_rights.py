"""Least rights: Tenure needs all that docs/security.md grants, and nothing else."""

import asyncio
import re
from collections.abc import AsyncIterator

import asyncpg
import pytest
import redis

from tenure import Tenure, current_job
from tenure.stores.postgres.rights import WRITTEN, grants
from tenure.stores.redis.rights import COMMANDS, NEEDED_RIGHTS
from tests.rig.fixtures import Endpoint, PrivateValkey
from tests.rig.rights import as_app, as_owner, blocks, redis_user
from tests.rig.sizes import SIZE
from tests.security.sources import SOURCE

REDIS = SOURCE / "stores" / "redis"


def test_the_commands_are_those_that_are_sent():
    lua = "\n".join(path.read_text() for path in (REDIS / "lua").glob("*.lua"))
    in_scripts = {
        command.lower() for command in re.findall(r"(?:call|gather|words_for)\('([A-Z]+)'", lua)
    }
    others = (path for path in REDIS.glob("*.py") if path.stem != "topology")
    python = "\n".join(path.read_text() for path in others)
    sent = re.findall(r'\b(?:ask|send)\(\s*"([A-Z]+)"', python)
    packed = re.findall(r'pack\(\(b"([A-Z]+)"(?:, b"([A-Z]+)")?', python)
    from_python = {command.lower() for command in sent} | {
        "|".join(filter(None, parts)).lower() for parts in packed
    }
    elsewhere = {"select", "cluster|slots"}  # sent by the driver, and by topology.py
    for_the_doctor = {"config"}  # it says what it does not know without
    assert set(COMMANDS) == (in_scripts | from_python | elsewhere) - for_the_doctor
    assert len(COMMANDS) == len(set(COMMANDS))


def test_finding_the_primary_needs_no_more():
    text = (REDIS / "topology.py").read_text()
    words = re.findall(r'_(?:ask|reply)\(.*?"([A-Z]+)"(?:, "([A-Z]+)")?', text)
    # HELLO needs no right, and sentinels have users of their own.
    assert set(words) == {("CLUSTER", "SLOTS"), ("HELLO", ""), ("SENTINEL", "")}


def test_the_doctor_tries_all_commands_of_scripts():
    tried = re.findall(r"\{'([A-Z]+)'", (REDIS / "lua" / "rights.lua").read_text())
    others = [path for path in (REDIS / "lua").glob("*.lua") if path.stem != "rights"]
    lua = "\n".join(path.read_text() for path in others)
    assert set(re.findall(r"(?:call|gather|words_for)\('([A-Z]+)'", lua)) == set(tried)


def test_the_page_says_what_the_doctor_says():
    [user] = blocks("text", "ACL SETUSER")
    assert user == f"ACL SETUSER tenure_app on >change-me {NEEDED_RIGHTS}\n"
    [granted] = blocks("sql", "GRANT USAGE")
    assert [statement.strip() for statement in granted.split(";") if statement.strip()] == grants(
        "tenure_app"
    )


@pytest.fixture
def plain(valkey_server: Endpoint):
    """A connection of the user that most tests go by."""
    with redis.Redis.from_url(valkey_server.app_url) as client:
        yield client


FORBIDDEN = [
    ("FLUSHALL",), ("FLUSHDB",), ("KEYS", "*"), ("SCAN", "0"), ("CONFIG", "GET", "dir"),
    ("DBSIZE",), ("CONFIG", "SET", "dir", "/tmp"), ("MODULE", "LIST"), ("SHUTDOWN",),
    ("EVAL", "return 1", "0"), ("SCRIPT", "FLUSH"), ("SCRIPT", "KILL"), ("FUNCTION", "LIST"),
    ("MONITOR",), ("ACL", "LIST"), ("ACL", "WHOAMI"), ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "ID", "1"), ("SAVE",), ("BGREWRITEAOF",), ("REPLICAOF", "NO", "ONE"),
    ("SLOWLOG", "GET"), ("MIGRATE", "h", "1", "k", "0", "1"), ("DUMP", "{tenure:x}:k"),
    ("RESTORE", "{tenure:x}:k", "0", "x"), ("SORT", "{tenure:x}:k"),
    ("RENAME", "{tenure:x}:a", "{tenure:x}:b"), ("SWAPDB", "0", "1"), ("PSUBSCRIBE", "*"),
]  # fmt: skip
FOREIGN = [
    ("GET", "session:1"), ("SET", "session:1", "x"), ("DEL", "tenure"), ("HGETALL", "tenure:x"),
    ("SET", "{tenure", "x"), ("ZADD", "{other}:names", "0", "x"), ("PUBLISH", "news", "x"),
    ("MGET", "{tenure:x}:k", "session:1"), ("SUBSCRIBE", "__keyspace@0__:*"),
]  # fmt: skip


@pytest.mark.parametrize("command", [*FORBIDDEN, *FOREIGN], ids=" ".join)
def test_the_redis_user_may_do_nothing_else(plain: redis.Redis, command: tuple[str, ...]):
    with pytest.raises(redis.exceptions.NoPermissionError):
        plain.execute_command(*command)


async def test_a_service_at_work_is_refused_nothing(private_valkey: PrivateValkey):
    """An operator who watches ACL LOG for intruders must not find Tenure there."""
    server = private_valkey(config=redis_user())
    app = Tenure(as_app(server.url), namespace="shop")

    @app.task
    async def send(number: int) -> int:
        current_job().progress(0.5)
        await current_job().save(number)
        return number

    ticked = asyncio.Event()

    @app.timer(every="1s")
    async def sweep() -> None:
        ticked.set()

    async with app, app.worker():
        mail = send.using(tags=["mail"])
        jobs = await app.enqueue_many(mail.request(number) for number in range(3))
        async with app.lock("a"), app.semaphore("b", 2):
            assert [await job.result(timeout=SIZE.patience) for job in jobs] == [0, 1, 2]
        await asyncio.wait_for(ticked.wait(), SIZE.patience)
        assert len(await app.jobs(tag="mail")) == 3
        await app.prune_jobs()
    with redis.Redis.from_url(server.url) as operator:
        assert operator.acl_log() == []
        assert operator.info("stats").get("acl_access_denied_cmd", 0) == 0  # from Redis 7 on


def test_scripts_have_no_more_rights_than_their_user(plain: redis.Redis):
    for call in ("'GET', 'session:1'", "'FLUSHALL'", "'DBSIZE'", "'KEYS', '*'"):
        sha = plain.script_load(f"return redis.call({call})")
        with pytest.raises(redis.exceptions.ResponseError, match=r"(?i)acl failure|noperm"):
            plain.evalsha(sha, 0)


@pytest.fixture
async def runtime(postgres_server: Endpoint) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_server.app_url)
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE tenure.mine ()",
        "CREATE SCHEMA mine",
        "CREATE TABLE public.mine ()",
        "DROP TABLE tenure.lease",
        "ALTER TABLE tenure.lease ADD COLUMN x int",
        "TRUNCATE tenure.job",
        "CREATE INDEX ON tenure.job (task)",
        "CREATE TRIGGER t BEFORE INSERT ON tenure.job EXECUTE FUNCTION x()",
        "INSERT INTO tenure.format VALUES (99)",
        "DELETE FROM tenure.format",
        "CREATE FUNCTION tenure.mine() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
        "CREATE ROLE mine",
        "SET ROLE tenure_owner",
        "SET SESSION AUTHORIZATION tenure",
        "ALTER SYSTEM SET fsync = off",
        "COPY tenure.job TO PROGRAM 'id'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT * FROM pg_authid",
        "CREATE EXTENSION dblink",
    ],
)
async def test_the_runtime_role_may_change_rows_and_nothing_else(runtime, statement: str):
    with pytest.raises(asyncpg.PostgresError) as caught:
        await runtime.execute(statement)
    assert isinstance(
        caught.value,
        asyncpg.InsufficientPrivilegeError | asyncpg.FeatureNotSupportedError,
    ) or "permission" in str(caught.value), caught.value


async def test_the_rights_of_the_runtime_role_are_counted(runtime):
    rows = await runtime.fetch(
        """
        SELECT c.relname AS name, array_agg(p ORDER BY p) AS rights
        FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE',
                                                'REFERENCES', 'TRIGGER']) AS p
        WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p', 'v')
          AND has_table_privilege(c.oid, p)
        GROUP BY 1
        """
    )
    rights = {row["name"]: row["rights"] for row in rows}
    changed = {table: ["DELETE", "INSERT", "SELECT", "UPDATE"] for table in WRITTEN}
    assert rights == {**changed, "format": ["SELECT"]}
    role = await runtime.fetchrow(
        "SELECT * FROM pg_roles WHERE rolname = current_user AND current_user = 'tenure_app'"
    )
    powers = ("rolsuper", "rolcreaterole", "rolcreatedb", "rolreplication", "rolbypassrls")
    assert not any(role[power] for power in powers)
    assert not await runtime.fetchval("SELECT has_schema_privilege('tenure', 'CREATE')")
    assert not await runtime.fetchval("SELECT has_database_privilege(current_database(), 'CREATE')")


async def test_the_owner_owns_all_and_is_no_superuser(postgres_server: Endpoint):
    connection = await asyncpg.connect(as_owner(postgres_server.url))
    try:
        owners = await connection.fetch(
            "SELECT DISTINCT relowner::regrole::text FROM pg_class "
            "WHERE relnamespace = 'tenure'::regnamespace"
        )
        assert [row[0] for row in owners] == ["tenure_owner"]
        assert not await connection.fetchval(
            "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
        )
    finally:
        await connection.close()


def test_the_functions_run_with_the_rights_of_who_calls_them():
    for path in (SOURCE / "stores" / "postgres" / "sql").glob("*.sql"):
        assert "SECURITY DEFINER" not in path.read_text().upper(), path.name
