"""Jobs that are short or long, fail, are cancelled, save, and must each end exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from msgspec import Struct

from tenure.app import Tenure
from tenure.core.jobs.retry_policy import Backoff
from tenure.core.jobs.states import FINISHED
from tenure.errors import JobNotFound, StoreError, StoreUnavailable, UniqueMismatch
from tenure.jobs import Job, Task
from tenure.runtime.attempts.job_context import current_job
from tenure.runtime.attempts.reports import Reject, Retry
from tests.sim.fleet import Fleet, Process, current_process
from tests.sim.plan import Plan
from tests.sim.scenarios.startup import open_app

__all__ = [
    "BACKOFF",
    "JOBS_PER_MACHINE",
    "JobSpec",
    "begin",
    "end",
    "have_ended",
    "is_done",
    "jobs_done",
    "loss_budget",
    "program",
    "run_jobs",
    "work",
]

JOBS_PER_MACHINE = 3
"""For each machine."""
_TRIES = 3
BACKOFF = Backoff(max_attempts=_TRIES, base=0.2, cap=1)
_SHARED = 0.15
# A request that was cut off may arrive so much later.
_LATEST = 4.2


class JobSpec(Struct, frozen=True):
    """What one job shall do."""

    number: int
    seconds: float
    fails: int = 0
    """How many failures it has before it succeeds."""
    pause: float = 0.1
    """How long after a failure it wants to be tried again."""
    kills: int = 0
    """How many attempts take their process with them."""
    rejects: bool = False
    saves: bool = False
    delay: float = 0.0
    timeout: float = 0.0
    cancel_after: float = -1.0
    unique: str = ""


async def work(order: JobSpec) -> int:
    """Do what the order says, and leave a trace of it."""
    process, job = current_process.get(), current_job()
    facts: dict[str, Any] = {"job": job.id, "fence": job.fence, "attempt": job.attempt}
    saved = "" if job.checkpoint is None else str(job.checkpoint)
    process.record("began", number=order.number, detail=saved, **facts)
    if job.losses < order.kills:
        process.machine.crash_now()
    try:
        process.fleet.resource.write(process.name, job.id, job.fence)
        if order.saves:
            job.progress(0.5, "half")
            await _save(process, order.number)
        await process.clock.sleep(order.seconds)
        if order.saves:
            job.progress(0.9)
        if order.rejects:
            raise Reject("not this one")
        if job.failures < order.fails:
            raise Retry(after=order.pause) if order.number % 3 else ValueError("once more")
        process.fleet.resource.write(process.name, job.id, job.fence)
    except asyncio.CancelledError:
        process.record("stopped", **facts)
        raise
    except Exception as error:
        pause = order.pause if isinstance(error, Retry) else 0.0
        process.record("failed", detail=type(error).__name__, seconds=pause, **facts)
        raise
    process.record("finished", **facts)
    return order.number


async def _save(process: Process, value: int) -> None:
    job = current_job()
    try:
        await job.save(value)
    except StoreError:
        process.record("notified of loss", job=job.id, fence=job.fence)
    else:
        process.record("saved", job=job.id, fence=job.fence, detail=str(value))


def begin(fleet: Fleet, each: int = JOBS_PER_MACHINE) -> None:
    """Hand out the orders, so many to each machine."""
    for place, machine in enumerate(fleet.machines):
        specs = [_spec(machine.rng, 100 * place + n, fleet.plan) for n in range(each)]
        machine.disk["specs"] = specs
        machine.disk["requesting"] = False


def loss_budget(plan: Plan) -> int:
    """Return how often a job may be lost in this run."""
    return plan.rng("loss budget").choice((3, 1, 0, 3))


def _spec(rng: Random, number: int, plan: Plan) -> JobSpec:
    ttl = plan.ttl
    is_poison = "crash" in plan.faults and rng.random() < 0.2
    length = rng.choice((0.0, 0.0, 0.01, 0.3 * ttl, 1.5 * ttl, 3 * ttl))
    if rng.random() < _SHARED:
        return _shared_spec(plan)
    return JobSpec(
        number=number,
        seconds=round(length * rng.uniform(0.5, 1.0), 3),
        fails=rng.choice((0, 0, 0, 1, 2, 3)),
        kills=rng.choice((1, 3, 9)) if is_poison else 0,
        rejects=rng.random() < 0.05,
        saves=rng.random() < 0.5,
        delay=rng.choice((0.0, 0.0, 0.0, 0.5)),
        timeout=rng.choice((0.0, 0.0, 0.0, ttl, 3 * ttl)),
        cancel_after=-1.0 if rng.random() > 0.15 else round(rng.uniform(0, 2), 3),
    )


def _shared_spec(plan: Plan) -> JobSpec:
    """Return what several machines ask for under one key: the same in every respect."""
    rng = Random(f"shared {plan.seed}")
    return JobSpec(
        number=7777,
        seconds=0.4,
        fails=rng.choice((0, 1, 2, 3)),
        pause=1.0,
        delay=rng.choice((0.0, 0.0, 0.5)),
        timeout=rng.choice((0.0, 0.0, 0.3)),
        cancel_after=rng.choice((-1.0, -1.0, 0.0, 0.6)),
        unique="shared",
    )


async def program(process: Process) -> None:
    """Work and ask for work, until it is asked to stop."""
    await run_jobs(process)


async def run_jobs(
    process: Process,
    beside: Callable[[Tenure], Awaitable[None]] | None = None,
    declare: Callable[[Tenure], None] = lambda _: None,
    concurrency: Sequence[int] = (1, 2, 8),
) -> None:
    """Run a worker and a producer, and what else a program does beside them."""
    machine, rng = process.machine, process.machine.rng
    machine.disk["requesting"] = False
    app = Tenure(
        process.connect(),
        replica_ttl=process.fleet.plan.ttl,
        loss_budget=loss_budget(process.fleet.plan),
    )
    task = app.task(name="work", retry=BACKOFF)(work)
    declare(app)
    app.on_event(process.record_event)
    if not await open_app(app, process):
        return
    worker = app.worker(concurrency=rng.choice(concurrency), grace=rng.choice((0.0, 0.5, 5.0)))
    try:
        async with worker:
            machine.disk["worker"] = worker
            others = [asyncio.ensure_future(_produce(process, task))]
            if beside is not None:
                others.append(asyncio.ensure_future(beside(app)))
            await process.stopping.wait()
            for other in others:
                other.cancel()
            await asyncio.wait(others)
    finally:
        machine.disk["requesting"] = False
        await app.close()


async def _produce(process: Process, task: Task[[JobSpec], int]) -> None:
    disk, rng = process.machine.disk, process.machine.rng
    while disk["specs"]:
        disk["requesting"] = True
        order: JobSpec = disk["specs"].pop(0)
        process.record("offered", number=order.number)
        job = await _ask(process, task, order)
        if job is not None and order.cancel_after >= 0:
            await process.clock.sleep(order.cancel_after)
            await _cancel(process, job)
        disk["requesting"] = False
        await process.clock.sleep(rng.uniform(0, 0.5))


async def _ask(process: Process, task: Task[[JobSpec], int], order: JobSpec) -> Job[int] | None:
    described = task.using(
        delay=order.delay,
        unique=order.unique or None,
        timeout=order.timeout or None,
    )
    try:
        job = await described.enqueue(order)
    except (StoreUnavailable, UniqueMismatch) as error:
        process.record("refused", number=order.number, detail=type(error).__name__)
        return None
    process.record("accepted", number=order.number, job=job.id)
    return job


async def _cancel(process: Process, job: Job[int]) -> None:
    process.record("cancels", job=job.id)
    try:
        await job.cancel("changed my mind")
    except (StoreError, JobNotFound) as error:
        process.record("refused", job=job.id, detail=type(error).__name__)


def jobs_done(fleet: Fleet) -> bool:
    """Return whether everything was asked for, and has ended."""
    is_asking = any(
        machine.disk["specs"] or machine.disk["requesting"] for machine in fleet.machines
    )
    return not is_asking and have_ended(fleet)


def have_ended(fleet: Fleet) -> bool:
    """Return whether all jobs have ended, and nothing that was cut off can arrive any more."""
    if any(job.state not in FINISHED for job in fleet.server.data.jobs.jobs.values()):
        return False
    waits = _LATEST if "late requests" in fleet.plan.call_faults else 0.0
    waits = max(waits, 2 * fleet.plan.ttl) if "late effects" in fleet.plan.call_faults else waits
    return waits == 0 or fleet.loop.time() > fleet.plan.horizon + waits


is_done = jobs_done


def end(fleet: Fleet) -> None:
    """Ask all processes to end, and start none any more."""
    fleet.server.jobs.record_final_states()
    for machine in fleet.machines:
        machine.is_finished = True
        machine.stop()
