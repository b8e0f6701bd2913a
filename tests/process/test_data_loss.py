"""A store that comes back without its data is reported once, as an error, with what is gone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest
import redis

from tenure import Tenure
from tenure.app import engine_of
from tenure.core.clock import SystemClock
from tenure.errors import LeaseLost
from tenure.observe import DataLost, Event, HoldLost, ReplicaLost
from tenure.stores.connect import connect
from tests.rig.endings import leave
from tests.rig.fixtures import PrivatePostgres, PrivateValkey
from tests.rig.wait import wait_until_async

WAYS = ("sqlite", "redis-restarted", "redis-flushed", "postgres")


@dataclass
class Place:
    """A store whose data a test can take away."""

    url: str
    empty: Callable[[], Awaitable[None]]


@pytest.fixture(params=WAYS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind, _, how = request.param.partition("-")
    if kind == "sqlite":
        return sqlite_place(tmp_path)
    if kind == "postgres":
        return postgres_place(request.getfixturevalue("private_postgres"))
    return redis_place(request.getfixturevalue("private_valkey"), how)


def sqlite_place(folder: Path) -> Place:
    file = folder / "tenure.db"

    async def replace() -> None:
        fresh = folder / "fresh.db"
        async with Tenure(f"sqlite:///{fresh}"):
            pass
        put_in_place(fresh, file)

    return Place(f"sqlite:///{file}", replace)


def put_in_place(fresh: Path, file: Path) -> None:
    for part in file.parent.glob(f"{file.name}*"):
        part.unlink()
    fresh.rename(file)


def redis_place(private_valkey: PrivateValkey, how: str) -> Place:
    server = private_valkey()

    async def restart() -> None:
        await asyncio.to_thread(server.restart, empty=True)

    async def flush() -> None:
        with redis.Redis.from_url(server.url) as client:
            client.flushall()

    return Place(server.url, restart if how == "restarted" else flush)


def postgres_place(private_postgres: PrivatePostgres) -> Place:
    url = private_postgres().url

    async def drop() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("DROP SCHEMA tenure CASCADE")
        finally:
            await connection.close()
        async with Tenure(url):  # makes it anew, as the next deploy would
            pass

    return Place(url, drop)


@pytest.fixture
async def app(place: Place) -> AsyncIterator[Tenure]:
    async with Tenure(place.url, replica_ttl=1, grace=0) as app:
        yield app


@pytest.fixture
def seen(app: Tenure) -> list[Event]:
    seen: list[Event] = []
    app.on_event(seen.append)
    return seen


def of_kind(seen: list[Event], kind: type) -> list:
    return [event for event in seen if isinstance(event, kind)]


@pytest.mark.timeout(120)
async def test_a_data_loss_is_reported_once_with_what_is_gone(app, place, seen, caplog):
    started = asyncio.Queue()

    @app.task
    async def work(number: int) -> None:
        started.put_nowait(number)
        if number < 0:
            await asyncio.Event().wait()

    async with app.worker():
        for loss in range(1, 3):
            job = await work.enqueue(-loss)
            assert await started.get() == -loss
            hold = await app.lock("invoice:42", ttl=60, wait=30).acquire()
            await place.empty()
            await wait_until_async(lambda n=loss: len(of_kind(seen, ReplicaLost)) == n, timeout=60)
            await wait_until_async(lambda n=loss: len(of_kind(seen, DataLost)) >= n, timeout=60)
            lost = of_kind(seen, DataLost)[-1]
            assert lost.replica == of_kind(seen, ReplicaLost)[-1].replica
            assert lost.jobs == (job.id,)
            assert lost.holds == ("invoice:42",)
            with pytest.raises(LeaseLost):
                await hold.renew()
            again = await work.enqueue(loss)
            assert await started.get() == loss
            await again.result(timeout=30)
    assert len(of_kind(seen, DataLost)) == 2
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    messages = [
        record.getMessage() for record in errors if "has lost its data" in record.getMessage()
    ]
    assert len(messages) == 2
    assert all("invoice:42" in line for line in messages)


@pytest.mark.timeout(120)
async def test_a_process_that_only_holds_locks_tells_it(app, place, seen):
    hold = await app.lock("invoice:42", ttl=5).acquire()
    await place.empty()
    await wait_until_async(lambda: of_kind(seen, HoldLost), timeout=60)
    # If the lock has ended before the store was back, the next one that is renewed tells.
    async with app.lock("invoice:43", ttl=1, wait=30):
        await wait_until_async(lambda: of_kind(seen, DataLost), timeout=60)
    [lost] = of_kind(seen, DataLost)
    assert lost.store == engine_of(app).store.url
    assert set(lost.holds) <= {"invoice:42", "invoice:43"}
    assert hold.is_lost


@pytest.mark.timeout(120)
async def test_after_a_loss_programs_that_only_check_the_format_can_open_the_store(
    app, place, seen
):
    """Commands such as `tenure jobs ls`, and services with migrate="check"."""
    async with app.worker() as worker:
        await worker.ready()
        await place.empty()
        await wait_until_async(lambda: of_kind(seen, DataLost), timeout=60)
        async with Tenure(place.url, migrate="check") as other:
            assert await other.queues() == []


@pytest.mark.timeout(120)
async def test_two_apps_of_a_process_tell_it_once(app, place, seen):
    async with Tenure(place.url, replica_ttl=1, grace=0) as other:
        other.on_event(seen.append)
        async with app.worker() as worker, other.worker() as other_worker:
            # The store knows a replica before its worker does. One that is still joining when the
            # data is gone joins the new data, and has lost nothing.
            await asyncio.gather(worker.ready(), other_worker.ready())
            await place.empty()
            await wait_until_async(lambda: len(of_kind(seen, ReplicaLost)) == 2, timeout=60)
            datas = [engine_of(each).services().host.data for each in (app, other)]
            await wait_until_async(lambda: not any(data.is_suspected for data in datas), timeout=60)
    assert len(of_kind(seen, DataLost)) == 1


@pytest.mark.timeout(120)
async def test_a_process_that_loses_its_lease_and_replica_reports_no_data_loss(app, place, seen):
    store = connect(place.url, namespace=engine_of(app).store.namespace, clock=SystemClock())
    await store.open()
    async with app.worker():
        hold = await app.lock("invoice:42", ttl=5).acquire()
        [replica] = await wait_until_async(store.jobs.replicas, timeout=60)
        await store.leases.release(await store.leases.find())
        await leave(store, replica.id)
        for kind in (HoldLost, ReplicaLost):
            await wait_until_async(lambda kind=kind: of_kind(seen, kind), timeout=60)
        await wait_until_async(
            lambda: not engine_of(app).services().host.data.is_suspected, timeout=60
        )
    await store.close()
    assert hold.is_lost
    assert not of_kind(seen, DataLost)
