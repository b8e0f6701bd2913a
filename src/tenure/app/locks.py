"""The lock calls of an app: what `Tenure.lock`, `with_lock`, `once` and their siblings do."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tenure.app.engine import Engine
from tenure.app.options import (
    LOCK_DEFAULTS,
    ElectionOptions,
    LockOptions,
    OnceOptions,
    WithLockOptions,
)
from tenure.core.callables import check_function
from tenure.core.durations import Duration, seconds
from tenure.core.lease_policy import TTL_MAX, TTL_MIN
from tenure.core.leases import Lease, Meta, check_limit, check_meta, check_name
from tenure.errors import ConfigError
from tenure.locks.election import Election
from tenure.locks.hold import HoldPolicy
from tenure.locks.lock import Lock, Outcome, Semaphore, checked_wait, make_policy, run_locked
from tenure.locks.once import run_once
from tenure.runtime.leases.acquirer import LeaseRequest

__all__ = ["LockCalls"]


class LockCalls:
    """Describes locks, semaphores and elections, and runs functions under them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def lock(self, name: str, options: LockOptions) -> Lock:
        """Describe a lock."""
        request = _request(name, 1, options["ttl"], options["meta"])
        policy = _policy(options)
        wait = checked_wait(options["wait"])
        return Lock(self._engine.holds, request, wait=wait, policy=policy)

    def semaphore(self, name: str, limit: int, options: LockOptions, *, strict: bool) -> Semaphore:
        """Describe a semaphore."""
        limit = check_limit(limit)
        request = _request(name, limit, options["ttl"], options["meta"], strict=strict)
        policy = _policy(options)
        wait = checked_wait(options["wait"])
        return Semaphore(self._engine.holds, request, wait=wait, policy=policy)

    async def with_lock(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], options: WithLockOptions
    ) -> Outcome[Any]:
        """Run a function if the lock is free, and return what happened."""
        check_function(fn)
        on_unavailable = options["on_unavailable"]
        if on_unavailable not in ("raise", "skip", "run"):
            msg = f"on_unavailable must be 'raise', 'skip' or 'run', not {on_unavailable!r}."
            raise ConfigError(msg)
        lock = self.lock(
            name,
            {
                **LOCK_DEFAULTS,
                "ttl": options["ttl"],
                "wait": options["wait"],
                "min_hold": options["min_hold"],
                "expected": options["expected"],
            },
        )
        return await run_locked(lock, partial(fn, *args), on_unavailable, self._engine.events)

    async def once(self, name: str, fn: Callable[[], Any], options: OnceOptions) -> bool:
        """Run a function unless it has succeeded before; return whether this call ran it."""
        version = options["version"]
        if not re.fullmatch(r"[\w.+-]{1,50}", str(version)):
            msg = f"version must be a number or a short word without spaces, not {version!r}."
            raise ConfigError(msg)
        key = f"once:{check_name(name, 'name')}"
        lock = self.lock(
            key,
            {
                **LOCK_DEFAULTS,
                "ttl": options["ttl"],
                "wait": options["wait"],
                "expected": options["expected"],
            },
        )
        return await run_once(lock, self._engine.holds().store, name, version, fn)

    def election(self, name: str, options: ElectionOptions) -> Election:
        """Describe an election."""
        key = f"election:{check_name(name, 'election name')}"
        request = _request(key, 1, options["ttl"], options["meta"])
        return Election(self._engine.holds, request, self._engine.store.clock)

    async def find(self, prefix: str, limit: int) -> list[Lease]:
        """Return the leases whose key starts with a prefix."""
        if prefix:
            check_name(prefix, "prefix")
        return await self._engine.holds().store.leases.find(prefix, limit=limit)


def _policy(options: LockOptions) -> HoldPolicy:
    return make_policy(
        options["on_lost"], options["min_hold"], options["max_hold"], options["expected"]
    )


def _request(
    name: str, limit: int, ttl: Duration, meta: Meta | None, *, strict: bool = False
) -> LeaseRequest:
    return LeaseRequest(
        key=check_name(name, "lock name"),
        limit=limit,
        ttl=seconds(ttl, "ttl", minimum=TTL_MIN, maximum=TTL_MAX),
        meta=check_meta(meta or {}),
        strict=strict,
    )
