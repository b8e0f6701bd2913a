"""PgQueuer on PostgreSQL: batches of 500; it has no results."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from bench.marks import started
from bench.peers import Arguments, Producer, run


async def job(work: Job) -> None:
    number, begun, _ = json.loads(work.payload or b"")
    started(number, begun)


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    if not await queries.has_table("pgqueuer"):
        await queries.install()

    async def enqueue(*arguments: object) -> None:
        await queries.enqueue("job", json.dumps(arguments).encode())

    async def enqueue_many(batch: list[Arguments]) -> None:
        payloads: list[bytes | None] = [json.dumps(arguments).encode() for arguments in batch]
        await queries.enqueue(["job"] * len(batch), payloads, [0] * len(batch))

    yield Producer(enqueue, enqueue_many)
    await connection.close()


def work(url: str) -> None:
    async def main() -> None:
        queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))
        queue.entrypoint("job")(job)
        await queue.run(batch_size=500)

    run(main())
