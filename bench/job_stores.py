"""The servers of the job benchmark: an empty store for each contestant, and its traffic."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg
import redis

from tests.rig.servers import Postgres, Valkey


class Traffic(NamedTuple):
    """What a store received since the last reset; None where it does not count."""

    round_trips: int | None
    commands: int | None


class Place(Protocol):
    """A store that the benchmark can empty and observe from outside."""

    def fresh(self) -> str:
        """Return the url of an empty store."""

    def ask(self, question: str) -> int:
        """Return the number that a query yields: SQL, or Lua on Redis."""

    def reset(self) -> None:
        """Set the counts back to zero."""

    def traffic(self) -> Traffic:
        """Return the counts, without the benchmark's own queries."""


class RedisPlace:
    """A Valkey server that appends to its file and flushes it every second."""

    def __init__(self, server: Valkey) -> None:
        self._url = server.url
        self._client: Any = redis.from_url(server.url)
        self._questions = 0

    def fresh(self) -> str:
        self._client.flushall()
        return self._url

    def ask(self, question: str) -> int:
        self._questions += 1
        return int(self._client.eval(question, 0))

    def reset(self) -> None:
        self._questions = 0
        self._client.config_resetstat()

    def traffic(self) -> Traffic:
        # One write per answer, or per batch of answers; reads come in pieces of 16 KiB instead.
        # The answer to the reset was written after it.
        writes = self._client.info("stats")["total_writes_processed"] - 1
        stats = self._client.info("commandstats")
        commands = sum(
            command["calls"] for name, command in stats.items() if name != "cmdstat_info"
        )
        return Traffic(writes - self._questions, commands - self._questions)


class PostgresPlace:
    """A durable PostgreSQL server; every contestant gets a database of its own."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._numbers = count(1)
        self._name = ""
        self._questions = 0
        self._admin = psycopg.connect(server.url, autocommit=True)
        self._admin.execute("CREATE EXTENSION pg_stat_statements")
        self._guest: psycopg.Connection[Any] | None = None

    def fresh(self) -> str:
        if self._guest is not None:
            self._guest.close()
            self._admin.execute(f"DROP DATABASE {self._name} WITH (FORCE)")
        self._name = f"bench{next(self._numbers)}"
        self._admin.execute(f"CREATE DATABASE {self._name}")
        url = self._server.url.rpartition("/")[0] + f"/{self._name}"
        self._guest = psycopg.connect(url, autocommit=True)
        return url

    def ask(self, question: str) -> int:
        assert self._guest is not None
        self._questions += 1
        row = self._guest.execute(question.encode()).fetchone()
        return int(row[0]) if row else 0

    def reset(self) -> None:
        self._questions = 0
        self._admin.execute("SELECT pg_stat_statements_reset()")

    def traffic(self) -> Traffic:
        row = self._admin.execute(
            """
            SELECT coalesce(sum(calls), 0) FROM pg_stat_statements AS s
            JOIN pg_database AS d ON d.oid = s.dbid WHERE d.datname = %s AND s.toplevel
            """,
            [self._name],
        ).fetchone()
        statements = int(row[0] if row else 0) - self._questions
        return Traffic(statements, statements)


class SqlitePlace:
    """A folder on disk; every contestant gets a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        self._file = folder
        self._reader: sqlite3.Connection | None = None

    def fresh(self) -> str:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._file = self._folder / f"bench{next(self._numbers)}.db"
        return f"sqlite:///{self._file}"

    def ask(self, question: str) -> int:
        if self._reader is None:
            self._reader = sqlite3.connect(self._file, isolation_level=None, timeout=30)
        return int(self._reader.execute(question).fetchone()[0])

    def reset(self) -> None:
        """Do nothing: SQLite does not count."""

    def traffic(self) -> Traffic:
        return Traffic(None, None)


@contextmanager
def open_place(store: str) -> Iterator[Place]:
    match store:
        case "redis":
            # Rewriting the file during a measurement would slow one contestant only.
            with Valkey(config={"auto-aof-rewrite-percentage": "0"}) as valkey:
                yield RedisPlace(valkey)
        case "postgres":
            config = {"shared_buffers": "256MB", "shared_preload_libraries": "pg_stat_statements"}
            with Postgres(durable=True, config=config) as postgres:
                yield PostgresPlace(postgres)
        case _:
            with tempfile.TemporaryDirectory() as folder:
                yield SqlitePlace(Path(folder))
