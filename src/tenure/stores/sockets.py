"""Closes connections whose event loop is already closed, where nothing can be awaited any more.

`Store.abandon` needs it: a forked child, or a thread whose loop is gone, has no other way out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["close_socket"]


def close_socket(transport: asyncio.BaseTransport | None) -> None:
    """Close the socket of a transport whose event loop is closed.

    The transport cannot close itself, because that asks its loop to call back. Other loops than
    asyncio's own, such as uvloop's, close their sockets when they are closed; there is nothing to
    do then.
    """
    if transport is None:
        return
    wrapper = transport.get_extra_info("socket")
    socket = getattr(wrapper, "_sock", None)
    if socket is not None:
        with suppress(OSError):
            socket.close()
