"""Keys, and namespaces, know nothing of each other: next to busy ones each answers as if alone.

What it answers alone is asked of a memory store, so this also shows that all stores agree.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from tenure.core.model import Lease
from tenure.core.records import Note, Unique
from tenure.core.schedules import EVERYTHING, Advance
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import ask
from tests.contract.job_calls import AT_ONCE, ended, id_of, new
from tests.contract.schedule_calls import SECOND, TIMERS, bound, planting
from tests.contract.worlds import World
from tests.rig.endings import bury, leave, recover

Step: TypeAlias = Callable[[Store, str], Awaitable[Any]] | float
"""A call on a key, or seconds that pass."""

AGES = 10**14  # microseconds: larger numbers are instants or fences


def asks(holder: str, **details: Any) -> Step:
    return lambda store, key: ask(store, key, holder, **details)


def releases(*holders: str) -> Step:
    return lambda store, key: store.release([Lease(key=key, holder=one) for one in holders])


async def live(store: Store, key: str) -> list[Lease]:
    return [lease for lease in await store.leases(key) if lease.key == key]


async def renew_all(store: Store, key: str) -> list[bool | None]:
    return await store.renew([lease for lease in await live(store, key) if not lease.waiting])


async def mark_first(store: Store, key: str) -> Any:
    lease = (await live(store, key))[0]
    return await store.mark(f"{key}-done", lease, "v1"), await store.marked([f"{key}-done"])


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


async def play(
    steps: Sequence[Step], places: Sequence[tuple[Store, str]], clock: ManualClock
) -> list[list[Any]]:
    """Take each step in each place, one after the other; return the answers by place."""
    began = clock.wall()
    answers: list[list[Any]] = [[] for _ in places]
    for step in steps:
        if isinstance(step, float):
            clock.shift(step)
            continue
        for (store, key), found in zip(places, answers, strict=True):
            found.append(_since(began, key, msgspec.to_builtins(await step(store, key))))
    return answers


def _since(began: int, key: str, answer: Any) -> Any:
    """Return an answer with instants as distances from the beginning, and without the key.

    Left out is where stores differ: some count fences for the whole namespace, and `Beat.now` is
    an instant of the clock that a store goes by.
    """
    if isinstance(answer, dict):
        return {
            _since(began, key, name): _since(began, key, part)
            for name, part in answer.items()
            if name not in ("fence", "revision", "now")
        }
    if isinstance(answer, list | tuple):
        return [_since(began, key, part) for part in answer]
    if isinstance(answer, str):
        return answer.replace(key, "KEY")
    if isinstance(answer, int) and answer > AGES:
        return answer - began
    return round(answer, 6) if isinstance(answer, float) else answer


async def alone(steps: Sequence[Step], key: str) -> list[Any]:
    """Return what a memory store answers that nothing else is on."""
    clock = ManualClock()
    store = connect("memory://", namespace="alone", clock=clock)
    await store.open()
    try:
        [answers] = await play(steps, [(store, key)], clock)
    finally:
        await store.close()
    return answers


async def test_a_key_next_to_busy_ones_answers_as_if_alone(world: World, clock: ManualClock):
    expected = await alone(LEASES, "place-x")
    here, there = await world.store(), await world.store(f"{world.namespace}-other")
    places = [(store, key) for key in ("place-a", "place-b") for store in (here, there)]
    for answers in await play(LEASES, places, clock):
        assert answers == expected


# Jobs.


_OF_SEVERAL_CALLS = {"recover": recover, "leave": leave, "bury": bury}


def calls(name: str, *arguments: Any, **named: Any) -> Step:
    if name in _OF_SEVERAL_CALLS:
        return lambda store, _: _OF_SEVERAL_CALLS[name](store, *arguments, **named)
    return lambda store, _: getattr(store, name)(*arguments, **named)


def claims(replica: str, number: int, limit: int = 3) -> Step:
    return calls("claim", replica, number, ["default", "slow"], limit)


def settles(replica: str, number: int, outcome: str, **details: Any) -> Step:
    async def step(store: Store, _: str) -> Any:
        [job] = await store.get([id_of(number)])
        assert job is not None
        return await store.settle(replica, [ended(job, outcome, **details)])

    return step


async def notes(store: Store, _: str) -> Any:
    page = await store.find(state="running")
    running = await store.get([view.id for view in page.jobs])
    return [
        await store.note(job.replica, [Note(id=job.id, fence=job.fence, progress=0.5)])
        for job in running
        if job
    ]


ALL_JOBS: list[Step] = [
    calls("counts"),
    calls("replicas"),
    calls("find"),
    calls("get", [id_of(number) for number in range(1, 9)]),
]

JOBS: list[Step] = [
    calls("join", "ann", ttl=10.0, meta={"n": "1"}),
    calls("join", "ben", ttl=30.0, meta={}),
    calls(
        "insert",
        [
            new(1, retention=50, tags=("t",)),
            new(2, queue="slow", priority=5, tags=("t",)),
            new(3, unique=Unique(key="u"), timeout=9.0),
            new(4, delay=7.0, tags=("t",)),
            new(5, unique=Unique(key="u")),
            new(6, queue="other", retention=5),
        ],
    ),
    calls("count_tagged", "t", unfinished=10, recent=10, within=100.0),
    claims("ann", 1, limit=2),
    claims("ben", 1),
    *ALL_JOBS,
    calls("pause", "slow", seconds=5.0),
    notes,
    settles("ann", 2, "succeeded", result=b"r"),
    calls("cancel", [id_of(3), id_of(4), id_of(8)], reason="why"),
    calls("beat", ["ann", "ben", "nobody"], ttl=10.0),
    8.0,
    *ALL_JOBS,
    claims("ben", 2),
    4.0,
    calls("recover", delays=AT_ONCE, grace=0),
    *ALL_JOBS,
    calls("leave", "ben"),
    calls("resume", "slow"),
    calls("requeue", [id_of(2), id_of(4), id_of(1)]),
    calls("join", "cid", ttl=10.0, meta={}),
    claims("cid", 1, limit=5),
    *ALL_JOBS,
    100.0,
    calls("prune_jobs"),
    calls("recover", delays=AT_ONCE, grace=0),
    *ALL_JOBS,
    calls("count_tagged", "t", unfinished=10, recent=10, within=10.0),
]


async def test_the_jobs_of_a_namespace_next_to_a_busy_one_go_on_as_if_alone(
    world: World, clock: ManualClock
):
    expected = await alone(JOBS, "KEY")
    here, there = await world.store(), await world.store(f"{world.namespace}-other")
    for answers in await play(JOBS, [(here, "KEY"), (there, "KEY")], clock):
        assert answers == expected


# Schedules.


def ticks(name: str, number: int, seconds: int, **details: Any) -> Step:
    """Move a cursor so far, with a run unless `run=None`."""

    async def step(store: Store, _: str) -> Any:
        [record] = await store.schedules([name])
        to = record.cursor + seconds * SECOND
        run = new(number, task="@sync", queue=TIMERS, schedule=name, retention=60.0)
        given = {"id": id_of(number), "to": to, "due": to, "run": run, **details}
        planned = {"name": name, "revision": record.revision, "seen": record.cursor}
        return await store.advance(Advance(**{**planned, **given}))

    return step


ALL_SCHEDULES: list[Step] = [
    calls("schedules"),
    calls("schedules", ["sync", EVERYTHING]),
    calls("decisions", "sync"),
    calls("decisions", "other"),
    calls("counts"),
]

SCHEDULES: list[Step] = [
    calls("join", "ann", ttl=100.0, meta={}),
    calls("plant", [planting("sync"), planting("other", b"other")]),
    *ALL_SCHEDULES,
    ticks("sync", 101, 5),
    5.0,
    ticks("sync", 101, 5, replica="ann"),
    ticks("other", 102, 3, limit=bound(2)),
    ticks("sync", 103, 0, replica="ann", own=bound(1, "busy")),
    ticks("sync", 104, 0, limit=bound(1, "full", "hold")),
    *ALL_SCHEDULES,
    settles("ann", 101, "succeeded"),
    2.0,
    ticks("sync", 105, 1, replica="ann", own=bound(1), rest=30.0),
    ticks("sync", 106, 1, replica="ann", own=bound(1)),
    calls("freeze", "other", reason="why"),
    calls("freeze", EVERYTHING, until=None, reason="all"),
    ticks("other", 107, 1),
    *ALL_SCHEDULES,
    calls("thaw", EVERYTHING),
    3.0,
    ticks("sync", 108, 3, run=None),
    ticks("other", 109, 2, forced=True),
    calls("thaw", "other"),
    calls("thaw", "other"),
    calls("plant", [planting("other", b"newer"), planting("next", renamed_from=("sync",))]),
    *ALL_SCHEDULES,
    calls("cancel", [id_of(102), id_of(106)]),
    200.0,
    calls("recover", delays=AT_ONCE, grace=0),
    calls("plant", [planting("other", b"newest")]),
    calls("prune_schedules", idle=100.0),
    calls("prune_jobs"),
    *ALL_SCHEDULES,
]


async def test_the_schedules_of_a_namespace_next_to_a_busy_one_go_on_as_if_alone(
    world: World, clock: ManualClock
):
    expected = await alone(SCHEDULES, "KEY")
    here, there = await world.store(), await world.store(f"{world.namespace}-other")
    for answers in await play(SCHEDULES, [(here, "KEY"), (there, "KEY")], clock):
        assert answers == expected
