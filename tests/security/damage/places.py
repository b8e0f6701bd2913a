"""Where junk can go: every field of every record, as the live store tells them."""

from __future__ import annotations

import re
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import psycopg
import redis
from psycopg import sql

from tests.security.damage.junk import (
    LOOSE,
    PACKED,
    RAW,
    SCORES,
    NotText,
    OwnName,
    pieces_of,
    typed,
)
from tests.security.damage.scene import GOOD

__all__ = ["Field", "OfPostgres", "OfRedis", "OfSqlite", "Spoiler"]


@dataclass(frozen=True)
class Field:
    """A field that all records of a group have, and the junk to put there."""

    group: str
    name: str
    junk: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.group}.{self.name}"


Row = Any


class Spoiler(Protocol):
    """A hand in the store, past all of its checks."""

    def fields(self) -> list[Field]:
        """Return what there is to spoil."""

    def rows(self, group: str) -> list[Row]:
        """Return the records of a group that are no neighbours."""

    def spoil(self, field: Field, row: Row, junk: Any) -> bool:
        """Put junk there; False if the store let nobody do it."""

    def close(self) -> None:
        """Take the hand away."""


_CHECK = re.compile(r",?\s+CHECK \((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)")


def _is_bad(values: Any) -> bool:
    return GOOD not in repr(values)


@dataclass(frozen=True)
class _Line:
    """A row of SQLite: the columns of its primary key, and all of it."""

    keys: dict[str, Any]
    text: str

    def __repr__(self) -> str:
        return self.text


class OfSqlite:
    """Spoils any column with any type.

    What the store's connections see of constraints depends on the namespace: in half of the files
    they are in force for moves of spoiled rows, in the others there are none.
    """

    def __init__(self, path: str, namespace: str) -> None:
        self._namespace = namespace
        self._drop_constraints(path, checks=namespace[-1] in "02468ace")
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.text_factory = bytes
        self._db.execute("PRAGMA ignore_check_constraints = ON")

    def close(self) -> None:
        self._db.close()

    @staticmethod
    def _drop_constraints(path: str, *, checks: bool) -> None:
        db = sqlite3.connect(path, isolation_level=None)
        db.create_function("without", 1, lambda text: _CHECK.sub("", text) if checks else text)
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "UPDATE sqlite_master SET sql = without(replace(sql, ' NOT NULL', '')) "
            "WHERE type = 'table' AND name LIKE 'tenure%'"
        )
        db.close()

    @cached_property
    def _tables(self) -> dict[str, tuple[list[str], list[str]]]:
        """The columns of each table, and those of its primary key."""
        found = self._db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'tenure%'"
        )
        tables = {}
        for (raw,) in found.fetchall():
            columns = self._db.execute(f"PRAGMA table_info({raw.decode()})").fetchall()
            keys = [row[1].decode() for row in columns if row[5]]
            tables[raw.decode()] = [row[1].decode() for row in columns], keys or ["rowid"]
        return tables

    def fields(self) -> list[Field]:
        return [
            Field(table, column, tuple(LOOSE))
            for table, (columns, _) in self._tables.items()
            for column in columns
        ]

    def rows(self, group: str) -> list[Row]:
        columns, keys = self._tables[group]
        where = "WHERE namespace = ?" if "namespace" in columns else ""
        given = (self._namespace,) if where else ()
        wanted = ", ".join(f'"{name}"' for name in [*keys, *columns])
        found = self._db.execute(f"SELECT {wanted} FROM {group} {where}", given).fetchall()
        return [
            _Line(dict(zip(keys, row, strict=False)), repr(row)) for row in found if _is_bad(row)
        ]

    def spoil(self, field: Field, row: Row, junk: Any) -> bool:
        keys = row.keys
        if isinstance(junk, OwnName):
            junk = next((key.decode() for key in reversed(keys.values()) if type(key) is bytes), "")
        value = "CAST(x'ff41' AS TEXT)" if isinstance(junk, NotText) else "?"
        given = [] if isinstance(junk, NotText) else [junk]
        names = " AND ".join(
            f"{name} = CAST(? AS TEXT)" if isinstance(key, bytes) else f"{name} = ?"
            for name, key in keys.items()
        )
        statement = f'UPDATE {field.group} SET "{field.name}" = {value} WHERE {names}'
        try:
            return self._db.execute(statement, [*given, *keys.values()]).rowcount == 1
        except (sqlite3.Error, OverflowError):
            return False


class OfPostgres:
    """Spoils any column with whatever its type lets in. It must be the superuser's database."""

    def __init__(self, url: str, namespace: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._namespace = namespace

    def drop_constraints(self) -> None:
        """Let every table take everything that its types can say."""
        checks = self._db.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint c "
            "JOIN pg_namespace n ON n.oid = c.connamespace "
            "WHERE n.nspname = 'tenure' AND contype = 'c'"
        ).fetchall()
        for table, name in checks:
            self._db.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"'.encode())
        for table, column, *_ in self._columns:
            with suppress(psycopg.Error):  # primary keys keep theirs
                self._db.execute(
                    f'ALTER TABLE tenure.{table} ALTER "{column}" DROP NOT NULL'.encode()
                )

    def close(self) -> None:
        self._db.close()

    @cached_property
    def _columns(self) -> list[tuple[str, str, str]]:
        return self._db.execute(
            "SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c "
            "JOIN information_schema.tables t USING (table_schema, table_name) "
            "WHERE table_schema = 'tenure' AND t.table_type = 'BASE TABLE' "
            "ORDER BY 1, ordinal_position"
        ).fetchall()

    def fields(self) -> list[Field]:
        return [Field(table, column, tuple(typed(kind))) for table, column, kind in self._columns]

    def rows(self, group: str) -> list[Row]:
        where = b"WHERE namespace = %s" if group != "format" else b"WHERE %s <> ''"
        found = self._db.execute(
            f"SELECT ctid::text, t.* FROM tenure.{group} t ".encode() + where, (self._namespace,)
        ).fetchall()
        return [row[1:] for row in found if _is_bad(row)]

    def spoil(self, field: Field, row: Row, junk: Any) -> bool:
        columns = [name for table, name, _ in self._columns if table == field.group]
        if isinstance(junk, OwnName):
            junk = row[1]
        query = sql.SQL("UPDATE tenure.{} SET {} = %s WHERE {}").format(
            sql.Identifier(field.group),
            sql.Identifier(field.name),
            sql.SQL(" AND ").join(
                sql.SQL("{} IS NOT DISTINCT FROM %s").format(sql.Identifier(name))
                for name in columns
            ),
        )
        try:
            return self._db.execute(query, (junk, *row)).rowcount == 1
        except psycopg.Error:
            return False


