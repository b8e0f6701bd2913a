"""A handler that waits for another job lends its slot, so that the other job can run."""

import asyncio

import pytest

from tenure import Task, Tenure, blocking
from tenure.observe import SlotsKept
from tests.jobs.replicas import of_kind
from tests.rig.waiting import wait_until_async


class Kin:
    """Tasks that wait for each other, and the number of handlers that work and do not wait."""

    def __init__(self, app: Tenure, clock) -> None:
        self._clock = clock
        self.working = 0
        self.most = 0
        self.waiting: list[asyncio.Task[int]] = []

        @app.task(retry=None)
        async def leaf(number: int) -> int:
            await self.work(1)
            return number

        @app.task(retry=None)
        async def parent(number: int, depth: int = 1) -> int:
            await self.work(1)
            child = await (
                leaf.enqueue(number) if depth == 1 else parent.enqueue(number, depth - 1)
            )
            result = await child.result()
            await self.work(1)
            return result

        @app.task(retry=None)
        async def impatient(seconds: float) -> str:
            child = await leaf.using(delay="1h").enqueue(1)
            try:
                await child.result(timeout=seconds)
            except TimeoutError:
                await self.work(1)
                return "late"
            return "in time"

        @app.task(retry=None)
        async def calls_off(seconds: float) -> str:
            child = await leaf.using(delay="1h").enqueue(1)
            waiting = asyncio.create_task(child.result())
            self.waiting.append(waiting)
            await self._clock.sleep(seconds)
            waiting.cancel()
            await asyncio.wait([waiting])
            await self.work(3)
            return "called off"

        @app.task(retry=None)
        async def spread(number: int) -> int:
            children = await app.enqueue_many(leaf.request(index) for index in range(number))
            return sum(await asyncio.gather(*(child.result() for child in children)))

        self.leaf, self.parent, self.impatient = leaf, parent, impatient
        self.calls_off, self.spread = calls_off, spread

    async def work(self, seconds: float) -> None:
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            await self._clock.sleep(seconds)
        finally:
            self.working -= 1


@pytest.fixture
def kin(app, clock) -> Kin:
    return Kin(app, clock)


async def states(*jobs) -> list[str]:
    return [(await job.refresh()).state for job in jobs]


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_parents_that_take_all_slots_do_not_block_their_children(
    app, clock, kin, concurrency
):
    async with app.worker(concurrency=concurrency):
        jobs = await app.enqueue_many(kin.parent.request(number) for number in range(4))
        await clock.advance(60)
        assert await states(*jobs) == ["succeeded"] * 4
        assert [await job.result() for job in jobs] == [0, 1, 2, 3]
    assert kin.most <= concurrency


async def test_waiting_over_several_generations_does_not_deadlock(app, clock, kin):
    async with app.worker(concurrency=1):
        job = await kin.parent.enqueue(7, 10)
        await clock.advance(100)
        assert await job.result(0) == 7
    assert kin.most == 1


async def test_a_parent_can_wait_for_several_children_at_once(app, clock, kin):
    async with app.worker(concurrency=1):
        job = await kin.spread.enqueue(5)
        await clock.advance(60)
        assert await job.result(0) == 10
    assert kin.most == 1


async def test_a_parent_continues_before_new_jobs_start_and_within_the_concurrency(app, clock, kin):
    async with app.worker(concurrency=1):
        first = await kin.parent.enqueue(1)
        await clock.advance(1.5)
        more = await app.enqueue_many(kin.leaf.request(number) for number in range(50))
        await clock.advance(10)
        assert await states(first) == ["succeeded"]
        assert "waiting" in await states(*more)
    assert kin.most == 1


async def test_a_wait_that_ends_early_takes_the_slot_back(app, clock, kin):
    async with app.worker(concurrency=1):
        late = await kin.impatient.enqueue(3)
        await clock.advance(1)
        await app.enqueue_many(kin.leaf.request(number) for number in range(10))
        await clock.advance(10)
        assert await late.result(0) == "late"
    assert kin.most == 1


async def test_a_wait_that_the_handler_cancels_takes_the_slot_back(app, clock, kin):
    """As `asyncio.timeout` and `asyncio.wait_for` do: they cancel the wait, not the job."""
    async with app.worker(concurrency=2):
        jobs = await app.enqueue_many(kin.calls_off.request(3) for _ in range(20))
        await clock.advance(100)
        assert await states(*jobs) == ["succeeded"] * 20
    assert kin.most == 2


async def test_a_job_is_cancelled_at_once_while_it_waits_for_its_slot(app, clock, kin):
    @app.task(retry=None)
    async def long() -> None:
        await kin.work(100)

    async with app.worker(concurrency=1):
        job = await kin.calls_off.enqueue(3)
        await clock.advance(1)
        taking = await long.enqueue()
        await clock.advance(5)
        await job.cancel()
        await clock.advance(5)
        assert await states(job, taking) == ["cancelled", "running"]
    assert kin.most == 1
    assert all(task.done() for task in kin.waiting)


async def test_a_cancelled_wait_leaves_no_slot_behind(app, clock, kin):
    async with app.worker(concurrency=1):
        waiting = await kin.impatient.enqueue(3600)
        await clock.advance(1)
        await waiting.cancel()
        await clock.advance(5)
        assert await states(waiting) == ["cancelled"]
        jobs = await app.enqueue_many(kin.leaf.request(number) for number in range(3))
        await clock.advance(10)
        assert await states(*jobs) == ["succeeded"] * 3
    assert kin.most == 1


