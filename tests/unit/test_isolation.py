"""Passing suspicious jobs on, with a store and a supervisor that the test plays."""

import asyncio
from typing import Any

from tenure.core.jobs.records import Claimed, JobRecord, Settled
from tenure.core.jobs.replicas import Orphans
from tenure.core.settings import Settings
from tenure.runtime.attempts.settler import Ended
from tenure.runtime.supervised.messages import IsolationJoined, IsolationLeft
from tenure.runtime.work.isolation import Isolation


def job(id_: str, losses: int) -> JobRecord:
    return JobRecord(
        id=id_, task="t", queue="default", priority=5, state="running", payload=b"",
        created=0, due=0, attempt=1, losses=losses, fence=1, replica="ann",
    )  # fmt: skip


class Place:
    """Claims get another job than the one that was given back."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.back: list[str] = []
        self.left: list[str] = []
        self.reports: list[tuple[str, str, Settled]] = []

    @property
    def jobs(self) -> Any:
        return self

    async def beat(self, replicas: list[str], *, ttl: float, meta: Any) -> None: ...

    async def settle(self, settlements: Any) -> list[Settled]:
        self.back += [settlement.id for settlement in settlements]
        return ["settled"] * len(settlements)

    async def claim(self, *_: Any) -> Claimed:
        return Claimed([job("innocent", 0)])

    async def orphans(self, *, replica: str, **_: Any) -> Orphans:
        self.left.append(replica)
        return Orphans(0, [])

    # What it needs of a worker and its line to the supervisor.

    is_closed = False

    async def until_answered(self, _: str, call: Any, **__: Any) -> Any:
        return await call()

    def send(self, message: Any) -> None:
        self.messages.append(message)

    def hand_back(self, record: JobRecord, delay: float = 0.0, *, reason: str) -> None:
        self.handed.append((record.id, delay, reason))

    def report(self, ended: Ended, answer: Settled) -> None:
        self.reports.append((ended.job.id, ended.reason, answer))


async def test_after_a_claim_that_got_another_job_it_waits_a_moment(clock):
    place: Any = Place(clock)
    place.messages, place.handed = [], []
    isolation = Isolation(
        place, place, place, Settings.read({}, {}), place, meta={}, stopped=asyncio.Event()
    )
    isolation.waiting.append(job("bad", 9))
    await isolation.run_isolated()
    assert place.back == ["bad", "innocent"]
    assert [type(message) for message in place.messages] == [IsolationJoined, IsolationLeft]
    assert len(place.left) == 1
    # It comes back at once, and goes elsewhere for a while.
    isolation.waiting.append(job("bad", 9))
    await isolation.run_isolated()
    [(id_, delay, _)] = place.handed
    assert (id_, 0.9 <= delay <= 2) == ("bad", True)
    assert place.reports == [
        ("bad", "it moves to a process of its own", "settled"),
        ("innocent", "no process is free for it", "settled"),
    ]
    assert len(place.messages) == 2
    clock.shift(1)
    isolation.waiting.append(job("bad", 9))
    await isolation.run_isolated()
    assert len(place.messages) == 4
