"""How a program of a simulation begins: it tries until the store answers, like a service would."""

from __future__ import annotations

from tenure.app import Tenure
from tenure.errors import StoreUnavailable
from tenure.testing.sim.fleet import Process

__all__ = ["opened"]


async def opened(app: Tenure, process: Process) -> bool:
    """Open the app; False if the process is asked to end before that works."""
    while not process.stopping.is_set():
        try:
            await app.open()
        except StoreUnavailable:
            await process.clock.sleep(0.2)
        else:
            return True
    return False
