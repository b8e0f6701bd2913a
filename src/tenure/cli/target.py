"""Which store a command talks to, how it gets there, and what happens if it cannot."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from tenure.app import Tenure
from tenure.cli.output import Screen
from tenure.core.clock import SystemClock
from tenure.core.settings import URL_DEFAULT
from tenure.errors import StoreUnavailable, TenureError
from tenure.stores.connect import connect
from tenure.stores.contract import Migrate, Store

__all__ = ["Target", "explained", "place", "store_command", "store_options"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# As in `Tenure`.
_NAMESPACE_DEFAULT = "tenure"


def store_options(command: F) -> F:
    """Let a command say where the store is."""
    command = click.option(
        "--namespace", help="The namespace [default: $TENURE_NAMESPACE, else tenure]."
    )(command)
    return click.option("--url", help=f"The store [default: $TENURE_URL, else {URL_DEFAULT}].")(
        command
    )


@dataclass(frozen=True)
class Target:
    """The store that was asked for, and the screen to show what it says."""

    url: str = field(repr=False)
    source: str
    namespace: str
    screen: Screen

    @classmethod
    def chosen(cls, url: str | None, namespace: str | None, screen: Screen) -> Target:
        """Go by the options, then by the environment, then by the default."""
        env = os.environ.get("TENURE_URL")
        return cls(
            url or env or URL_DEFAULT,
            "--url" if url else "$TENURE_URL" if env else "default",
            namespace or os.environ.get("TENURE_NAMESPACE") or _NAMESPACE_DEFAULT,
            screen,
        )

    def store(self) -> Store:
        what = self.source.removeprefix("$")
        return connect(self.url, namespace=self.namespace, clock=SystemClock(), what=what)

    def run(self, work: Callable[[Store], Awaitable[T]], migrate: Migrate = "check") -> T:
        """Return what `work` makes of the open store."""

        async def run() -> T:
            store = self.store()
            await store.open(migrate)
            try:
                return await work(store)
            finally:
                self.screen.damaged += store.damage
                await store.close()

        return asyncio.run(run())

    def run_app(self, work: Callable[[Tenure], Awaitable[T]], **settings: Any) -> T:
        """Return what `work` makes of an open app without tasks, on whatever store it is."""

        async def run() -> T:
            store = self.store()
            # Whatever TENURE_REQUIRE, TENURE_SCOPE and TENURE_CONNECT ask of services.
            own: dict[str, Any] = {"require": "D", "scope": "process", "connect": "eager"}
            app = Tenure(store, namespace=self.namespace, migrate="check", **own, **settings)
            async with app:
                try:
                    return await work(app)
                finally:
                    self.screen.damaged += store.damage

        return asyncio.run(run())

    def about(self, store: Store) -> dict[str, Any]:
        """Return how every document begins."""
        return {"store": store.url, "namespace": store.namespace}

    def announce(self) -> None:
        """Say which store this is about, where it does not get in the way of the answer."""
        store = self.store()
        self.screen.aside(f"{place(store.url)} (from {self.source}), namespace {store.namespace}")
        if store.traits.scope == "process":
            self.screen.aside(
                "This store is this process alone; no other one's locks or jobs are seen."
            )


def place(url: str) -> str:
    """Return where a store is: relative paths are where most mistakes are made."""
    path = url.removeprefix("sqlite:///")
    return url if path == url else str(Path(path.partition("?")[0]).resolve())


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
        if context.invoked_subcommand is not None:
            return  # which finds the options given here
        _silence_logs()
        screen = Screen(as_json=as_json or bool(_from_above(context, "as_json")))
        url = url or _from_above(context, "url")
        target = Target.chosen(url, namespace or _from_above(context, "namespace"), screen)
        try:
            function(target, *arguments, **options)
        except TenureError as error:
            screen.failure(type(error).__name__, explained(error))
            context.exit(2)

    return command


def _from_above(context: click.Context, option: str) -> Any:
    """Return what was given for an option before the name of the command, nearest first."""
    above = context.parent
    while above is not None:
        if given := above.params.get(option):
            return given
        above = above.parent
    return None


def _silence_logs() -> None:
    """Keep warnings off the screen: commands say what matters to them, and `doctor` the rest."""
    log = logging.getLogger("tenure")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def explained(error: TenureError) -> str:
    """Return an error as one line with advice."""
    text = " ".join(str(error).split())
    if not isinstance(error, StoreUnavailable):
        return text
    end = "" if text.endswith((".", "?")) else "."
    return f"{text}{end} Try again later, or see what 'tenure doctor' finds."
