"""The processes of the HTTP benchmark: a service of one kind, or the load on it.

`serve KIND URL` prints its port; `load PORT CONNECTIONS SECONDS` prints its report.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel

BODY = {"month": 7, "lines": ["one", "two", "three"], "note": "x" * 100}


class Ask(BaseModel):
    """The body of every request."""

    month: int
    lines: list[str]
    note: str


def serve(kind: str, url: str) -> None:
    store = url.partition(":")[0]
    api = {"tenure": tenure, "bare": BARE.get(store, bare_sqlite), "saq": saq}[kind](url)
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        here.listen(1024)
        print(here.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(api, log_level="warning")).run([here])


def tenure(url: str) -> Any:
    from tenure import Tenure
    from tenure.http import AsyncRouter

    app = Tenure(url)

    async def owner() -> str:
        return "ann"

    jobs = AsyncRouter(app, prefix="/rows", owner=owner)

    @jobs.post("")
    async def build(body: Ask) -> int:
        return len(body.lines)

    api = FastAPI()
    api.include_router(jobs.router)
    return api


# A bare route that stores one row, and one that reads it.


def bare(
    opened: Callable[[], Any], insert: Callable[[str, str], Any], read: Callable[[str], Any]
) -> Any:
    api = FastAPI(lifespan=opened)

    @api.post("/rows")
    async def build(body: Ask) -> JSONResponse:
        id_ = str(uuid4())
        await insert(id_, body.model_dump_json())
        shown = {"id": id_, "status": "waiting"}
        return JSONResponse(shown, 202, headers={"Location": f"/rows/jobs/{id_}"})

    @api.get("/rows/jobs/{id_}")
    async def status(id_: str) -> JSONResponse:
        return JSONResponse({"id": id_, "row": json.loads(await read(id_))})

    return api


def bare_postgres(url: str) -> Any:
    import asyncpg

    pool: Any = None

    @asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[None]:
        nonlocal pool
        async with asyncpg.create_pool(url, min_size=10, max_size=10) as pool:
            await pool.execute("CREATE TABLE row (id text PRIMARY KEY, body text)")
            yield

    async def insert(id_: str, body: str) -> None:
        await pool.execute("INSERT INTO row VALUES ($1, $2)", id_, body)

    async def read(id_: str) -> str:
        return await pool.fetchval("SELECT body FROM row WHERE id = $1", id_)

    return bare(opened, insert, read)


def bare_redis(url: str) -> Any:
    import redis.asyncio

    client = redis.asyncio.from_url(url)

    @asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[None]:
        yield

    return bare(opened, client.set, client.get)


def bare_sqlite(url: str) -> Any:
    file, mine = url.removeprefix("sqlite:///"), threading.local()

    def connection() -> sqlite3.Connection:
        if not hasattr(mine, "own"):
            mine.own = sqlite3.connect(file, isolation_level=None, timeout=30)
            mine.own.execute("PRAGMA journal_mode = wal")
            mine.own.execute("PRAGMA synchronous = full")
        return mine.own

    @asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[None]:
        connection().execute("CREATE TABLE row (id text PRIMARY KEY, body text)")
        yield

    def insert(id_: str, body: str) -> None:
        connection().execute("INSERT INTO row VALUES (?, ?)", (id_, body))

    def read(id_: str) -> str:
        return connection().execute("SELECT body FROM row WHERE id = ?", (id_,)).fetchone()[0]

    async def insert_async(id_: str, body: str) -> None:
        await asyncio.to_thread(insert, id_, body)

    async def read_async(id_: str) -> str:
        return await asyncio.to_thread(read, id_)

    return bare(opened, insert_async, read_async)


BARE = {"postgresql": bare_postgres, "redis": bare_redis}


def saq(url: str) -> Any:
    """Return the same service written by hand: a SAQ queue and a status route."""
    from saq import Queue

    queue = Queue.from_url(url)

    @asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[None]:
        await queue.connect()
        yield
        await queue.disconnect()

    api = FastAPI(lifespan=opened)

    @api.post("/rows")
    async def build(body: Ask) -> JSONResponse:
        job = await queue.enqueue("build", body=body.model_dump())
        shown = {"id": job.key, "status": job.status}
        return JSONResponse(shown, 202, headers={"Location": f"/rows/jobs/{job.key}"})

    @api.get("/rows/jobs/{key}")
    async def status(key: str) -> JSONResponse:
        job = await queue.job(key)
        if job is None:
            raise HTTPException(404)
        return JSONResponse({"id": key, "status": job.status, "result": job.result})

    return api


# The load.


class Line:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, request: bytes, status: bytes) -> dict[bytes, bytes]:
        """Send a request and read the answer to its end; return its headers."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *rest = head[:-4].split(b"\r\n")
        assert first.split()[1] == status, head
        headers = {line.partition(b": ")[0].lower(): line.partition(b": ")[2] for line in rest}
        await self._reader.readexactly(int(headers[b"content-length"]))
        return headers


def post() -> bytes:
    body = json.dumps(BODY).encode()
    return b"POST /rows HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + (
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )


async def measure(lines: list[Line], request: bytes, status: bytes, seconds: float) -> Any:
    took: list[float] = []
    until = time.perf_counter() + seconds

    async def use(line: Line) -> None:
        while (begun := time.perf_counter()) < until:
            await line.ask(request, status)
            took.append(time.perf_counter() - begun)

    await asyncio.gather(*map(use, lines))
    return {"rate": len(took) / seconds, "took": took}


async def load(port: int, connections: int, seconds: float) -> None:
    lines = [Line(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(connections)]
    await measure(lines, post(), b"202", min(1.0, seconds))
    headers = await lines[0].ask(post(), b"202")
    submits = await measure(lines, post(), b"202", seconds)
    get = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % headers[b"location"]
    reads = await measure(lines, get, b"200", seconds)
    print(json.dumps({"submits": submits, "reads": reads}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", kind, url]:
            serve(kind, url)
        case ["load", port, connections, seconds]:
            asyncio.run(load(int(port), int(connections), float(seconds)))
