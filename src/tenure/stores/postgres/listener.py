"""The ear of a store object: a connection that hears wake-ups, and is replaced when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from tenure.core.clock import Clock
from tenure.core.policy import retry_after_error
from tenure.errors import StoreError
from tenure.stores.postgres.pool import Dial

__all__ = ["Listener"]

# A connection through a dead router or firewall looks alive for ever to who only listens.
_CHECK_SECONDS = 10.0


class Listener:
    """Hears the notifications on one channel and passes their payloads on.

    Seconds in here are real ones, also under a virtual clock: the network does not know it.
    """

    def __init__(
        self,
        dial: Dial,
        clock: Clock,
        *,
        heard: Callable[[str], None],
        resumed: Callable[[], None],
    ) -> None:
        self.channel = f"tenure_{clock.token()[:16]}"
        self._dial = dial
        self._clock = clock
        self._heard = heard
        self._resumed = resumed
        self._task: asyncio.Task[None] | None = None
        # How the first attempt ended; until then nobody can be sure to hear anything.
        self._first: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    async def ready(self) -> Exception | None:
        """Return once wake-ups arrive, or why they cannot.

        Only the first time takes a while. A connection lost later is replaced in the background,
        and then everybody is woken, because nobody knows what was missed.
        """
        if self._task is None or self._task.done():
            self._first = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._keep())
        first = self._first
        if not first.done():
            # Not awaited itself: it is shared, and a cancelled caller would cancel it for all.
            await asyncio.wait([first])
        return first.result()

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _keep(self) -> None:
        """Listen; end only when the very first attempt fails, or by cancellation."""
        first, failures = self._first, 0
        try:
            while True:
                try:
                    connection = await self._subscribe()
                except Exception as error:  # noqa: BLE001 - whatever the driver raises
                    if not first.done():
                        first.set_result(error)
                        return
                    failures += 1
                else:
                    failures = 1
                    if first.done():
                        self._resumed()
                    else:
                        first.set_result(None)
                    await _stay(connection)
                # Not all clients of a restarted server at once.
                pause = retry_after_error(failures, self._clock.random())
                await _happens(asyncio.Event(), pause)
        finally:
            if not first.done():
                first.set_result(StoreError("the store was closed"))

    async def _subscribe(self) -> asyncpg.Connection:
        connection = await self._dial()
        try:
            await connection.add_listener(self.channel, self._pass_on)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _pass_on(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._heard(str(payload))


async def _stay(connection: asyncpg.Connection) -> None:
    """Return when the connection is lost; give it up if the server does not answer any more."""
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())
    try:
        # A connection that was lost before the line above rings no bell.
        while not connection.is_closed() and not await _happens(lost, _CHECK_SECONDS):
            await connection.fetchval("SELECT 1")
    except Exception:  # noqa: BLE001 - lost: it is replaced, whatever it was
        return
    finally:
        connection.terminate()


async def _happens(event: asyncio.Event, within: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await event.wait()
    return event.is_set()
