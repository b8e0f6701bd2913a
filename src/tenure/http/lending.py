"""The app on whichever event loop a request comes in: opened when it is first needed there."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from tenure.app import Tenure
from tenure.app.lifecycle import Services, services_here

__all__ = ["Lending"]


class Lending:
    """Opens an app lazily, once for each event loop.

    A service that opens the app itself lends that one. Others - a mounted sub-application, a test
    with a loop of its own - get a clone, which `close` gives back.
    """

    def __init__(self, app: Tenure) -> None:
        self._app = app
        self._clones: WeakKeyDictionary[asyncio.AbstractEventLoop, Tenure] = WeakKeyDictionary()
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    async def services(self) -> Services:
        """Return what is open on this loop. Raises StoreUnavailable if it cannot be opened."""
        if (found := services_here(self._app)) is not None:
            return found
        loop = asyncio.get_running_loop()
        for gone in [one for one in self._clones if one.is_closed()]:
            # A clone knows its loop, so that neither would ever be collected by itself.
            self._clones.pop(gone)
        async with self._opening.setdefault(loop, asyncio.Lock()):
            clone = self._clones.get(loop)
            found = None if clone is None else services_here(clone)
            if found is None:
                clone = self._app.clone()
                await clone.open()
                self._clones[loop] = clone
                found = services_here(clone)
            assert found is not None
            return found

    async def close(self) -> None:
        """Close what was opened on this loop."""
        clone = self._clones.pop(asyncio.get_running_loop(), None)
        if clone is not None:
            await clone.close()
