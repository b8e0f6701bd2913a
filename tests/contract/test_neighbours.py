"""Keys and namespaces do not affect each other: next to busy ones each answers as if alone.

What it answers alone is asked of a memory store, so this also shows that all stores agree.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import pytest

from tenure.core.jobs.records import Note, Unique
from tenure.core.leases import Lease
from tenure.core.schedules.records import (
    DECISIONS_MAX,
    TIMERS_QUEUE,
    Commit,
    Expected,
    Room,
    Write,
)
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import ask
from tests.contract.commit_calls import tick_line
from tests.contract.job_calls import AT_ONCE, ended, id_of, new
from tests.contract.stories import Step, alone, check_answers, play
from tests.contract.worlds import World
from tests.rig.endings import bury, leave, recover


def asks(holder: str, **details: Any) -> Step:
    return lambda store, key: ask(store, key, holder, **details)


def releases(*holders: str) -> Step:
    return lambda store, key: store.leases.release(
        [Lease(key=key, holder=holder) for holder in holders]
    )


async def live(store: Store, key: str) -> list[Lease]:
    return [lease for lease in await store.leases.find(key) if lease.key == key]


async def renew_all(store: Store, key: str) -> list[bool | None]:
    return await store.leases.renew(
        [lease for lease in await live(store, key) if not lease.waiting]
    )


async def mark_first(store: Store, key: str) -> Any:
    lease = (await live(store, key))[0]
    return await store.leases.mark(f"{key}-done", lease, "v1"), await store.leases.marked(
        [f"{key}-done"]
    )


LEASES: list[Step] = [
    asks("ann", limit=3, ttl=30, meta={"n": "1"}),
    asks("ben", limit=3, ttl=20),
    asks("cid", limit=2, waiting=60),
    asks("dan", limit=3, waiting=15, meta={"n": "2"}),
    asks("eve", limit=3),
    live,
    5.0,
    asks("ann", limit=3, ttl=30),
    asks("cid", limit=2, waiting=60),
    mark_first,
    releases("ben"),
    asks("dan", limit=3, waiting=15),
    asks("cid", limit=2, waiting=60),
    renew_all,
    live,
    12.0,
    asks("eve", limit=3, waiting=5),
    asks("dan", limit=3, waiting=15),
    live,
    releases("dan", "nobody"),
    asks("fay", limit=3, waiting=5),
    14.0,
    live,
    asks("eve", limit=1, ttl=5),
    renew_all,
    4.0,
    releases("cid", "ann"),
    asks("eve", limit=1, ttl=9),
    5.0,
    live,
    asks("gil", limit=1),
    20.0,
    asks("gil", limit=1, ttl=3),
    live,
    releases("gil"),
    live,
]


@pytest.mark.leases
async def test_a_key_next_to_busy_ones_answers_as_if_alone(world: World, clock: ManualClock):
    expected = await alone(LEASES, "place-x")
    here, there = await world.store(), await world.store(f"{world.namespace}-other")
    places = [(store, key) for key in ("place-a", "place-b") for store in (here, there)]
    for answers in await play(LEASES, places, clock):
        check_answers(LEASES, answers, expected)


# Jobs.


_OF_SEVERAL_CALLS = {"recover": recover, "leave": leave, "bury": bury}


def calls(name: str, *arguments: Any, **named: Any) -> Step:
    if name in _OF_SEVERAL_CALLS:
        return lambda store, _: _OF_SEVERAL_CALLS[name](store, *arguments, **named)
    call = attrgetter(name)
    return lambda store, _: call(store)(*arguments, **named)


def claims(replica: str, number: int, limit: int = 3) -> Step:
    return calls("jobs.claim", replica, number, ["default", "slow"], limit)


def settles(replica: str, number: int, outcome: str, **details: Any) -> Step:
    async def step(store: Store, _: str) -> Any:
        [job] = await store.jobs.get([id_of(number)])
        assert job is not None
        return await store.jobs.settle([ended(job, outcome, **details)])

    return step


async def notes(store: Store, _: str) -> Any:
    page = await store.jobs.find(state="running")
    running = await store.jobs.get([view.id for view in page.jobs])
    return [
        await store.jobs.note([Note(id=job.id, fence=job.fence, progress=0.5)])
        for job in running
        if job
    ]


ALL_JOBS: list[Step] = [
    calls("jobs.counts"),
    calls("jobs.replicas"),
    calls("jobs.find"),
    calls("jobs.get", [id_of(number) for number in range(1, 9)]),
]

JOBS: list[Step] = [
    calls("jobs.beat", ["ann"], ttl=10.0, meta={"n": "1"}),
    calls("jobs.beat", ["ben"], ttl=30.0, meta={}),
    calls(
        "jobs.insert",
        [
            new(1, retention=50, tags=("t",)),
            new(2, queue="slow", priority=5, tags=("t",)),
            new(3, unique=Unique(key="u"), timeout=9.0),
            new(4, delay=7.0, tags=("t",)),
            new(5, unique=Unique(key="u")),
            new(6, queue="other", retention=5),
        ],
    ),
    calls("jobs.count_tagged", "t", unfinished=10, recent=10, within=100.0),
    claims("ann", 1, limit=2),
    claims("ben", 1),
    *ALL_JOBS,
    calls("jobs.pause", "slow", seconds=5.0),
    notes,
    settles("ann", 2, "succeeded", result=b"r"),
    calls("jobs.cancel", [id_of(3), id_of(4), id_of(8)], reason="why"),
    calls("jobs.beat", ["ann", "ben", "nobody"], ttl=10.0),
    8.0,
    *ALL_JOBS,
    claims("ben", 2),
    4.0,
    calls("recover", delays=AT_ONCE, grace=0),
    *ALL_JOBS,
    calls("leave", "ben"),
    calls("jobs.pause", "slow", seconds=0),
    calls("jobs.requeue", [id_of(2), id_of(4), id_of(1)]),
    calls("jobs.beat", ["cid"], ttl=10.0, meta={}),
    claims("cid", 1, limit=5),
    *ALL_JOBS,
    100.0,
    calls("prune", idle=1e9),
    calls("recover", delays=AT_ONCE, grace=0),
    *ALL_JOBS,
    calls("jobs.count_tagged", "t", unfinished=10, recent=10, within=10.0),
]


async def test_the_jobs_of_a_namespace_next_to_a_busy_one_go_on_as_if_alone(
    world: World, clock: ManualClock
):
    expected = await alone(JOBS, "KEY")
    here, there = await world.store(), await world.store(f"{world.namespace}-other")
    for answers in await play(JOBS, [(here, "KEY"), (there, "KEY")], clock):
        check_answers(JOBS, answers, expected)


# Schedules.


SECOND = 1_000_000


def commits(name: str, number: int, *, others: Sequence[str] = (), **details: Any) -> Step:
    """Commit these changes to a schedule as it is now."""

    async def step(store: Store, _: str) -> Any:
        records = (await store.schedules.read([name, *others])).records
        versions = {record.name: record.version for record in records}
        expects = tuple(
            Expected(schedule, versions.get(schedule, "")) for schedule in (name, *others)
        )
        planned = {"id": id_of(number), "name": name, "expects": expects}
        return await store.schedules.commit([Commit(**{**planned, **details})])

    return step


def runs(name: str, number: int, seconds: int, **details: Any) -> Step:
    """Commit a run of a schedule for a tick, in seconds after the start of the test's clock."""
    run = new(number, task="@sync", queue=TIMERS_QUEUE, schedule=name, retention=60.0)
    line = tick_line(f"ran {number}", first=seconds * SECOND)
    return commits(name, number, **{"run": run, "tick": line.first, "run_line": line, **details})


