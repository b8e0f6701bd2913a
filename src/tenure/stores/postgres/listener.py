"""The connection of a store object that receives wake-ups; it reconnects when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from tenure.core.clock import Clock
from tenure.stores.postgres.pool import Dial
from tenure.stores.watchers import ARM_SECONDS, pause_before_listening

__all__ = ["Listener"]

# Without sending, a connection through a dead router or firewall looks alive indefinitely.
_CHECK_SECONDS = 10.0

# The server is starting or stopping; any other answer is a refusal.
_PASSING = (asyncpg.PostgresConnectionError, asyncpg.exceptions.OperatorInterventionError)


class Listener:
    """Receives the notifications of its own channel and of a shared one, and passes payloads on.

    It uses real time also under a virtual clock, because the network does.
    """

    def __init__(
        self,
        dial: Dial,
        clock: Clock,
        *,
        shared_channel: str,
        heard: Callable[[str], None],
        resumed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.channel = f"tenure_{clock.token()[:16]}"
        self._channels = (self.channel, shared_channel)
        self._dial = dial
        self._clock = clock
        self._heard = heard
        self._resumed = resumed
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        # Done once the first attempt has ended, successful or not.
        self._tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whether a caller watches or did: then each new connection may have missed a wake-up.
        self._has_watchers = False

    async def ready(self) -> None:
        """Return once wake-ups arrive, or earlier if that takes long or fails.

        Only the first time takes a while. After a failure or a lost connection it retries in the
        background, and then wakes all watchers, because notifications may have been missed.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._keep())
        if not self._tried.done():
            # Not awaited directly: it is shared, and a cancelled caller would cancel it for all.
            await asyncio.wait([self._tried], timeout=ARM_SECONDS)
        self._has_watchers = True

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _keep(self) -> None:
        """Listen until cancelled."""
        failures = 0
        try:
            while True:
                refused = False
                try:
                    connection = await self._subscribe()
                except Exception as error:  # noqa: BLE001 - whatever the driver raises
                    failures += 1
                    refused = isinstance(error, asyncpg.PostgresError)
                    refused = refused and not isinstance(error, _PASSING)
                    self._failed(error)
                    self._end_first_attempt()
                else:
                    failures = 1
                    await self._hear(connection)
                # A random pause: not all clients of a restarted server at once.
                pause = pause_before_listening(failures, self._clock.random(), refused=refused)
                await _happens(asyncio.Event(), pause)
        finally:
            self._end_first_attempt()

    def _end_first_attempt(self) -> None:
        if not self._tried.done():
            self._tried.set_result(None)

    async def _hear(self, connection: asyncpg.Connection) -> None:
        self._end_first_attempt()
        if self._has_watchers:
            self._resumed()
        await _stay(connection)

    async def _subscribe(self) -> asyncpg.Connection:
        connection = await self._dial()
        try:
            for channel in self._channels:
                await connection.add_listener(channel, self._pass_on)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _pass_on(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._heard(str(payload))


async def _stay(connection: asyncpg.Connection) -> None:
    """Return when the connection is lost; drop it if the server does not answer."""
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())
    try:
        # A connection that was lost before the line above would not call back.
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
