"""PostgreSQL, statement by statement, also inside the functions that make up a call.

What is sent waits at a gate, each statement of the function, and the reply. A statement that waits
for a lock is recognised, and others go on meanwhile.
"""

import asyncio
import math
from typing import Any

import asyncpg
import pytest

from tests.interleavings import postgres_gates as gates
from tests.interleavings.loop_rig import LoopRig, current
from tests.interleavings.orders import Fate, Op
from tests.interleavings.scheduler import ITS_REPLY, Point

_AMIDST = "a statement"
_AFTER_ALL_CALLS = 10_000
_FINE_EVERY = 2  # seeds; the other seeds stop calls only before their commits, and get further
_DEADLOCK_SECONDS = 0.5  # until PostgreSQL has surely ended a deadlock

_WAITING = f"""
SELECT pid, locktype = 'advisory' AND classid = {gates.CLASS} AS at_gate
FROM pg_locks WHERE NOT granted
"""
_STEP = f"SELECT pg_advisory_unlock({gates.CLASS}, $1), pg_advisory_lock({gates.CLASS}, $1)"
_LOCK = f"SELECT pg_advisory_lock({gates.CLASS}, $1)"
_UNLOCK = f"SELECT pg_advisory_unlock({gates.CLASS}, $1)"
_ALIVE = "SELECT pid FROM pg_stat_activity WHERE pid = ANY ($1) AND state <> 'idle'"


