"""A hold: a lease of yours, renewed in the background, that notices when it is lost."""

from __future__ import annotations

import asyncio
import os
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from msgspec import Struct

from tenure.core.leases import Lease, Meta
from tenure.core.store_policy import retry_after_error
from tenure.errors import ConfigError, LeaseLost, StoreError, StoreUnavailable, WouldDeadlock
from tenure.observe.events import Events
from tenure.observe.locks import HoldLost, LockAcquired, LockReleased, LockTakenOver
from tenure.runtime.host import Host
from tenure.runtime.leases.acquirer import Acquirer, Grip, LeaseRequest
from tenure.runtime.leases.deadline import DeadlineWatch
from tenure.runtime.leases.keeper import Keeper, KeptLease
from tenure.runtime.leases.owners import current_owner
from tenure.stores.contract import Store
from tenure.stores.transaction import run_sync

__all__ = ["Hold", "HoldPolicy", "Holds", "OnLost"]

OnLost: TypeAlias = Literal["cancel", "raise", "ignore"] | Callable[["Hold"], None]


# Another transaction has the row for moments only; a renewal that cannot pass is no loss yet.
_RENEW_TRIES = 5


class HoldPolicy(Struct, frozen=True, kw_only=True):
    """How a lease is held once it is acquired."""

    on_lost: OnLost = "cancel"
    min_hold: float = 0.0
    max_hold: float | None = None
    expected: float | None = None


