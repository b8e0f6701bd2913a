"""The one writer of an open store: a thread that runs SQLite, and a short cut past it.

Calls queue up while a transaction runs, and all queued calls share the next one, with one commit.
Each call gets its own answer after the commit.

A brief call that finds the thread idle and the write lock free runs in the caller's thread: two
thread switches take several times as long as such a transaction (decision 6).
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tenure.core.clock import Clock
from tenure.core.leases import Topic
from tenure.errors import StoreError, TenureError
from tenure.stores.contract import Migrate
from tenure.stores.damage import Damage
from tenure.stores.sqlite.checkpoints import Checkpoints, Trouble
from tenure.stores.sqlite.database import Database, Mode
from tenure.stores.sqlite.errors import explained, is_busy, is_of_file
from tenure.stores.sqlite.machines import Presence
from tenure.stores.sqlite.statements import Transaction, bells_of
from tenure.stores.watchers import Watchers

__all__ = ["Work", "Writer"]

T = TypeVar("T")
Work: TypeAlias = Callable[[Transaction], T]

log = logging.getLogger("tenure")

# A waiter in another process sees a change within this time. A poll takes 3 µs, and only a store
# with waiters polls.
_LOOK_EVERY = 0.025

# Keeps a transaction, and so the wait of others for the write lock, below about 10 ms.
_BATCH_MAX = 256

# How many calls in a row may go past the thread. They never wait, so the loop's other tasks would
# not run, and only the thread copies the log.
_PAUSE_EVERY = 16

# A thread that has just answered releases the connection within microseconds.
_TURN_PATIENCE = 0.0002

_NO_DATABASE: Callable[[], None] = lambda: None  # noqa: E731 - as if it were a weak reference

_RUNG = "SELECT bell, rung FROM tenure_wake WHERE namespace = :namespace -- by primary key"


@dataclass(slots=True, eq=False)
class _Request:
    work: Work[Any]
    mode: Mode
    future: asyncio.Future[Any]
    answer: Any = None
    error: Exception | None = None


class Writer:
    """Runs work on the file. Create it on the event loop that will use it.

    The connection is a local variable of the thread. Other code has a weak reference, and checks
    the process id first. So no code uses or closes it after a fork: the thread does not exist in
    the child, and its variables are never released there.
    """

    def __init__(
        self,
        path: Path,
        migrate: Migrate,
        *,
        namespace: str,
        clock: Clock,
        watchers: Watchers,
        damage: Damage,
    ) -> None:
        self._path = path
        self._migrate = migrate
        self._namespace = namespace
        self._clock = clock
        self._watchers = watchers
        self._damage = damage
        self._watching = 0
        self._opening = True
        self._presence = Presence(path, clock)
        self._checkpoints = Checkpoints(path, clock)
        self._looks = Trouble(path, "reading wake-ups from")
        self._rung: dict[str, int] | None = None
        self._seen: int | None = None
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        # The holder of this lock may use the connection.
        self._turn = threading.Lock()
        self._db: Callable[[], Database | None] = _NO_DATABASE
        # Unanswered calls, and how many went past the thread in a row; the loop counts both.
        self._pending = 0
        self._passed = 0
        self._thread = threading.Thread(target=self._main, name="tenure-sqlite", daemon=True)
        self._thread.start()

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a child process."""
        return os.getpid() != self._pid

    async def run(self, work: Work[T], mode: Mode) -> T:
        """Return what `work` returns, once its transaction has been committed.

        The work may run more than once, but only the last run counts. It must not use the event
        loop.
        """
        if self.forked:
            msg = (
                f"{self._path} was opened before this process was forked, and connections do not "
                "survive that. Open the store in the process that uses it."
            )
            raise StoreError(msg)
        future: asyncio.Future[T] = self._loop.create_future()
        self._pending += 1
        self._queue.put(_Request(work, mode, future))
        return await future

    async def run_brief(self, work: Work[T]) -> T:
        """Do the same for work that takes microseconds and need not reach the disk.

        It never overtakes an earlier call.
        """
        self._passed += 1
        pause = self._passed % _PAUSE_EVERY == 0
        if self._pending == 0 and not self.forked:
            done = self._try_here(work, if_log_is_short=pause)
            if done is not None:
                if pause:
                    await self._clock.sleep(0)
                return done[0]
        return await self.run(work, Mode.WRITE)

    def _try_here(self, work: Work[T], *, if_log_is_short: bool) -> tuple[T] | None:
        """Run the work in the caller's thread if the connection is idle, and return its answer.

        On any error it rolls back and leaves the work to the thread, which repeats it and reports.
        """
        if not self._turn.acquire(timeout=_TURN_PATIENCE):
            return None
        try:
            db = self._db()
            if db is None or db.moved() or (if_log_is_short and db.log_is_long()):
                return None
            try:
                db.begin(Mode.WRITE, patient=False)
                self._presence.confirm(db)
                transaction = Transaction(db, self._namespace, self._clock, self._damage)
                answer = work(transaction)
                if transaction.lasting:
                    return None
                db.commit()
                self._presence.committed()
            except Exception:  # noqa: BLE001 - see above
                return None
            finally:
                db.rollback()
        finally:
            self._turn.release()
        for topic in transaction.rings:
            self._watchers.wake(topic)
        return (answer,)

    def end(self) -> None:
        """Let the thread finish all queued calls, close the file and end."""
        if not self.forked:
            self._queue.put(None)

    async def stop(self) -> None:
        """End the thread, and return when it has ended."""
        if not self.forked:
            self.end()
            await self._ended.wait()
            self._thread.join()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Poll for wake-ups from other processes in the block, after any work and every 25 ms."""
        self._watching += 1
        try:
            yield
        finally:
            self._watching -= 1

    # The methods below run in the thread, except for _settle.

    def _main(self) -> None:
        db: Database | None = None
        while (batch := self._next()) is not None:
            with self._turn:
                db = self._serve(db, batch)
                self._db = _NO_DATABASE if db is None else weakref.ref(db)
        with self._turn:
            self._db = _NO_DATABASE
            if db is not None:
                self._drop(db)
        self._tell(self._ended.set)

    def _next(self) -> list[_Request] | None:
        """Return all waiting calls; none if it is time to poll, and None at the end."""
        try:
            request = self._queue.get(timeout=_LOOK_EVERY if self._watching else None)
        except queue.Empty:
            return []
        batch: list[_Request] = []
        while request is not None:
            batch.append(request)
            if len(batch) == _BATCH_MAX or self._queue.empty():
                return batch
            request = self._queue.get()
        if not batch:
            return None
        self._queue.put(
            None
        )  # nothing comes after the end marker, which the next call finds at once
        return batch

    def _serve(self, db: Database | None, batch: list[_Request]) -> Database | None:
        """Run a batch and answer it. Returns the connection to continue with."""
        try:
            db = self._connected(db)
            rings = self._run(db, batch) if batch else []
        except Exception as error:  # noqa: BLE001 - every error must reach the callers
            for request in batch:
                request.error = self._explained(error)
            self._answer(batch, [], set())
            return self._doubted(db, error)
        try:
            bells = self._look(db) if self._watching else set()
            copy = self._checkpoints.is_due(db)
            # Usually there is no more work now. The loop's thread wakes up, and the two threads
            # would compete for the interpreter.
            self._answer(batch, rings, bells)
        except Exception as error:  # noqa: BLE001 - the batch is committed, it must be answered
            self._looks.tell(str(self._explained(error)))
            self._answer(batch, rings, set())
            return self._doubted(db, error)
        self._looks.end()
        trouble = self._checkpoints.run(db) if copy else None
        return db if trouble is None else self._doubted(db, trouble)

    def _connected(self, db: Database | None) -> Database:
        if db is not None and not db.moved():
            return db
        if db is not None:
            db.refuse_torn()
        there = Database(self._path, self._migrate, was_there=not self._opening)
        if db is not None:
            # Closed only now: if there is no other file yet, this one may come back.
            log.warning("%s was moved or replaced; using what is there now.", self._path)
            self._drop(db)
        self._opening = False
        self._seen = None
        self._presence = Presence(self._path, self._clock)
        return there

    def _explained(self, error: Exception) -> TenureError:
        return explained(error, self._path, opening=self._opening)

    def _doubted(self, db: Database | None, error: Exception) -> Database | None:
        """Return the connection if it is still usable after an error."""
        if db is None or is_busy(error) or isinstance(error, TenureError):
            return db
        self._drop(db)
        return None

    def _drop(self, db: Database) -> None:
        try:
            db.close()
        except sqlite3.Error as error:
            log.warning("closing %s failed: %s", self._path, error)

    def _run(self, db: Database, batch: list[_Request]) -> list[Topic]:
        """Run all work in one transaction, and again without failing work, until the rest succeeds.

        Returns the bells to ring.
        """
        # Drop cancelled calls, which no caller waits for and which have not begun.
        requests = [request for request in batch if not request.future.cancelled()]
        mode = max((request.mode for request in requests), default=Mode.READ)
        while good := [request for request in requests if request.error is None]:
            rings: list[Topic] = []
            db.begin(mode)
            try:
                if mode is not Mode.READ:
                    self._presence.confirm(db)
                changes = db.changes
                needed = self._do_all(db, good, rings, mode)
                if needed is not None and needed <= mode:
                    if mode is Mode.DURABLE and db.changes == changes:
                        # Only the trace of this machine is new. The next write stores it: for a
                        # trace alone, idle workers would make others wait for the disk.
                        return rings
                    db.commit()
                    if mode is not Mode.READ:
                        self._presence.committed()
                    return rings
                mode = max(mode, needed or mode)
            finally:
                db.rollback()
        return []

    def _do_all(
        self, db: Database, batch: list[_Request], rings: list[Topic], mode: Mode
    ) -> Mode | None:
        """Run the work. Returns how to commit it; None if one failed, and all must be rolled back.

        A failed one may have written a part of its changes.
        """
        needed = Mode.READ
        is_reading = mode is Mode.READ
        for request in batch:
            transaction = Transaction(
                db, self._namespace, self._clock, self._damage, is_reading=is_reading
            )
            try:
                request.answer = request.work(transaction)
            except Exception as error:
                if is_of_file(error):
                    raise
                request.error = self._explained(error)
                return None
            rings += transaction.rings
            if transaction.lasting:
                needed = Mode.DURABLE
        return needed

    def _look(self, db: Database) -> set[str]:
        """Return the bells that rang since the last poll."""
        seen = db.data_version()
        if seen == self._seen:
            return set()
        # In this order: a commit in between is read now, and seen as a change again next time.
        counts: dict[str, int] = dict(db.fetch(_RUNG, {"namespace": self._namespace}))
        before, self._rung, self._seen = self._rung, counts, seen
        if before is None:  # the first poll only reads the current counts
            return set()
        return {bell for bell, rung in counts.items() if before.get(bell) != rung}

    def _answer(self, batch: list[_Request], rings: list[Topic], bells: set[str]) -> None:
        if batch or rings or bells:
            self._tell(self._settle, batch, rings, bells)

    def _tell(self, callback: Callable[..., object], *values: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so no caller waits
            self._loop.call_soon_threadsafe(callback, *values)

    def _settle(self, batch: list[_Request], rings: list[Topic], bells: set[str]) -> None:
        self._pending -= len(batch)
        for topic in rings:
            self._watchers.wake(topic)
        for topic in self._watchers.topics if bells else ():
            if not bells.isdisjoint(bells_of(topic)):
                self._watchers.wake(topic)
        for request in batch:
            if request.future.done():
                continue  # cancelled meanwhile
            if request.error is not None:
                request.future.set_exception(request.error)
            else:
                request.future.set_result(request.answer)
