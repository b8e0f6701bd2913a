"""Tenure for synchronous code: the same objects, in plain `with` blocks.

    app = blocking.Tenure("redis://localhost")
    with app, app.lock("invoice:42") as hold:
        charge(fence=hold.fence)

Everything runs on an event loop of its own in a daemon thread; the calling thread waits. The
calling thread is the owner of what it takes: it is told when it would wait for itself. A thread
cannot be cancelled, so a loss sets `hold.lost`, `hold.check()` raises, and leaving the block
raises.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypedDict, TypeVar, TypeVarTuple, Unpack

import tenure
from tenure.core.durations import Duration
from tenure.core.model import Lease, Meta, Traits
from tenure.core.policy import TTL_DEFAULT
from tenure.election import Leader
from tenure.errors import AcquireTimeout, ConfigError, StoreError
from tenure.holds import owner
from tenure.locks import (
    NEITHER_TRUE_NOR_FALSE,
    UNSET,
    OnUnavailable,
    Outcome,
    Unset,
    is_async,
    to_its_end,
)
from tenure.observe import Event

__all__ = ["Election", "Hold", "Lock", "Semaphore", "Tenure"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Portal:
    """An event loop in a daemon thread, and the way into it from other threads."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="tenure-blocking", daemon=True)
        self._thread.start()

    @property
    def is_inherited(self) -> bool:
        """Whether this is a copy in a forked child, where its thread does not exist."""
        return self._pid != os.getpid()

    @property
    def is_over(self) -> bool:
        """Whether nothing can be called any more."""
        return self.is_inherited or self._loop.is_closed()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it; an interrupt of the waiting cancels it."""
        future = self._begin(work)
        try:
            return self._result(future)
        except BaseException:
            future.cancel()
            raise

    def call_with_body(
        self, body: Callable[[], Any], work: Callable[[Callable[[], Any]], Coroutine[Any, Any, T]]
    ) -> T:
        """Run `work(body)` on the loop, with `body` itself running in the calling thread."""
        errands: queue.SimpleQueue[Future[Any] | None] = queue.SimpleQueue()

        async def in_caller() -> Any:
            errand: Future[Any] = Future()
            errands.put(errand)
            return await to_its_end(asyncio.wrap_future(errand))

        future = self._begin(work(in_caller))
        future.add_done_callback(lambda _: errands.put(None))
        try:
            while (errand := errands.get()) is not None:
                _do(errand, body)
            return self._result(future)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop. Whoever still waits for something of it gets a StoreError."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            if self.is_inherited:
                msg = "this app was opened by the parent process. Open one after the fork."
                raise StoreError(msg)
            if self._loop.is_closed():
                msg = "the app is closed."
                raise StoreError(msg)
            if threading.current_thread() is self._thread:
                msg = "the event loop of tenure.blocking cannot wait for itself."
                raise StoreError(msg)
            # The task takes over the context of this call, and with it who must not deadlock.
            token = owner.set(threading.current_thread())
            try:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
            finally:
                owner.reset(token)
        except BaseException:
            work.close()
            raise

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except CancelledError:
            msg = "the app was closed meanwhile."
            raise StoreError(msg) from None

    def _run(self) -> None:
        # Leaving the runner cancels what still runs and waits for it, so that nobody hangs.
        with self._runner:
            self._loop.run_forever()


def _must_be_plain(function: object) -> None:
    if not callable(function) or is_async(function):
        msg = f"fn must be a plain function here, not {function!r}; tenure.Tenure takes async ones."
        raise ConfigError(msg)


def _do(errand: Future[Any], body: Callable[[], Any]) -> None:
    if not errand.set_running_or_notify_cancel():
        return
    try:
        value = body()
    except Exception as error:  # noqa: BLE001 - raised again where the body is awaited
        errand.set_exception(error)
    else:
        errand.set_result(value)


class Hold:
    """A lease of yours, kept alive until you release it or it is lost."""

    def __init__(self, portal: _Portal, hold: tenure.Hold, on_lost: OnLost) -> None:
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
        """Renew now. Normally nobody needs to: it is done in the background."""
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
        return self._portal.call(self._hold.release())

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
        """Say that the lease is lost; called on the loop, so the user's function is not."""
        self.lost.set()
        if callable(self._on_lost):
            threading.Thread(target=self._on_lost, args=(self,), daemon=True).start()


