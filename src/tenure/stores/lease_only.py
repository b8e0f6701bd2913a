"""A store that keeps leases alone, where a whole store is expected.

Locks, semaphores, elections and run-once need nothing else. Whatever asks for jobs, timers or
replicas gets a ConfigError that says which stores keep them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from tenure.errors import ConfigError
from tenure.stores.contract import LeaseStore, Store

__all__ = ["check_keeps_jobs", "whole"]


def whole(store: LeaseStore) -> Store:
    """Return a store with jobs and schedules: the same one, if it has them."""
    has_all = hasattr(store, "jobs") and hasattr(store, "schedules")
    return cast("Store", store if has_all else _LeaseOnly(store))


def check_keeps_jobs(store: Store) -> None:
    """Raise ConfigError if a store keeps leases alone: a worker would ask it for jobs for ever."""
    if isinstance(cast("object", store), _LeaseOnly):
        raise _missing(store, "jobs")


class _LeaseOnly:
    """Passes everything on to a lease store, but for jobs and schedules."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self.jobs = _Missing(store, "jobs")
        self.schedules = _Missing(store, "timers and schedules")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def clone(self) -> _LeaseOnly:
        return _LeaseOnly(self._store.clone())


class _Missing:
    """Jobs or schedules of a store that has none: each call raises ConfigError."""

    def __init__(self, store: LeaseStore, what: str) -> None:
        self._store = store
        self._what = what

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*_: Any, **__: Any) -> Any:
            raise _missing(self._store, self._what)

        return call


def _missing(store: LeaseStore, what: str) -> ConfigError:
    return ConfigError(
        f"{store.url} keeps locks alone; it has no {what}. Use a sqlite://, redis:// or "
        "postgresql:// store for these, in an app of its own."
    )
