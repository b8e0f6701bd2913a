"""Sends the commands of many callers over one connection, by natural batching.

With nothing in flight a command is written at once. Otherwise it waits for the pending replies, and
then all waiting commands are written together. So a single caller has the lowest latency, and many
callers share packets, system calls and the server's wake-ups.

A cancelled caller only abandons its future: replies arrive in the order of the commands, and its
reply is dropped.
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

# How often a call is sent again, each time to a newly found primary. Then its caller must decide.
_MOST_MOVES = 2


class _Call:
    """A command in flight, and the future of its reply."""

    __slots__ = ("loaded", "moves", "packed", "reply", "script")

    def __init__(self, packed: bytes, reply: asyncio.Future[Any], script: Script | None) -> None:
        self.packed = packed
        self.reply = reply
        self.script = script
        self.loaded = False
        """Whether its script was sent before it."""
        self.moves = 0
        """How many servers have rejected it because another one is the primary."""


class Sender:
    """Sends commands, and connects when there is no connection.

    The futures that it returns never fail: their result is the reply or the exception of redis-py.
    So an abandoned future logs no error.
    """

    def __init__(self, address: Address, random: Callable[[], float]) -> None:
        self._address = address
        self._reconnects = ConnectBackoff(random)
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[_Call] = deque()
        self._flying: deque[_Call] = deque()
        # Calls to send again, once all calls in flight have their replies.
        self._again: list[_Call] = []
        # Whether they must go to another server.
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
        """End the connection. Callers without a reply get an error."""
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
        """Write all waiting commands."""
        # An unsent command of a cancelled caller must not be sent.
        self._flying.extend(call for call in self._waiting if not call.reply.done())
        self._waiting.clear()
        if self._flying:
            self._write(wire, b"".join([call.packed for call in self._flying]))

    def _write(self, wire: Wire, data: bytes) -> None:
        wire.write(data)
        # One timer serves all calls; arming one for each would cost more than the send.
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
        # The next reply would be assigned to the wrong call, so reconnect.
        self._fail(exceptions.TimeoutError(f"no reply within {self._address.timeout:g} s"))

    def _received(self, replies: list[Any]) -> None:
        for reply in replies:
            if not self._flying:
                self._fail(exceptions.ConnectionError("the server sent a reply without a command"))
                return
            call = self._flying.popleft()
            if call.reply.done():
                continue
            if type(reply) is exceptions.ResponseError and self._repeats(call, reply):
                continue
            call.reply.set_result(reply)
        if not self._flying and self._wire is not None:
            if self._again:
                # First, and in order, so that a caller's later calls still come after it.
                self._waiting.extendleft(reversed(self._again))
                self._again.clear()
            if self._misplaced:
                self._move(self._wire)
            elif self._waiting:
                self._flush(self._wire)

    def _repeats(self, call: _Call, error: exceptions.ResponseError) -> bool:
        """Return whether a call is sent again. If not, its caller gets the error."""
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
        """Repeat a call whose script the server no longer has, once.

        Scripts are lost with a restart, a fail-over and SCRIPT FLUSH. The script is loaded and not
        sent with EVAL, because servers evict scripts of EVAL when there are many of them.
        """
        if call.script is None or call.loaded:
            return False
        call.loaded = True
        load = pack((b"SCRIPT", b"LOAD", call.script.text))
        self._again += (_Call(load, self._loop.create_future(), None), call)
        return True

    def _move(self, wire: Wire) -> None:
        """Leave a server that is no longer the primary. Waiting calls go to the next one."""
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
        """Drop the connection, and fail its calls. The next call connects again."""
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
