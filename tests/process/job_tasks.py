"""The tasks of the tests with worker processes; each writes what it does to the test's ledger."""

import asyncio
import ctypes
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tenure import Tenure, current_job
from tests.process.job_ledger import JobLedger
from tests.process.sink import FencedSink

_LOOK_EVERY = 0.02


def compute(gate: str) -> int:
    """Run in a process of its own until the test opens the gate; leave the pid beside it."""
    Path(f"{gate}.pid").write_text(str(os.getpid()))
    while not Path(gate).exists():
        time.sleep(_LOOK_EVERY)
    return os.getpid()


class Tasks:
    """The same tasks for producers and workers."""

    def __init__(self, app: Tenure, ledger: JobLedger) -> None:
        self._ledger = ledger
        self._leaked: list[bytes] = []
        self.nap = app.task(self._nap, name="nap")
        self.block = app.task(self._block, name="block")
        self.choke = app.task(self._choke, name="choke")
        self.stay = app.task(self._stay, name="stay")
        self.stay_blocking = app.task(self._stay_blocking, name="stay_blocking")
        self.poison = app.task(self._poison, name="poison")
        self.fork_and_stay = app.task(self._fork_and_stay, name="fork_and_stay")
        self.crash = app.task(self._crash, name="crash")
        self.hold_the_interpreter = app.task(self._hold_the_interpreter, name="hold")
        self.never_end = app.task(self._never_end, name="never_end", timeout=1)
        self.leak = app.task(self._leak, name="leak")
        self.devour = app.task(self._devour, name="devour")
        self.count = app.task(self._count, name="count")
        self.carry = app.task(self._carry, name="carry")
        self.compute = app.task(compute, executor="process")

    async def _nap(self, seconds: float) -> int:
        """Take a while."""
        with self._noted():
            await asyncio.sleep(seconds)
        return os.getpid()

    def _block(self, seconds: float) -> int:
        """Take a while in a thread, deaf to everything."""
        with self._noted():
            time.sleep(seconds)
        return os.getpid()

    async def _choke(self, seconds: float) -> int:
        """Keep the whole event loop for a while."""
        with self._noted():
            time.sleep(seconds)  # noqa: ASYNC251 - that is the point
        return os.getpid()

    async def _stay(self, gate: str) -> int:
        """Run until the test opens the gate, by making that file; then write to its sink."""
        with self._noted():
            while not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240, PTH110 - another process opens it
                await asyncio.sleep(_LOOK_EVERY)
            self._write_to_sink(gate)
        return os.getpid()

    def _stay_blocking(self, gate: str, each: bool = False) -> int:
        """Do the same in a thread, deaf to everything; with a gate for each attempt, if asked."""
        with self._noted():
            path = Path(f"{gate}-{current_job().attempt}" if each else gate)
            while not path.exists():
                time.sleep(_LOOK_EVERY)
            self._write_to_sink(gate)
        return os.getpid()

    async def _poison(self) -> None:
        """Kill the process, once its neighbours have begun."""
        with self._noted():
            await asyncio.sleep(0.2)
            os._exit(3)

    async def _fork_and_stay(self, gate: str) -> int:
        """Leave a process behind that has all open files of this one, and run until told."""
        with self._noted():
            forked = os.fork()
            if forked == 0:
                time.sleep(60)  # noqa: ASYNC251 - it does nothing else
                os._exit(0)
            self._note("forked", number=forked)
            while not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240, PTH110 - another process opens it
                await asyncio.sleep(_LOOK_EVERY)
        return os.getpid()

    async def _crash(self) -> None:
        """Die as faulty C code does."""
        with self._noted():
            os.kill(os.getpid(), signal.SIGSEGV)

    async def _hold_the_interpreter(self, seconds: int) -> int:
        """Let no thread of the process run for a while, as C code may do."""
        with self._noted():
            ctypes.PyDLL(None).sleep(seconds)  # unlike CDLL it keeps the interpreter's lock
        return os.getpid()

    async def _never_end(self) -> None:
        """The same for ages, past every time-out; signals do not end this one."""
        with self._noted():
            re.match(r"(a+)+$", "a" * 50 + "b")

    async def _leak(self, megabytes: int) -> int:
        """Take memory and keep it."""
        with self._noted():
            self._leaked.append(os.urandom(1000) * (megabytes * 1000))
        return os.getpid()

    async def _devour(self) -> None:
        """Take memory until the process is killed."""
        with self._noted():
            while True:
                self._leaked.append(os.urandom(1000) * 10_000)
                await asyncio.sleep(_LOOK_EVERY)

    async def _count(self, number: int) -> int:
        """Be one of many."""
        with self._noted(number):
            await asyncio.sleep(0.005)
        return number

    async def _carry(self, ballast: str) -> int:
        """Take much room in the store."""
        with self._noted():
            await asyncio.sleep(0.005)
        return len(ballast)

    def _write_to_sink(self, gate: str) -> None:
        context = current_job()
        sink = FencedSink(Path(f"{gate}.{context.id}"))
        accepted = sink.write(context.fence, str(os.getpid()))
        self._note("wrote", detail="accepted" if accepted else "refused")

    def _note(self, what: str, **facts: str | int) -> None:
        context = current_job()
        self._ledger.write(
            what, job=context.id, attempt=context.attempt, fence=context.fence, **facts
        )

    @contextmanager
    def _noted(self, number: int = 0) -> Iterator[None]:
        self._note("began", number=number)
        try:
            yield
        except asyncio.CancelledError:
            self._note("stopped", number=number, detail=str(current_job().stop_reason))
            raise
        self._note("ended", number=number)
