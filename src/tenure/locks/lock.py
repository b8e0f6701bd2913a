"""Locks and semaphores: what users take and hold.

A `Lock` or `Semaphore` is only a description: it has no state, costs nothing and may be shared by
any number of tasks. Each acquisition gives a `Hold` of its own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeAlias, TypeVar

from msgspec import Struct

from tenure.core.callables import is_async
from tenure.core.durations import Duration, seconds
from tenure.errors import AcquireTimeout, ConfigError, LeaseLost, StoreUnavailable
from tenure.locks.hold import Hold, HoldPolicy, Holds, OnLost
from tenure.observe.events import Events
from tenure.observe.locks import RanUnlocked
from tenure.runtime.leases.acquirer import LeaseRequest
from tenure.runtime.leases.entries import EnteredByHand, Entry, entry_methods

__all__ = [
    "NEITHER_TRUE_NOR_FALSE",
    "UNSET",
    "USE_ASYNC_WITH",
    "Lock",
    "OnUnavailable",
    "Outcome",
    "Semaphore",
    "Unset",
    "checked_wait",
    "make_policy",
    "run_anywhere",
    "run_locked",
    "to_its_end",
]

T = TypeVar("T")

OnUnavailable: TypeAlias = Literal["raise", "skip", "run"]


class Unset:
    """The default of a parameter for which None means something."""


UNSET: Final = Unset()

NEITHER_TRUE_NOR_FALSE: Final = (
    "a lock is only a description and is neither true nor false. Enter it in a 'with' block, "
    "or ask 'if hold := lock.try_acquire()' (awaited, unless you use tenure.blocking)."
)
USE_ASYNC_WITH: Final = (
    "use 'async with' here, inside a coroutine; for synchronous code there is tenure.blocking."
)


class Semaphore:
    """At most `limit` holders at once, over all replicas.

        async with app.semaphore("gpu", limit=3) as hold: ...

    The fence of its holds names a grant; it does not exclude the other holders.
    """

    def __init__(
        self,
        holds: Callable[[], Holds],
        request: LeaseRequest,
        *,
        wait: float | None,
        policy: HoldPolicy,
    ) -> None:
        self._holds = holds
        self._request = request
        self._wait = wait
        self._policy = policy
        self._by_hand: EnteredByHand[Hold] = EnteredByHand()

    def __repr__(self) -> str:
        request = self._request
        kind = type(self).__name__
        return f"{kind}({request.key!r}, limit={request.limit}, ttl={request.ttl:g})"

    def __bool__(self) -> bool:
        # `if lock:` would run the body without holding anything.
        raise TypeError(NEITHER_TRUE_NOR_FALSE)

    @property
    def name(self) -> str:
        return self._request.key

    async def acquire(self, wait: Duration | Unset | None = UNSET) -> Hold:
        """Return a hold, waiting at most `wait` (None: for ever; 0: try once).

        You must `release` it, best with `async with hold`.

        Raises:
            AcquireTimeout: it was not free in time.
            WouldDeadlock: this task holds it already.
            StoreUnavailable: the store does not answer; nothing is held.
        """
        limit = self._wait if isinstance(wait, Unset) else checked_wait(wait)
        hold = await self._holds().acquire(self._request, limit, self._policy)
        if hold is None:
            raise AcquireTimeout(self.name, limit or 0.0)
        return hold

    async def try_acquire(self) -> Hold | None:
        """Return a hold if one is free now, else None. Callers that wait are not overtaken."""
        return await self._holds().acquire(self._request, 0.0, self._policy)

    def __enter__(self) -> NoReturn:
        raise TypeError(USE_ASYNC_WITH)

    def __exit__(self, *_: object) -> None: ...

    if TYPE_CHECKING:

        async def __aenter__(self) -> Hold: ...
        async def __aexit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None: ...

    else:
        __aenter__, __aexit__ = entry_methods("_enter", "_leave")

    async def _enter(self, entry: Entry[Hold]) -> Hold:
        try:
            hold = await self.acquire()
        except BaseException:
            if not entry.is_paired:
                self._by_hand.fail(_this_task())
            raise
        hold.enter_block()
        entry.hold = hold
        if not entry.is_paired:
            self._by_hand.add(_this_task(), hold)
        return hold

    async def _leave(
        self,
        entry: Entry[Hold],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        hold = entry.hold or self._by_hand.take(_this_task(), self.name)
        await hold.__aexit__(kind, error, trace)


class Lock(Semaphore):
    """At most one holder over all replicas.

    async with app.lock("invoice:42") as hold:
        await charge(fence=hold.fence)
    """


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None, "a block is entered and left by a task"
    return task


class Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    """The outcome of `app.with_lock`. True if the function ran under the lock to its end."""

    ran: bool = False
    skipped: bool = False
    """It did not run: the lock was taken, or the store was not reachable."""
    lost: bool = False
    """The lock was lost while it ran; it may have run beside another replica."""
    unlocked: bool = False
    """It ran without the lock, because `on_unavailable="run"` asked for that."""
    value: T | None = None
    """What the function returned."""

    def __bool__(self) -> bool:
        return self.ran and not self.lost and not self.unlocked


async def run_locked(
    lock: Lock, call: Callable[[], Any], on_unavailable: OnUnavailable, events: Events
) -> Outcome[Any]:
    """Run `call` under the lock and return what happened; see `app.with_lock`."""
    try:
        hold = await lock.acquire()
    except AcquireTimeout:
        return Outcome(skipped=True)
    except StoreUnavailable as error:
        if on_unavailable == "raise":
            raise
        if on_unavailable == "skip":
            return Outcome(skipped=True)
        events.emit(RanUnlocked(lock.name, str(error)))
        return Outcome(ran=True, unlocked=True, value=await run_anywhere(call))
    value = None
    try:
        async with hold:
            value = await run_anywhere(call)
    except LeaseLost as loss:
        if loss.name != hold.name or loss.fence != hold.fence:
            raise
        return Outcome(ran=True, lost=True, value=value)
    return Outcome(ran=True, value=value)


async def run_anywhere(call: Callable[[], Any]) -> Any:
    """Run an async function on this loop, a plain one in a thread, to block no other task."""
    if is_async(getattr(call, "func", call)):
        return await call()
    loop, context = asyncio.get_running_loop(), copy_context()
    # Not to_thread: a task around it would end the loop with a SystemExit of the function.
    running = loop.run_in_executor(None, context.run, _outcome_of, call)
    result, error = await to_its_end(running)
    if error is not None:
        raise error
    return await result if inspect.isawaitable(result) else result


def _outcome_of(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return what a function returns and raises; a future takes no StopIteration."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - raised again on the loop
        return None, error


async def to_its_end(work: asyncio.Future[T]) -> T:
    """Await what cannot be stopped: a cancellation is raised only when it has ended.

    Leaving earlier would give the lock away while the work still goes on.
    """
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            cancelled = True
    result = work.result()
    if cancelled:
        raise asyncio.CancelledError
    return result


def checked_wait(wait: Duration | None) -> float | None:
    """Return the most seconds to wait; None is for ever."""
    return None if wait is None else seconds(wait, "wait")


def make_policy(
    on_lost: OnLost, min_hold: Duration, max_hold: Duration | None, expected: Duration | None
) -> HoldPolicy:
    """Return how a lease is to be held, checked."""
    if not callable(on_lost) and on_lost not in ("cancel", "raise", "ignore"):
        msg = f"on_lost must be 'cancel', 'raise', 'ignore' or a function, not {on_lost!r}."
        raise ConfigError(msg)
    if callable(on_lost) and is_async(on_lost):
        msg = "on_lost must be a plain function: it is called, not awaited. Start a task in it."
        raise ConfigError(msg)
    least = seconds(min_hold, "min_hold")
    most = None if max_hold is None else seconds(max_hold, "max_hold", minimum=0.001)
    if most is not None and most < least:
        msg = f"max_hold ({most:g} s) must not be shorter than min_hold ({least:g} s)."
        raise ConfigError(msg)
    usual = None if expected is None else seconds(expected, "expected", minimum=0.001)
    return HoldPolicy(on_lost=on_lost, min_hold=least, max_hold=most, expected=usual)
