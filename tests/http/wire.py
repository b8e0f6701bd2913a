"""Raw requests, which a well-behaved client would correct first."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx2
import uvicorn


@dataclass
class Reply:
    """The reply of an application, byte for byte."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    chunks_read: int = 0


async def send(
    application: Any,
    method: str,
    target: bytes,
    *,
    headers: Iterable[tuple[bytes, bytes]] = (),
    chunks: Iterable[bytes] = (b"",),
) -> Reply:
    """Send a request to an application as a server does that has received `target`."""
    path, _, query = target.partition(b"?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(b"host", b"x"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    reply, left = Reply(), list(chunks)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()  # the client stays
        reply.chunks_read += 1
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def respond(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], list(message["headers"])
        else:
            reply.body += message.get("body", b"")

    await application(scope, receive, respond)
    return reply


def client_of(
    application: Any, user: str = "ann", *, root_path: str = "", **options: Any
) -> httpx2.AsyncClient:
    """Return a client in this process; exceptions of the application are raised by it."""
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(application, root_path=root_path),
        base_url="http://x",
        headers={"x-user": user} if user else {},
        **options,
    )


def remote(url: str) -> httpx2.AsyncClient:
    """Return a client over the network, with as many connections as it takes."""
    limits = httpx2.Limits(max_connections=None)
    return httpx2.AsyncClient(base_url=url, headers={"x-user": "ann"}, limits=limits, timeout=20)


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:
        return nullcontext()  # they are pytest's


@asynccontextmanager
async def served(application: Any) -> AsyncIterator[str]:
    """Serve an application by uvicorn on a free port of this machine; yield its address."""
    config = uvicorn.Config(
        application, port=0, log_config=None, lifespan="on", timeout_graceful_shutdown=1
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not task.done(), "uvicorn did not start"
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task
