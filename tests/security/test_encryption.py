"""TLS: a server that cannot show who it is gets no password."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure import StoreError, Tenure
from tenure.errors import TenureError

# A key and a certificate for "localhost", signed by itself, good for these tests only.
CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"
PASSWORD = b"PASSWORD-4711"


class Listener:
    """A server that talks TLS and writes down what it is told after that."""

    def __init__(self) -> None:
        self.heard = b""
        self.port = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATE)

    async def redis(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._hear(reader, writer, b"-ERR no\r\n" * 10)

    async def postgres(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asks_for_tls = await reader.readexactly(8)
        assert asks_for_tls == bytes([0, 0, 0, 8, 4, 210, 22, 47])
        writer.write(b"S")
        await writer.drain()
        await self._hear(reader, writer, b"R\0\0\0\x08\0\0\0\x03")  # "tell me your password"

    async def _hear(self, reader, writer, answer: bytes) -> None:
        try:
            await writer.start_tls(self._context)
            while part := await asyncio.wait_for(reader.read(1000), 5):
                self.heard += part
                if PASSWORD in self.heard:
                    break
                writer.write(answer)
        except (OSError, TimeoutError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def listener(kind: str) -> AsyncIterator[Listener]:
    listener = Listener()
    server = await asyncio.start_server(getattr(listener, kind), "localhost", 0)
    listener.port = server.sockets[0].getsockname()[1]
    yield listener
    server.close()


async def refused(url: str) -> str:
    with pytest.raises(TenureError) as caught:
        async with asyncio.timeout(20):
            await Tenure(url).open()
    return f"{caught.value} {caught.value.__cause__!r}"


REDIS = "rediss://ann:PASSWORD-4711@{host}:{port}/0{options}"
POSTGRES = "postgresql://ann:PASSWORD-4711@{host}:{port}/d?sslmode=verify-full{options}"


@pytest.mark.parametrize(
    ("kind", "url", "option"),
    [("redis", REDIS, "?ssl_ca_certs="), ("postgres", POSTGRES, "&sslrootcert=")],
    ids=["redis", "postgres"],
)
@pytest.mark.parametrize(("host", "trusted"), [("localhost", False), ("127.0.0.1", True)])
async def test_a_server_that_is_not_trusted_hears_nothing(
    listener: Listener, url: str, option: str, host: str, trusted: bool
):
    options = f"{option}{CERTIFICATE}" if trusted else ""
    message = await refused(url.format(host=host, port=listener.port, options=options))
    assert "certificate" in message.lower(), message
    assert PASSWORD.decode() not in message
    assert listener.heard == b""


@pytest.mark.parametrize(
    ("kind", "url", "option"),
    [("redis", REDIS, "?ssl_ca_certs="), ("postgres", POSTGRES, "&sslrootcert=")],
    ids=["redis", "postgres"],
)
async def test_one_that_is_trusted_is_talked_to(listener: Listener, url: str, option: str):
    options = f"{option}{CERTIFICATE}"
    with pytest.raises(StoreError):  # it is no real server
        await Tenure(url.format(host="localhost", port=listener.port, options=options)).open()
    assert PASSWORD in listener.heard
