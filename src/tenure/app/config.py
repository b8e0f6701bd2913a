"""Reads the configuration of an app: its options and TENURE_* variables, and makes its store."""

from __future__ import annotations

import os
from typing import Any, cast

from msgspec import Struct

from tenure.app.options import AppOptions, Connect, Lifespan
from tenure.core.clock import Clock, SystemClock
from tenure.core.environment import SCOPES, Scope
from tenure.core.leases import Grade
from tenure.core.settings import URL_DEFAULT, Settings
from tenure.errors import ConfigError
from tenure.stores.connect import connect
from tenure.stores.contract import LeaseStore, Migrate, Store
from tenure.stores.lease_only import as_full_store

__all__ = ["Config", "read_config", "store_of"]


class Config(Struct, frozen=True, kw_only=True):
    """The checked options of an app. A copy of the app has the same."""

    settings: Settings
    migrate: Migrate
    require: Grade | None
    scope: Scope
    connect: Connect | None
    lifespan: Lifespan | None
    is_default_store: bool
    """Whether neither the code nor the environment names a store."""


def read_config(url: object, options: AppOptions) -> Config:
    """Check the options of an app. Raises ConfigError."""
    return Config(
        settings=Settings.read(options, os.environ),
        migrate=_migrate(*_option("migrate", options["migrate"])),
        require=_grade(*_option("require", options["require"])),
        scope=_scope(*_option("scope", options["scope"])),
        connect=_connect(*_option("connect", options["connect"])),
        lifespan=options["lifespan"],
        is_default_store=_option("url", url)[0] is None,
    )


def store_of(url: str | LeaseStore | None, namespace: str, clock: Clock | None) -> Store:
    """Return the unopened store that a URL, an object or the environment names."""
    location, what = _option("url", url)
    if location is None:
        location = URL_DEFAULT
    if isinstance(location, str):
        return connect(location, namespace=namespace, clock=clock or SystemClock(), what=what)
    if hasattr(location, "leases"):
        return as_full_store(location)
    msg = f"{what} must be text such as 'sqlite:///file.db', not {location!r}."
    raise ConfigError(msg)


def _option(name: str, value: Any) -> tuple[Any, str]:
    """Return an option, from here or the environment, and what to call it in an error."""
    variable = f"TENURE_{name.upper()}"
    if value is None and (text := os.environ.get(variable)):
        return text, variable
    return value, name


def _scope(scope: str | None, what: str) -> Scope:
    for choice in SCOPES:
        if scope in (None, choice):
            return choice
    msg = f"{what} must be 'process', 'host' or 'fleet', not {scope!r}."
    raise ConfigError(msg)


def _connect(connect: str | None, what: str) -> Connect | None:
    if connect not in (None, "eager", "lazy"):
        msg = f"{what} must be 'eager' or 'lazy', not {connect!r}."
        raise ConfigError(msg)
    return cast("Connect | None", connect)


def _migrate(migrate: str | None, what: str) -> Migrate:
    if migrate not in (None, "auto", "check"):
        msg = f"{what} must be 'auto' or 'check', not {migrate!r}."
        raise ConfigError(msg)
    return "check" if migrate == "check" else "auto"


def _grade(require: str | None, what: str) -> Grade | None:
    if require is None:
        return None
    try:
        return Grade[require]
    except KeyError:
        msg = f"{what} must be a guarantee grade, 'A', 'B', 'C' or 'D', not {require!r}."
        raise ConfigError(msg) from None
