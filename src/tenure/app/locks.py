"""The lock calls of an app."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, overload

from tenure.app.lifecycle import Lifecycle
from tenure.core.callables import check_function
from tenure.core.durations import Duration, seconds
from tenure.core.leases import Lease, Meta, check_limit, check_meta, check_name
from tenure.core.policy import TTL_DEFAULT, TTL_MAX, TTL_MIN
from tenure.errors import ConfigError
from tenure.locks.election import Election
from tenure.locks.hold import OnLost
from tenure.locks.lock import (
    Lock,
    OnUnavailable,
    Outcome,
    Semaphore,
    checked_wait,
    rules,
    run_locked,
)
from tenure.locks.once import run_once
from tenure.runtime.leases.acquirer import LeaseRequest

__all__ = ["LockCalls"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class LockCalls(Lifecycle):
    """Locks, semaphores, elections, and what runs once."""

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
        fn: Callable[[*Ts], Coroutine[Any, Any, T]],
        *args: *Ts,
        ttl: Duration = TTL_DEFAULT,
        wait: Duration | None = 0,
        min_hold: Duration = 0,
        on_unavailable: OnUnavailable = "raise",
    ) -> Outcome[T]: ...
    @overload
    async def with_lock(
        self,
        name: str,
        fn: Callable[[*Ts], T],
        *args: *Ts,
        ttl: Duration = TTL_DEFAULT,
        wait: Duration | None = 0,
        min_hold: Duration = 0,
        on_unavailable: OnUnavailable = "raise",
    ) -> Outcome[T]: ...
    async def with_lock(
        self,
        name: str,
        fn: Callable[[*Ts], Any],
        *args: *Ts,
        ttl: Duration = TTL_DEFAULT,
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
            fn: what to run.
            *args: its arguments.
            ttl: how long the lock outlives a replica that died.
            wait: the most to wait for the lock; the default of 0 skips at once.
            min_hold: keep others out at least this long, even if `fn` is done earlier.
            on_unavailable: if the store cannot be reached, "raise" StoreUnavailable, "skip", or
                "run" without the lock, which the event RanUnlocked and a WARNING tell each time.
        """
        check_function(fn)
        if on_unavailable not in ("raise", "skip", "run"):
            msg = f"on_unavailable must be 'raise', 'skip' or 'run', not {on_unavailable!r}."
            raise ConfigError(msg)
        lock = self.lock(name, ttl=ttl, wait=wait, min_hold=min_hold)
        return await run_locked(lock, partial(fn, *args), on_unavailable, self._events)

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
        """Describe an election of one leader over all replicas; see `tenure.locks.election`."""
        key = f"election:{check_name(name, 'election name')}"
        ask = self._ask(key, 1, ttl, meta, strict=False)
        return Election(self._holds, ask, self._store.clock)

    async def locks(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        """Return who holds and who waits for locks whose name starts with `prefix`."""
        if prefix:
            check_name(prefix, "prefix")
        return await self._holds().store.leases.find(prefix, limit=limit)

    def _ask(
        self, name: str, limit: int, ttl: Duration, meta: Meta | None, *, strict: bool
    ) -> LeaseRequest:
        return LeaseRequest(
            key=check_name(name, "lock name"),
            limit=limit,
            ttl=seconds(ttl, "ttl", minimum=TTL_MIN, maximum=TTL_MAX),
            meta=check_meta(meta or {}),
            strict=strict,
        )
