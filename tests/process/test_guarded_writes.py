"""Guarded writes by a process that was paused past its lease."""

import sqlite3

import asyncpg
import pytest

from tests.process.site import Site
from tests.rig.sizes import SIZE

TTL = 1.0


async def run_sql(site: Site, statement: str) -> list[int]:
    if site.family == "sqlite":
        db = sqlite3.connect(site.url.removeprefix("sqlite:///"), isolation_level=None)
        try:
            return [row[0] for row in db.execute(statement)]
        finally:
            db.close()
    connection = await asyncpg.connect(site.url)
    try:
        return [row[0] for row in await connection.fetch(statement)]
    finally:
        await connection.close()


@pytest.mark.on("sqlite", "postgres")
async def test_a_paused_holder_cannot_commit_after_its_successor(site: Site):
    table = f"written_{site.namespace}"
    async with site.app():
        await run_sql(site, f"CREATE TABLE {table} (fence BIGINT)")
    first, second = (site.start("guarded", "account", TTL, table) for _ in range(2))
    for child in (first, second):
        child.expect("ready", SIZE.patience)
    first.send("acquire")
    fence = first.expect("held", SIZE.patience)["fence"]
    first.stop_signal()
    second.send("acquire")
    successor = second.expect("held", SIZE.patience)["fence"]
    assert successor > fence
    second.send("write")
    assert second.expect("wrote", SIZE.patience)["taken"]
    first.cont()
    first.send("write")
    refused = first.expect("wrote", SIZE.patience)
    assert not refused["taken"]
    assert refused["told"]
    assert await run_sql(site, f"SELECT fence FROM {table}") == [successor]
    await run_sql(site, f"DROP TABLE {table}")
