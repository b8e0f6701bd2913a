"""One process of the job benchmark: a producer or a worker of one contestant.

It imports that contestant only, so that memory is measured right, and so that it starts in an
environment that has nothing else.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench import marks
from bench.peers import Producer, run

WARM_UP = 20
BULK = 1000


@asynccontextmanager
async def opened(peer: Any, url: str) -> AsyncIterator[Producer]:
    context = peer.producer(url)
    if hasattr(context, "__aenter__"):
        async with context as producer:
            yield producer
    else:
        with context as producer:
            yield producer


async def enqueue(producer: Producer, numbers: range) -> float:
    """Enqueue jobs one after the other; return the rate per second."""
    enqueue_one = producer.enqueue
    is_async = asyncio.iscoroutinefunction(enqueue_one)
    begin = time.perf_counter()
    for number in numbers:
        answer = enqueue_one(number, time.monotonic_ns(), marks.TEXT)
        if is_async:
            await answer
    return len(numbers) / (time.perf_counter() - begin)


async def enqueue_in_bulk(producer: Producer, numbers: range) -> float:
    assert producer.enqueue_many is not None
    begin = time.perf_counter()
    for start in range(numbers.start, numbers.stop, BULK):
        batch = numbers[start - numbers.start : start - numbers.start + BULK]
        await producer.enqueue_many([(number, time.monotonic_ns(), marks.TEXT) for number in batch])
    return len(numbers) / (time.perf_counter() - begin)


async def produce(peer: Any, url: str, jobs: int, singles: int) -> dict[str, float]:
    """Enqueue `singles` jobs one by one, the rest in bulk; without a bulk call, all one by one."""
    async with opened(peer, url) as producer:
        last = singles if producer.enqueue_many else jobs
        await enqueue(producer, range(WARM_UP))
        rates = {"one by one": await enqueue(producer, range(WARM_UP, last))}
        if producer.enqueue_many:
            rates["in bulk"] = await enqueue_in_bulk(producer, range(last, jobs))
    return rates


async def pick(peer: Any, url: str, jobs: int) -> None:
    """Enqueue one job; after a line on stdin, more of them with pauses that idle the worker."""
    async with opened(peer, url) as producer:
        await enqueue(producer, range(1))
        print("enqueued", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.sleep(0.3)
        for number in range(jobs):
            await enqueue(producer, range(number, number + 1))
            await asyncio.sleep(random.uniform(0.003, 0.007))


async def unfinished(app: Any) -> int:
    return sum(queue.waiting + queue.running for queue in await app.queues())


async def alone(peer: Any, url: str, jobs: int) -> None:
    """Enqueue, work and count in one process, for a store that no other process sees."""
    app, task = peer.make(url)
    async with app:
        await app.enqueue_many(task.request(number, 0, marks.TEXT) for number in range(jobs))
        marks.expect(jobs)
        async with app.worker():
            while not marks.complete() or await unfinished(app):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.002)
            print(json.dumps({"settled": time.monotonic_ns()}), flush=True)


def main(peer_name: str, role: str, url: str, *numbers: str) -> None:
    logging.basicConfig(level=logging.ERROR)
    peer = importlib.import_module(f"bench.peers.{peer_name}")
    counts = list(map(int, numbers))
    match role:
        case "work":
            marks.expect(*counts)
            peer.work(url)
        case "produce":

            async def print_rates() -> None:
                print(json.dumps(await produce(peer, url, *counts)))

            run(print_rates())
        case "pick":
            run(pick(peer, url, *counts))
        case "alone":
            run(alone(peer, url, *counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
