"""A server with scripted answers, in the place of a Sentinel or of a cluster node."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import hiredis

Answer = Callable[[list[str]], Any]


class Impostor:
    """Speaks the protocol of Redis. Texts and numbers are replies, exceptions are errors."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.heard: list[list[str]] = []
        self.port = 0
        self._connections: set[asyncio.StreamWriter] = set()

    def times(self, command: str) -> int:
        """Return how often a command came."""
        return sum(words[0].upper() == command for words in self.heard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        parser = hiredis.Reader()
        while piece := await reader.read(65536):
            parser.feed(piece)
            while (command := parser.gets()) is not False:
                words = [word.decode() for word in command]
                self.heard.append(words)
                writer.write(_packed(self._reply_to(words)))
        writer.close()

    def hang_up(self) -> None:
        """Close all connections. What stays open would be reported in a later test."""
        for writer in self._connections:
            writer.close()

    def _reply_to(self, words: list[str]) -> Any:
        if words[0].upper() in ("CLIENT", "AUTH", "SELECT", "PING"):
            return "OK"
        return self._answer(words)


@asynccontextmanager
async def impostor(answer: Answer) -> AsyncIterator[Impostor]:
    """Run one on a free port."""
    impostor = Impostor(answer)
    server = await asyncio.start_server(impostor.serve, "127.0.0.1", 0)
    impostor.port = server.sockets[0].getsockname()[1]
    try:
        yield impostor
    finally:
        server.close()
        impostor.hang_up()
        await asyncio.sleep(0)  # in which transports are closed


def _packed(reply: Any) -> bytes:
    if reply is None:
        return b"*-1\r\n"
    if isinstance(reply, Exception):
        return f"-{reply}\r\n".encode()
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, str):
        return b"$%d\r\n%s\r\n" % (len(reply.encode()), reply.encode())
    return b"*%d\r\n" % len(reply) + b"".join(map(_packed, reply))
