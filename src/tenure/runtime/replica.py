"""A replica: this process as the store knows it. One record, renewed on the host.

Everything the process runs stands on that record. While it cannot be renewed the jobs are in
doubt and run on; only the store's word that they were taken over stops them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from tenure.core.model import Meta
from tenure.core.policy import renew_after
from tenure.core.records import CANCELS_MAX, Beat
from tenure.core.settings import Settings
from tenure.errors import TenureError
from tenure.observe.events import Events
from tenure.runtime.hosting import Host, Hosted
from tenure.runtime.patience import Patience
from tenure.runtime.pruning import prune_finished
from tenure.runtime.recovery import Recovery

__all__ = ["Replica", "ReplicaListener"]

log = logging.getLogger("tenure")

# Finished jobs whose retention is over are removed by whoever is there, in slices.
_PRUNE_EVERY = 60.0

# More than the longest pause between two tries of a call, see `retry_after_error`.
_SECOND_LOOK = 1.2
# An error of ours may come again at once; the ttl must not run out meanwhile.
_AFTER_A_SURPRISE = 0.3
# There are more cancels than one answer holds.
_MORE_CANCELS = 0.05


class ReplicaListener(Protocol):
    """Who wants to know how the replica fares; called on the loop of the app."""

    def joined(self, replica: str) -> None:
        """Work may be claimed under this id."""
        ...

    def revived(self) -> None:
        """The record may have expired for a while, in which claims got nothing."""
        ...

    def taken_over(self, replica: str) -> None:
        """All that ran under this id was given to others."""
        ...

    def cancels(self, jobs: list[str]) -> None:
        """Somebody wants these jobs to stop. May be told several times."""
        ...


class Replica:
    """Joins, beats, recovers others and joins again under a new id when it was taken for dead."""

    def __init__(
        self,
        host: Host,
        settings: Settings,
        events: Events,
        meta: Meta,
        listener: ReplicaListener,
    ) -> None:
        self._host = host
        self._clock = host.store.clock
        self._ttl = settings.replica_ttl
        self._patience = Patience(self._clock, events)
        self._meta = meta
        self._listener = listener
        self._recovery = Recovery(settings, self._clock, events)
        self._loop = asyncio.get_running_loop()
        self._hosted: Hosted | None = None
        self._last_beat = 0.0
        self._may_recover_at = 0.0
        self._expired_since: float | None = None
        self._prune_at = self._clock.boot() + _PRUNE_EVERY * self._clock.random()
        self._recovering: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._hosted = self._host.start(self._run)

    async def stop(self) -> None:
        """Stop beating. The record stays until it is left or expires."""
        if self._hosted is not None:
            await self._host.stop(self._hosted)

    async def _run(self) -> None:
        try:
            while True:
                await self._join_and_live()
        finally:
            for task in (self._recovering, self._pruning):
                if task is not None:
                    task.cancel()

    async def _join_and_live(self) -> None:
        """Live as one replica until that is taken for dead."""
        replica = self._clock.token()
        await self._join(replica)
        self._tell(self._listener.joined, replica)
        await self._live(replica)
        self._tell(self._listener.taken_over, replica)

    async def _join(self, replica: str) -> None:
        async def join() -> bool:
            store = await self._host.open_store()
            await store.join(replica, ttl=self._ttl, meta=self._meta)
            return any(
                one.id != replica and one.expires_in > 0 and not one.dead
                for one in await store.replicas()
            )

        others = await self._patience.until_answered("join", join)
        now = self._clock.boot()
        self._last_beat = now
        # Where nobody else lives there may have been an outage for all: let the others revive.
        self._may_recover_at = now if others else now + self._ttl

    async def _live(self, replica: str) -> None:
        """Be that replica until the store says that it is dead, whatever goes wrong here."""
        while True:
            try:
                return await self._beat_until_dead(replica)
            except Exception:
                log.exception("the beats of a worker failed in an unexpected way; they go on")
                await self._clock.sleep(_AFTER_A_SURPRISE)

    async def _beat_until_dead(self, replica: str) -> None:
        store = await self._host.open_store()
        async with store.watch(("replica", replica)) as bell:
            while (beat := await self._beat(replica)) is not None:
                if beat.cancels:
                    self._tell(self._listener.cancels, beat.cancels)
                self._look_after_others(replica, beat)
                await bell.wait(self._pause(beat))

    def _pause(self, beat: Beat) -> float:
        pause = renew_after(self._ttl, self._clock.random())
        if len(beat.cancels) == CANCELS_MAX:
            return min(pause, _MORE_CANCELS)
        return min(pause, self._second_look) if self._expired_since is not None else pause

    async def _beat(self, replica: str) -> Beat | None:
        sent = self._clock.boot()

        async def beat() -> Beat | None:
            nonlocal sent
            sent = self._clock.boot()
            [answer] = await self._host.store.beat([replica], ttl=self._ttl)
            return answer

        answer = await self._patience.until_answered("beat", beat)
        if answer is not None and self._clock.boot() - self._last_beat > self._ttl:
            self._tell(self._listener.revived)
        if sent - self._last_beat > self._ttl / 2:
            # After a gap the others may have had one too, and a longer one by up to a third of the
            # ttl: they get the time to come back.
            self._may_recover_at = sent + self._ttl
        self._last_beat = sent
        return answer

    def _look_after_others(self, replica: str, beat: Beat) -> None:
        """Recover and prune beside the beats, which must not wait for it."""
        now = self._clock.boot()
        if not beat.expired:
            self._expired_since = None
        elif self._expired_since is None:
            self._expired_since = now
        elif self._should_recover(now):
            self._recovering = asyncio.ensure_future(self._recover(replica))
        if now >= self._prune_at and _is_over(self._pruning):
            self._prune_at = now + _PRUNE_EVERY * (0.5 + self._clock.random())
            self._pruning = asyncio.ensure_future(self._prune())

    def _should_recover(self, now: float) -> bool:
        """Whether it is time: what looks dead gets a second look, after a moment.

        A replica that could not reach the store tries again within a second. Whoever is back
        first must not take from those who are a moment later.
        """
        assert self._expired_since is not None
        seen_twice = now - self._expired_since >= self._second_look
        return seen_twice and now >= self._may_recover_at and _is_over(self._recovering)

    @property
    def _second_look(self) -> float:
        return min(_SECOND_LOOK, self._ttl / 2)

    async def _recover(self, replica: str) -> None:
        try:
            await self._recovery.run(self._host.store, replica)
        except TenureError as error:
            log.info("recovery goes on with the next beat: %s", error)

    async def _prune(self) -> None:
        try:
            await prune_finished(self._host.store)
        except TenureError as error:
            log.info("could not prune finished jobs this time: %s", error)

    def _tell(self, how: Callable[..., None], *values: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(how, *values)


def _is_over(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()
