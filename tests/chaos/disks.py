"""The disk of the store is full for a while: refusals raise errors, and nothing is lost.

The disk is a small file system in memory, in a mount namespace that ends with the process that
made it.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.chaos.places import Family, Place, opened
from tests.chaos.storm import Scene, scene
from tests.chaos.tally import Tally
from tests.process.orders import boot
from tests.rig.sizes import SIZE, Storm
from tests.rig.wait import wait_until_async

_CREW = {"worker": 3, "producer": 2, "holder": 2}
_FULL_FOR = 2.0
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x4000, 0x40000, 2
# What a store needs for itself, and some for a storm.
_MEGABYTES = {"sqlite": 24, "redis": 24, "postgres": 96}


class Mounts:
    """The private mounts of this process and of all that it starts: they end with it."""

    def __init__(self) -> None:
        """Begin to have them; raises OSError if that is not permitted."""
        if not sys.platform.startswith("linux"):
            raise OSError("mounts of a process's own are known on Linux only")
        own_user = 0 if os.geteuid() == 0 else _CLONE_NEWUSER
        _libc("unshare", _CLONE_NEWNS | own_user)
        _libc("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)

    @contextmanager
    def disk(self, folder: Path, megabytes: int) -> Iterator["SmallDisk"]:
        """Make a small disk in this folder."""
        folder.mkdir()
        size = f"size={megabytes}m".encode()
        _libc("mount", b"tmpfs", str(folder).encode(), b"tmpfs", 0, size)
        try:
            yield SmallDisk(folder)
        finally:
            _libc("umount2", str(folder).encode(), _MNT_DETACH)


def _libc(function: str, *arguments: int | bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{function} is not permitted")


class SmallDisk:
    """A file system of a few megabytes that can be filled to the last byte."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no byte; what is freed meanwhile is filled when called again."""
        with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


async def fill_disks(
    mounts: Mounts,
    family: Family,
    folder: Path,
    tally: Tally,
    size: Storm,
    seed: int,
    *,
    faults: bool = True,
) -> None:
    """Fill the disk under a store at work, and free it, several times."""
    with mounts.disk(folder / "disk", _MEGABYTES[family]) as disk:
        tally.demand("full disks", size.rounds)
        tally.demand("refused by a full disk", size.rounds)
        tally.demand("accepted", 5 * size.rounds)
        with opened(family, folder, data=disk.folder / "data") as place:
            async with scene(place, tally, seed, orders={"producer": {"pace": 0.05}}) as here:
                for role, number in _CREW.items():
                    for _ in range(number):
                        here.start(role)
                await works(here, "before the disk is full")
                for _ in range(size.rounds if faults else 0):
                    await _fill_and_free(here, disk, tally)
                    await works(here, "after the disk was full")
                await here.settle_down()
                await here.account()


async def _fill_and_free(here: Scene, disk: SmallDisk, tally: Tally) -> None:
    began = boot()
    # A PostgreSQL server may end over it, and then it only cannot be reached.
    reason = "" if here.place.family == "postgres" else "StoreFull"

    def was_refused() -> bool:
        disk.fill()
        refusals = (
            entry for entry in here.entries() if entry.what == "unavailable" and entry.at > began
        )
        return any(refusal.detail.startswith(reason) for refusal in refusals)

    try:
        await wait_until_async(was_refused, SIZE.patience, "somebody is refused")
        tally.add("refused by a full disk")
        await asyncio.sleep(_FULL_FOR)
    finally:
        await asyncio.to_thread(disk.free)
    tally.add("full disks")
    await _start_again(here.place, tally)


async def _start_again(place: Place, tally: Tally) -> None:
    """Start a server that has ended over it, as a service manager does."""
    server = place.server
    if server is not None and not await asyncio.to_thread(server.answers):
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        tally.add("servers that a full disk has ended")


async def works(here: Scene, when: str) -> None:
    """Wait until a job that was accepted from now on has come to its end."""
    since = boot()

    def some_end() -> bool:
        entries = [entry for entry in here.entries() if entry.at > since]
        accepted = {entry.job for entry in entries if entry.what == "accepted"}
        return any(entry.what == "effect" and entry.key in accepted for entry in entries)

    await wait_until_async(some_end, 2 * SIZE.patience, f"jobs are accepted and run {when}")
