"""Processes that enqueue jobs and work them off; every effect goes to the sink, with its fence."""

import asyncio
import ctypes
import os
import resource
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import psycopg

from tenure import AttemptOver, Backoff, Task, Tenure, Tick, current_job
from tenure.runtime.attempts.running_job import current
from tests.chaos.roles import Actor, Order

CANARY = "canary-7d1f"
"""Stands in the arguments of every job and must not be in any log."""
BOOKS = "chaos_books"
"""The users' own table, on stores that have tables."""

_SQLITE = "sqlite:///"
_NUMBERS_EACH = 1_000_000
_AT_ONCE = (1, 1, 1, 4)
_ATTEMPTS_MAX = 10_000
_AGAIN = 3.0
_ADDRESSES_FOR_EACH = 30


def result_of(number: int, claim: int) -> int:
    """Return what a job answers: it tells which claim has ended it."""
    return number * _ATTEMPTS_MAX + claim


def read_result(result: int) -> tuple[int, int]:
    """Return the number of a job, and the attempt that has ended it."""
    return divmod(result, _ATTEMPTS_MAX)


class Tasks:
    """The same tasks for producers and workers."""

    def __init__(self, app: Tenure, actor: Actor) -> None:
        self._actor = actor
        declare = partial(app.task, retry=Backoff(max_attempts=1000, base=0.01, cap=0.05))
        self.by_name: dict[str, Task[[int, str], int]] = {
            "toil": declare(name="toil")(self._toil),
            "grind": declare(name="grind")(self._grind),
            "book": declare(name="book")(self._book),
            "poison": declare(name="poison")(self._poison),
        }
        app.timer(every="1s", name="chime", overlap="allow")(self._chime)

    async def _chime(self, tick: Tick) -> None:
        """Leave a trace of the tick: whichever replica wins it, it is the only one."""
        nominal = round(tick.nominal.timestamp())
        self._actor.diary.write("chimed", tick=nominal, job=current_job().id, fence=tick.fence)

    async def _toil(self, number: int, secret: str) -> int:
        """Take a moment on the loop."""
        self._begin(number, secret)
        await asyncio.sleep(self._while())
        return self._end(number)

    def _grind(self, number: int, secret: str) -> int:
        """Take a moment in a thread, deaf to everything; the second time much longer.

        So whoever wakes from a pause comes to its end while its successor is at work. What was lost
        twice runs alone in its process, and must not take long.
        """
        self._begin(number, secret)
        again = _AGAIN * self._actor.order.longest if current_job().attempt == 2 else 0
        time.sleep(self._while() + again)
        return self._end(number)

    def _book(self, number: int, secret: str) -> int:
        """Write one line, in the transaction that ends the job, deaf to everything."""
        self._begin(number, secret)
        time.sleep(self._while())
        job, url = current_job(), self._actor.order.url
        db = sqlite3.connect(url.removeprefix(_SQLITE)) if _SQLITE in url else psycopg.connect(url)
        try:
            with job.transaction(db) as done:
                db.execute(f"INSERT INTO {BOOKS} VALUES ({number}, {job.fence})")
                done.result(result_of(number, claims()))
        except AttemptOver:
            self._note("refused", number)
            raise
        finally:
            db.close()
        self._note("booked", number)
        return -1

    async def _poison(self, number: int, secret: str) -> int:
        """Take memory until the process is ended for it."""
        self._begin(number, secret)
        await asyncio.sleep(0.1)
        devour(touch=self._actor.is_in_group)
        return -1

    def _while(self) -> float:
        chance = self._actor.chance
        longest = self._actor.order.longest
        return chance.uniform(0.2, 1) * longest if chance.random() < 0.5 else longest / 100

    def _begin(self, number: int, secret: str) -> None:
        assert secret.startswith(CANARY)
        self._note("began", number)
        self._actor.sink.write(current_job().id, current_job().fence)

    def _end(self, number: int) -> int:
        # No look whether the attempt is still the newest: that is what the fence is for.
        self._actor.sink.write(current_job().id, current_job().fence, once=True)
        self._note("ended", number)
        return result_of(number, claims())

    def _note(self, what: str, number: int) -> None:
        job = current_job()
        self._actor.diary.write(
            what,
            job=job.id,
            attempt=job.attempt,
            fence=job.fence,
            number=number,
            detail=job.task,
        )


def claims() -> int:
    """Return how often this job was claimed, as the store counts it: each claim has its own."""
    return current.get().record.attempt


def devour(*, touch: bool) -> None:
    """Take memory as C code does that does not look whether it got any; and use it, or not yet."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    size = 4 << 20
    while memory := libc.malloc(size):
        if touch:
            ctypes.memset(memory, 1, size)
    ctypes.memset(memory, 1, size)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    """Open a connection of the user's own, and what runs a statement on it."""
    if url.startswith(_SQLITE):
        db = sqlite3.connect(url.removeprefix(_SQLITE), isolation_level=None, timeout=5)

        async def execute(statement: str) -> list[Any]:
            return db.execute(statement).fetchall()

        try:
            yield db, execute
        finally:
            db.close()
        return
    connection = await asyncpg.connect(url)
    try:
        yield connection, connection.fetch
    finally:
        await connection.close()


async def work(order: Order) -> None:
    """Work until a signal."""
    actor = Actor(order)
    if order.memory:
        _limit_memory(actor)
    app = actor.app()
    Tasks(app, actor)
    async with actor.opened(app):
        actor.diary.write("works", number=os.getpid())
        await app.run_worker(concurrency=order.concurrency)


def _limit_memory(actor: Actor) -> None:
    """Let this process have so much memory more than it has now, or end."""
    order = actor.order
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if order.group and int(order.by.rpartition("-")[2]) % 2:
        actor.is_in_group = True
        group = Path(order.group) / order.by
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(order.memory))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        return
    # Addresses are taken by the gigabyte, for stacks and arenas of threads that use little of them.
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _ADDRESSES_FOR_EACH * order.memory
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


async def produce(order: Order) -> None:
    """Offer jobs until told to end; what an outage leaves unknown is only offered."""
    actor = Actor(order)
    app = actor.app()
    tasks = Tasks(app, actor).by_name
    numbers = count(int(order.by.rpartition("-")[2]) * _NUMBERS_EACH)
    turns = count()

    async def offer() -> None:
        task = tasks[actor.chance.choice(order.tasks)]
        if order.delay:
            task = task.using(delay=actor.chance.uniform(0, order.delay))
        batch = [next(numbers) for _ in range(_AT_ONCE[next(turns) % len(_AT_ONCE)])]
        for number in batch:
            actor.diary.write("offered", number=number)
        ballast = "x" * order.ballast
        jobs = await app.enqueue_many(
            task.request(number, f"{CANARY}-{number}{ballast}") for number in batch
        )
        for number, job in zip(batch, jobs, strict=True):
            now = job.record.created
            actor.diary.write("accepted", job=job.id, number=number, now=now, detail=job.task)
        await asyncio.sleep(actor.chance.uniform(0.5, 1.5) * order.pace)

    async with actor.opened(app):
        await actor.until_told(offer)
