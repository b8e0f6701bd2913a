"""A shop to look at: tasks that succeed, fail and wait, timers, and jobs in each state."""

import asyncio
from contextlib import AsyncExitStack

from tenure import Tenure
from tests.rig.wait import wait_until_async

HOSTILE = "'\"><img src=x onerror=alert(1)><script>alert(2)</script>"
LONG = "shop." + "a_module_with_a_long_name." * 7 + "task"


class Shop:
    """The tasks and timers of an app, and gates that its jobs wait for."""

    def __init__(self, app: Tenure) -> None:
        self.app = app
        self.gate = asyncio.Event()
        self.swept = 0

        @app.task(queue="mail")
        async def send_mail(user: int) -> str:
            return f"sent to {user}"

        @app.task(queue="billing", retry=0)
        async def charge(order: int) -> None:
            raise ValueError(f"no card for order {order}")

        @app.task(queue="reports")
        async def build_report(month: int) -> int:
            await self.gate.wait()
            return month

        @app.task(queue="catalog")
        async def import_catalog() -> None: ...

        @app.timer(every="1h")
        async def sweep() -> None:
            self.swept += 1

        app.schedule(import_catalog, cron="30 2 * * *", tz="Europe/Berlin", name="nightly")
        self.send_mail, self.charge = send_mail, charge
        self.build_report, self.import_catalog = build_report, import_catalog

    async def open(self, stack: AsyncExitStack) -> None:
        """Run a worker for all queues but "catalog"."""
        queues = ["mail", "billing", "reports"]
        await stack.enter_async_context(self.app.worker(queues=queues, concurrency=4))
        # The block ends first: jobs that wait at the gate must not hold up the worker.
        stack.callback(self.gate.set)
        await wait_until_async(self._is_declared)

    async def _is_declared(self) -> bool:
        return len(await self.app.timers()) == 2

    async def trade(self) -> dict[str, str]:
        """Bring about a job in each state; return their ids by state."""
        succeeded = await self.send_mail.enqueue(7)
        failed = await self.charge.enqueue(42)
        running = await self.build_report.enqueue(5)
        cancelled = await self.send_mail.using(delay="1h").enqueue(8)
        waiting = await self.import_catalog.using(tags=["acme"]).enqueue()
        await cancelled.cancel()
        await succeeded.wait(timeout=20)
        await failed.wait(timeout=20)

        async def is_running() -> bool:
            await running.refresh()
            return running.state == "running"

        await wait_until_async(is_running)
        jobs = (succeeded, failed, running, cancelled, waiting)
        return {job.state: job.id for job in jobs} | {"waiting": waiting.id}
