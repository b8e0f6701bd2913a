"""Holds, locks, semaphores and elections for threads."""

from __future__ import annotations

import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, TypeVar

import tenure
from tenure.blocking.portal import Portal
from tenure.core.durations import Duration
from tenure.core.leases import Meta
from tenure.errors import AcquireTimeout, ConfigError
from tenure.locks.election import Leader
from tenure.locks.lock import NEITHER_TRUE_NOR_FALSE, UNSET, Unset
from tenure.runtime.leases.entries import EnteredByHand, Entry, entry_methods
from tenure.runtime.leases.owners import current_caller

__all__ = ["Election", "Hold", "Lock", "OnLost", "Semaphore"]

T = TypeVar("T")


class Hold:
    """A lease of yours, kept alive until you release it or it is lost."""

    def __init__(self, portal: Portal, hold: tenure.Hold, on_lost: OnLost) -> None:
        self._portal = portal
        self._hold = hold
        self._on_lost = on_lost
        self.lost = threading.Event()
        """Set when the lease is lost. `is_lost` may know it a moment earlier."""

    def __repr__(self) -> str:
        return repr(self._hold)

    @property
    def name(self) -> str:
        return self._hold.name

    @property
    def fence(self) -> int:
        """A number larger than that of every earlier hold of this name. Pass it on with writes."""
        return self._hold.fence

    @property
    def holder(self) -> str:
        """The random id of this acquisition."""
        return self._hold.holder

    @property
    def meta(self) -> Meta:
        return self._hold.meta

    @property
    def is_lost(self) -> bool:
        """Whether the lease must not be trusted any more; reads the clock itself."""
        return self._hold.is_lost

    @property
    def is_held(self) -> bool:
        """Whether it is neither lost nor released."""
        return self._hold.is_held

    def expires_in(self) -> float:
        """Return for how many seconds the lease may be trusted without another renewal."""
        return self._hold.expires_in()

    def check(self) -> None:
        """Raise LeaseLost if the lease is lost or was released: stop writing under its fence."""
        self._hold.check()

    def renew(self) -> None:
        """Renew now. There is seldom a need to: it is done in the background."""
        self._portal.call(self._hold.renew())

    def guard(self, connection: object) -> None:
        """Bind your own transaction, on the same SQL database, to this lease.

        See `tenure.Hold.guard`; the connection must be a synchronous one.
        """
        self._hold.guard_blocking(connection)

    def release(self) -> bool:
        """Give it back; return whether it was held to the end. Doing so twice is harmless."""
        if self._portal.is_over:
            return False  # in a forked child it is not ours; after closing it ends with its ttl
        return self._portal.finish(self._hold.release)

    async def give_back(self) -> None:
        """Release it on the loop, for a caller that was interrupted before it got the hold."""
        await self._hold.release()

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        loss = self._hold.loss()
        if loss is None or self._on_lost != "raise":
            return
        if error is None:
            raise loss
        error.add_note(str(loss))

    def tell_loss(self) -> None:
        """Report the loss; called on the loop, so the user's function gets a thread of its own."""
        self.lost.set()
        if callable(self._on_lost):
            threading.Thread(target=self._on_lost, args=(self,), daemon=True).start()


OnLost: TypeAlias = Literal["raise", "ignore"] | Callable[[Hold], None]


class Semaphore:
    """At most `limit` holders at once, over all replicas. A description only; share it freely."""

    def __init__(
        self,
        portal: Callable[[], Portal],
        describe: Callable[[Callable[[tenure.Hold], None]], tenure.Semaphore],
        on_lost: OnLost,
    ) -> None:
        if not callable(on_lost) and on_lost not in ("raise", "ignore"):
            msg = f"on_lost must be 'raise', 'ignore' or a function, not {on_lost!r}."
            raise ConfigError(msg)
        self._portal = portal
        self._describe = describe
        self._on_lost = on_lost
        self._by_hand: EnteredByHand[Hold] = EnteredByHand()
        self.name = describe(lambda _: None).name  # checks the other arguments, too

    def __bool__(self) -> bool:
        raise TypeError(NEITHER_TRUE_NOR_FALSE)

    def acquire(self, wait: Duration | Unset | None = UNSET) -> Hold:
        """Return a hold, waiting at most `wait` (None: for ever; 0: try once).

        Raises what `tenure.Lock.acquire` raises.
        """
        portal = self._portal()
        return portal.call(self.take(portal, wait), undo=Hold.give_back)

    async def take(self, portal: Portal, wait: Duration | Unset | None = UNSET) -> Hold:
        """Acquire it, on the loop."""
        wrapped: weakref.ref[Hold] | None = None

        def tell(_: tenure.Hold) -> None:
            hold = None if wrapped is None else wrapped()
            if hold is not None:
                hold.tell_loss()

        # Wrapped on the loop that reports the loss, so none can come in between.
        hold = Hold(portal, await self._describe(tell).acquire(wait), self._on_lost)
        wrapped = weakref.ref(hold)
        return hold

    def try_acquire(self) -> Hold | None:
        """Return a hold if one is free now, else None. Callers that wait are not overtaken."""
        try:
            return self.acquire(wait=0)
        except AcquireTimeout:
            return None

    if TYPE_CHECKING:

        def __enter__(self) -> Hold: ...
        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None: ...

    else:
        __enter__, __exit__ = entry_methods("_enter", "_leave")

    def _enter(self, entry: Entry[Hold]) -> Hold:
        try:
            entry.hold = hold = self.acquire()
        except BaseException:
            if not entry.is_paired:
                self._by_hand.fail(current_caller())
            raise
        if not entry.is_paired:
            self._by_hand.add(current_caller(), hold)
        return hold

    def _leave(
        self,
        entry: Entry[Hold],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        hold = entry.hold or self._by_hand.take(current_caller(), self.name)
        hold.__exit__(kind, error, trace)


class Lock(Semaphore):
    """At most one holder over all replicas."""


class Election:
    """Decides which one replica leads. A description only, like a lock."""

    def __init__(self, portal: Callable[[], Portal], election: tenure.Election, lock: Lock) -> None:
        self._portal = portal
        self._election = election
        self._lock = lock

    def terms(self) -> Iterator[Hold]:
        """Stand for election for ever; yield each term won. Leaving the loop resigns.

        Look at `term.is_lost` while leading: a thread cannot be stopped from outside.
        """
        while True:
            portal = self._portal()
            stand = partial(self._lock.take, portal)
            term = portal.call(self._election.retried(stand), undo=Hold.give_back)
            try:
                yield term
            finally:
                term.release()

    def leader(self) -> Leader | None:
        """Return the leader now; None if there is none."""
        return self._portal().call(self._election.leader())

    def observe(self) -> Iterator[Leader | None]:
        """Yield the leader now and after every change; None while there is none."""
        changes = self._election.observe()
        while True:
            yield self._portal().call(_next(changes))


async def _next(iterator: AsyncIterator[T]) -> T:
    return await anext(iterator)
