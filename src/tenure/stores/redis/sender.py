"""Commands of many callers over one connection, by natural batching.

With nothing in flight a command is written at once. Otherwise it waits for the replies that are
under way, and everything that has piled up by then is written together. So a lone caller gets the
shortest way, and many share packets, system calls and the server's wake-ups.

A caller that is cancelled only abandons its future: replies arrive in the order of the commands,
and its reply is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from redis import exceptions

from tenure.stores.connect_backoff import ConnectBackoff
from tenure.stores.redis.address import Address, dial
from tenure.stores.redis.errors import NOT_DONE, WRONG_PLACE, code_of
from tenure.stores.redis.scripts import Script
from tenure.stores.redis.wire import Wire, Word, pack

__all__ = ["Sender"]

# Of one call, to a primary that was found anew each time. After that its caller has to decide.
_MOST_MOVES = 2


class _Call:
    """A command on its way, and where its reply goes."""

    __slots__ = ("loaded", "moves", "packed", "reply", "script")

    def __init__(self, packed: bytes, reply: asyncio.Future[Any], script: Script | None) -> None:
        self.packed = packed
        self.reply = reply
        self.script = script
        self.loaded = False
        """Whether its script was sent before it."""
        self.moves = 0
        """How many servers have refused it because another one is the primary."""


class Sender:
    """Sends commands, connecting whenever there is no connection.

    The futures it returns never fail: their result is the reply, or the exception of redis-py that
    came instead. So an abandoned one makes no noise.
    """

    def __init__(self, address: Address, random: Callable[[], float]) -> None:
        self._address = address
        self._reconnects = ConnectBackoff(random)
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[_Call] = deque()
        self._flying: deque[_Call] = deque()
        # What will be sent again, once everything that is in flight has been answered.
        self._again: list[_Call] = []
        # Whether that has to go to another server.
        self._misplaced = False
        self._deadline = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False

    def send(self, *words: Word) -> asyncio.Future[Any]:
        """Send a command."""
        return self._post(_Call(pack(words), self._loop.create_future(), None))

    def run(self, script: Script, words: tuple[Word, ...]) -> asyncio.Future[Any]:
        """Run a script; `words` are the number of keys, the keys and the arguments."""
        packed = pack((b"EVALSHA", script.sha, *words))
        return self._post(_Call(packed, self._loop.create_future(), script))

    async def close(self) -> None:
        """End the connection. Everybody who still waits for a reply gets an error."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        wire = self._wire
        self._fail(exceptions.ConnectionError("the store was closed"))
        if wire is not None:
            await asyncio.wait((wire.closed,))

    def abandon(self) -> None:
        """Cut the connection of an event loop that is closed."""
        if self._wire is not None:
            self._wire.cut()

    def _post(self, call: _Call) -> asyncio.Future[Any]:
        if self._wire is None:
            self._waiting.append(call)
            if self._closed:
                self._fail(exceptions.ConnectionError("the store was closed"))
            elif self._connecting is None:
                self._connecting = self._loop.create_task(self._connect())
        elif self._flying:
            self._waiting.append(call)
        else:
            self._flying.append(call)
            self._write(self._wire, call.packed)
        return call.reply

    def _flush(self, wire: Wire) -> None:
        """Write everything that has piled up."""
        # What a cancelled caller has not sent yet must not happen any more.
        self._flying.extend(call for call in self._waiting if not call.reply.done())
        self._waiting.clear()
        if self._flying:
            self._write(wire, b"".join([call.packed for call in self._flying]))

    def _write(self, wire: Wire, data: bytes) -> None:
        wire.write(data)
        # One timer watches over all calls; re-arming it for each would cost more than the send.
        self._deadline = self._loop.time() + self._address.timeout
        if self._alarm is None:
            self._alarm = self._loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._alarm = None
        if not self._flying:
            return
        if self._loop.time() < self._deadline:
            self._alarm = self._loop.call_at(self._deadline, self._check_deadline)
            return
        # The next reply would be taken for the answer to another call: start anew.
        self._fail(exceptions.TimeoutError(f"no reply within {self._address.timeout:g} s"))

    def _received(self, replies: list[Any]) -> None:
        for reply in replies:
            if not self._flying:
                self._fail(
                    exceptions.ConnectionError("the server sent a reply that nobody asked for")
                )
                return
            call = self._flying.popleft()
            if call.reply.done():
                continue
            if type(reply) is exceptions.ResponseError and self._repeats(call, reply):
                continue
            call.reply.set_result(reply)
        if not self._flying and self._wire is not None:
            if self._again:
                # First, and in its order, so that a caller's later calls still come after it.
                self._waiting.extendleft(reversed(self._again))
                self._again.clear()
            if self._misplaced:
                self._move(self._wire)
            elif self._waiting:
                self._flush(self._wire)

    def _repeats(self, call: _Call, error: exceptions.ResponseError) -> bool:
        """Say whether a call will be sent again, instead of its caller being told of the error."""
        code = code_of(error)
        if code == "NOSCRIPT":
            return self._load_script(call)
        if code in WRONG_PLACE and self._address.moves:
            self._misplaced = True
            if code in NOT_DONE and call.moves < _MOST_MOVES:
                call.moves += 1
                call.loaded = False  # the next server may not know the script
                self._again.append(call)
                return True
        return False

    def _load_script(self, call: _Call) -> bool:
        """Repeat a call whose script the server has forgotten, unless that was done before.

        Scripts vanish with a restart, a failover and SCRIPT FLUSH. It is not repeated as EVAL,
        because servers forget scripts that came that way when there are many of them.
        """
        if call.script is None or call.loaded:
            return False
        call.loaded = True
        load = pack((b"SCRIPT", b"LOAD", call.script.text))
        self._again += (_Call(load, self._loop.create_future(), None), call)
        return True

    def _move(self, wire: Wire) -> None:
        """Leave a server that is no longer the primary; what waits goes to the next one."""
        self._drop(wire, exceptions.ConnectionError("this server is no longer the primary"))
        if self._waiting:
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._reconnects.pause()
            self._wire = await dial(self._address, self._received, self._lost)
        except exceptions.RedisError as error:
            self._reconnects.failed()
            self._fail(error)
        else:
            self._reconnects.succeeded()
            self._flush(self._wire)
        finally:
            self._connecting = None

    def _lost(self, wire: Wire, reason: Exception) -> None:
        if wire is self._wire:  # and not one that was given up before
            self._fail(reason)

    def _fail(self, error: Exception) -> None:
        """Drop the connection and let everybody know; the next call makes a new one."""
        self._drop(self._wire, error)
        failed = [*self._again, *self._flying, *self._waiting]
        self._again.clear()
        self._flying.clear()
        self._waiting.clear()
        for call in failed:
            if not call.reply.done():
                call.reply.set_result(error)

    def _drop(self, wire: Wire | None, reason: Exception) -> None:
        self._wire = None
        self._misplaced = False
        if wire is not None:
            wire.abort(reason)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