class _Line:
    """A connection of a store whose calls wait at gates."""

    def __init__(self, rig: "PostgresRig", real: asyncpg.Connection, number: int) -> None:
        self._rig = rig
        self.real = real
        self.number = number
        self.pid: int = real.get_server_pid()
        self.op: Op | None = None
        self.is_flying = False
        self.is_blocked = False
        self.point: Point | None = None
        """Its position inside a function."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        if self._rig.open_gate:
            return list(await self.real.fetch(statement, *arguments))
        self.op = current.get()
        await self._rig.hold(self, "what it sends")
        self.is_flying = True
        try:
            rows = await self.real.fetch(statement, *arguments)
        finally:
            self.is_flying = False
        await self._rig.hold(self, ITS_REPLY)
        return list(rows)


class _Dialer:
    """Makes connections with gates."""

    def __init__(self, rig: "PostgresRig", real: Any) -> None:
        self._rig = rig
        self._real = real

    async def dial(self) -> _Line:
        return await self._rig.lined_up(await self._real.dial())

    async def close(self) -> None:
        await self._real.close()


class PostgresRig(LoopRig):
    """Several store objects on one database, which nothing else may use."""

    skips = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._url = url
        self._lines: dict[int, _Line] = {}
        """By process id of the server, including sessions whose client has gone."""
        self._gone: set[int] = set()
        self._futures: dict[Point, tuple[_Line, asyncio.Future[None]]] = {}
        self._amidst: dict[Point, _Line] = {}
        self._stuck_since: float | None = None
        self._breaks = 0
        self._is_fine = False
        self._control: asyncpg.Connection
        self._turn = asyncio.Lock()
        self._patience = pytest.MonkeyPatch()
        self.witness = self.store(url, self.clock)
        for store in self.stores:
            store._connector = _Dialer(self, store._connector)

    async def open(self) -> None:
        # A call that stands at a gate holds its unique keys; the specification knows no busy ones.
        self._patience.setattr("tenure.stores.postgres.jobs._KEY_PATIENCE_MS", 4000)
        # It holds its jobs as well, and no replica may leave one of its own behind.
        self._patience.setattr("tenure.stores.postgres.replicas._JOB_PATIENCE_MS", 4000)
        # It may also be committed long after its instant, so heartbeats look at everything.
        self._patience.setattr("tenure.stores.postgres.replicas._WHOLE_LOOK_EVERY", -math.inf)
        self._control = await asyncpg.connect(self._url)
        await self.witness.open()
        await gates.put_in(self._control)
        await super().open()
        for store in self.stores:
            store._notifier = None
        await self._tell(_LOCK, gates.OPEN)

    async def close(self) -> None:
        await self._tell(_UNLOCK, gates.OPEN)
        await super().close()
        await self.witness.close()
        await self._control.close()
        self._patience.undo()

    async def _tell(self, statement: str, *arguments: object) -> list[Any]:
        """Run a statement of the schedule itself."""
        async with self._turn:
            return list(await self._control.fetch(statement, *arguments))

    async def lined_up(self, real: asyncpg.Connection) -> _Line:
        """Make a connection known to the schedule."""
        pid = real.get_server_pid()
        await real.execute(f"SET schedules.session = '{pid}'; SET deadlock_timeout = 20")
        await self._tell(_LOCK, pid)
        line = _Line(self, real, len(self._lines))
        self._lines[pid] = line
        return line

    def enter(self, namespace: str) -> None:
        self._breaks = self.seed // _FINE_EVERY
        for store in (*self.stores, self.witness):
            store.namespace = namespace
        is_fine = self.seed % _FINE_EVERY == 0
        if is_fine is not self._is_fine:
            self._is_fine = is_fine
            self.do(self._tell(_LOCK if is_fine else _UNLOCK, gates.COARSE))

    async def hold(self, line: _Line, what: str) -> None:
        """Wait until the schedule lets it go on."""
        if self.open_gate:
            return
        future = self.loop.create_future()
        point = self._park(line, what)
        self._futures[point] = line, future
        await future

    def _park(self, line: _Line, what: str) -> Point:
        self.counts["statements"] += 1
        op = line.op if line.op in self.tasks else None
        # By the call, because which connection it has got depends on schedules before this one.
        point = Point(op, what, op.begun if op else _AFTER_ALL_CALLS + line.number)
        self.held.append(point)
        return point

    def release(self, point: Point) -> None:
        self.do(self._release(point))

    async def _release(self, point: Point) -> None:
        self.held.remove(point)
        if point in self._amidst:
            line = self._amidst.pop(point)
            line.point = None
            await self._tell(_STEP, line.pid)
        else:
            self._futures.pop(point)[1].set_result(None)
        await self.settle()

    def break_at(self, point: Point) -> Fate:
        return self.do(self._break_at(point))

    async def _break_at(self, point: Point) -> Fate:
        if point in self._futures:
            self.held.remove(point)
            line, future = self._futures.pop(point)
            line.real.terminate()
            self._forget(line)
            future.set_exception(asyncpg.ConnectionDoesNotExistError("broken on purpose"))
            await self.settle()
            return "happened" if point.what == ITS_REPLY else "never"
        line = self._amidst[point]
        self._breaks += 1
        if self._breaks % 2:
            # The server ends the transaction.
            self.held.remove(point)
            del self._amidst[point]
            await self._tell("SELECT pg_terminate_backend($1)", line.pid)
            while await self._tell(_ALIVE, [line.pid]):
                pass
            self._forget(line)
            await self.settle()
            return "never"
        # The server does not notice, and goes on.
        point.op = None
        self._gone.add(line.pid)
        line.real.terminate()
        await self.settle()
        return "maybe"

    def _forget(self, line: _Line) -> None:
        self._lines.pop(line.pid, None)

    def drain(self) -> None:
        while self.held:
            self.release(self.parked()[0])
        self.do(self.settle())

    async def is_quiet(self) -> bool:
        lines = [line for line in self._lines.values() if line.is_flying or line.pid in self._gone]
        if self._gone:
            await self._notice_the_dead()
        if not lines:
            return all(map(self._waits_its_turn, self.tasks))
        waiting = dict(await self._tell(_WAITING))
        moving = False
        for line in lines:
            if line.pid not in waiting:
                moving = moving or line.is_flying or line.pid in self._gone
            elif waiting[line.pid] and line.point is None:
                line.point = self._park(line, _AMIDST)
                self._amidst[line.point] = line
            elif not waiting[line.pid] and not line.is_blocked:
                self.counts["blocked statements"] += 1
            line.is_blocked = waiting.get(line.pid) is False
        blocked = [line for line in lines if waiting.get(line.pid) is False]
        if moving or not all(map(self._waits_its_turn, self.tasks)):
            self._stuck_since = None
            return False
        return not blocked or bool(self.held) or self._is_stuck()

    def _waits_its_turn(self, op: Op) -> bool:
        """Return whether a call is held up somewhere."""
        pool = self.stores[op.store]._pool
        return (
            any(point.op is op for point in self.held)
            or any(line.is_flying and line.op is op for line in self._lines.values())
            or bool(pool._abandoned)
        )

    def _is_stuck(self) -> bool:
        """Return whether all sessions wait for locks and PostgreSQL has not ended it."""
        now = self.loop.time()
        self._stuck_since = self._stuck_since or now
        return now - self._stuck_since > _DEADLOCK_SECONDS

    async def _notice_the_dead(self) -> None:
        alive = {pid for (pid,) in await self._tell(_ALIVE, list(self._gone))}
        for pid in self._gone - alive:
            self._lines.pop(pid, None)
        self._gone &= alive