def full(most: int, on: str = "") -> Room:
    return Room(most, on, tick_line("full", like="full"))


ALL_SCHEDULES: list[Step] = [
    calls("schedules.read"),
    calls("schedules.read", ["sync", "absent"]),
    calls("schedules.read", after="next", limit=1),
    calls("schedules.read", ["sync"], lines=DECISIONS_MAX),
    calls("schedules.read", ["other"], lines=DECISIONS_MAX),
    calls("jobs.counts"),
]

SCHEDULES: list[Step] = [
    calls("jobs.beat", ["ann"], ttl=100.0, meta={}),
    commits("sync", 101, writes=(Write("sync", "one", "r", "d"),)),
    commits("other", 102, writes=(Write("other", "two", "r", "d"),), lines=(tick_line("new"),)),
    commits("sync", 103, writes=(Write("sync", "moved", "r"),), expects=(Expected("sync", ""),)),
    *ALL_SCHEDULES,
    runs("sync", 104, 5, start_on="ann"),
    5.0,
    runs("sync", 104, 5, start_on="ann"),
    runs("other", 105, 3, rooms=(full(2),), writes=(Write("other", "three", "r"),)),
    runs("sync", 106, 6, start_on="ann", rooms=(full(2), full(1, "ann"))),
    runs("sync", 107, 7, rooms=(Room(1),)),
    runs("sync", 108, 7, start_on="ben"),
    *ALL_SCHEDULES,
    settles("ann", 104, "succeeded"),
    12.0,
    calls("schedules.declare", [("sync", "r"), ("other", "another"), ("absent", "r")]),
    commits("other", 109, expects=(Expected("other", id_of(105), 15.0),), declares=True),
    runs("sync", 110, 8, start_on="ann", rooms=(full(1, "ann"),), declares=True),
    runs("other", 111, 9, rooms=(full(1),)),
    runs("other", 112, 10, rooms=(full(1),)),
    *ALL_SCHEDULES,
    commits(
        "next",
        113,
        others=("sync",),
        writes=(Write("next", "goes on", "r", "d", ("sync",)), Write("sync", "rests", "r")),
    ),
    *ALL_SCHEDULES,
    commits("other", 114, writes=(Write("other", None),), rooms=(Room(1),)),
    calls("jobs.cancel", [id_of(105), id_of(110)]),
    commits("other", 115, writes=(Write("other", None),), rooms=(Room(1),)),
    200.0,
    calls("recover", delays=AT_ONCE, grace=0),
    calls("prune", idle=1e9),
    *ALL_SCHEDULES,
]


async def test_the_schedules_of_a_namespace_next_to_a_busy_one_go_on_as_if_alone(
    world: World, clock: ManualClock
):
    expected = await alone(SCHEDULES, "KEY")
    here, there = await world.store(), await world.store(f"{world.namespace}-other")
    for answers in await play(SCHEDULES, [(here, "KEY"), (there, "KEY")], clock):
        check_answers(SCHEDULES, answers, expected)
