"""Acquires leases: request, wait in the queue, request again; and clean up when giving up.

The holder id is made before the first request and used for all of them. So a request whose reply
was lost is sent again without harm. A caller that gives up, for any reason, is removed from the
store by that id alone.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.lease_policy import WAITER_LIFE, retry_when_busy, trust_until
from tenure.core.leases import Acquired, Busy, Lease, Meta
from tenure.core.store_policy import retry_after_error
from tenure.errors import LimitMismatch, StoreError, StoreUnavailable
from tenure.observe.events import Events
from tenure.observe.locks import LimitsDiffer, LockRefused, LockTimedOut
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
    """An acquired lease, with instants of the boot clock."""

    lease: Lease
    sent: float
    """When the request was sent that was granted."""
    began: float
    """When its caller began to acquire it, before all waiting."""
    took_over: bool = False
    """Whether its last holder never released it."""


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
        began = self._clock.boot()
        if wait == 0:
            grip = await _Attempt(self, ask, began, began, waits=False).run()
            if grip is None and self._events.wants_details:
                self._events.emit(LockRefused(ask.key, ask.limit))
            return grip
        grip = None
        if await self._lines.enter(ask.key, wait):
            until = math.inf if wait is None else began + wait
            try:
                grip = await _Attempt(self, ask, began, until, waits=True).run()
            finally:
                self._lines.leave(ask.key)
        if grip is None and self._events.wants_details:
            self._events.emit(LockTimedOut(ask.key, ask.limit, self._clock.boot() - began))
        return grip

    def in_background(self, work: Coroutine[Any, Any, object]) -> None:
        """Carry on with a release whose caller was cancelled."""
        self._background.spawn(work)

    def release_all_of(self, key: str, holder: str) -> None:
        """Release in the background what a holder id has: a lease, a place in the queue, or
        nothing.
        """
        self._background.spawn(self.release(Lease(key=key, holder=holder)))

    async def release(self, lease: Lease, keep: float = 0.0) -> bool:
        """Release a lease; a caller that is cancelled must repeat it `in_background`.

        With `keep` the lease stays in the store for that many seconds. Returns False if the lease
        was gone although no earlier try can have removed it: then it had been lost unnoticed.
        """
        for failures in range(1, _RELEASE_TRIES + 1):
            try:
                held = await self._end_on_store(lease, keep)
            except StoreUnavailable as error:
                level = logging.WARNING if failures == 1 else logging.INFO
                fields = {"lock": lease.key, "outage": "release"}
                log.log(level, "could not release %r yet: %s", lease.key, error, extra=fields)
            except StoreError as error:
                text, fields = "could not release %r; it ends with its ttl: %s", {"lock": lease.key}
                log.warning(text, lease.key, error, extra=fields)
                return True
            else:
                if held is not None:
                    # After a failed try, that try may have removed it.
                    return held or failures > 1
            await self._clock.sleep(retry_after_error(failures, self._clock.random()))
        fields = {"lock": lease.key, "outage": "gave up releasing"}
        log.warning(
            "gave up releasing %r; what is left of it ends with its ttl", lease.key, extra=fields
        )
        return True

    async def _end_on_store(self, lease: Lease, keep: float) -> bool | None:
        if keep > 0:
            # The last renewal gives it exactly the remaining time to stay.
            [held] = await self.store.leases.renew([replace(lease, ttl=keep, kept=True)])
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

    def __init__(
        self, acquirer: Acquirer, ask: LeaseRequest, began: float, until: float, *, waits: bool
    ) -> None:
        self._acquirer = acquirer
        self._store = acquirer.store
        self._clock = acquirer.store.clock
        self._ask = ask
        self._began = began
        self._until = until
        self._waits = waits
        self._meta = {**acquirer.about_us, **ask.meta} if ask.meta else acquirer.about_us
        self._holder = self._clock.token()
        self._limit_noted = False
        self._took_over: bool | None = None  # until the first grant

    async def run(self) -> Grip | None:
        try:
            grip = await self._contend()
        except BaseException:
            self._clean_up()
            raise
        if grip is None and self._waits:
            self._clean_up()
        return grip

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
        now = self._clock.boot()
        give_up_at = min(now + _OUTAGE_PATIENCE if self._waits else now, self._until)
        while True:
            sent = self._clock.boot()
            try:
                answer = await self._send()
                if isinstance(answer, Busy):
                    return answer
                if self._took_over is None:  # the answer to a repeat no longer says so
                    self._took_over = answer.took_over
                if self._clock.boot() < trust_until(sent, self._ask.ttl):
                    return Grip(answer.lease, sent, self._began, self._took_over)
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
