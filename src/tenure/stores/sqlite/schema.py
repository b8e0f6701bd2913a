"""The tables of the SQLite store, and how a file is brought to the newest format."""

from __future__ import annotations

import sqlite3

from tenure.errors import ConfigError
from tenure.stores.contract import Migrate

__all__ = ["FORMAT", "bring_up_to_date"]

# Instants named granted, arrived, renewed and expires are microseconds of the boot clock and mean
# something only together with the row's boot_id. Every primary key is the table itself (WITHOUT
# ROWID): the rows of one key lie side by side, and a commit writes as few pages as can be.
_FORMAT_1 = (
    # One row per namespace: the last fence given out, whatever the key. There is one writer at a
    # time, so this row costs no concurrency, and an idle key needs to leave nothing behind.
    """
    CREATE TABLE tenure_space (
        namespace TEXT NOT NULL PRIMARY KEY,
        fence     INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE tenure_lease (
        namespace TEXT NOT NULL,
        key       TEXT NOT NULL,
        holder    TEXT NOT NULL,
        fence     INTEGER NOT NULL,
        "limit"   INTEGER NOT NULL,
        ttl       INTEGER NOT NULL,
        meta      TEXT NOT NULL,
        boot_id   TEXT NOT NULL,
        granted   INTEGER NOT NULL,
        renewed   INTEGER NOT NULL,
        expires   INTEGER NOT NULL,
        PRIMARY KEY (namespace, key, holder)
    ) WITHOUT ROWID
    """,
    # Which lease of a semaphore ends next. A lease with limit 1 is the only one of its key, so
    # locks are left out and pay nothing for it.
    """
    CREATE INDEX tenure_lease_end ON tenure_lease (namespace, key, expires) WHERE "limit" > 1
    """,
    # What a semaphore's answer needs to know about all its leases, so that no answer counts them:
    # how many there are, and their smallest and largest limit. There is a row exactly while the
    # key has leases with limits above 1.
    """
    CREATE TABLE tenure_semaphore (
        namespace TEXT NOT NULL,
        key       TEXT NOT NULL,
        boot_id   TEXT NOT NULL,
        live      INTEGER NOT NULL,
        lowest    INTEGER NOT NULL,
        highest   INTEGER NOT NULL,
        PRIMARY KEY (namespace, key)
    ) WITHOUT ROWID
    """,
    # The lines in front of keys, in order of place.
    """
    CREATE TABLE tenure_waiter (
        namespace TEXT NOT NULL,
        key       TEXT NOT NULL,
        place     INTEGER NOT NULL,
        holder    TEXT NOT NULL,
        "limit"   INTEGER NOT NULL,
        ttl       INTEGER NOT NULL,
        meta      TEXT NOT NULL,
        boot_id   TEXT NOT NULL,
        arrived   INTEGER NOT NULL,
        renewed   INTEGER NOT NULL,
        expires   INTEGER NOT NULL,
        PRIMARY KEY (namespace, key, place)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE tenure_mark (
        namespace TEXT NOT NULL,
        key       TEXT NOT NULL,
        value     TEXT NOT NULL,
        fence     INTEGER NOT NULL,
        PRIMARY KEY (namespace, key)
    ) WITHOUT ROWID
    """,
    # Counts the wake-ups of each bell; a process that polls rings what has changed. A bell stands
    # for all topics that hash to it, so there are at most 64 rows per kind of topic.
    """
    CREATE TABLE tenure_wake (
        namespace TEXT NOT NULL,
        bell      TEXT NOT NULL,
        rung      INTEGER NOT NULL,
        PRIMARY KEY (namespace, bell)
    ) WITHOUT ROWID
    """,
)

# What leads from each format to the next, beginning with an empty file.
_STEPS = (_FORMAT_1,)

FORMAT = len(_STEPS)

_FORMAT_TABLE = "CREATE TABLE IF NOT EXISTS tenure_format (version INTEGER NOT NULL)"
_HAS_FORMAT = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tenure_format'"
_READ_FORMAT = "SELECT version FROM tenure_format"
_FORGET_FORMAT = "DELETE FROM tenure_format"
_WRITE_FORMAT = "INSERT INTO tenure_format (version) VALUES (:version)"


def bring_up_to_date(db: sqlite3.Connection, migrate: Migrate, where: str) -> None:
    """Create or upgrade the tables; with "check", and for a format from the future, only look.

    Safe when many processes do it at once: who gets the write lock looks again before it acts.
    """
    if _checked(_version(db), migrate, where) == FORMAT:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in _STEPS[_checked(_version(db), migrate, where) :]:
            for statement in step:
                db.execute(statement)
        db.execute(_FORMAT_TABLE)
        db.execute(_FORGET_FORMAT)
        db.execute(_WRITE_FORMAT, {"version": FORMAT})
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection) -> int:
    if db.execute(_HAS_FORMAT).fetchone() is None:
        return 0
    row = db.execute(_READ_FORMAT).fetchone()
    return int(row[0]) if row else 0


def _checked(version: int, migrate: Migrate, where: str) -> int:
    if version > FORMAT:
        msg = (
            f"{where} has format {version}, and this version of Tenure knows formats up to "
            f"{FORMAT}. Upgrade Tenure in this service."
        )
        raise ConfigError(msg)
    if version < FORMAT and migrate == "check":
        have = f"has format {version}" if version else "has no Tenure tables"
        msg = (
            f'{where} {have}; format {FORMAT} is needed. Open it once with migrate="auto", '
            "which changes it."
        )
        raise ConfigError(msg)
    return version
