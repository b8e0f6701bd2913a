"""A metrics file whose disk space is taken before it is mapped into memory.

prometheus_client makes its files sparse. Once the disk is full, the first write to a page that has
no space yet ends the process with SIGBUS, in the middle of its jobs. Here, values for which there
is no space are counted in memory only: they are missing on the page, and nothing else happens.

It also gives every value of a forked process 0. For `tenure_store_up` that would be an outage, so
that gauge begins with 1 here.
"""

from __future__ import annotations

import logging
import mmap
import os
from pathlib import Path
from typing import Any

import prometheus_client.values
from prometheus_client.mmap_dict import MmapedDict

__all__ = ["ReservedFile", "use_reserved_files"]

log = logging.getLogger("tenure")

_SIZE = 1 << 16
"""Of a new file. It is doubled whenever it is full."""
_ENTRY_MAX = 32
"""What an entry takes beside its key: lengths, padding, a value and an instant."""
_STORE_UP = '["tenure_store_up", '
"""How the key of this gauge begins. No process has found anything wrong before its first call."""


def use_reserved_files() -> None:
    """Have all metrics files that this process and its forks open from now on be such files."""
    prometheus_client.values.MmapedDict = ReservedFile  # type: ignore[attr-defined]


class ReservedFile(MmapedDict):
    """Takes the place of `MmapedDict` in processes that write metrics."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:  # noqa: FBT001, FBT002 - as there
        self._unwritten: dict[str, tuple[float, float]] = {}
        self._is_full = False
        self._f: Any = None
        self._m: Any = None
        try:
            _reserve(filename, _SIZE)
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]
        except OSError as error:
            self._positions: dict[str, int] = {}
            self._give_up(filename, error)

    def read_value(self, key: str) -> tuple[float, float]:
        """Return a value and its instant; a new key gets a place in the file."""
        if key.startswith(_STORE_UP) and key not in self._positions:
            self.write_value(key, 1.0, 0.0)
        if self._has_place(key):
            value: tuple[float, float] = super().read_value(key)  # type: ignore[no-untyped-call]
            return value
        return self._unwritten.setdefault(key, (0.0, 0.0))

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Change a value."""
        if self._has_place(key):
            super().write_value(key, value, timestamp)  # type: ignore[no-untyped-call]
        else:
            self._unwritten[key] = (value, timestamp)

    def close(self) -> None:
        """Unmap the file."""
        if self._m is not None:
            super().close()  # type: ignore[no-untyped-call]

    def _has_place(self, key: str) -> bool:
        """Return whether the file has a place for a key, after growing if it has to."""
        if key in self._positions:
            return True
        if self._is_full:
            return False
        size: int = self._capacity
        while self._used + len(key.encode()) + _ENTRY_MAX > size:
            size *= 2
        if size > self._capacity:
            try:
                _reserve(self._fname, size)
                grown = mmap.mmap(self._f.fileno(), size)
            except OSError as error:
                self._give_up(self._fname, error)
                return False
            self._m.close()
            self._m, self._capacity = grown, size
        return True

    def _give_up(self, filename: str, error: OSError) -> None:
        self._is_full = True
        log.warning(
            "there is no space for more metrics in %s, so some are missing on the page: %s",
            filename,
            error.strerror or error,
        )


def _reserve(filename: str, size: int) -> None:
    """Fill a file with zeros up to a size. Raises OSError, and leaves it as it was."""
    with Path(filename).open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while (missing := size - file.tell()) > 0:
                file.write(bytes(missing))
        except OSError:
            os.ftruncate(file.fileno(), before)
            if not before:  # a file without a header is no metrics file
                Path(filename).unlink(missing_ok=True)
            raise
