"""Replicas of a service with timers, in virtual time on the memory store."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from tenure import Tenure, Tick
from tenure.app import engine_of
from tenure.stores.contract import Store
from tenure.testing import Faults, FaultyStore, ManualClock

BEGIN = 1_800_000_000  # seconds; the clock's first instant, and a whole minute

Declare = Callable[[Tenure, "Replica"], None]


@dataclass(eq=False)
class Replica:
    """One process: an app of its own, and what its handlers did."""

    name: str
    app: Tenure
    faults: Faults
    ran: list[int] = field(default_factory=list)
    """Nominal instants, in seconds."""


class Fleet:
    """Some replicas that declare the same."""

    def __init__(self, store: Store, clock: ManualClock, declare: Declare) -> None:
        self._store = store
        self._clock = clock
        self._declare = declare
        self.replicas: list[Replica] = []

    def add(self, declare: Declare | None = None, **settings: object) -> Replica:
        """Return one more, not started."""
        faults = Faults()
        app = Tenure(FaultyStore(self._store.clone(), faults), **{"grace": 0, **settings})
        replica = Replica(f"replica {len(self.replicas)}", app, faults)
        (declare or self._declare)(app, replica)
        self.replicas.append(replica)
        return replica

    @asynccontextmanager
    async def running(self, number: int) -> AsyncIterator[None]:
        """Start so many, and stop them at the end."""
        async with AsyncExitStack() as stack:
            for _ in range(number):
                replica = self.add()
                await stack.enter_async_context(replica.app)
                await stack.enter_async_context(replica.app.worker())
            yield

    @property
    def ran(self) -> Counter[int]:
        """How often each tick has run, over all."""
        return Counter(tick for replica in self.replicas for tick in replica.ran)


def seconds_of(moment: datetime) -> int:
    return int(moment.timestamp())


def notes_ticks(body: float = 0.0, **options):
    """Declare a timer of one second whose handler takes so long."""

    def declare(app: Tenure, replica: Replica) -> None:
        clock = engine_of(app).store.clock

        @app.timer(**{"every": "1s", **options})
        async def work(tick: Tick) -> None:
            replica.ran.append(seconds_of(tick.nominal))
            await clock.sleep(body)

    return declare
