import asyncio
import gc
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from pathlib import Path
from types import coroutine
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import pytest

from tenure.core.clock import SystemClock
from tenure.core.leases import Grade, Granted, Lease, Traits
from tenure.errors import ConfigError, StoreError, StoreUnavailable
from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.calls import ask, be_refused, holders, renew, take
from tests.contract.worlds import World
from tests.rig.sizes import SIZE

pytestmark = [pytest.mark.leases, pytest.mark.own_connections]

LEASE = Lease(key="key", holder="ann", fence=7, ttl=30)

Call: TypeAlias = Callable[[Store], Coroutine[Any, Any, Any]]


async def look_around(store: Store) -> None:
    async with store.watch(("lease", "ann")) as watch:
        await watch.wait(0)


CALLS: dict[str, Call] = {
    "ping": lambda store: store.ping(),
    "acquire": lambda store: ask(store, "key", "ann", waiting=10),
    "renew": lambda store: store.leases.renew([LEASE]),
    "release": lambda store: store.leases.release([LEASE]),
    "find": lambda store: store.leases.find(),
    "mark": lambda store: store.leases.mark("key", LEASE, "v1"),
    "marked": lambda store: store.leases.marked(["key"]),
    "prune": lambda store: store.prune(idle=0),
    "watch": look_around,
}
# A store that keeps no connection can take a watch without one.
NEED_OPEN = {name: call for name, call in CALLS.items() if name != "watch"}

REACH = {"memory": "process", "sqlite": "host", "redis": "fleet", "postgres": "fleet"}


# Opening and closing.


async def open_and_take(store: Store) -> None:
    await store.open()
    await take(store, "key", "ann")


# Python warns, rightly, about transports whose loop was closed under them.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_closing_the_event_loop_of_a_store_leaves_its_leases(world: World, store: Store):
    other = world.unopened()
    await asyncio.to_thread(asyncio.run, open_and_take(other))
    other.abandon()
    other.abandon()
    with pytest.raises(StoreError):
        await renew(other, LEASE)
    assert await holders(store, "key") == ["ann"]
    del other
    gc.collect()  # so that the warnings appear here


@pytest.mark.parametrize("call", NEED_OPEN.values(), ids=NEED_OPEN)
async def test_a_store_that_is_not_open_raises_an_error(world: World, call: Call):
    store = world.unopened()
    with pytest.raises(StoreError):
        await call(store)
    await store.open()
    await call(store)
    await store.close()
    with pytest.raises(StoreError):
        await call(store)


async def test_closing_twice_is_harmless(world: World):
    store = world.unopened()
    await store.close()
    await store.open()
    await store.close()
    await store.close()


async def test_opening_twice_is_harmless(world: World):
    store = await world.store()
    await take(store, "key", "ann")
    await store.open()
    assert await holders(store, "key") == ["ann"]


async def test_a_closed_store_can_be_opened_again(world: World):
    store = await world.store()
    await take(store, "key", "ann")
    await store.close()
    await store.open()
    assert await holders(store, "key") == ["ann"]


async def test_leases_outlive_the_store_object_that_took_them(world: World):
    mine, yours = await world.store(), await world.store()
    lease = await take(mine, "key", "ann")
    await mine.close()
    assert await holders(yours, "key") == ["ann"]
    assert await renew(yours, lease) == [True]


async def test_many_stores_can_open_an_empty_database_at_once(blank_world: World):
    stores = await asyncio.gather(*(blank_world.store() for _ in range(8)))
    answers = await asyncio.gather(
        *(ask(store, "key", f"h{number}", limit=3) for number, store in enumerate(stores))
    )
    granted = [answer for answer in answers if isinstance(answer, Granted)]
    assert len(granted) == 3
    assert len({answer.lease.fence for answer in granted}) == 3


