"""One meter per store: the address of the store, and the cost there up to now.

All figures are counts of what was done, never times or estimates. They only grow, so a cost is the
difference of two readings. Servers are the meter's own: no other test adds to their counts.

memory    calls            a wrapper around the store: calls of the contract, `watch` included
sqlite    statements       SQLite's trace callback, on every connection of the store
          durable commits  the same: commits that wait for the disk
          bytes written    the growth of the write-ahead log
redis     round trips      a proxy: commands that the server answers
          bytes            the same: requests and replies
          Lua commands     INFO commandstats, without the commands that came through the proxy
          bytes written    the growth of the append-only file
postgres  round trips      a proxy: Sync, Flush and Query messages
          bytes            the same: requests and replies
          statements       pg_stat_statements, also inside functions
          pages            the same: shared buffers touched, in the cache or not
          bytes written    the growth of the write-ahead log
"""

import queue
import secrets
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self
from unittest import mock
from urllib.parse import urlsplit

import psycopg
import redis

from tenure.core.clock import Clock
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.stores.postgres import listener
from tenure.stores.postgres.notifier import _AT_ONCE, Notifier
from tenure.stores.redis import listener as redis_listener
from tenure.stores.redis.scripts import SCRIPTS
from tenure.stores.sqlite import writer
from tenure.stores.sqlite.database import Mode
from tests.cost.gathered import GatheredQueue
from tests.rig.proxy import Proxy
from tests.rig.rights import as_app, make_postgres_roles, redis_user
from tests.rig.scratch import new_folder
from tests.rig.servers import Postgres, Valkey
from tests.rig.wait import wait_until

__all__ = ["METERS", "Meter", "Reading"]

Reading = dict[str, int]


class Meter(ABC):
    """Counts what is spent on one kind of store. Use it as a context manager."""

    measures: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @abstractmethod
    def clear(self) -> None:
        """Remove all that is stored, so that no scenario depends on those before it."""

    @abstractmethod
    def store(self, clock: Clock) -> Store:
        """Return one more unopened store on the place that is metered."""

    @abstractmethod
    def read(self) -> Reading:
        """Return what was spent up to now, by measure."""

    def patched(self) -> AbstractContextManager[object]:
        """Return what to enter while a scenario plays. Other tests run between scenarios."""
        return nullcontext()

    def opened(self, store: Any) -> None:  # noqa: B027 - most need not do anything
        """Take note of a store object that has been opened."""

    def is_at_rest(self, store: Any) -> bool:
        """Whether an open store object has nothing on the way that no caller waits for."""
        return True

    def announce(self, store: Any) -> bool:
        """Send the wake-ups that a store object would send after a while; say if there are any."""
        return False

    def catch_up(self) -> None:  # noqa: B027 - most need not do anything
        """Make the server do now what it would do after a while: no figure depends on when."""


class Memory(Meter):
    """The calls of the contract, which the stage counts for every store."""

    measures = ("calls",)

    def clear(self) -> None:
        self._name = secrets.token_hex(8)

    def store(self, clock: Clock) -> Store:
        return connect(f"memory://{self._name}", namespace="cost", clock=clock)

    def read(self) -> Reading:
        return {}


class Sqlite(Meter):
    """Statements and commits by SQLite's own trace.

    Settings (PRAGMA) do not count, nor do looks for wake-ups of other processes: these come every
    25 ms of real time.
    """

    measures = ("statements", "durable commits", "bytes written")

    _UNCOUNTED = ("PRAGMA", "SELECT bell, rung FROM tenure_wake")

    def patched(self) -> AbstractContextManager[object]:
        replaced = SimpleNamespace(SimpleQueue=GatheredQueue, Empty=queue.Empty)
        return mock.patch.object(writer, "queue", replaced)

    def clear(self) -> None:
        self._file: Path = new_folder("cost") / "tenure.db"
        self._spent: Counter[str] = Counter()

    def store(self, clock: Clock) -> Store:
        return connect(f"sqlite:///{self._file}", namespace="cost", clock=clock)

    def opened(self, store: Any) -> None:
        # Its thread answers first, and then shows the connection to others.
        database: Any = wait_until(lambda: store._writer._db() or None)

        is_writing = False

        def trace(statement: str) -> None:
            nonlocal is_writing
            if statement.strip().startswith(self._UNCOUNTED):
                return
            self._spent["statements"] += 1
            if statement.startswith("BEGIN"):
                is_writing = statement == "BEGIN IMMEDIATE"
            elif statement == "COMMIT" and is_writing and database._synchronous is Mode.DURABLE:
                self._spent["durable commits"] += 1

        database._db.set_trace_callback(trace)

    def is_at_rest(self, store: Any) -> bool:
        return store._writer is None or store._writer._pending == 0

    def read(self) -> Reading:
        log = self._file.with_name(f"{self._file.name}-wal")
        written = log.stat().st_size if log.exists() else 0
        return {**self._spent, "bytes written": written}


