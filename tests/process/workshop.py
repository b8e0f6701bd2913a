"""Where worker processes work: a site, its ledger, and the test's own app that enqueues."""

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure import Tenure
from tenure.core.jobs.states import FINISHED
from tenure.errors import StoreUnavailable
from tenure.jobs import Job
from tests.process.job_ledger import JobLedger, Line
from tests.process.job_tasks import Tasks
from tests.process.orders import boot
from tests.process.site import Site
from tests.rig.processes import Child, Event
from tests.rig.servers import Postgres, Valkey
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

Scenario = Callable[["Workshop"], Awaitable[None]]


@dataclass
class Workshop:
    """Workers, what they do, and what the store says about it."""

    site: Site
    folder: Path
    app: Tenure
    tasks: Tasks
    ledger: JobLedger
    server: Valkey | Postgres | None = None
    """If it is the test's own, to be killed and restarted."""
    gates: int = 0

    # Processes.

    def hire(self, **settings: float) -> Child:
        """Start one more worker; the settings are those of `job_worker`."""
        options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        return self.site.start("job_worker", self.ledger.path, *options)

    async def hired(self, number: int = 1, **settings: float) -> list[Child]:
        """Start workers and return when they may get jobs."""
        workers = [self.hire(**settings) for _ in range(number)]
        await self.joined(*workers)
        return workers

    async def joined(self, *workers: Child) -> None:
        """Wait until these workers are known to the store."""

        async def have_joined() -> bool:
            for worker in workers:
                assert worker.running, worker.story()
            pids = {
                replica.meta["pid"]
                for replica in await self.app.replicas()
                if replica.expires_in > 0
            }
            return pids >= {str(worker.pid) for worker in workers}

        await self.until(have_joined, "the workers have joined")

    async def heard(self, child: Child, kind: str, fits: Callable[[Event], bool] = bool) -> Event:
        """Return the first such event that a child has told."""

        def first_event() -> Event | None:
            return next(
                (event for event in child.events if event["kind"] == kind and fits(event)), None
            )

        try:
            return await wait_until_async(first_event, SIZE.patience, f"{kind} is told")  # type: ignore[return-value]
        except AssertionError as error:
            raise AssertionError(f"{error}\n{child.story()}") from None

    async def exited(self, child: Child) -> int:
        """Return the exit code of a child that ought to end soon."""
        await self.until(lambda: not child.running, f"{child.name} ends")
        return child.wait()

    # The ledger.

    def gate(self) -> Path:
        """Return the path of a gate that is still closed."""
        self.gates += 1
        return self.folder / f"gate-{self.site.family}-{self.gates}"

    def lines(self, what: str, *jobs: Job[Any], **fields: object) -> list[Line]:
        """Return the lines of one kind, of these jobs or of all."""
        ids = {job.id for job in jobs}

        def fits(line: Line) -> bool:
            values = all(getattr(line, name) == value for name, value in fields.items())
            return values and (not ids or line.job in ids)

        return self.ledger.read(what, fits)

    async def written(self, what: str, *jobs: Job[Any], **fields: object) -> list[Line]:
        """Return the first such line of each of these jobs, when all are there."""

        def first_lines() -> list[Line]:
            first: dict[str, Line] = {}
            for line in self.lines(what, *jobs, **fields):
                first.setdefault(line.job, line)
            return [first[job.id] for job in jobs] if len(first) == len(jobs) else []

        return await self.until(first_lines, f"{len(jobs)} jobs have {what}, with {fields}")

    # The store.

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for something that ought to happen soon, over outages."""

        async def answer_or_none() -> Any:
            try:
                answer = condition()
                return await answer if hasattr(answer, "__await__") else answer
            except StoreUnavailable:
                return None

        try:
            return await wait_until_async(
                answer_or_none, SIZE.patience, f"{self.site.family}: {what}"
            )
        except AssertionError as error:
            counts = [child.story() for child in self.site.fleet.children if child.running]
            raise AssertionError("\n".join([str(error), *counts])) from None

    async def finished(self, *jobs: Job[Any]) -> None:
        """Wait until these jobs have finished, however; they show how."""

        async def all_finished() -> bool:
            open_ = [job for job in jobs if job.state not in FINISHED]
            await asyncio.gather(*(job.refresh() for job in open_))
            return all(job.state in FINISHED for job in jobs)

        await self.until(all_finished, f"{len(jobs)} jobs have finished")

    async def pick_up_latency(self, number: int = 5) -> float:
        """Return how long a job that comes to sleeping workers typically waits for its start."""
        latencies = []
        for _ in range(number):
            enqueued = boot()
            job = await self.tasks.nap.enqueue(0)
            [line] = await self.written("began", job)
            latencies.append(line.boot - enqueued)
            await self.finished(job)
            await asyncio.sleep(0.1)  # for the workers to fall asleep
        return statistics.median(latencies)


@asynccontextmanager
async def opened(
    site: Site, folder: Path, server: Valkey | Postgres | None = None
) -> AsyncIterator[Workshop]:
    """Open a workshop on a site."""
    app = site.app()
    ledger = JobLedger(folder / f"ledger-{site.family}")
    async with app:
        yield Workshop(site, folder, app, Tasks(app, ledger), ledger, server)
    ledger.close()


async def on_each(shops: Iterable[Workshop], scenario: Scenario) -> None:
    """Run a scenario on all stores side by side; the first failure ends all."""
    running = [asyncio.ensure_future(scenario(shop)) for shop in shops]
    try:
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def runs_to_its_end(shop: Workshop, job: Job[Any]) -> tuple[int, int]:
    """Return how often a job began, and how often it came to its end."""
    return len(shop.lines("began", job)), len(shop.lines("ended", job))
