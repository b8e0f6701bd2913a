# pyright: strict
"""Uses of the library that type checkers must accept, and the types they must see.

Never run; `test_typing.py` has it checked.
"""

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import assert_type

from msgspec import Struct

from tenure import (
    Attempt,
    Backoff,
    Job,
    JobContext,
    JobRequest,
    Outgoing,
    OutgoingBatch,
    Task,
    Tenure,
    Unique,
    UniqueBusy,
    UniqueMismatch,
    blocking,
    current_job,
)
from tenure.http import AsyncRouter

app = Tenure("memory://")


class Receipt(Struct):
    number: int


@app.task
async def bare(user: int, template: str = "welcome") -> Receipt:
    return Receipt(user)


@app.task
def bare_sync(user: int, /, *, template: str = "welcome") -> bool:
    return True


@app.task(queue="mail", timeout=30, retry=Backoff(max_attempts=8), priority=1, retention="1d")
async def optioned(user: int) -> Receipt:
    return Receipt(user)


@app.task(name="other", retry=None, executor="process")
def optioned_sync(*users: int, **names: str) -> dict[str, int]:
    return {}


@app.task()
async def without_result() -> None: ...


def send_later(user: int, awaitable: Awaitable[Receipt]) -> Awaitable[Receipt]:
    return awaitable


declared = app.task(send_later)


async def tasks() -> None:
    assert_type(await bare.enqueue(7), Job[Receipt])
    assert_type(await bare.enqueue(7, template="bye"), Job[Receipt])
    assert_type(await bare_sync.enqueue(7, template="bye"), Job[bool])
    assert_type(await optioned.enqueue(user=7), Job[Receipt])
    assert_type(await optioned_sync.enqueue(1, 2, a="b"), Job[dict[str, int]])
    assert_type(await without_result.enqueue(), Job[None])
    assert_type(await declared.enqueue(7, bare(7)), Job[Receipt])


async def calls() -> None:
    assert_type(await bare(7), Receipt)
    assert_type(bare_sync(7, template="bye"), bool)
    assert_type(await optioned.using(delay=5)(7), Receipt)
    assert_type(optioned_sync(1, a="b"), dict[str, int])
    assert_type(await build("x"), Receipt)
    assert_type(await (await build.enqueue("x")).result(), Receipt)
    assert_type(print_out(7), str)


reports = AsyncRouter(app, prefix="/reports", owner=lambda: "ann")


@reports.post("", queue="slow", timeout="10m", idempotency="required")
async def build(body: str, job: JobContext) -> Receipt:
    return Receipt(7)


@reports.put("/{number}", media_type="text/plain")
def print_out(number: int) -> str:
    return ""


@app.task
async def ship(order: int, connection: sqlite3.Connection) -> str:
    async with current_job().transaction(connection) as done:
        return assert_type(done.result(f"parcel {order}"), str)


@app.task
def ship_plainly(order: int, connection: sqlite3.Connection) -> str:
    with current_job().transaction(connection) as done:
        return done.result(f"parcel {order}")


def attempts(job: Job[Receipt]) -> list[tuple[datetime, datetime]]:
    history: list[Attempt] = job.history
    return [(attempt.started, attempt.ended) for attempt in history]


async def results() -> None:
    assert_type(await (await bare.enqueue(7)).result(timeout="30s"), Receipt)
    assert_type(await (await bare_sync.enqueue(7)).result(timedelta(minutes=1)), bool)
    assert_type((await (await bare.enqueue(7)).result()).number, int)
    assert_type(await (await bare.enqueue(7)).wait(), Job[Receipt])
    assert_type(await (await bare.enqueue(7)).refresh(), Job[Receipt])
    assert_type(await (await bare.enqueue(7)).cancel(reason="enough"), bool)


async def options() -> None:
    soon = bare.using(delay="5m", priority=0, unique="user 7", tags=["a"], timeout=5)
    later = bare.using(at=datetime.now(UTC), queue="other", unique=Unique("k", keep="1h"))
    marked = bare.using(headers={"x-request-id": "r-1"})
    assert_type((await marked.enqueue(7)).headers, Mapping[str, str])
    assert_type(await soon.enqueue(7), Job[Receipt])
    assert_type(await later.using(retention=0).enqueue(7, "bye"), Job[Receipt])


@app.on_enqueue
def add_tenant(job: Outgoing) -> None:
    job.headers["tenant"] = f"of {job.task} on {job.queue}"


@app.around_enqueue
@asynccontextmanager
async def sending(batch: OutgoingBatch) -> AsyncGenerator[None]:
    assert_type([job.headers for job in batch.jobs], list[dict[str, str]])
    yield


@app.around_attempt
@contextmanager
def attempting(job: JobContext) -> Generator[None]:
    assert_type(job.headers, Mapping[str, str])
    assert_type(job.parent, str | None)
    yield


def takes_a_task(task: Task[[int], Receipt]) -> JobRequest[Receipt]:
    return task.request(7)


async def requests() -> None:
    assert_type(bare.request(7), JobRequest[Receipt])
    assert_type(takes_a_task(optioned), JobRequest[Receipt])
    assert_type(await app.enqueue(bare.request(7)), Job[Receipt])
    many = await app.enqueue_many(bare.request(user) for user in range(9))
    assert_type(many, list[Job[Receipt]])
    answers = await app.enqueue_many([bare_sync.request(7)], return_exceptions=True)
    assert_type(answers, list[Job[bool] | UniqueMismatch | UniqueBusy])


async def looking() -> None:
    job = await app.job("...")
    page = await app.jobs(state="failed", limit=10)
    assert_type(job.created, datetime)
    assert_type(page[0].state == "failed", bool)
    assert_type(page.cursor, str | None)
    assert_type([counts.waiting for counts in await app.queues()], list[int])


def threads() -> None:
    with blocking.Tenure(app) as sync:
        assert_type(sync.enqueue(bare.request(7)), blocking.Job[Receipt])
        assert_type(sync.enqueue(bare.request(7)).result(timeout=30), Receipt)
        assert_type(sync.enqueue(bare_sync.request(7)).wait().refresh(), blocking.Job[bool])
        assert_type(sync.enqueue(without_result.request()).cancel(), bool)
        many = sync.enqueue_many([bare.using(delay=5).request(7)])
        assert_type(many, list[blocking.Job[Receipt]])
        answers = sync.enqueue_many([bare.request(7)], return_exceptions=True)
        assert_type(answers, list[blocking.Job[Receipt] | UniqueMismatch | UniqueBusy])
        page = sync.jobs(tag="a")
        assert_type(page[0].id, str)
        assert_type(page.cursor, str | None)
        assert_type(sync.job("...").progress, float | None)
        assert_type(sync.delete_job("id"), None)
        assert_type(sync.prune_jobs(), int)
