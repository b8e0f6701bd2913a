"""Lets a store that keeps only leases stand where a full store is expected.

Locks, semaphores, elections and run-once need nothing else. Every call for jobs, timers or replicas
raises a ConfigError that names the stores which keep them. An app wraps each store object that it
is given with `as_full_store`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from tenure.errors import ConfigError
from tenure.stores.contract import LeaseStore, Store

__all__ = ["as_full_store", "check_keeps_jobs", "keeps_jobs"]


def as_full_store(store: LeaseStore) -> Store:
    """Return the store itself if it has jobs and schedules, else one whose jobs raise."""
    has_all = hasattr(store, "jobs") and hasattr(store, "schedules")
    return cast("Store", store if has_all else _LeaseOnly(store))


def check_keeps_jobs(store: Store) -> None:
    """Raise ConfigError for a store that keeps only leases: a worker would never find a job."""
    if not keeps_jobs(store):
        raise _missing(store, "jobs")


def keeps_jobs(store: Store) -> bool:
    """Return whether a store has jobs and schedules, and not only leases."""
    return not isinstance(cast("object", store), _LeaseOnly)


class _LeaseOnly:
    """Passes all but jobs and schedules on to a lease store."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self.jobs = _Missing(store, "jobs")
        self.schedules = _Missing(store, "timers and schedules")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def clone(self) -> _LeaseOnly:
        return _LeaseOnly(self._store.clone())


class _Missing:
    """The jobs or schedules of a store that has none: each call raises ConfigError."""

    def __init__(self, store: LeaseStore, part: str) -> None:
        self._store = store
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*_: Any, **__: Any) -> Any:
            raise _missing(self._store, self._part)

        return call


def _missing(store: LeaseStore, part: str) -> ConfigError:
    return ConfigError(
        f"{store.url} keeps locks only; it has no {part}. Use a second app on a sqlite://, "
        "redis:// or postgresql:// store for these."
    )
