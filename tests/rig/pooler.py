"""A PostgreSQL pooler in transaction mode, small: all clients share one session of the server.

It behaves as PgBouncer does where `tenure doctor` looks: it greets clients by itself with an
invented process id, lends them the session from their first message until the server is outside of
a transaction again, and has nobody to pass a notification to in between.
"""

import asyncio
import struct
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_READY, _NOTIFICATION = b"Z", b"A"


class Pooler:
    """Runs in a thread of its own while the context lasts."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._session = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        parts = urlsplit(self._server_url)
        self._from_server, self._to_server = await asyncio.open_connection(
            parts.hostname, parts.port
        )
        login = f"user\0{parts.username}\0database\0{parts.path.strip('/')}\0\0".encode()
        self._to_server.write(struct.pack("!II", 8 + len(login), 3 << 16) + login)
        self._settings = b""
        while (message := await _message(self._from_server))[:1] != _READY:
            if message[:1] == b"S":
                self._settings += message
        self._door = await asyncio.start_server(self._welcome, "127.0.0.1", 0)
        port = self._door.sockets[0].getsockname()[1]
        self.url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()

    async def _stop(self) -> None:
        self._door.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._to_server.close()
        await self._to_server.wait_closed()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await _startup(reader) == 80877103:  # asks for TLS
            writer.write(b"N")
        greeting = b"R" + struct.pack("!II", 8, 0) + self._settings
        writer.write(greeting + b"K" + struct.pack("!III", 12, 4711, 42) + b"Z\0\0\0\5I")
        while (message := await _message(reader))[:1] != b"X":
            async with self._session:
                self._to_server.write(message)
                await self._transact(reader, writer)

    async def _transact(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass messages both ways until the server is outside of a transaction."""
        sending = asyncio.create_task(self._pass_on(reader))
        try:
            while True:
                message = await _message(self._from_server)
                if message[:1] != _NOTIFICATION:
                    writer.write(message)
                if message[:1] == _READY and message[5:] == b"I":
                    return
        finally:
            # A client sends nothing more before it has seen the end, so nothing is half read.
            sending.cancel()
            await asyncio.wait([sending])

    async def _pass_on(self, reader: asyncio.StreamReader) -> None:
        while True:
            self._to_server.write(await _message(reader))


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:]) - 4)


async def _startup(reader: asyncio.StreamReader) -> int:
    size = int.from_bytes(await reader.readexactly(4))
    return int.from_bytes((await reader.readexactly(size - 4))[:4])
