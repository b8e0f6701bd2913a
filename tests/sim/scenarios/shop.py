"""A shop for an hour, with default settings: mails, payments, tenants and timers.

The mail server is down for ten minutes, the store restarts once, and one worker is killed per
minute. A sale fills all slots with jobs that wait for other jobs, and one tenant has thousands of
jobs in its queue while another one has three. `tests.sim.checks.shop` has the promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tenure.app import Tenure
from tenure.core.durations import micros
from tenure.jobs import Task, Unique
from tenure.runtime.attempts.job_context import current_job
from tenure.runtime.attempts.running_job import current
from tenure.timers import Tick
from tests.sim.fleet import Fleet, Process, current_process
from tests.sim.scenarios import customers, jobs
from tests.sim.scenarios.customers import Item
from tests.sim.scenarios.shop_plan import CHARGE, CHECKOUT, outage
from tests.sim.scenarios.startup import open_app

__all__ = ["aftermath", "end", "is_done", "program"]

_SAMPLE_EVERY: Final = 30.0
# Longer than a job that succeeded is kept by default.
_RETENTION: Final = 25 * 3600.0
# Workers look for what is no longer kept once in 30 to 90 s, and remove 1,000 jobs at a time.
_PRUNED_WITHIN: Final = 240.0


class Shop:
    """The tasks and timers of the shop, all with default settings."""

    def __init__(self, app: Tenure) -> None:
        self.app = app
        self.mail: Task[[Item], None] = app.task(name="mail", queue="mail")(mail)
        self.charge: Task[[Item], int] = app.task(name="charge")(charge)
        self.checkout: Task[[Item], int] = app.task(name="checkout")(self._checkout)
        self.big: Task[[Item], None] = app.task(name="report-big", queue="tenant-big")(report)
        self.small: Task[[Item], None] = app.task(name="report-small", queue="tenant-small")(report)
        app.timer(every="30s", name="refresh")(tick)
        app.timer(cron="*/5 * * * *", name="close-orders")(tick)

    async def _checkout(self, item: Item) -> int:
        """Charge the customer in a job of its own, and wait for its result."""
        async with _traced(item) as process:
            # Meanwhile a sale fills all slots, and no payment has been asked for yet.
            await process.clock.sleep(1.0)
            order = Item(item.number - CHECKOUT + CHARGE, 0.2)
            process.record("offered", number=order.number)
            payment = self.charge.using(unique=Unique(f"charge:{order.number}", keep="1d"))
            job = await payment.enqueue(order)
            process.record("accepted", number=order.number, job=job.id)
            return await job.result()


async def mail(item: Item) -> None:
    """Send a mail, unless the mail server is down."""
    async with _traced(item) as process:
        await process.clock.sleep(item.seconds)
        start, stop = outage(process.fleet.plan.seed)
        if start <= process.fleet.loop.time() < stop:
            raise ConnectionRefusedError("the mail server is down")
        process.record("delivered", job=current_job().id, number=item.number)


async def charge(item: Item) -> int:
    """Charge a customer."""
    async with _traced(item) as process:
        await process.clock.sleep(item.seconds)
        process.record("delivered", job=current_job().id, number=item.number)
        return item.number


async def report(item: Item) -> None:
    """Take some seconds."""
    async with _traced(item) as process:
        await process.clock.sleep(item.seconds)


async def tick(tick: Tick) -> None:
    """Leave a trace of a tick."""
    process, job = current_process.get(), current.get()
    process.record(
        "ticked",
        key=tick.name,
        tick=micros(tick.nominal.timestamp()),
        job=job.id,
        fence=tick.fence,
        attempt=tick.attempt,
        number=job.tries,
    )
    await process.clock.sleep(0.5)


@asynccontextmanager
async def _traced(item: Item) -> AsyncIterator[Process]:
    """Write down how an attempt begins and ends, and leave its effect."""
    process, job = current_process.get(), current_job()
    id_, fence, attempt = job.id, job.fence, job.attempt
    process.record("began", number=item.number, job=id_, fence=fence, attempt=attempt)
    try:
        yield process
    except asyncio.CancelledError:
        process.record("stopped", job=id_, fence=fence, attempt=attempt)
        raise
    except Exception as error:
        cause = type(error).__name__
        process.record("failed", job=id_, fence=fence, attempt=attempt, detail=cause)
        raise
    process.fleet.resource.write(process.name, id_, fence)
    process.record("finished", job=id_, fence=fence, attempt=attempt)


async def program(process: Process) -> None:
    """Serve customers and work, until it is asked to stop."""
    app = Tenure(process.connect())
    shop = Shop(app)
    app.on_event(process.record_event)
    disk = process.machine.disk
    disk["requesting"] = 0
    if not await open_app(app, process):
        return
    try:
        async with app.worker() as worker:
            disk["worker"] = worker
            parts = [*customers.come(process, shop), _sample(process)]
            tasks = [asyncio.ensure_future(part) for part in parts]
            await process.stopping.wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    finally:
        disk["requesting"] = 0
        await app.close()


async def _sample(process: Process) -> None:
    """Write down now and then how much a process has in hand."""
    lane = process.lane
    while True:
        lane.tasks[:] = lane.unfinished()
        process.record("sampled", number=len(lane.tasks))
        await process.clock.sleep(_SAMPLE_EVERY)


def is_done(fleet: Fleet) -> bool:
    """Return whether the hour is over, and all jobs have ended."""
    return fleet.is_healed and not customers.are_asking(fleet) and jobs.have_ended(fleet)


async def aftermath(fleet: Fleet) -> None:
    """Let the retention of all jobs pass, and see how many records are left."""
    fleet.history.add(fleet.loop.time(), "world", "aftermath")
    fleet.server.jobs.record_final_states()
    clock, loop = fleet.server.store_clock, fleet.loop
    before = loop.time()
    clock.step(_RETENTION)
    fleet.history.add(before, "store", "stepped", seconds=_RETENTION, now=clock.wall())
    await asyncio.sleep(_PRUNED_WITHIN)
    left = len(fleet.server.data.jobs.jobs)
    fleet.history.add(loop.time(), "store", "sampled", number=left)


def end(fleet: Fleet) -> None:
    """Ask all processes to end, and start none any more."""
    for machine in fleet.machines:
        machine.is_finished = True
        machine.stop()
