"""What SQLite raises, said in Tenure's words with advice."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tenure.errors import ConfigError, StoreError, StoreFull, StoreUnavailable, TenureError

__all__ = ["is_busy", "is_of_file", "said"]

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

_ADVICE = {
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
    sqlite3.SQLITE_PERM: (ConfigError, "may not be used by this process. Check the permissions"),
    sqlite3.SQLITE_AUTH: (ConfigError, "may not be used by this process. Check the permissions"),
    sqlite3.SQLITE_CORRUPT: (
        StoreError,
        "is damaged. Stop all programs that use it, then restore a backup or move it away",
    ),
}


def said(error: Exception, path: Path, *, opening: bool = True) -> TenureError:
    """Return the exception a caller gets for `error`; a new one each time, as callers differ.

    What only configuration can mend is a ConfigError while opening. Later it is a StoreError,
    because then whoever keeps calling must be able to go on.
    """
    if isinstance(error, TenureError):
        told = _as_kind(type(error), path, opening=opening)(*error.args)
        told.__cause__ = error.__cause__
        return told
    kind, advice = _ADVICE.get(_code(error), (StoreError, "refused the call"))
    kind = _as_kind(kind, path, opening=opening)
    told = kind(f"the SQLite file {path} {advice} ({error}).")
    told.__cause__ = error
    return told


def _as_kind(kind: type[TenureError], path: Path, *, opening: bool) -> type[TenureError]:
    if opening or not issubclass(kind, ConfigError):
        return kind
    # A file or folder that has gone may come back, as after a disk was mounted again.
    return StoreError if path.is_file() else StoreUnavailable


def is_busy(error: Exception) -> bool:
    """Return whether somebody else merely has the lock."""
    return _code(error) in _BUSY


def is_of_file(error: Exception) -> bool:
    """Return whether the file or the disk is in trouble, rather than one statement's values."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def _code(error: Exception) -> int:
    # The low byte is the kind of error; the rest says where in SQLite it came up.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
