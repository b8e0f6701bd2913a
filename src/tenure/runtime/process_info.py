"""What is known of processes: of this one for others to see, of others by their number."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from tenure.core.leases import Meta, storable

__all__ = ["about_this_process", "memory_of", "signal_name"]


def about_this_process() -> Meta:
    """Return where it runs: for people who look for it."""
    return {"host": storable(socket.gethostname(), 200), "pid": str(os.getpid())}


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process really uses; 0 where that cannot be seen."""
    with suppress(OSError, IndexError, ValueError):
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def signal_name(number: int) -> str:
    """Return the name of a signal, as people know it."""
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those without a name
        return f"signal {number}"
