"""SQLite, statement by statement; each store object has its loop and its writer in two threads.

Statements wait at a gate, and so does the answer to a call. Where SQLite would wait for the write
lock, the statement reports to the gate instead, and is repeated after the lock has been released.
"""

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tenure.errors import StoreUnavailable
from tenure.stores.contract import Migrate, Store
from tenure.stores.sqlite import SqliteStore, database, writer
from tenure.stores.sqlite.database import Database
from tenure.testing import ManualClock
from tests.interleavings.orders import Fate, Op
from tests.interleavings.programs import STORES
from tests.interleavings.readings import Call
from tests.interleavings.scheduler import ITS_REPLY, Point, ViolationError

_MOMENT = 0.0005
_TICKS = 5  # of a loop: enough for a chain of wake-ups to run out
_PATIENCE = 20.0


class SqliteRig:
    """Several store objects on one file."""

    skips = False

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.counts: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._open_gate = True
        self._held: dict[int, Point] = {}
        self._orders: dict[Point, str] = {}
        self._replies: list[Point] = []
        self._finished: list[Op] = []
        self._tasks: dict[Op, asyncio.Task[None]] = {}
        self._writing: set[int] = set()
        self._threads: dict[threading.Thread, int] = {}
        self._loop_threads: set[threading.Thread] = set()
        self._threads_held: dict[int, threading.Thread] = {}
        self._opening = 0
        self._number = 0
        url = f"sqlite:///{folder / 'schedules.db'}"
        self._stores: list[Store] = [
            SqliteStore(url, namespace="none", clock=self.clock) for _ in range(STORES)
        ]
        self._loops = [asyncio.new_event_loop() for _ in range(STORES)]

    @contextmanager
    def running(self) -> Iterator["SqliteRig"]:
        """Open all stores, and close them."""
        real, writer.Database = writer.Database, self._database
        # Make a thread that has just answered yield its turn at once.
        patience, writer._TURN_PATIENCE = writer._TURN_PATIENCE, _PATIENCE / 10
        # A thread that finds the lock busy waits here until another one has released it.
        looks, database.LOOKS = database.LOOKS, 0
        threads = [threading.Thread(target=loop.run_forever, daemon=True) for loop in self._loops]
        try:
            for number, thread in enumerate(threads):
                thread.start()
                self._threads[thread] = self._opening = number
                self._loop_threads.add(thread)
                self._on(number, self._stores[number].open())
            yield self
        finally:
            self._open()
            for number, thread in enumerate(threads):
                self._on(number, self._stores[number].close())
                self._loops[number].call_soon_threadsafe(self._loops[number].stop)
                thread.join()
                self._loops[number].close()
            writer.Database, writer._TURN_PATIENCE = real, patience
            database.LOOKS = looks

    def begin(self, seed: int) -> None:
        del seed
        self._number += 1
        for store in self._stores:
            store.namespace = store._writer._namespace = f"s{self._number}"
        self._open_gate = False

    def start(self, op: Op) -> None:
        def begin() -> None:
            self._tasks[op] = self._loops[op.store].create_task(self._make(op))

        with self._changed:
            self._tasks[op] = None
        self._loops[op.store].call_soon_threadsafe(begin)
        self._let_run(op.store)
        self._settle()

    def parked(self) -> list[Point]:
        points = [self._held[store] for store in sorted(self._held)]
        able = [point for point in points if point.what != "the lock" or not self._writing]
        able += sorted(self._replies, key=lambda point: point.number)
        return able or points

    def release(self, point: Point) -> None:
        if point in self._replies:
            self._replies.remove(point)
            assert point.op is not None
            self._finished.append(point.op)
            return
        self._order(point, "go")
        self._settle()

    def break_at(self, point: Point) -> Fate:
        assert point.op is not None
        if point in self._replies:
            point.op.error = StoreUnavailable("the reply was lost on purpose")
            self.release(point)
            return "happened"
        self._order(point, "break")
        self._settle()
        return "never"

    def cancel(self, op: Op) -> None:
        replies = [point for point in self._replies if point.op is op]
        if replies:
            op.error = asyncio.CancelledError()
            self.release(replies[0])
            return
        for point in [point for point in self._held.values() if point.op is op]:
            point.op = None
        task = self._tasks.get(op)
        if task is None:  # answered, while its follow-up work is held up
            return
        self._loops[op.store].call_soon_threadsafe(task.cancel)
        self._let_run(op.store)
        self._settle()

    def finished(self) -> list[Op]:
        with self._changed:
            ops, self._finished = self._finished, []
        return ops

    def drain(self) -> None:
        self._open()
        self._settle()
        self._open_gate = False

    def ask(self, call: Call) -> object:
        self._open()
        answer: object = self._on(0, call.made_on(self._stores[0]))
        self._open_gate = False
        return answer

    # Code that runs in the threads of the stores.

    async def _make(self, op: Op) -> None:
        try:
            op.answer = await op.call.made_on(self._stores[op.store])
        except BaseException as error:  # noqa: BLE001 - the schedule judges it
            op.error = error
        with self._changed:
            del self._tasks[op]
            if op.error is None:
                self._replies.append(Point(op, ITS_REPLY, op.begun))
            else:
                self._finished.append(op)
            self._changed.notify_all()

    def _database(self, path: Path, migrate: Migrate, *, was_there: bool) -> Database:
        store = self._threads.setdefault(threading.current_thread(), self._opening)
        hold = partial(self._hold, store)
        return _GatedDatabase(path, migrate, hold, self._wrote, was_there=was_there)

    def _wrote(self, what: str) -> None:
        store = self._threads[threading.current_thread()]
        if what == "BEGIN IMMEDIATE":
            self._writing.add(store)
        elif what in ("COMMIT", "ROLLBACK"):
            self._writing.discard(store)

    def _hold(self, store: int, what: str) -> bool:
        """Wait until the schedule lets it go on; return whether the gates are open."""
        with self._changed:
            if self._open_gate:
                return True
            active = [op for op in self._tasks if op.store == store]
            point = Point(active[0] if active else None, what, store)
            self._held[store] = point
            self._threads_held[store] = threading.current_thread()
            self.counts["statements"] += 1
            self.counts["blocked statements"] += what == "the lock"
            self._changed.notify_all()
            self._changed.wait_for(lambda: point in self._orders or self._open_gate)
            self._held.pop(store, None)
            if self._orders.pop(point, "go") == "break":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise error
            return self._open_gate

    # How the schedule waits for them.

    def _order(self, point: Point, what: str) -> None:
        with self._changed:
            self._orders[point] = what
            self._held = {store: held for store, held in self._held.items() if held is not point}
            self._changed.notify_all()

    def _open(self) -> None:
        with self._changed:
            self._open_gate = True
            self._changed.notify_all()

    def _let_run(self, store: int) -> None:
        """Let a loop do its pending work, unless it is held up itself."""

        async def ticks() -> None:
            nonlocal is_done
            for _ in range(_TICKS):
                await asyncio.sleep(0)
            with self._changed:
                is_done = True
                self._changed.notify_all()

        is_done = False
        asyncio.run_coroutine_threadsafe(ticks(), self._loops[store])
        with self._changed:
            self._changed.wait_for(lambda: is_done or self._holds_loop(store), _PATIENCE)

    def _holds_loop(self, store: int) -> bool:
        is_loop = self._threads_held.get(store) in self._loop_threads
        return store in self._held and is_loop

    def _settle(self) -> None:
        """Wait until every store is held up or has nothing to do."""
        with self._changed:
            for _ in range(round(_PATIENCE / _MOMENT)):
                if self._are_quiet():
                    break
                self._changed.wait(_MOMENT)
            else:
                raise ViolationError(f"a store neither waits nor ends: {self._held}")
        for store, point in list(self._held.items()):
            # A writer may be held up in its next work while the answers to the last are on their
            # way to the loop.
            busy = [op for op in self._tasks if op.store == store]
            if len(busy) > 1 or point.op is None:
                self._let_run(store)

    def _are_quiet(self) -> bool:
        return all(map(self._is_quiet, range(STORES)))

    def _is_quiet(self, store: int) -> bool:
        if store in self._held:
            return True
        active = any(op.store == store for op in self._tasks)
        return not active and self._stores[store]._writer._pending == 0

    def _on(self, store: int, call: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loops[store]).result(_PATIENCE)


