"""Tenure with its defaults: 100 jobs at a time, results kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.marks import started
from bench.peers import Arguments, Producer, run
from tenure import Tenure


async def job(number: int, begun: int, text: str) -> int:  # noqa: ARG001 - the text is ballast
    started(number, begun)
    return number


def make(url: str) -> tuple[Tenure, Any]:
    app = Tenure(url)
    return app, app.task(job)


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    app, task = make(url)
    async with app:

        async def many(batch: list[Arguments]) -> None:
            await app.enqueue_many(task.request(*arguments) for arguments in batch)

        yield Producer(task.enqueue, many)


def work(url: str) -> None:
    app, _ = make(url)
    run(app.run_worker())
