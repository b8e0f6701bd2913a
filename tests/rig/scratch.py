"""Temporary folders for servers: in memory where possible, and gone even after a killed run."""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

_PREFIX = "tenure-rig-"
_LOCK = "owner.lock"
_MEMORY = Path("/dev/shm")
_ENOUGH = 2 << 30

_homes: list[tuple[int, Path, IO[bytes]]] = []


def new_folder(name: str, *, on_disk: bool = False) -> Path:
    """Make an empty folder that is removed, at the latest, when this process ends.

    If this process is killed, the next one that uses this module removes it. Only this user may
    enter the folder, but its parents let everybody pass.
    """
    home = _home(os.getpid(), _base(on_disk))
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=home))


def _base(on_disk: bool) -> Path:
    disk = Path(tempfile.gettempdir())
    if on_disk or "TMPDIR" in os.environ or not _MEMORY.is_dir():
        return disk
    return _MEMORY if shutil.disk_usage(_MEMORY).free > _ENOUGH else disk


@cache
def _home(owner_pid: int, base: Path) -> Path:
    """Make the one folder of this process, marked by a lock that ends with the process."""
    _remove_abandoned(base)
    home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    home.chmod(0o755)
    lock = (home / f"new-{_LOCK}").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Named only when locked: no process can find it abandoned in between.
    (home / f"new-{_LOCK}").rename(home / _LOCK)
    _homes.append((owner_pid, home, lock))
    return home


def _remove_abandoned(base: Path) -> None:
    for mark in base.glob(f"{_PREFIX}*/{_LOCK}"):
        # Held by a process that lives, removed by another one, or of another user.
        with suppress(OSError), mark.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(mark.parent, ignore_errors=True)


@atexit.register
def _remove_homes() -> None:
    for owner_pid, home, lock in _homes:
        if owner_pid == os.getpid():  # not in a forked copy of the owner
            shutil.rmtree(home, ignore_errors=True)
            lock.close()