OnLost: TypeAlias = Literal["raise", "ignore"] | Callable[[Hold], None]


class LockOptions(TypedDict, total=False):
    """What a lock can be told; `tenure.Tenure.lock` says what each option means."""

    ttl: Duration
    wait: Duration | None
    min_hold: Duration
    max_hold: Duration | None
    meta: Meta | None


class Semaphore:
    """At most `limit` holders at once, over all replicas. A description only; share it freely."""

    def __init__(
        self,
        portal: Callable[[], _Portal],
        describe: Callable[[Callable[[tenure.Hold], None]], tenure.Semaphore],
        on_lost: OnLost,
    ) -> None:
        if not callable(on_lost) and on_lost not in ("raise", "ignore"):
            msg = f"on_lost must be 'raise', 'ignore' or a function, not {on_lost!r}."
            raise ConfigError(msg)
        self._portal = portal
        self._describe = describe
        self._on_lost = on_lost
        self._entered: dict[int, list[Hold]] = {}
        self.name = describe(lambda _: None).name  # checks the other arguments, too

    def __bool__(self) -> bool:
        raise TypeError(NEITHER_TRUE_NOR_FALSE)

    def acquire(self, wait: Duration | Unset | None = UNSET) -> Hold:
        """Return a hold, waiting at most `wait` (None: for ever; 0: try once).

        Raises what `tenure.Lock.acquire` raises.
        """
        portal = self._portal()
        holds: list[Hold] = []

        async def take() -> Hold:
            # The hold is wrapped on the loop that tells its loss, so none can come in between.
            lock = self._describe(lambda _: holds[0].tell_loss())
            holds.append(Hold(portal, await lock.acquire(wait), self._on_lost))
            return holds[0]

        return portal.call(take())

    def try_acquire(self) -> Hold | None:
        """Return a hold if one is free now, else None. Somebody who waits is not overtaken."""
        try:
            return self.acquire(wait=0)
        except AcquireTimeout:
            return None

    def __enter__(self) -> Hold:
        hold = self.acquire()
        self._entered.setdefault(threading.get_ident(), []).append(hold)
        return hold

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        holds = self._entered[threading.get_ident()]
        hold = holds.pop()
        if not holds:
            del self._entered[threading.get_ident()]
        hold.__exit__(kind, error, trace)


class Lock(Semaphore):
    """At most one holder over all replicas."""


class Election:
    """Decides which one replica leads. A description only, like a lock."""

    def __init__(
        self, portal: Callable[[], _Portal], election: tenure.Election, lock: Lock
    ) -> None:
        self._portal = portal
        self._election = election
        self._lock = lock

    def terms(self) -> Iterator[Hold]:
        """Stand for election for ever; yield each term won. Leaving the loop resigns.

        Look at `term.is_lost` while leading: a thread cannot be stopped from outside.
        """
        while True:
            term = self._lock.acquire()
            try:
                yield term
            finally:
                term.release()

    def leader(self) -> Leader | None:
        """Return who leads now."""
        return self._portal().call(self._election.leader())

    def observe(self) -> Iterator[Leader | None]:
        """Yield the leader now and after every change; None while nobody leads."""
        changes = self._election.observe()
        while True:
            yield self._portal().call(_next(changes))


async def _next(iterator: AsyncIterator[T]) -> T:
    return await anext(iterator)


