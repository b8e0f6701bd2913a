"""What `tenure doctor` finds on PostgreSQL servers that are set up badly, and on good ones."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tenure.cli import target
from tenure.stores.postgres import doctor, snapshots
from tenure.stores.postgres.rights import grants
from tenure.stores.postgres.server import Server
from tests.cli.conftest import Run
from tests.cli.examination import Expected, ShiftedClock, check, examined
from tests.rig.fixtures import Endpoint
from tests.rig.pooler import Pooler
from tests.rig.servers import Postgres, find_postgres
from tests.rig.wait import wait_until


def ask(url: str, *statements: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(run())


@pytest.fixture
def database(roomy_postgres: Postgres, namespace: str) -> Iterator[str]:
    """The url of a database of this test's own, on the good server."""
    ask(roomy_postgres.url, f'CREATE DATABASE "{namespace}"')
    yield f"{roomy_postgres.url.rpartition('/')[0]}/{namespace}"
    ask(roomy_postgres.url, f'DROP DATABASE "{namespace}" WITH (FORCE)')


@pytest.fixture
def plain_role(database: str, namespace: str) -> Iterator[str]:
    """The url of the same database for a role with no rights to speak of."""
    ask(database, f'CREATE ROLE "{namespace}" LOGIN')
    yield database.replace("tenure@", f"{namespace}@")
    ask(database, f'DROP OWNED BY "{namespace}"', f'DROP ROLE "{namespace}"')


def test_a_good_postgres(cli: Run, database: str):
    cli("--url", database, "migrate")
    result = cli("--url", database, "doctor", "--strict", "--require", "A")
    assert result.code == 0
    assert result.out.splitlines()[-1] == "No problems."


def test_postgres_without_fsync(cli: Run, postgres_server: Endpoint):
    check(cli, postgres_server.url, Expected("warning", "persistence", "Set fsync to on."))
    assert cli("--url", postgres_server.url, "doctor", "--json").json["grade"] == "D"


def test_commits_that_do_not_wait(cli: Run, database: str):
    url = f"{database}?synchronous_commit=off"
    check(cli, url, Expected("warning", "persistence", "a crash may cost the last second"))
    assert cli("--url", url, "doctor", "--json").json["grade"] == "C"


def test_a_role_that_may_not_create(cli: Run, plain_role: str):
    check(cli, plain_role, Expected("error", "rights", "may not create it"))


def test_a_role_without_rights_on_the_tables(
    cli: Run, database: str, plain_role: str, namespace: str
):
    cli("--url", database, "migrate")
    expected = Expected("error", "rights", f'GRANT USAGE ON SCHEMA tenure TO "{namespace}"')
    check(cli, plain_role, expected)
    ask(database, f'GRANT USAGE ON SCHEMA tenure TO "{namespace}"')
    check(cli, plain_role, expected)
    _, findings = examined(cli, "--url", plain_role)
    ask(database, *filter(str.strip, findings["rights"].advice.split(";")))
    code, findings = examined(cli, "--url", plain_role)
    assert (code, findings["rights"].level) == (0, "ok")


def test_tables_of_the_user_in_the_same_schema(
    cli: Run, database: str, plain_role: str, namespace: str
):
    cli("--url", database, "migrate")
    ask(database, *grants(namespace), "CREATE TABLE tenure.books ()")
    _, findings = examined(cli, "--url", plain_role)
    assert findings["rights"].level == "ok"


def test_a_format_from_the_future_on_postgres(cli: Run, database: str):
    cli("--url", database, "migrate")
    ask(database, "INSERT INTO tenure.format VALUES (99, 99)")
    check(cli, database, Expected("error", "format", "99, from a newer Tenure"))


def test_a_database_that_is_not_there(cli: Run, roomy_postgres: Postgres):
    url = f"{roomy_postgres.url}x"
    check(cli, url, Expected("error", "connection", "Create the database, or correct its name"))


def test_another_isolation_behind_a_pooler(
    cli: Run, database: str, plain_role: str, namespace: str
):
    cli("--url", database, "migrate")
    ask(
        database,
        f'GRANT ALL ON SCHEMA tenure TO "{namespace}"',
        f'GRANT ALL ON ALL TABLES IN SCHEMA tenure TO "{namespace}"',
        f"ALTER ROLE \"{namespace}\" SET default_transaction_isolation = 'serializable'",
    )
    url = f"{plain_role}?statement_cache_size=0"
    check(cli, url, Expected("error", "isolation", "default_transaction_isolation"))
    ask(database, f'ALTER ROLE "{namespace}" RESET default_transaction_isolation')
    ask(database, f'ALTER ROLE "{namespace}" SET default_transaction_read_only = on')
    check(cli, url, Expected("error", "writing", "default_transaction_read_only is on"))


