"""Where junk can go: every field of every record, as the live store tells them.

Those of Redis are in `redis_places`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import psycopg
from psycopg import sql

from tests.security.damage.documents import FRAGMENTS, Path, has_place, paths_in, spoiled
from tests.security.damage.junk import LOOSE, NotText, OwnName, typed
from tests.security.damage.scene import GOOD

__all__ = ["Field", "OfPostgres", "OfSqlite", "Spoiler", "has_documents", "inside_of", "is_bad"]


@dataclass(frozen=True)
class Field:
    """A field that all records of a group have, and the junk to put there."""

    group: str
    name: str
    junk: tuple[Any, ...]
    path: Path = ()
    """Where in the field, if it is a document."""

    def __str__(self) -> str:
        return f"{self.group}.{self.name}{''.join(f'/{key}' for key in self.path)}"


def has_documents(group: str) -> bool:
    """Return whether records of a group have JSON that only `core` reads: those of timers do."""
    return any(word in group for word in ("schedule", "decision", "timer:"))


def inside_of(group: str, name: str, texts: Iterable[Any]) -> list[Field]:
    """Return the fields inside of a document that some records have here."""
    paths = dict.fromkeys(path for text in texts for path in paths_in(text))
    return [Field(group, name, tuple(FRAGMENTS), path) for path in paths]


Row = Any


class Spoiler(Protocol):
    """A hand in the store, past all of its checks."""

    def fields(self) -> list[Field]:
        """Return what there is to spoil."""

    def rows(self, group: str) -> list[Row]:
        """Return the records of a group that are no neighbours."""

    def spoil(self, field: Field, row: Row, junk: Any) -> bool:
        """Put junk there; False if the store does not allow it."""

    def close(self) -> None:
        """Take the hand away."""


_CHECK = re.compile(r",?\s+CHECK \((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)")


def is_bad(values: Any) -> bool:
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
        cursor = self._db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'tenure%'"
        )
        tables = {}
        for (raw,) in cursor.fetchall():
            columns = self._db.execute(f"PRAGMA table_info({raw.decode()})").fetchall()
            keys = [row[1].decode() for row in columns if row[5]]
            tables[raw.decode()] = [row[1].decode() for row in columns], keys or ["rowid"]
        return tables

    def fields(self) -> list[Field]:
        fields = [
            Field(table, column, tuple(LOOSE))
            for table, (columns, _) in self._tables.items()
            for column in columns
        ]
        documents = [field for field in fields if has_documents(field.group)]
        return fields + [
            inside
            for field in documents
            for inside in inside_of(field.group, field.name, self._texts(field.group, field.name))
        ]

    def _texts(self, table: str, column: str) -> list[bytes]:
        statement = f'SELECT "{column}" FROM {table} WHERE namespace = ?'
        values = [value for (value,) in self._db.execute(statement, (self._namespace,))]
        return [value for value in values if isinstance(value, bytes)]

    def rows(self, group: str) -> list[Row]:
        columns, keys = self._tables[group]
        where = "WHERE namespace = ?" if "namespace" in columns else ""
        values = (self._namespace,) if where else ()
        selected = ", ".join(f'"{name}"' for name in [*keys, *columns])
        rows = self._db.execute(f"SELECT {selected} FROM {group} {where}", values).fetchall()
        return [_Line(dict(zip(keys, row, strict=False)), repr(row)) for row in rows if is_bad(row)]

    def spoil(self, field: Field, row: Row, junk: Any) -> bool:
        keys = row.keys
        names = " AND ".join(
            f"{name} = CAST(? AS TEXT)" if isinstance(key, bytes) else f"{name} = ?"
            for name, key in keys.items()
        )
        if field.path:
            statement = f'SELECT "{field.name}" FROM {field.group} WHERE {names}'
            (text,) = self._db.execute(statement, [*keys.values()]).fetchone()
            if not has_place(text, field.path):
                return False
            junk = spoiled(text, field.path, junk)
        elif isinstance(junk, OwnName):
            junk = next((key.decode() for key in reversed(keys.values()) if type(key) is bytes), "")
        value = "CAST(x'ff41' AS TEXT)" if isinstance(junk, NotText) else "?"
        values = [] if isinstance(junk, NotText) else [junk]
        statement = f'UPDATE {field.group} SET "{field.name}" = {value} WHERE {names}'
        try:
            return self._db.execute(statement, [*values, *keys.values()]).rowcount == 1
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
        fields = [Field(table, column, tuple(typed(kind))) for table, column, kind in self._columns]
        documents = [
            (table, column)
            for table, column, kind in self._columns
            if kind == "text" and has_documents(table)
        ]
        return fields + [
            inside
            for table, column in documents
            for inside in inside_of(table, column, self._texts(table, column))
        ]

    def _texts(self, table: str, column: str) -> list[str]:
        query = f'SELECT "{column}" FROM tenure.{table} WHERE namespace = %s'.encode()
        return [value for (value,) in self._db.execute(query, (self._namespace,)) if value]

    def rows(self, group: str) -> list[Row]:
        where = b"WHERE namespace = %s" if group != "format" else b"WHERE %s <> ''"
        rows = self._db.execute(
            f"SELECT ctid::text, t.* FROM tenure.{group} t ".encode() + where, (self._namespace,)
        ).fetchall()
        return [row[1:] for row in rows if is_bad(row)]

    def spoil(self, field: Field, row: Row, junk: Any) -> bool:
        columns = [name for table, name, _ in self._columns if table == field.group]
        if field.path:
            text = row[columns.index(field.name)]
            if not has_place(text, field.path):
                return False
            junk = spoiled(text, field.path, junk)
        elif isinstance(junk, OwnName):
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
