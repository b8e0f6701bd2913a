"""Stands for election: python -m tests.process.candidate URL NAMESPACE TTL"""

import asyncio
import sys

from tenure import Tenure
from tests.process.orders import boot
from tests.rig.stdio import tell


async def main(url: str, namespace: str, ttl: str) -> None:
    async with Tenure(url, namespace=namespace) as app:
        tell("ready")
        async for term in app.election("chief", ttl=float(ttl)).terms():
            begun = boot()
            tell("leads", fence=term.fence, boot=begun)
            ended = begun
            async with term:
                await asyncio.sleep(0.3)
                ended = boot()
            tell("led", fence=term.fence, begun=begun, ended=ended, lost=term.is_lost)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
