"""Which store a command uses, how it reaches it, and how it reports that it cannot.

`store_command` makes a command of a function that takes a `Target` first. It adds --url,
--namespace, -A and --json, and turns errors of the store into one line and exit code 2.
`store_group` makes a group of such commands; the same options may stand before the name of the
command.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from tenure.app import Tenure, engine_of
from tenure.cli.groups import CommandGroup
from tenure.cli.screen import Screen
from tenure.core.clock import SystemClock
from tenure.core.settings import URL_DEFAULT
from tenure.errors import StoreUnavailable, TenureError
from tenure.stores.connect import connect
from tenure.stores.contract import Migrate, Store
from tenure.supervisor.app_finder import load_app

__all__ = [
    "Target",
    "explained",
    "json_option",
    "place",
    "store_command",
    "store_group",
    "store_options",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# As in `Tenure`.
_NAMESPACE_DEFAULT = "tenure"


def store_options(command: F) -> F:
    """Let a command take --url and --namespace, or -A in place of both."""
    command = click.option(
        "-A",
        "--app",
        "app_path",
        metavar="MODULE:APP",
        help="The store and the namespace of this app, which is imported.",
    )(command)
    command = click.option(
        "--namespace", help="The namespace [default: $TENURE_NAMESPACE, else tenure]."
    )(command)
    return click.option("--url", help=f"The store [default: $TENURE_URL, else {URL_DEFAULT}].")(
        command
    )


def json_option(command: F) -> F:
    """Let a command take --json."""
    return click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")(
        command
    )


@dataclass(frozen=True)
class Target:
    """The store that a command is about, and the screen for its answer."""

    url: str = field(repr=False)
    source: str
    namespace: str
    screen: Screen
    app: Tenure | None = None
    """The app that -A names; its store is used, whatever `url` is."""

    @classmethod
    def of_app(cls, path: str, screen: Screen) -> Target:
        """Take the store of the app that MODULE:APP names. Raises ConfigError."""
        app = load_app(path)
        store = engine_of(app).store
        return cls(store.url, f"-A {path}", store.namespace, screen, app)

    @classmethod
    def chosen(cls, url: str | None, namespace: str | None, screen: Screen) -> Target:
        """Take the options, else the environment, else the defaults."""
        env = os.environ.get("TENURE_URL")
        return cls(
            url or env or URL_DEFAULT,
            "--url" if url else "$TENURE_URL" if env else "default",
            namespace or os.environ.get("TENURE_NAMESPACE") or _NAMESPACE_DEFAULT,
            screen,
        )

    def pointed_at(self, what: str | None) -> Target:
        """Return the target that an argument URL or MODULE:APP names; without one, this one.

        Raises UsageError if an option names a store, too.
        """
        if what is None:
            return self
        if self.source.startswith("-"):
            raise click.UsageError(f"Name the store once: leave out {self.source}.")
        if "://" not in what:
            return Target.of_app(what, self.screen)
        return Target(what, "argument", self.namespace, self.screen)

    def store(self) -> Store:
        """Return one more store object, unopened."""
        if self.app is not None:
            return engine_of(self.app).store.clone()
        what = self.source.removeprefix("$")
        return connect(self.url, namespace=self.namespace, clock=SystemClock(), what=what)

    def run(self, work: Callable[[Store], Awaitable[T]], migrate: Migrate = "check") -> T:
        """Run `work` with the open store."""

        async def run() -> T:
            store = self.store()
            await store.open(migrate)
            try:
                return await work(store)
            finally:
                self.screen.damaged += store.damage
                await store.close()

        return asyncio.run(run())

    def run_app(self, work: Callable[[Tenure, Store], Awaitable[T]], **settings: Any) -> T:
        """Run `work` with an open app, and its store.

        The app has the tasks and timers of the app that -A names; else it has none.
        """

        async def run() -> T:
            store = self.store()
            # TENURE_REQUIRE, TENURE_SCOPE and TENURE_CONNECT are for services, not for operators.
            own: dict[str, Any] = {"require": "D", "scope": "process", "connect": "eager"}
            own |= settings
            app = Tenure(store, namespace=self.namespace, migrate="check", **own)
            if self.app is not None:
                engine_of(app).registry = engine_of(self.app).registry
            async with app:
                try:
                    return await work(app, store)
                finally:
                    self.screen.damaged += store.damage

        return asyncio.run(run())

    def about(self, store: Store) -> dict[str, Any]:
        """Return the first fields of every document."""
        return {"store": store.url, "namespace": store.namespace}

    def announce(self) -> None:
        """Say on stderr which store this is about."""
        store = self.store()
        self.screen.remark(f"{place(store.url)} (from {self.source}), namespace {store.namespace}")
        if store.traits.scope == "process":
            self.screen.remark(
                "This store is visible to this process only: locks and jobs of other processes "
                "are not in it."
            )


def place(url: str) -> str:
    """Return where a store is; paths are made absolute, as relative ones cause most mistakes."""
    path = url.removeprefix("sqlite:///")
    return url if path == url else str(Path(path.partition("?")[0]).resolve())


def store_command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function that takes a Target first.

    An error of the store is shown in one line; the exit code is 2.
    """

    @json_option
    @store_options
    @click.pass_context
    @wraps(function)
    def command(
        context: click.Context,
        /,
        *arguments: Any,
        url: str | None,
        namespace: str | None,
        app_path: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        _silence_logs()
        screen = Screen(as_json=as_json or bool(_from_parent(context, "as_json")))
        url = url or _from_parent(context, "url")
        namespace = namespace or _from_parent(context, "namespace")
        app_path = app_path or _from_parent(context, "app_path")
        if app_path and (url or namespace):
            raise click.UsageError("-A names a store, so leave out --url and --namespace.")
        try:
            if app_path:
                target = Target.of_app(app_path, screen)
            else:
                target = Target.chosen(url, namespace, screen)
            function(target, *arguments, **options)
        except TenureError as error:
            screen.failure(type(error).__name__, explained(error))
            context.exit(2)

    return command


def store_group(
    *,
    epilog: str,
    instead: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Callable[[Callable[[], None]], CommandGroup]:
    """Make a group of store commands of a function without arguments.

    Without the name of a command, the group lists: `tenure queues` is `tenure queues ls`.
    `instead` has advice for command names that other tools use, `aliases` other names of commands.
    """

    def decorate(function: Callable[[], None]) -> CommandGroup:
        @click.group(
            cls=CommandGroup,
            epilog=epilog,
            instead=instead,
            aliases=aliases,
            invoke_without_command=True,
        )
        @json_option
        @store_options
        @click.pass_context
        @wraps(function)
        def group(context: click.Context, /, **_options: Any) -> None:
            # The commands read the options from the context.
            if context.invoked_subcommand is None:
                ls = group.commands["ls"]
                with ls.make_context("ls", [], parent=context) as inner:
                    ls.invoke(inner)

        return group

    return decorate


def _from_parent(context: click.Context, option: str) -> Any:
    """Return the value of an option that stands before the command, nearest first."""
    parent = context.parent
    while parent is not None:
        if value := parent.params.get(option):
            return value
        parent = parent.parent
    return None


def _silence_logs() -> None:
    """Keep log lines off the screen: commands report what matters, and `doctor` the rest."""
    log = logging.getLogger("tenure")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def explained(error: TenureError) -> str:
    """Return an error as one line with advice."""
    text = " ".join(str(error).split())
    if not isinstance(error, StoreUnavailable):
        return text
    end = "" if text.endswith((".", "?")) else "."
    return f"{text}{end} Try again later, or run 'tenure doctor'."