async def test_a_cancelled_wait_does_not_wait_for_a_slot(app, clock, kin):
    @app.task(retry=None)
    async def long() -> None:
        await kin.work(100)

    async with app.worker(concurrency=1):
        waiting = await kin.impatient.enqueue(3600)
        await clock.advance(1)
        taking = await long.enqueue()
        await clock.advance(1)
        await waiting.cancel()
        await clock.advance(5)
        assert await states(waiting, taking) == ["cancelled", "running"]


async def test_lent_slots_have_a_limit_which_is_reported(app, clock, kin, seen, monkeypatch):
    monkeypatch.setattr("tenure.runtime.attempts.lent_slots.LENT_MAX", 2)
    async with app.worker(concurrency=1):
        job = await kin.parent.enqueue(7, 10)
        await clock.advance(100)
        assert (await job.refresh()).state == "running"
        [event, *_] = of_kind(seen, SlotsKept)
        assert event.lent == 2
        assert event.task == "parent"
        assert "waits for job" in str(event)


@pytest.mark.parametrize("concurrency", [2, 5])
async def test_more_parents_than_can_lend_leave_slots_to_their_children(
    app, clock, kin, seen, monkeypatch, concurrency
):
    monkeypatch.setattr("tenure.runtime.attempts.lent_slots.LENT_MAX", 4)
    async with app.worker(concurrency=concurrency):
        jobs = await app.enqueue_many(kin.parent.request(number) for number in range(40))
        await clock.advance(300)
        assert await states(*jobs) == ["succeeded"] * 40
    assert kin.most <= concurrency
    assert all(job.failures + job.losses == 0 for job in jobs)
    assert of_kind(seen, SlotsKept)


async def test_parents_of_another_task_leave_slots_to_their_children(app, clock, kin, monkeypatch):
    """The worker learns that a task waits for others when the first of its jobs does."""
    monkeypatch.setattr("tenure.runtime.attempts.lent_slots.LENT_MAX", 4)

    async with app.worker(concurrency=2):
        slow = await app.enqueue_many(kin.impatient.request(100) for _ in range(4))
        await clock.advance(5)
        jobs = await app.enqueue_many(kin.parent.request(number) for number in range(6))
        await clock.advance(60)
        assert await states(*slow) == ["running"] * 4
        assert await states(*jobs) == ["succeeded"] * 6
    assert kin.most <= 2


@pytest.fixture
def quick_parent(app) -> Task[[], int]:
    """A task that takes no time except for its wait for another job."""

    @app.task(retry=None)
    async def quick_leaf() -> int:
        return 7

    @app.task(retry=None)
    async def quick_parent() -> int:
        return await (await quick_leaf.enqueue()).result()

    return quick_parent


async def test_quick_parents_that_were_claimed_ahead_leave_slots_as_well(
    app, clock, quick_parent, monkeypatch
):
    monkeypatch.setattr("tenure.runtime.attempts.lent_slots.LENT_MAX", 4)
    async with app.worker(concurrency=2):
        await quick_parent.enqueue()
        await clock.advance(1)
        jobs = await app.enqueue_many(quick_parent.request() for _ in range(40))
        await clock.advance(60)
        assert await states(*jobs) == ["succeeded"] * 40


async def test_a_burst_runs_all_parents_even_if_more_than_can_lend_are_due(
    app, clock, quick_parent, monkeypatch
):
    monkeypatch.setattr("tenure.runtime.attempts.lent_slots.LENT_MAX", 4)
    jobs = await app.enqueue_many(quick_parent.request() for _ in range(40))
    async with app.worker(concurrency=2, burst=True) as worker:
        await clock.advance(60)
        assert worker.has_drained
    assert await states(*jobs) == ["succeeded"] * 40


async def test_a_lent_slot_goes_back_to_its_owner_before_new_jobs_start(app, clock, kin):
    @app.task(retry=None)
    async def late(seconds: float) -> int:
        await kin.work(seconds)
        return await (await kin.leaf.enqueue(2)).result()

    async with app.worker(concurrency=1):
        first = await kin.impatient.enqueue(1)  # wants its slot back while the other one works
        await clock.advance(0.1)
        second = await late.enqueue(5)
        await clock.advance(30)
        assert await states(first, second) == ["succeeded"] * 2
    assert kin.most == 1


async def test_a_task_that_a_handler_leaves_behind_lends_no_slot(app, clock, kin):
    left = []

    @app.task(retry=None)
    async def careless() -> None:
        child = await kin.leaf.using(delay="1h").enqueue(1)

        async def wait() -> None:
            await clock.sleep(1)
            await child.result()

        left.append(asyncio.create_task(wait()))

    async with app.worker(concurrency=1):
        await careless.enqueue()
        await clock.advance(2)
        await app.enqueue_many(kin.leaf.request(number) for number in range(4))
        await clock.advance(10)
        for task in left:
            task.cancel()
    assert kin.most == 1


async def test_a_plain_handler_keeps_its_slot_and_is_reported(real_app):
    seen: list = []
    real_app.on_event(seen.append)

    @real_app.task(retry=None)
    async def leaf() -> int:
        return 7

    @real_app.task(retry=None)
    def parent() -> int:
        with blocking.Tenure(real_app) as sync:
            return sync.enqueue(leaf.request()).result()

    async with real_app.worker(concurrency=1):
        job = await parent.enqueue()
        [event] = await wait_until_async(lambda: of_kind(seen, SlotsKept), 20)
        assert (event.task, event.job, event.lent) == ("parent", job.id, 0)
        assert "only asynchronous handlers" in str(event)
        assert await states(job) == ["running"]
        async with real_app.worker(concurrency=1):
            assert await job.result(20) == 7
