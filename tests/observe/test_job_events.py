"""The events of jobs: for each situation the exact list that every subscriber gets, on each store.

Subscribers of the app that calls are told apart from those of another app whose worker runs the
job. The first reply to each insert and each settlement is lost, which no subscriber may notice.
"""

import asyncio
import os
import socket
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from typing import Any, NamedTuple

import asyncpg
import pytest

from tenure import Backoff, Job, Reject, Retry, StoreUnavailable, Tenure, blocking, current_job
from tenure.app import engine_of
from tenure.core.jobs.endings import handed_back
from tenure.observe import (
    AttemptLost,
    Event,
    HandlerStuck,
    JobCancelled,
    JobEnqueued,
    JobFailed,
    JobHandedBack,
    JobRetried,
    JobsRecovered,
    JobStarted,
    JobSucceeded,
    TaskUnknown,
)
from tenure.observe.jobs import JobEvent
from tenure.runtime.supervised.messages import Order
from tenure.supervisor import Supervisor, SupervisorOptions
from tenure.supervisor.spec import ChildSpec
from tenure.testing import Faults, FaultyStore
from tests.contract.worlds import World
from tests.jobs import cpu_tasks
from tests.jobs.replicas import claim_and_die, of_kind
from tests.rig.wait import wait_until_async

ONCE = Backoff(max_attempts=1)
AT_ONCE = Backoff(max_attempts=2, base=0)
LATER = Backoff(max_attempts=2, base=3600)
HERE = f"{socket.gethostname()}:{os.getpid()}"
EVERYWHERE = ("memory", "sqlite", "redis", "postgres")
OF_JOBS = (JobEvent, AttemptLost, JobsRecovered, TaskUnknown)


class Stage:
    """Apps on one store, and what a subscriber of each has seen."""

    def __init__(self, world: World, faults: Faults, stack: AsyncExitStack) -> None:
        self.world = world
        self.faults = faults
        self._stack = stack
        self.seen: dict[str, list[Event]] = {}

    async def app(self, name: str = "app", **settings: Any) -> Tenure:
        """Open one more app with a subscriber. It stops handlers at once when it closes."""
        store = FaultyStore(self.world.unopened(), self.faults)
        app = Tenure(store, **{"grace": 0, "replica_ttl": 5, **settings})
        app.on_event(self.seen.setdefault(name, []).append)
        return await self._stack.enter_async_context(app)

    async def saw(self, kind: type, name: str = "app") -> None:
        """Wait until a subscriber has got an event of this kind."""
        await wait_until_async(lambda: any(isinstance(event, kind) for event in self.seen[name]))

    def lines(self, name: str) -> list[str]:
        """Return the events of jobs that a subscriber has got, each in a few words."""
        return [line(event) for event in self.seen[name] if isinstance(event, OF_JOBS)]


def line(event: Any) -> str:
    """Return the name of an event, the attempt and what else the situation decides."""
    words = [type(event).__name__]
    if isinstance(event, JobEvent):
        assert (event.task, event.queue) == ("work", "mail")
    match event:
        case JobEnqueued():
            words += ["pending"] if event.is_pending else []
        case JobFailed():
            words += [str(event.attempt), event.cause]
        case JobHandedBack():
            words += [str(event.attempt), event.reason]
        case JobEvent() | TaskUnknown():
            words += [str(event.attempt)]
        case AttemptLost():
            words += [event.outcome, event.reason]
        case JobsRecovered():
            ends = {"again": event.waiting, "failed": event.failed, "cancelled": event.cancelled}
            assert event.by == HERE
            words += [*event.replicas, *(f"{len(ids)} {end}" for end, ids in ends.items() if ids)]
    return " ".join(filter(None, words))


class Situation(NamedTuple):
    play: Callable[[Stage], Awaitable[None]]
    expected: dict[str, list[str]]
    stores: tuple[str, ...]


SITUATIONS: dict[str, Situation] = {}