class Hold:
    """A lease of yours, kept alive until you release it or it is lost.

    As a context manager it cancels the block when the lease is lost (`on_lost="cancel"`) and
    raises `LeaseLost` when leaving; see `app.lock`.
    """

    def __init__(self, holds: Holds, grip: Grip, policy: HoldPolicy) -> None:
        self._holds = holds
        self._on_lost = policy.on_lost
        self._pid = os.getpid()
        self._released = False
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        # The task whose block is cancelled on loss, and how often it was being cancelled before.
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._cancelled_it = False
        self._kept = KeptLease(
            grip.lease,
            grip.sent,
            holds.clock,
            _loss_reporter(self),
            max_hold=policy.max_hold,
            expected=policy.expected,
        )
        # Counted from the answer, so that the lease stays at least this long on the store.
        self._keep_until = self._kept.since + policy.min_hold
        # With a virtual clock the keeper is on this loop itself.
        self._watch = None if holds.clock.virtual else DeadlineWatch(self._kept, self._loop)

    def __repr__(self) -> str:
        state = "lost" if self.is_lost else "released" if self._released else "held"
        return f"<Hold {self.name!r} fence={self.fence} {state}>"

    @property
    def name(self) -> str:
        return self._kept.lease.key

    @property
    def lease(self) -> Lease:
        """The lease as the store granted it."""
        return self._kept.lease

    @property
    def fence(self) -> int:
        """A number larger than that of every earlier hold of this name. Pass it on with writes."""
        return self._kept.lease.fence

    @property
    def holder(self) -> str:
        """The random id of this acquisition."""
        return self._kept.lease.holder

    @property
    def meta(self) -> Meta:
        return self._kept.lease.meta

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lease is lost. `is_lost` may know it a moment earlier."""
        return self._lost

    @property
    def is_lost(self) -> bool:
        """Whether the lease must not be trusted any more; reads the clock itself.

        Always true in a forked child: the lease belongs to the process that took it.
        """
        return self._is_inherited or self._kept.is_lost

    @property
    def is_held(self) -> bool:
        """Whether it is neither lost nor released."""
        return not self._released and not self.is_lost

    def expires_in(self) -> float:
        """Return for how many seconds the lease may be trusted without another renewal."""
        return self._kept.trusted_for() if self.is_held else 0.0

    def check(self) -> None:
        """Raise LeaseLost if the lease is lost or was released: stop writing under its fence."""
        if not self.is_held:
            raise self.loss() or LeaseLost(self.name, self.fence, "it was released")

    def loss(self) -> LeaseLost | None:
        """Return the loss as an error, if the lease is lost."""
        if self._is_inherited:
            return LeaseLost(self.name, self.fence, "it belongs to the parent process")
        if not self._kept.is_lost or self._kept.reason is None:
            return None
        return LeaseLost(self.name, self.fence, self._kept.reason)

    async def renew(self) -> None:
        """Renew now. There is seldom a need to: it is done in the background.

        Raises LeaseLost if it is gone, StoreUnavailable if the store does not answer.
        """
        clock = self._holds.clock
        for failures in range(1, _RENEW_TRIES + 1):
            self.check()
            sent = clock.boot()
            [answer] = await self._holds.store.leases.renew([self.lease])
            if answer:
                self._kept.extend(sent)
                return self.check()
            if answer is False:
                self._kept.lose("the store says that it is no longer held")
                return self.check()
            await clock.sleep(retry_after_error(failures, clock.random()))
        msg = f"{self.name!r} is being changed by another transaction; it is renewed later."
        raise StoreUnavailable(msg)

    async def guard(self, connection: object) -> None:
        """Bind your own transaction, on the same SQL database, to this lease.

        After it, no other holder gets the lease before the transaction on `connection` ends,
        however long that is; a stale holder is refused and must roll back. Keep the transaction
        short: on SQLite renewals wait for it too.

        Raises LeaseLost if the lease is gone, ConfigError if this cannot work.
        """
        self.check()
        within = self._holds.store.within(connection, "guard()")
        self._judge_guard(held=await within.hold_lease(self.lease))

    def guard_blocking(self, connection: object) -> None:
        """Do what `guard` does on a synchronous connection, in the calling thread."""
        self.check()
        within = self._holds.store.within(connection, "guard()")
        if not within.blocks:
            msg = "this connection is asynchronous; give guard() a synchronous one here."
            raise ConfigError(msg)
        self._judge_guard(held=run_sync(within.hold_lease(self.lease)))

    def _judge_guard(self, *, held: bool) -> None:
        if not held:
            self._kept.lose("it was no longer there when a transaction was bound to it")
            self.check()

    async def release(self) -> bool:
        """Give it back; return whether it was held to the end. Doing so twice is harmless.

        A cancelled caller does not stop the release. A store that cannot be reached is no error
        here: the lease then ends with its ttl.
        """
        if self._released or self._is_inherited:
            return False
        self._released = True
        if self._watch is not None:
            self._watch.stop()
        ended = self._holds.clock.boot() if self._kept.end() else None
        self._holds.drop(self._kept)
        try:
            return await self._give_back(ended)
        except asyncio.CancelledError:
            self._holds.acquirer.in_background(self._give_back(ended, is_repeat=True))
            raise

    async def _give_back(self, ended: float | None, *, is_repeat: bool = False) -> bool:
        """Release it on the store; `ended`: when its holder ended it, None if it was lost before.

        `is_repeat`: an earlier try may have released it already.
        """
        keep = 0.0 if ended is None else self._keep_until - ended
        if keep > 0:
            await self._let_renewal_land()
        held = await self._holds.acquirer.release(self._kept.lease, keep) or is_repeat
        if ended is None:
            return False
        if not held:
            self._kept.was_missing("the store no longer had it when it was released")
        elif self._holds.events.wants_details:
            self._holds.events.emit(LockReleased(self.name, self.fence, ended - self._kept.since))
        return held

    async def _let_renewal_land(self) -> None:
        """Wait for a renewal in flight: after a shortened ttl it would give the full one back."""
        for _ in range(500):
            if not self._kept.in_flight:
                return
            await self._holds.clock.sleep(0.01)

    async def __aenter__(self) -> Self:
        self.enter_block()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None  # from here on a loss cancels no task
        # Not if the block is left in another task: that one was not cancelled by the loss.
        cancelled = self._cancelled_it and task is asyncio.current_task()
        outside = cancelled and await self._take_back_cancel(error)
        await self.release()
        instead = self._after_block(error, cancelled=cancelled, outside=outside)
        if instead is not None:
            raise instead from error

    def enter_block(self) -> None:
        """Make the running task the one whose block ends when the lease is lost.

        Raises LeaseLost if there is nothing to protect the block any more.
        """
        self.check()
        task = asyncio.current_task()
        assert task is not None, "a hold is entered by a task"
        self._task, self._cancelling = task, task.cancelling()

    async def _take_back_cancel(self, error: BaseException | None) -> bool:
        """Undo our own cancellation; return whether other code cancelled the task as well."""
        task = asyncio.current_task()
        assert task is not None, "it was cancelled"
        if not isinstance(error, asyncio.CancelledError):
            # The block ended before the cancellation could be delivered: receive it here.
            with suppress(asyncio.CancelledError):
                await self._holds.clock.sleep(0)
        return task.uncancel() > self._cancelling

    def _after_block(
        self, error: BaseException | None, *, cancelled: bool, outside: bool
    ) -> BaseException | None:
        """Return what to raise instead of `error` when leaving the block."""
        if outside:
            return None if isinstance(error, asyncio.CancelledError) else asyncio.CancelledError()
        loss = self.loss()
        if loss is None or self._on_lost not in ("cancel", "raise"):
            return None
        if error is None or (cancelled and isinstance(error, asyncio.CancelledError)):
            return loss
        error.add_note(str(loss))
        return None

    @property
    def _is_inherited(self) -> bool:
        return self._pid != os.getpid()

    def _report_loss(self) -> None:
        """On the loop of the hold: set `lost`, and do what `on_lost` says."""
        self._lost.set()
        if callable(self._on_lost):
            self._on_lost(self)
        elif self._on_lost == "cancel" and self._task is not None:
            self._cancelled_it = True
            self._task.cancel()

    def __del__(self) -> None:
        # A hold without references must not be renewed for ever: its ttl ends it.
        if getattr(self, "_released", True) or self._holds.closed:
            return
        self._holds.forget(self._kept)
        if self.is_held:
            warnings.warn(
                f"{self!r} was never released", ResourceWarning, source=self, stacklevel=2
            )


def _loss_reporter(hold: Hold) -> Callable[[str], None]:
    """Return what is called, in any thread, when the lease is lost.

    It knows the hold only weakly: the keeper must not keep a forgotten hold alive.
    """
    reference = weakref.ref(hold)

    def report(reason: str) -> None:
        hold = reference()
        if hold is None:
            return
        with suppress(RuntimeError):  # its loop is closed, and no task can wait for the loss
            hold._loop.call_soon_threadsafe(hold._report_loss)
        # On the host, whichever thread noticed: a subscriber that hangs must not keep the loss
        # from its block.
        holds = hold._holds
        holds.host.call_soon(holds.events.emit, HoldLost(hold.name, hold.fence, reason))

    return report


class Holds:
    """The holds of one app: which owners in this process hold what, and what renews it."""

    def __init__(self, store: Store, host: Host, events: Events) -> None:
        self.store = store
        self.clock = store.clock
        self.events = events
        self.host = host
        self.acquirer = Acquirer(store, events)
        self._keeper = Keeper(host, events)
        self.closed = False
        # By name, with a weak reference to the owner: a task may have a forgotten hold in its
        # result, and this table must not keep that alive.
        self._filed: dict[str, dict[KeptLease, weakref.ref[object]]] = {}
        # From finalizers, which run in any thread: unfiled with the next acquisition.
        self._forgotten: deque[KeptLease] = deque()

    async def close(self) -> None:
        """Finish what is being given back and stop renewing. May be called again if cancelled."""
        self.closed = True
        await self.acquirer.close()
        await self._keeper.close()

    async def acquire(
        self, request: LeaseRequest, wait: float | None, policy: HoldPolicy
    ) -> Hold | None:
        """Acquire a lease and renew it."""
        if wait != 0:
            self._refuse_deadlock(request)
        grip = await self.acquirer.acquire(request, wait)
        if grip is None:
            return None
        if self.closed:
            try:
                await self.acquirer.release(grip.lease)
            except asyncio.CancelledError:
                self.acquirer.in_background(self.acquirer.release(grip.lease))
                raise
            msg = f"the app was closed while {request.key!r} was being acquired."
            raise StoreError(msg)
        # No await from here on: a cancellation could not find what to give back.
        hold = Hold(self, grip, policy)
        self._keeper.keep(hold._kept)
        while self._forgotten:
            self._unfile(self._forgotten.popleft())
        self._filed.setdefault(request.key, {})[hold._kept] = weakref.ref(current_owner())
        self._report_grant(grip, request.limit, waited=hold._kept.since - grip.began)
        return hold

    def _report_grant(self, grip: Grip, limit: int, *, waited: float) -> None:
        name, fence = grip.lease.key, grip.lease.fence
        if self.events.wants_details:
            self.events.emit(LockAcquired(name, fence, limit, waited))
        if grip.took_over:
            self.events.emit(LockTakenOver(name, fence))

    def drop(self, kept: KeptLease) -> None:
        """Stop renewing."""
        self._keeper.drop(kept)
        self._unfile(kept)

    def forget(self, kept: KeptLease) -> None:
        """Stop renewing, from a finalizer."""
        self._keeper.forget(kept)
        self._forgotten.append(kept)

    def _unfile(self, kept: KeptLease) -> None:
        filed = self._filed.get(kept.lease.key)
        if filed is not None:
            filed.pop(kept, None)
            if not filed:
                self._filed.pop(kept.lease.key, None)

    def _refuse_deadlock(self, request: LeaseRequest) -> None:
        """Raise WouldDeadlock if the caller itself holds all there is of the key."""
        filed = self._filed.get(request.key)
        if filed is None:
            return
        me = current_owner()
        mine = [kept for kept, who in list(filed.items()) if who() is me and not kept.is_lost]
        if len(mine) >= request.limit:
            raise WouldDeadlock(request.key)