async def test_checking_finds_nothing_wrong_with_a_database_that_was_opened_before(
    blank_world: World,
):
    await blank_world.store()
    store = blank_world.unopened()
    await store.open("check")
    try:
        await take(store, "key", "ann")
    finally:
        await store.close()


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def test_checking_an_empty_database_changes_nothing(blank_world: World, tmp_path: Path):
    """Where a format has to be created first, "check" refuses, also when repeated."""
    before = files_below(tmp_path)
    outcomes = []
    for _ in range(2):
        store = blank_world.unopened()
        try:
            await store.open("check")
            outcomes.append("fine")
        except ConfigError:
            outcomes.append("refused")
        finally:
            await store.close()
    assert outcomes in (["fine"] * 2, ["refused"] * 2)
    assert files_below(tmp_path) == before
    await take(await blank_world.store(), "key", "ann")


# What a store reports about itself.


async def test_a_store_reports_its_namespace_clock_and_url(world: World, store: Store):
    assert store.namespace == world.namespace
    assert store.clock is world.clock
    assert urlsplit(store.url).scheme == urlsplit(world.url).scheme


async def test_a_store_never_shows_its_password(world: World):
    parts = urlsplit(world.url)
    if world.family not in ("redis", "postgres"):
        assert parts.password is None  # it has no login
        return
    address = f"somebody:hunter2@{parts.hostname}:{parts.port}"
    url = urlunsplit(parts._replace(netloc=address))
    store = connect(url, namespace=world.namespace, clock=world.clock)
    for text in (store.url, store.clone().url, repr(store), str(store)):
        assert "hunter2" not in text
    assert str(parts.port) in store.url


async def test_a_store_reports_its_capabilities(world: World, store: Store):
    traits = store.traits
    assert isinstance(traits, Traits)
    assert isinstance(traits.grade, Grade)
    assert traits.scope == REACH.get(world.family, traits.scope)
    assert isinstance(traits.push, bool)
    assert isinstance(traits.transactional, bool)
    assert (await world.store()).traits == traits


async def test_now_is_the_clock_of_the_test(store: Store, clock: ManualClock):
    for seconds in (0, 0.000_001, 3600):
        clock.shift(seconds)
        assert (await store.ping()).now == clock.wall()
    clock.step(-7200)
    assert (await store.ping()).now == clock.wall()


async def test_now_is_the_clock_of_the_store(real_world: World):
    store = await real_world.store()
    before = SystemClock().wall()
    now = [(await store.ping()).now for _ in range(5)]
    after = SystemClock().wall()
    assert all(type(instant) is int for instant in now)
    # The server runs on this machine, but its clock may be read more coarsely.
    assert before - 10_000 <= now[0] <= now[-1] <= after + 10_000
    assert now == sorted(now)


async def test_a_fence_carries_the_time_of_the_stores_clock(real_world: World):
    store = await real_world.store()
    before = (await store.ping()).now
    assert (await take(store, "key", "ann")).fence >= before


# Clones.


async def test_a_clone_is_a_closed_store_object_on_the_same_database(world: World, store: Store):
    lease = await take(store, "key", "ann")
    clone = store.clone()
    assert (clone.url, clone.namespace) == (store.url, store.namespace)
    assert clone.clock is store.clock
    with pytest.raises(StoreError):
        await clone.leases.find()
    await clone.open()
    try:
        assert await renew(clone, lease) == [True]
    finally:
        await clone.close()
    assert await holders(store, "key") == ["ann"]


async def test_a_clone_does_not_check_the_format_again(store: Store):
    clone = store.clone()
    await clone.open("skip")
    try:
        await take(clone, "key", "ann")
    finally:
        await clone.close()
    assert await holders(store, "key") == ["ann"]


async def test_a_clone_works_on_another_event_loop(real_world: World):
    store = await real_world.store()
    clone = store.clone()
    ann = await take(store, "key", "ann")

    async def elsewhere() -> tuple[list[str], bool]:
        await clone.open()
        try:
            await be_refused(clone, "key", "ben", waiting=60)
            seen = await holders(clone, "key")
            async with clone.watch(("lease", "ben")) as watch:
                asking.set()
                return seen, await watch.wait(20)
        finally:
            await clone.close()

    asking = threading.Event()
    other_loop = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    assert await asyncio.to_thread(asking.wait, 20)
    await store.leases.release([ann])
    assert await other_loop == (["ann"], True)
    await take(store, "key", "ben")


