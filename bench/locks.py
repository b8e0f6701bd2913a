"""Measure locks beside their peers and write docs/benchmarks.md; run by `make bench-locks`.

All contestants run in turns, several rounds each, against the same servers in the same run, so
that other load on the machine affects all of them alike. Read the ratios, not the figures.
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
from bench.contestants import CONTESTANTS, Contestant, contestant_at, maybe_await
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
        for index, contestant in enumerate(CONTESTANTS):
            note(f"uncontended, round {round_number + 1} of {ROUNDS}: {contestant.label}")
            took = child(MODULE, "pairs", index, urls[contestant.store], SECONDS)
            rates[index].append(len(took) / sum(took))
            spans[index] += took
    table = [["lock", "store", "calls", "pairs/s", "p50 µs", "p99 µs", "of the raw limit"]]
    for index, contestant in enumerate(CONTESTANTS):
        rate = statistics.median(rates[index])
        limit = [
            statistics.median(rates[other])
            for other, raw in enumerate(CONTESTANTS)
            if (raw.store, raw.is_async, raw.is_lock)
            == (contestant.store, contestant.is_async, False)
        ]
        table.append(
            [
                *describe(contestant),
                f"{rate:,.0f}",
                f"{percentile(spans[index], 50) * 1e6:,.0f}",
                f"{percentile(spans[index], 99) * 1e6:,.0f}",
                f"{rate / limit[0]:.0%}" if limit else "",
            ]
        )
    return table


async def pairs(contestant: Contestant, url: str, seconds: float) -> list[float]:
    if not contestant.is_async:
        return sync_pairs(contestant, url, seconds)
    took = []
    async with contestant.opens(url) as pair:
        for _ in range(50):
            await pair.release(await pair.acquire())
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            await pair.release(await pair.acquire())
            took.append(time.perf_counter() - start)
    return took


def sync_pairs(contestant: Contestant, url: str, seconds: float) -> list[float]:
    took = []
    with contestant.opens(url) as pair:
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
    for index, contestant in enumerate(CONTESTANTS):
        if contestant.is_lock and contestant.store != "memory":
            note(f"contended, {CONTENDERS} processes: {contestant.label}")
            table.append([*describe(contestant), *contention(index, urls[contestant.store])])
    return table


def contention(index: int, url: str) -> list[str]:
    children = [
        start_child(MODULE, "contend", index, url, CONTEND_SECONDS) for _ in range(CONTENDERS)
    ]
    for process in children:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    start = time.monotonic() + 0.2
    shares = [json.loads(output) for output in finish_all(children, f"{start}\n")]
    sections = sorted(
        (taken, released, number)
        for number, share in enumerate(shares)
        for taken, released in share
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


async def contend(contestant: Contestant, url: str, seconds: float) -> list[Any]:
    """Return the start and end of each critical section, by a clock that all processes share."""
    sections: list[tuple[float, float]] = []
    opened = contestant.opens(url)
    pair = await opened.__aenter__() if contestant.is_async else opened.__enter__()
    await maybe_await(pair.release(await maybe_await(pair.acquire())))
    print("ready", flush=True)
    start = float(await asyncio.to_thread(sys.stdin.readline))
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    while time.monotonic() < start + seconds:
        held = await maybe_await(pair.acquire())
        taken = time.monotonic()
        time.sleep(HOLD)  # noqa: ASYNC251 - nothing else runs in this process
        released = time.monotonic()
        await maybe_await(pair.release(held))
        sections.append((taken, released))
    if contestant.is_async:
        await opened.__aexit__(None, None, None)
    else:
        opened.__exit__(None, None, None)
    return sections


# Full semaphores, and holders that crash.


def semaphores(urls: Urls) -> Table:
    limits = (10, 100, 1000)
    table = [["store", *(f"limit {limit}" for limit in limits)]]
    for store in ("redis", "postgres", "sqlite", "memory"):
        note(f"full semaphore: {store}")
        spans = [asyncio.run(full(urls[store], limit)) for limit in limits]
        table.append([store, *(f"{percentile(took, 50) * 1e6:,.0f} µs" for took in spans)])
    return table


async def full(url: str, limit: int) -> list[float]:
    """Return how long a refusal takes when all places are taken."""
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
    for index, contestant in enumerate(CONTESTANTS):
        is_shared = contestant.is_lock and contestant.store != "memory"
        if is_shared and contestant.name in ("tenure", "redis-py Lock"):
            note(f"killed holder: {contestant.label}")
            name, store, calls = describe(contestant)
            table.append([f"{name} ({calls})", store, f"{take_over(index, urls[store]):.2f} s"])
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


async def hold(contestant: Contestant, url: str) -> None:
    """Take the lock, print "held", and keep it until killed."""
    contestants.TTL = KILLED_TTL
    opened = contestant.opens(url)
    pair = await opened.__aenter__() if contestant.is_async else opened.__enter__()
    held = await maybe_await(pair.acquire())
    print("held", flush=True)
    await asyncio.sleep(60)
    del held


def describe(contestant: Contestant) -> list[str]:
    return [contestant.name, contestant.store, "async" if contestant.is_async else "sync"]


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
            print(json.dumps(asyncio.run(pairs(contestant_at(index), url, float(seconds)))))
        case ["contend", index, url, seconds]:
            print(json.dumps(asyncio.run(contend(contestant_at(index), url, float(seconds)))))
        case ["hold", index, url]:
            asyncio.run(hold(contestant_at(index), url))
        case _:
            sys.exit("usage: python -m bench.locks")
