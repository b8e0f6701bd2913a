"""The format of the file: checks its version, and creates its tables.

The file has two numbers. `version` is the format of its tables. `readable_from` is the oldest
format whose code can still use them: an upgrade that only adds something keeps it, so that older
releases work beside newer ones.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from tenure.errors import ConfigError
from tenure.stores.contract import Migrate
from tenure.stores.sqlite.tables import INDEXES, TABLES

__all__ = ["FORMAT", "READ_INCARNATION", "Format", "bring_up_to_date"]

FORMAT: Final = 1
_READABLE_FROM: Final = 1

_FORMAT_TABLE = """
    CREATE TABLE IF NOT EXISTS tenure_format (
        version       INTEGER NOT NULL,
        readable_from INTEGER NOT NULL,
        incarnation   BLOB    NOT NULL DEFAULT (randomblob(16))
    )
"""
_HAS_FORMAT = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tenure_format'"
_READ_FORMAT = "SELECT version, readable_from FROM tenure_format"
_WRITE_FORMAT = "INSERT INTO tenure_format (version, readable_from) VALUES (?, ?)"

# In hexadecimal, whatever type is stored. There is one row.
READ_INCARNATION = "SELECT hex(incarnation) FROM tenure_format"


class Format(NamedTuple):
    """The format of a file; 0 if it has no tables of Tenure."""

    version: int = 0
    readable_from: int = 0

    @classmethod
    def of(cls, db: sqlite3.Connection) -> Format:
        """Return the format of an open file."""
        if db.execute(_HAS_FORMAT).fetchone() is None:
            return cls()
        return cls(*(db.execute(_READ_FORMAT).fetchone() or ()))

    @property
    def is_too_new(self) -> bool:
        """Whether this version of Tenure cannot work with it."""
        return self.readable_from > FORMAT


def bring_up_to_date(db: sqlite3.Connection, migrate: Migrate, where: str) -> None:
    """Create the tables. With "check", or for a format of a newer release, only check.

    Many processes may call it at once: each checks again once it has the write lock.
    """
    if _is_up_to_date(db, migrate, where):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _is_up_to_date(db, migrate, where):
            for statement in (*(table.statement for table in TABLES), *INDEXES, _FORMAT_TABLE):
                db.execute(statement)
            db.execute(_WRITE_FORMAT, (FORMAT, _READABLE_FROM))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _is_up_to_date(db: sqlite3.Connection, migrate: Migrate, where: str) -> bool:
    there = Format.of(db)
    if there.is_too_new:
        msg = (
            f"{where} has format {there.version}, and this version of Tenure knows formats up to "
            f"{FORMAT}. Upgrade Tenure in this service."
        )
        raise ConfigError(msg)
    if not there.version and migrate == "check":
        msg = (
            f"{where} has no Tenure tables; format {FORMAT} is needed. Open it once with "
            "migrate=\"auto\", which changes it, or run 'tenure migrate'."
        )
        raise ConfigError(msg)
    return there.version > 0
