"""The servers of one worker: they run through all its sessions, and are cleaned between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psycopg
import redis

from tests.rig.servers import Postgres, Server, Valkey

if TYPE_CHECKING:
    from tests.mutation.workbench import Workbench

__all__ = ["Servers"]

S = TypeVar("S", bound=Server)

_PATIENCE = 5.0
_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
_LEFT_DATABASES = "SELECT datname FROM pg_database WHERE datname ~ '^t[0-9a-f]{10}'"


class Servers:
    """A Valkey and a PostgreSQL, prepared as the rig does it for a run of tests."""

    def __init__(self, bench: Workbench, source: Path) -> None:
        self._bench = bench
        self._source = source
        self._schema = source
        """The copy of the source whose functions the PostgreSQL has."""
        self._running: list[Server] = []

    def start(self) -> None:
        user = self._bench.call(self._source, _redis_user)
        self._valkey = self._started(Valkey(config=user))
        # Lines of probes without the statement that led to them.
        terse = {"log_error_verbosity": "terse", "log_min_error_statement": "panic"}
        self._postgres = self._started(Postgres(config=terse))
        self._bench.call(self._source, _make_roles, self._postgres.url)
        if self._schema != self._source:
            self._bench.call(self._schema, _make_schema, self._postgres.url)

    def _started(self, server: S) -> S:
        self._running.append(server)
        server.start()
        return server

    @property
    def urls(self) -> dict[str, str]:
        return {"valkey": self._valkey.url, "postgres": self._postgres.url}

    @property
    def logs(self) -> tuple[Path, ...]:
        return self._valkey.log, self._postgres.log

    def pids(self) -> set[int]:
        """Return the main processes of the servers."""
        return {server.pid for server in self._running if server.running}

    def refresh(self) -> None:
        """Leave nothing of the session before; a server that does not answer is replaced."""
        try:
            self._refresh_valkey()
            self._refresh_postgres()
        except (redis.RedisError, psycopg.Error, OSError):
            self.close()
            self.start()

    def load_schema(self, source: Path) -> str:
        """Create the schema anew from a copy of the source; return why that fails, if it does."""
        self.refresh()
        self._schema = source
        return self._why_not(source, _make_schema, self._postgres.url)

    def load_scripts(self, source: Path) -> str:
        """Load the Lua scripts of a copy of the source; return why that fails, if it does."""
        self.refresh()
        return self._why_not(source, _load_scripts, self._valkey.url)

    def _why_not(self, source: Path, load: Callable[[str], None], url: str) -> str:
        try:
            self._bench.call(source, load, url)
        except RuntimeError as error:
            return str(error)
        return ""

    def close(self) -> None:
        while self._running:
            with suppress(OSError):
                self._running.pop().close()

    def _refresh_valkey(self) -> None:
        options = {"socket_timeout": _PATIENCE, "socket_connect_timeout": _PATIENCE}
        with redis.Redis.from_url(self._valkey.url, **options) as client:
            client.execute_command("CLIENT KILL TYPE normal SKIPME yes")
            client.execute_command("CLIENT KILL TYPE pubsub SKIPME yes")
            client.flushall()
            client.script_flush()

    def _refresh_postgres(self) -> None:
        url = f"{self._postgres.url}?connect_timeout={int(_PATIENCE)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET statement_timeout = 5000")
            connection.execute(_OTHERS)
            for (name,) in connection.execute(_LEFT_DATABASES).fetchall():
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


# What needs Tenure runs in a process of its own, see `Workbench.call`.


def _redis_user() -> dict[str, str]:
    from tests.rig.rights import redis_user

    return redis_user()


def _make_roles(url: str) -> None:
    from tests.rig.rights import make_postgres_roles

    make_postgres_roles(url)


def _load_scripts(url: str) -> None:
    from tenure.stores.redis.scripts import SCRIPTS

    with redis.Redis.from_url(url) as client:
        for script in SCRIPTS.values():
            client.script_load(script.text)


def _make_schema(url: str) -> None:
    from tests.rig.rights import make_postgres_schema

    make_postgres_schema(url, anew=True)
