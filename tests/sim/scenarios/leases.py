"""Locks, semaphores, an election and `once`: a few rounds of each, on a few machines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from random import Random
from typing import Any, cast

from tenure.app import Tenure
from tenure.errors import AcquireTimeout, LeaseLost, OnceFailed, StoreError
from tenure.locks.election import Election, Term
from tenure.locks.hold import Hold, HoldPolicy
from tenure.locks.lock import Semaphore
from tests.sim.fleet import Fleet, Process
from tests.sim.scenarios.startup import open_app

__all__ = ["ACTORS", "ROUNDS", "act", "few", "is_done", "play", "program"]

ACTORS = 2
ROUNDS = 3

# Two locks that all machines want, and places of which each machine knows another limit, as in a
# rolling deploy.
_KEYS = (("red", (1,)), ("red", (1,)), ("blue", (1,)), ("places", (1, 3, 4)))
_WAITS = (None, None, 0.0, 0.4, 3.0)


async def program(process: Process) -> None:
    """Play the rounds that this machine has left."""
    await _play_all(process, [ROUNDS] * ACTORS)


async def few(process: Process) -> None:
    """Play a few rounds only: small histories, and many of them."""
    await _play_all(process, [2, 1])


async def _play_all(process: Process, rounds: list[int]) -> None:
    left = process.machine.disk.setdefault("rounds", rounds)
    app = Tenure(process.connect())
    app.on_event(process.record_event)
    if not await open_app(app, process):
        return
    try:
        await asyncio.gather(*(play(process, app, left, actor) for actor in range(len(left))))
    finally:
        await app.close()


async def play(process: Process, app: Tenure, left: list[int], actor: int) -> None:
    """Play rounds until none is left, or the process is asked to stop."""
    rng = process.machine.rng
    while left[actor] > 0 and not process.stopping.is_set():
        left[actor] -= 1
        playing = _round(process, app, rng)
        if rng.random() < 0.15:
            await _cut_short(process, playing, rng.uniform(0, 1.5 * process.fleet.plan.ttl))
        else:
            await playing
        await process.clock.sleep(rng.choice((0.0, 0.0, 0.1, 0.5)))


async def _cut_short(process: Process, playing: Coroutine[Any, Any, None], after: float) -> None:
    task = asyncio.ensure_future(playing)
    try:
        await asyncio.wait([task], timeout=after)
    finally:
        if not task.done():
            process.record("cancels")
            task.cancel()
        await asyncio.wait([task])
    if not task.cancelled() and task.exception() is not None:
        process.record("raised", detail=repr(task.exception()))


async def _round(process: Process, app: Tenure, rng: Random) -> None:
    try:
        match rng.randrange(12):
            case 0:
                await _lead(process, app, rng)
            case 1:
                await _once(process, app, rng)
            case 2:
                await _try(process, app, rng)
            case _:
                await _enter(process, app, rng)
    except AcquireTimeout:
        process.record("wait timed out")
    except LeaseLost as loss:
        process.record("notified of loss", key=loss.name, fence=loss.fence)
    except StoreError as error:
        process.record("refused", detail=type(error).__name__)


def _lock(
    process: Process, app: Tenure, rng: Random, *, is_bounded: bool = True
) -> tuple[Semaphore, int]:
    key, limits = rng.choice(_KEYS)
    limit = limits[process.machine.number % len(limits)]
    ttl = process.fleet.plan.ttl * rng.choice((1, 1, 2))
    wait = rng.choice(_WAITS)
    least = rng.choice((0.0, 0.0, 0.0, 0.3))
    most = rng.choice((None, None, None, 1.2)) if is_bounded else None
    if limit == 1:
        return app.lock(key, ttl=ttl, wait=wait, min_hold=least, max_hold=most), limit
    return app.semaphore(key, limit, ttl=ttl, wait=wait, min_hold=least, max_hold=most), limit


async def _enter(process: Process, app: Tenure, rng: Random) -> None:
    lock, limit = _lock(process, app, rng)
    policy = lock._policy  # noqa: SLF001 - nothing else tells how long it may be held
    async with lock as hold:
        await _work(process, hold, limit, rng, is_told=True, policy=policy)


async def _try(process: Process, app: Tenure, rng: Random) -> None:
    """Hold without a block: no task is cancelled, so the code has to look for itself."""
    lock, limit = _lock(process, app, rng, is_bounded=False)
    hold = await lock.try_acquire()
    if hold is None:
        return
    try:
        await _work(process, hold, limit, rng)
        if hold.is_held and rng.random() < 0.5:
            await hold.renew()
            act(process, hold, limit)
    finally:
        process.record("releases", key=hold.name, holder=hold.holder, fence=hold.fence)
        await hold.release()


async def _lead(process: Process, app: Tenure, rng: Random) -> None:
    election = app.election("leader", ttl=process.fleet.plan.ttl)
    async with aclosing(cast("Any", _terms(process, election))) as terms:
        async for term in terms:
            async with term:
                hold = term._hold  # noqa: SLF001 - a leader acts like any holder
                await _work(process, hold, 1, rng, is_told=True)
            return


async def _terms(process: Process, election: Election) -> AsyncIterator[Term]:
    """Stand for election: that has no end, whatever becomes of the store."""
    try:
        async with aclosing(cast("Any", election.terms())) as terms:
            async for term in terms:
                yield term
    except StoreError as error:
        process.record("raised", detail=f"the election has ended: {error!r}")


async def _once(process: Process, app: Tenure, rng: Random) -> None:
    name = rng.choice(("first", "second"))

    async def run() -> None:
        process.record("runs once", key=name)
        await process.clock.sleep(rng.choice((0.0, 0.2)))

    try:
        ran = await app.once(name, run, ttl=process.fleet.plan.ttl, wait=3)
    except OnceFailed:
        return
    process.record("ran once", key=name, ok=ran)


async def _work(
    process: Process,
    hold: Hold,
    limit: int,
    rng: Random,
    *,
    is_told: bool = False,
    policy: HoldPolicy | None = None,
) -> None:
    """Act now and then. In a block it is told of a loss, and need not look."""
    process.record(
        "entered",
        key=hold.name,
        holder=hold.holder,
        fence=hold.fence,
        limit=limit,
        seconds=0.0 if policy is None else policy.min_hold,
        ttl=0.0 if policy is None else policy.max_hold or 0.0,
    )
    pause = process.fleet.plan.ttl * rng.choice((0.0, 0.05, 0.3, 0.8))
    try:
        for _ in range(rng.randint(1, 4)):
            act(process, hold, limit, is_told=is_told)
            await process.clock.sleep(pause * rng.random())
        act(process, hold, limit, is_told=is_told)
    finally:
        process.record("leaves", key=hold.name, holder=hold.holder, fence=hold.fence)


def act(process: Process, hold: Hold, limit: int, *, is_told: bool = False) -> None:
    """Look, and act in the same step: an honest holder never does so beside another one."""
    if hold.is_held:
        process.record(
            "acts",
            key=hold.name,
            holder=hold.holder,
            fence=hold.fence,
            limit=limit,
            seconds=round(hold.expires_in(), 6),
            now=process.fleet.server.store_clock.wall(),
        )
        if limit == 1:
            process.fleet.resource.write(process.name, hold.name, hold.fence)
    else:
        late = process.clock.boot() - hold._kept.deadline  # noqa: SLF001 - nothing else tells
        process.record(
            "noticed loss",
            key=hold.name,
            holder=hold.holder,
            fence=hold.fence,
            ok=is_told,
            seconds=round(late, 6),
        )


def is_done(fleet: Fleet) -> bool:
    """Return whether all rounds were played: then the processes have ended by themselves."""
    return fleet.are_finished