class Tenure:
    """Shares work safely between the replicas of a service, for threads.

    Args:
        app: a `tenure.Tenure` whose store to use through connections of its own, or what
            `tenure.Tenure` takes as its URL.
        **options: what `tenure.Tenure` takes, unless an app is given.
    """

    def __init__(self, app: tenure.Tenure | str | None = None, **options: Any) -> None:
        self._app = app.clone() if isinstance(app, tenure.Tenure) else tenure.Tenure(app, **options)
        self._opened: _Portal | None = None

    def __repr__(self) -> str:
        return f"blocking.{self._app!r}"

    def open(self) -> None:
        """Connect. Raises ConfigError, StoreError or StoreUnavailable if that cannot work."""
        if self._opened is not None and not self._opened.is_inherited:
            msg = f"{self._app!r} is open already."
            raise ConfigError(msg)
        portal = _Portal()
        try:
            portal.call(self._app.open())
        except BaseException:
            portal.close()
            raise
        self._opened = portal

    def close(self) -> None:
        """Finish what is being given back, stop renewing, disconnect. Safe to call twice."""
        portal, self._opened = self._opened, None
        if portal is not None and not portal.is_inherited:
            try:
                portal.call(self._app.close())
            finally:
                portal.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def traits(self) -> Traits:
        """What the store can do and survive; complete once the app is open."""
        return self._app.traits

    def on_event(self, subscriber: Callable[[Event], None]) -> None:
        """Have `subscriber` called with every event. It must be quick; see `tenure.observe`."""
        self._app.on_event(subscriber)

    def lock(self, name: str, *, on_lost: OnLost = "raise", **options: Unpack[LockOptions]) -> Lock:
        """Describe a lock; see `tenure.Tenure.lock`."""
        return Lock(
            self._portal, lambda tell: self._app.lock(name, on_lost=tell, **options), on_lost
        )

    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        on_lost: OnLost = "raise",
        strict: bool = False,
        **options: Unpack[LockOptions],
    ) -> Semaphore:
        """Describe a semaphore; see `tenure.Tenure.semaphore`."""

        def describe(tell: Callable[[tenure.Hold], None]) -> tenure.Semaphore:
            return self._app.semaphore(name, limit, on_lost=tell, strict=strict, **options)

        return Semaphore(self._portal, describe, on_lost)

    def with_lock(
        self,
        name: str,
        ttl: Duration,
        fn: Callable[[*Ts], T],
        *args: *Ts,
        wait: Duration | None = 0,
        min_hold: Duration = 0,
        on_unavailable: OnUnavailable = "raise",
    ) -> Outcome[T]:
        """Run `fn(*args)` in this thread if the lock is free; see `tenure.Tenure.with_lock`."""
        _must_be_plain(fn)
        return self._portal().call_with_body(
            lambda: fn(*args),
            lambda body: self._app.with_lock(
                name, ttl, body, wait=wait, min_hold=min_hold, on_unavailable=on_unavailable
            ),
        )

    def once(
        self,
        name: str,
        fn: Callable[[], Any],
        *,
        version: int | str = 1,
        ttl: Duration = TTL_DEFAULT,
        wait: Duration | None = None,
    ) -> bool:
        """Run `fn` in this thread unless it has succeeded before; see `tenure.Tenure.once`."""
        _must_be_plain(fn)
        return self._portal().call_with_body(
            fn, lambda body: self._app.once(name, body, version=version, ttl=ttl, wait=wait)
        )

    def election(self, name: str, *, ttl: Duration = 15, meta: Meta | None = None) -> Election:
        """Describe an election of one leader over all replicas."""
        election = self._app.election(name, ttl=ttl, meta=meta)
        lock = self.lock(election.lock_name, ttl=ttl, meta=meta, on_lost="ignore")
        return Election(self._portal, election, lock)

    def locks(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        """Return who holds and who waits for locks whose name starts with `prefix`."""
        return self._portal().call(self._app.locks(prefix, limit=limit))

    def _portal(self) -> _Portal:
        if self._opened is None:
            msg = f"{self._app!r} is not open. Use it inside 'with app:'."
            raise StoreError(msg)
        return self._opened
