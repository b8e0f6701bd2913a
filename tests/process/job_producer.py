"""Enqueues jobs: python -m tests.process.job_producer URL NAMESPACE LEDGER FIRST

Numbers them from FIRST on, says in the ledger which it offers and which the store has accepted,
and goes on over outages until the test sends a line.
"""

import asyncio
import sys
from itertools import count, islice
from pathlib import Path

from tenure import StoreUnavailable, Tenure
from tests.process.job_ledger import JobLedger
from tests.process.job_tasks import Tasks
from tests.process.orders import hearing
from tests.rig.stdio import tell

_AT_ONCE = (1, 1, 1, 4)
_PAUSE = 0.02


async def main(url: str, namespace: str, path: str, first: str) -> None:
    """Offer jobs until told to end."""
    ledger = JobLedger(Path(path))
    app = Tenure(url, namespace=namespace)
    tasks = Tasks(app, ledger)
    numbers = count(int(first))
    async with app, hearing() as hear:
        tell("ready")
        end = asyncio.ensure_future(hear())
        for turn in count():
            if end.done():
                break
            batch = list(islice(numbers, _AT_ONCE[turn % len(_AT_ONCE)]))
            await offer(app, tasks, ledger, batch)
            await asyncio.sleep(_PAUSE)
    tell("finished")


async def offer(app: Tenure, tasks: Tasks, ledger: JobLedger, numbers: list[int]) -> None:
    """Enqueue one job per number; what an outage leaves unknown is only offered."""
    for number in numbers:
        ledger.write("offered", number=number)
    try:
        jobs = await app.enqueue_many(tasks.count.request(number) for number in numbers)
    except StoreUnavailable:
        return
    for number, job in zip(numbers, jobs, strict=True):
        ledger.write("accepted", job=job.id, number=number)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
