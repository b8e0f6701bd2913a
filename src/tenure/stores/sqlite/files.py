"""The database file as the operating system sees it.

POSIX drops all locks of a process on a file when the process closes *any* descriptor of that file,
SQLite's locks included. So this module never opens a file that may be in use.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import Counter
from pathlib import Path
from typing import TypeAlias

from tenure.errors import ConfigError, StoreError
from tenure.stores.sqlite.mounts import is_mounted_alone, mount_of

__all__ = [
    "NETWORK_OPTION",
    "Identity",
    "allows_network",
    "closed",
    "identity",
    "locate",
    "opened",
    "provide",
    "refuse_network",
]

Identity: TypeAlias = tuple[int, int]
"""Device and inode, which identify a file under any name."""


NETWORK_OPTION = "network_folder=allow"
"""The option in a URL, after a question mark, that allows a file on a network folder."""


class _Process:
    """The files that this process has open, and that its parent had open when it forked."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open: Counter[Identity] = Counter()
        self.inherited: set[Identity] = set()

    def forked(self) -> None:
        self.lock = threading.Lock()  # another thread may have held the lock at the fork
        self.inherited |= {file for file, count in self.open.items() if count > 0}
        self.open.clear()


_process = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forked)


def locate(url: str) -> Path:
    """Return the absolute path in an sqlite URL. Raises ConfigError if it has none."""
    name, mark, option = url.removeprefix("sqlite://").partition("?")
    if name in ("", "/") or ":memory:" in name:
        msg = (
            f"{url!r} names no file. Use sqlite:///tenure.db, or memory:// to keep everything in "
            "this process."
        )
        raise ConfigError(msg)
    if not name.startswith("/"):
        msg = f"{url!r} has too few slashes. Use sqlite:///{name}, or four for an absolute path."
        raise ConfigError(msg)
    if (mark and option != NETWORK_OPTION) or "\0" in name:
        msg = (
            f"{url!r} has an unknown option or a NUL in it. An SQLite URL is a path, and may end "
            f"in ?{NETWORK_OPTION}."
        )
        raise ConfigError(msg)
    path = Path(name[1:])
    try:
        _refuse_foreign_link(path)
        # Links are resolved once, here: a later change of directory or link must not lead this
        # store or its clones to another file.
        return path.resolve()
    except (OSError, RuntimeError) as error:  # the name is too long, or links form a circle
        msg = f"the path in {url[:200]!r} leads nowhere: {error.__class__.__name__}. Use another."
        raise ConfigError(msg) from error


def _refuse_foreign_link(path: Path) -> None:
    """Raise ConfigError for a link of another user in a shared folder such as /tmp.

    Its owner could redirect writes to another file of this user. The Linux kernel refuses to follow
    such links as well, but this module resolves links itself.
    """
    if os.name != "posix" or not path.is_symlink():
        return
    folder, owner = path.parent.stat(), path.lstat().st_uid
    shared = folder.st_mode & stat.S_IWOTH and folder.st_mode & stat.S_ISVTX
    if shared and owner not in (os.geteuid(), folder.st_uid):
        msg = f"{path} is a link that another user has put into {path.parent}. Use another folder."
        raise ConfigError(msg)


def allows_network(url: str) -> bool:
    """Return whether the URL allows a file on a network folder."""
    return url.endswith(f"?{NETWORK_OPTION}")


def refuse_network(url: str, path: Path) -> None:
    """Raise ConfigError for a file on a network folder, unless the URL allows it."""
    mount = mount_of(path.parent)
    if mount is not None and mount.is_network and not allows_network(url):
        msg = (
            f"{path} is on a network folder ({mount.kind} at {mount.point}), where SQLite's locks "
            "do not work between machines. Put the file on a local disk, or use redis:// or "
            "postgresql://. If the programs of only one machine will ever use the file, add "
            f"?{NETWORK_OPTION} to the URL."
        )
        raise ConfigError(msg)


def provide(path: Path, *, create: bool, was_there: bool = False) -> None:
    """Make sure that SQLite can open the file; create it if needed. Raises ConfigError with advice.

    A file that `was_there`, open in this process, is not created again: its disk may be unmounted
    at the moment, and a new file in its place would be an empty store.
    """
    if path.is_dir():
        msg = f"{path} is a folder. Name a file in it, such as sqlite:///{path / 'tenure.db'}."
        raise ConfigError(msg)
    if not path.parent.is_dir():
        msg = f"the folder {path.parent} does not exist. Create it; Tenure only creates the file."
        raise ConfigError(msg)
    if was_there and not path.exists():
        msg = (
            f"the file {path} was deleted or moved away while it was in use. Put it back. To begin "
            "with an empty one, restart this program."
        )
        raise ConfigError(msg)
    if not create and not path.exists():
        msg = (
            f'there is no file {path}. Open it once with migrate="auto", which creates it, '
            "or run 'tenure migrate'."
        )
        raise ConfigError(msg)
    if create and not was_there:
        _create(path)
    _refuse_second_name(path)
    for part in (path, path.parent):  # SQLite keeps its log and its index beside the file
        if not os.access(part, os.W_OK):
            msg = f"{part} is read-only for this process. Tenure needs to write the file and the "
            raise ConfigError(msg + "folder it is in.")
    if identity(path) in _process.inherited:
        msg = (
            f"this process was forked from one that had {path} open, and SQLite's locks do not "
            "work here. Open the store after forking only, or start processes by 'spawn'."
        )
        raise StoreError(msg)


def _refuse_second_name(path: Path) -> None:
    """Raise ConfigError for a file that has a second name.

    SQLite keeps the -wal and -shm files beside the name by which it opens the database. Programs
    that use two names have two of each: both grant the same locks, and the jobs of one are lost.
    Symbolic links are harmless, because `locate` and SQLite resolve them.
    """
    if is_mounted_alone(path):
        msg = (
            f"{path} is mounted on its own, without the -wal and -shm files that belong to it. "
            "Mount the folder, not the file: else programs that reach it through another mount "
            "hold the same locks, and overwrite each other's jobs."
        )
        raise ConfigError(msg)
    names, number = path.stat().st_nlink, path.stat().st_ino
    if names > 1:
        msg = (
            f"{path} has {names} names (hard links), each with -wal and -shm files of its own. "
            f"Remove the other ones, which 'find / -xdev -inum {number}' shows: programs that "
            "open it by another name hold the same locks, and overwrite each other's jobs."
        )
        raise ConfigError(msg)


def _create(path: Path) -> None:
    # Readable by its owner only; SQLite gives the same mode to the files beside it. The lock is
    # needed because this closes a descriptor: see the top of this file.
    with _process.lock:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        except PermissionError as error:
            msg = f"{path} cannot be created. Give this process write permission on the folder."
            raise ConfigError(msg) from error
        except OSError as error:
            msg = f"{path} cannot be created: {error.strerror}."
            raise ConfigError(msg) from error


def identity(path: Path | str) -> Identity | None:
    """Return the file to which the path leads now; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - Path.stat takes three times as long
    except OSError:
        return None
    return status.st_dev, status.st_ino


def opened(file: Identity | None) -> None:
    """Record that this process has the file open."""
    if file is not None:
        with _process.lock:
            _process.open[file] += 1


def closed(file: Identity | None) -> None:
    """Record that this process has closed the file."""
    if file is not None:
        with _process.lock:
            _process.open[file] -= 1
            if _process.open[file] <= 0:
                del _process.open[file]
