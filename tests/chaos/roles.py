"""The roles of processes of the chaos, and the part that all of them share."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from tenure import StoreError, Tenure
from tests.chaos.diary import Diary
from tests.chaos.sink import SinkClient


class Order(Struct, kw_only=True, forbid_unknown_fields=True):
    """Who a process is, and where everything lies."""

    role: str
    by: str
    url: str
    namespace: str
    folder: str
    names: list[str] = []
    """The locks that a holder takes; those with a limit above 1 are semaphores."""
    limits: dict[str, int] = {}
    ttl: float = 1.0
    """Of the locks, and of the replicas."""
    replica_ttl: float = 0.0
    """Of the replicas, if theirs is another one."""
    loss_budget: int = 50
    concurrency: int = 4
    tasks: list[str] = []
    """What a producer asks for."""
    longest: float = 0.8
    """The most seconds that a handler or a holder takes, if nothing stops it."""
    pace: float = 0.1
    """Seconds between two offers of a producer, or between two stays of a holder."""
    delay: float = 0.0
    """The most seconds that a producer delays a job."""
    ballast: int = 0
    """Bytes that each job of a producer carries beside its arguments."""
    memory: int = 0
    """Bytes that the process may take, if not 0."""
    group: str = ""
    """Where control groups may be made, if anywhere."""


class Actor:
    """One process of the chaos, from its start to its end."""

    def __init__(self, order: Order) -> None:
        folder = Path(order.folder)
        self.order = order
        self.chance = random.Random(f"{order.by} {os.getpid()}")
        self.diary = Diary(folder, order.by)
        self.sink = SinkClient(folder, order.by)
        self.asked_to_stop = asyncio.Event()
        self.is_in_group = False
        """Whether a control group watches its memory."""

    def app(self) -> Tenure:
        """Make the app that this process works with; its events go to the diary."""
        order = self.order
        app = Tenure(
            order.url,
            namespace=order.namespace,
            replica_ttl=order.replica_ttl or order.ttl,
            loss_budget=order.loss_budget,
            grace=5,
        )
        app.on_event(self._note)
        return app

    def _note(self, event: Any) -> None:
        facts = {name: getattr(event, name, None) for name in ("job", "fence", "outcome")}
        recovered = [*getattr(event, "waiting", ()), *getattr(event, "failed", ())]
        self.diary.write(
            type(event).__name__,
            ids=recovered,
            **{name: value for name, value in facts.items() if value is not None},
        )

    @asynccontextmanager
    async def opened(self, app: Tenure) -> AsyncIterator[Tenure]:
        """Open the app; wait for the store if it is away."""
        while True:
            try:
                await app.open()
                break
            except StoreError as error:
                self.diary.write("unavailable", detail=type(error).__name__)
                await asyncio.sleep(0.1)
        try:
            yield app
        finally:
            await app.close()

    async def until_told(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do the same thing again and again, until SIGTERM; outages are no reason to end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.asked_to_stop.set)
        while not self.asked_to_stop.is_set():
            try:
                await act()
            except StoreError as error:
                self.diary.write("unavailable", detail=f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.05)
