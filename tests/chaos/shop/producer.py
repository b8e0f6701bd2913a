"""The shop's web process: it enqueues mails and orders, and the reports of two tenants.

    python -m tests.chaos.shop.producer

Orders come on stdin, one per line: `flood 10000`, `small`, and `stop`. A mail or an order that the
store refuses is given up, as its customer sees an error page.
"""

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

from tenure import Unique
from tenure.errors import StoreUnavailable
from tenure.jobs import Job
from tests.chaos.shop.service import app, check_out, diary, report_big, report_small, send_mail
from tests.process.orders import hearing
from tests.rig.stdio import tell

_BATCH = 200
_REPORT = (1.0, 3.0)
"""Seconds that a report of the large tenant takes."""


async def main() -> None:
    """Serve customers until the rig says stop."""
    visitors = asyncio.create_task(_visitors())
    others: list[asyncio.Task[None]] = []
    async with app, hearing() as hear:
        tell("open")
        while (order := await hear()) not in ("", "stop"):
            match order.split():
                case ["flood", number]:
                    others.append(asyncio.create_task(_flood(int(number))))
                case ["small"]:
                    others.append(asyncio.create_task(_small(len(others))))
                case _:
                    raise ValueError(order)
        visitors.cancel()
        await asyncio.gather(visitors, *others, return_exceptions=True)
        for other in others:
            other.result()
    tell("stopped")


async def _visitors() -> None:
    """Send a mail for each visitor; every fifth one checks out."""
    number = 0
    while True:
        await asyncio.sleep(random.uniform(0.05, 0.2))
        number += 1
        await _ask("mail", number, send_mail.enqueue(number))
        if number % 5 == 0:
            await _ask("order", number, check_out.enqueue(number))


async def _flood(count: int) -> None:
    for first in range(0, count, _BATCH):
        numbers = range(first, min(count, first + _BATCH))
        requests = [report_big.request(number, random.uniform(*_REPORT)) for number in numbers]
        for number in numbers:
            diary.write("offered", key="big", number=number)
        try:
            jobs = await app.enqueue_many(requests)
        except StoreUnavailable as error:
            diary.write("refused", key="big", detail=type(error).__name__)
            continue
        for number, job in zip(numbers, jobs, strict=True):
            diary.write("accepted", key="big", number=number, job=job.id)


async def _small(number: int) -> None:
    """Enqueue a report until the store accepts it; the unique key makes that safe."""
    request = report_small.using(unique=Unique(f"small:{number}", keep="1d"))
    for pause in (0.5, 1.0, 2.0, 4.0):
        if await _ask("small", number, request.enqueue(number, 0.1)):
            return
        await asyncio.sleep(pause)


async def _ask(kind: str, number: int, enqueued: Awaitable[Job[Any]]) -> bool:
    diary.write("offered", key=kind, number=number)
    try:
        job = await enqueued
    except StoreUnavailable as error:
        diary.write("refused", key=kind, number=number, detail=type(error).__name__)
        return False
    diary.write("accepted", key=kind, number=number, job=job.id)
    return True


if __name__ == "__main__":
    asyncio.run(main())
