"""Which store a command talks to, how it gets there, and what happens if it cannot."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from tenure.cli.show import Screen
from tenure.core.clock import SystemClock
from tenure.errors import StoreUnavailable, TenureError
from tenure.stores.connect import connect
from tenure.stores.contract import Migrate, Store

__all__ = ["Target", "store_command", "store_options"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# As in `Tenure`.
_URL_DEFAULT = "sqlite:///tenure.db"
_NAMESPACE_DEFAULT = "tenure"


def store_options(command: F) -> F:
    """Let a command say where the store is."""
    command = click.option(
        "--namespace", help="The namespace [default: $TENURE_NAMESPACE, else tenure]."
    )(command)
    return click.option("--url", help=f"The store [default: $TENURE_URL, else {_URL_DEFAULT}].")(
        command
    )


@dataclass(frozen=True)
class Target:
    """The store that was asked for, and the screen to show what it says."""

    url: str
    source: str
    namespace: str
    screen: Screen

    @classmethod
    def chosen(cls, url: str | None, namespace: str | None, screen: Screen) -> Target:
        """Go by the options, then by the environment, then by the default."""
        env = os.environ.get("TENURE_URL")
        return cls(
            url or env or _URL_DEFAULT,
            "--url" if url else "$TENURE_URL" if env else "default",
            namespace or os.environ.get("TENURE_NAMESPACE") or _NAMESPACE_DEFAULT,
            screen,
        )

    def store(self) -> Store:
        return connect(self.url, namespace=self.namespace, clock=SystemClock())

    def run(self, work: Callable[[Store], Awaitable[T]], migrate: Migrate = "check") -> T:
        """Return what `work` makes of the open store."""

        async def run() -> T:
            store = self.store()
            await store.open(migrate)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def about(self, store: Store) -> dict[str, Any]:
        """Return how every document begins."""
        return {"store": store.url, "namespace": store.namespace}

    def announce(self) -> None:
        """Say which store this is about, where it does not get in the way of the answer."""
        store = self.store()
        place, path = store.url, store.url.removeprefix("sqlite:///")
        if path != place:
            place = str(Path(path).resolve())  # relative paths are where most mistakes are made
        self.screen.aside(f"{place} (from {self.source}), namespace {store.namespace}")
        if store.traits.scope == "process":
            self.screen.aside("This store is this process alone; no other one's leases are seen.")


def store_command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command out of a function that takes a Target first.

    What the store cannot do is said in one line, and the exit status is 2.
    """

    @click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")
    @store_options
    @click.pass_context
    @wraps(function)
    def command(
        context: click.Context,
        /,
        *arguments: Any,
        url: str | None,
        namespace: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        _silence_logs()
        above = context.find_root().params
        screen = Screen(as_json=as_json)
        target = Target.chosen(url or above["url"], namespace or above["namespace"], screen)
        try:
            function(target, *arguments, **options)
        except TenureError as error:
            screen.failure(type(error).__name__, _with_advice(error))
            context.exit(2)

    return command


def _silence_logs() -> None:
    """Keep warnings off the screen: commands say what matters to them, and `doctor` the rest."""
    log = logging.getLogger("tenure")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def _with_advice(error: TenureError) -> str:
    text = " ".join(str(error).split())
    if not isinstance(error, StoreUnavailable):
        return text
    return f"{text.rstrip('.')}. Try again later, or see what 'tenure doctor' finds."
