"""The store of a simulation: the memory store, which writes down all that it answers.

It can be away, come back without its data, or come back without its last writes.
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
from tests.sim.diary import Diary
from tests.sim.history import History
from tests.sim.parts import ServerJobs, ServerLeases, ServerSchedules

__all__ = ["Server"]

NAMESPACE = "sim"


class Server(MemoryStore):
    """One store for all machines."""

    jobs: ServerJobs
    schedules: ServerSchedules

    def __init__(self, clock: StoreClock, history: History) -> None:
        self.database = Database()
        super().__init__("memory://", namespace=NAMESPACE, clock=clock, database=self.database)
        self.diary = Diary(clock, history)
        self.leases = ServerLeases(self, self.diary)
        self.jobs = ServerJobs(self, self.diary)
        self.schedules = ServerSchedules(self, self.jobs, self.diary)
        self._current = self.database.namespace(NAMESPACE)
        self.store_clock = clock
        self.is_away = False
        self.slowness = 0.0
        """How much longer than usual everything takes, in seconds."""
        self.lost_writes = 0
        self._copy: tuple[int, Namespace] | None = None

    async def open(self, migrate: Migrate = "auto") -> None:
        # One listener for all, set by who made this: those of the database have no order.
        if self._loop is None:
            listeners = self.database.listeners.copy()
            await super().open(migrate)
            self.database.listeners.clear()
            self.database.listeners.update(listeners)

    def listen(self, hear: Callable[[Topic], None]) -> None:
        self.database.listeners.add(lambda _, topic: hear(topic))

    @property
    def data(self) -> Namespace:
        """All that it has. It is looked up very often, so it is not searched for by name."""
        return self._current

    def come_back(self) -> None:
        self.is_away = False

    def next_edge(self, time: float) -> float:
        """Return the next time, within half a second, at which something ends or is due."""
        data, clock = self.data, self.store_clock
        instants = [one.expires for key in data.keys.values() for one in key.grants.values()]
        instants += [one.expires for key in data.keys.values() for one in key.line.values()]
        instants += [one.renewed + one.ttl for one in data.jobs.replicas.values()]
        instants += [one.due for one in data.jobs.jobs.values() if one.state == "waiting"]
        times = (clock.time_of(instant) for instant in instants)
        return min((one for one in times if time <= one < time + 0.5), default=time)

    def answered(self, process: str, call: str, answer: Any) -> None:
        """Write down what a process is told and has to do something about."""
        match call:
            case "beat":
                self.jobs.say_what_is_told(process, answer)
            case "commit":
                self.schedules.say_what_is_told(process, answer)

    async def ping(self) -> Pong:
        pong = await super().ping()
        self.diary.say("told the time", holder=self.diary.caller)
        return pong

    def leases_left(self) -> list[str]:
        """Return who holds or waits, as a process that asks would see it."""
        now = self.store_clock.wall()
        self.diary.say("listed")
        left: list[str] = []
        for name, key in self.data.keys.items():
            key.settle(now)
            left += [f"{name} {holder[:8]}" for holder in (*key.grants, *key.line)]
        return left

    # Losing data.

    def lose_everything(self) -> None:
        self.lost_writes += self.diary.writes
        self._current = Namespace()
        self.diary.say("emptied")

    def lose_after(self, writes: int, then: Callable[[], None]) -> None:
        """After so many more writes, lose them: call `then`, which calls `lose_tail`."""
        diary = self.diary
        self._copy = (diary.writes, deepcopy(self.data))
        last = diary.writes + writes
        diary.on_write = lambda: then() if diary.writes >= last else None
        diary.say("copied")

    def lose_tail(self) -> None:
        """Go back to the copy, if there is one that was not used."""
        if self._copy is not None:
            writes, self._current = self._copy
            self.forget_copy()
            self.lost_writes += self.diary.writes - writes
            self.diary.say("fell back")

    def forget_copy(self) -> None:
        """Lose nothing any more."""
        self._copy = None
        self.diary.on_write = lambda: None
