"""Locks, semaphores, an election and what runs once: a few rounds of each, on a few machines."""

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
from tests.sim.scenarios.opening import opened

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
    left = process.machine.memory.setdefault("rounds", rounds)
    app = Tenure(process.link())
    app.on_event(process.hear)
    if not await opened(app, process):
        return
    try:
        await asyncio.gather(*(play(process, app, left, actor) for actor in range(len(left))))
    finally:
        await app.close()


async def play(process: Process, app: Tenure, left: list[int], actor: int) -> None:
    """Play rounds until none is left, or the process is asked to stop."""
    dice = process.machine.dice
    while left[actor] > 0 and not process.stopping.is_set():
        left[actor] -= 1
        playing = _round(process, app, dice)
        if dice.random() < 0.15:
            await _cut_short(process, playing, dice.uniform(0, 1.5 * process.fleet.plan.ttl))
        else:
            await playing
        await process.clock.sleep(dice.choice((0.0, 0.0, 0.1, 0.5)))


async def _cut_short(process: Process, playing: Coroutine[Any, Any, None], after: float) -> None:
    task = asyncio.ensure_future(playing)
    try:
        await asyncio.wait([task], timeout=after)
    finally:
        if not task.done():
            process.say("cancels")
            task.cancel()
        await asyncio.wait([task])
    if not task.cancelled() and task.exception() is not None:
        process.say("fell", detail=repr(task.exception()))


async def _round(process: Process, app: Tenure, dice: Random) -> None:
    try:
        match dice.randrange(12):
            case 0:
                await _lead(process, app, dice)
            case 1:
                await _once(process, app, dice)
            case 2:
                await _try(process, app, dice)
            case _:
                await _enter(process, app, dice)
    except AcquireTimeout:
        process.say("waited in vain")
    except LeaseLost as loss:
        process.say("told of a loss", key=loss.name, fence=loss.fence)
    except StoreError as error:
        process.say("refused", detail=type(error).__name__)


def _lock(
    process: Process, app: Tenure, dice: Random, *, is_bounded: bool = True
) -> tuple[Semaphore, int]:
    key, limits = dice.choice(_KEYS)
    limit = limits[process.machine.number % len(limits)]
    ttl = process.fleet.plan.ttl * dice.choice((1, 1, 2))
    wait = dice.choice(_WAITS)
    least = dice.choice((0.0, 0.0, 0.0, 0.3))
    most = dice.choice((None, None, None, 1.2)) if is_bounded else None
    if limit == 1:
        return app.lock(key, ttl=ttl, wait=wait, min_hold=least, max_hold=most), limit
    return app.semaphore(key, limit, ttl=ttl, wait=wait, min_hold=least, max_hold=most), limit


async def _enter(process: Process, app: Tenure, dice: Random) -> None:
    lock, limit = _lock(process, app, dice)
    rules = lock._rules  # noqa: SLF001 - nobody else tells how long it may be held
    async with lock as hold:
        await _work(process, hold, limit, dice, is_told=True, rules=rules)


async def _try(process: Process, app: Tenure, dice: Random) -> None:
    """Hold without a block: nobody is cancelled, so it has to look for itself."""
    lock, limit = _lock(process, app, dice, is_bounded=False)
    hold = await lock.try_acquire()
    if hold is None:
        return
    try:
        await _work(process, hold, limit, dice)
        if hold.is_held and dice.random() < 0.5:
            await hold.renew()
            act(process, hold, limit)
    finally:
        process.say("gives back", key=hold.name, holder=hold.holder, fence=hold.fence)
        await hold.release()


async def _lead(process: Process, app: Tenure, dice: Random) -> None:
    election = app.election("leader", ttl=process.fleet.plan.ttl)
    async with aclosing(cast("Any", _terms(process, election))) as terms:
        async for term in terms:
            async with term:
                hold = term._hold  # noqa: SLF001 - a leader acts like any holder
                await _work(process, hold, 1, dice, is_told=True)
            return


async def _terms(process: Process, election: Election) -> AsyncIterator[Term]:
    """Stand for election: that has no end, whatever becomes of the store."""
    try:
        async with aclosing(cast("Any", election.terms())) as terms:
            async for term in terms:
                yield term
    except StoreError as error:
        process.say("fell", detail=f"the election has ended: {error!r}")


async def _once(process: Process, app: Tenure, dice: Random) -> None:
    name = dice.choice(("first", "second"))

    async def run() -> None:
        process.say("runs once", key=name)
        await process.clock.sleep(dice.choice((0.0, 0.2)))

    try:
        ran = await app.once(name, run, ttl=process.fleet.plan.ttl, wait=3)
    except OnceFailed:
        return
    process.say("ran once", key=name, ok=ran)


async def _work(
    process: Process,
    hold: Hold,
    limit: int,
    dice: Random,
    *,
    is_told: bool = False,
    rules: HoldPolicy | None = None,
) -> None:
    """Act now and then. In a block it is told of a loss, and need not look."""
    process.say(
        "entered",
        key=hold.name,
        holder=hold.holder,
        fence=hold.fence,
        limit=limit,
        seconds=0.0 if rules is None else rules.min_hold,
        ttl=0.0 if rules is None else rules.max_hold or 0.0,
    )
    pause = process.fleet.plan.ttl * dice.choice((0.0, 0.05, 0.3, 0.8))
    try:
        for _ in range(dice.randint(1, 4)):
            act(process, hold, limit, is_told=is_told)
            await process.clock.sleep(pause * dice.random())
        act(process, hold, limit, is_told=is_told)
    finally:
        process.say("leaves", key=hold.name, holder=hold.holder, fence=hold.fence)


def act(process: Process, hold: Hold, limit: int, *, is_told: bool = False) -> None:
    """Look, and act in the same step: an honest holder never does so beside another one."""
    if hold.is_held:
        process.say(
            "acts",
            key=hold.name,
            holder=hold.holder,
            fence=hold.fence,
            limit=limit,
            seconds=round(hold.expires_in(), 6),
            now=process.fleet.server.store_clock.wall(),
        )
        if limit == 1:
            process.fleet.sink.write(process.name, hold.name, hold.fence)
    else:
        late = process.clock.boot() - hold._kept.deadline  # noqa: SLF001 - nobody else tells
        process.say(
            "sees a loss",
            key=hold.name,
            holder=hold.holder,
            fence=hold.fence,
            ok=is_told,
            seconds=round(late, 6),
        )


def is_done(fleet: Fleet) -> bool:
    """Return whether all rounds were played: then the processes have ended by themselves."""
    return fleet.are_finished
