"""A store that fails on purpose, in front of any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Self, TypeVar, cast

from tenure.core.clock import Clock, SystemClock
from tenure.core.jobs.records import Pruned
from tenure.core.leases import Finding, Pong, Topic, Traits
from tenure.errors import StoreUnavailable
from tenure.stores.connect import connect
from tenure.stores.contract import (
    Jobs,
    Leases,
    Migrate,
    Purpose,
    Schedules,
    Store,
    UserTransaction,
    Watch,
)

__all__ = ["Faults", "FaultyStore"]

T = TypeVar("T")


class Faults:
    """The faults to inject, by name of the store call. A store shares them with its clones.

    The first `beat` of a replica, with which it joins, has the name "join".

    faults.lose_reply("acquire")            # it happens, but the caller sees an error
    faults.lose_request("renew", times=3)   # it does not happen
    faults.delay("release", 0.5)            # seconds of the clock, before it happens
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._replies: Counter[str] = Counter()
        self._delays: dict[str, float] = {}

    def lose_request(self, call: str, times: int = 1) -> None:
        self._requests[call] += times

    def lose_reply(self, call: str, times: int = 1) -> None:
        self._replies[call] += times

    def delay(self, call: str, seconds: float) -> None:
        self._delays[call] = seconds

    def heal(self) -> None:
        """Remove all faults."""
        self._requests.clear()
        self._replies.clear()
        self._delays.clear()

    def delay_of(self, call: str) -> float:
        return self._delays.get(call, 0.0)

    def takes_request(self, call: str) -> bool:
        return _take(self._requests, call)

    def takes_reply(self, call: str) -> bool:
        return _take(self._replies, call)


class FaultyStore:
    """Passes calls on to another store, and injects the faults in `faults`.

    app = Tenure(FaultyStore("memory://", faults, clock=ManualClock()))
    """

    def __init__(
        self,
        store: Store | str,
        faults: Faults | None = None,
        *,
        namespace: str = "tenure",
        clock: Clock | None = None,
    ) -> None:
        if isinstance(store, str):
            store = connect(store, namespace=namespace, clock=clock or SystemClock())
        self._store = store
        self.faults = faults or Faults()
        self.clock = store.clock
        self.namespace = store.namespace
        self.damage = store.damage
        self.leases = cast("Leases", _FaultyPart(store.leases, self._pass))
        self.jobs = cast("Jobs", _FaultyPart(store.jobs, self._pass))
        self.schedules = cast("Schedules", _FaultyPart(store.schedules, self._pass))

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def traits(self) -> Traits:
        return self._store.traits

    async def open(self, migrate: Migrate = "auto") -> None:
        await self._pass("open", lambda: self._store.open(migrate))

    async def close(self) -> None:
        await self._store.close()

    def abandon(self) -> None:
        self._store.abandon()

    def clone(self) -> Self:
        return type(self)(self._store.clone(), self.faults)

    async def ping(self) -> Pong:
        return await self._pass("ping", self._store.ping)

    async def examine(self) -> list[Finding]:
        return await self._pass("examine", self._store.examine)

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        return await self._pass("prune", lambda: self._store.prune(idle=idle, limit=limit))

    def watch(self, *topics: Topic) -> AbstractAsyncContextManager[Watch]:
        return self._store.watch(*topics)

    def within(self, connection: object, purpose: Purpose) -> UserTransaction:
        return self._store.within(connection, purpose)

    async def _pass(self, call: str, send: Callable[[], Awaitable[T]]) -> T:
        self.faults.calls[call] += 1
        if delay := self.faults.delay_of(call):
            await self.clock.sleep(delay)
        if self.faults.takes_request(call):
            msg = f"the request {call!r} was lost on purpose"
            raise StoreUnavailable(msg)
        answer = await send()
        if self.faults.takes_reply(call):
            msg = f"the reply to {call!r} was lost on purpose"
            raise StoreUnavailable(msg)
        return answer


class _FaultyPart:
    """The leases, jobs or schedules of a faulty store."""

    def __init__(
        self, part: object, send: Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
    ) -> None:
        self._part = part
        self._send = send

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._part, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            is_join = name == "beat" and options.get("meta") is not None
            sent = "join" if is_join else name
            return await self._send(sent, lambda: method(*arguments, **options))

        return call


def _take(counter: Counter[str], call: str) -> bool:
    if counter[call] <= 0:
        return False
    counter[call] -= 1
    return True
