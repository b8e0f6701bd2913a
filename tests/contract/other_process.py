"""Takes leases beside a test: python -m tests.contract.other_process URL NAMESPACE [MODULE:CLASS]

It reports that it is ready, waits for a line, and reports the fences that it got.
"""

import asyncio
import sys

from tenure.core.clock import SystemClock
from tenure.core.leases import Granted
from tenure.stores.contract import Store
from tests.contract.store_makers import maker
from tests.rig.stdio import hear, tell

__all__ = ["KEYS", "take_each"]

KEYS = [f"key-{number}" for number in range(50)]


async def take_each(store: Store, holder: str) -> dict[str, int]:
    """Ask once for each key; return the fences of those that were free."""
    fences = {}
    for key in KEYS:
        answer = await store.leases.acquire(key, holder=holder, limit=1, ttl=600, meta={})
        if isinstance(answer, Granted):
            fences[key] = answer.lease.fence
    return fences


async def main(url: str, namespace: str, named: str = "") -> None:
    store = maker(named)(url, namespace=namespace, clock=SystemClock())
    await store.open()
    tell("ready")
    await asyncio.to_thread(hear)
    tell("done", fences=await take_each(store, "other"))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
