"""A synchronous app on a store that can hang, to see what an interrupted call leaves behind."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tenure
from tenure import blocking
from tenure.testing import Faults, FaultyStore
from tests.rig.wait import wait_until

TTL = 600


class Gates(Faults):
    """Calls to the store that hang until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.shut: set[str] = set()
        self.all_shut = False
        self.hanging: set[str] = set()

    def keeps(self, call: str) -> bool:
        return self.all_shut or call in self.shut


class GatedStore(FaultyStore):
    faults: Gates

    async def _pass(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        while self.faults.keeps(name):
            self.faults.hanging.add(name)
            await asyncio.sleep(0.005)
        return await super()._pass(name, call)


@dataclass
class Bench:
    """A synchronous app on a store that can hang, and a rival that sees what is left behind."""

    app: blocking.Tenure
    rival: blocking.Tenure
    gates: Gates
    task: tenure.Task[[], int]
    taken: blocking.Hold | None = None
    """What the rival keeps from the app."""
    go_on: threading.Event = field(default_factory=threading.Event)
    """Ends what blocks the event loop."""

    def take(self, name: str) -> Callable[[], bool]:
        """Let the rival hold a lock; return whether the app waits for it."""
        self.taken = self.rival.lock(name, ttl=TTL).acquire()
        return lambda: any(lease.waiting for lease in self.rival.locks(name))

    def shut(self, call: str) -> Callable[[], bool]:
        """Let a call to the store hang from now on; return whether one does."""
        self.gates.shut.add(call)
        return lambda: call in self.gates.hanging

    def shut_all(self) -> Callable[[], bool]:
        """Let all calls to the store hang from now on; return whether one does."""
        self.gates.all_shut = True
        return lambda: bool(self.gates.hanging)

    def block_loop(self) -> None:
        """Let nothing begin on the event loop of the app from now on."""
        self.app._portal()._loop.call_soon_threadsafe(self.go_on.wait, 60)

    def let_through(self) -> None:
        self.go_on.set()
        self.gates.shut.clear()
        self.gates.all_shut = False
        if self.taken is not None:
            self.taken.release()

    def job(self) -> blocking.Job[int]:
        return self.app.enqueue(self.task.request())

    def timer(self) -> blocking.TimerHandle:
        return self.app.timer_handle("hourly")


@contextmanager
def set_up(url: str, namespace: str) -> Iterator[Bench]:
    gc.collect()  # what earlier tests have left is none of ours
    gates = Gates()
    declared = tenure.Tenure(GatedStore(url, gates, namespace=namespace))

    @declared.task
    async def never() -> int:
        return 1

    @declared.timer(every="1h")
    async def hourly() -> None: ...

    with blocking.Tenure(url, namespace=namespace) as rival:
        app = blocking.Tenure(declared)
        app.open()
        bench = Bench(app, rival, gates, never)
        yield bench
        bench.let_through()
        close_at_once(app)


def close_at_once(app: blocking.Tenure) -> None:
    closing = threading.Thread(target=app.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive(), "close() hangs"


def check_nothing_stays(bench: Bench) -> None:
    bench.let_through()
    wait_until(lambda: not bench.rival.locks(), timeout=20, what="nothing is held or waited for")
    with bench.app.lock("usable", wait=10) as hold:
        assert hold.is_held
    assert bench.app.with_lock("usable", lambda: 7, ttl=TTL).value == 7
    close_at_once(bench.app)
    bench.app.open()
    assert bench.app.locks() == []
