"""Ticks: python -m tests.process.ticker URL NAMESPACE LEDGER, until a signal."""

import asyncio
import logging
import sys
from pathlib import Path

from tenure import Tenure, Tick, current_job
from tests.process.job_ledger import JobLedger
from tests.rig.stdio import tell

TTL = 1.5
LIMIT = 2


def declare(app: Tenure, ledger: JobLedger) -> None:
    """Declare a timer for all replicas, and one with a limit over all of them."""

    @app.timer(every="1s", overlap="allow")
    async def chime(tick: Tick) -> None:
        number = round(tick.nominal.timestamp())
        ledger.write("chimed", job=current_job().id, fence=tick.fence, number=number)

    @app.timer(every="1s", each="replica", limit=LIMIT)
    async def polish(tick: Tick) -> None:
        ledger.write("in", job=current_job().id, fence=tick.fence)
        await asyncio.sleep(0.5)
        ledger.write("out", job=current_job().id, fence=tick.fence)


async def main(url: str, namespace: str, ledger: str) -> None:
    """Run timers until a signal."""
    app = Tenure(url, namespace=namespace, replica_ttl=TTL)
    declare(app, JobLedger(Path(ledger)))
    async with app:
        tell("ready")
        await app.run_timers()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(main(*sys.argv[1:]))
