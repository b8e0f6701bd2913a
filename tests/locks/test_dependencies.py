"""Locks in FastAPI dependencies with `yield`, through a real ASGI client.

FastAPI enters and leaves a plain dependency in whichever thread of its pool is idle, and an async
one in the task of the request.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Depends, FastAPI

from tenure import Tenure, blocking
from tests.rig.wait import wait_until

TTL = 600
LIMIT = 3


class Counts:
    """Who is inside, counted by the handlers themselves."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self.inside = 0
        self.most = 0
        self.threads: list[tuple[int, int]] = []

    def enter(self) -> None:
        with self._counting:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def leave(self) -> None:
        with self._counting:
            self.inside -= 1


@pytest.fixture
def sync_app(world_url: str, namespace: str) -> Iterator[blocking.Tenure]:
    with blocking.Tenure(world_url, namespace=namespace) as app:
        yield app


async def ask(api: FastAPI, path: str, times: int) -> list[int]:
    transport = httpx2.ASGITransport(api)
    async with httpx2.AsyncClient(transport=transport, base_url="http://t", timeout=50) as client:
        replies = await asyncio.gather(*(client.get(path) for _ in range(times)))
    assert {reply.status_code for reply in replies} == {200}
    return [reply.json()["fence"] for reply in replies]


@pytest.mark.parametrize("share", ["one object", "an object for each request"])
@pytest.mark.parametrize("handler", ["plain", "async"])
async def test_a_semaphore_in_a_plain_dependency(
    sync_app: blocking.Tenure, share: str, handler: str
):
    counts, shared = Counts(), sync_app.semaphore("gpu", LIMIT, ttl=TTL)

    def slot() -> Iterator[blocking.Hold]:
        semaphore = shared if share == "one object" else sync_app.semaphore("gpu", LIMIT, ttl=TTL)
        entered = threading.get_ident()
        with semaphore as hold:
            yield hold
            hold.check()
            counts.threads.append((entered, threading.get_ident()))

    Slot = Annotated[blocking.Hold, Depends(slot)]  # noqa: N806 - a type
    api = FastAPI()

    @api.get("/plain")
    def plain(hold: Slot) -> dict[str, Any]:
        counts.enter()
        threading.Event().wait(0.01)
        hold.check()
        counts.leave()
        return {"fence": hold.fence}

    @api.get("/async")
    async def asynchronous(hold: Slot) -> dict[str, Any]:
        counts.enter()
        await asyncio.sleep(0.01)
        hold.check()
        counts.leave()
        return {"fence": hold.fence}

    fences = await ask(api, f"/{handler}", 24)
    assert len(set(fences)) == 24
    assert counts.most <= LIMIT
    assert any(entered != left for entered, left in counts.threads), "always the same thread"
    wait_until(lambda: sync_app.locks() == [], timeout=20)


async def test_a_lock_in_a_plain_dependency_keeps_requests_apart(sync_app: blocking.Tenure):
    counts, lock = Counts(), sync_app.lock("report", ttl=TTL)

    def exclusive() -> Iterator[blocking.Hold]:
        with lock as hold:
            yield hold

    api = FastAPI()

    @api.get("/report")
    async def report(hold: Annotated[blocking.Hold, Depends(exclusive)]) -> dict[str, Any]:
        counts.enter()
        await asyncio.sleep(0.005)
        counts.leave()
        return {"fence": hold.fence}

    fences = await ask(api, "/report", 12)
    assert len(set(fences)) == 12
    assert counts.most == 1
    wait_until(lambda: sync_app.locks() == [], timeout=20)


async def test_a_shared_semaphore_in_an_async_dependency(world_url: str, namespace: str):
    async with Tenure(world_url, namespace=namespace) as app:
        counts, shared = Counts(), app.semaphore("gpu", LIMIT, ttl=TTL)

        async def slot() -> AsyncIterator[Any]:
            async with shared as hold:
                yield hold

        api = FastAPI()

        @api.get("/slot")
        async def use(hold: Annotated[Any, Depends(slot)]) -> dict[str, Any]:
            counts.enter()
            await asyncio.sleep(0.01)
            hold.check()
            counts.leave()
            return {"fence": hold.fence}

        assert len(set(await ask(api, "/slot", 24))) == 24
        assert counts.most <= LIMIT
        assert await app.locks() == []
