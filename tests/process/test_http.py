"""Endpoints of real services: an accepted job exists exactly once, whichever process dies."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path

import httpx2
import pytest

from tests.process.job_ledger import JobLedger
from tests.process.site import Site
from tests.rig.processes import Child
from tests.rig.servers import free_port
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

CLIENTS = 5
POSTS = max(10, SIZE.jobs // 25)


class Service:
    """The API servers and workers of one service."""

    def __init__(self, site: Site, ledger: JobLedger) -> None:
        self.site = site
        self.ledger = ledger
        self.ports: list[int] = []
        self._servers: dict[int, Child] = {}

    def serve(self, port: int | None = None) -> int:
        """Start an API server, or start one again."""
        port = port or free_port()
        self._servers[port] = self._start("api", port)
        if port not in self.ports:
            self.ports.append(port)
        return port

    def work(self) -> Child:
        return self._start("worker")

    def _start(self, *arguments: object) -> Child:
        child = self.site.start("http_service", self.ledger.path, *arguments)
        child.expect("ready", SIZE.patience)
        return child

    def kill(self, port: int) -> None:
        self._servers[port].kill()

    def terminate(self, port: int) -> None:
        server = self._servers[port]
        server.terminate()
        # uvicorn raises the signal once more when it has finished what it was at.
        assert server.wait(SIZE.patience) == -signal.SIGTERM, server.story()


@pytest.fixture
async def service(site: Site, tmp_path: Path) -> AsyncIterator[Service]:
    ledger = JobLedger(tmp_path / "ledger")
    async with site.app():  # makes the tables, before several do so at once
        pass
    yield Service(site, ledger)
    ledger.close()


@asynccontextmanager
async def posting(service: Service) -> AsyncIterator[dict[int, set[str]]]:
    """Post while the block lasts, and until all is accepted; give the addresses of each number.

    A client that gets no answer asks the next server for the same thing, with the same key.
    """
    addresses: dict[int, set[str]] = {}

    async def client(first: int) -> None:
        async with httpx2.AsyncClient(timeout=5, headers={"x-user": "ann"}) as line:
            for number in range(first, first + POSTS):
                addresses[number] = await insist(line, number)
                await asyncio.sleep(0.002)

    async def insist(line: httpx2.AsyncClient, number: int) -> set[str]:
        locations: set[str] = set()
        for port in cycle(service.ports):
            try:
                answer = await line.post(
                    f"http://127.0.0.1:{port}/rows",
                    json={"number": number},
                    headers={"Idempotency-Key": f"key-{number}"},
                )
            except httpx2.TransportError:
                await asyncio.sleep(0.02)
                continue
            if answer.status_code == 202:
                locations.add(answer.headers["location"])
                # Every fifth answer is taken for lost, until it is plain that it was not the first.
                if number % 5 or answer.headers.get("idempotency-replayed"):
                    return locations
            else:
                assert answer.status_code == 503, answer.text
                await asyncio.sleep(0.02)
        raise AssertionError

    clients = asyncio.gather(*(client(index * POSTS) for index in range(CLIENTS)))
    try:
        yield addresses
    finally:
        await asyncio.wait_for(clients, 3 * SIZE.patience)


async def during(addresses: dict[int, set[str]], part: float, act: Callable[[], object]) -> None:
    """Do something once a part of all is accepted."""
    threshold = int(part * CLIENTS * POSTS)
    await wait_until_async(
        lambda: len(addresses) >= threshold, 3 * SIZE.patience, f"{threshold} posts"
    )
    await asyncio.to_thread(act)


async def settled(service: Service, addresses: dict[int, set[str]]) -> Counter[int]:
    """Return how often each number ran, when all is done and every one has one job and result."""
    assert {len(jobs) for jobs in addresses.values()} == {1}, "two jobs for one key"
    async with service.site.app() as app:

        async def is_done() -> bool:
            return not await app.queues()

        await wait_until_async(is_done, 3 * SIZE.patience, "all jobs are done")
        jobs, cursor = [], None
        while page := await app.jobs(limit=1000, cursor=cursor):
            jobs += page
            cursor = page.cursor
            if cursor is None:
                break
    stored = {f"/rows/jobs/{job.id}" for job in jobs}
    assert stored == {address for jobs in addresses.values() for address in jobs}
    assert {job.state for job in jobs} == {"succeeded"}
    await results_are_right(service, addresses)
    return Counter(line.number for line in service.ledger.read("ran"))


async def results_are_right(service: Service, addresses: dict[int, set[str]]) -> None:
    base = f"http://127.0.0.1:{service.ports[0]}"
    async with httpx2.AsyncClient(base_url=base, headers={"x-user": "ann"}) as line:
        for number, [address] in list(addresses.items())[::7]:
            assert (await line.get(f"{address}/result")).json() == 2 * number


async def test_whatever_was_accepted_before_a_kill_is_there_once(service: Service):
    port = service.serve()
    service.work()
    async with posting(service) as addresses:
        for part in (0.3, 0.7):
            await during(addresses, part, lambda: (service.kill(port), service.serve(port)))
    ran = await settled(service, addresses)
    assert set(ran) == set(range(CLIENTS * POSTS))
    assert set(ran.values()) == {1}


@pytest.mark.proof("test_whatever_was_accepted_before_a_kill kills, which is harder")
async def test_a_rolling_restart_under_load_loses_and_doubles_nothing(service: Service):
    first, second = service.serve(), service.serve()
    workers = [service.work(), service.work()]

    def roll(port: int, place: int) -> None:
        """Put a new server and a new worker in the places of old ones."""
        service.terminate(port)
        service.serve(port)
        workers[place].terminate()
        assert workers[place].wait(SIZE.patience) == 0, workers[place].story()
        workers[place] = service.work()

    async with posting(service) as addresses:
        await during(addresses, 0.3, lambda: roll(first, 0))
        await during(addresses, 0.7, lambda: roll(second, 1))
    ran = await settled(service, addresses)
    assert set(ran) == set(range(CLIENTS * POSTS))
    assert set(ran.values()) == {1}
