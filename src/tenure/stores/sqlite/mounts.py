"""Finds the mount of a file, on Linux only.

SQLite keeps two files beside the database: the write-ahead log (-wal) and its index (-shm), which
all processes map into memory. A mount can separate them from the database, and a network file
system cannot map them for several machines.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["Mount", "is_mounted_alone", "mount_of"]

# Here Linux lists all mounts.
MOUNTS = Path("/proc/self/mountinfo")

# File systems that other machines can mount too, or whose files live outside this kernel: on the
# host of a virtual machine or of Docker Desktop. SQLite's locks and its -shm do not work across
# them.
_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "davfs", "fakeowner", "fuse.cephfs", "fuse.davfs2"}
    | {"fuse.gcsfuse", "fuse.glusterfs", "fuse.grpcfuse", "fuse.juicefs", "fuse.rclone"}
    | {"fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2"}
    | {"osxfs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "fuse.vmhgfs-fuse"}
)


class Mount(NamedTuple):
    """A mounted file system."""

    point: Path
    kind: str

    @property
    def is_network(self) -> bool:
        """Whether other machines may reach the same files."""
        return self.kind in _NETWORK


def mount_of(path: Path) -> Mount | None:
    """Return the mount of a path; None on systems other than Linux."""
    around = [mount for mount in _mounts() if path.is_relative_to(mount.point)]
    # The deepest mount; of several in the same place, the last one.
    return max(reversed(around), key=lambda mount: len(mount.point.parts), default=None)


def is_mounted_alone(path: Path) -> bool:
    """Return whether the path is itself a mount point, as with `docker run -v file:file`."""
    return any(mount.point == path for mount in _mounts())


def _mounts() -> list[Mount]:
    try:
        text = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    return [_parsed(line) for line in text.splitlines() if " - " in line]


def _parsed(line: str) -> Mount:
    """Read a line of mountinfo: `36 35 98:0 /root /point options ... - type source options`."""
    before, _, after = line.partition(" - ")
    # Blanks and backslashes in a path are escaped, as \040.
    point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
    return Mount(Path(point), after.split(" ")[0])
