"""Credentials of a client are kept nowhere: not in stores, logs, events or answers."""

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

# Part of every secret, so that any of them is found.
CANARY = "canary-0f4a"
SENT = {
    "Authorization": f"Bearer {CANARY}-authorization",
    "Cookie": f"session={CANARY}-cookie",
    "Proxy-Authorization": f"Basic {CANARY}-proxy",
    "X-Api-Key": f"{CANARY}-api-key",
    "User-Agent": f"{CANARY}-agent",
    "Idempotency-Key": f"{CANARY}-key",
}
# A value that is kept, to show that this search can find values.
CONTROL = "control-77aa"


async def test_secrets_of_a_client_are_stored_and_logged_nowhere(
    real_replica: Replica, real_world: World, request: pytest.FixtureRequest, caplog
):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("asyncio").setLevel(logging.INFO)
    service = await real_replica()
    events = []
    service.app.on_event(events.append)
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
    assert events
    assert CANARY not in repr(events)
    assert "hidden-5c3e" in caplog.text  # the log has the traceback, and nothing more
    ours = [line for line in caplog.records if not line.name.startswith(("httpx", "httpcore"))]
    assert CANARY not in "\n".join(f"{line.getMessage()} {line.exc_text}" for line in ours)
    kept = await dump(real_world, request)
    assert CONTROL in kept
    assert CANARY not in kept


async def dump(world: World, request: pytest.FixtureRequest) -> str:
    """Return the whole content of a store as text."""
    if world.family == "sqlite":
        folder = Path(world.url.removeprefix("sqlite://")).parent
        return "\n".join(file.read_bytes().decode("latin-1") for file in folder.iterdir())
    if world.family == "redis":
        return await _dump_redis(request.getfixturevalue("valkey_server").url, world.namespace)
    if world.family == "postgres":
        return await _dump_postgres(request.getfixturevalue("postgres_server").url)
    store = await world.store()
    return repr((await store.jobs.find(limit=200)).jobs)


async def _dump_redis(url: str, namespace: str) -> str:
    entries = []
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
            entries.append(f"{key!r}: {await look(key)!r}")
    return "\n".join(entries)


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
def test_a_secret_header_cannot_be_kept(name: str):
    with pytest.raises(ConfigError, match="jobs do not store it"):
        AsyncRouter(Tenure("memory://"), prefix="/r", headers=[name]).post("")(_handler)
    with pytest.raises(ConfigError, match="jobs do not store it"):
        AsyncRouter(Tenure("memory://"), prefix="/r").post("", headers=[name])(_handler)


async def _handler() -> None: ...
