"""A router on a memory store in virtual time, with a test in the place of the worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tenure import Tenure
from tenure.core.jobs.records import Note
from tenure.http import AsyncRouter
from tenure.testing import Faults, FaultyStore, ManualClock
from tests.http.wire import client_of
from tests.rig.endings import settlement


class Scene:
    """One router on a memory store; the test claims, notes and settles jobs."""

    def __init__(self, clock: ManualClock, faults: Faults, **options: Any) -> None:
        self.clock = clock
        self.app = Tenure(FaultyStore("memory://", faults, clock=clock), grace=0)
        self.router = AsyncRouter(self.app, prefix="/r", owner=lambda: "ann", **options)
        self.store = self.app._store
        self._fence = self._claims = 0

        @self.router.post("")
        async def build() -> int: ...

        @self.router.post("/csv", media_type="text/csv", name="csv")
        async def as_csv() -> str: ...

    @asynccontextmanager
    async def served(self) -> AsyncIterator[httpx2.AsyncClient]:
        async with self.app, client_of(self.router.asgi) as client:
            await self.store.jobs.beat(["r1"], ttl=100_000, meta={})
            yield client

    async def claim(self) -> str:
        self._claims += 1
        [job] = (await self.store.jobs.claim("r1", self._claims, ["default"], 1)).jobs
        self._fence = job.fence
        return job.id

    async def note(self, id_: str, progress: float) -> None:
        await self.store.jobs.note([Note(id=id_, fence=self._fence, progress=progress)])

    async def settle(self, id_: str, outcome: Any = "succeeded", **more: Any) -> None:
        done = settlement(id=id_, fence=self._fence, outcome=outcome, **more)
        assert await self.store.jobs.settle([done]) == ["settled"]

    def make_deaf(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Drop all wake-ups from now on."""

        class Bell:
            async def wait(_, seconds: float) -> None:  # noqa: N805 - the scene is self
                await self.clock.sleep(seconds)

        @asynccontextmanager
        async def watch(*_: object) -> AsyncIterator[Bell]:
            yield Bell()

        monkeypatch.setattr(self.store, "watch", watch)


async def begun(clock: ManualClock, asking: Any) -> asyncio.Task[httpx2.Response]:
    """Return a request that waits for something."""
    task = asyncio.create_task(asking)
    await clock.advance(0)
    return task


def prefer(wait: object, **more: str) -> dict[str, str]:
    return {"Prefer": f"wait={wait}", **more}
