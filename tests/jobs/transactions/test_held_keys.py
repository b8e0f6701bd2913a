"""A unique key that an open transaction holds delays jobs with that key, and no others."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from tenure import StoreUnavailable, Tenure, UniqueBusy
from tests.rig.fixtures import Endpoint
from tests.rig.sizes import SIZE
from tests.stores.postgres.inside import connected


@dataclass
class Shop:
    """An app with two tasks."""

    app: Tenure
    mail: Any
    other: Any


@pytest.fixture
async def shop(postgres_server: Endpoint, namespace: str) -> AsyncIterator[Shop]:
    app = Tenure(postgres_server.url, namespace=namespace)

    @app.task
    async def mail(number: int) -> None: ...

    @app.task
    async def other(number: int) -> None: ...

    async with app:
        yield Shop(app, mail, other)


@pytest.fixture
async def holder(postgres_server: Endpoint, shop: Shop) -> AsyncIterator[asyncpg.Connection]:
    """A connection whose open transaction has enqueued a job with the unique key "k"."""
    async with connected(postgres_server.url) as connection:
        await connection.execute("BEGIN")
        await shop.mail.within(connection).using(unique="k").enqueue(1)
        yield connection


async def test_a_held_key_delays_no_other_job(shop: Shop, holder: asyncpg.Connection):
    mail = shop.mail.using(unique="k")
    waiting = [asyncio.create_task(mail.enqueue(1)) for _ in range(3)]
    for number in range(5):  # in the batch of the held ones, and in later ones
        jobs = await asyncio.gather(
            shop.other.enqueue(number), shop.other.using(unique=f"free {number}").enqueue(number)
        )
        assert all(job.is_new for job in jobs)
    assert not any(task.done() for task in waiting)
    await holder.execute("COMMIT")
    jobs = await asyncio.gather(*waiting)
    assert len({job.id for job in jobs}) == 1
    assert not any(job.is_new for job in jobs)


async def test_a_key_is_free_when_its_transaction_is_undone(shop: Shop, holder: asyncpg.Connection):
    waiting = asyncio.create_task(shop.mail.using(unique="k").enqueue(1))
    await shop.other.enqueue(1)
    await holder.execute("ROLLBACK")
    assert (await waiting).is_new


@pytest.mark.usefixtures("holder")
async def test_a_key_that_stays_held_is_an_error_only_for_its_callers(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tenure.core.store_policy.KEY_PATIENCE", 0.2)
    mail = shop.mail.using(unique="k")
    with pytest.raises(UniqueBusy, match="'k'") as caught:
        await mail.enqueue(1)
    assert isinstance(caught.value, StoreUnavailable)
    answers = await shop.app.enqueue_many(
        [shop.other.request(1), mail.request(1), shop.other.using(unique="free").request(2)],
        return_exceptions=True,
    )
    assert [type(answer).__name__ for answer in answers] == ["Job", "UniqueBusy", "Job"]
    [counts] = await shop.app.queues()
    assert counts.waiting == 2


async def test_a_key_that_a_job_has_is_answered_while_a_transaction_holds_it(
    shop: Shop, postgres_server: Endpoint
):
    mail = shop.mail.using(unique="k")
    first = await mail.enqueue(1)
    async with connected(postgres_server.url) as connection, connection.transaction():
        # It finds the job that has the key, and keeps the key locked until its end.
        await mail.within(connection).enqueue(1)
        async with asyncio.timeout(SIZE.patience):
            again = await mail.enqueue(1)
    assert (again.id, again.is_new) == (first.id, False)
