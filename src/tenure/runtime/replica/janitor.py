"""Looking after others: whoever beats also recovers the jobs of the dead, and prunes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tenure.core.jobs.replicas import Beat
from tenure.core.policy import Reading, clock_jump, first_recovery_after, recovery_pause
from tenure.core.settings import Settings
from tenure.errors import TenureError
from tenure.observe.events import Events
from tenure.runtime.pruning import prune
from tenure.runtime.replica.recovery import Recovery
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.contract import Store

__all__ = ["Janitor"]

log = logging.getLogger("tenure")

# What is over is removed by every replica, in slices.
_PRUNE_EVERY = 60.0
# To find forgotten timers, all of them are read.
_FORGET_EVERY = 3600.0
# Long enough for a service that is switched off over the holidays to go on where it was.
_FORGOTTEN_AFTER = 14 * 86_400.0

# More than the longest pause between two tries of a call, see `retry_after_error`.
_SECOND_LOOK = 1.2

# A smaller lead is not worth a write: jobs are taken 5 s past their deadline at the earliest.
_LEAD_MIN = 0.5


class Janitor:
    """Decides by its own beats when to recover and prune, and does it beside them."""

    def __init__(self, store: Store, settings: Settings, events: Events) -> None:
        self._store = store
        self._clock = store.clock
        self._ttl = settings.replica_ttl
        self._recovery = Recovery(settings, self._clock, events)
        self._last_beat = 0.0
        self._lead = _Lead()
        self._may_recover_at = 0.0
        self._expired_since: float | None = None
        self._prune_at = self._clock.boot() + _PRUNE_EVERY * self._clock.random()
        self._forget_at = 0.0
        self._recovering: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None

    def close(self) -> None:
        for task in (self._recovering, self._pruning):
            if task is not None:
                task.cancel()

    @property
    def ahead(self) -> float:
        """By how much the next beat has to postpone deadlines."""
        return self._lead.unsent

    async def begin(self, own: Sequence[str]) -> None:
        """Take note that it has just joined, under these ids."""
        is_alone = not any(
            replica.id not in own and replica.expires_in > 0 and not replica.dead
            for replica in await self._store.jobs.replicas()
        )
        now = self._clock.boot()
        self._last_beat = now
        self._may_recover_at = now + first_recovery_after(self._ttl, is_alone=is_alone)

    def beaten(self, sent: float, beat: Beat | None) -> bool:
        """Take note of a good beat; say whether the record may have expired before it."""
        gap, late_by = sent - self._last_beat, self._clock.boot() - self._last_beat
        jump = 0.0 if beat is None else self._lead.read(Reading(sent, beat.now))
        if pause := recovery_pause(self._ttl, gap=gap, jump=jump):
            self._may_recover_at = max(self._may_recover_at, sent + pause)
        self._last_beat = sent
        return late_by + max(0.0, jump) > self._ttl

    def look(self, by: str, beat: Beat) -> None:
        """Recover and prune beside the beats, which must not wait for it."""
        now = self._clock.boot()
        if not beat.expired:
            self._expired_since = None
        elif self._expired_since is None:
            self._expired_since = now
        elif self._should_recover(now):
            self._recovering = asyncio.ensure_future(self._recover(by, beat.now))
        if now >= self._prune_at and _is_over(self._pruning):
            self._prune_at = now + _PRUNE_EVERY * (0.5 + self._clock.random())
            self._pruning = asyncio.ensure_future(self._prune())

    def next_look(self, pause: float) -> float:
        """Return when to beat again, at the latest after `pause`.

        At once if the store's clock has run ahead: the next beat postpones the deadlines of running
        jobs. A replica that has just joined waits for one beat of each worker, and then takes
        what is overdue.
        """
        if self.ahead:
            return 0.0
        return pause if self._expired_since is None else min(pause, self._second_look)

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

    async def _recover(self, by: str, as_of: int) -> None:
        try:
            await self._recovery.run(self._store, by, as_of)
        except TenureError as error:
            log.info("recovery goes on with the next beat: %s", error)
        except Exception:
            log.exception("recovery failed in an unexpected way; it goes on with the next beat")

    async def _prune(self) -> None:
        try:
            await prune(self._store)
            now = self._clock.boot()
            if now >= self._forget_at:
                self._forget_at = now + _FORGET_EVERY * (0.5 + self._clock.random())
                await Scheduling(self._store).forget(idle=_FORGOTTEN_AFTER)
        except TenureError as error:
            log.info("could not prune what is over this time: %s", error)
        except Exception:
            log.exception("pruning failed in an unexpected way; it is tried again in a minute")


class _Lead:
    """How far the store's clock has run ahead of the local one, by the answers to beats.

    Deadlines of running jobs are instants of the store's clock. They come early by its lead.
    """

    def __init__(self) -> None:
        self.unsent = 0.0
        """The lead that the next beat has to tell the store."""
        self._last: Reading | None = None
        self._lowest: Reading | None = None
        """The reading since the lead was last told at which the store's clock was most behind."""

    def read(self, reading: Reading) -> float:
        """Take note of the answer to a beat that has told `untold`; return the latest jump."""
        jump = 0.0 if self._last is None else clock_jump(self._last, reading)
        lowest = self._last if self.unsent else self._lowest
        if lowest is None or clock_jump(lowest, reading) < 0:
            lowest = reading
        lead = clock_jump(lowest, reading)
        self.unsent = lead if lead >= _LEAD_MIN else 0.0
        self._last, self._lowest = reading, lowest
        return jump


def _is_over(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()
