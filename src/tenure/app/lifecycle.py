"""How an app is made, opened, cloned and closed, and what is there while it is open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Literal, NoReturn, Self, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import asdict

from tenure.app.opening import Opening
from tenure.app.setup import warn_about_setup
from tenure.core.clock import Clock, SystemClock
from tenure.core.environment import SCOPES, Scope, reaches, scope_problem
from tenure.core.leases import Grade, Traits
from tenure.core.schedules.definition import Plan
from tenure.core.settings import URL_DEFAULT, Settings, WorkSettings
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.jobs import Jobs
from tenure.locks.hold import Holds
from tenure.locks.lock import USE_ASYNC_WITH
from tenure.observe.events import Event, Events
from tenure.runtime.attempts.handler import Around, Handler
from tenure.runtime.host import Host
from tenure.stores.connect import connect
from tenure.stores.contract import LeaseStore, Migrate, Store
from tenure.stores.lease_only import as_full_store

__all__ = ["Connect", "Lifecycle", "Lifespan", "Services", "services_here"]

Connect: TypeAlias = Literal["eager", "lazy"]
"""What opening does about a store that is down: raise, or go on trying."""

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


class Services(Struct, frozen=True):
    """What an open app works with, all on one event loop."""

    store: Store
    host: Host
    holds: Holds
    jobs: Jobs


class Lifecycle:
    """The part of an app that everything else stands on."""

    def __init__(
        self,
        url: str | LeaseStore | None = None,
        *,
        namespace: str | None = None,
        migrate: Migrate | None = None,
        require: str | None = None,
        scope: Scope | None = None,
        connect: Connect | None = None,
        clock: Clock | None = None,
        lifespan: Lifespan | None = None,
        **given: Any,
    ) -> None:
        self._settings = Settings.read({"namespace": namespace, **given}, os.environ)
        self._migrate = _migrate(*_given("migrate", migrate))
        self._require = _grade(*_given("require", require))
        self._scope = _scope(*_given("scope", scope))
        self._connect = _connect(*_given("connect", connect))
        self._lifespan = lifespan
        self._at_work = AsyncExitStack()  # what the lifespan has opened
        self._entering = asyncio.Lock()
        self._is_entered = False
        self._workers = 0
        self._events = Events()
        url, source = _given("url", url)
        self._store = _store(url, source, self._settings.namespace, clock)
        self._is_default_store = url is None
        self._handlers: dict[str, Handler] = {}
        self._queues: dict[str, None] = {}
        self._around: list[Around] = []
        self._plans: dict[str, Plan] = {}
        self._timed: dict[str, object] = {}  # the functions of timers
        self._tickers = 0  # workers in this process that run timers
        self._are_plans_taken = False
        self._opened: Services | None = None
        self._opening: Opening | None = None  # while a store that is down keeps it from opening
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._of_parent: list[object] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store.url!r}, namespace={self._store.namespace!r})"

    async def open(self) -> None:
        """Connect. Raises ConfigError, StoreError or StoreUnavailable if that cannot work.

        With connect="lazy" it does not raise StoreUnavailable, and goes on trying in the
        background. Until that succeeds, calls raise StoreUnavailable; `ready` waits for it.
        """
        await self._begin(is_lazy=self._connect == "lazy")

    async def ready(self) -> None:
        """Wait until the store was reached. Raises ConfigError or StoreError if it is unusable."""
        while self.is_open and self._opening is not None:
            await self._opening.ended()
        self._services()

    async def _begin(self, *, is_lazy: bool) -> None:
        if self.is_open:
            msg = f"{self!r} is open already. Open it once, where your service starts."
            raise ConfigError(msg)
        await self._leave_closed_loop()
        if self._is_inherited:
            # Kept, not closed: its connections are the parent's.
            self._of_parent.append((self._store, self._opened, self._opening))
            self._opened = self._opening = None
            self._store, self._pid = self._store.clone(), os.getpid()
        self._check_scope()
        warn_about_setup(is_default_store=self._is_default_store)
        try:
            await self._reach()
        except StoreUnavailable as error:
            if not is_lazy:
                raise
            self._loop = asyncio.get_running_loop()
            self._opening = Opening(self._reach, self._store.clock, self._events, error)

    async def _reach(self) -> None:
        """Connect and look at the format; from then on calls can be made."""
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
        host = Host(self._store)
        try:
            with suppress(StoreUnavailable):  # it has just answered; workers ask again
                await host.data.confirm(self._store, self._events)
        except BaseException:  # it was cancelled
            await self._store.close()
            raise
        self._opened = Services(
            store=self._store,
            host=host,
            holds=Holds(self._store, host, self._events),
            jobs=Jobs(self._store, self._handlers),
        )
        self._opening = None

    def clone(self) -> Self:
        """Return an unopened app on the same store with the same tasks, for another event loop."""
        other = type(self)(
            self._store.clone(),
            migrate=self._migrate,
            require=self._require.name if self._require is not None else None,
            scope=self._scope,
            connect=self._connect,
            lifespan=self._lifespan,
        )
        for name in (
            "_is_default_store",
            "_settings",
            "_handlers",
            "_queues",
            "_around",
            "_plans",
            "_timed",
        ):
            setattr(other, name, getattr(self, name))
        other._events = Events(self._events)  # noqa: SLF001 - of the same class
        return other

    async def close(self) -> None:
        """Finish what is being given back, stop renewing, disconnect. Safe to call twice."""
        if self._is_inherited:
            return
        await self._leave_closed_loop()
        if self.is_open and self._loop is not asyncio.get_running_loop():
            raise StoreError(self._on_another_loop())
        if self._opening is not None:
            await self._opening.stop()
            self._opening = None
        # Still there until all is done: a close that was cancelled can be finished by another.
        if self._opened is not None:
            await self._opened.holds.close()
            await self._opened.host.close()
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
    def is_open(self) -> bool:
        """Whether it was opened in this process and not closed since, nor its event loop."""
        return self._is_begun and not self._is_inherited and not self._is_loop_closed

    @property
    def is_ready(self) -> bool:
        """Whether it is open and has reached its store once; for readiness probes.

        Always true while it is open, except with connect="lazy". It stays true in an outage. An app
        that was never opened is not ready, even if an `AsyncRouter` has opened a connection.
        """
        return self._opened is not None and self.is_open

    @property
    def traits(self) -> Traits:
        """What the store can do and survive; complete once the app is open."""
        return self._store.traits

    @property
    def url(self) -> str:
        """The URL of the store, without its password."""
        return self._store.url

    @property
    def settings(self) -> Settings:
        """What it goes by."""
        return self._settings

    @property
    def _work_settings(self) -> Settings:
        """What workers go by: with the time that child processes may take to start."""
        if any(handler.executor == "process" for handler in self._handlers.values()):
            settings = self._settings
            return WorkSettings(**asdict(settings), start_allowance=settings.process_start)
        return self._settings

    def on_event(self, subscriber: Callable[[Event], None]) -> None:
        """Have `subscriber` called with every event. It must be quick; see `tenure.observe`."""
        self._events.subscribe(subscriber)

    @property
    def _is_begun(self) -> bool:
        return self._opened is not None or self._opening is not None

    @property
    def _is_inherited(self) -> bool:
        return self._pid != os.getpid()

    def _check_scope(self) -> None:
        """Raise ConfigError for a store that other replicas would not see."""
        if not reaches(self._store.traits.scope, self._scope):
            raise ConfigError(scope_problem(self.url, self._store.traits.scope, self._scope))

    @property
    def _is_loop_closed(self) -> bool:
        return self._loop is not None and self._loop.is_closed()

    async def _leave_closed_loop(self) -> None:
        """Give up what was opened on an event loop that is closed. Leases end with their ttl.

        A test that does not close the app leaves it so, and the next test has another loop.
        """
        if self._is_inherited or not self._is_loop_closed:
            return
        opened, self._opened, self._opening = self._opened, None, None
        if opened is None:
            return
        left, self._store = self._store, self._store.clone()
        left.abandon()
        await opened.host.close(is_loop_closed=True)

    def _services(self) -> Services:
        if self._is_begun and self._is_inherited:
            msg = f"{self!r} was opened by the parent process. Open it again after the fork."
            raise StoreError(msg)
        if not self._is_begun:
            msg = f"{self!r} is not open. Use it inside 'async with app:'."
            raise StoreError(msg)
        if self._loop is not asyncio.get_running_loop():
            raise StoreError(self._on_another_loop())
        if self._opening is not None:
            raise self._opening.error()
        assert self._opened is not None
        return self._opened

    def _on_another_loop(self) -> str:
        return (
            f"{self!r} was opened on another event loop. Open, use and close it on the same loop: "
            "inside the same asyncio.run(), once per loop in tests."
        )

    def _holds(self) -> Holds:
        return self._services().holds


def services_here(app: Lifecycle) -> Services | None:
    """Return what an app works with that is open on this event loop; None if it is not.

    The door for what is built on apps.
    """
    here = app._loop is asyncio.get_running_loop()  # noqa: SLF001 - of the same house
    return app._services() if app.is_open and here else None  # noqa: SLF001 - of the same house


def _given(name: str, value: Any) -> tuple[Any, str]:
    """Return what was given for `name`, here or in the environment, and where that was."""
    variable = f"TENURE_{name.upper()}"
    if value is None and (text := os.environ.get(variable)):
        return text, variable
    return value, name


def _store(url: str | LeaseStore | None, what: str, namespace: str, clock: Clock | None) -> Store:
    if url is None:
        url = URL_DEFAULT
    if isinstance(url, str):
        return connect(url, namespace=namespace, clock=clock or SystemClock(), what=what)
    if hasattr(url, "leases"):
        return as_full_store(url)
    msg = f"{what} must be text such as 'sqlite:///file.db', not {url!r}."
    raise ConfigError(msg)


def _scope(scope: str | None, what: str) -> Scope:
    for known in SCOPES:
        if scope in (None, known):
            return known
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
