"""Heartbeats for all children, in one call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any

from tenure.core.jobs.replicas import Beat
from tenure.core.settings import Settings
from tenure.errors import TenureError
from tenure.observe.events import Events
from tenure.runtime.clock_watch import ClockWatch
from tenure.runtime.replica.audit import CountInterval
from tenure.runtime.replica.janitor import Janitor
from tenure.runtime.replica.replica import pause_after
from tenure.runtime.store_retry import Outages, Retrier
from tenure.runtime.supervised.messages import BeatFailed, RecordRenewed, TakenOver
from tenure.stores.contract import Store
from tenure.supervisor.child import Child

__all__ = ["Heartbeats"]

log = logging.getLogger("tenure")

# An error of ours may come again at once; the ttl must not run out meanwhile.
_AFTER_A_SURPRISE = 0.3


class Heartbeats:
    """Renews the records of all children that live, and reports the answer to each.

    It also recovers the jobs of replicas elsewhere that have expired, under the name `name`, which
    no other process may have: the store keeps others from what it is recovering.
    `second_replicas` returns the replicas that have no process of their own yet.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        events: Events,
        children: Collection[Child],
        name: str,
        *,
        second_replicas: Callable[[], Iterable[str]] = tuple,
        outages: Outages | None = None,
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._ttl = settings.replica_ttl
        self._retrier = Retrier(self._clock, events, outages)
        self._janitor = Janitor(store, settings, events, ClockWatch())
        self._counts = CountInterval()
        self._children = children
        self._second_replicas = second_replicas
        self._name = name
        self._changed = asyncio.Event()
        self.last: float | None = None
        """When the last good one was sent."""

    def look_again(self) -> None:
        """Beat now: a child has joined."""
        self._changed.set()

    async def run(self) -> None:
        """Beat until cancelled."""
        try:
            while True:
                try:
                    await self._beat_once()
                except Exception:
                    log.exception("the beats of a supervisor failed; they go on")
                    await self._clock.sleep(_AFTER_A_SURPRISE)
        except asyncio.CancelledError:
            await self._janitor.leave()
            raise
        finally:
            self._janitor.close()

    async def _beat_once(self) -> None:
        self._changed.clear()
        alive: dict[str, Child | None] = dict.fromkeys(self._second_replicas())
        alive.update({child.replica: child for child in self._living() if child.replica})
        if alive:
            await self._beat_and_wait(alive)
        else:
            await self._clock.wait(self._changed, self._ttl / 3)

    def _living(self) -> list[Child]:
        now = self._clock.boot()
        return [child for child in self._children if child.lives(now, self._ttl)]

    async def _beat_and_wait(self, alive: dict[str, Child | None]) -> None:
        if self.last is None:
            begin = partial(self._janitor.begin, list(alive))
            await self._retrier.until_answered("replicas", begin)
        async with self._store.watch(*(("replica", name) for name in alive)) as watch:
            pause = await self._beat(alive)
            await _first(watch.wait(pause), self._changed.wait())

    async def _beat(self, alive: dict[str, Child | None]) -> float:
        """Renew all records, report to each child, and return the pause until the next time."""
        sent = self._clock.boot()
        ahead = self._janitor.ahead
        count = self._counts.take(sent)

        async def beat() -> list[Beat | None]:
            nonlocal sent, count
            sent = self._clock.boot()
            counting, count = count, False  # if it fails, it may be for the count
            try:
                return await self._store.jobs.beat(
                    list(alive), ttl=self._ttl, ahead=ahead, count=counting
                )
            except TenureError:
                for child in filter(None, alive.values()):
                    child.order(BeatFailed())
                raise

        answers = await self._retrier.until_answered("beat", beat)
        late = self._janitor.beaten(sent, next(filter(None, answers), None))
        self.last = sent
        pause = self._ttl / 3
        for (replica, child), answer in zip(alive.items(), answers, strict=True):
            if child is None:
                continue  # its process is about to be, and hears the next one
            if answer is None:
                if child.replica == replica:  # and not a new one, under which it joined meanwhile
                    child.replica = None
                child.order(TakenOver(replica))
                continue
            child.order(RecordRenewed(replica, answer.cancels, answer.held, late))
            self._janitor.look(self._name, answer)
            chance = self._clock.random()
            pause = min(pause, pause_after(answer, self._ttl, chance, self._janitor))
        return pause


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(task) for task in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