class _GatedDatabase(Database):
    """A connection whose statements wait at a gate."""

    def __init__(
        self,
        path: Path,
        migrate: Migrate,
        hold: Callable[[str], bool],
        done: Callable[[str], None],
        *,
        was_there: bool,
    ) -> None:
        super().__init__(path, migrate, was_there=was_there)
        self._hold = hold
        self._done = done
        self._db.execute("PRAGMA busy_timeout = 0")
        self.execute = self._execute
        self.execute_many = self._execute_many

    def _execute(self, statement: str, *values: Any) -> Any:
        if statement.startswith("PRAGMA busy_timeout"):
            return None
        if statement.startswith("PRAGMA") or statement == "ROLLBACK":
            cursor = self._db.execute(statement, *values)
        else:
            cursor = self._wait_for_the_lock(statement, *values)
        self._done(statement)
        return cursor

    def _execute_many(self, statement: str, values: Any) -> Any:
        self._hold(_name(statement))
        return self._db.executemany(statement, values)

    def _wait_for_the_lock(self, statement: str, *values: Any) -> Any:
        what = _name(statement)
        pause = threading.Event()
        while True:
            is_open = self._hold(what)
            try:
                return self._db.execute(statement, *values)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or not self._patient:
                    raise
                if statement != "BEGIN IMMEDIATE":
                    raise
            what = "the lock"
            if is_open:
                pause.wait(_MOMENT)


def _name(statement: str) -> str:
    return " ".join(statement.split())[:60]
