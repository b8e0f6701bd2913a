"""The janitor: a replica that beats also recovers the jobs of dead replicas, prunes, and watches.

Every replica does this, so there is no leader to elect. The store gives each orphan to one of them,
and the lease to look at the queues as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tenure.core.jobs.replicas import Beat
from tenure.core.recovery_policy import Reading, clock_jump, first_recovery_after, recovery_pause
from tenure.core.settings import Settings
from tenure.errors import TenureError
from tenure.observe.events import Events
from tenure.runtime.clock_watch import ClockWatch
from tenure.runtime.pruning import prune
from tenure.runtime.replica.queue_watch import QueueWatch
from tenure.runtime.replica.recovery import Recovery
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.contract import Store

__all__ = ["Janitor"]

log = logging.getLogger("tenure")

# Every replica prunes this often, in slices.
_PRUNE_EVERY = 60.0
# Rarer, because it reads all timers to find forgotten ones.
_FORGET_EVERY = 3600.0
# Longer than a service is switched off over holidays: its timers continue where they were.
_FORGOTTEN_AFTER = 14 * 86_400.0

# Longer than the longest pause between two tries of a call; see `retry_after_error`.
_SECOND_LOOK = 1.2

# A smaller lead needs no write: recovery starts 5 s after a deadline at the earliest.
_LEAD_MIN = 0.5

# A replica that stops waits so long for the end of a slice, as for the release of its lease.
_SLICE_PATIENCE = 1.0


class Janitor:
    """Decides after each beat whether to recover and prune, and does so beside the beats."""

    def __init__(
        self, store: Store, settings: Settings, events: Events, clock_watch: ClockWatch
    ) -> None:
        self._store = store
        self._events = events
        self._clock_watch = clock_watch
        self._queue_watch = QueueWatch(
            store, settings.queue_expected, events, replica_ttl=settings.replica_ttl
        )
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
        self._watching: asyncio.Task[None] | None = None

    def close(self) -> None:
        for task in (self._recovering, self._pruning, self._watching):
            if task is not None:
                task.cancel()

    async def leave(self) -> None:
        """Stop, and let others take over at once what this replica alone does.

        A slice that is being recovered ends: once it is settled, nobody else reports its jobs.
        """
        self._recovery.stop()
        if self._recovering is not None:
            await asyncio.wait({self._recovering}, timeout=_SLICE_PATIENCE)
        self.close()
        await self._queue_watch.leave()

    @property
    def ahead(self) -> float:
        """By how many seconds the next beat must postpone the deadlines of running jobs."""
        return self._lead.unsent

    async def begin(self, own: Sequence[str]) -> None:
        """Record that the replica has just joined."""
        is_alone = not any(
            replica.id not in own and replica.expires_in > 0 and not replica.dead
            for replica in await self._store.jobs.replicas()
        )
        now = self._clock.boot()
        self._last_beat = now
        self._may_recover_at = now + first_recovery_after(self._ttl, is_alone=is_alone)

    def beaten(self, sent: float, beat: Beat | None) -> bool:
        """Record a successful beat. Returns whether the record may have expired before it."""
        answered = self._clock.boot()
        gap, late_by, jump = sent - self._last_beat, answered - self._last_beat, 0.0
        if beat is not None:
            jump = self._lead.read(Reading(sent, beat.now))
            self._clock_watch.heard(beat.now, sent=sent, answered=answered, events=self._events)
        if pause := recovery_pause(self._ttl, gap=gap, jump=jump):
            self._may_recover_at = max(self._may_recover_at, sent + pause)
        self._last_beat = sent
        return late_by + max(0.0, jump) > self._ttl

    def look(self, by: str, beat: Beat) -> None:
        """Start recovery, pruning and a look at the queues, if due. Beats do not wait for them."""
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
        if self._queue_watch.is_due(now) and _is_over(self._watching):
            self._watching = asyncio.ensure_future(self._watch_queues())

    def next_look(self, pause: float) -> float:
        """Return the pause before the next beat, at most `pause`.

        It is 0 if the store's clock has run ahead, because the next beat postpones the deadlines of
        running jobs. A replica that has just joined first waits for one beat of every other worker.
        """
        if self.ahead:
            return 0.0
        return pause if self._expired_since is None else min(pause, self._second_look)

    def _should_recover(self, now: float) -> bool:
        """Whether to recover now: an expired replica is confirmed by a second look a moment later.

        After an outage every replica tries again within a second. The first to return must not take
        the jobs of those that return a moment later.
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
            log.info("recovery failed and continues with the next beat: %s", error)
        except Exception:
            log.exception("recovery failed in an unexpected way; it continues with the next beat")

    async def _prune(self) -> None:
        try:
            await prune(self._store)
            now = self._clock.boot()
            if now >= self._forget_at:
                self._forget_at = now + _FORGET_EVERY * (0.5 + self._clock.random())
                await Scheduling(self._store).forget(idle=_FORGOTTEN_AFTER)
        except TenureError as error:
            log.info(
                "could not prune finished jobs and idle keys; the next try is in a minute: %s",
                error,
            )
        except Exception:
            log.exception("pruning failed in an unexpected way; the next try is in a minute")

    async def _watch_queues(self) -> None:
        try:
            await self._queue_watch.look()
        except TenureError as error:
            log.info("could not look at the queues; the next try is within a minute: %s", error)
        except Exception:
            log.exception("a look at the queues failed in an unexpected way; the next one follows")


class _Lead:
    """Measures by how much the store's clock has run ahead of the local one, from beats.

    Deadlines of running jobs are instants of the store's clock, so they come early by this lead.
    """

    def __init__(self) -> None:
        self.unsent = 0.0
        """The lead that the next beat must send."""
        self._last: Reading | None = None
        self._lowest: Reading | None = None
        """The reading since the last sent lead in which the store's clock was furthest behind."""

    def read(self, reading: Reading) -> float:
        """Take the reading of a beat that has sent `unsent`. Returns the latest jump."""
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
