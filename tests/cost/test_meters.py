"""The meters count what was done, no more and no less; and the table tells what has changed."""

from collections.abc import Awaitable, Callable
from hashlib import sha1
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenure.app import engine_of
from tenure.testing import ManualClock
from tests.cost import table
from tests.cost.meters import METERS, Meter, Reading
from tests.cost.scenarios import ticks_together
from tests.cost.stage import Stage, perform

Meters = Callable[[str], Meter]
Act = Callable[[Any], Awaitable[None]]


async def spent(meter: Meter, *acts: Act) -> list[Reading]:
    """Return what each act costs on an open store that has done it before."""
    meter.clear()
    store: Any = meter.store(ManualClock())
    await store.open()
    meter.opened(store)
    readings = []
    try:
        for act in acts:
            await act(store)
            before = meter.read()
            await act(store)
            after = meter.read()
            readings.append({name: after[name] - before[name] for name in meter.measures})
    finally:
        await store.close()
    return readings


async def test_memory_counts_calls_and_watches(meters: Meters):
    async def look(stage: Stage) -> None:
        app = await stage.app()
        async with stage.measured("looks", 1):
            await app.queues()
            async with engine_of(app).store.watch(("queue", "default")):
                pass

    assert await perform(meters("memory"), look) == {"looks": {"calls": 2}}


async def test_sqlite_counts_statements_and_durable_commits(meters: Meters):
    async def pause(store) -> None:
        await store.jobs.pause("default")

    async def look(store) -> None:
        await store.jobs.counts()

    paused, looked = await spent(meters("sqlite"), pause, look)
    assert paused["durable commits"] == 1
    assert paused["statements"] == 3  # BEGIN, INSERT, COMMIT
    assert paused["bytes written"] % 4120 == 0  # whole pages, with their headers
    assert (looked["durable commits"], looked["bytes written"]) == (0, 0)


async def test_redis_counts_commands_inside_scripts_apart(meters: Meters):
    text = b"for _ = 1, 3 do redis.call('GET', KEYS[1]) end"
    script = SimpleNamespace(text=text, sha=sha1(text).hexdigest())

    async def run(store) -> None:
        await store._sender.run(script, (1, "{tenure:cost}:fence"))

    async def ping(store) -> None:
        await store.ask("PING")

    ran, pinged = await spent(meters("redis"), run, ping)
    assert (ran["round trips"], ran["Lua commands"]) == (1, 3)
    request, reply = b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"
    expected = {"round trips": 1, "bytes": len(request + reply)}
    assert pinged == {**expected, "Lua commands": 0, "bytes written": 0}


async def test_postgres_counts_statements_inside_functions(meters: Meters):
    async def plain(store) -> None:
        await store.fetch("SELECT 1")

    async def two_at_once(store) -> None:
        await store._pool._idle[-1][0].execute("SELECT 1; SELECT 2")

    async def lock(store) -> None:
        await store.leases.acquire("key", holder="ann", limit=1, ttl=30, meta={})

    single, two, locked = await spent(meters("postgres"), plain, two_at_once, lock)
    assert (single["round trips"], single["statements"], single["bytes written"]) == (1, 1, 0)
    assert (two["round trips"], two["statements"]) == (1, 2)
    assert locked["round trips"] == 1
    assert locked["statements"] > 1  # the function's own
    assert min(locked["pages"], locked["bytes written"]) > 0


async def test_postgres_has_flushed_its_log_when_the_stage_is_quiet(meters: Meters):
    meter: Any = meters("postgres")
    unflushed = "SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()"

    async def commit(stage: Stage) -> None:
        await stage.app()
        with meter._admin.transaction():
            # As wake-ups are committed: without a wait for the disk.
            meter._admin.execute("SET LOCAL synchronous_commit = off")
            meter._admin.execute("SELECT pg_notify('somewhere', '')")
        await stage.quiet()
        assert meter._row(unflushed) == (0,)
        async with stage.measured("one more flush", 1):
            meter._flushed_up_to = 0
            await stage.quiet()

    costs = await perform(meter, commit)
    assert costs["one more flush"]["bytes written"] == 0


async def test_postgres_touches_the_same_pages_whatever_was_measured_before(meters: Meters):
    costs = [await perform(meters("postgres"), ticks_together) for _ in range(2)]
    first, second = ([cost["pages"] for cost in costs_.values()] for costs_ in costs)
    assert first == second


COSTS = {"lock pair": {"statements": 10.0, "bytes written": 1000.0}}


def changed(**costs: float) -> list[str]:
    measured = {"lock pair": {**COSTS["lock pair"], **costs}}
    return table.differences("postgres", measured, COSTS)


def test_the_same_costs_are_no_difference():
    assert not table.differences("postgres", COSTS, COSTS)
    assert not changed(**{"bytes written": 1023.0})
    assert not changed(**{"bytes written": 977.0})


@pytest.mark.parametrize(("now", "way"), [(10.05, "more"), (9.95, "less")])
def test_a_count_differs_by_nothing(now: float, way: str):
    [line] = changed(statements=now)
    assert line.startswith(f"postgres, lock pair: statements {now}, {way} than 10. ")
    assert "make cost ARGS=--record" in line


@pytest.mark.parametrize("now", [1025.0, 975.0])
def test_bytes_differ_by_little(now: float):
    [line] = changed(**{"bytes written": now})
    assert f"bytes written {now:g}" in line


def test_work_that_is_measured_or_recorded_alone_is_told():
    assert "not recorded" in table.differences("redis", COSTS, {})[0]
    assert "not measured" in table.differences("redis", {}, COSTS)[0]


def test_recorded_costs_are_read_as_they_were_written(tmp_path: Path):
    recorded = dict.fromkeys(METERS, COSTS)
    table.write(recorded, tmp_path / "some.toml")
    assert table.read(tmp_path / "some.toml") == recorded
