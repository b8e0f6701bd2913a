"""Taskiq on Redis streams: 500 jobs at a time; results stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from bench.marks import started
from bench.peers import Producer, run


async def job(number: int, begun: int, text: str) -> int:  # noqa: ARG001 - the text is ballast
    started(number, begun)
    return number


def make(url: str) -> tuple[RedisStreamBroker, Any]:
    results: RedisAsyncResultBackend[int] = RedisAsyncResultBackend(url, result_ex_time=3600)
    broker = RedisStreamBroker(url, xread_count=500).with_result_backend(results)
    return broker, broker.task(task_name="job")(job)


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    broker, task = make(url)
    await broker.startup()
    yield Producer(task.kiq)
    await broker.shutdown()


def work(url: str) -> None:
    broker, _ = make(url)
    run(run_receiver_task(broker, max_async_tasks=500, run_startup=True))
