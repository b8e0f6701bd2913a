"""The tables of the SQLite store, and how a file is brought to the newest format."""

from __future__ import annotations

import sqlite3

from tenure.errors import ConfigError
from tenure.stores.contract import Migrate
from tenure.stores.sqlite.soundness import (
    DECISION,
    DONE,
    JOB,
    LEASE,
    LIVE,
    MACHINE,
    REPLICA,
    SCHEDULE,
    WAITER,
    WATCH,
)

__all__ = ["FORMAT", "READ_INCARNATION", "bring_up_to_date"]

# Instants named granted, arrived, renewed and expires are microseconds of the boot clock and mean
# something only together with the row's boot_id. Every primary key is the table itself (WITHOUT
# ROWID): the rows of one key lie side by side, and a commit writes as few pages as can be.
#
# Constraints are for others who write to the file; reads check again (`soundness`).
_FORMAT_1 = (
    # One row per namespace: the last fence given out, whatever the key. There is one writer at a
    # time, so this row costs no concurrency, and an idle key needs to leave nothing behind.
    """
    CREATE TABLE tenure_space (
        namespace TEXT NOT NULL PRIMARY KEY,
        fence     INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    f"""
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
        PRIMARY KEY (namespace, key, holder),
        {LEASE.check}
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
    f"""
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
        PRIMARY KEY (namespace, key, place),
        {WAITER.check}
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
    # The machines that use the file, and what each has seen of others: see machines.py.
    f"""
    CREATE TABLE tenure_machine (
        id   TEXT NOT NULL PRIMARY KEY,
        host TEXT NOT NULL,
        wall INTEGER NOT NULL,
        boot INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        {MACHINE.check}
    ) WITHOUT ROWID
    """,
    f"""
    CREATE TABLE tenure_watch (
        machine   TEXT NOT NULL,
        other     TEXT NOT NULL,
        turn      INTEGER NOT NULL,
        since     INTEGER NOT NULL,
        was_there INTEGER NOT NULL,
        PRIMARY KEY (machine, other),
        {WATCH.check}
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

# Jobs. A job has a number of its own in this file, which its rows share: what never changes about
# it is written once, and its place among the unfinished or the finished ones is a small row that
# moves. Instants here are microseconds of the wall clock, except in tenure_replica and deadlines.
_FORMAT_2 = (
    # What was inserted. Names and payloads are not touched again until the job is pruned.
    f"""
    CREATE TABLE tenure_job (
        number     INTEGER PRIMARY KEY,
        namespace  TEXT NOT NULL,
        id         TEXT NOT NULL,
        task       TEXT NOT NULL,
        queue      TEXT NOT NULL,
        priority   INTEGER NOT NULL,
        created    INTEGER NOT NULL,
        retention  REAL NOT NULL,
        retention_failed REAL NOT NULL DEFAULT 0,
        timeout    REAL,
        options    TEXT NOT NULL DEFAULT '',
        tags       TEXT NOT NULL,
        unique_key TEXT,
        digest     TEXT,
        keep       REAL,
        payload    BLOB NOT NULL,
        {JOB.check}
    )
    """,
    "CREATE UNIQUE INDEX tenure_job_id ON tenure_job (namespace, id)",
    # The unfinished jobs: waiting where no replica holds them, running where one does. `allowed`
    # and `retained` are timeout and retention in microseconds, `retained_failed` is the retention
    # if it fails; `keyed` if it has a unique key.
    # `since` is when a job began to wait for its time, 0 if that was given as an instant. It is
    # NULL if the job waits for its turn alone, and may start whatever the clock shows.
    # `deadline` is of the boot clock, as the end of the replica that runs it: a step of the wall
    # clock ends no attempt.
    f"""
    CREATE TABLE tenure_live (
        number        INTEGER PRIMARY KEY,
        namespace     TEXT NOT NULL,
        id            TEXT NOT NULL,
        queue         TEXT NOT NULL,
        priority      INTEGER NOT NULL,
        due           INTEGER NOT NULL,
        since         INTEGER,
        retained      INTEGER NOT NULL,
        retained_failed INTEGER NOT NULL DEFAULT 0,
        allowed       INTEGER,
        keyed         INTEGER NOT NULL DEFAULT 0,
        holder        INTEGER,
        claim_no      INTEGER NOT NULL DEFAULT 0,
        fence         INTEGER NOT NULL DEFAULT 0,
        revision      INTEGER NOT NULL DEFAULT 1,
        attempt       INTEGER NOT NULL DEFAULT 0,
        failures      INTEGER NOT NULL DEFAULT 0,
        losses        INTEGER NOT NULL DEFAULT 0,
        started       INTEGER NOT NULL DEFAULT 0,
        deadline      INTEGER,
        cancelling    INTEGER NOT NULL DEFAULT 0,
        settled_fence INTEGER NOT NULL DEFAULT 0,
        settled_as    TEXT NOT NULL DEFAULT '',
        progress      REAL,
        message       TEXT NOT NULL DEFAULT '',
        reason        TEXT NOT NULL DEFAULT '',
        error         BLOB,
        history       BLOB NOT NULL DEFAULT x'',
        checkpoint    BLOB,
        {LIVE.check}
    )
    """,
    # In the order in which they are claimed, those apart that wait for their time. Running jobs are
    # not in it, so that each claim takes its jobs out of its own way.
    """
    CREATE INDEX tenure_live_ready
    ON tenure_live (namespace, queue, since IS NOT NULL, priority, due / 1000, id)
    WHERE holder IS NULL
    """,
    # Which of them began to wait in the future: the clock was set back.
    "CREATE INDEX tenure_live_since ON tenure_live (namespace, since) WHERE since IS NOT NULL",
    # What a replica runs. A replica's number belongs to one namespace.
    "CREATE INDEX tenure_live_held ON tenure_live (holder) WHERE holder IS NOT NULL",
    # Nothing is written to these for most jobs.
    "CREATE INDEX tenure_live_cancel ON tenure_live (holder, id) WHERE cancelling = 1",
    """
    CREATE INDEX tenure_live_deadline ON tenure_live (namespace, deadline, id)
    WHERE deadline IS NOT NULL
    """,
    # The finished jobs. Of those that succeeded, by far the most, no more is kept than is needed:
    # no id, and what was settled last is NULL where it is this very end, under this very fence;
    # 's' is the mark of a success.
    f"""
    CREATE TABLE tenure_done (
        number        INTEGER PRIMARY KEY,
        namespace     TEXT NOT NULL,
        id            TEXT,
        state         TEXT NOT NULL,
        due           INTEGER NOT NULL,
        fence         INTEGER NOT NULL,
        revision      INTEGER NOT NULL,
        attempt       INTEGER NOT NULL,
        failures      INTEGER NOT NULL,
        losses        INTEGER NOT NULL,
        started       INTEGER NOT NULL,
        finished      INTEGER NOT NULL,
        expires       INTEGER NOT NULL,
        settled_fence INTEGER,
        settled_as    TEXT,
        progress      REAL,
        message       TEXT NOT NULL,
        reason        TEXT NOT NULL,
        result        BLOB,
        error         BLOB,
        history       BLOB NOT NULL,
        checkpoint    BLOB,
        {DONE.check}
    )
    """,
    "CREATE INDEX tenure_done_expiry ON tenure_done (namespace, expires)",
    # People look for what went wrong, among far more that went well.
    """
    CREATE INDEX tenure_done_state ON tenure_done (namespace, state, id)
    WHERE state <> 'succeeded'
    """,
    """
    CREATE TABLE tenure_tag (
        namespace TEXT NOT NULL,
        tag       TEXT NOT NULL,
        id        TEXT NOT NULL,
        number    INTEGER NOT NULL,
        PRIMARY KEY (namespace, tag, id)
    ) WITHOUT ROWID
    """,
    # Unique keys. `live` until the job that has the key has finished.
    """
    CREATE TABLE tenure_unique (
        namespace TEXT NOT NULL,
        key       TEXT NOT NULL,
        id        TEXT NOT NULL,
        digest    TEXT NOT NULL,
        until     INTEGER NOT NULL,
        live      INTEGER NOT NULL,
        PRIMARY KEY (namespace, key)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX tenure_unique_free ON tenure_unique (namespace, until) WHERE live = 0",
    # Queues that are paused; without an end if `until` is NULL.
    """
    CREATE TABLE tenure_pause (
        namespace TEXT NOT NULL,
        queue     TEXT NOT NULL,
        until     INTEGER,
        PRIMARY KEY (namespace, queue)
    ) WITHOUT ROWID
    """,
    # Who runs jobs. `renewed` and `expires` are of the boot clock, as those of leases: a record
    # ends with the machine's start, and a step of the wall clock ends none. A job's row names the
    # number, so a record goes only after its last job. Once it is dead, its jobs are left to the
    # `taker` until `taken_until`.
    f"""
    CREATE TABLE tenure_replica (
        number    INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        id        TEXT NOT NULL,
        meta      TEXT NOT NULL,
        joined    INTEGER NOT NULL,
        ttl       INTEGER NOT NULL,
        boot_id   TEXT NOT NULL,
        renewed   INTEGER NOT NULL,
        expires   INTEGER NOT NULL,
        claim_no  INTEGER NOT NULL DEFAULT 0,
        dead      INTEGER NOT NULL DEFAULT 0,
        taker     TEXT NOT NULL DEFAULT '',
        taken_until INTEGER NOT NULL DEFAULT 0,
        {REPLICA.check}
    )
    """,
    "CREATE UNIQUE INDEX tenure_replica_id ON tenure_replica (namespace, id)",
    "CREATE INDEX tenure_replica_end ON tenure_replica (namespace, dead, boot_id, expires)",
)

# Schedules. Their runs are jobs; for all others the new column stays as it is.
_FORMAT_3 = (
    "ALTER TABLE tenure_job ADD COLUMN schedule TEXT",
    "ALTER TABLE tenure_live ADD COLUMN schedule TEXT",
    # Rows of tenure_live that cannot be read, out of the way, and until when they are kept for
    # people to look at. Without types and constraints: whatever was there fits.
    "CREATE TABLE tenure_aside AS SELECT *, 0 AS kept_until FROM tenure_live WHERE false",
    "CREATE INDEX tenure_aside_end ON tenure_aside (namespace, kept_until)",
    "CREATE INDEX tenure_aside_number ON tenure_aside (number)",
    # The unfinished runs of a schedule, and those that one replica runs. No other job is in it.
    """
    CREATE INDEX tenure_live_run ON tenure_live (namespace, schedule, holder, id)
    WHERE schedule IS NOT NULL
    """,
    # `last_fence` is the highest fence of the runs that were born running. The documents may be
    # large, so they come last: to read what is before them, SQLite need not read them.
    f"""
    CREATE TABLE tenure_schedule (
        namespace  TEXT NOT NULL,
        name       TEXT NOT NULL,
        version    TEXT NOT NULL,
        declared   INTEGER NOT NULL,
        last_run   INTEGER NOT NULL,
        last_job   TEXT NOT NULL,
        last_fence INTEGER NOT NULL,
        ruler      TEXT NOT NULL,
        standing   TEXT NOT NULL,
        definition TEXT NOT NULL,
        PRIMARY KEY (namespace, name),
        {SCHEDULE.check}
    ) WITHOUT ROWID
    """,
    # The histories of schedules; larger numbers are newer.
    f"""
    CREATE TABLE tenure_decision (
        namespace TEXT NOT NULL,
        name      TEXT NOT NULL,
        number    INTEGER NOT NULL,
        "like"    TEXT NOT NULL,
        first     INTEGER NOT NULL,
        last      INTEGER NOT NULL,
        ticks     INTEGER NOT NULL,
        at        INTEGER NOT NULL,
        body      TEXT NOT NULL,
        PRIMARY KEY (namespace, name, number),
        {DECISION.check}
    ) WITHOUT ROWID
    """,
)

# What leads from each format to the next, beginning with an empty file.
_STEPS = (_FORMAT_1, _FORMAT_2, _FORMAT_3)

FORMAT = len(_STEPS)

_FORMAT_TABLE = """
    CREATE TABLE IF NOT EXISTS tenure_format (
        version     INTEGER NOT NULL,
        incarnation BLOB    NOT NULL DEFAULT (randomblob(16))
    )
"""
_HAS_FORMAT = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tenure_format'"
_READ_FORMAT = "SELECT version FROM tenure_format"
_RAISE_FORMAT = "UPDATE tenure_format SET version = :version"
_WRITE_FORMAT = "INSERT INTO tenure_format (version) VALUES (:version)"

# In hexadecimal, whatever is stored there. There is one row.
READ_INCARNATION = "SELECT hex(incarnation) FROM tenure_format"


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
        if db.execute(_RAISE_FORMAT, {"version": FORMAT}).rowcount == 0:
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
            "which changes it, or run 'tenure migrate'."
        )
        raise ConfigError(msg)
    return version
