"""Leader election: a lock held for long, in terms with rising fences.

    async for term in app.election("indexer").terms():
        async with term:                 # cancelled if the leadership is lost
            await lead(fence=term.fence)

A term ends when its block does, and is given back only then; after that the loop stands for
election again. While one leader is paused, another one may be elected, and for a moment both act as
leaders: that is what the fence is for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from msgspec import Struct

from tenure.core.clock import Clock
from tenure.core.leases import Meta
from tenure.errors import LeaseLost, StoreUnavailable
from tenure.locks.hold import Hold, HoldPolicy, Holds
from tenure.locks.lock import Lock
from tenure.runtime.leases.acquirer import LeaseRequest
from tenure.runtime.store_retry import until_available

__all__ = ["Election", "Leader", "Term"]

T = TypeVar("T")

log = logging.getLogger("tenure")

# A look per second is cheap, and a leader changes rarely.
_OBSERVE_EVERY = 1.0


class Leader(Struct, frozen=True):
    """The leader, as other replicas see it."""

    fence: int
    meta: Meta
    leading_for: float
    """Seconds since the term began, when the store was asked."""


class Term:
    """One term of a leader. As a context manager it ends quietly when the leadership is lost."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def __repr__(self) -> str:
        return f"<Term fence={self.fence} {'held' if self._hold.is_held else 'over'}>"

    @property
    def fence(self) -> int:
        """Larger than that of every earlier term. Pass it on with writes."""
        return self._hold.fence

    @property
    def lost(self) -> asyncio.Event:
        """Set when the leadership is lost."""
        return self._hold.lost

    @property
    def is_lost(self) -> bool:
        """Whether the leadership must not be trusted any more; reads the clock itself."""
        return self._hold.is_lost

    def check(self) -> None:
        """Raise LeaseLost if this term is over."""
        self._hold.check()

    async def resign(self) -> None:
        """Give the leadership back now."""
        await self._hold.release()

    async def __aenter__(self) -> Self:
        await self._hold.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            await self._hold.__aexit__(kind, error, trace)
        except LeaseLost as loss:
            if (loss.name, loss.fence) != (self._hold.name, self._hold.fence):
                raise
            return True
        return False


class Election:
    """Decides which one replica leads. A description only, like a lock."""

    def __init__(self, holds: Callable[[], Holds], request: LeaseRequest, clock: Clock) -> None:
        self._holds = holds
        self._clock = clock
        self._lock = Lock(holds, request, wait=None, policy=HoldPolicy())

    @property
    def lock_name(self) -> str:
        """The name of the lock behind it, as `app.locks()` shows it."""
        return self._lock.name

    async def terms(self) -> AsyncIterator[Term]:
        """Stand for election for ever; yield each term won. Leaving the loop resigns."""
        while True:
            hold = await self.retried(self._lock.acquire)
            try:
                yield Term(hold)
            finally:
                await hold.release()

    async def retried(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until the store answers: an election has no end."""
        return await until_available(self._clock, call, self._log_outage)

    def _log_outage(self, failures: int, error: StoreUnavailable) -> None:
        if failures == 1:
            about = {"lock": self.lock_name, "outage": "election"}
            log.warning(
                "the election %r waits for its store: %s", self.lock_name, error, extra=about
            )

    async def leader(self) -> Leader | None:
        """Return the leader now; None if there is none."""
        for lease in await self._holds().store.leases.find(self._lock.name):
            if lease.key == self._lock.name and not lease.waiting:
                return Leader(lease.fence, lease.meta, lease.held_for)
        return None

    async def observe(self) -> AsyncIterator[Leader | None]:
        """Yield the leader now and after every change; None while there is none."""
        last_fence: int | None = -1
        while True:
            leader = await self.retried(self.leader)
            fence = leader.fence if leader is not None else None
            if fence != last_fence:
                last_fence = fence
                yield leader
            await self._clock.sleep(_OBSERVE_EVERY)
