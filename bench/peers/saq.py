"""SAQ on Redis: 200 jobs at a time; it stores results by itself.

With its default of one try, the job of a killed worker would be aborted instead of run again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue, Worker

from bench.marks import started
from bench.peers import Producer, run


async def job(_: Any, *, number: int, begun: int, text: str) -> int:  # noqa: ARG001 - ballast
    started(number, begun)
    return number


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    queue = Queue.from_url(url)
    await queue.connect()

    async def enqueue(number: int, begun: int, text: str) -> None:
        await queue.enqueue("job", retries=3, number=number, begun=begun, text=text)

    yield Producer(enqueue)
    await queue.disconnect()


def work(url: str) -> None:
    async def main() -> None:
        queue = Queue.from_url(url)
        await queue.connect()
        await Worker(queue, functions=[("job", job)], concurrency=200).start()

    run(main())
