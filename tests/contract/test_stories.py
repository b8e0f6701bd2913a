"""Long sequences of calls on one namespace that use everything: all stores answer them alike."""

from typing import Any

import pytest

from tenure.core.jobs.records import Note, Unique
from tenure.core.leases import Lease
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import ended, find_all, id_of, new
from tests.contract.stories import Step, alone, check_answers, play
from tests.contract.test_neighbours import asks, calls
from tests.contract.worlds import World


def all_of(*steps: Any) -> Step:
    """Combine several steps into one."""

    async def step(store: Store, key: str) -> Any:
        return [await each(store, key) for each in steps]

    return step


def at_key(name: str, step: Any) -> Step:
    return lambda store, _: step(store, name)


KEYS = ("a", "ab", "b", "c")


def leases_of(store: Store, order: str, **changes: Any) -> Any:
    """Return the leases of ann on these keys; a capital letter names a fence that is gone."""

    async def find() -> list[Lease]:
        by_name = {
            lease.key: lease
            for lease in await store.leases.find()
            if lease.holder == "ann" and not lease.waiting
        }
        leases = []
        for name in order.split():
            lease = by_name.get(name.lower()) or Lease(key=name.lower(), holder="ann", fence=1)
            fence = lease.fence + 1 if name.isupper() else lease.fence
            leases.append(
                Lease(key=lease.key, holder="ann", fence=fence, ttl=changes.get("ttl", lease.ttl))
            )
        return leases

    return find()


def renews(order: str, **changes: Any) -> Step:
    async def step(store: Store, _: str) -> Any:
        return await store.leases.renew(await leases_of(store, order, **changes))

    return step


def releases_in_order(order: str) -> Step:
    async def step(store: Store, _: str) -> Any:
        return await store.leases.release(await leases_of(store, order))

    return step


def marks(key: str, name: str, text: str) -> Step:
    async def step(store: Store, _: str) -> Any:
        [lease] = await leases_of(store, name)
        return await store.leases.mark(key, lease, text)

    return step


LISTS: list[Step] = [
    calls("leases.find"),
    calls("leases.find", "a"),
    calls("leases.find", "ab"),
    calls("leases.find", limit=3),
    calls("leases.find", "zz"),
    calls("leases.marked", ["m", "n", "m"]),
]

BATCHES: list[Step] = [
    *(at_key(name, asks("ann", limit=2, ttl=10.0 + number)) for number, name in enumerate(KEYS)),
    at_key("a", asks("ben", limit=2, ttl=5)),
    at_key("c", asks("ben", limit=2, ttl=50)),
    at_key("c", asks("cid", limit=2, waiting=20)),
    at_key("c", asks("dan", limit=2, waiting=3)),
    at_key("d", asks("dan", limit=1, ttl=1)),
    marks("m", "b", "one"),
    marks("n", "B", "none"),
    *LISTS,
    3.0,
    calls("leases.renew", []),
    renews("c A b zz", ttl=20.0),
    marks("m", "b", "one"),
    marks("m", "c", "two"),
    *LISTS,
    8.0,
    renews("a ab b c"),
    *LISTS,
    calls("leases.release", []),
    releases_in_order("c B c ab"),
    at_key("c", asks("dan", limit=2)),
    at_key("c", asks("cid", limit=2, waiting=20)),
    *LISTS,
    at_key("a", asks("ann", limit=1, ttl=4)),
    at_key("ab", asks("eve", limit=1, ttl=4)),
    4.0,
    *LISTS,
    100.0,
    *LISTS,
]


# Jobs.


def settles_all(replica: str, **outcomes: Any) -> Step:
    """Settle several jobs in one call: j7="succeeded"; a tuple gives details as well."""

    async def step(store: Store, _: str) -> Any:
        settlements = []
        for name, outcome in outcomes.items():
            [job] = await store.jobs.get([id_of(int(name[1:]))])
            assert job is not None
            kind, details = outcome if isinstance(outcome, tuple) else (outcome, {})
            settlements.append(ended(job, kind, **details))
        return [
            await store.jobs.settle(settlements),
            await store.jobs.settle(settlements[::-1]),  # a repeat
        ]

    return step


def notes(number: int, **parts: Any) -> Step:
    async def step(store: Store, _: str) -> Any:
        [job] = await store.jobs.get([id_of(number)])
        assert job is not None
        return [
            await store.jobs.note([Note(id=job.id, fence=fence, **parts)])
            for fence in (job.fence + 1, job.fence)
        ]

    return step


def finds(**how: Any) -> Step:
    async def step(store: Store, _: str) -> Any:
        return [job.id for job in await find_all(store, **how)]

    return step


def ids(*numbers: int) -> list[str]:
    return [id_of(number) for number in numbers]