class Redis(Meter):
    """Round trips and bytes by a proxy; commands inside scripts by the server itself."""

    measures = ("round trips", "bytes", "Lua commands", "bytes written")

    # Without waits for the disk, the file has all that was acknowledged when it is read.
    _CONFIG: ClassVar = {"appendfsync": "no", "auto-aof-rewrite-percentage": "0"}

    def patched(self) -> AbstractContextManager[object]:
        # In real time, a connection that only listens is tried out every ten seconds.
        return mock.patch.object(redis_listener, "_PING_EVERY", 3600.0)

    def __enter__(self) -> Self:
        self._server = self._stack.enter_context(Valkey(config={**redis_user(), **self._CONFIG}))
        self._proxy = self._stack.enter_context(Proxy(self._server.port, "resp"))
        self._admin = redis.Redis.from_url(self._server.url)
        self._stack.callback(self._admin.close)
        # Otherwise the scenario that first needs a script would pay for sending it.
        for script in SCRIPTS.values():
            self._admin.script_load(script.text.decode())
        return self

    def clear(self) -> None:
        self._admin.flushall()

    def store(self, clock: Clock) -> Store:
        url = self._proxy.url(as_app(self._server.url))
        return connect(url, namespace="cost", clock=clock)

    def is_at_rest(self, store: Any) -> bool:
        sender = store._sender
        return sender is None or not (sender._flying or sender._waiting or sender._again)

    def read(self) -> Reading:
        traffic = self._proxy.traffic
        commands: Any = self._admin.info("commandstats")
        # A reading must not count itself.
        executed = sum(
            command["calls"] for name, command in commands.items() if name != "cmdstat_info"
        )
        persistence: Any = self._admin.info("persistence")
        return {
            "round trips": traffic.round_trips,
            "bytes": traffic.size,
            "Lua commands": executed - traffic.round_trips,
            "bytes written": persistence["aof_current_size"],
        }


class Postgresql(Meter):
    """Round trips and bytes by a proxy; statements, also inside functions, by the server itself.

    The store joins wake-ups that come within some milliseconds into one NOTIFY. Here it joins all
    that come before the stage is quiet.
    """

    measures = ("round trips", "bytes", "statements", "pages", "bytes written")

    # Nothing of the server's own goes into the log or touches pages while work is measured.
    _CONFIG: ClassVar = {
        "shared_preload_libraries": "pg_stat_statements",
        "pg_stat_statements.track": "all",
        "autovacuum": "off",
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "checkpoint_timeout": "1d",
        "max_wal_size": "4GB",
    }
    # A statement inside a function is part of the statement that calls it: pages count once.
    _SPENT = """
        SELECT coalesce(sum(calls), 0)::bigint,
               coalesce(sum(shared_blks_hit + shared_blks_read) FILTER (WHERE toplevel), 0)::bigint,
               (pg_current_wal_insert_lsn() - '0/0')::bigint
        FROM pg_stat_statements WHERE userid = 'tenure_app'::regrole
    """
    _WRITTEN = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
    # A commit that waits for the disk: it flushes the log with all commits before it.
    _FLUSH = "SELECT pg_logical_emit_message(true, 'cost', '')"

    def patched(self) -> AbstractContextManager[object]:
        return mock.patch.object(listener, "_CHECK_SECONDS", 3600.0)

    def __enter__(self) -> Self:
        self._server = self._stack.enter_context(Postgres(config=self._CONFIG))
        make_postgres_roles(self._server.url)
        self._proxy = self._stack.enter_context(Proxy(self._server.port, "postgres"))
        # The database with the schema is copied, which is possible while no connection uses it.
        with psycopg.connect(self._server.url, autocommit=True) as owner:
            owner.execute("CREATE DATABASE meter")
        admin = psycopg.connect(self._url_of("meter"), autocommit=True)
        self._admin = self._stack.enter_context(admin)
        self._admin.execute("CREATE EXTENSION pg_stat_statements")
        self._flushed_up_to = self._flushes_took = 0
        return self

    def clear(self) -> None:
        """Copy the database with the schema.

        Emptied tables would leave old rows in the catalog, and more pages to look things up in.
        """
        self._admin.execute("DROP DATABASE IF EXISTS cost WITH (FORCE)")
        self._admin.execute("CREATE DATABASE cost TEMPLATE tenure")
        # It keeps a limited number of statements, and counts those of each database apart.
        self._admin.execute("SELECT pg_stat_statements_reset()")

    def store(self, clock: Clock) -> Store:
        # On one connection calls run one after the other, and none is opened while it counts.
        url = f"{self._proxy.url(as_app(self._url_of('cost')))}?pool_size=1"
        return connect(url, namespace="cost", clock=clock)

    def opened(self, store: Any) -> None:
        notifier = store._notifier
        notifier.held = {}
        notifier.tell = lambda topics: notifier.held.update(dict.fromkeys(topics))

    def is_at_rest(self, store: Any) -> bool:
        notifier = store._notifier
        return notifier is None or not (notifier._pending or notifier._task)

    def announce(self, store: Any) -> bool:
        notifier = store._notifier
        if notifier is None or not notifier.held:
            return False
        topics, notifier.held = notifier.held, {}
        notifier._credit = _AT_ONCE
        Notifier.tell(notifier, topics)
        return True

    def catch_up(self) -> None:
        """Flush the log, as the WAL writer does several times a second.

        Wake-ups are committed without a wait for the disk. Until they are flushed, PostgreSQL does
        not note on a row that it is dead if the number of the deleting transaction is among the
        same 32 as theirs. Every search finds such a row again, and touches its page.
        """
        (written,) = self._row(self._WRITTEN)
        if written != self._flushed_up_to:
            self._admin.execute(self._FLUSH)
            (self._flushed_up_to,) = self._row(self._WRITTEN)
            self._flushes_took += self._flushed_up_to - written

    def read(self) -> Reading:
        traffic = self._proxy.traffic
        statements, pages, written = self._row(self._SPENT)
        return {
            "round trips": traffic.round_trips,
            "bytes": traffic.size,
            "statements": statements,
            "pages": pages,
            "bytes written": written - self._flushes_took,
        }

    def _url_of(self, database: str) -> str:
        return urlsplit(self._server.url)._replace(path=f"/{database}").geturl()

    def _row(self, query: str) -> tuple[Any, ...]:
        row = self._admin.execute(query.encode()).fetchone()
        assert row is not None
        return row


METERS: dict[str, type[Meter]] = {
    "memory": Memory,
    "sqlite": Sqlite,
    "redis": Redis,
    "postgres": Postgresql,
}
