"""Many callers in real time, and a counter beside the store that sees each of them hold."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from tenure.core.leases import Busy, Granted, Lease
from tenure.stores.contract import Store
from tests.contract.calls import ask, renew, take
from tests.contract.worlds import World
from tests.rig.sizes import SIZE

pytestmark = pytest.mark.leases


class Witness:
    """Counts the holders without asking the store."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.fences: list[int] = []

    @contextmanager
    def watch(self, lease: Lease) -> Iterator[None]:
        self.fences.append(lease.fence)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            yield
        finally:
            self.inside -= 1


async def acquire(store: Store, key: str, holder: str, *, limit: int, ttl: float = 30.0) -> Lease:
    """Wait for a lease as a client does: in line, with a watch and occasional polls."""
    async with store.watch(("lease", holder)) as watch:
        while isinstance(
            answer := await ask(store, key, holder, limit=limit, ttl=ttl, waiting=5), Busy
        ):
            await watch.wait(min(answer.retry_in, 0.25))
    return answer.lease


@pytest.mark.parametrize("limit", [1, 3])
async def test_never_more_than_the_limit_hold_at_once(real_world: World, limit: int):
    stores = [await real_world.store() for _ in range(3)]
    witness = Witness()

    async def work(worker: int) -> None:
        store = stores[worker % len(stores)]
        for turn in range(SIZE.rounds // 4):
            lease = await acquire(store, "key", f"{worker}-{turn}", limit=limit)
            with witness.watch(lease):
                await asyncio.sleep(0)
            assert await store.leases.release([lease]) == [True]

    async with asyncio.TaskGroup() as group:
        for worker in range(9):
            group.create_task(work(worker))

    assert witness.most <= limit
    assert len(witness.fences) == len(set(witness.fences)) == 9 * (SIZE.rounds // 4)
    if limit == 1:
        assert witness.fences == sorted(witness.fences)
    assert await stores[0].leases.find() == []


async def test_never_more_than_the_limit_when_callers_retry_without_waiting_in_line(
    real_world: World,
):
    stores = [await real_world.store() for _ in range(3)]
    for turn in range(SIZE.rounds):
        answers = await asyncio.gather(
            *(ask(stores[n % 3], f"key-{turn}", f"{n}", limit=5) for n in range(12))
        )
        granted = [answer.lease for answer in answers if isinstance(answer, Granted)]
        assert len(granted) == 5
        assert len({lease.fence for lease in granted}) == 5
        assert sorted(
            lease.fence for lease in await stores[0].leases.find(f"key-{turn}")
        ) == sorted(lease.fence for lease in granted)
        assert await stores[turn % 3].leases.release(granted) == [True] * 5


async def test_never_more_than_the_limit_when_leases_run_out(real_world: World):
    """No holder releases. A holder trusts its lease for its ttl from when it sent the request."""
    stores = [await real_world.store() for _ in range(3)]
    clock = real_world.clock
    trusted: list[tuple[float, float, int]] = []

    async def work(worker: int) -> None:
        store = stores[worker % 3]
        for turn in range(3):
            while True:
                sent = clock.boot()
                answer = await ask(store, "key", f"{worker}-{turn}", ttl=0.05, waiting=5)
                if isinstance(answer, Granted):
                    break
                await clock.sleep(min(max(answer.retry_in, 0.001), 0.05))
            trusted.append((clock.boot(), sent + 0.05, answer.lease.fence))

    async with asyncio.TaskGroup() as group:
        for worker in range(6):
            group.create_task(work(worker))

    assert len(trusted) == 18
    trusted.sort(key=lambda span: span[2])
    for (_, ends, fence), (starts, _, next_fence) in pairwise(trusted):
        assert fence < next_fence
        # The clock of the store and ours may be read to different precisions.
        assert ends <= starts + 0.002


async def test_many_requests_of_one_holder_are_one_grant(real_world: World):
    stores = [await real_world.store() for _ in range(3)]
    for turn in range(3):
        answers = await asyncio.gather(
            *(ask(stores[n % 3], f"key-{turn}", "ann", waiting=5) for n in range(50))
        )
        assert all(isinstance(answer, Granted) for answer in answers)
        assert len({answer.lease.fence for answer in answers}) == 1
        (lease,) = await stores[0].leases.find(f"key-{turn}")
        assert (lease.holder, lease.fence) == ("ann", answers[0].lease.fence)


async def test_a_release_ends_one_lease_once(real_world: World):
    stores = [await real_world.store() for _ in range(3)]
    for turn in range(5):
        lease = await take(stores[0], f"key-{turn}", "ann")
        answers = await asyncio.gather(*(stores[n % 3].leases.release([lease]) for n in range(12)))
        assert sorted(answer for (answer,) in answers) == [False] * 11 + [True]


async def test_a_late_mark_never_replaces_the_mark_of_a_newer_lease(real_world: World):
    stores = [await real_world.store() for _ in range(2)]

    async def hand_over(key: str, older: Lease) -> int:
        assert await stores[1].leases.release([older]) == [True]
        newer = await take(stores[1], key, "ben")
        assert await stores[1].leases.mark(key, newer, "newer")
        return newer.fence

    for turn in range(SIZE.rounds):
        key = f"key-{turn}"
        older = await take(stores[0], key, "ann")
        marks = [stores[n % 2].leases.mark(key, older, f"older {n}") for n in range(4)]
        _, _, fence, *_ = await asyncio.gather(*marks[:2], hand_over(key, older), *marks[2:])
        (mark,) = await stores[0].leases.marked([key])
        assert (mark and mark.value, mark and mark.fence) == ("newer", fence)


async def test_fences_rise_while_idle_keys_are_removed_all_the_time(real_world: World):
    stores = [await real_world.store() for _ in range(3)]
    last: dict[str, int] = {}
    done = asyncio.Event()

    async def prune() -> None:
        while not done.is_set():
            await stores[0].prune(idle=0)
            await asyncio.sleep(0)

    async def work(worker: int) -> None:
        store = stores[worker % 3]
        for turn in range(SIZE.rounds):
            key = f"key-{turn % 2}"
            lease = await acquire(store, key, f"{worker}-{turn}", limit=1)
            assert lease.fence > last.get(key, 0)
            last[key] = lease.fence
            assert await renew(store, lease) == [True]
            assert await store.leases.mark(key, lease, f"{worker}-{turn}")
            assert await store.leases.release([lease]) == [True]

    pruner = asyncio.create_task(prune())
    try:
        async with asyncio.TaskGroup() as group:
            for worker in range(3):
                group.create_task(work(worker))
    finally:
        done.set()
        await pruner
    marks = await stores[0].leases.marked(["key-0", "key-1"])
    assert [mark and mark.fence for mark in marks] == [last["key-0"], last["key-1"]]


async def test_concurrent_batches_in_opposite_order_do_not_block_each_other(real_world: World):
    """The same keys in every order, from several store objects: no call may deadlock."""
    stores = [await real_world.store() for _ in range(3)]
    keys = [f"key-{number}" for number in range(10)]
    order = random.Random(7)

    async def work(worker: int) -> None:
        store = stores[worker % 3]
        leases = [await take(store, key, f"{worker}", limit=6) for key in keys]
        for _ in range(SIZE.rounds // 2):
            order.shuffle(leases)
            assert await renew(store, *leases) == [True] * len(keys)
        order.shuffle(leases)
        assert await store.leases.release(leases) == [True] * len(keys)

    async with asyncio.TaskGroup() as group:
        for worker in range(6):
            group.create_task(work(worker))
    assert await stores[0].leases.find() == []


async def test_a_line_moves_on_when_waiters_give_up(real_world: World):
    stores = [await real_world.store() for _ in range(3)]
    witness = Witness()

    async def work(worker: int) -> None:
        store, holder = stores[worker % 3], f"{worker}"
        try:
            async with asyncio.timeout(0.02 if worker % 2 else 20):
                lease = await acquire(store, "key", holder, limit=1)
                with witness.watch(lease):
                    await asyncio.sleep(0.005)
        except TimeoutError:
            assert worker % 2, "only every second waiter is impatient"
        finally:
            await store.leases.release([Lease(key="key", holder=holder)])

    await asyncio.gather(*(work(worker) for worker in range(12)))
    assert witness.most == 1
    assert witness.fences == sorted(set(witness.fences))
    assert len(witness.fences) >= 6
