"""One open database file: how it is opened, its transactions, its write-ahead log."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any

from tenure.errors import ConfigError, StoreError
from tenure.stores.contract import Migrate
from tenure.stores.sqlite import files
from tenure.stores.sqlite.errors import is_busy
from tenure.stores.sqlite.schema import bring_up_to_date
from tenure.stores.sqlite.statements import Row, fetch

__all__ = ["Database", "Mode"]

# How long a transaction waits for the write lock. Tenure's transactions take well under a
# millisecond, so this is for programs that keep a transaction open in the same file.
BUSY_TIMEOUT = 5.0

# SQLite's own busy handler soon polls a busy write lock only every 100 ms, and loses against a
# process that takes it again within a millisecond: measured, a beat beside bulk inserts took up to
# 5 s. Polling this often in the first half second brought that to 0.3 s. Each poll costs
# microseconds.
LOOKS = 250
_LOOK_EVERY = 0.002

# The part of that time that one attempt to open the file may take.
_ATTEMPT = 0.1

# Below 1000 pages of 4 KiB, at which other connections copy the log after their commits without
# the lock of `copy_log`. Measured: this much takes 7 ms to copy, or 20 µs per pair of acquire and
# release. Four times the size would halve that cost and double the stall.
WAL_LIMIT = 3_600_000

_PRAGMAS = (
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA journal_size_limit = 0",
    # For the pages of current jobs. SQLite's default is a tenth. Memory is used only as needed.
    "PRAGMA cache_size = -20000",
    # On macOS only this reaches the disk; other systems ignore it.
    "PRAGMA fullfsync = ON",
    # The file may be untrusted: its schema must not call functions with side effects.
    "PRAGMA trusted_schema = OFF",
)


class Mode(IntEnum):
    """How durable a transaction must be. In a batch the largest value counts."""

    READ = 0
    WRITE = 1
    """Survives a crash of the process, not a power loss: enough for leases, which end with it."""
    DURABLE = 2
    """On the disk before the call answers."""


class Database:
    """A connection. One thread at a time may use it."""

    def __init__(self, path: Path, migrate: Migrate, *, was_there: bool) -> None:
        self._path = path
        self._file = str(path)  # a str, because stat of a Path takes longer
        self._wal = f"{path}-wal"
        self._copy_at = WAL_LIMIT
        self._copier: sqlite3.Connection | None = None
        self._synchronous: Mode | None = None
        self._patient = True
        files.provide(path, create=migrate == "auto", was_there=was_there)
        self._identity = files.identity(path)
        files.opened(self._identity)
        try:
            self._db = _opened(path, migrate)
        except BaseException:
            files.closed(self._identity)
            raise
        # While a connection is open, SQLite neither removes the log nor creates another one.
        self._log = files.identity(self._wal)
        self.execute = self._db.execute

    def close(self) -> None:
        """Close the file.

        The last connection of all processes also copies the log into the file. It holds a lock on
        the whole file, so the race described at `copy_log` cannot happen.
        """
        if self._copier is not None:
            self._copier.close()
        self._db.close()
        files.closed(self._identity)

    def moved(self) -> bool:
        """Return whether the path, or that of its log, leads to another file now, or to none.

        Processes with the old, deleted file open would not see those that open the new one.
        """
        if files.identity(self._file) != self._identity:
            return True
        log = files.identity(self._wal)
        if self._log is None:  # the first transaction creates it
            self._log = log
        return log != self._log

    def refuse_torn(self) -> None:
        """Raise StoreError if the file and the log beside it do not belong together.

        SQLite does not detect that, and would copy the log into the file.
        """
        file, log = files.identity(self._file), files.identity(self._wal)
        advice = f"Stop all programs that use it, remove {self._wal} and -shm, and start them again"
        if file == self._identity and log != self._log:
            msg = (
                f"{self._wal} was deleted or replaced while it was in use: changes that are not in "
                f"{self._file} yet are only known to the programs that have it open. Stop all of "
                "them, which saves the changes, and start them again."
            )
            raise StoreError(msg)
        if file is not None and file != self._identity and log is not None and log == self._log:
            msg = f"{self._file} was replaced while it was in use, and the log of the old file is "
            raise StoreError(f"{msg}still beside it. {advice}.")

    def begin(self, mode: Mode, *, patient: bool = True) -> None:
        """Start a transaction. A writing one has the write lock from its start.

        If it is not `patient`, it fails at once if another process has the lock. A transaction that
        read first and then wrote would fail whatever the time-out, if another process had written
        in between.
        """
        if mode is Mode.READ:
            self._set_patience(patient=patient)
            self.execute("BEGIN")
            return
        if mode is not self._synchronous:
            # Possible only outside a transaction; both statements together take 4 µs.
            level = "FULL" if mode is Mode.DURABLE else "NORMAL"
            self.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = mode
        if not (patient and self._took_write_lock()):
            self._set_patience(patient=patient)
            self.execute("BEGIN IMMEDIATE")

    def _took_write_lock(self) -> bool:
        """Poll the write lock often for a while. Returns whether it was acquired."""
        self._set_patience(patient=False)
        for _ in range(LOOKS):
            try:
                self.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
            else:
                return True
            _pause(_LOOK_EVERY)
        return False

    def _set_patience(self, *, patient: bool) -> None:
        """Let statements wait for locks, or fail at once."""
        if patient is not self._patient:
            self.execute(f"PRAGMA busy_timeout = {round(BUSY_TIMEOUT * 1000) if patient else 0}")
            self._patient = patient

    def fetch(self, statement: str, values: Any) -> list[Row]:
        """Return all rows; text that is not UTF-8 comes as bytes."""
        return fetch(self.execute, self._db, statement, values)

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back. Does nothing after errors for which SQLite has rolled back itself."""
        if self._db.in_transaction:
            with suppress(sqlite3.Error):
                self.execute("ROLLBACK")

    @property
    def changes(self) -> int:
        """How many rows this connection has changed, rolled back ones included."""
        return self._db.total_changes

    def data_version(self) -> int:
        """Return a number that changes when other connections commit, not when this one does."""
        version: int = self.execute("PRAGMA data_version").fetchone()[0]
        return version

    def log_is_long(self) -> bool:
        """Return whether the write-ahead log has grown past its limit since it was last copied.

        After a copy the next writer restarts the log, and `journal_size_limit` truncates the file,
        so its size is what was written since.
        """
        size = self.log_size
        self._copy_at = min(self._copy_at, size + WAL_LIMIT)
        return size >= self._copy_at

    @property
    def log_size(self) -> int:
        """The size of the write-ahead log in bytes."""
        try:
            return os.stat(self._wal).st_size  # noqa: PTH116 - Path.stat takes three times as long
        except FileNotFoundError:
            return 0

    def copy_log(self) -> bool | None:
        """Copy the write-ahead log into the file. Returns whether all of it could be copied.

        False if a reading transaction needs the old pages. None: not tried, because another process
        had the write lock or was copying.

        SQLite before 3.51.3 can damage a database when a writer restarts a fully copied log at the
        moment another connection begins to copy it. So this connection holds the write lock, under
        which no writer can restart the log, while a second connection copies. Automatic copying is
        off for both. The mode is PASSIVE, because the others make all writers wait for readers,
        which may be slow in the user's own database.
        """
        self._copy_at = self.log_size + WAL_LIMIT
        if self._copier is None:
            self._copier = _connected(self._path)
        try:
            self.begin(Mode.WRITE)
            row = self._copier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return None
        finally:
            self.rollback()
        is_busy_elsewhere, frames, copied = row
        return None if is_busy_elsewhere else bool(copied >= frames)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _connected(path: Path, timeout: float = BUSY_TIMEOUT) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        for pragma in _PRAGMAS:
            db.execute(pragma)
    except BaseException:
        db.close()
        raise
    return db


