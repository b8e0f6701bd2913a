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
from typing import Any

from redis import exceptions

from tenure.stores.redis.address import Address
from tenure.stores.redis.scripts import Script
from tenure.stores.redis.wire import Wire, Word, dial, pack

__all__ = ["Sender"]


class _Call:
    """A command on its way, and where its reply goes."""

    __slots__ = ("packed", "reply", "script")

    def __init__(self, packed: bytes, reply: asyncio.Future[Any], script: Script | None) -> None:
        self.packed = packed
        self.reply = reply
        self.script = script


class Sender:
    """Sends commands, connecting whenever there is no connection.

    The futures it returns never fail: their result is the reply, or the exception of redis-py that
    came instead. So an abandoned one makes no noise.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[_Call] = deque()
        self._flying: deque[_Call] = deque()
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
            if type(reply) is exceptions.ResponseError and self._load_script(call, reply):
                continue
            call.reply.set_result(reply)
        if not self._flying and self._waiting and self._wire is not None:
            self._flush(self._wire)

    def _load_script(self, call: _Call, error: exceptions.ResponseError) -> bool:
        """Repeat a call whose script the server has forgotten; say whether it will be repeated.

        Scripts vanish with a restart, a failover and SCRIPT FLUSH. The repeat goes before
        everything that waits, so that a caller's later calls still come after it. It is not
        EVAL, because servers forget scripts that came that way when there are many of them.
        """
        if call.script is None or not str(error).startswith("NOSCRIPT"):
            return False
        load = pack((b"SCRIPT", b"LOAD", call.script.text))
        self._waiting.appendleft(_Call(call.packed, call.reply, None))
        self._waiting.appendleft(_Call(load, self._loop.create_future(), None))
        return True

    async def _connect(self) -> None:
        try:
            self._wire = await dial(self._address, self._received, self._lost)
        except exceptions.RedisError as error:
            self._fail(error)
        else:
            self._flush(self._wire)
        finally:
            self._connecting = None

    def _lost(self, wire: Wire, reason: Exception) -> None:
        if wire is self._wire:  # and not one that was given up before
            self._fail(reason)

    def _fail(self, error: Exception) -> None:
        """Drop the connection and let everybody know; the next call makes a new one."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.abort(error)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        failed = [*self._flying, *self._waiting]
        self._flying.clear()
        self._waiting.clear()
        for call in failed:
            if not call.reply.done():
                call.reply.set_result(error)