async def test_clones_on_two_loops_work_at_the_same_time(real_world: World):
    store = await real_world.store()

    async def count(own: Store, name: str) -> int:
        granted = 0
        for number in range(40):
            answer = await ask(own, f"key-{number}", name)
            granted += isinstance(answer, Granted)
        return granted

    async def elsewhere(name: str) -> int:
        own = store.clone()
        await own.open()
        try:
            return await count(own, name)
        finally:
            await own.close()

    counts = await asyncio.gather(
        count(store, "here"),
        *(asyncio.to_thread(asyncio.run, elsewhere(f"loop-{n}")) for n in range(3)),
    )
    assert sum(counts) == 40


# Many callers at once.


async def test_a_store_serves_many_callers_at_once(store: Store):
    answers = await asyncio.gather(*(ask(store, f"key-{n}", "ann") for n in range(100)))
    leases = [answer.lease for answer in answers if isinstance(answer, Granted)]
    assert len(leases) == 100
    calls: list[Awaitable[Any]] = [renew(store, lease) for lease in leases]
    calls += [store.leases.find(f"key-{n}", limit=1) for n in range(100)]
    calls += [store.leases.mark(f"key-{n}", leases[n], "v1") for n in range(100)]
    assert all(await asyncio.gather(*calls))
    assert all(await asyncio.gather(*(store.leases.release([lease]) for lease in leases)))
    assert await store.leases.find() == []


# Servers that cannot be reached.


async def test_a_server_that_cannot_be_reached_is_reported_as_unavailable(world: World):
    urls = {
        "redis": ("redis://127.0.0.1:1/0", StoreUnavailable),
        "postgres": ("postgresql://tenure@127.0.0.1:1/tenure", StoreUnavailable),
        "sqlite": ("sqlite:////no/such/folder/tenure.db", (StoreError, ConfigError)),
    }
    if world.family not in urls:
        return  # this store has no server
    url, expected = urls[world.family]
    store = connect(url, namespace=world.namespace, clock=world.clock)
    with pytest.raises(expected) as caught:
        await store.open()
    assert isinstance(caught.value, ConfigError) or caught.value.__cause__ is not None
    await store.close()


# Cancelling callers.


