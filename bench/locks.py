"""Measure locks beside their peers and write docs/benchmarks.md; run by `make bench-locks`.

All contestants run in turns, several rounds each, against the same servers in the same run, so
that what else the machine does hits all of them alike. Read the ratios, not the figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from bench import contestants
from bench.contestants import CONTESTANTS, Contestant, contestant, maybe_await
from bench.rig import (
    Table,
    as_markdown,
    child,
    finish_all,
    machine,
    note,
    percentile,
    start_child,
    write,
)
from tenure import Tenure
from tests.rig.servers import Postgres, Valkey

MODULE = "bench.locks"
ROUNDS = 12
SECONDS = 0.5
CONTENDERS = 8
HOLD = 0.001
CONTEND_SECONDS = 3.0
KILLED_TTL = 2

Urls = dict[str, str]


# One process, one free lock.


def uncontended(urls: Urls) -> Table:
    spans: dict[int, list[float]] = {index: [] for index in range(len(CONTESTANTS))}
    rates: dict[int, list[float]] = {index: [] for index in range(len(CONTESTANTS))}
    for round_number in range(ROUNDS):
        for index, one in enumerate(CONTESTANTS):
            note(f"uncontended, round {round_number + 1} of {ROUNDS}: {one.name} on {one.store}")
            took = child(MODULE, "pairs", index, urls[one.store], SECONDS)
            rates[index].append(len(took) / sum(took))
            spans[index] += took
    table = [["lock", "store", "calls", "pairs/s", "p50 µs", "p99 µs", "of the raw limit"]]
    for index, one in enumerate(CONTESTANTS):
        rate = statistics.median(rates[index])
        limit = [
            statistics.median(rates[other])
            for other, raw in enumerate(CONTESTANTS)
            if (raw.store, raw.is_async, raw.is_lock) == (one.store, one.is_async, False)
        ]
        table.append(
            [
                one.name,
                one.store,
                "async" if one.is_async else "sync",
                f"{rate:,.0f}",
                f"{percentile(spans[index], 50) * 1e6:,.0f}",
                f"{percentile(spans[index], 99) * 1e6:,.0f}",
                f"{rate / limit[0]:.0%}" if limit else "",
            ]
        )
    return table


async def pairs(one: Contestant, url: str, seconds: float) -> list[float]:
    if not one.is_async:
        return sync_pairs(one, url, seconds)
    took = []
    async with one.opens(url) as pair:
        for _ in range(50):
            await pair.release(await pair.acquire())
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            await pair.release(await pair.acquire())
            took.append(time.perf_counter() - start)
    return took


def sync_pairs(one: Contestant, url: str, seconds: float) -> list[float]:
    took = []
    with one.opens(url) as pair:
        for _ in range(50):
            pair.release(pair.acquire())
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            pair.release(pair.acquire())
            took.append(time.perf_counter() - start)
    return took


# Eight processes, one lock.


def contended(urls: Urls) -> Table:
    table = [[
        "lock", "store", "calls", "sections/s", "hand-over p50 ms", "p99 ms",
        "fewest..most per process", "fewest / most",
    ]]  # fmt: skip
    for index, one in enumerate(CONTESTANTS):
        if one.is_lock and one.store != "memory":
            note(f"contended, {CONTENDERS} processes: {one.name} on {one.store}")
            table.append([*describe(one), *contention(index, urls[one.store])])
    return table


def contention(index: int, url: str) -> list[str]:
    children = [
        start_child(MODULE, "contend", index, url, CONTEND_SECONDS) for _ in range(CONTENDERS)
    ]
    for one in children:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    start = time.monotonic() + 0.2
    shares = [json.loads(said) for said in finish_all(children, f"{start}\n")]
    sections = sorted(
        (taken, given, number) for number, share in enumerate(shares) for taken, given in share
    )
    overlaps = sum(later[0] < earlier[1] for earlier, later in pairwise(sections))
    assert not overlaps, f"{overlaps} sections overlapped"
    handed = [
        later[0] - earlier[1] for earlier, later in pairwise(sections) if earlier[2] != later[2]
    ]
    counts = [len(share) for share in shares]
    return [
        f"{len(sections) / CONTEND_SECONDS:,.0f}",
        f"{percentile(handed, 50) * 1e3:.2f}",
        f"{percentile(handed, 99) * 1e3:.2f}",
        f"{min(counts)}..{max(counts)}",
        f"{min(counts) / max(1, *counts):.2f}",
    ]


async def contend(one: Contestant, url: str, seconds: float) -> list[Any]:
    """Return when each section began and ended, by a clock that all processes share."""
    sections: list[tuple[float, float]] = []
    opened = one.opens(url)
    pair = await opened.__aenter__() if one.is_async else opened.__enter__()
    await maybe_await(pair.release(await maybe_await(pair.acquire())))
    print("ready", flush=True)
    start = float(await asyncio.to_thread(sys.stdin.readline))
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    while time.monotonic() < start + seconds:
        held = await maybe_await(pair.acquire())
        taken = time.monotonic()
        time.sleep(HOLD)  # noqa: ASYNC251 - nothing else runs in this process
        given = time.monotonic()
        await maybe_await(pair.release(held))
        sections.append((taken, given))
    await opened.__aexit__(None, None, None) if one.is_async else opened.__exit__(None, None, None)
    return sections


# What only semaphores and crashes show.


def semaphores(urls: Urls) -> Table:
    limits = (10, 100, 1000)
    table = [["store", *(f"limit {limit}" for limit in limits)]]
    for store in ("redis", "postgres", "sqlite", "memory"):
        note(f"full semaphore: {store}")
        spans = [asyncio.run(full(urls[store], limit)) for limit in limits]
        table.append([store, *(f"{percentile(took, 50) * 1e6:,.0f} µs" for took in spans)])
    return table


async def full(url: str, limit: int) -> list[float]:
    """Return how long "no" takes when all places are taken."""
    took = []
    async with Tenure(url, namespace=f"full{limit}") as app:
        semaphore = app.semaphore("gpu", limit, ttl=300)
        holds = [await semaphore.acquire() for _ in range(limit)]
        for _ in range(500):
            start = time.perf_counter()
            assert await semaphore.try_acquire() is None
            took.append(time.perf_counter() - start)
        for hold in holds:
            await hold.release()
    return took


def killed(urls: Urls) -> Table:
    table = [["lock", "store", "waiter holds it after kill -9 (ttl 2 s)"]]
    for index, one in enumerate(CONTESTANTS):
        if one.is_lock and one.store != "memory" and one.name in ("tenure", "redis-py Lock"):
            note(f"killed holder: {one.name} on {one.store}")
            table.append([f"{one.name} ({'async' if one.is_async else 'sync'})", one.store,
                          f"{take_over(index, urls[one.store]):.2f} s"])  # fmt: skip
    return table


def take_over(index: int, url: str) -> float:
    holder = start_child(MODULE, "hold", index, url)
    assert holder.stdout is not None
    holder.stdout.readline()
    waiter = start_child(MODULE, "hold", index, url)
    assert waiter.stdout is not None
    time.sleep(1)
    os.kill(holder.pid, signal.SIGKILL)
    died = time.monotonic()
    waiter.stdout.readline()
    took = time.monotonic() - died
    waiter.kill()
    for process in (holder, waiter):
        process.wait()
        process.stdout.close()
    return took


async def hold(one: Contestant, url: str) -> None:
    """Take the lock, say so, and keep it until killed."""
    contestants.TTL = KILLED_TTL
    opened = one.opens(url)
    pair = await opened.__aenter__() if one.is_async else opened.__enter__()
    held = await maybe_await(pair.acquire())
    print("held", flush=True)
    await asyncio.sleep(60)
    del held


def describe(one: Contestant) -> list[str]:
    return [one.name, one.store, "async" if one.is_async else "sync"]


@contextmanager
def servers() -> Iterator[Urls]:
    with tempfile.TemporaryDirectory() as folder, Valkey() as valkey, Postgres(durable=True) as pg:
        yield {
            "redis": valkey.url,
            "postgres": pg.url,
            "sqlite": f"sqlite:///{folder}/tenure.db",
            "memory": "memory://",
        }


def main() -> None:
    measurements: dict[str, Callable[[Urls], Table]] = {
        "uncontended": uncontended,
        "contended": contended,
        "semaphores": semaphores,
        "killed": killed,
    }
    with servers() as urls:
        tables = {name: as_markdown(measure(urls)) for name, measure in measurements.items()}
    for name, table in tables.items():
        print(f"\n{name}\n{table}")
    write({"machine": machine(f"{ROUNDS} rounds of {SECONDS:g} s each."), **tables})


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["pairs", index, url, seconds]:
            print(json.dumps(asyncio.run(pairs(contestant(index), url, float(seconds)))))
        case ["contend", index, url, seconds]:
            print(json.dumps(asyncio.run(contend(contestant(index), url, float(seconds)))))
        case ["hold", index, url]:
            asyncio.run(hold(contestant(index), url))
        case _:
            sys.exit("usage: python -m bench.locks")
