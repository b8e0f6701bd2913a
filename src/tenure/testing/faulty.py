"""A store that fails on purpose, in front of any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self, TypeVar

from tenure.core.clock import Clock, SystemClock
from tenure.core.model import Acquired, Finding, Lease, Mark, Meta, Topic, Traits
from tenure.core.records import (
    Beat,
    Cancelled,
    Claimed,
    Deleted,
    Inserted,
    JobRecord,
    NewJob,
    Note,
    Orphans,
    Page,
    Pruned,
    QueueCounts,
    ReplicaRecord,
    Requeued,
    Settled,
    Settlement,
    Tagged,
)
from tenure.core.schedules.records import (
    DECISIONS_MAX,
    Commit,
    Committed,
    Declared,
    ScheduleList,
    TickLine,
)
from tenure.core.soundness import Stranded
from tenure.errors import StoreUnavailable
from tenure.stores.connect import connect
from tenure.stores.contract import Migrate, Purpose, Store, Watch, Within

__all__ = ["Faults", "FaultyStore"]

T = TypeVar("T")


class Faults:
    """What shall go wrong, by name of the store call; shared by a store and its clones.

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
        """Let everything work again."""
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
    """Passes calls on to another store, except for what `faults` says.

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

    def within(self, connection: object, purpose: Purpose) -> Within:
        return self._store.within(connection, purpose)

    def clone(self) -> Self:
        return type(self)(self._store.clone(), self.faults)

    async def now(self) -> int:
        return await self._pass("now", self._store.now)

    async def incarnation(self) -> str:
        return await self._pass("incarnation", self._store.incarnation)

    async def examine(self) -> list[Finding]:
        return await self._pass("examine", self._store.examine)

    async def prune(self, *, idle: float, limit: int = 1000) -> Pruned:
        return await self._pass("prune", lambda: self._store.prune(idle=idle, limit=limit))

    def watch(self, *topics: Topic) -> AbstractAsyncContextManager[Watch]:
        return self._store.watch(*topics)

    async def acquire(self, key: str, **details: Any) -> Acquired:
        return await self._pass("acquire", lambda: self._store.acquire(key, **details))

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        return await self._pass("renew", lambda: self._store.renew(leases))

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        return await self._pass("release", lambda: self._store.release(leases))

    async def discard(self, key: str) -> bool:
        return await self._pass("discard", lambda: self._store.discard(key))

    async def leases(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        return await self._pass("leases", lambda: self._store.leases(prefix, limit=limit))

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        return await self._pass("mark", lambda: self._store.mark(key, lease, value))

    async def marked(self, keys: Sequence[str]) -> list[Mark | None]:
        return await self._pass("marked", lambda: self._store.marked(keys))

    def guard(self, connection: object, lease: Lease) -> bool | Awaitable[bool]:
        return self._store.guard(connection, lease)

    async def join(self, replica: str, *, ttl: float, meta: Meta) -> None:
        await self._pass("join", lambda: self._store.join(replica, ttl=ttl, meta=meta))

    async def beat(
        self, replicas: Sequence[str], *, ttl: float, ahead: float = 0.0, count: bool = True
    ) -> list[Beat | None]:
        def beat() -> Awaitable[list[Beat | None]]:
            return self._store.beat(replicas, ttl=ttl, ahead=ahead, count=count)

        return await self._pass("beat", beat)

    async def replicas(self, *, limit: int = 1000) -> list[ReplicaRecord]:
        return await self._pass("replicas", lambda: self._store.replicas(limit=limit))

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await self._pass("insert", lambda: self._store.insert(jobs))

    async def claim(
        self, replica: str, claim_no: int, queues: Sequence[str], limit: int
    ) -> Claimed | None:
        return await self._pass(
            "claim", lambda: self._store.claim(replica, claim_no, queues, limit)
        )

    async def settle(self, replica: str, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._pass("settle", lambda: self._store.settle(replica, settlements))

    async def note(self, replica: str, notes: Sequence[Note]) -> list[bool]:
        return await self._pass("note", lambda: self._store.note(replica, notes))

    async def orphans(self, **wanted: Any) -> Orphans:
        return await self._pass("orphans", lambda: self._store.orphans(**wanted))

    async def cancel(self, ids: Sequence[str], *, reason: str = "") -> list[Cancelled | None]:
        return await self._pass("cancel", lambda: self._store.cancel(ids, reason=reason))

    async def requeue(self, ids: Sequence[str]) -> list[Requeued | None]:
        return await self._pass("requeue", lambda: self._store.requeue(ids))

    async def delete(self, ids: Sequence[str]) -> list[Deleted | None]:
        return await self._pass("delete", lambda: self._store.delete(ids))

    async def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return await self._pass("get", lambda: self._store.get(ids))

    async def find(self, **wanted: Any) -> Page:
        return await self._pass("find", lambda: self._store.find(**wanted))

    async def counts(self) -> list[QueueCounts]:
        return await self._pass("counts", self._store.counts)

    async def stranded(
        self, ids: Sequence[str] | None = None, *, limit: int = 100
    ) -> list[Stranded]:
        return await self._pass("stranded", lambda: self._store.stranded(ids, limit=limit))

    async def count_tagged(self, tag: str, **limits: Any) -> Tagged:
        return await self._pass("count_tagged", lambda: self._store.count_tagged(tag, **limits))

    async def pause(self, queue: str, *, seconds: float | None = None) -> None:
        await self._pass("pause", lambda: self._store.pause(queue, seconds=seconds))

    async def resume(self, queue: str) -> None:
        await self._pass("resume", lambda: self._store.resume(queue))

    async def schedules(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int = 1000
    ) -> ScheduleList:
        return await self._pass(
            "schedules", lambda: self._store.schedules(names, after=after, limit=limit)
        )

    async def declare(self, rulers: Sequence[tuple[str, str]]) -> Declared:
        return await self._pass("declare", lambda: self._store.declare(rulers))

    async def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        return await self._pass("commit", lambda: self._store.commit(commits))

    async def decisions(self, name: str, *, limit: int = DECISIONS_MAX) -> list[TickLine]:
        return await self._pass("decisions", lambda: self._store.decisions(name, limit=limit))

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


def _take(counter: Counter[str], call: str) -> bool:
    if counter[call] <= 0:
        return False
    counter[call] -= 1
    return True
