"""`Tenure`, the composition root: one store, and everything that stands on it."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn, Self, TypeVar, TypeVarTuple, overload

from tenure.core.clock import Clock, SystemClock
from tenure.core.durations import Duration, seconds
from tenure.core.model import (
    Grade,
    Lease,
    Meta,
    Traits,
    check_limit,
    check_meta,
    check_name,
)
from tenure.core.policy import TTL_DEFAULT, TTL_MAX, TTL_MIN
from tenure.election import Election
from tenure.errors import ConfigError, StoreError
from tenure.holds import Holds, OnLost
from tenure.locks import (
    USE_ASYNC_WITH,
    Lock,
    OnUnavailable,
    Outcome,
    Semaphore,
    check_function,
    checked_wait,
    rules,
    run_locked,
)
from tenure.observe.events import Event, Events
from tenure.once import run_once
from tenure.runtime.acquiring import Ask
from tenure.runtime.hosting import Host
from tenure.stores.connect import connect
from tenure.stores.contract import Migrate, Store

__all__ = ["Tenure"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_URL_DEFAULT = "sqlite:///tenure.db"


class Tenure:
    """Shares work safely between the replicas of a service.

        app = Tenure()                      # url=, else $TENURE_URL, else sqlite:///tenure.db
        async with app:
            async with app.lock("invoice:42") as hold:
                await charge(fence=hold.fence)

    Opening connects to the store and starts no work of its own.

    Args:
        url: `sqlite:///file.db`, `redis://host:6379/0`, `postgresql://user@host/db`, `memory://`;
            or a store object, which then brings its own namespace and clock.
        namespace: keeps several services apart on one store (default "tenure").
        migrate: "auto" brings the store's format up to date when opening, "check" only looks.
        require: the weakest guarantee grade to accept, "A" to "D"; opening fails on a weaker one.
        clock: a virtual clock for tests (`tenure.testing.ManualClock`).
    """

    def __init__(
        self,
        url: str | Store | None = None,
        *,
        namespace: str | None = None,
        migrate: Migrate = "auto",
        require: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        if migrate not in ("auto", "check"):
            msg = f"migrate must be 'auto' or 'check', not {migrate!r}."
            raise ConfigError(msg)
        self._require = _grade(require)
        self._migrate: Migrate = migrate
        self._events = Events()
        if url is None:
            url = os.environ.get("TENURE_URL") or _URL_DEFAULT
        if namespace is None:
            namespace = os.environ.get("TENURE_NAMESPACE") or "tenure"
        if isinstance(url, str):
            self._store = connect(url, namespace=namespace, clock=clock or SystemClock())
        elif hasattr(url, "acquire"):
            self._store = url
        else:
            msg = f"url must be text such as 'sqlite:///file.db', not {url!r}."
            raise ConfigError(msg)
        self._opened: Holds | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._of_parent: list[object] = []

    def __repr__(self) -> str:
        return f"Tenure({self._store.url!r}, namespace={self._store.namespace!r})"

    async def open(self) -> None:
        """Connect. Raises ConfigError, StoreError or StoreUnavailable if that cannot work."""
        if self._opened is not None and not self._is_inherited:
            msg = f"{self!r} is open already. Open it once, where your service starts."
            raise ConfigError(msg)
        if self._is_inherited:
            # Kept, not closed: its connections are the parent's.
            self._of_parent.append((self._store, self._opened))
            self._store, self._pid = self._store.clone(), os.getpid()
        await self._store.open(self._migrate)
        grade = self._store.traits.grade
        if self._require is not None and self._require < grade:
            await self._store.close()
            msg = (
                f"{self._store.url} has guarantee grade {grade.name} ({grade.value}), but "
                f"require={self._require.name!r} asks for {self._require.value}. "
                "'tenure doctor' says what to change."
            )
            raise ConfigError(msg)
        self._loop = asyncio.get_running_loop()
        self._host = Host(self._store)
        self._opened = Holds(self._store, self._host, self._events)

    def clone(self) -> Tenure:
        """Return an unopened app on the same store, for another event loop."""
        require = self._require.name if self._require is not None else None
        return Tenure(self._store.clone(), migrate=self._migrate, require=require)

    async def close(self) -> None:
        """Finish what is being given back, stop renewing, disconnect. Safe to call twice."""
        if self._is_inherited:
            return
        # Still there until all is done: a close that was cancelled can be finished by another.
        if self._opened is not None:
            await self._opened.close()
            await self._host.close()
            await self._store.close()
            self._opened = None

    def __enter__(self) -> NoReturn:
        raise TypeError(USE_ASYNC_WITH)

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def traits(self) -> Traits:
        """What the store can do and survive; complete once the app is open."""
        return self._store.traits

    def on_event(self, subscriber: Callable[[Event], None]) -> None:
        """Have `subscriber` called with every event. It must be quick; see `tenure.observe`."""
        self._events.subscribe(subscriber)

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = TTL_DEFAULT,
        wait: Duration | None = None,
        on_lost: OnLost = "cancel",
        min_hold: Duration = 0,
        max_hold: Duration | None = None,
        meta: Meta | None = None,
    ) -> Lock:
        """Describe a lock: at most one holder over all replicas.

        Args:
            name: any text of up to 200 characters.
            ttl: how long the lock outlives a holder that died; a living one is renewed.
            wait: the most to wait when entering; None waits for ever, 0 tries once.
            on_lost: what happens to an `async with` block when the lock is lost. "cancel" cancels
                it and raises LeaseLost; "raise" only raises at its end; a function is called with
                the hold; "ignore" leaves it at an event.
            min_hold: keep others out at least this long, even if released earlier: so a quick
                job is not run again by a replica whose clock is a little late.
            max_hold: stop renewing after this long, so that a stuck holder loses the lock.
            meta: text shown to others by `locks()`, beside host and process id.
        """
        ask = self._ask(name, 1, ttl, meta, strict=False)
        how = rules(on_lost, min_hold, max_hold)
        return Lock(self._holds, ask, wait=checked_wait(wait), rules=how)

    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        ttl: Duration = TTL_DEFAULT,
        wait: Duration | None = None,
        on_lost: OnLost = "cancel",
        min_hold: Duration = 0,
        max_hold: Duration | None = None,
        meta: Meta | None = None,
        strict: bool = False,
    ) -> Semaphore:
        """Describe a semaphore: at most `limit` holders over all replicas. See `lock`.

        While live holders use another limit (a rolling deploy), the smallest one rules and an
        event tells; with `strict=True` LimitMismatch is raised instead.
        """
        ask = self._ask(name, check_limit(limit), ttl, meta, strict=strict)
        how = rules(on_lost, min_hold, max_hold)
        return Semaphore(self._holds, ask, wait=checked_wait(wait), rules=how)

    @overload
    async def with_lock(
        self,
        name: str,
        ttl: Duration,
        fn: Callable[[*Ts], Coroutine[Any, Any, T]],
        *args: *Ts,
        wait: Duration | None = 0,
        min_hold: Duration = 0,
        on_unavailable: OnUnavailable = "raise",
    ) -> Outcome[T]: ...
    @overload
    async def with_lock(
        self,
        name: str,
        ttl: Duration,
        fn: Callable[[*Ts], T],
        *args: *Ts,
        wait: Duration | None = 0,
        min_hold: Duration = 0,
        on_unavailable: OnUnavailable = "raise",
    ) -> Outcome[T]: ...
    async def with_lock(
        self,
        name: str,
        ttl: Duration,
        fn: Callable[[*Ts], Any],
        *args: *Ts,
        wait: Duration | None = 0,
        min_hold: Duration = 0,
        on_unavailable: OnUnavailable = "raise",
    ) -> Outcome[Any]:
        """Run `fn(*args)` if the lock is free, and return what happened.

        An async function runs on this loop and is cancelled if the lock is lost; a plain one runs
        in a thread, which nothing can stop. A skip or a loss is an outcome, not an exception; what
        `fn` raises is raised.

        Args:
            name: the lock's name.
            ttl: how long the lock outlives a replica that died.
            fn: what to run.
            *args: its arguments.
            wait: the most to wait for the lock; the default of 0 skips at once.
            min_hold: keep others out at least this long, even if `fn` is done earlier.
            on_unavailable: if the store cannot be reached, "raise" StoreUnavailable, "skip", or
                "run" without the lock.
        """
        check_function(fn)
        if on_unavailable not in ("raise", "skip", "run"):
            msg = f"on_unavailable must be 'raise', 'skip' or 'run', not {on_unavailable!r}."
            raise ConfigError(msg)
        lock = self.lock(name, ttl=ttl, wait=wait, min_hold=min_hold)
        return await run_locked(lock, partial(fn, *args), on_unavailable)

    async def once(
        self,
        name: str,
        fn: Callable[[], Any],
        *,
        version: int | str = 1,
        ttl: Duration = TTL_DEFAULT,
        wait: Duration | None = None,
    ) -> bool:
        """Run `fn` unless it has succeeded before for this (name, version), on any replica, ever.

        Return whether this call ran it. Callers at the same time wait and learn the outcome. A
        replica that dies half-way is followed by another one, so `fn` must be safe to repeat.

        Raises:
            OnceFailed: it failed, here or on the replica this call waited for. The failure is
                kept; the next call tries again.
            AcquireTimeout: another replica was at it for longer than `wait`.
            LeaseLost: the lock was lost meanwhile; another replica takes over.
        """
        if not re.fullmatch(r"[\w.+-]{1,50}", str(version)):
            msg = f"version must be a number or a short word without spaces, not {version!r}."
            raise ConfigError(msg)
        lock = self.lock(f"once:{check_name(name, 'name')}", ttl=ttl, wait=wait)
        return await run_once(lock, self._holds().store, name, version, fn)

    def election(self, name: str, *, ttl: Duration = 15, meta: Meta | None = None) -> Election:
        """Describe an election of one leader over all replicas; see `tenure.election`."""
        key = f"election:{check_name(name, 'election name')}"
        return Election(self._holds, self._ask(key, 1, ttl, meta, strict=False))

    async def locks(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        """Return who holds and who waits for locks whose name starts with `prefix`."""
        return await self._holds().store.leases(prefix, limit=limit)

    @property
    def _is_inherited(self) -> bool:
        return self._pid != os.getpid()

    def _holds(self) -> Holds:
        if self._opened is not None and self._is_inherited:
            msg = f"{self!r} was opened by the parent process. Open it again after the fork."
            raise StoreError(msg)
        if self._opened is None:
            msg = f"{self!r} is not open. Use it inside 'async with app:'."
            raise StoreError(msg)
        if self._loop is not asyncio.get_running_loop():
            msg = (
                f"{self!r} was opened on another event loop. Open it on the loop that uses it: "
                "inside the same asyncio.run(), once per loop in tests."
            )
            raise StoreError(msg)
        return self._opened

    def _ask(self, name: str, limit: int, ttl: Duration, meta: Meta | None, *, strict: bool) -> Ask:
        return Ask(
            key=check_name(name, "lock name"),
            limit=limit,
            ttl=seconds(ttl, "ttl", minimum=TTL_MIN, maximum=TTL_MAX),
            meta=check_meta(meta or {}),
            strict=strict,
        )


def _grade(require: str | None) -> Grade | None:
    if require is None:
        return None
    try:
        return Grade[require]
    except KeyError:
        msg = f"require must be a guarantee grade, 'A', 'B', 'C' or 'D', not {require!r}."
        raise ConfigError(msg) from None