def claims_again(replica: str, number: int) -> Step:
    """Repeat a claim; the order of its jobs is not promised."""

    async def step(store: Store, _: str) -> Any:
        answer = await store.jobs.claim(replica, number, ["low", "default"], 3)
        assert answer is not None
        return sorted(job.id for job in answer.jobs)

    return step


LOOKS: list[Step] = [
    calls("jobs.counts"),
    calls("jobs.replicas"),
    calls("jobs.get", ids(*range(1, 16))),
    finds(),
    finds(state="waiting"),
    finds(state="running"),
    finds(state="succeeded"),
    finds(state="failed"),
    finds(state="cancelled"),
    finds(queue="low"),
    finds(task="work"),
    finds(tag="red"),
    finds(tag="red", state="waiting", queue="default"),
    finds(replica="ann"),
    finds(task="other", limit=2),
    calls("jobs.count_tagged", "red", unfinished=2, recent=10, within=10.0),
    calls("jobs.count_tagged", "red", unfinished=10, recent=2, within=1000.0),
]

WORK: list[Step] = [
    all_of(
        *(
            calls("jobs.beat", [name], ttl=ttl, meta={})
            for name, ttl in (("ann", 20.0), ("ben", 60.0))
        )
    ),
    calls(
        "jobs.insert",
        [
            new(1, priority=1, tags=("red",), retention=100, payload=b"p"),
            new(2, priority=9, tags=("red", "blue")),
            new(3, priority=1, queue="low", task="other", retention=5),
            new(4, delay=3.0, tags=("red",), task="other"),
            new(5, delay=0.5, unique=Unique(key="k", digest="one", keep=30.0)),
            new(6, timeout=4.0, retention=1000),
            new(7, timeout=1.0),
            new(8, queue="low", tags=("blue",)),
            new(9, queue="mine", retention=100),
            new(10, priority=0, queue="low", task="other"),
        ],
    ),
    calls(
        "jobs.insert",
        [
            new(5, unique=Unique(key="k", digest="one")),
            new(11, unique=Unique(key="k", digest="one")),
            new(12, unique=Unique(key="k", digest="two")),
            new(1),
        ],
    ),
    *LOOKS,
    calls("jobs.claim", "nobody", 1, ["default"], 5),
    calls("jobs.claim", "ann", 1, ["low", "default"], 3),
    claims_again("ann", 1),
    calls("jobs.claim", "ben", 4, ["default", "mine"], 2),
    calls("jobs.claim", "ben", 3, ["default", "mine"], 2),
    1.0,
    calls("jobs.claim", "ben", 5, ["default", "mine"], 10),
    *LOOKS,
    notes(1, progress=0.25, message="begun"),
    settles_all("ann", j3=("succeeded", {"result": b"r"}), j10=("retry", {"delay": 2.0})),
    settles_all("ben", j6=("failed", {"error": b"e", "reason": "why"}), j9="handed back"),
    calls("jobs.cancel", ids(1, 2, 3, 4, 15), reason="not needed"),
    calls("jobs.beat", ["ben", "ann"], ttl=30.0),
    *LOOKS,
    calls("jobs.pause", "low"),
    calls("jobs.pause", "mine", seconds=2.0),
    calls("jobs.claim", "ann", 2, ["low", "mine"], 10),
    3.0,
    calls("jobs.claim", "ann", 3, ["low", "mine", "default"], 10),
    *LOOKS,
    calls("recover", delays=(5.0, 7.0), grace=1.0),
    calls("recover", delays=(5.0, 7.0), grace=0.0, limit=1),
    calls("jobs.pause", "low", seconds=0),
    calls("jobs.requeue", ids(6, 3, 4, 1, 15)),
    *LOOKS,
    calls("bury", "ann", ids(9), delays=(5.0, 7.0)),
    calls("jobs.claim", "ann", 4, ["default"], 1),
    *LOOKS,
    6.0,
    calls("jobs.claim", "ben", 6, ["default", "low", "mine"], 100),
    calls("jobs.insert", [new(13, unique=Unique(key="k", digest="two"))]),
    settles_all("ben", j6="cancelled", j5="succeeded"),
    calls("leave", "ben"),
    calls("jobs.insert", [new(14, unique=Unique(key="k", digest="two"))]),
    *LOOKS,
    50.0,
    calls("prune", idle=0.0, limit=1),
    calls("prune", idle=0.0),
    *LOOKS,
    calls("jobs.find", state="stranded"),
]


@pytest.mark.parametrize(
    "story",
    [pytest.param(BATCHES, id="leases", marks=pytest.mark.leases), pytest.param(WORK, id="jobs")],
)
async def test_every_store_answers_a_story_of_calls_in_the_same_way(
    world: World, clock: ManualClock, story: list[Step]
):
    expected = await alone(story, "KEY")
    [answers] = await play(story, [(await world.store(), "KEY")], clock)
    check_answers(story, answers, expected)
