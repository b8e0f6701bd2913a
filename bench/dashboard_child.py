"""One process of the dashboard benchmark: a dashboard with its viewers, or the work they look at.

Viewers are calls of the ASGI application, as a server makes them: no HTTP, no browser.

`pages URL DATA ROUNDS SERVER`: how long each page takes, each time as if nobody had looked before.
`watch URL DATA VIEWERS PAGES SECONDS`: viewers who look at so many of the pages. No viewers: the
dashboard is mounted, and that is all. `work URL`: a worker with a job every second, until it
is killed. `counters URL`: what counting attempts costs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import msgspec

from bench.dashboard_data import ROUTER, Data
from bench.timer_child import cpu_seconds
from tenure import Tenure
from tenure.dashboard import Dashboard, Viewer
from tenure.runtime.attempts.run_counter import RunCounter
from tenure.testing import Faults, FaultyStore

OPERATOR = Viewer("ann", may_act=True, may_see_owners=True)
MISSING = "no such thing"
JOBS = 3000  # a second or so
PAIRS = 12

Page = tuple[str, str, str]


def job_list(**filters: str) -> str:
    return f"api/jobs?{urlencode(filters)}"


def pages_of(data: Data) -> dict[str, str]:
    """Return the pages to measure: their names in the table, and their addresses."""
    rare, tag = "shop.task_19", "customer:1"
    return {
        "overview": "api/overview",
        "jobs": "api/jobs",
        "jobs, from the middle": job_list(cursor=data.parent),
        **{
            f"{state} jobs": job_list(state=state)
            for state in ("waiting", "running", "succeeded", "failed", "cancelled")
        },
        "queue and state": job_list(queue="slow", state="succeeded"),
        "rare task": job_list(task=rare),
        "rare task and failed": job_list(task=rare, state="failed"),
        "unknown task": job_list(task=MISSING),
        "tag": job_list(tag="import"),
        "tag and failed": job_list(tag="import", state="failed"),
        "frequent tag and cancelled": job_list(tag=tag, state="cancelled"),
        "unknown tag": job_list(tag=MISSING),
        "owner": job_list(owner="user1"),
        "owner, tag and failed": job_list(owner="user1", tag="import", state="failed"),
        "id": job_list(id=data.failed),
        "end of an id, unknown": job_list(id="0123456789"),
        "error text": job_list(error="timeout"),
        "error text, unknown": job_list(error=MISSING),
        "error text, unknown, waiting": job_list(error=MISSING, state="waiting"),
        "job that waits": f"api/jobs/{data.waiting}",
        "job that failed": f"api/jobs/{data.failed}",
        "job with 50 children": f"api/jobs/{data.parent}",
        "timers (200)": "api/timers",
        "timer": "api/timers/timer%20007",
        "locks (400)": "api/locks",
        "replicas (20)": "api/replicas",
    }


def children_of(server: str) -> list[str]:
    """Return the processes of a PostgreSQL server; none without one."""
    if not server:
        return []
    return Path(f"/proc/{server}/task/{server}/children").read_text().split()


def cpu_of(processes: Iterable[object]) -> float:
    """Return the CPU seconds of processes, as far as they are still there."""
    spent = 0
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError):
            spent += int(Path(f"/proc/{process}/schedstat").read_text().split()[0])
    return spent / 1e9


async def get(dashboard: Dashboard, address: str) -> bytes:
    """Return the body of a page."""
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200, address
        else:
            parts.append(message["body"])

    await dashboard(_scope(address), receive, send)
    return b"".join(parts)


def _scope(address: str) -> dict[str, Any]:
    path, _, query = address.partition("?")
    return {
        "type": "http",
        "method": "GET",
        "path": f"/{unquote(path)}",
        "raw_path": f"/{path}".encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"ops.test"), (b"sec-fetch-site", b"same-origin")],
    }


def new_dashboard(app: Tenure) -> Dashboard:
    return Dashboard(app, auth=lambda _: OPERATOR, routers=[ROUTER])


async def pages(url: str, data: str, rounds: str, server: str) -> dict[str, Any]:
    """Return for each page how long it took, and the CPU time here and at the server."""
    addresses = pages_of(msgspec.json.decode(data, type=Data))
    measured: dict[str, list[tuple[float, float, float]]] = {name: [] for name in addresses}
    async with Tenure(url) as app:
        for number in range(int(rounds) + 1):
            for name, address in addresses.items():
                dashboard = new_dashboard(app)  # it shares no look with the one before
                spent, used = cpu_of(children_of(server)), time.process_time()
                began = time.perf_counter()
                await get(dashboard, address)
                took, cpu = time.perf_counter() - began, time.process_time() - used
                if number:  # the first round plans statements and fills caches
                    measured[name].append((took, cpu, cpu_of(children_of(server)) - spent))
                await dashboard.close()
    return {name: list(zip(*values, strict=True)) for name, values in measured.items()}


# Viewers.

VIEWS = (
    ("overview", "api/overview", 4.0),
    ("jobs", "api/jobs?limit=50", 4.0),
    ("jobs", "api/jobs?limit=50&state=failed", 4.0),
    ("jobs", "api/jobs?limit=50&queue=mail", 4.0),
    ("jobs", "api/jobs/{failed}", 2.0),
    ("jobs", "api/jobs?limit=50&error=timeout", 4.0),
    ("timers", "api/timers", 60.0),
    ("locks", "api/locks", 4.0),
    ("replicas", "api/replicas", 4.0),
    ("events", "api/events", 60.0),
)
"""Topic and address of what viewers look at, and how often a page asks without a change."""


async def watch(url: str, data: str, viewers: str, views: str, seconds: str) -> dict[str, Any]:
    names = msgspec.json.decode(data, type=Data)
    faults = Faults()
    async with Tenure(FaultyStore(url, faults)) as app, AsyncExitStack() as stack:
        dashboard = new_dashboard(app)
        stack.push_async_callback(dashboard.close)
        for number in range(int(viewers)):
            topic, address, every = VIEWS[number % int(views)]
            address = address.format(failed=names.failed)
            task = asyncio.create_task(_look(dashboard, topic, address, every))
            stack.push_async_callback(asyncio.wait, [task])
            stack.callback(task.cancel)
        await asyncio.sleep(5)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        before, used, began = sum(faults.calls.values()), cpu_seconds(), time.monotonic()
        await asyncio.sleep(float(seconds))
        passed = time.monotonic() - began
        calls = (sum(faults.calls.values()) - before) / passed
        share = (cpu_seconds() - used) / passed
        print(json.dumps({"calls": calls, "share": share}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    return {}


async def _look(dashboard: Dashboard, topic: str, address: str, every: float) -> None:
    """Look at a page as a browser does: again with each change of its topic, and now and then."""
    changed = asyncio.Event()
    following = asyncio.create_task(_follow(dashboard, topic, changed.set))
    try:
        while True:
            await get(dashboard, address)
            changed.clear()
            try:
                async with asyncio.timeout(every):
                    await changed.wait()
            except TimeoutError:
                pass
    finally:
        following.cancel()
        await asyncio.wait((following,))


async def _follow(dashboard: Dashboard, topic: str, tell: Callable[[], None]) -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        if b"event: tick" in message.get("body", b""):
            tell()

    while True:  # a stream ends after half a minute
        await dashboard(_scope(f"api/stream?topics={topic}"), receive, send)


async def work(url: str) -> dict[str, Any]:
    app = Tenure(url)

    @app.task(queue="busy")
    async def beat() -> None:
        await asyncio.sleep(0.3)

    async with app, app.worker(queues=["busy"]):
        while True:
            await beat.enqueue()
            await asyncio.sleep(1)


# The counters of attempts.


async def counters(url: str) -> dict[str, Any]:
    """Return the ratios of CPU time with and without counting, in pairs that take turns."""
    app = Tenure(url)
    missing, complete = 0, asyncio.Event()

    @app.task
    async def run(number: int, text: str) -> int:  # noqa: ARG001 - a usual size
        nonlocal missing
        missing -= 1
        if not missing:
            complete.set()
        return number

    async def measured() -> float:
        nonlocal missing
        missing = JOBS
        complete.clear()
        for first in range(0, JOBS, 500):
            numbers = range(first, first + 500)
            await asyncio.gather(*(run.enqueue(number, "x" * 60) for number in numbers))
        used = time.process_time()
        async with app.worker(concurrency=50):
            await complete.wait()
        return time.process_time() - used

    counting = RunCounter.started, RunCounter.ended
    pairs: list[tuple[float, float]] = []
    async with app:
        for number in range(PAIRS + 1):
            spent: dict[bool, float] = {}
            for counts in (True, False) if number % 2 else (False, True):
                RunCounter.started, RunCounter.ended = (  # type: ignore[method-assign]
                    counting if counts else (_uncounted, _uncounted)
                )
                spent[counts] = await measured()
            if number:
                pairs.append((spent[True], spent[False]))
    return {
        "with": statistics.median(counted for counted, _ in pairs) / JOBS,
        "without": statistics.median(bare for _, bare in pairs) / JOBS,
        "ratios": [counted / bare for counted, bare in pairs],
    }


def _uncounted(*_: object) -> None: ...


ROLES: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    "pages": pages,
    "watch": watch,
    "work": work,
    "counters": counters,
}


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    role, *arguments = sys.argv[1:]
    print(json.dumps(asyncio.run(ROLES[role](*arguments))))  # type: ignore[arg-type]
