"""What others are shown of this process, beside its leases and its replica."""

from __future__ import annotations

import os
import socket

from tenure.core.model import Meta

__all__ = ["about_this_process"]


def about_this_process() -> Meta:
    """Return where it runs: for people who look for it."""
    return {"host": socket.gethostname()[:200], "pid": str(os.getpid())}
