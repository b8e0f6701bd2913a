"""Looks at the store and the workers of an app, within a time limit: what `Tenure.health` does.

The calls are made one after the other, so a probe needs one connection. What is still under way
when the time is over is cancelled, and counts as not answered. `core.health` judges what was seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from tenure.app.engine import Engine, Services
from tenure.core.clock import Clock
from tenure.core.health import (
    ClockReading,
    Health,
    HealthCheck,
    HealthLimits,
    Observation,
    Reply,
    health_of,
    judge,
)
from tenure.core.leases import Granted, Lease
from tenure.errors import TenureError
from tenure.runtime.background import start_soon
from tenure.runtime.process_info import about_own_lease
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import LeaseStore, Store
from tenure.stores.lease_only import keeps_jobs

__all__ = ["TEST_LEASE", "check_health", "check_process", "read_clock", "unreachable", "within"]

T = TypeVar("T")

TEST_LEASE: Final = "tenure:health"
"""The key of the test leases. It is always the same: some stores keep a row for each key."""
# So many probes may hold a test lease at a time; each has a random holder.
_PROBES_MAX: Final = 1000
# A test lease that could not be released ends by itself.
_LEASE_TTL: Final = 10.0
# An enqueue that was refused longer ago says nothing about now.
_REFUSAL_COUNTS: Final = 60.0
# How long the host thread gets to answer before the past decides.
_ECHO_PATIENCE: Final = 0.25

# Calls that were cut off, until they have ended: a task without a reference may vanish.
_cut_off: set[asyncio.Task[Any]] = set()


async def check_health(engine: Engine, timeout: float) -> Health:
    """Return the health of an app. Never raises for what is wrong with its store."""
    try:
        services = engine.services()
    except TenureError as error:
        return unreachable(str(error))
    clock = services.store.clock
    # The app's own store says what it keeps; that of the services may report each call.
    has_jobs = keeps_jobs(engine.store)
    look = _Look(services.store, has_jobs=has_jobs)
    await within(clock, timeout, look.run())
    seen = Observation(
        **look.replies(),
        grade=services.store.traits.grade,
        keeps_jobs=has_jobs,
        has_timers=bool(engine.registry.plans),
        refused=_refusal(services, clock),
        heartbeats=services.host.heartbeats(),
    )
    limits = HealthLimits(
        timeout=timeout,
        replica_ttl=engine.settings.replica_ttl,
        queue_expected=engine.settings.queue_expected,
        require=engine.config.require,
    )
    return judge(seen, limits)


def unreachable(error: str) -> Health:
    """Return the health of an app that is not open, or cannot be opened."""
    return health_of([HealthCheck(name="store", status="unhealthy", detail=error)])


async def within(
    clock: Clock, timeout: float, work: Coroutine[Any, Any, T]
) -> asyncio.Task[T] | None:
    """Run a coroutine for at most so long. Return its task, or None if it was cut off.

    A call that was cut off may need a while to end; that is not waited for.
    """
    task = start_soon(work)
    ended = asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    try:
        await clock.wait(ended, timeout)
    finally:
        if not task.done():
            _cut_off.add(task)
            task.add_done_callback(_forget)
            task.cancel()
    return task if task.done() else None


def _forget(task: asyncio.Task[Any]) -> None:
    _cut_off.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio logs that it was never retrieved


class _Look:
    """Calls the store, one call after the other, and keeps what became of each."""

    def __init__(self, store: Store, *, has_jobs: bool) -> None:
        self._store = store
        self._has_jobs = has_jobs
        self._clock = store.clock
        self._replies: dict[str, Reply[Any]] = {}
        self._under_way: tuple[str, float] | None = None

    async def run(self) -> None:
        """Make all calls; if the first one fails, the others would fail as well."""
        if not await self._ask("ping", partial(read_clock, self._store)):
            return
        await self._ask("lease", self._take_lease)
        if self._has_jobs:
            await self._ask("workers", self._count_workers)
            await self._ask("queues", self._store.jobs.counts)
            if self._replies["workers"].value == 0:
                await self._ask("timers", self._find_timers)

    def replies(self) -> dict[str, Reply[Any]]:
        """Return the replies so far; the call that is under way has no value and no error."""
        if self._under_way is None:
            return self._replies
        call, began = self._under_way
        return {**self._replies, call: Reply(seconds=self._clock.boot() - began)}

    async def _ask(self, call: str, send: Callable[[], Awaitable[object]]) -> bool:
        began = self._clock.boot()
        self._under_way = (call, began)
        value, error = None, ""
        try:
            value = await send()
        except Exception as raised:  # noqa: BLE001 - a probe reports it, whatever it is
            error = str(raised) or type(raised).__name__
        self._under_way = None
        seconds = self._clock.boot() - began
        self._replies[call] = Reply(value=value, error=error, seconds=seconds)
        return not error

    async def _take_lease(self) -> bool:
        """Acquire a test lease and release it; False if there are too many at a time."""
        holder = self._clock.token()
        lease = Lease(key=TEST_LEASE, holder=holder)
        try:
            answer = await self._store.leases.acquire(
                TEST_LEASE,
                holder=holder,
                limit=_PROBES_MAX,
                ttl=_LEASE_TTL,
                meta=about_own_lease("a health check writes"),
            )
        except asyncio.CancelledError:
            await self._store.leases.release([lease])  # it may be granted all the same
            raise
        if not isinstance(answer, Granted):
            return False
        await self._store.leases.release([lease])
        return True

    async def _find_timers(self) -> bool:
        """Return whether a worker would have a timer to run, as `tenure doctor` counts them."""
        stored = await read_schedules(self._store)
        return any(not timer.standing.successor for timer in stored.all)

    async def _count_workers(self) -> int:
        replicas = await self._store.jobs.replicas()
        return sum(1 for replica in replicas if replica.expires_in > 0 and not replica.dead)


def _refusal(services: Services, clock: Clock) -> str:
    """Return why the last enqueue was refused, if that was a moment ago because of a full store."""
    if "jobs" not in vars(services):  # nothing was enqueued
        return ""
    refusal = services.jobs.refusal
    if refusal is None or clock.boot() - refusal.at >= _REFUSAL_COUNTS:
        return ""
    return refusal.reason


async def check_process(engine: Engine) -> Health:
    """Return whether this process can go on: its loop answers, and so does its host thread.

    It calls no store. The host thread renews leases and sends heartbeats; it counts as hanging
    after `replica_ttl` without an answer, when what it keeps is lost anyway.
    """
    checks = [HealthCheck(name="loop", status="healthy", detail="the event loop answers")]
    host = engine.host
    if host is not None and host.has_thread:
        limit = engine.settings.replica_ttl
        silence = await host.silence(_ECHO_PATIENCE)
        check = HealthCheck(name="heartbeat thread", status="healthy", detail="it answers")
        if silence >= limit:
            detail = f"it has not answered for {silence:.1f} s"
            check = HealthCheck(name="heartbeat thread", status="unhealthy", detail=detail)
        checks.append(check)
    return health_of(checks)


async def read_clock(store: LeaseStore) -> ClockReading:
    """Return by how much the clock of a store is ahead of this host's. One call."""
    sent, before = store.clock.boot(), store.clock.wall()
    pong = await store.ping()
    error = (store.clock.boot() - sent) / 2
    return ClockReading((pong.now - before) / 1e6 - error, error)
