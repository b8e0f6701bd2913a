"""The keeper renews every lease of this process, and declares a lease lost that it cannot trust.

It runs on the host, so that a blocked user loop loses no lease. For the same reason it reports
locks that are held for longer than their holder expected.

Invariant: a lease is trusted until *send time of the last good renewal + ttl - margin* on the boot
clock. After a failed renewal its state is unknown, not lost, and the keeper retries until then. If
the store says "not yours", it is lost at once. A lost lease stays lost, whatever reply arrives.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from tenure.core.clock import Clock
from tenure.core.lease_policy import renew_after, trust_until
from tenure.core.leases import Lease
from tenure.core.overdue import overdue_after
from tenure.core.store_policy import retry_after_error
from tenure.errors import TenureError
from tenure.observe.events import Events
from tenure.observe.locks import LockHeldLong, RenewalFailing, RenewalRestored
from tenure.runtime.background import start_soon
from tenure.runtime.data_loss import Holdings
from tenure.runtime.host import Host, HostedTask
from tenure.runtime.pruning import prune
from tenure.stores.contract import Store

__all__ = ["Keeper", "KeptLease"]

log = logging.getLogger("tenure")

# While leases come and go the keeper wakes this often even without leases. So a short hold need not
# wake its thread, which would cost more than the hold itself.
_STAY_AWAKE = 1.0

# A lease joins the batch of another renewal up to this share of its ttl early, which saves a call.
_ALONG = 0.05

# The pause after a bug in the keeper: long enough not to spin, short enough for the leases.
_AFTER_A_SURPRISE = 0.1

# Keys that were idle for an hour are removed. This is how often to look, while a lease is held.
_PRUNE_EVERY = 600.0


class KeptLease:
    """A lease that the keeper renews. Any thread may read it; the keeper's thread changes it."""

    def __init__(
        self,
        lease: Lease,
        sent: float,
        clock: Clock,
        on_lost: Callable[[str], None],
        *,
        max_hold: float | None = None,
        expected: float | None = None,
    ) -> None:
        self.lease = lease
        self.since = clock.boot()
        """When the holder got it; the lease is a little older."""
        self.expected = expected
        self.overdue_at = math.inf if expected is None else self.since + overdue_after(expected)
        self._ends_at = math.inf if max_hold is None else self.since + max_hold
        self.deadline = min(trust_until(sent, lease.ttl), self._ends_at)
        self.renew_at = sent + renew_after(lease.ttl, clock.random())
        self.failures = 0
        self.reason: str | None = None
        self.in_flight = False
        self._ended = False
        self._clock = clock
        self._on_lost = on_lost
        self._deciding = threading.Lock()

    @property
    def is_lost(self) -> bool:
        """Whether the lease must not be trusted. Reads the clock, so it is right after a pause."""
        if self.reason is None and not self._ended and self._clock.boot() >= self.deadline:
            over = self.deadline >= self._ends_at
            self.lose("max_hold is over" if over else "it could not be renewed in time")
        return self.reason is not None

    def trusted_for(self) -> float:
        """Return for how many seconds it may be trusted without another renewal."""
        return max(0.0, self.deadline - self._clock.boot())

    def end(self) -> bool:
        """End the lease. Returns whether it was trusted up to now."""
        trusted = not self.is_lost
        with self._deciding:
            self._ended = True
        return trusted and self.reason is None

    def extend(self, sent: float) -> None:
        """Trust the lease longer after a renewal that was sent at `sent` succeeded.

        Renewals may overtake each other, but all give the same ttl. So the lease lives at least as
        long as each of them says, whichever the store carried out last.
        """
        with self._deciding:
            if self.reason is None and self._clock.boot() < self.deadline:
                until = min(trust_until(sent, self.lease.ttl), self._ends_at)
                self.deadline = max(self.deadline, until)
                self.renew_at = sent + renew_after(self.lease.ttl, self._clock.random())
                self.failures = 0

    def lose(self, reason: str) -> None:
        """Declare the lease lost for good. Only the first reason counts.

        Does nothing once it has ended: a renewal that crosses the release rightly finds no lease.
        """
        with self._deciding:
            if self.reason is not None or self._ended:
                return
            self.reason = reason
        self._on_lost(reason)

    def was_missing(self, reason: str) -> None:
        """Declare it lost after its end, because the release found it gone."""
        with self._deciding:
            self.reason = reason
        self._on_lost(reason)

    def take_alarm(self) -> bool:
        """Return whether to report that it is held for too long: once, and not after its end."""
        with self._deciding:
            self.overdue_at = math.inf
            return not self._ended and self.reason is None

    def postpone(self, now: float) -> None:
        """Plan another renewal soon, after one with an unknown outcome."""
        self.failures += 1
        pause = retry_after_error(self.failures, self._clock.random())
        self.renew_at = now + min(pause, self.lease.ttl / 10)


