"""arq on Redis: 500 jobs at a time; it stores results by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arq import Worker, create_pool
from arq.connections import RedisSettings

from bench.marks import started
from bench.peers import Producer, run


async def job(_: Any, number: int, begun: int, text: str) -> int:  # noqa: ARG001 - ballast
    started(number, begun)
    return number


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    pool = await create_pool(RedisSettings.from_dsn(url))

    async def enqueue(number: int, begun: int, text: str) -> None:
        await pool.enqueue_job("job", number, begun, text)

    yield Producer(enqueue)
    await pool.aclose()


def work(url: str) -> None:
    async def main() -> None:
        await Worker([job], redis_settings=RedisSettings.from_dsn(url), max_jobs=500).async_run()

    run(main())
