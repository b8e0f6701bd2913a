"""The engine of an app: its store, and what stands on it while the app is open.

`Tenure` is the facade for users; everything else inside the package works with the engine of an
app, which `engine_of(app)` returns. An engine is open on one event loop of one process. It notices
when it was inherited by a fork, or when its event loop was closed, and can then be opened again.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from tenure.app.config import Config
from tenure.app.lifespan import WorkScope
from tenure.app.open_attempts import OpenAttempts
from tenure.app.registry import Registry
from tenure.app.setup import warn_about_setup
from tenure.app.store_calls import with_reports
from tenure.core.environment import reaches, scope_problem
from tenure.core.settings import Settings, WorkSettings
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.locks.hold import Holds
from tenure.observe.events import Events
from tenure.runtime.host import Host
from tenure.stores.contract import Store

if TYPE_CHECKING:
    from tenure.jobs import Jobs

__all__ = ["Engine", "Services"]


class Services:
    """What is there while an app is open, all on one event loop."""

    def __init__(
        self, store: Store, events: Events, registry: Registry, settings: Settings
    ) -> None:
        self.store = store
        self.host = Host(store)
        self.holds = Holds(store, self.host, events)
        self._registry = registry
        self._events = events
        self._settings = settings

    @cached_property
    def jobs(self) -> Jobs:
        """Stores jobs and looks them up. Made at its first use."""
        from tenure.jobs import EnqueueHooks, Jobs  # noqa: PLC0415 - locks do without jobs

        registry = self._registry
        hooks = EnqueueHooks(registry.enqueue_hooks, registry.around_enqueue)
        return Jobs(
            self.store,
            registry.handlers,
            hooks=hooks,
            events=self._events,
            isolate_after=self._settings.isolate_after,
        )


class Engine:
    """Opens and closes the store of an app, and holds what is open."""

    def __init__(
        self, config: Config, store: Store, registry: Registry, events: Events, app: object
    ) -> None:
        """`app` is what users have: what the lifespan is called with, and what errors name."""
        self._name = type(app).__name__
        self.config = config
        self.store = store
        self.registry = registry
        self.events = events
        lifespan = config.lifespan
        self.work = WorkScope(None if lifespan is None else partial(lifespan, app))
        self._services: Services | None = None
        self._opening: OpenAttempts | None = None  # while the store is down
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._of_parent: list[object] = []

    def __repr__(self) -> str:
        return f"{self._name}({self.store.url!r}, namespace={self.store.namespace!r})"

    def copy(self, app: object) -> Engine:
        """Return an unopened engine for a copy of the app: the same declarations and settings."""
        return Engine(self.config, self.store.clone(), self.registry, Events(self.events), app)

    @property
    def settings(self) -> Settings:
        return self.config.settings

    @property
    def work_settings(self) -> Settings:
        """The settings of workers: with the time that child processes may take to start."""
        settings = self.settings
        if self.registry.runs_processes:
            return WorkSettings(**asdict(settings), start_allowance=settings.process_start)
        return settings

    # Opening.

    async def open(self, *, is_lazy: bool) -> None:
        """Connect; `is_lazy` goes on trying in the background while the store is down."""
        if self.is_open:
            msg = f"{self!r} is open already. Open it once, where your service starts."
            raise ConfigError(msg)
        await self._leave_closed_loop()
        if self._is_inherited:
            # Kept, not closed: its connections are the parent's.
            self._of_parent.append((self.store, self._services, self._opening))
            self._services = self._opening = None
            self.store, self._pid = self.store.clone(), os.getpid()
        self._check_scope()
        warn_about_setup(is_default_store=self.config.is_default_store)
        try:
            await self._reach()
        except StoreUnavailable as error:
            if not is_lazy:
                raise
            self._loop = asyncio.get_running_loop()
            self._opening = OpenAttempts(self._reach, self.store.clock, self.events, error)

    async def ready(self) -> None:
        """Wait until the store was reached. Raises ConfigError or StoreError if it is unusable."""
        while self.is_open and self._opening is not None:
            await self._opening.ended()
        self.services()

    async def _reach(self) -> None:
        """Connect and look at the format; from then on calls can be made."""
        await self.store.open(self.config.migrate)
        grade, require = self.store.traits.grade, self.config.require
        if require is not None and require < grade:
            await self.store.close()
            msg = (
                f"{self.store.url} has guarantee grade {grade.name} ({grade.value}), but "
                f"require={require.name!r} asks for {require.value}. "
                "'tenure doctor' says what to change."
            )
            raise ConfigError(msg)
        self._loop = asyncio.get_running_loop()
        store = self.store
        if self.events.has_subscribers:
            store = with_reports(store, self.events)
        services = Services(store, self.events, self.registry, self.settings)
        try:
            with suppress(StoreUnavailable):  # it has just answered; workers ask again
                await services.host.data.confirm(store, self.events)
        except BaseException:  # it was cancelled
            await self.store.close()
            raise
        self._services = services
        self._opening = None

    def _check_scope(self) -> None:
        """Raise ConfigError for a store that other replicas would not see."""
        scope = self.store.traits.scope
        if not reaches(scope, self.config.scope):
            raise ConfigError(scope_problem(self.store.url, scope, self.config.scope))

    # Closing.

    async def close(self) -> None:
        """Finish releases in flight, stop renewing, disconnect. Safe to call twice."""
        if self._is_inherited:
            return
        await self._leave_closed_loop()
        if self.is_open and self._loop is not asyncio.get_running_loop():
            raise StoreError(self._on_another_loop())
        if self._opening is not None:
            await self._opening.stop()
            self._opening = None
        # Still there until all is done: a close that was cancelled can be finished by another.
        if self._services is not None:
            await self._services.holds.close()
            await self._services.host.close()
            await self.store.close()
            self._services = None

    async def _leave_closed_loop(self) -> None:
        """Give up what was opened on an event loop that is closed. Leases end with their ttl.

        A test that does not close the app leaves it so, and the next test has another loop.
        """
        if self._is_inherited or not self._is_loop_closed:
            return
        services, self._services, self._opening = self._services, None, None
        if services is None:
            return
        left, self.store = self.store, self.store.clone()
        left.abandon()
        await services.host.close(is_loop_closed=True)

    # What is open.

    @property
    def is_open(self) -> bool:
        """Whether it was opened in this process and not closed since, nor its event loop."""
        return self._is_begun and not self._is_inherited and not self._is_loop_closed

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which it is open; None if it is not."""
        return self._loop if self.is_open else None

    @property
    def is_ready(self) -> bool:
        """Whether it is open and has reached its store once."""
        return self._services is not None and self.is_open

    @property
    def hides_calls(self) -> bool:
        """Whether nobody had subscribed when it was opened, so that no StoreCalled is made."""
        return self.is_ready and self._services is not None and self._services.store is self.store

    def services(self) -> Services:
        """Return what is open. Raises StoreError if nothing is, or not on this event loop."""
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
        assert self._services is not None
        return self._services

    def services_here(self) -> Services | None:
        """Return what is open on this event loop; None if nothing is."""
        is_here = self._loop is asyncio.get_running_loop()
        return self.services() if self.is_open and is_here else None

    @property
    def host(self) -> Host | None:
        """The host thread of this app, for liveness probes; None while nothing is open here."""
        return None if self._services is None or not self.is_open else self._services.host

    def holds(self) -> Holds:
        """Return what takes and keeps leases. Raises StoreError if the app is not open."""
        return self.services().holds

    @property
    def _is_begun(self) -> bool:
        return self._services is not None or self._opening is not None

    @property
    def _is_inherited(self) -> bool:
        return self._pid != os.getpid()

    @property
    def _is_loop_closed(self) -> bool:
        return self._loop is not None and self._loop.is_closed()

    def _on_another_loop(self) -> str:
        return (
            f"{self!r} was opened on another event loop. Open, use and close it on the same loop: "
            "inside the same asyncio.run(), once per loop in tests."
        )
