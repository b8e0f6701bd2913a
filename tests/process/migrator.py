"""Runs a migration once: python -m tests.process.migrator URL NAMESPACE LEDGER VERSION MOMENT

It appends what it does to the ledger, and dies at MOMENT ("before mark", "in body", ""...).
"""

import asyncio
import os
import sys
from pathlib import Path

from tenure import Tenure
from tests.process.doomed import die, doomed
from tests.process.orders import boot, hearing
from tests.rig.stdio import tell

TTL = 1.0


def note(ledger: Path, what: str) -> None:
    """Write a line down for good; short lines that are appended do not mix."""
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{what} {os.getpid()} {boot():.6f}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)


async def main(url: str, namespace: str, ledger: str, version: str, moment: str) -> None:
    async def migrate() -> None:
        note(Path(ledger), "begin")
        await asyncio.sleep(0.1)
        if moment == "in body":
            die()
        note(Path(ledger), "end")

    async with Tenure(doomed(url, namespace, moment)) as app, hearing() as hear:
        tell("ready")
        await hear()
        note(Path(ledger), "ask")
        ran = await app.once("migration", migrate, version=version, ttl=TTL)
    tell("done", ran=ran)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
