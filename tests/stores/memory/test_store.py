"""The memory store alone: several threads may use its clones at once."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tenure.core.jobs.records import NewJob, Note
from tenure.core.leases import Lease
from tenure.core.schedules.records import Commit
from tenure.stores.contract import Store
from tenure.stores.memory import MemoryStore
from tenure.stores.memory.database import Database
from tenure.testing import ManualClock
from tests.rig.endings import bury, leave, recover, settlement
from tests.rig.lookups import decisions
from tests.rig.wait import wait_until

LEASE = Lease(key="key", holder="ann", fence=1, ttl=10)
JOB = NewJob(id="job", task="work", queue="default")
DONE = settlement(id="job", fence=1, outcome="succeeded")

CALLS: dict[str, Callable[[Store], Coroutine[Any, Any, Any]]] = {
    "acquire": lambda store: store.leases.acquire(
        "key", holder="ann", limit=1, ttl=10, meta={}, waiting=0.0
    ),
    "renew": lambda store: store.leases.renew([LEASE]),
    "release": lambda store: store.leases.release([LEASE]),
    "find leases": lambda store: store.leases.find(),
    "discard": lambda store: store.leases.discard("key"),
    "mark": lambda store: store.leases.mark("key", LEASE, "value"),
    "marked": lambda store: store.leases.marked(["key"]),
    "prune": lambda store: store.prune(idle=1),
    "join": lambda store: store.jobs.beat(["ann"], ttl=10, meta={}),
    "beat": lambda store: store.jobs.beat(["ann"], ttl=10),
    "leave": lambda store: leave(store, "ann"),
    "bury": lambda store: bury(store, "ann", [], delays=[1.0]),
    "recover": lambda store: recover(store, delays=[1.0], grace=1),
    "replicas": lambda store: store.jobs.replicas(),
    "insert": lambda store: store.jobs.insert([JOB]),
    "claim": lambda store: store.jobs.claim("ann", claim_no=1, queues=["default"], limit=1),
    "settle": lambda store: store.jobs.settle([DONE]),
    "note": lambda store: store.jobs.note([Note(id="job", fence=1)]),
    "cancel": lambda store: store.jobs.cancel(["job"]),
    "requeue": lambda store: store.jobs.requeue(["job"]),
    "delete": lambda store: store.jobs.delete(["job"]),
    "get": lambda store: store.jobs.get(["job"]),
    "find": lambda store: store.jobs.find(),
    "counts": lambda store: store.jobs.counts(),
    "count_tagged": lambda store: store.jobs.count_tagged("tag", unfinished=1, recent=1, within=60),
    "pause": lambda store: store.jobs.pause("default"),
    "resume": lambda store: store.jobs.pause("default", seconds=0),
    "read": lambda store: store.schedules.read(),
    "declare": lambda store: store.schedules.declare([("sync", "ruler")]),
    "commit": lambda store: store.schedules.commit([Commit(id="run", name="sync")]),
    "decisions": lambda store: decisions(store, "sync"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_waits_for_the_call_of_another_thread(call: str):
    store = MemoryStore("memory://", namespace="test", clock=ManualClock())
    done: list[object] = []

    async def use() -> None:
        await store.open()
        ready.set()
        go.wait(10)
        done.append(await CALLS[call](store))
        await store.close()

    ready, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    assert ready.wait(10)
    with store.lock:
        go.set()
        thread.join(0.05)
        assert not done
    thread.join(10)
    wait_until(lambda: done)


class Depth:
    """The lock of a store, and how often one thread has held it at once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._now = 0
        self.deepest = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._now += 1
        self.deepest = max(self.deepest, self._now)

    def __exit__(self, *_: object) -> None:
        self._now -= 1
        self._lock.release()


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_holds_the_lock_all_the_time(call: str):
    """And not only for the look at what is stored, which takes the lock by itself."""
    database = Database()
    database.lock = depth = Depth()
    store = MemoryStore("memory://", namespace="test", clock=ManualClock(), database=database)
    await store.open()
    await CALLS[call](store)
    assert depth.deepest >= 2
    await store.close()
