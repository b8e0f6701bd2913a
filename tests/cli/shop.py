"""Jobs for commands to look at: a few tasks, and replicas that live as long as a test wants."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgspec

import tenure
from tenure import blocking
from tenure.app import engine_of
from tenure.core.jobs.history import AttemptLine, write_history
from tenure.core.jobs.records import JobRecord
from tenure.core.worker_info import write_serving
from tenure.runtime.attempts.reports import ErrorReport
from tests.cli.conftest import Place
from tests.rig.endings import settlement
from tests.rig.wait import wait_until_async

NOWHERE = "01890a5d-ac96-774b-bcce-000000000000"


class Shop:
    """An app with two tasks, for threads, and a hand in its store."""

    def __init__(self, place: Place) -> None:
        app = tenure.Tenure(place.url, namespace=place.namespace)

        @app.task
        async def resize(image: str, width: int = 800) -> int:
            return width

        @app.task(queue="mail", timeout=30, retention=0)
        async def send(user: int) -> None: ...

        self.resize, self.send = resize, send
        self.sync = blocking.Tenure(app)
        self._numbers = count(1)

    def claim(
        self,
        replica: str = "web-1",
        queues: Sequence[str] = ("default", "mail"),
        ttl: float = 600,
        **serving: Any,
    ) -> list[JobRecord]:
        """Let a replica run all that waits; with `serving` it says what that is."""
        store = engine_of(self.sync._app).store

        async def claim() -> list[JobRecord]:
            meta = write_serving(queues=queues, **serving) if serving else {}
            await store.jobs.beat([replica], ttl=ttl, meta={"host": replica, "pid": "4711", **meta})
            claimed = await store.jobs.claim(replica, next(self._numbers), queues, 200)
            return claimed.jobs

        return self.sync._portal().call(claim())

    def settle(self, record: JobRecord, outcome: str, **how: bytes | str | float) -> None:
        """End what a replica runs."""
        attempt = AttemptLine(1, record.replica, record.started, record.started + 1500, outcome)
        end = settlement(
            id=record.id,
            fence=record.fence,
            outcome=outcome,
            history=write_history([attempt]),
            **how,
        )
        store = engine_of(self.sync._app).store
        assert self.sync._portal().call(store.jobs.settle([end])) == ["settled"]

    def fail(self, record: JobRecord, message: str, trace: str = "") -> None:
        """End it with an error."""
        report = ErrorReport("ValueError", message, trace)
        self.settle(record, "failed", reason="error", error=msgspec.json.encode(report))


@contextmanager
def shop_at(place: Place) -> Iterator[Shop]:
    """Open a shop."""
    shop = Shop(place)
    with shop.sync:
        yield shop


def work_without_tasks(place: Place, *jobs: blocking.Job[Any]) -> None:
    """Let a worker that knows no task have these jobs, until it has handed all of them back."""

    async def work() -> None:
        app = tenure.Tenure(place.url, namespace=place.namespace)
        async with app, app.worker(queues=["default", "mail"]):
            await wait_until_async(lambda: all(job.refresh().history for job in jobs))

    asyncio.run(work())
