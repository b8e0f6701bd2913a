"""Creates the store for a URL. The only list of stores; each is imported when first used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tenure.core.clock import Clock
from tenure.core.leases import check_namespace
from tenure.core.redaction import redact
from tenure.errors import ConfigError
from tenure.stores.contract import Store

__all__ = ["connect"]

# scheme -> (module, class, extra that installs its driver)
_STORES = {
    "memory": ("tenure.stores.memory", "MemoryStore", None),
    "sqlite": ("tenure.stores.sqlite", "SqliteStore", None),
    **dict.fromkeys(
        (
            f"{scheme}{topology}"
            for scheme in ("redis", "rediss", "valkey", "valkeys")
            for topology in ("", "+sentinel", "+cluster")
        ),
        ("tenure.stores.redis", "RedisStore", "redis"),
    ),
    "postgresql": ("tenure.stores.postgres", "PostgresStore", "postgres"),
    "postgres": ("tenure.stores.postgres", "PostgresStore", "postgres"),
}


def connect(url: str, *, namespace: str, clock: Clock, what: str = "url") -> Store:
    """Return the store that `url` names, not opened yet.

    Raises ConfigError for an unknown scheme, a wrong URL or a missing driver. The message begins
    with `what`, which says where the URL came from.
    """
    namespace = check_namespace(namespace)
    try:
        return _store_class(url)(url, namespace=namespace, clock=clock)
    except ConfigError as error:
        msg = f"{what}: {error}"
        raise ConfigError(msg) from error.__cause__


def _store_class(url: str) -> Callable[..., Store]:
    scheme, separator, _ = str(url).partition("://")
    if not separator or scheme not in _STORES:
        msg = f"{redact(url)!r} is not a store URL. {_advice(scheme if separator else '')}"
        raise ConfigError(msg)
    module, name, extra = _STORES[scheme]
    try:
        make: Callable[..., Store] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("tenure"):
            raise
        msg = (
            f"{scheme}:// needs a driver that is not installed. Run: pip install 'tenure[{extra}]'"
        )
        raise ConfigError(msg) from error
    return make


def _advice(scheme: str) -> str:
    """Return what to write instead. SQLAlchemy URLs name a driver, which Tenure chooses itself."""
    base, plus, driver = scheme.partition("+")
    if plus and f"{base}+cluster" in _STORES:
        return f"Drop '+{driver}', or use {base}+sentinel:// or {base}+cluster://."
    if plus and base in _STORES:
        return f"Drop '+{driver}': Tenure brings its own driver. Write {base}://..."
    return (
        "Use sqlite:///file.db, redis://host:6379/0, postgresql://user@host/database or memory://."
    )