@coroutine
def cancelled_at(call: Coroutine[Any, Any, Any], moment: int) -> Generator[Any, Any, bool]:
    """Run `call` and cancel its task at the n-th suspension. Return whether it got that far."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    inner = call.__await__()
    go_on: Callable[[], Any] = partial(inner.send, None)
    hung = 0
    while True:
        try:
            future = go_on()
        except StopIteration:
            return hung > moment
        if hung == moment:
            loop.call_soon(task.cancel)
        hung += 1
        try:
            go_on = partial(inner.send, (yield future))
        except BaseException as error:  # noqa: BLE001 - it belongs to the inner coroutine
            go_on = partial(inner.throw, error)


async def cancel_everywhere(
    make: Callable[[], Coroutine[Any, Any, Any]], check: Callable[[], Awaitable[None]]
) -> None:
    """Make the call again and again, each time cancelled one suspension later than before."""
    for moment in range(200):

        async def attempt(moment: int = moment) -> bool:
            return await cancelled_at(make(), moment)

        task = asyncio.create_task(attempt())
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
        await check()
        if outcome is False:
            break
    else:
        pytest.fail("the call never ends")
    gc.collect()
    await asyncio.sleep(0)


@pytest.mark.parametrize("name", CALLS)
async def test_cancelling_a_caller_does_not_break_the_store(store: Store, name: str):
    numbers = iter(range(1_000_000))

    async def check() -> None:
        await store.leases.release([Lease(key="key", holder="ann")])
        lease = await take(store, "key", f"after-{next(numbers)}")
        assert await renew(store, lease) == [True]
        assert await store.leases.release([lease]) == [True]

    await cancel_everywhere(lambda: CALLS[name](store), check)


@pytest.mark.parametrize("waiting", [0, 10], ids=["once", "in line"])
@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
async def test_a_release_never_overtakes_the_cancelled_acquire_that_it_undoes(
    store: Store, taken: bool, waiting: float
):
    expected = [(await take(store, "key", "ann")).holder] if taken else []

    async def check() -> None:
        await store.leases.release([Lease(key="key", holder="ben")])
        for _ in range(3):
            await asyncio.sleep(0.001)
            assert [lease.holder for lease in await store.leases.find()] == expected

    await cancel_everywhere(lambda: ask(store, "key", "ben", waiting=waiting), check)


async def test_the_effect_of_a_cancelled_call_is_decided_before_the_next_call(store: Store):
    lease = await take(store, "key", "ann")

    async def check() -> None:
        nonlocal lease
        before = await store.leases.renew([lease]), await store.leases.marked(["done"])
        for _ in range(3):
            await asyncio.sleep(0.001)
            assert (
                await store.leases.renew([lease]),
                await store.leases.marked(["done"]),
            ) == before
        lease = await take(store, "key", "ann")

    async def write() -> None:
        await store.leases.mark("done", lease, f"under {lease.fence}")
        await store.leases.release([lease])

    await cancel_everywhere(write, check)


async def test_releases_never_overtake_cancelled_acquires_among_many_callers(real_world: World):
    store = await real_world.store()
    order = random.Random(7)

    async def change_ones_mind(holder: str) -> None:
        call = asyncio.create_task(ask(store, "key", holder, limit=10, waiting=60))
        for _ in range(order.randrange(8)):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await store.leases.release([Lease(key="key", holder=holder)])

    for turn in range(SIZE.rounds):
        await asyncio.gather(*(change_ones_mind(f"{turn}-{n}") for n in range(20)))
        assert await store.leases.find() == []


async def test_cancelling_one_caller_does_not_disturb_its_neighbours(store: Store):
    for round_ in range(10):
        calls = [asyncio.create_task(ask(store, f"{round_}-{n}", "ann")) for n in range(10)]
        for _ in range(round_):
            await asyncio.sleep(0)
        calls[round_].cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for n, answer in enumerate(answers):
            if n == round_:
                assert isinstance(answer, Granted | asyncio.CancelledError)
            else:
                assert isinstance(answer, Granted), answer


async def test_cancelling_an_opener_leaves_nothing_half_open(world: World):
    store = world.unopened()

    async def check() -> None:
        await store.close()
        await store.open()
        await store.leases.find()
        await store.close()

    await cancel_everywhere(store.open, check)


async def test_cancelling_a_closer_leaves_a_store_that_can_be_closed(world: World):
    store = await world.store()

    async def check() -> None:
        await store.close()
        await store.open()
        await store.leases.find()

    await cancel_everywhere(store.close, check)


async def test_a_cancelled_watcher_leaves_no_watch_behind(real_world: World):
    here, there = await real_world.store(), await real_world.store()

    async def watch() -> None:
        async with here.watch(("lease", "ben")) as armed:
            await armed.wait(0.01)

    async def check() -> None:
        ann = await take(there, "key", "ann")
        await be_refused(here, "key", "ben", waiting=60)
        async with here.watch(("lease", "ben")) as armed:
            await there.leases.release([ann])
            assert await armed.wait(20)
        await here.leases.release([Lease(key="key", holder="ben")])

    await cancel_everywhere(watch, check)


# Incarnations.


async def test_all_store_objects_of_a_database_report_the_same_incarnation(world: World):
    first, second = await world.store(), await world.store()
    clone = first.clone()
    await clone.open("skip")
    try:
        incarnation = (await first.ping()).incarnation
        assert incarnation
        assert [(await store.ping()).incarnation for store in (first, second, clone)] == [
            incarnation
        ] * 3
    finally:
        await clone.close()


async def test_the_incarnation_stays_when_everything_is_released(store: Store):
    before = (await store.ping()).incarnation
    lease = await take(store, "key", "ann")
    await store.leases.release([lease])
    await store.prune(idle=0)
    assert (await store.ping()).incarnation == before
