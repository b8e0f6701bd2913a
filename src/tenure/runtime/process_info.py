"""Facts about processes: a description of this one, the memory and signals of others."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from tenure.core.leases import Meta, storable

__all__ = [
    "about_own_lease",
    "about_this_process",
    "memory_of",
    "own_memory",
    "process_name",
    "signal_name",
]


def about_this_process() -> Meta:
    """Return the host name and process id, for operators who look for this process."""
    return {"host": storable(socket.gethostname(), 200), "pid": str(os.getpid())}


def about_own_lease(purpose: str) -> Meta:
    """Return the meta of a lease that Tenure itself takes: operators wonder what it is for."""
    return {**about_this_process(), "why": f"of Tenure: {purpose}"}


def process_name(pid: int | None = None) -> str:
    """Return host and process id in one text, such as "web-1:4711"; by default of this process."""
    about = about_this_process()
    return f"{about['host']}:{pid or about['pid']}"


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 on systems without /proc."""
    with suppress(OSError, IndexError, ValueError):
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def own_memory() -> int:
    """Return the resident memory of this process in bytes; 0 on systems without /proc."""
    return memory_of(os.getpid())


def signal_name(number: int) -> str:
    """Return the usual name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
