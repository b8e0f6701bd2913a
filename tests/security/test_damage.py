"""Spoiled records in a store harm no worker, no list and no neighbour."""

import asyncio
import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest
import redis

from tenure import Tenure
from tenure.core.jobs.records import NewJob
from tenure.core.jobs.states import STATES
from tests.contract.worlds import World
from tests.rig.fixtures import Endpoint
from tests.rig.sizes import SIZE
from tests.security.mutation import Mutator
from tests.security.workers import app_on, ended, put, put_all

VALUES: list[Any] = [
    *(
        -1,
        0,
        1,
        2**31,
        2**62,
        -(2**62),
        1.5,
        -1.5,
        1e300,
        b"",
        b"\x00\xff",
        b"[]",
        "",
        "x",
        "[",
        "[1]",
    ),
    *('{"a":1}', "\x00", "9" * 400, "\u202e", b"x" * 5000, "succeeded", "no state", None),
]
COLUMNS = {
    "tenure_job": ("task", "created", "retention", "timeout", "tags", "digest", "keep", "payload"),
    "tenure_live": (
        *("retained", "allowed", "revision", "attempt", "failures", "losses", "started", "message"),
        *("progress", "reason", "error", "history", "checkpoint", "settled_as", "settled_fence"),
    ),
}
CHANCE = random.Random(4)
ROUNDS = 1 if SIZE.name == "short" else 200


async def spoil_sqlite(world: World, ids: list[str], _: Endpoint | None) -> None:
    db = sqlite3.connect(world.url.removeprefix("sqlite:///"), isolation_level=None)
    db.execute("PRAGMA ignore_check_constraints = ON")
    for id_ in ids:
        table = CHANCE.choice([*COLUMNS])
        column, value = CHANCE.choice(COLUMNS[table]), CHANCE.choice(VALUES)
        with suppress(sqlite3.IntegrityError):  # that much SQLite sees to
            db.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (value, id_))
    db.close()


async def spoil_redis(world: World, ids: list[str], server: Endpoint | None) -> None:
    assert server is not None
    with redis.Redis.from_url(server.url) as client:
        for id_ in ids:
            key = f"{{tenure:{world.namespace}}}:job:{CHANCE.choice(['state', 'fixed'])}"
            good = client.hget(key, id_)
            assert isinstance(good, bytes)
            bad = iter(Mutator([good], CHANCE.randrange(10**6)))
            next(bad)
            client.hset(key, id_, next(bad))


async def spoil_postgres(world: World, ids: list[str], _: Endpoint | None) -> None:
    connection = await asyncpg.connect(world.url)
    texts = ("task", "message", "reason", "settled_as")
    for id_ in ids:
        column = CHANCE.choice(
            [*texts, "payload", "error", "history", "checkpoint", "created", "started"]
        )
        value: Any = CHANCE.randbytes(20)
        if column in texts:
            value = CHANCE.choice(
                [value for value in VALUES if isinstance(value, str) and "\0" not in value]
            )
        elif column in ("created", "started"):
            value = CHANCE.choice([2**62, -(2**62), 0])
        statement = f"UPDATE tenure.job SET {column} = $1 WHERE id = $2"
        with suppress(asyncpg.CheckViolationError):  # that much PostgreSQL sees to
            await connection.execute(statement, value, id_)
    await connection.close()


SPOIL: dict[str, Callable[..., Any]] = {
    "sqlite": spoil_sqlite,
    "redis": spoil_redis,
    "postgres": spoil_postgres,
}


async def test_spoiled_records_harm_nobody(
    request: pytest.FixtureRequest, real_world: World, family: str
):
    if family == "memory":
        return  # no other process can write there
    server = request.getfixturevalue("valkey_server") if family == "redis" else None
    job = NewJob(id="", task="taking", payload=b'{"value":1}', tags=("tag",), timeout=60.0)
    async with app_on(real_world) as app:
        for _ in range(ROUNDS):
            ids = await put_all(app, [job] * 60)
            await SPOIL[family](real_world, ids, server)
            good = await put(app, [b'{"value":[1]}'] * 20)
            await look_at(app)
            async with app.worker(concurrency=4):
                done = await ended(app, good)
                assert {job.state for job in done} == {"succeeded"}
                await look_at(app)
            await look_at(app)
            await app.recover()
            await app.prune_jobs()
            assert await app.replicas() == []
            assert all(not queue.running for queue in await app.queues())


async def look_at(app: Tenure) -> None:
    """Ask for everything that operators ask for."""
    await app.queues()
    for state in STATES:
        for job in await app.jobs(state=state, limit=200):
            text = f"{job!r} {job.error} {job.trace} {job.history} {job.created} {job.due}"
            assert job.id in text
    await app.jobs(tag="tag")
    await app.jobs(task="taking")


@pytest.mark.parametrize(
    "message", [b"\xff\xfe", b"", b"\0\0", b"queue", b"x" * 10_000, b"lease \xff"]
)
async def test_strange_wake_ups_harm_no_listener(
    valkey_server: Endpoint, namespace: str, message: bytes
):
    from tenure.core.clock import SystemClock
    from tenure.stores.redis import RedisStore

    store = RedisStore(valkey_server.app_url, namespace=namespace, clock=SystemClock())
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await store.open()
    try:
        async with store.watch(("lease", "ben"), ("queue", "q"), ("job", "j")) as bell:
            with redis.Redis.from_url(valkey_server.url) as client:
                for channel in (store.channel, f"{store.bells}queue", f"{store.bells}job"):
                    client.publish(channel, message)
                client.publish(f"{store.bells}job", b"j")
            assert await bell.wait(20)
    finally:
        await store.close()
    assert complaints == []
