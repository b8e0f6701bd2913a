"""Durable jobs: typed tasks, a delay, a retry, a unique key, a result. Needs no server."""

import asyncio
import logging
from dataclasses import dataclass

from tenure import Backoff, JobFailed, Reject, Tenure, Unique, current_job

app = Tenure()


@dataclass
class Order:
    """The argument of a job; it is stored as JSON, by its types."""

    number: int
    items: list[str]


@app.task(retry=Backoff(max_attempts=3, base="100ms"))
async def pack(order: Order) -> int:
    job = current_job()
    if job.attempt == 1:
        raise ConnectionError("the packing machine is warming up")
    for place, item in enumerate(order.items, 1):
        job.progress(place / len(order.items), f"packed {item}")
    return len(order.items)


@app.task
def refund(order: int) -> None:
    raise Reject(f"order {order} was never paid")


async def main() -> None:
    async with app, app.worker():
        packing = pack.using(unique=Unique("order:7", keep="30d"))
        job = await packing.using(tags=["today"]).enqueue(Order(7, ["tea", "cup"]))
        same = await packing.enqueue(Order(7, ["tea", "cup"]))
        print("enqueued twice, one job:", job.id == same.id)
        print("items packed:", await job.result(timeout=10))
        print("attempts:", [(entry.attempt, entry.outcome) for entry in job.history])

        later = await pack.using(delay="300ms").enqueue(Order(8, ["pot"]))
        print("a delayed job is", later.state)
        print("later:", (await later.wait(timeout=10)).state)

        try:
            await (await refund.enqueue(9)).result(timeout=10)
        except JobFailed as failed:
            print("refused:", failed.reason, "-", failed.error)


logging.getLogger("tenure").setLevel(logging.CRITICAL)  # failures are printed here, not logged
asyncio.run(main())
