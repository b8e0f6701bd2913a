"""What a client proves itself with is kept nowhere: no store, log, event or answer has it."""

import logging
from pathlib import Path

import asyncpg
import pytest
from valkey.asyncio import Valkey

from tenure import ConfigError, Tenure
from tenure.http import AsyncRouter
from tests.contract.worlds import World
from tests.http.conftest import Replica
from tests.http.wire import remote, served

# Any of them, wherever it turns up.
CANARY = "canary-0f4a"
SENT = {
    "Authorization": f"Bearer {CANARY}-authorization",
    "Cookie": f"session={CANARY}-cookie",
    "Proxy-Authorization": f"Basic {CANARY}-proxy",
    "X-Api-Key": f"{CANARY}-api-key",
    "User-Agent": f"{CANARY}-agent",
    "Idempotency-Key": f"{CANARY}-key",
}
# What is kept, to show that whoever looks here sees something.
CONTROL = "control-77aa"


async def test_a_clients_secrets_are_kept_nowhere(
    real_replica: Replica, real_world: World, request: pytest.FixtureRequest, caplog
):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("asyncio").setLevel(logging.INFO)
    service = await real_replica()
    told = []
    service.app.on_event(told.append)
    answers = []
    async with served(service.face("fastapi")) as url, remote(url) as client:
        client.headers |= SENT
        for path, body in (
            ("/reports", {"month": 3, "note": CONTROL}),
            ("/reports", {"month": "x"}),
            ("/reports/failing", None),
            ("/reports/refusing", None),
        ):
            prefer = {"Prefer": "wait=20", "Accept-Language": CONTROL}
            submitted = await client.post(path, json=body, headers=prefer)
            answers.append(submitted)
            if location := submitted.headers.get("location"):
                looked = ("", "/result", "/events")
                answers += [await client.get(f"{location}{below}") for below in looked]
                answers.append(await client.delete(location))
        answers.append(await client.get("/reports/jobs"))
        answers.append(await client.get("/reports/jobs/x"))
    assert len(answers) >= 12
    for answer in answers:
        assert CANARY not in answer.text
        assert CANARY not in str(answer.headers)
    assert told
    assert CANARY not in repr(told)
    assert "hidden-5c3e" in caplog.text  # the trace of a failure is in the log, and not more
    ours = [one for one in caplog.records if not one.name.startswith(("httpx", "httpcore"))]
    assert CANARY not in "\n".join(f"{one.getMessage()} {one.exc_text}" for one in ours)
    kept = await dump(real_world, request)
    assert CONTROL in kept
    assert CANARY not in kept


async def dump(world: World, request: pytest.FixtureRequest) -> str:
    """Return everything that a store has, as text."""
    if world.family == "sqlite":
        folder = Path(world.url.removeprefix("sqlite://")).parent
        return "\n".join(one.read_bytes().decode("latin-1") for one in folder.iterdir())
    if world.family == "redis":
        return await _dump_redis(request.getfixturevalue("valkey_server").url, world.namespace)
    if world.family == "postgres":
        return await _dump_postgres(request.getfixturevalue("postgres_server").url)
    store = await world.store()
    return repr((await store.jobs.find(limit=200)).jobs)


async def _dump_redis(url: str, namespace: str) -> str:
    found = []
    async with Valkey.from_url(url) as valkey:
        async for key in valkey.scan_iter(f"*{namespace}*"):
            kind = (await valkey.type(key)).decode()
            look = {
                "string": valkey.get,
                "hash": valkey.hgetall,
                "set": valkey.smembers,
                "zset": lambda key: valkey.zrange(key, 0, -1, withscores=True),
                "list": lambda key: valkey.lrange(key, 0, -1),
                "stream": valkey.xrange,
            }[kind]
            found.append(f"{key!r}: {await look(key)!r}")
    return "\n".join(found)


async def _dump_postgres(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET bytea_output = 'escape'")
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'tenure'"
        )
        rows = []
        for (table,) in tables:
            rows += await connection.fetch(f"SELECT t::text FROM tenure.{table} t")
    finally:
        await connection.close()
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("name", ["Authorization", "cookie", "PROXY-AUTHORIZATION", "Set-Cookie"])
def test_a_secret_header_cannot_be_asked_for(name: str):
    with pytest.raises(ConfigError, match="jobs do not store it"):
        AsyncRouter(Tenure("memory://"), prefix="/r", headers=[name]).post("")(_handler)
    with pytest.raises(ConfigError, match="jobs do not store it"):
        AsyncRouter(Tenure("memory://"), prefix="/r").post("", headers=[name])(_handler)


async def _handler() -> None: ...
