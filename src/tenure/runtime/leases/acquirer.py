"""Acquires leases: request, wait in the queue, request again; and clean up when giving up.

The holder id is made before the first request and used for all of them. So a request whose reply
was lost is sent again without harm. A caller that gives up, for any reason, is removed from the
store by that id alone.
"""

from __future__ import annotations

import asyncio
import logging
import math

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.lease_policy import WAITER_LIFE, retry_when_busy, trust_until
from tenure.core.leases import Acquired, Busy, Lease, Meta
from tenure.core.store_policy import retry_after_error
from tenure.errors import LimitMismatch, StoreError, StoreUnavailable
from tenure.observe.events import Events
from tenure.observe.locks import LimitsDiffer
from tenure.runtime.background import Background
from tenure.runtime.leases.local_queue import LocalQueue
from tenure.runtime.process_info import about_this_process
from tenure.stores.contract import Store

__all__ = ["Acquirer", "Grip", "LeaseRequest"]

log = logging.getLogger("tenure")

# How long a waiting caller retries while the store does not answer: a server restart takes a second
# or two. A caller that does not wait gets one repeat, which is enough for a lost reply.
_OUTAGE_PATIENCE = 3.0

# How often a release is tried. After that the lease ends with its ttl.
_RELEASE_TRIES = 4


class LeaseRequest(Struct, frozen=True, kw_only=True):
    """A lease as a caller requests it."""

    key: str
    limit: int
    ttl: float
    meta: Meta
    strict: bool


class Grip(Struct, frozen=True):
    """An acquired lease, with the boot instant at which its request was sent."""

    lease: Lease
    sent: float


class Acquirer:
    """Acquires and releases leases for one app."""

    def __init__(self, store: Store, events: Events) -> None:
        self.store = store
        self._clock = store.clock
        self._events = events
        # Shown beside the user's meta data of a lease.
        self.about_us = about_this_process()
        self._lines = LocalQueue(store.clock)
        self._background = Background()

    async def close(self) -> None:
        """Wait for releases that run in the background."""
        await self._background.drain(timeout=5.0)

    async def acquire(self, ask: LeaseRequest, wait: float | None) -> Grip | None:
        """Return the lease, or None if it was not free within `wait` seconds (None: no limit).

        Raises StoreUnavailable if the store does not answer, LimitMismatch if strict.
        """
        until = math.inf if wait is None else self._clock.boot() + wait
        if wait == 0:
            return await _Attempt(self, ask, until, waits=False).run()
        if not await self._lines.enter(ask.key, wait):
            return None
        try:
            return await _Attempt(self, ask, until, waits=True).run()
        finally:
            self._lines.leave(ask.key)

    async def release(self, lease: Lease, keep: float = 0.0) -> bool:
        """Release a lease; if the caller is cancelled meanwhile, continue in the background.

        With `keep` the lease stays in the store for that many seconds. Returns False if the lease
        was gone although no earlier try can have removed it: then it had been lost unnoticed.
        """
        try:
            return await self._give_back(lease, keep)
        except asyncio.CancelledError:
            self._background.spawn(self._give_back(lease, keep))
            raise

    def release_all_of(self, key: str, holder: str) -> None:
        """Release in the background what a holder id has: a lease, a place in the queue, or
        nothing.
        """
        self._background.spawn(self._give_back(Lease(key=key, holder=holder), keep=0.0))

    async def _give_back(self, lease: Lease, keep: float) -> bool:
        for failures in range(1, _RELEASE_TRIES + 1):
            try:
                held = await self._end_on_store(lease, keep)
            except StoreUnavailable as error:
                level = logging.WARNING if failures == 1 else logging.INFO
                log.log(level, "could not release %r yet: %s", lease.key, error)
            except StoreError as error:
                log.warning("could not release %r; it ends with its ttl: %s", lease.key, error)
                return True
            else:
                if held is not None:
                    if lease.fence:  # otherwise it may never have been granted
                        about = {"lock": lease.key, "fence": lease.fence}
                        log.debug("lock %r released", lease.key, extra=about)
                    # After a failed try, that try may have removed it.
                    return held or failures > 1
            await self._clock.sleep(retry_after_error(failures, self._clock.random()))
        log.warning("gave up releasing %r; what is left of it ends with its ttl", lease.key)
        return True

    async def _end_on_store(self, lease: Lease, keep: float) -> bool | None:
        if keep > 0:
            # The last renewal gives it exactly the remaining time to stay.
            [held] = await self.store.leases.renew([replace(lease, ttl=keep)])
            return held
        [released] = await self.store.leases.release([lease])
        return released

    def note_other_limit(self, ask: LeaseRequest, other: int) -> None:
        """Report that live holders use another limit. Raises LimitMismatch with strict=True."""
        if ask.strict:
            raise LimitMismatch(ask.key, ask.limit, other)
        self._events.emit(LimitsDiffer(ask.key, ask.limit, other))


