"""Leaving connections whose event loop is closed: nothing can be awaited there any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["cut"]


def cut(transport: asyncio.BaseTransport | None) -> None:
    """Close the socket of a transport whose event loop is closed.

    The transport itself cannot: closing asks its loop to call back. Other loops than asyncio's own,
    such as uvloop's, close their sockets when they are closed; there is nothing to do then.
    """
    if transport is None:
        return
    shown = transport.get_extra_info("socket")
    held = getattr(shown, "_sock", None)
    if held is not None:
        with suppress(OSError):
            held.close()
