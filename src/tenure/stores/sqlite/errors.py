"""Translates SQLite's errors into Tenure's exceptions, with advice."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tenure.errors import ConfigError, StoreError, StoreFull, StoreUnavailable, TenureError

__all__ = ["explained", "is_busy", "is_of_file"]

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

_FORBIDDEN = (ConfigError, "may not be used by this process. Check the permissions")

_ADVICE: dict[int, tuple[type[TenureError], str]] = {
    sqlite3.SQLITE_BUSY: (
        StoreUnavailable,
        (
            "is locked. Another connection, of this program or another one, keeps a transaction "
            "open for longer than 5 seconds; end it"
        ),
    ),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "is locked within this process"),
    sqlite3.SQLITE_PROTOCOL: (StoreUnavailable, "is locked: too many programs open it at once"),
    sqlite3.SQLITE_FULL: (
        StoreFull,
        "cannot grow: the disk is full. Nothing was stored. Make room on it; then try again",
    ),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "cannot be read or written. Check the disk"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreUnavailable,
        "cannot be opened. Its folder must be writable, and so must its -wal and -shm files",
    ),
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, "cannot be read: this process is out of memory"),
    sqlite3.SQLITE_NOTADB: (
        ConfigError,
        "is not an SQLite database (or is encrypted). Choose another path; Tenure creates the file",
    ),
    sqlite3.SQLITE_READONLY: (
        ConfigError,
        "is read-only for this process. Give it write permission on the file and its folder",
    ),
    sqlite3.SQLITE_PERM: _FORBIDDEN,
    sqlite3.SQLITE_AUTH: _FORBIDDEN,
    sqlite3.SQLITE_CORRUPT: (
        StoreError,
        "is damaged. Stop all programs that use it, then restore a backup or move it away",
    ),
}


def explained(error: Exception, path: Path, *, opening: bool = True) -> TenureError:
    """Return a new exception for an error of SQLite.

    A problem that needs configuration is a ConfigError while the store opens. Later it is a
    StoreError, because callers that retry must be able to continue once it is fixed.
    """
    if isinstance(error, TenureError):
        kind, arguments, cause = type(error), error.args, error.__cause__
    else:
        kind, advice = _ADVICE.get(_code(error), (StoreError, "refused the call"))
        arguments, cause = (f"the SQLite file {path} {advice} ({error}).",), error
    if not opening and issubclass(kind, ConfigError):
        # A missing file or folder may come back, for example after a remount.
        kind = StoreError if path.is_file() else StoreUnavailable
    explanation = kind(*arguments)
    explanation.__cause__ = cause
    return explanation


def is_busy(error: Exception) -> bool:
    """Return whether another connection has the lock."""
    return _code(error) in _BUSY


def is_of_file(error: Exception) -> bool:
    """Return whether the error concerns the file or the disk, not the values of a statement."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def _code(error: Exception) -> int:
    # The low byte is the kind of error; the rest says where in SQLite it occurred.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
