"""One process of the timer benchmark: a replica that ticks, or one that has nothing to do.

`tick`: some timers; says "ready", waits for the instant at which to begin, and reports what it ran
and what it asked the store for. `rest`: many timers that are not due; reports what they cost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import resource
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tenure import Tenure, Tick
from tenure.testing import Faults, FaultyStore

# Long enough to connect, declare timers and join.
SETTLED_AFTER = 5.0
SELDOM = "0 4 1 1 *"


class Diary:
    """Counts since the last `begin`."""

    def __init__(self, calls: Callable[[], dict[str, int]] = dict) -> None:
        self._calls = calls
        self.begin()

    def begin(self) -> None:
        self._before = self._calls()
        self._ticks: dict[str, float] = {}

    def ran(self, name: str, scheduled: datetime, begun: float) -> None:
        self._ticks[f"{name} at {scheduled.isoformat()}"] = begun - scheduled.timestamp()

    def report(self) -> dict[str, Any]:
        calls = {name: n - self._before.get(name, 0) for name, n in self._calls().items()}
        return {"calls": calls, "lateness": self._ticks}


async def measure(diary: Diary, seconds: float) -> dict[str, Any]:
    """Read the start instant from stdin; return the counts of the seconds that follow it."""
    print("ready", flush=True)
    start = float(await asyncio.to_thread(sys.stdin.readline))
    await asyncio.sleep(max(0.0, start - time.time()))
    diary.begin()
    await asyncio.sleep(seconds)
    return diary.report()


async def tick(url: str, timers: str, seconds: str) -> dict[str, Any]:
    faults = Faults()
    diary = Diary(lambda: dict(faults.calls))
    app = Tenure(FaultyStore(url, faults))

    async def work(tick: Tick) -> None:
        diary.ran(tick.name, tick.scheduled, time.time())

    for number in range(int(timers)):
        app.timer(every="1s", spread=True, name=f"timer {number}")(work)

    async with app, app.worker() as worker:
        await worker.ready()
        await asyncio.sleep(1)
        return await measure(diary, float(seconds))


async def tick_apscheduler(_: str, timers: str, seconds: str) -> dict[str, Any]:
    from apscheduler.events import EVENT_JOB_EXECUTED  # noqa: PLC0415 - a peer
    from apscheduler.schedulers.asyncio import AsyncIOScheduler  # noqa: PLC0415 - a peer

    diary = Diary()
    begun: dict[str, float] = {}

    async def work(name: str) -> None:
        begun[name] = time.time()

    def executed(event: Any) -> None:
        diary.ran(event.job_id, event.scheduled_run_time, begun[event.job_id])

    scheduler = AsyncIOScheduler()
    scheduler.add_listener(executed, EVENT_JOB_EXECUTED)
    soon = datetime.now().astimezone()
    for number in range(int(timers)):
        name, first = f"timer {number}", soon + timedelta(seconds=number / int(timers))
        scheduler.add_job(work, "interval", [name], id=name, seconds=1, start_date=first)
    scheduler.start()
    await asyncio.sleep(1)
    report = await measure(diary, float(seconds))
    scheduler.shutdown()
    return report


async def rest(url: str, timers: str, seconds: str) -> dict[str, Any]:
    app = Tenure(url, namespace=f"rest{timers}")

    async def work() -> None: ...

    for number in range(int(timers)):
        app.timer(cron=SELDOM, name=f"timer {number}")(work)
    async with app, app.worker() as worker:
        await worker.ready()
        return await cost(float(seconds))


async def rest_apscheduler(_: str, timers: str, seconds: str) -> dict[str, Any]:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler  # noqa: PLC0415 - a peer
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415 - a peer

    async def work() -> None: ...

    scheduler = AsyncIOScheduler()
    for number in range(int(timers)):
        scheduler.add_job(work, CronTrigger.from_crontab(SELDOM), id=f"timer {number}")
    scheduler.start()
    report = await cost(float(seconds))
    scheduler.shutdown()
    return report


async def cost(seconds: float) -> dict[str, Any]:
    """Return the share of a core that this process takes, and its memory."""
    await asyncio.sleep(SETTLED_AFTER)
    before, began = cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    share = (cpu_seconds() - before) / (time.monotonic() - began)
    return {"share": share, "peak": peak_megabytes()}


def peak_megabytes() -> float:
    """Return the peak memory of this process; getrusage would report the parent's."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


ROLES = {
    "tick": tick,
    "rest": rest,
    "tick-apscheduler": tick_apscheduler,
    "rest-apscheduler": rest_apscheduler,
}


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    role, *arguments = sys.argv[1:]
    print(json.dumps(asyncio.run(ROLES[role](*arguments))))
