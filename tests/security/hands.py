"""A hand that spoils single records behind a store's back, where others can write to it."""

from __future__ import annotations

import sqlite3
from typing import Protocol

import psycopg
import pytest
import redis

from tests.rig.fixtures import Endpoint

__all__ = ["Hand", "Spot", "hand_of"]


class Spot(Protocol):
    """A namespace on a store of some kind."""

    @property
    def family(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def namespace(self) -> str: ...


class Hand:
    """Changes records of one namespace."""

    def __init__(self, world: Spot, admin_url: str) -> None:
        self._world = world
        self._admin_url = admin_url
        self.tag = f"{{tenure:{world.namespace}}}:"

    @property
    def family(self) -> str:
        return self._world.family

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run a statement, whatever the constraints of SQLite say; `%s` stands for a value."""
        if self.family == "sqlite":
            path = self._world.url.removeprefix("sqlite:///")
            with sqlite3.connect(path, isolation_level=None) as db:
                db.execute("PRAGMA ignore_check_constraints = ON")
                rows = db.execute(statement.replace("%s", "?"), values).fetchall()
            db.close()
            return rows
        with psycopg.connect(self._admin_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def redis(self, *words: str | bytes) -> object:
        """Run a command."""
        with redis.Redis.from_url(self._admin_url) as client:
            return client.execute_command(*words)

    def spoil_job(self, id_: str) -> None:
        """Make an unfinished job unreadable."""
        if self.family == "redis":
            self.redis("HSET", f"{self.tag}job:state", id_, "no record")
        elif self.family == "sqlite":
            self.sql("UPDATE tenure_live SET attempt = 'many' WHERE id = %s", id_)
        else:
            self.change_job(id_, "attempt = 2147483647")

    def change_job(self, id_: str, change: str) -> None:
        """Change an unfinished job of PostgreSQL; ids are the same in many tests."""
        where = "WHERE namespace = %s AND id = %s"
        self.sql(f"UPDATE tenure.job SET {change} {where}", self._world.namespace, id_)

    def spoil_lock(self, key: str) -> None:
        """Make a held lock unreadable."""
        if self.family == "redis":
            self.redis("SET", f"{self.tag}head:{key}", "no head")
        elif self.family == "sqlite":
            self.sql("UPDATE tenure_lease SET ttl = x'00' WHERE key = %s", key)
        else:
            change = "UPDATE tenure.lease SET ttl = 92233720368547758"
            self._unguarded("lease", f"{change} WHERE namespace = %s AND key = %s", key)

    def spoil_replica(self, id_: str) -> None:
        """Make the record of a replica unreadable."""
        if self.family == "redis":
            self.redis("HSET", f"{self.tag}job:replicas", id_, "no record")
        elif self.family == "sqlite":
            self.sql("UPDATE tenure_replica SET ttl = 'long' WHERE id = %s", id_)
        else:
            change = "UPDATE tenure.replica SET ttl = 92233720368547758"
            self._unguarded("replica", f"{change} WHERE namespace = %s AND id = %s", id_)

    def spoil_timer(self, name: str) -> None:
        """Make a timer unreadable."""
        if self.family == "redis":
            self.redis("HSET", f"{self.tag}timer:schedules", name, "no record")
        elif self.family == "sqlite":
            self.sql("UPDATE tenure_schedule SET revision = 'first' WHERE name = %s", name)
        else:
            change = "UPDATE tenure.schedule SET revision = -1"
            self._unguarded("schedule", f"{change} WHERE namespace = %s AND name = %s", name)

    def _unguarded(self, table: str, statement: str, *values: str) -> None:
        """Run a statement without a constraint of PostgreSQL, which is back afterwards."""
        name = f"{table}_sound"
        with psycopg.connect(self._admin_url) as connection:
            [[definition]] = connection.execute(
                "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [name]
            ).fetchall()
            table = f"ALTER TABLE tenure.{table}"
            rule = definition.removesuffix(" NOT VALID")
            connection.execute(f"{table} DROP CONSTRAINT {name}".encode())
            connection.execute(statement.encode(), [self._world.namespace, *values])
            connection.execute(f"{table} ADD CONSTRAINT {name} {rule} NOT VALID".encode())

    def spoil_pause(self, queue: str) -> None:
        """Put a text in the place of a queue's pause. Not on PostgreSQL, which has types."""
        if self.family == "redis":
            self.redis("HSET", f"{self.tag}job:paused", queue, "for long")
        else:
            self.sql("UPDATE tenure_pause SET until = 'later' WHERE queue = %s", queue)

    def forget_replica(self, id_: str) -> None:
        """Remove the record of a replica, and leave the jobs that it runs."""
        if self.family == "redis":
            self.redis("HDEL", f"{self.tag}job:replicas", id_)
            for index in ("expiry", "renewed", "joined"):
                self.redis("ZREM", f"{self.tag}job:{index}", id_)
        elif self.family == "sqlite":
            self.sql("DELETE FROM tenure_replica WHERE id = %s", id_)
        else:
            namespace = self._world.namespace
            self.sql("DELETE FROM tenure.replica WHERE namespace = %s AND id = %s", namespace, id_)

    def left(self) -> dict[str, int]:
        """Return how many records there are of jobs, by where."""
        if self.family == "redis":
            with redis.Redis.from_url(self._admin_url) as client:
                names = ("state", "fixed", "waiting", "unfinished", "tags", "unique", "broken")
                keys = [f"{self.tag}job:{name}" for name in names]
                return {key[len(self.tag) :]: 1 for key in keys if client.exists(key)}
        tables = ("tenure_job", "tenure_live", "tenure_aside", "tenure_tag", "tenure_unique")
        where = ""
        if self.family == "postgres":
            tables = ("tenure.job", "tenure.job_tag", "tenure.job_key")
            where = f" WHERE namespace = '{self._world.namespace}'"
        counts = {table: self.sql(f"SELECT count(*) FROM {table}{where}")[0][0] for table in tables}
        return {table: int(str(count)) for table, count in counts.items() if count}


def hand_of(request: pytest.FixtureRequest, world: Spot) -> Hand:
    """Return the hand for a world; not for memory, which no other process can write."""
    assert world.family != "memory"
    if world.family == "sqlite":
        return Hand(world, "")
    fixture = "valkey_server" if world.family == "redis" else "postgres_server"
    server: Endpoint = request.getfixturevalue(fixture)
    return Hand(world, server.url)