class _Attempt:
    """One caller's attempt to acquire a lease, under one holder id."""

    def __init__(self, acquirer: Acquirer, ask: LeaseRequest, until: float, *, waits: bool) -> None:
        self._acquirer = acquirer
        self._store = acquirer.store
        self._clock = acquirer.store.clock
        self._ask = ask
        self._until = until
        self._waits = waits
        self._meta = {**acquirer.about_us, **ask.meta} if ask.meta else acquirer.about_us
        self._holder = self._clock.token()
        self._limit_noted = False

    async def run(self) -> Grip | None:
        try:
            grip = await self._contend()
        except BaseException:
            self._clean_up()
            raise
        if grip is None and self._waits:
            self._clean_up()
        self._tell(grip)
        return grip

    def _tell(self, grip: Grip | None) -> None:
        name = self._ask.key
        if grip is None:
            log.debug("lock %r skipped: others hold it", name, extra={"lock": name, "fence": None})
        else:
            fence = grip.lease.fence
            about = {"lock": name, "fence": fence}
            log.debug("lock %r acquired with fence %d", name, fence, extra=about)

    async def _contend(self) -> Grip | None:
        answer = await self._ask_store()
        if isinstance(answer, Grip):
            return answer
        if not self._waits:
            return None
        async with self._store.watch(("lease", self._holder)) as bell:
            # Requested again after the watch is armed, so that no wake-up is missed.
            while isinstance(answer := await self._ask_store(), Busy):
                left = self._until - self._clock.boot()
                if left <= 0:
                    return None
                pause = retry_when_busy(answer.retry_in, self._clock.random())
                await bell.wait(min(pause, left))
            return answer

    async def _ask_store(self) -> Grip | Busy:
        """Request until the store answers, within the time for outages."""
        failures = 0
        patience = min(_OUTAGE_PATIENCE if self._waits else 0.0, self._until - self._clock.boot())
        give_up_at = self._clock.boot() + patience
        while True:
            sent = self._clock.boot()
            try:
                answer = await self._send()
                if isinstance(answer, Busy):
                    return answer
                if self._clock.boot() < trust_until(sent, self._ask.ttl):
                    return Grip(answer.lease, sent)
                # A repeated request under the same holder id returns the same grant with its full
                # ttl.
                msg = f"the store took longer to answer than the ttl of {self._ask.ttl:g} s"
                raise StoreUnavailable(msg)
            except StoreUnavailable:
                failures += 1
                if failures > 1 and self._clock.boot() >= give_up_at:
                    raise
                await self._clock.sleep(retry_after_error(failures, self._clock.random()))

    async def _send(self) -> Acquired:
        patience = self._call_patience()
        if patience is None:
            answer = await self._request()
        else:
            try:
                # A server that hangs must not delay a caller with a short wait.
                async with asyncio.timeout(patience):
                    answer = await self._request()
            except TimeoutError as error:
                msg = f"the store {self._store.url} did not answer in time"
                raise StoreUnavailable(msg) from error
        if answer.other_limit is not None and not self._limit_noted:
            self._limit_noted = True
            self._acquirer.note_other_limit(self._ask, answer.other_limit)
        return answer

    async def _request(self) -> Acquired:
        ask = self._ask
        return await self._store.leases.acquire(
            ask.key,
            holder=self._holder,
            limit=ask.limit,
            ttl=ask.ttl,
            meta=self._meta,
            waiting=WAITER_LIFE if self._waits else 0.0,
        )

    def _call_patience(self) -> float | None:
        if not self._waits or math.isinf(self._until):
            return None
        return max(self._until - self._clock.boot(), 0.0) + 1.0

    def _clean_up(self) -> None:
        self._acquirer.release_all_of(self._ask.key, self._holder)