class Keeper:
    """Renews leases on the host until they are dropped. Starts with the first lease.

    `keep` is called on the app's loop, `drop` from any thread.
    """

    def __init__(self, host: Host, events: Events) -> None:
        self._host = host
        self._clock = host.store.clock
        self._events = events
        self._hosted: HostedTask | None = None
        self._kept: dict[
            KeptLease, None
        ] = {}  # a dict, for its order: a simulation must repeat under the same seed
        self._forgotten: deque[KeptLease] = deque()
        self._changing = threading.Lock()
        self._planned = -math.inf
        self._kept_lately = False
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._failures = 0
        self._prune_at = self._clock.boot() + _PRUNE_EVERY
        self._confirming: asyncio.Task[None] | None = None
        host.data.add_source(self._in_hand)

    def keep(self, kept: KeptLease) -> None:
        """Start to renew a lease.

        Wakes the keeper only if this lease is due before its next planned wake-up. So short holds
        cost no thread switch.
        """
        # Restarts a keeper that a bug has ended.
        if self._hosted is None or self._hosted.done:
            self._hosted = self._host.start(self.run)
        with self._changing:
            self._kept[kept] = None
            self._kept_lately = True
            sooner = min(kept.renew_at, kept.deadline, kept.overdue_at) < self._planned
        if sooner and self._loop is not None:
            with suppress(RuntimeError):  # the host's thread has ended, and another one is starting
                self._loop.call_soon_threadsafe(self._changed.set)

    def drop(self, kept: KeptLease) -> None:
        """Stop renewing. When this returns, a renewal is `in_flight`, or none will be sent.

        A renewal in flight does not disturb a release: it never resurrects a lease.
        """
        with self._changing:
            self._kept.pop(kept, None)

    def forget(self, kept: KeptLease) -> None:
        """Stop renewing soon. For finalizers, which may run while `keep` holds its lock."""
        self._forgotten.append(kept)

    async def close(self) -> None:
        """Stop all renewals. Leases that are still held end with their ttl."""
        if self._hosted is not None:
            await self._host.stop(self._hosted)

    async def run(self) -> None:
        """Renew and watch deadlines until cancelled."""
        self._loop = loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()  # an event that was used belongs to its loop
        try:
            while True:
                self._changed.clear()
                timeout = self._turn()
                await self._clock.wait(self._changed, timeout)
        finally:
            if self._loop is loop:  # not the event of a newer thread, after this one has ended
                self._loop = None
            every = (self._renewal, self._pruning, self._confirming)
            running = [task for task in every if task is not None]
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    def _turn(self) -> float | None:
        """Do what is due. Returns the seconds until the next thing to do, None if there is none."""
        try:
            now = self._clock.boot()
            self._watch(now)
            self._start_renewal(now)
            self._start_prune(now)
            wake_at = self._plan()
        except Exception:
            log.exception("the keeper failed in an unexpected way; it goes on")
            return _AFTER_A_SURPRISE
        return None if math.isinf(wake_at) else max(0.0, wake_at - self._clock.boot())

    def _watch(self, now: float) -> None:
        """Lose what can no longer be trusted, and report what is held for too long."""
        for kept in self._snapshot():
            if kept.deadline <= now and kept.is_lost:
                self.drop(kept)
            elif kept.overdue_at <= now and kept.take_alarm():
                lease, expected = kept.lease, kept.expected or 0.0
                self._events.emit(LockHeldLong(lease.key, lease.fence, now - kept.since, expected))

    def _start_renewal(self, now: float) -> None:
        """Renew what is due, one batch at a time, without waiting for its reply here."""
        if self._renewal is not None:
            return
        held = self._snapshot()
        if not any(kept.renew_at <= now for kept in held):
            return
        # Leases that are due soon join this batch: an early renewal is harmless.
        due = [kept for kept in held if kept.renew_at <= now + _ALONG * kept.lease.ttl]
        self._renewal = asyncio.ensure_future(self._renew(due))
        self._renewal.add_done_callback(self._renewed)

    def _renewed(self, renewal: asyncio.Task[None]) -> None:
        self._renewal = None
        if not renewal.cancelled() and (error := renewal.exception()) is not None:
            log.error("a renewal failed in an unexpected way", exc_info=error)
        self._changed.set()

    async def _renew(self, due: list[KeptLease]) -> None:
        with self._changing:
            due = [kept for kept in due if kept in self._kept]
            for kept in due:
                kept.in_flight = True
        sent = self._clock.boot()
        try:
            store = await self._host.open_store()
            answers = await store.leases.renew([kept.lease for kept in due])
        except Exception as error:  # noqa: BLE001 - after any error the state of the leases is unknown
            self._note_failure(due, error)
        else:
            was_failing = self._failures > 0
            self._note_success()
            for kept, answer in zip(due, answers, strict=True):
                self._take_answer(kept, answer, sent)
            unknown = [kept for kept, answer in zip(due, answers, strict=True) if answer is False]
            if unknown or was_failing:
                names = tuple(kept.lease.key for kept in unknown)
                self._host.data.suspect(Holdings(holds=names))
            self._start_confirming(store)
        finally:
            for kept in due:
                kept.in_flight = False

    def _take_answer(self, kept: KeptLease, answer: bool | None, sent: float) -> None:  # noqa: FBT001 - None is a third answer
        if answer:
            kept.extend(sent)
        elif answer is None:
            kept.postpone(self._clock.boot())
        else:
            self.drop(kept)
            kept.lose("the store says that it is no longer held")

    def _in_hand(self) -> Holdings:
        with self._changing:
            return Holdings(holds=tuple(kept.lease.key for kept in self._kept))

    def _start_confirming(self, store: Store) -> None:
        """Find out whether the store has lost its data, if suspected. Runs beside the renewals."""
        is_free = self._confirming is None or self._confirming.done()
        if self._host.data.is_suspected and is_free:
            self._confirming = asyncio.ensure_future(self._confirm(store))

    async def _confirm(self, store: Store) -> None:
        try:
            await self._host.data.confirm(store, self._events)
        except TenureError as error:
            log.info("cannot tell yet whether the store has lost its data: %s", error)

    def _note_success(self) -> None:
        if self._failures:
            self._events.emit(RenewalRestored(self._failures))
            self._failures = 0

    def _note_failure(self, due: list[KeptLease], error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            self._events.emit(RenewalFailing(len(due), str(error)))
            if not isinstance(error, TenureError):
                log.error("a renewal failed in an unexpected way", exc_info=error)
        for kept in due:
            kept.postpone(self._clock.boot())

    def _start_prune(self, now: float) -> None:
        """Remove idle keys now and then. Runs beside the renewals, because it may take long."""
        if self._pruning is None and self._kept and now >= self._prune_at:
            self._prune_at = now + _PRUNE_EVERY
            self._pruning = start_soon(self._prune())

    async def _prune(self) -> None:
        try:
            await prune(await self._host.open_store())
        except TenureError as error:
            log.info("could not forget idle keys this time: %s", error)
        finally:
            self._pruning = None

    def _plan(self) -> float:
        """Compute and publish the boot instant of the next wake-up."""
        with self._changing:
            self._drop_forgotten()
            instants = [min(kept.deadline, kept.overdue_at) for kept in self._kept]
            if self._renewal is None and self._kept:
                instants += [kept.renew_at for kept in self._kept]
            if self._kept_lately:
                instants.append(self._clock.boot() + _STAY_AWAKE)
                self._kept_lately = False
            self._planned = min(instants, default=math.inf)
            return self._planned

    def _snapshot(self) -> list[KeptLease]:
        with self._changing:
            self._drop_forgotten()
            return list(self._kept)

    def _drop_forgotten(self) -> None:
        while self._forgotten:
            self._kept.pop(self._forgotten.popleft(), None)
