"""What is mounted where a file is, as far as Linux tells; other systems tell nothing.

SQLite keeps two files beside the database: the write-ahead log (-wal) and the index of it that all
processes map into their memory (-shm). A mount can separate them from the database, and a network
file system cannot map them for several machines.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["Mount", "is_mounted_alone", "mount_of"]

# Linux lists here what is mounted where.
MOUNTS = Path("/proc/self/mountinfo")

# File systems that other machines reach as well, or whose files live outside of this kernel: the
# host of a virtual machine or of Docker Desktop. SQLite's locks and its -shm do not work across.
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
    """Return what is mounted where the path is; None where the system does not tell."""
    around = [mount for mount in _mounts() if path.is_relative_to(mount.point)]
    # The deepest one; of those in the same place, the one that was mounted last.
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
    # Blanks and backslashes in a path are written as \040 and the like.
    point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
    return Mount(Path(point), after.split(" ")[0])
