"""The store of a simulation: the memory store, which records each of its answers.

It can be down, come back without its data, or come back without its last writes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from tenure.core.leases import Pong, Topic
from tenure.stores.contract import Migrate
from tenure.stores.memory import MemoryStore
from tenure.stores.memory.database import Database, Namespace
from tests.sim.clock import StoreClock
from tests.sim.history import History
from tests.sim.recorder import Recorder
from tests.sim.store_parts import ServerJobs, ServerLeases, ServerSchedules

__all__ = ["Server"]

NAMESPACE = "sim"


class Server(MemoryStore):
    """One store for all machines."""

    jobs: ServerJobs
    schedules: ServerSchedules

    def __init__(self, clock: StoreClock, history: History) -> None:
        self.database = Database()
        super().__init__("memory://", namespace=NAMESPACE, clock=clock, database=self.database)
        self.recorder = Recorder(clock, history)
        self.leases = ServerLeases(self, self.recorder)
        self.jobs = ServerJobs(self, self.recorder)
        self.schedules = ServerSchedules(self, self.jobs, self.recorder)
        self._current = self.database.namespace(NAMESPACE)
        self.store_clock = clock
        self.is_down = False
        self.slowness = 0.0
        """How much longer than usual a call takes at most, in seconds."""
        self.lost_writes = 0
        self._copy: tuple[int, Namespace] | None = None

    async def open(self, migrate: Migrate = "auto") -> None:
        # Only the fleet's listener hears wake-ups: the listeners of a database have no fixed order.
        if self._loop is None:
            listeners = self.database.listeners.copy()
            await super().open(migrate)
            self.database.listeners.clear()
            self.database.listeners.update(listeners)

    def listen(self, on_topic: Callable[[Topic], None]) -> None:
        """Call `on_topic` for each wake-up that the store sends."""
        self.database.listeners.add(lambda _, topic: on_topic(topic))

    @property
    def data(self) -> Namespace:
        """The data of the namespace. It is read very often, so this skips the look-up by name."""
        return self._current

    def bring_up(self) -> None:
        self.is_down = False

    def next_edge(self, time: float) -> float:
        """Return the next time, within half a second, at which a lease ends or a job is due."""
        data, clock = self.data, self.store_clock
        keys, jobs = data.keys.values(), data.jobs
        instants = [grant.expires for key in keys for grant in key.grants.values()]
        instants += [waiter.expires for key in keys for waiter in key.line.values()]
        instants += [replica.renewed + replica.ttl for replica in jobs.replicas.values()]
        instants += [job.due for job in jobs.jobs.values() if job.state == "waiting"]
        edges = (clock.time_of(instant) for instant in instants)
        return min((edge for edge in edges if time <= edge < time + 0.5), default=time)

    def answered(self, process: str, call: str, answer: Any) -> None:
        """Record the answers that a process has to act on, when they reach it."""
        match call:
            case "beat":
                self.jobs.record_received(process, answer)
            case "commit":
                self.schedules.record_received(process, answer)

    async def ping(self) -> Pong:
        pong = await super().ping()
        self.recorder.record("read the time", holder=self.recorder.caller)
        return pong

    def leases_left(self) -> list[str]:
        """Return the holders and waiters that a caller of the store would see now."""
        now = self.store_clock.wall()
        self.recorder.record("listed")
        left: list[str] = []
        for name, key in self.data.keys.items():
            key.settle(now)
            left += [f"{name} {holder[:8]}" for holder in (*key.grants, *key.line)]
        return left

    # Losing data.

    def lose_everything(self) -> None:
        self.lost_writes += self.recorder.writes
        self._current = Namespace()
        self.recorder.record("emptied")

    def lose_after(self, writes: int, then: Callable[[], None]) -> None:
        """Copy the data, and call `then` after so many more writes; it calls `lose_tail`."""
        recorder = self.recorder
        self._copy = (recorder.writes, deepcopy(self.data))
        last = recorder.writes + writes
        recorder.on_write = lambda: then() if recorder.writes >= last else None
        recorder.record("copied")

    def lose_tail(self) -> None:
        """Go back to the copy, if there is an unused one: writes since then are lost."""
        if self._copy is not None:
            writes, self._current = self._copy
            self.forget_copy()
            self.lost_writes += self.recorder.writes - writes
            self.recorder.record("rolled back")

    def forget_copy(self) -> None:
        """Drop the copy: no writes will be lost."""
        self._copy = None
        self.recorder.on_write = lambda: None
