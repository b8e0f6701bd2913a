"""The connection pool of one store object.

asyncpg's own pool resets a connection with a round trip after every use. This one leaves nothing in
a session that would need a reset.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg

from tenure.core.clock import Clock
from tenure.errors import StoreError, StoreUnavailable, TenureError
from tenure.stores.postgres.address import CALL_TIMEOUT, POOL_SIZE
from tenure.stores.postgres.errors import breaks, translate
from tenure.stores.sockets import close_socket

__all__ = ["Dial", "Pool", "Row", "Subject"]

Row: TypeAlias = Any
"""An asyncpg.Record; the driver has no types."""

Subject: TypeAlias = tuple[str, Iterable[str | None]]
"""The things that a call decides about: their kind and names; None: no names."""

Dial: TypeAlias = Callable[[], Awaitable[asyncpg.Connection]]

# After a burst, idle connections beyond the first are closed.
_IDLE_SECONDS = 60.0
# A call whose caller was cancelled has this long to end before its connection is cut.
_CLOSE_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class _Call:
    """A statement in flight, and the future of its outcome."""

    statement: str
    arguments: Sequence[object]
    outcome: asyncio.Future[list[Row] | TenureError]
    """Errors are results as well, so that an abandoned future logs nothing."""
    sent: bool = False


class Pool:
    """Up to `size` connections, opened when needed. The one used last is used next.

    Each call runs in a task of its own, because asyncpg cancels the statement when its caller is
    cancelled. So a cancelled caller leaves at once, and its statement continues. Later calls about
    the same things wait for it, so that none of them is decided before it.
    """

    def __init__(
        self,
        dial: Dial,
        url: str,
        clock: Clock,
        first: asyncpg.Connection,
        size: int = POOL_SIZE,
    ) -> None:
        self._dial = dial
        self._size = size
        self._url = url
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._idle: list[tuple[asyncpg.Connection, float]] = [(first, clock.boot())]
        self._busy: set[asyncpg.Connection] = set()
        self._room = asyncio.Semaphore(size)
        self._tasks: set[asyncio.Task[None]] = set()
        # Statements of cancelled callers, and what they are about.
        self._abandoned: dict[asyncio.Task[None], set[tuple[str, str]]] = {}
        self._closed = False

    async def fetch(
        self, statement: str, *arguments: object, about: Sequence[Subject] = ()
    ) -> list[Row]:
        """Run one statement in a transaction of its own."""
        while self._abandoned and (earlier := self._abandoned_about(_things(about))):
            await asyncio.wait(earlier)
        if self._closed:
            raise self._was_closed()
        call = _Call(statement, arguments, self._loop.create_future())
        task = self._start(self._carry_out(call))
        try:
            outcome = await call.outcome
        except asyncio.CancelledError:
            if call.sent:
                self._abandoned[task] = _things(about)
                task.add_done_callback(self._abandoned.pop)
            else:
                task.cancel()
            raise
        if isinstance(outcome, TenureError):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Close all connections. Running calls get a moment to end."""
        self._closed = True
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
            # Together, because a server that hangs holds up each of them.
            await asyncio.gather(*(_close(connection) for connection, _ in self._idle))
        finally:
            # Also if closing is cancelled. Callers without an answer get an error.
            for connection in self._busy:
                connection.terminate()
            self._drop_idle()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Drop the connections of an event loop that is closed, which the driver cannot do."""
        self._closed = True
        for connection in (*self._busy, *(connection for connection, _ in self._idle)):
            close_socket(connection._transport)  # noqa: SLF001 - there is no public way to its socket

    def _abandoned_about(self, things: set[tuple[str, str]]) -> list[asyncio.Task[None]]:
        return [task for task, own in self._abandoned.items() if not own.isdisjoint(things)]

    async def _carry_out(self, call: _Call) -> None:
        outcome: list[Row] | TenureError
        try:
            async with self._place():
                outcome = await self._run(call)
        except TenureError as error:
            outcome = error
        except asyncio.CancelledError:
            outcome = self._was_closed()
        except Exception as error:  # noqa: BLE001 - the driver may raise anything
            outcome = translate(error, self._url)
        if not call.outcome.done():
            call.outcome.set_result(outcome)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                await self._room.acquire()
        except TimeoutError:
            msg = (
                f"the store {self._url} is overloaded: all {self._size} connections of this "
                "process are in use. Raise pool_size in the URL, or find what keeps the store busy."
            )
            raise StoreUnavailable(msg) from None
        try:
            yield
        finally:
            self._room.release()

    async def _run(self, call: _Call) -> list[Row]:
        connection = self._take() or await self._dial()
        self._busy.add(connection)
        call.sent = True
        try:
            rows: list[Row] = await connection.fetch(call.statement, *call.arguments)
        except BaseException as error:
            if breaks(error):
                connection.terminate()
                # The others lead to the same server, and each would cost a caller its time-out.
                self._drop_idle()
            raise
        finally:
            self._busy.discard(connection)
            self._put_back(connection)
        return rows

    def _take(self) -> asyncpg.Connection | None:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _put_back(self, connection: asyncpg.Connection) -> None:
        now = self._clock.boot()
        if not connection.is_closed():
            self._idle.append((connection, now))
        if len(self._idle) > 1 and now - self._idle[0][1] > _IDLE_SECONDS:
            oldest, _ = self._idle.pop(0)
            self._start(_close(oldest))

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop()[0].terminate()

    def _was_closed(self) -> StoreError:
        return StoreError(f"the store {self._url} was closed during the call.")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _things(about: Sequence[Subject]) -> set[tuple[str, str]]:
    return {(kind, name) for kind, names in about for name in names if name is not None}


async def _close(connection: asyncpg.Connection) -> None:
    # If closing fails, the driver drops the connection.
    with suppress(Exception):
        await connection.close(timeout=_CLOSE_SECONDS)