def _opened(path: Path, migrate: Migrate) -> sqlite3.Connection:
    """Return a connection in write-ahead mode to a file of the newest format.

    Switching to write-ahead mode needs exclusive access and fails at once, whatever the time-out,
    while other processes do the same. So each of several attempts waits for locks only briefly.
    """
    for _ in range(round(BUSY_TIMEOUT / _ATTEMPT) - 1):
        try:
            return _attempted(path, migrate)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        _pause(_ATTEMPT / 2)
    return _attempted(path, migrate)


def _attempted(path: Path, migrate: Migrate) -> sqlite3.Connection:
    db = _connected(path, timeout=_ATTEMPT / 2)
    try:
        _make_ready(db, path, migrate)
        db.execute(f"PRAGMA busy_timeout = {round(BUSY_TIMEOUT * 1000)}")
    except BaseException:
        db.close()
        raise
    return db


def _make_ready(db: sqlite3.Connection, path: Path, migrate: Migrate) -> None:
    where = f"the SQLite file {path}"
    if migrate == "check":
        bring_up_to_date(db, migrate, where)
    if _setting(db, "PRAGMA encoding") != "UTF-8":
        # In UTF-16, SQLite does not order text by code points.
        msg = f"{where} keeps text in UTF-16. Tenure needs a file of its own, in UTF-8."
        raise ConfigError(msg)
    if (
        _setting(db, "PRAGMA journal_mode") != "wal"
        and (mode := _setting(db, "PRAGMA journal_mode = WAL")) != "wal"
    ):
        msg = (
            f"{where} cannot be put into write-ahead mode (it stays in {mode} mode). "
            "Put it on a local disk; network folders do not work."
        )
        raise ConfigError(msg)
    if migrate != "skip":
        bring_up_to_date(db, migrate, where)


def _setting(db: sqlite3.Connection, pragma: str) -> Any:
    return db.execute(pragma).fetchone()[0]
