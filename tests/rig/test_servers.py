import asyncio
import signal
import socket
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

import asyncpg
import pytest
import redis
import redis.asyncio

from tests.rig.fixtures import Endpoint, PrivatePostgres, PrivateValkey
from tests.rig.processes import Fleet
from tests.rig.scratch import new_folder
from tests.rig.servers import Postgres, Server, ServerFailedError, Valkey, find_postgres
from tests.rig.servers.installation import public_copy, unprivileged
from tests.rig.spawn import alive, family, run
from tests.rig.wait import wait_until, wait_until_async

needs_root = pytest.mark.skipif(unprivileged() == "self", reason="only root has to change user")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


def valkey_client(server: Valkey | Endpoint, **options: object) -> redis.Redis:
    return redis.Redis.from_url(server.url, **options)


def test_shared_valkey_answers_a_client(valkey_server: Endpoint, namespace: str):
    with valkey_client(valkey_server) as client:
        assert client.incr(namespace) == 1


async def test_shared_postgres_answers_a_client(postgres_server: Endpoint):
    async with connected(postgres_server.url) as connection:
        assert (
            await connection.fetchval("SELECT current_user || current_database()") == "tenure" * 2
        )


def test_servers_listen_on_loopback_only(private_valkey: PrivateValkey):
    server = private_valkey()
    with valkey_client(server) as client:
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_valkey_keeps_its_data_and_its_port_when_killed_and_when_restarted(
    private_valkey: PrivateValkey,
):
    server = private_valkey()
    url = server.url
    with valkey_client(server) as client:
        client.set("key", "value")
        server.kill()
        assert not server.running
        server.start()
        server.restart()
        assert server.url == url
        assert client.get("key") == b"value"


def test_valkey_restarted_empty_has_lost_everything(private_valkey: PrivateValkey):
    server = private_valkey()
    with valkey_client(server) as client:
        client.set("key", "value")
        server.restart(empty=True)
        assert client.get("key") is None


def test_valkey_takes_a_password_and_settings(private_valkey: PrivateValkey):
    server = private_valkey(password="secret", config={"appendonly": "no"})
    with valkey_client(server) as client:
        assert client.config_get("appendonly") == {"appendonly": "no"}
    with (
        redis.Redis(port=server.port, retry=None) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


def test_paused_valkey_accepts_connections_but_says_nothing_until_resumed(
    private_valkey: PrivateValkey,
):
    server = private_valkey()
    server.pause()
    with (
        valkey_client(server, socket_timeout=0.1, retry=None) as impatient,
        pytest.raises(redis.TimeoutError),
    ):
        impatient.ping()
    server.resume()
    with valkey_client(server) as client:
        assert client.ping()


async def test_postgres_keeps_its_data_and_its_port_when_killed_and_when_restarted(
    private_postgres: PrivatePostgres,
):
    server = private_postgres()
    url = server.url
    async with connected(url) as connection:
        await connection.execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (7)")
    members = family(server.pid)
    assert len(members) > 1
    server.kill()
    assert not any(map(alive, members))
    server.start()
    server.restart()
    assert server.url == url
    async with connected(url) as connection:
        assert await connection.fetchval("SELECT id FROM kept") == 7


async def test_pausing_postgres_stops_open_sessions_and_resuming_lets_them_go_on(
    private_postgres: PrivatePostgres,
):
    server = private_postgres()
    async with connected(server.url) as connection:
        server.pause()
        query = asyncio.create_task(connection.fetchval("SELECT 7"))
        await asyncio.wait([query], timeout=0.1)
        assert not query.done()
        server.resume()
        assert await query == 7


async def test_durable_postgres_flushes_to_disk(private_postgres: PrivatePostgres):
    for durable, setting in ((True, "on"), (False, "off")):
        server = private_postgres(durable=durable)
        async with connected(server.url) as connection:
            assert await connection.fetchval("SHOW fsync") == setting


@needs_root
@pytest.mark.parametrize("identity", ["namespace", "nobody"])
async def test_root_runs_postgres_as_somebody_else(identity: Literal["namespace", "nobody"]):
    if identity == "namespace" and unprivileged() != "namespace":
        pytest.skip("this machine forbids user namespaces")
    with Postgres(run_as=identity) as server:
        async with connected(server.url) as connection:
            assert await connection.fetchval("SELECT 7") == 7
        server.kill()
        server.restart()


@needs_root
def test_a_copy_of_postgres_can_be_run_by_nobody():
    postgres = find_postgres()
    assert postgres
    copy = public_copy(postgres)
    assert "PostgreSQL" in run([copy, "--version"], identity="nobody", cwd=copy.parent)
    assert "PostgreSQL" in run([copy.with_name("initdb"), "--version"], identity="nobody")


@pytest.mark.parametrize("end", [Server.stop, Server.kill, Server.pause, Server.close])
@pytest.mark.parametrize("kind", [Valkey, Postgres])
def test_a_closed_server_leaves_nothing_behind(
    kind: Callable[[], Server], end: Callable[[Server], None]
):
    server = kind().start()
    members = family(server.pid)
    end(server)
    server.close()
    server.close()
    assert not any(map(alive, members))
    assert not server.folder.exists()


def test_a_server_that_was_never_started_can_be_closed():
    server = Valkey()
    server.close()
    assert not server.folder.exists()


def test_a_server_that_cannot_start_shows_its_log():
    server = Valkey(config={"no-such-setting": "1"})
    with pytest.raises(ServerFailedError, match="no-such-setting"):
        server.start()
    server.close()


def test_a_restart_on_a_port_that_was_taken_meanwhile_fails(private_valkey: PrivateValkey):
    server = private_valkey()
    server.stop()
    with socket.socket() as intruder:
        intruder.bind(("127.0.0.1", server.port))
        with pytest.raises(ServerFailedError, match="in use"):
            server.start()
        assert not server.running
    server.start()


async def test_a_server_started_in_a_thread_outlives_that_thread():
    server = Valkey()
    try:
        loop = asyncio.new_event_loop()
        await asyncio.to_thread(loop.run_until_complete, asyncio.to_thread(server.start))
        await asyncio.to_thread(loop.run_until_complete, loop.shutdown_default_executor())
        loop.close()
        async with redis.asyncio.Redis.from_url(server.url) as client:
            assert await wait_until_async(client.ping)
        assert server.running
    finally:
        server.close()


def test_servers_die_with_a_process_that_is_killed_and_their_folders_with_the_next_one(
    fleet: Fleet,
):
    program = """
        import sys
        from tests.rig import servers
        from tests.rig.spawn import family
        from tests.rig.stdio import hear, tell
        started = [getattr(servers, kind)().start() for kind in sys.argv[1:]]
        tell("started", pids=[pid for server in started for pid in family(server.pid)])
        hear()
    """
    arguments = "-c", textwrap.dedent(program)
    folder = new_folder("public")
    folder.chmod(0o755)
    env = {"TMPDIR": str(folder)}
    killed = fleet.start(*arguments, "Valkey", "Postgres", env=env)
    pids = killed.expect("started", 30)["pids"]
    assert len(pids) > 2
    assert alive(pids[0])
    # Only the process itself, as the kernel does when memory runs out.
    killed.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, pids)), 30, "the servers died with their owner")
    (abandoned,) = folder.iterdir()
    successor = fleet.start(*arguments, "Valkey", env=env)
    successor.expect("started", 30)
    assert not abandoned.exists()
    successor.send("end")
    assert successor.wait(30) == 0
    assert not list(folder.iterdir())
