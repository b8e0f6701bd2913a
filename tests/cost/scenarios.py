"""The work that is measured, through the public API. Each is done a few times before it counts.

The first calls on a connection prepare statements, load scripts and plan queries.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from tenure import Tenure
from tenure.app import engine_of
from tenure.core.ids import JobIds
from tenure.runtime.attempts.running_job import current
from tests.cost.stage import Stage

__all__ = ["SCENARIOS", "Scenario"]

Scenario = Callable[[Stage], Awaitable[None]]

# PostgreSQL plans a statement of a function anew for the first five times.
_WARM = 7
_UNITS = 10
_BULK = 200
_BATCH = 50
_TIMERS = 20
# Longer than what workers claim ahead of free slots.
_JOB_SECONDS = 0.2


async def enqueue(stage: Stage) -> None:
    """A producer stores jobs one by one, and in bulk. No worker is there."""
    app = await stage.app()
    task = _task(app, stage)

    async def enqueue_alone(number: int) -> None:
        await task.enqueue(number)
        await stage.quiet()  # PostgreSQL announces jobs after a moment, and together

    await _repeat(enqueue_alone, _WARM)
    async with stage.measured("job enqueued alone", _UNITS):
        await _repeat(enqueue_alone, _UNITS)
    for _ in range(2):
        await app.enqueue_many([task.request(number) for number in range(_BULK)])
    async with stage.measured("job enqueued in bulk", _BULK):
        await app.enqueue_many([task.request(number) for number in range(_BULK)])
    with _inside_a_job(app):
        await app.enqueue_many([task.request(number) for number in range(_BULK)])
        async with stage.measured("job enqueued in bulk by a job", _BULK):
            await app.enqueue_many([task.request(number) for number in range(_BULK)])


async def work_alone(stage: Stage) -> None:
    """A worker with one slot works off a queue: claims a job, runs it, settles it."""
    await _work_off(stage, "job worked off alone", slots=1, rounds=_UNITS)


async def work_in_batches(stage: Stage) -> None:
    """A worker with many slots works off a queue: all slots become free at the same time."""
    await _work_off(stage, "job worked off in batches", slots=_BATCH, rounds=2)


async def wake(stage: Stage) -> None:
    """A job is enqueued, wakes an idle worker, runs and is settled."""
    app = await stage.app()
    task = _task(app, stage)
    await stage.worker(app)

    async def life(number: int) -> None:
        started = stage.started
        await task.enqueue(number)
        await stage.until_started(started + 1)
        await stage.let_finish()

    await _repeat(life, _WARM)
    async with stage.measured("job for an idle worker", _UNITS):
        await _repeat(life, _UNITS)


async def idle(stage: Stage) -> None:
    """A worker with a task and the usual settings has nothing to do."""
    app = await stage.app(replica_ttl=10)
    _task(app, stage)
    await stage.worker(app)
    await stage.advance(app, 60)
    async with stage.measured("idle worker, a minute", 5):
        await stage.advance(app, 300)


async def tick(stage: Stage) -> None:
    """One timer is due on two replicas."""
    await _tick(stage, timers=1, ticks=_UNITS, suffix="")


async def ticks_together(stage: Stage) -> None:
    """Many timers are due at the same instant, on two replicas."""
    await _tick(stage, timers=_TIMERS, ticks=2, suffix=f", {_TIMERS} at once")


async def idle_timers(stage: Stage) -> None:
    """A worker with many timers, none of which is due, declares them and has nothing to do."""
    app = await stage.app()
    for number in range(_TIMERS):
        app.timer(every="1d", name=f"timer-{number}")(stage.handle)
    await stage.worker(app)
    await stage.advance(app, 60)
    async with stage.measured(f"{_TIMERS} idle timers, a minute", 5):
        await stage.advance(app, 300)


async def lock(stage: Stage) -> None:
    """A lock is taken and given back; and it is asked for while another replica holds it."""
    app, other = await stage.app(), await stage.app()

    async def pair(_: int) -> None:
        async with app.lock("invoice:42"):
            pass

    async def be_refused(_: int) -> None:
        assert await app.lock("invoice:42").try_acquire() is None

    await _repeat(pair, _WARM)
    async with stage.measured("lock pair", _UNITS):
        await _repeat(pair, _UNITS)
    async with other.lock("invoice:42"):
        await _repeat(be_refused, _WARM)
        async with stage.measured("lock refused", _UNITS):
            await _repeat(be_refused, _UNITS)


SCENARIOS: dict[Scenario, tuple[str, ...]] = {
    enqueue: ("job enqueued alone", "job enqueued in bulk", "job enqueued in bulk by a job"),
    work_alone: ("job worked off alone",),
    work_in_batches: ("job worked off in batches",),
    wake: ("job for an idle worker",),
    idle: ("idle worker, a minute",),
    tick: ("tick won", "tick lost"),
    ticks_together: ("tick won, 20 at once", "tick lost, 20 at once"),
    idle_timers: ("20 idle timers, a minute",),
    lock: ("lock pair", "lock refused"),
}
"""What is played, and the units of work that each measures."""


async def _work_off(stage: Stage, what: str, *, slots: int, rounds: int) -> None:
    app = await stage.app()
    task = _task(app, stage)
    jobs = slots * (_WARM + rounds + 1)
    await app.enqueue_many([task.request(number) for number in range(jobs)])
    await stage.worker(app, concurrency=slots)

    async def next_round(_: int) -> None:
        started = stage.started
        await stage.advance(app, _JOB_SECONDS)
        await stage.let_finish()
        await stage.until_started(started + slots)

    await stage.until_started(slots)
    await _repeat(next_round, _WARM)
    async with stage.measured(what, slots * rounds):
        await _repeat(next_round, rounds)


async def _tick(stage: Stage, *, timers: int, ticks: int, suffix: str) -> None:
    """Let two replicas tick, one after the other: the second is too late for each tick."""
    replicas = [await stage.app(), await stage.app()]
    for app in replicas:
        for number in range(timers):
            app.timer(every="1s", name=f"timer-{number}")(stage.handle)
        await stage.worker(app, timer_concurrency=timers)
        await stage.advance(app, 0.699)
    winner, loser = replicas

    async def next_tick(_: int) -> None:
        started = stage.started
        async with stage.measured(f"tick won{suffix}", timers * ticks):
            await stage.advance(winner, 0.002)
            await stage.until_started(started + timers)
            await stage.let_finish()
        async with stage.measured(f"tick lost{suffix}", timers * ticks):
            await stage.advance(loser, 0.002)
        for app in replicas:
            await stage.advance(app, 0.998)

    await _repeat(next_tick, _WARM)
    stage.costs.clear()
    await _repeat(next_tick, ticks)


@contextmanager
def _inside_a_job(app: Tenure) -> Iterator[None]:
    """Let the block enqueue as a handler does. No worker is there, whose calls would count."""
    store = engine_of(app).store
    job = SimpleNamespace(id=JobIds(store.clock).make(), home=(store.url, store.namespace))
    token = current.set(job)
    yield
    current.reset(token)


def _task(app: Tenure, stage: Stage):
    async def resize(image: int) -> None:
        await stage.handle()

    return app.task(resize)


async def _repeat(act: Callable[[int], Awaitable[None]], times: int) -> None:
    for number in range(times):
        await act(number)