def test_a_database_that_is_not_unicode(cli: Run, roomy_postgres: Postgres, namespace: str):
    ask(
        roomy_postgres.url,
        f"CREATE DATABASE \"{namespace}\" ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    )
    url = f"{roomy_postgres.url.rpartition('/')[0]}/{namespace}"
    check(cli, url, Expected("error", "encoding", "Create a database with the encoding UTF8."))
    ask(roomy_postgres.url, f'DROP DATABASE "{namespace}" WITH (FORCE)')


async def connected(url: str) -> asyncpg.Connection:
    while True:
        try:
            return await asyncpg.connect(url)
        except asyncpg.TooManyConnectionsError:  # one that was closed is still on its way out
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "level", "subject"), [(13, "warning", "connections"), (20, "error", "connection")]
)
def test_connections_nearly_used_up(cli: Run, database: str, number: int, level: str, subject: str):
    async def crowd() -> None:
        # There are 20, of which 3 are kept for superusers.
        crowd = [await connected(database) for _ in range(number)]
        expected = Expected(level, subject, "Raise max_connections")
        await asyncio.to_thread(check, cli, database, expected)
        for connection in crowd:
            await connection.close()

    asyncio.run(crowd())


def test_a_pooler_in_transaction_mode(cli: Run, database: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_WAKE_UP_SECONDS", 0.2)
    cli("--url", database, "migrate")
    with Pooler(database) as pooler:
        code, findings = examined(cli, "--url", pooler.url)
        assert code == 2
        assert findings["pooler"].level == "error"
        assert "statement_cache_size=0" in findings["pooler"].advice
        assert findings["wake-ups"].level == "warning"
        url = f"{pooler.url}?statement_cache_size=0"
        check(cli, url, Expected("ok", "pooler", "in transaction mode, as the URL says"))


def test_an_asynchronous_standby(cli: Run, database: str, tmp_path: Path):
    postgres = find_postgres()
    assert postgres is not None
    receiver = postgres.with_name("pg_receivewal")
    if not receiver.exists():
        pytest.skip("no pg_receivewal beside the server")
    with subprocess.Popen(
        [receiver, "-D", tmp_path, "--no-sync", "-d", database.rpartition("/")[0] + "/postgres"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until(lambda: "replicas" in examined(cli, "--url", database)[1], 20)
            check(cli, database, Expected("note", "replicas", "1 attached, 1 of them not"))
            assert cli("--url", database, "doctor", "--json").json["grade"] == "C"
        finally:
            process.kill()


def test_servers_that_are_standbys_or_old():
    server = Server("12.4", 12, "UTF8", True, "read committed", True, True, "on", 0)
    assert doctor._role(server).level == "error"
    old = doctor._version(server)
    assert (old.level, old.detail) == ("error", "PostgreSQL 12.4; 13 or later is needed")
    assert [*doctor._transactions(server, {"role": "me"})] == []


def test_a_clock_that_is_off(cli: Run, database: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(target, "SystemClock", ShiftedClock)
    check(cli, database, Expected("warning", "clock", "ahead of this host's"))


def test_a_role_with_too_few_connections(cli: Run, database: str, plain_role: str, namespace: str):
    cli("--url", database, "migrate")
    ask(
        database,
        f'GRANT ALL ON SCHEMA tenure TO "{namespace}"',
        f'GRANT ALL ON ALL TABLES IN SCHEMA tenure TO "{namespace}"',
        f'ALTER ROLE "{namespace}" CONNECTION LIMIT 2',
    )
    expected = Expected("warning", "connections", "Raise the CONNECTION LIMIT of the role")
    check(cli, plain_role, expected)


def test_how_many_connections_a_process_takes(cli: Run, database: str):
    cli("--url", database, "migrate")
    url = f"{database}?pool_size=2"
    check(cli, url, Expected("ok", "connections", "a process takes up to 6 (pool_size 2)"))


@pytest.mark.parametrize("kind", ["session", "session of another role", "prepared"])
def test_an_old_snapshot(
    cli: Run, database: str, plain_role: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """The age in time of a session is not told to other roles."""
    cli("--url", database, "migrate")
    check(cli, database, Expected("ok", "snapshots", "none is old"))
    monkeypatch.setattr(snapshots, "_OLD_SECONDS", 0.0)
    monkeypatch.setattr(snapshots, "_OLD_TRANSACTIONS", 0)
    asker = plain_role if kind == "session of another role" else database

    async def hold() -> None:
        holder = await connected(database)
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await holder.fetch("SELECT 1")
        pid = await holder.fetchval("SELECT pg_backend_pid()")
        expected = f"pg_terminate_backend({pid})"
        if kind == "prepared":
            await holder.execute("CREATE TABLE held ()")
            await holder.execute("PREPARE TRANSACTION 'forgotten'")
            expected = "ROLLBACK PREPARED 'forgotten'"
        try:
            _, findings = await asyncio.to_thread(examined, cli, "--url", asker)
            assert findings["snapshots"].level == "warning"
            assert expected in findings["snapshots"].advice
        finally:
            await holder.execute("ROLLBACK PREPARED 'forgotten'" if kind == "prepared" else "END")
            await holder.close()

    asyncio.run(hold())
