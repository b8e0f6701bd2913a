"""The second connection of a store object, which receives wake-ups.

Each store object has a channel. A release publishes to the channel in the record of the first
waiter, so only that process wakes.

Each kind of topic (queue, job, replica) has a channel for the whole namespace, with many names in
one message. A store object subscribes with its first watch of that kind. It unsubscribes when a
message comes while no task here watches that kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from redis import exceptions

from tenure.core.clock import Clock
from tenure.core.leases import Topic
from tenure.stores.redis.address import Address, dial
from tenure.stores.redis.errors import missing_rights
from tenure.stores.redis.wire import Wire, pack
from tenure.stores.watchers import ARM_SECONDS, Watchers, pause_before_listening

__all__ = ["Listener"]

# A connection that was dropped silently is detected within two of these.
_PING_EVERY = 10.0


class Listener:
    """Listens from the first watch until it is closed, and reconnects after lost connections.

    It uses real time also under a virtual clock, because the network does.
    """

    def __init__(
        self,
        address: Address,
        *,
        channel: str,
        bells: str,
        watchers: Watchers,
        clock: Clock,
        ask_again: Callable[[Sequence[str]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._channel = channel.encode()
        self._bells = bells.encode()
        self._watchers = watchers
        self._clock = clock
        self._ask_again = ask_again
        # By channel: done once it is subscribed on the current connection.
        self._channels = {self._channel: self._loop.create_future()}
        self._task: asyncio.Task[None] | None = None
        self._wire: Wire | None = None
        # The connection on which the channels are subscribed, as long as it lasts.
        self._subscribing: Wire | None = None
        # Done once the first attempt has ended, successful or not.
        self._tried: asyncio.Future[None] = self._loop.create_future()
        self._subscribed = False
        # Whether a caller watches or did: then each new connection may have missed a wake-up.
        self._has_watchers = False
        self._heard = False

    async def listen(self, kinds: Collection[str]) -> None:
        """Return once the channels are subscribed, or earlier if that takes long or fails.

        Only the first time takes a while. After a failure or a lost connection it retries in the
        background, and then wakes all watchers, because notifications may have been missed.
        """
        bells = [self._bells + kind.encode() for kind in kinds if kind != "lease"]
        fresh = [bell for bell in bells if bell not in self._channels]
        for bell in fresh:
            self._channels[bell] = self._loop.create_future()
        if fresh and self._subscribing is not None:
            self._subscribing.write(pack((b"SUBSCRIBE", *fresh)))
        if self._task is None:
            self._task = self._loop.create_task(self._keep())
        if not self._tried.done():
            # Not awaited directly: it is shared, and a cancelled caller would cancel it for all.
            await asyncio.wait((self._tried,), timeout=ARM_SECONDS)
        if self._subscribed:
            awaited = [self._channels[bell] for bell in bells if bell in self._channels]
            if not all(channel.done() for channel in awaited):
                await asyncio.wait(awaited, timeout=ARM_SECONDS)
        self._has_watchers = True

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._wire is not None:
            # The task aborts it, but not if it ended right after the answer to SUBSCRIBE.
            self._wire.abort(exceptions.ConnectionError("no longer listening"))
            await asyncio.wait((self._wire.closed,))

    def abandon(self) -> None:
        """Drop the connection of an event loop that is closed."""
        if self._wire is not None:
            self._wire.cut()

    async def _keep(self) -> None:
        """Stay subscribed until cancelled."""
        failures = 0
        try:
            while True:
                refused = False
                try:
                    await self._subscribe()
                except exceptions.RedisError as error:
                    failures += 1
                    refused = missing_rights(error) or isinstance(error, exceptions.ResponseError)
                    self._watchers.warn_no_wake_ups(self._address.fault(error))
                    self._end_first_attempt()
                else:
                    failures = 1
                    await self._hear()
                # A random pause: not all clients of a restarted server at once.
                pause = pause_before_listening(failures, self._clock.random(), refused=refused)
                await asyncio.wait((self._loop.create_future(),), timeout=pause)
        finally:
            self._end_first_attempt()

    def _end_first_attempt(self) -> None:
        if not self._tried.done():
            self._tried.set_result(None)

    async def _hear(self) -> None:
        self._subscribed = True
        self._end_first_attempt()
        if self._has_watchers:
            self._ask_again([name for kind, name in self._watchers.topics if kind == "queue"])
            self._watchers.wake_all()
        await self._stay()
        self._subscribed = False

    async def _subscribe(self) -> None:
        confirmed: asyncio.Future[Exception | None] = self._loop.create_future()

        def received(replies: list[Any]) -> None:
            self._heard = True
            for reply in replies:
                if isinstance(reply, list):
                    self._take(reply, confirmed)
                elif isinstance(reply, exceptions.ResponseError) and not confirmed.done():
                    confirmed.set_result(reply)

        def lost(_wire: Wire, reason: Exception) -> None:
            self._subscribing = None
            if not confirmed.done():
                confirmed.set_result(reason)

        self._wire = wire = await dial(self._address, received, lost)
        self._channels = {channel: self._loop.create_future() for channel in self._channels}
        wire.write(pack((b"SUBSCRIBE", *self._channels)))
        self._subscribing = wire
        try:
            await asyncio.wait((confirmed,), timeout=self._address.timeout)
        finally:
            if not confirmed.done():
                confirmed.set_result(exceptions.TimeoutError("no reply to SUBSCRIBE"))
            error = confirmed.result()
            if error is not None:
                wire.abort(error)
        if error is not None:
            raise error

    def _take(self, reply: list[Any], confirmed: asyncio.Future[Exception | None]) -> None:
        """Handle a reply: a message, or the answer to a subscription."""
        what, channel = reply[:2]
        if what == b"message":
            self._ring(channel, reply[2])
        elif what == b"subscribe" and channel in self._channels:
            if not self._channels[channel].done():
                self._channels[channel].set_result(None)
            are_all_done = all(done.done() for done in self._channels.values())
            if are_all_done and not confirmed.done():
                confirmed.set_result(None)

    async def _stay(self) -> None:
        """Return when the connection has ended; end it if the server does not answer."""
        wire = cast("Wire", self._wire)
        try:
            while not wire.closed.done():
                self._heard = False
                wire.write(pack((b"PING",)))
                await asyncio.wait((wire.closed,), timeout=_PING_EVERY)
                if not self._heard:
                    return
        finally:
            wire.abort(exceptions.ConnectionError("no longer listening"))

    def _ring(self, channel: bytes, message: bytes) -> None:
        if channel == self._channel:
            kind, _, name = message.decode(errors="replace").partition(" ")
            self._watchers.wake(cast("Topic", (kind, name)))
            return
        kind = channel.removeprefix(self._bells).decode(errors="replace")
        watched = {name for topic, name in self._watchers.topics if topic == kind}
        if not watched:
            self._stop_hearing(channel)
            return
        names = watched.intersection(message.decode(errors="replace").split("\0"))
        if kind == "queue":
            # The flag was removed. Set it again before the woken watchers poll.
            self._ask_again(list(names))
        for name in names:
            self._watchers.wake(cast("Topic", (kind, name)))

    def _stop_hearing(self, channel: bytes) -> None:
        if self._channels.pop(channel, None) is not None and self._subscribing is not None:
            self._subscribing.write(pack((b"UNSUBSCRIBE", channel)))
