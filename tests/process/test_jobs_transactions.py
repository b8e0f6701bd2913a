"""Jobs in the user's own transactions, while processes are killed and paused."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from tenure import Job, Tenure
from tests.contract.worlds import chosen_families
from tests.process.accountant import Accounts
from tests.process.site import Site
from tests.process.test_paused_process import stop_between_writes
from tests.rig.processes import Child, Event, Fleet
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

WORKERS = 2
STRIKES = 2 if SIZE.name == "short" else 100
JOBS = 40  # enqueued before each strike
TTL = 1.0


class Books:
    """The users' table, and the workers that write to it."""

    def __init__(self, site: Site, app: Tenure, folder: Path) -> None:
        self.site = site
        self.app = app
        self.gate = folder / f"gate-{site.family}"
        self.table = f"booked_{site.namespace}"
        self.tasks = Accounts(app, site.url, self.table)

    def start(self, role: str, *arguments: object) -> Child:
        values = map(str, (role, self.site.url, self.site.namespace, self.table, *arguments))
        return self.site.fleet.start("-m", "tests.process.accountant", *values)

    async def run(self, statement: str) -> list[str]:
        if self.site.family == "sqlite":
            db = sqlite3.connect(self.site.url.removeprefix("sqlite:///"), isolation_level=None)
            try:
                return [row[0] for row in db.execute(statement)]
            finally:
                db.close()
        connection = await asyncpg.connect(self.site.url)
        try:
            return [row[0] for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    async def lines(self) -> list[str]:
        return await self.run(f"SELECT job FROM {self.table}")

    async def finished(self, *jobs: Job[int]) -> None:
        async def all_finished() -> bool:
            await asyncio.gather(*(job.refresh() for job in jobs if not job.is_finished))
            return all(job.is_finished for job in jobs)

        try:
            await wait_until_async(all_finished, 2 * SIZE.patience, f"{len(jobs)} jobs finished")
        except AssertionError as error:
            stories = [child.story() for child in self.site.fleet.children if child.running]
            raise AssertionError("\n".join([str(error), *stories])) from None


@asynccontextmanager
async def opened(site: Site, folder: Path) -> AsyncIterator[Books]:
    async with site.app() as app:
        books = Books(site, app, folder)
        await books.run(f"CREATE TABLE {books.table} (job TEXT, pid BIGINT)")
        yield books
        for child in site.fleet.children:
            child.kill()
        await books.run(f"DROP TABLE {books.table}")


@pytest.fixture
async def everywhere(
    request: pytest.FixtureRequest, namespace: str, fleet: Fleet, tmp_path: Path
) -> AsyncIterator[Callable[[Callable[[Books], Awaitable[None]]], Awaitable[None]]]:
    """Run a scenario on both databases side by side: it mostly waits."""
    urls = {
        "sqlite": lambda: f"sqlite:///{tmp_path / 'tenure.db'}",
        "postgres": lambda: request.getfixturevalue("postgres_server").url,
    }
    chosen = [family for family in urls if family in chosen_families(request.config)]
    sites = [Site(family, urls[family](), namespace, fleet) for family in chosen]
    async with AsyncExitStack() as stack:
        books = [await stack.enter_async_context(opened(site, tmp_path)) for site in sites]

        async def run(scenario: Callable[[Books], Awaitable[None]]) -> None:
            await asyncio.gather(*map(scenario, books))

        yield run


async def next_event(child: Child, kind: str) -> Event:
    """Return the next event of a kind, and let the other database go on meanwhile."""
    return await asyncio.to_thread(child.expect, kind, SIZE.patience)


async def test_a_job_lives_or_dies_with_the_commit_of_its_producer(everywhere):
    async def scenario(books: Books) -> None:
        before, after = books.start("order", "before"), books.start("order", "after")
        never = (await next_event(before, "enqueued"))["job"]
        job_id = (await next_event(after, "enqueued"))["job"]
        assert [await asyncio.to_thread(child.wait) for child in (before, after)] == [-9, -9]
        assert await books.lines() == ["order"]
        assert [job.id for job in await books.app.jobs()] == [job_id] != [never]
        job = await books.app.job(job_id)
        books.start("work")
        await books.finished(job)
        assert job.state == "succeeded"
        assert sorted(await books.lines()) == sorted(["order", job.id])

    await everywhere(scenario)


async def test_an_attempt_that_was_paused_cannot_write_after_its_successor(everywhere):
    async def scenario(books: Books) -> None:
        old = books.start("work")
        job = await books.tasks.book_later.enqueue(str(books.gate))
        await next_event(old, "began")
        heir = books.start("work")
        await wait_until_async(lambda: work_together(books, 2), SIZE.patience)
        await asyncio.to_thread(stop_between_writes, old, books.site)
        assert (await next_event(heir, "began"))["attempt"] == 2
        books.gate.with_name(f"{books.gate.name}-1").touch()
        old.cont()  # its thread knows nothing; the successor has not written yet
        assert (await next_event(old, "refused"))["attempt"] == 1
        assert await books.lines() == []
        books.gate.with_name(f"{books.gate.name}-2").touch()
        await books.finished(job)
        assert (job.state, job.attempt, await job.result()) == ("succeeded", 2, heir.pid)
        assert await books.lines() == [job.id]

    await everywhere(scenario)


async def work_together(books: Books, number: int) -> bool:
    return len(await books.app.replicas()) == number


async def test_effects_happen_once_while_workers_are_killed_and_paused(everywhere):
    async def scenario(books: Books) -> None:
        jobs = await rage(books)
        await books.finished(*jobs)
        assert {job.state for job in jobs} == {"succeeded"}
        assert Counter(await books.lines()) == {job.id: 1 for job in jobs}
        assert -1 not in await asyncio.gather(*(job.result() for job in jobs))
        assert {job.history[-1].outcome for job in jobs} == {"succeeded"}
        assert sum(job.losses for job in jobs) > 0, "nothing was ever taken over"

    await everywhere(scenario)


async def busiest(books: Books, workers: list[Child]) -> Child | None:
    """Return the worker with the most jobs in hand, if one has any."""
    held = {replica.meta["pid"]: replica.held for replica in await books.app.replicas()}
    first = max(workers, key=lambda worker: held.get(str(worker.pid), 0))
    return first if held.get(str(first.pid), 0) > 1 else None


async def rage(books: Books) -> list[Job[int]]:
    """Kill one worker amid its jobs, or pause it past its lease, and again; return all jobs."""
    workers = [books.start("work") for _ in range(WORKERS)]
    await wait_until_async(lambda: work_together(books, WORKERS), SIZE.patience)
    jobs: list[Job[int]] = []
    for strike in range(STRIKES):
        jobs += await books.app.enqueue_many(books.tasks.book.request() for _ in range(JOBS))
        victim = await wait_until_async(lambda: busiest(books, workers), SIZE.patience)
        workers.remove(victim)
        if strike % 2:
            await asyncio.to_thread(victim.kill)
            workers.append(books.start("work"))
        else:
            await asyncio.to_thread(stop_between_writes, victim, books.site)
            await asyncio.sleep(1.5 * TTL)
            victim.cont()
            workers.append(victim)
    return jobs
