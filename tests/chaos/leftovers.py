"""Checks for leftovers of a storm: in the store, among processes, and in the logs."""

import asyncio
import threading
from pathlib import Path

from redis.asyncio import Redis

from tenure import Tenure
from tenure.app import engine_of
from tests.chaos.brood import Brood
from tests.chaos.labour import CANARY, connected
from tests.chaos.places import PASSWORD, Place
from tests.chaos.tally import Tally
from tests.rig.sizes import SIZE
from tests.rig.spawn import alive
from tests.rig.wait import wait_until_async

# A namespace is a fixed set of hashes and lists, however many jobs and locks it has had.
_KEYS_AT_MOST = 40
# The pools of asyncio and of the rig, which live as long as the process.
_POOLS = ("asyncio_", "starter-")
_EMPTY_TABLES = {
    "sqlite": ("tenure_lease", "tenure_waiter", "tenure_replica", "tenure_live"),
    "postgres": ("tenure.lease", "tenure.waiter", "tenure.replica", "tenure.job"),
}


async def check_store(place: Place, app: Tenure, tally: Tally) -> None:
    """No lease, no waiter, no replica, no job that is not finished: no later than a ttl."""

    async def all_gone() -> bool:
        # No other process is left to bury the last dead replicas and to clean up after them.
        await app.recover()
        await engine_of(app).services().store.prune(idle=0)
        return not (await app.locks() or await app.replicas() or await app.queues())

    try:
        await wait_until_async(all_gone, SIZE.patience, "leases, replicas and jobs are gone")
    except AssertionError:
        facts = [await app.locks(), await app.replicas(), await app.queues()]
        tally.violate(f"left in the store: {facts}")
    await _check_rows(place, tally)


async def _check_rows(place: Place, tally: Tally) -> None:
    if place.family == "redis":
        async with Redis.from_url(place.url) as client:
            keys = [key async for key in client.scan_iter(count=1000)]
        tally.add("keys left", len(keys))
        if len(keys) > _KEYS_AT_MOST:
            tally.violate(f"{len(keys)} keys are left, such as {sorted(keys)[:_KEYS_AT_MOST]}")
        return
    async with connected(place.url) as (_, execute):
        for table in _EMPTY_TABLES[place.family]:
            [[number]] = await execute(f"SELECT count(*) FROM {table}")
            if number:
                tally.violate(f"{number} rows are left in {table}")


async def check_connections(place: Place, tally: Tally) -> None:
    """When all processes have closed, the server has no connection but this one."""
    if place.server is None:
        return
    try:
        await wait_until_async(lambda: _alone(place), SIZE.patience, "all connections are closed")
    except AssertionError:
        tally.violate("connections are left open")


async def _alone(place: Place) -> bool:
    if place.family == "redis":
        async with Redis.from_url(place.url) as client:
            return len(await client.client_list()) == 1
    async with connected(place.url) as (_, execute):
        others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        [[number]] = await execute(f"SELECT count(*) FROM pg_stat_activity WHERE {others}")
        return bool(number == 0)


def check_processes(brood: Brood, tally: Tally) -> None:
    """No process lives on, and none ended that was not stopped."""
    for member in brood.fallen():
        tally.violate(f"{member.by} ended with {member.code} by itself:\n{member.story()}")
    left = [member.by for member in brood.members.values() if member.pid and alive(member.pid)]
    if left:
        tally.violate(f"still alive: {left}")
    if brood.noise:
        tally.violate(f"the nursery said {brood.noise[-2000:]}")


def check_threads(before: set[threading.Thread], tally: Tally) -> None:
    """The apps, proxies and children of the rig itself have left no thread behind."""
    new = set(threading.enumerate()) - before
    left = [file.name for file in new if not file.name.startswith(_POOLS)]
    if left:
        tally.violate(f"threads are left: {left}")


async def check_logs(folder: Path, tally: Tally) -> None:
    """No log of any process has a password of a store or an argument of a job in it."""
    texts = await asyncio.to_thread(
        lambda: {log.name: log.read_text(errors="replace") for log in folder.glob("*.log")}
    )
    tally.add("log lines", sum(text.count("\n") for text in texts.values()))
    for secret in (PASSWORD, CANARY):
        leaks = [name for name, text in texts.items() if secret in text]
        if leaks:
            tally.violate(f"{secret[:12]}... stands in {leaks[:5]}")
