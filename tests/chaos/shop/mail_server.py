"""A mail server on the loopback that can be switched off: connections are refused then."""

import asyncio
import re
from contextlib import suppress

from tests.rig.servers.sockets import LOOPBACK

_MESSAGE_ID = re.compile(rb"^Message-ID: <([^@>]+)@([^>]+)>", re.MULTILINE | re.IGNORECASE)
_END = b"\r\n.\r\n"


class MailServer:
    """Takes mails by SMTP, and keeps their ids."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, str]] = []
        """What was delivered: the id of the job, and the process that it came from."""
        self.port = 0
        self._server: asyncio.Server | None = None

    async def switch_on(self) -> None:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def switch_off(self) -> None:
        """Refuse connections. Open ones end by themselves, so that no mail is taken unconfirmed."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._converse(reader, writer)
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 shop\r\n")
        while verb := (await reader.readline())[:4].strip().upper():
            match verb:
                case b"DATA":
                    writer.write(b"354 go on\r\n")
                    self._take(await reader.readuntil(_END))
                    writer.write(b"250 accepted\r\n")
                case b"QUIT":
                    writer.write(b"221 bye\r\n")
                    return
                case _:
                    writer.write(b"250 ok\r\n")

    def _take(self, mail: bytes) -> None:
        message_id = _MESSAGE_ID.search(mail)
        assert message_id is not None, mail
        self.mails.append((message_id[1].decode(), message_id[2].decode()))