def situation(
    *lines: str, stores: tuple[str, ...] = EVERYWHERE, **apps: list[str]
) -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    """Declare what each app sees; `lines` is for a single app."""

    def declare(play: Callable[[Stage], Awaitable[None]]) -> None:
        expected = apps or {"app": list(lines)}
        SITUATIONS[play.__name__] = Situation(play, expected, stores)

    return declare


async def ends(job: Job[Any]) -> None:
    """Wait until a job has ended, in whichever way."""
    await job.wait(20)


# Jobs that end by themselves.


@situation("JobEnqueued", "JobStarted 1", "JobSucceeded 1")
async def success(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    async def work() -> None: ...

    async with app.worker():
        await ends(await work.enqueue())


@situation("JobEnqueued", "JobStarted 1", "JobSucceeded 1")
async def success_in_a_thread(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    def work() -> None: ...

    async with app.worker():
        await ends(await work.enqueue())


@situation(caller=["JobEnqueued"], worker=["JobStarted 1", "JobSucceeded 1"])
async def success_in_another_app(stage: Stage) -> None:
    caller, worker = await stage.app("caller"), await stage.app("worker")
    for app in (caller, worker):

        @app.task(name="work", queue="mail")
        async def work() -> None: ...

    async with worker.worker():
        await ends(await caller.enqueue(work.request()))


@situation("JobEnqueued", "JobStarted 1", "JobRetried 1", "JobStarted 2", "JobSucceeded 2")
async def retry_and_success(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail", retry=AT_ONCE)
    async def work() -> None:
        if current_job().attempt == 1:
            raise ValueError

    async with app.worker():
        await ends(await work.enqueue())


@situation("JobEnqueued", "JobStarted 1", "JobRetried 1", "JobStarted 2", "JobFailed 2 error")
async def failure(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail", retry=AT_ONCE)
    async def work() -> None:
        raise ValueError

    async with app.worker():
        await ends(await work.enqueue())


@situation("JobEnqueued", "JobStarted 1", "JobFailed 1 timeout")
async def time_out(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail", retry=ONCE, timeout=0.05)
    async def work() -> None:
        await asyncio.Event().wait()

    async with app.worker():
        await ends(await work.enqueue())


@situation("JobEnqueued", "JobStarted 1", "JobFailed 1 rejected")
async def rejection(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    async def work() -> None:
        raise Reject

    async with app.worker():
        await ends(await work.enqueue())


@situation(caller=["JobEnqueued"], worker=["JobStarted 1", "JobFailed 1 arguments"])
async def unreadable_arguments(stage: Stage) -> None:
    caller, worker = await stage.app("caller"), await stage.app("worker")

    @caller.task(name="work", queue="mail")
    async def old(order: str) -> None: ...

    @worker.task(name="work", queue="mail")
    async def new(order: int) -> None: ...

    async with worker.worker():
        await ends(await old.enqueue("seven"))


# Cancelled, in each state.


@situation(canceller=["JobCancelled 0"], caller=["JobEnqueued"])
async def cancelled_before_it_ran(stage: Stage) -> None:
    caller, canceller = await stage.app("caller"), await stage.app("canceller")

    @caller.task(name="work", queue="mail")
    async def work() -> None: ...

    job = await work.enqueue()
    same = await canceller.job(job.id)
    assert await same.cancel()
    assert not await same.cancel()  # it has ended: nothing more is cancelled


@situation("JobEnqueued", "JobStarted 1", "JobRetried 1", "JobCancelled 1")
async def cancelled_while_waiting_for_a_retry(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail", retry=LATER)
    async def work() -> None:
        raise ValueError

    async with app.worker():
        job = await work.enqueue()
        await stage.saw(JobRetried)
        await job.cancel()


@situation(canceller=[], app=["JobEnqueued", "JobStarted 1", "JobCancelled 1"])
async def cancelled_while_running(stage: Stage) -> None:
    app, canceller = await stage.app(), await stage.app("canceller")

    @app.task(name="work", queue="mail")
    async def work() -> None:
        await asyncio.Event().wait()

    async with app.worker():
        job = await work.enqueue()
        await stage.saw(JobStarted)
        await (await canceller.job(job.id)).cancel()
        await stage.saw(JobCancelled)
        await ends(job)


@situation("JobEnqueued", "JobStarted 1", "JobCancelled 1")
async def cancelled_before_its_retry(stage: Stage) -> None:
    """The handler fails; the store cancels the job instead, as the settlement finds out."""
    app = await stage.app()

    @app.task(name="work", queue="mail", retry=LATER)
    async def work() -> None:
        # Past the app: its worker must not hear of the request before it settles.
        await engine_of(app).store.jobs.cancel([current_job().id])
        raise ValueError

    async with app.worker():
        await ends(await work.enqueue())


# Not run to the end.


@situation("JobEnqueued", "JobStarted 1", "JobHandedBack 1 its worker was stopped")
async def handed_back_by_a_stop(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    async def work() -> None:
        await asyncio.Event().wait()

    async with app.worker():
        await work.enqueue()
        await stage.saw(JobStarted)


@situation(
    caller=["JobEnqueued"],
    worker=["TaskUnknown 1", "JobHandedBack 1 its worker knows no such task"],
)
async def unknown_task(stage: Stage) -> None:
    caller, worker = await stage.app("caller"), await stage.app("worker")

    @caller.task(name="work", queue="mail")
    async def work() -> None: ...

    async with worker.worker(queues=["mail"]):
        await work.enqueue()
        await stage.saw(JobHandedBack, "worker")


@situation("JobEnqueued", "JobStarted 1", "AttemptLost succeeded")
async def lost_to_another_worker(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    async def work() -> None:
        stage.faults.heal()
        store = engine_of(app).store
        [taken] = await store.jobs.get([current_job().id])
        await store.jobs.settle([handed_back(taken, delay=3600)])

    async with app.worker():
        await work.enqueue()
        await stage.saw(AttemptLost)


async def lose(stage: Stage, app: Tenure, *, budget: int, cancels: bool = False) -> None:
    """Let a job be lost with a worker that dies, and recover it from another app."""

    @app.task(name="work", queue="mail")
    async def work() -> None: ...

    job = await work.enqueue()
    store = engine_of(app).store
    await store.jobs.beat(["dead"], ttl=0.05, meta={})
    await store.jobs.claim("dead", 1, ["mail"], 1)
    if cancels:
        await job.cancel()
    recovering = await stage.app("recoverer", loss_budget=budget)
    await wait_until_async(recovering.recover)
    assert await recovering.recover() == []


@situation(app=["JobEnqueued"], recoverer=["JobsRecovered dead 1 again"])
async def lost_and_recovered(stage: Stage) -> None:
    await lose(stage, await stage.app(), budget=1)


@situation(app=["JobEnqueued"], recoverer=["JobsRecovered dead 1 failed", "JobFailed 1 lost"])
async def lost_for_good(stage: Stage) -> None:
    await lose(stage, await stage.app(), budget=0)


@situation(app=["JobEnqueued"], recoverer=["JobsRecovered dead 1 cancelled", "JobCancelled 1"])
async def lost_after_a_request_to_cancel(stage: Stage) -> None:
    await lose(stage, await stage.app(), budget=1, cancels=True)


# Ways to enqueue.


@situation("JobEnqueued")
async def a_repeat_with_a_unique_key(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    async def work() -> None: ...

    for is_new in (True, False):
        stage.faults.lose_reply("insert")
        assert (await work.using(unique="k").enqueue()).is_new == is_new
    await app.enqueue_many([work.using(unique="k").request()])


@situation("JobEnqueued", "JobEnqueued", "JobEnqueued")
async def many_at_once(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    async def work() -> None: ...

    requests = [work.using(unique=key).request() for key in "aabbc"]
    await app.enqueue_many(requests, return_exceptions=True)


@situation("JobEnqueued", "JobEnqueued", "JobStarted 1", "JobStarted 1", *["JobSucceeded 1"] * 2)
async def enqueued_by_a_handler_in_a_thread(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    def work(again: bool = True) -> None:
        if again:
            asyncio.run(work.enqueue(again=False))

    async with app.worker():
        await ends(await work.enqueue())
        await wait_until_async(lambda: stage.lines("app").count("JobSucceeded 1") == 2)


@situation("JobEnqueued pending", "JobEnqueued pending", stores=("sqlite", "postgres"))
async def in_a_transaction_of_the_caller(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    async def work() -> None: ...

    async with own_connection(stage, begins=True) as connection:
        await work.within(connection).enqueue()
        await app.enqueue_many([work.request()], within=connection)


@situation(
    *("JobEnqueued", "JobStarted 1", "JobEnqueued pending", "JobSucceeded 1"),
    stores=("sqlite", "postgres"),
)
async def in_a_transaction_of_a_handler_in_a_thread(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    def work(again: bool = True) -> None:
        asyncio.run(enqueue_within())

    async def enqueue_within() -> None:
        async with own_connection(stage, begins=True) as connection:
            await work.within(connection).using(delay=60).enqueue(again=False)

    async with app.worker():
        await ends(await work.enqueue())


@situation("JobEnqueued", "JobStarted 1", "JobSucceeded 1", stores=("sqlite", "postgres"))
async def ended_in_a_transaction_of_the_handler(stage: Stage) -> None:
    app = await stage.app()

    @app.task(name="work", queue="mail")
    async def work() -> None:
        async with own_connection(stage) as connection, current_job().transaction(connection):
            pass

    async with app.worker():
        await ends(await work.enqueue())
        await stage.saw(JobSucceeded)


@situation("JobEnqueued", "JobStarted 1", "JobSucceeded 1", stores=("sqlite", "postgres"))
async def ended_by_a_commit_whose_answer_is_lost(stage: Stage) -> None:
    """The handler fails, but its transaction has ended the job: the store knows."""
    app = await stage.app()

    @app.task(name="work", queue="mail", retry=AT_ONCE)
    async def work() -> None:
        async with own_connection(stage) as connection:
            block: Any = current_job().transaction(connection)
            commit = block._within.commit

            async def answers_nothing() -> None:
                await commit()
                raise ConnectionError

            block._within.commit = answers_nothing
            async with block:
                pass

    async with app.worker():
        job = await work.enqueue()
        await ends(job)
        await stage.saw(JobSucceeded)


@asynccontextmanager
async def own_connection(stage: Stage, *, begins: bool = False) -> AsyncIterator[Any]:
    """Yield a connection of the user to the database of the store; begin a transaction on it."""
    url = stage.world.url
    if stage.world.family == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as own:
            if begins:
                own.execute("BEGIN IMMEDIATE")
            yield own
        return
    async with AsyncExitStack() as stack:
        connection = await asyncpg.connect(url)
        stack.push_async_callback(connection.close)
        if begins:
            await stack.enter_async_context(connection.transaction())
        yield connection


# The table on each store.


@pytest.fixture
async def stage(real_world: World) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(real_world, Faults(), stack)


@pytest.mark.parametrize("name", SITUATIONS)
async def test_a_subscriber_gets_each_event_once_though_replies_are_lost(stage: Stage, name: str):
    play, expected, stores = SITUATIONS[name]
    if stage.world.family not in stores:
        pytest.skip("this store has no transactions of the user")
    stage.faults.lose_reply("insert")
    stage.faults.lose_reply("settle")
    await play(stage)
    closed = [app for app in expected if app not in stage.seen]
    assert not closed
    assert {app: sorted(stage.lines(app)) for app in stage.seen} == {
        app: sorted(lines) for app, lines in expected.items()
    }


# What a subscriber of a single app sees in other ways to enqueue and to run.


def job_lines(seen: list[Event]) -> list[str]:
    return [line(event) for event in seen if isinstance(event, OF_JOBS)]


class FailsWithTheSecondSlice(FaultyStore):
    """A store that answers only the first insert."""

    async def _pass(self, call: str, send: Callable[[], Awaitable[Any]]) -> Any:
        if call == "insert" and self.faults.calls["insert"]:
            self.faults.calls["insert"] += 1
            raise StoreUnavailable("away")
        return await super()._pass(call, send)


async def test_a_call_that_fails_halfway_reports_the_jobs_that_it_has_stored(real_world: World):
    seen: list[Event] = []
    app = Tenure(FailsWithTheSecondSlice(real_world.unopened()))
    app.on_event(seen.append)
    work = app.task(lambda: None, name="work", queue="mail")
    async with app:
        with pytest.raises(StoreUnavailable):
            await app.enqueue_many(work.request() for _ in range(201))
        assert await app.jobs(limit=1)
    assert job_lines(seen) == ["JobEnqueued"] * 200


async def test_a_job_whose_caller_is_cancelled_meanwhile_is_reported(app, faults, clock, seen):
    work = app.task(lambda: None, name="work", queue="mail")
    faults.delay("insert", 1)
    calling = asyncio.ensure_future(work.enqueue())
    await clock.advance(0.5)
    calling.cancel()
    await clock.advance(1)
    assert [job.task for job in await app.jobs()] == ["work"]
    assert job_lines(seen) == ["JobEnqueued"]


async def test_a_cancelled_job_is_reported_though_the_store_cannot_say_more(app, faults, seen):
    work = app.task(lambda: None, name="work", queue="mail")
    job = await work.enqueue()
    faults.lose_request("get")
    await job.cancel()
    assert job_lines(seen) == ["JobEnqueued", "JobCancelled 0"]


async def test_a_delay_is_no_wait(app, clock, seen):
    work = app.task(lambda: None, name="work", queue="mail")
    await work.enqueue()
    await work.using(delay=60).enqueue()
    await clock.advance(7)
    async with app.worker():
        await clock.advance(70)
    waits = [event.waited for event in seen if isinstance(event, JobStarted)]
    assert waits[0] == pytest.approx(7, abs=1)
    assert waits[1] == pytest.approx(0, abs=1)


async def test_a_job_that_ends_soon_after_it_was_given_up_is_handed_back_once(make, faults, clock):
    app, seen, loop = await make(faulty=True, grace=1), [], asyncio.get_running_loop()
    app.on_event(seen.append)
    ends: asyncio.Future[None] = loop.create_future()

    async def run_on() -> None:
        while not ends.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(ends)
        raise asyncio.CancelledError

    work = app.task(run_on, name="work", queue="mail")
    worker = app.worker()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(worker)
        await work.enqueue()
        await clock.advance(1)
        faults.delay("settle", 5)
        stopping = asyncio.ensure_future(stack.aclose())
        while not any(isinstance(event, HandlerStuck) for event in seen):
            await clock.advance(0.5)
        ends.set_result(None)
        await clock.advance(30)
        await stopping
    reasons = [event.reason for event in seen if isinstance(event, JobHandedBack)]
    assert reasons == ["its worker was stopped, and it ran on"]


async def test_a_retry_is_reported_though_the_store_cannot_say_more(app, faults, clock, seen):
    async def fail() -> None:
        raise Retry(after=3600)

    work = app.task(fail, name="work", queue="mail", retry=Backoff(max_attempts=2))
    faults.lose_reply("settle", times=1)
    faults.lose_request("get", times=1)
    async with app.worker():
        await work.enqueue()
        await clock.advance(10)
        assert job_lines(seen) == ["JobEnqueued", "JobStarted 1", "JobRetried 1"]
        await work.enqueue()
        await clock.advance(10)
        assert len(job_lines(seen)) == 6


async def test_a_job_cancelled_before_the_repeat_of_its_retry_is_cancelled_once(
    app, faults, clock, seen
):
    @app.task(queue="mail", retry=3)
    async def work() -> None:
        raise ValueError

    async with app.worker():
        faults.lose_reply("settle")
        job = await work.enqueue()
        while (await job.refresh()).state != "waiting" or not faults.calls["settle"]:
            await clock.advance(0.001)
        await job.cancel()
        await clock.advance(5)
    expected = ["JobEnqueued", "JobStarted 1", "JobRetried 1", "JobCancelled 1"]
    assert sorted(job_lines(seen)) == sorted(expected)


async def test_a_cancelled_job_is_reported_though_its_canceller_is_cancelled(
    app, faults, clock, seen
):
    work = app.task(lambda: None, name="work", queue="mail")
    job = await work.enqueue()
    faults.delay("get", 1)
    cancelling = asyncio.ensure_future(job.cancel())
    await clock.advance(0.5)
    cancelling.cancel()
    await clock.advance(1)
    assert not await app.queues()
    assert job_lines(seen) == ["JobEnqueued", "JobCancelled 0"]


async def test_a_job_that_the_next_tick_replaces_is_cancelled_once(make, clock):
    app = await make()
    seen: list[Event] = []
    app.on_event(seen.append)

    @app.task(queue="nobody takes it")
    async def sync() -> None: ...

    app.schedule(sync, every="10s", overlap="cancel_previous")
    async with app.worker(queues=["of its own"]):
        await clock.advance(35)
    replaced = [job.id for job in await app.jobs(state="cancelled")]
    assert len(replaced) > 1
    assert sorted(event.job for event in of_kind(seen, JobCancelled)) == sorted(replaced)


async def test_the_next_tick_replaces_a_job_that_cannot_be_read_before(make, clock, faults):
    app = await make(faulty=True)
    app.on_event(lambda event: None)

    @app.task(queue="nobody takes it")
    async def sync() -> None: ...

    app.schedule(sync, every="10s", overlap="cancel_previous")
    async with app.worker(queues=["of its own"]):
        faults.lose_request("get", times=1000)
        await clock.advance(25)
        assert await app.jobs(state="cancelled")


async def test_a_run_that_may_not_come_back_fails_once(make, clock):
    app, seen = await make(grace=0), list[Event]()
    app.on_event(seen.append)

    @app.timer(every=1, name="sweep")
    async def sweep() -> None:
        await clock.sleep(100)

    async with app.worker():
        await clock.advance(1.5)
    failed = [event for event in seen if isinstance(event, JobFailed)]
    assert [(event.task, event.queue, event.cause) for event in failed] == [
        ("@sweep", "@timers", "interrupted")
    ]
    assert not [event for event in seen if isinstance(event, JobHandedBack | JobSucceeded)]


async def test_jobs_of_child_processes_have_the_events_of_any_other():
    """Also those that a handler enqueues there: it does so through its worker."""
    app, seen = Tenure("memory://", grace=0, process_workers=1), list[Event]()
    app.on_event(seen.append)
    engine_of(app).registry.handlers.update(engine_of(cpu_tasks.app).registry.handlers)
    async with app, app.worker():
        await ends(await app.enqueue(cpu_tasks.enqueue_unique.request("k", 1)))
        await ends(await app.enqueue(cpu_tasks.refuse.request()))
    lines = [
        f"{type(event).__name__} {event.task}" for event in seen if isinstance(event, JobEvent)
    ]
    assert Counter(lines) == {
        "JobEnqueued enqueue_unique": 1,
        "JobStarted enqueue_unique": 1,
        "JobEnqueued take_memory": 1,
        "JobSucceeded enqueue_unique": 1,
        "JobEnqueued refuse": 1,
        "JobStarted refuse": 1,
        "JobFailed refuse": 1,
    }
    assert [event.cause for event in seen if isinstance(event, JobFailed)] == ["rejected"]


def test_subscribers_of_a_blocking_app_and_of_its_origin_get_each_event_once(real_world: World):
    origin, of_origin, of_blocking = Tenure(real_world.unopened()), list[Event](), list[Event]()
    origin.on_event(of_origin.append)

    @origin.task(name="work", queue="mail")
    def work() -> None: ...

    with blocking.Tenure(origin) as app:
        app.on_event(of_blocking.append)
        job = app.enqueue(work.request())
        assert job.cancel()
        app.enqueue_many([work.request(), work.request()])
    expected = ["JobEnqueued", "JobCancelled 0", "JobEnqueued", "JobEnqueued"]
    assert job_lines(of_blocking) == expected
    assert job_lines(of_origin) == expected


async def test_jobs_of_a_dead_process_are_reported_though_the_next_look_fails(
    make, store, clock, faults, monkeypatch
):
    app, seen = await make(faulty=True), list[Event]()
    app.on_event(seen.append)
    job = await app.task(lambda: None, name="work").enqueue()
    await claim_and_die(store)
    spec = ChildSpec(app="", queues=None, concurrency=1, grace=5.0, log_level=None)
    supervisor = Supervisor(app, spec, SupervisorOptions())
    second = {"orphans": 2}
    monkeypatch.setattr(
        faults, "takes_request", lambda call: faults.calls[call] == second.get(call)
    )
    recovering = asyncio.ensure_future(supervisor._recover_jobs_of("dead", [job.id]))
    await clock.advance(10)
    await recovering
    assert faults.calls["orphans"] == 3
    assert [event.waiting for event in of_kind(seen, JobsRecovered)] == [(job.id,)]


async def test_supervisors_with_the_same_process_id_report_a_recovery_once(
    make, store, clock, faults
):
    """In containers each of them is often process 1, and here they are one process."""

    class Kid:
        def __init__(self, replica: str) -> None:
            self.replica, self.second_replica = replica, None

        def lives(self, *_: float) -> bool:
            return True

        def order(self, _: Order) -> None: ...

    seen, beating = list[Event](), []
    spec = ChildSpec(app="", queues=None, concurrency=1, grace=5.0, log_level=None)
    for name in ("ann", "ben"):
        app = await make(faulty=True)
        app.on_event(seen.append)
        await store.jobs.beat([name], ttl=10, meta={})
        supervisor: Any = Supervisor(app, spec, SupervisorOptions())
        supervisor._children.add(Kid(name))
        beating.append(asyncio.ensure_future(supervisor._beats.run()))
    await clock.advance(15)
    job = await app.task(lambda: None, name="work").enqueue()
    await claim_and_die(store)
    faults.delay("settle", 3.5)  # the other one looks meanwhile
    await clock.advance(40)
    for task in beating:
        task.cancel()
    await asyncio.wait(beating)
    assert [event.waiting for event in of_kind(seen, JobsRecovered)] == [(job.id,)]


async def test_jobs_that_a_stopping_worker_has_recovered_are_reported(make, store, clock):
    """The worker stops between the settlement and its answer."""
    app, seen = await make(), list[Event]()
    app.on_event(seen.append)
    work = app.task(lambda: None, name="work")
    await work.enqueue()
    await claim_and_die(store)
    settled, stopping, settle = asyncio.Event(), asyncio.Event(), engine_of(app).store.jobs.settle
    host = engine_of(app).services().host.store

    async def settle_slowly(ends: Any) -> Any:
        answers = await settle(ends)
        if not settled.is_set():
            settled.set()
            await stopping.wait()
        return answers

    host.jobs.settle = settle_slowly
    async with app.worker(queues=["other"]):
        while not settled.is_set():
            await clock.advance(0.1)
        asyncio.get_running_loop().call_later(0.1, stopping.set)
    assert len([event for event in seen if isinstance(event, JobsRecovered)]) == 1
