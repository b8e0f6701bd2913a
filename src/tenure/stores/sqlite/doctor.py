"""Examines an SQLite store: the library, the file, and the disk or mount below it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tenure.core.clock import Clock
from tenure.core.leases import Finding, Grade
from tenure.core.machines import Now, Trace, Watch, judge
from tenure.errors import TenureError
from tenure.stores.sqlite import files
from tenure.stores.sqlite.errors import explained
from tenure.stores.sqlite.machines import others
from tenure.stores.sqlite.mounts import Mount, mount_of
from tenure.stores.sqlite.schema import FORMAT, Format

__all__ = ["examine"]

# Container engines leave one of these in the root of a container.
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))

_IN_MEMORY = frozenset({"ramfs", "tmpfs"})
# The writable layer of a container.
_OVERLAYS = frozenset({"aufs", "fuse.fuse-overlayfs", "overlay"})

_FIXED_IN = (3, 51, 3)
_ROOM_NEEDED = 100 * 1024 * 1024
# Seconds to wait for a program with exclusive access to the file.
_PATIENCE = 2.0


def examine(path: Path, url: str, namespace: str, clock: Clock, grade: Grade) -> list[Finding]:
    """Return findings about the file, without changing anything."""
    findings = [
        Finding("ok", "store", f"{path}, namespace {namespace}"),
        _library(sqlite3.sqlite_version_info),
        Finding("ok", "grade", f"{grade.name}, {grade.value} (on a disk that keeps its word)"),
        Finding("ok", "scope", "the processes of this host"),
        Finding("ok", "clock", "this host's own"),
    ]
    try:
        findings += _file_system(path, files.allows_network(url))
        findings += _permissions(path)
        findings += _contents(path, Now.on(clock))
    except OSError as error:
        findings.append(
            Finding(
                "error",
                "file",
                f"{path} cannot be looked at: {error.strerror or error}",
                "Let this process enter the folder, and write to it and to the file.",
            )
        )
    return findings


def _library(version: tuple[int, ...]) -> Finding:
    number = ".".join(map(str, version))
    if version >= _FIXED_IN:
        return Finding("ok", "library", f"SQLite {number}")
    return Finding(
        "note",
        "library",
        f"SQLite {number}, which can damage a file that two programs tidy up in the same instant "
        "(the WAL-reset race, fixed in 3.51.3)",
        "Tenure's own processes take turns and are safe. Run 'PRAGMA wal_autocheckpoint = 0' on "
        "every other connection that writes to this file, or upgrade SQLite.",
    )


def _contents(path: Path, now: Now) -> Iterator[Finding]:
    """Read the file through a separate connection, which SQLite keeps harmless."""
    try:
        files.provide(path, create=False)
    except TenureError as error:
        yield _unusable(path, str(error))
        return
    try:
        # Not read-only: such a connection could not remove the -wal and -shm files when it closes.
        with closing(
            sqlite3.connect(f"{path.as_uri()}?mode=rw", timeout=_PATIENCE, uri=True)
        ) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            [mode] = db.execute("PRAGMA journal_mode").fetchone()
            there = Format.of(db)
            is_known = there.version and not there.is_too_new
            company = others(db.execute, now) if is_known else []
    except sqlite3.Error as error:
        yield _unusable(path, str(explained(error, path)))
        return
    if mode == "wal":
        yield Finding("ok", "journal", "write-ahead log")
    else:
        yield Finding(
            "note",
            "journal",
            f"{mode} mode; Tenure needs a write-ahead log",
            "Run 'tenure migrate', or let an app open it: both switch it over, for all programs.",
        )
    yield _format(there)
    yield from _machines(company, now)


def _machines(company: list[tuple[Trace, Watch | None]], now: Now) -> Iterator[Finding]:
    for trace, watch in company:
        if judge(trace, watch, now) != "gone":
            ago = max(0, now.wall - trace.wall) // 1_000_000
            yield Finding(
                "error",
                "machines",
                f"another machine, or a container with another clock, uses the file: {trace.host}, "
                f"{ago} s ago by the clocks",
                "Let programs of one machine use the file; for several use redis:// or "
                "postgresql://. If that machine is gone, this one goes on by itself.",
            )
            return


def _unusable(path: Path, reason: str) -> Finding:
    if not path.exists() and path.parent.is_dir():
        return Finding(
            "note",
            "format",
            "the file is not there yet",
            "Run 'tenure migrate', or let an app create it. If there should be one: is this the "
            "right path? A relative one starts at the working directory.",
        )
    # Tenure's errors say first what happened, and then what to do.
    detail, _, advice = reason.partition(". ")
    return Finding("error", "file", detail, advice or "Check the file and the disk it is on.")


def _format(there: Format) -> Finding:
    if there.is_too_new:
        return Finding(
            "error",
            "format",
            f"{there.version}, from a newer Tenure; this one knows formats up to {FORMAT}",
            "Upgrade Tenure here.",
        )
    if there.version:
        return Finding("ok", "format", str(there.version))
    return Finding(
        "note",
        "format",
        f"none so far, {FORMAT} is needed",
        "Run 'tenure migrate', or let an app with migrate=\"auto\" do it.",
    )


def _permissions(path: Path) -> Iterator[Finding]:
    if os.name != "posix" or not path.exists():
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        yield Finding(
            "warning",
            "permissions",
            f"every user of this host may {_may(mode)} the file ({mode:04o})",
            f"chmod 600 {path} (and its -wal and -shm), or 660 with a group of its own.",
        )
    elif mode & (stat.S_IRGRP | stat.S_IWGRP):
        yield Finding(
            "note",
            "permissions",
            f"its group may {_may(mode >> 3)} the file ({mode:04o})",
            f"chmod 600 {path} unless processes of other users are meant to share it.",
        )
    else:
        yield Finding("ok", "permissions", f"only its owner ({mode:04o})")
    folder = path.parent.stat().st_mode
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        yield Finding(
            "warning",
            "folder",
            f"every user of this host may replace files in {path.parent}",
            f"chmod o-w {path.parent}",
        )


def _may(mode: int) -> str:
    return "write" if mode & stat.S_IWOTH else "read"


def _file_system(path: Path, allowed: bool) -> Iterator[Finding]:  # noqa: FBT001 - private
    folder = path.parent
    if not folder.is_dir():
        return
    free = shutil.disk_usage(folder).free
    mount = mount_of(folder)
    if mount is not None and mount.is_network:
        yield _network_folder(mount, allowed)
    elif mount is not None:
        yield _kind_of_place(mount)
    if free < _ROOM_NEEDED:
        yield Finding(
            "warning",
            "disk",
            f"{_mebibytes(free)} free in {folder}",
            "Make room: on a full disk nothing can be acquired, and nothing renewed.",
        )
    else:
        yield Finding("ok", "disk", f"{_mebibytes(free)} free")


def _network_folder(mount: Mount, allowed: bool) -> Finding:  # noqa: FBT001 - private
    where = f"{mount.kind} at {mount.point}"
    if allowed:
        return Finding(
            "warning",
            "file system",
            f"{where} is a network folder, which the URL allows ({files.NETWORK_OPTION})",
            "Let programs of one machine alone use the file: SQLite's locks do not work between "
            "machines.",
        )
    return Finding(
        "error",
        "file system",
        f"{where} is shared with other machines, where SQLite's locks do not work",
        "Put the file on a local disk, or use redis:// or postgresql:// for several machines. If "
        "programs of one machine alone use the file, add "
        f"?{files.NETWORK_OPTION} to the URL.",
    )


def _kind_of_place(mount: Mount) -> Finding:
    where = f"{mount.kind} at {mount.point}"
    if mount.kind in _OVERLAYS:
        return Finding(
            "warning",
            "file system",
            f"{where} belongs to this container: no other one sees the file, and it ends with it",
            "Mount a volume that all replicas on this host share; for several hosts use redis:// "
            "or postgresql://.",
        )
    if mount.kind.startswith("fuse"):
        return Finding(
            "warning",
            "file system",
            f"{where} may be shared with other machines, where SQLite's locks do not work",
            "Make sure that it is a local disk; else use redis:// or postgresql://.",
        )
    if mount.kind in _IN_MEMORY:
        return Finding(
            "warning",
            "file system",
            f"{where} is kept in memory: the file ends with this machine or container",
            "Put the file on a disk; the grade holds only there.",
        )
    if any(mark.exists() for mark in _CONTAINER_MARKS):
        return Finding(
            "note",
            "file system",
            f"{where}, in a container",
            "All replicas must mount this same volume, on one host; for several hosts use "
            "redis:// or postgresql://.",
        )
    return Finding("ok", "file system", where)


def _mebibytes(size: int) -> str:
    mebi = size / 1024**2
    return f"{mebi / 1024:.1f} GiB" if mebi >= 1024 else f"{mebi:.0f} MiB"
