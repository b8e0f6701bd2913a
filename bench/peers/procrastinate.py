"""Procrastinate on PostgreSQL: 10 jobs at a time; it has no results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.marks import started
from bench.peers import Arguments, Producer, run


async def job(number: int, begun: int, text: str) -> int:  # noqa: ARG001 - the text is ballast
    started(number, begun)
    return number


def make(url: str) -> tuple[App, Any]:
    app = App(connector=PsycopgConnector(conninfo=url))
    return app, app.task(name="job")(job)


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Producer]:
    app, task = make(url)
    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()

        async def enqueue(number: int, begun: int, text: str) -> None:
            await task.defer_async(number=number, begun=begun, text=text)

        async def enqueue_many(batch: list[Arguments]) -> None:
            names = ("number", "begun", "text")
            await task.batch_defer_async(
                *(dict(zip(names, arguments, strict=True)) for arguments in batch)
            )

        yield Producer(enqueue, enqueue_many)


def work(url: str) -> None:
    app, _ = make(url)

    async def main() -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=10)

    run(main())