@dataclass(frozen=True)
class _Spot:
    """One value of Redis: its key, and its field or member if the key has many."""

    key: bytes
    member: bytes | None = None


class OfRedis:
    """Spoils values, names, scores, and each value within a packed record."""

    def __init__(self, url: str, namespace: str) -> None:
        self._redis = redis.Redis.from_url(url)
        self._tag = f"{{tenure:{namespace}}}:".encode()

    def close(self) -> None:
        self._redis.close()

    @cached_property
    def _groups(self) -> dict[str, list[_Spot]]:
        """All that was there at the first look, before anything was spoiled."""
        groups: dict[str, list[_Spot]] = {}
        for key in sorted(self._redis.scan_iter(match=self._tag + b"*", count=1000)):
            name = key[len(self._tag) :].decode(errors="replace")
            alone = name.split(":")[0] in ("head", "places", "info", "patience")
            group = f"{name.split(':')[0]}:*" if alone else name
            kind = self._redis.type(key)
            if kind == b"string":
                spots = [_Spot(key)]
            elif kind == b"hash":
                spots = [_Spot(key, one) for one in sorted(self._redis.hkeys(key))]
            else:
                spots = [_Spot(key, one) for one in self._redis.zrange(key, 0, -1)]
            groups.setdefault(group, []).extend(one for one in spots if _is_bad(one))
        return groups

    def _value(self, spot: _Spot) -> bytes | None:
        kind = self._redis.type(spot.key)
        if kind == b"string":
            return self._redis.get(spot.key)  # type: ignore[return-value]
        if kind == b"hash" and spot.member is not None:
            return self._redis.hget(spot.key, spot.member)  # type: ignore[return-value]
        return None

    def fields(self) -> list[Field]:
        fields: list[Field] = []
        for group, spots in self._groups.items():
            if not spots:
                continue
            values = [value for spot in spots[:3] if (value := self._value(spot)) is not None]
            if values:
                fields.append(Field(group, "value", tuple(RAW)))
                # Text would do as a row of small numbers.
                records = [pieces for one in values if (pieces := pieces_of(one))]
                counts = [len(pieces) for pieces in records if max(map(len, pieces)) > 1]
                if counts:
                    fields += [
                        Field(group, f"value[{at}]", tuple(PACKED)) for at in range(max(counts))
                    ]
            else:
                fields.append(Field(group, "score", tuple(SCORES)))
            if spots[0].member is not None:
                fields += [Field(group, "name", tuple(RAW)), Field(group, "more", tuple(RAW))]
            if group.endswith("*"):
                fields.append(Field(group, "type", ("string", "hash", "zset", "list", "none")))
        return fields

    def rows(self, group: str) -> list[Row]:
        return self._groups.get(group, [])

    def spoil(self, field: Field, row: Row, junk: Any) -> bool:
        try:
            self._spoil(field, row, junk)
        except redis.RedisError:
            return False
        return True

    def _spoil(self, field: Field, spot: _Spot, junk: Any) -> None:
        client, value = self._redis, self._value(spot)
        if field.name == "type":
            self._change_type(spot.key, junk)
        elif field.name == "score":
            client.execute_command("ZADD", spot.key, junk, spot.member)
        elif field.name in ("name", "more"):
            assert spot.member is not None
            name = spot.member[: len(spot.member) // 2] if junk is None else junk
            if value is not None:
                client.hset(spot.key, name, value)
                if field.name == "name":
                    client.hdel(spot.key, spot.member)
            else:
                score = client.zscore(spot.key, spot.member)
                client.execute_command("ZADD", spot.key, repr(score), name)
                if field.name == "name":
                    client.zrem(spot.key, spot.member)
        else:
            assert value is not None
            new = value[: len(value) // 2] if junk is None else junk
            if field.name.startswith("value["):
                at = int(field.name[6:-1])
                pieces = pieces_of(value) or []
                new = b"".join([*pieces[:at], junk, *pieces[at + 1 :]])
            if spot.member is None:
                client.set(spot.key, new, keepttl=True)
            else:
                client.hset(spot.key, spot.member, new)

    def _change_type(self, key: bytes, kind: str) -> None:
        client = self._redis
        client.delete(key)
        if kind == "string":
            client.set(key, b"junk")
        elif kind == "hash":
            client.hset(key, b"junk", b"junk")
        elif kind == "zset":
            client.zadd(key, {b"junk": 1})
        elif kind == "list":
            client.rpush(key, b"junk")
