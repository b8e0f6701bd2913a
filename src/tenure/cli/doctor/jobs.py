"""What `tenure doctor` finds about jobs: whether somebody runs them, and what is stuck."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence

from tenure.cli.jobs.selection import newest
from tenure.cli.output import duration, safe, some
from tenure.core.jobs.records import COUNT_MAX, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.view import waits_for_its_task
from tenure.core.leases import Finding
from tenure.core.schedules.documents import Schedule
from tenure.core.schedules.pauses import silent_for
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.worker_info import Serving, read_serving
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import Store

__all__ = ["jobs_examined"]

# A due job that waits for longer than this waits for something other than the next free worker.
_LATE = 60.0


async def jobs_examined(store: Store) -> list[Finding]:
    """Return what is to be known about workers and queues, and what is wrong with them."""
    replicas, queues = await store.jobs.replicas(), await store.jobs.counts()
    alive = [one for one in replicas if one.expires_in > 0 and not one.dead]
    known, now = await _timers(store, alive)
    return [
        _workers(alive, queues, known),
        *_recovery([one for one in replicas if one not in alive], alive),
        _waiting(queues),
        *[one async for one in _unknown(store, queues)],
        *_stuck(alive, queues),
        *_not_ticking(known, alive, now),
        *_paused(queues),
    ]


def _workers(
    alive: Sequence[ReplicaRecord], queues: Sequence[QueueCounts], timers: Sequence[Schedule]
) -> Finding:
    if alive:
        running = sum(replica.held for replica in alive)
        return Finding("ok", "workers", f"{len(alive):,} alive, with {_jobs(running)}")
    idle = []
    if any(queue.waiting or queue.running for queue in queues):
        idle.append("there are jobs that have not finished")
    if names := sorted(timer.name for timer in timers if not timer.standing.successor):
        idle.append(f"these timers do not tick: {some([safe(name) for name in names])}")
    if not idle:
        return Finding("ok", "workers", "none, and there is nothing to do")
    return Finding(
        "warning",
        "workers",
        f"none is alive, and {'; '.join(idle)}",
        "Start one: tenure worker MODULE:APP. If there should be some: do they use this store and "
        "this namespace?",
    )


def _recovery(gone: Sequence[ReplicaRecord], alive: Sequence[ReplicaRecord]) -> Iterator[Finding]:
    held = sum(one.held for one in gone)
    if not held:
        return
    workers = "a worker that is" if len(gone) == 1 else f"{len(gone):,} workers that are"
    detail = f"{_jobs(held)} of {workers} gone"
    if alive:
        advice = "The others take them over within seconds. If it stays so, see their logs."
        yield Finding("note", "recovery", detail, advice)
    else:
        advice = "Start a worker, which takes them over, or run 'tenure recover'."
        yield Finding("warning", "recovery", detail, advice)


def _waiting(queues: Sequence[QueueCounts]) -> Finding:
    waiting = sum(one.waiting for one in queues)
    if not waiting:
        return Finding("ok", "waiting", "no job")
    more = " or more" if any(one.waiting >= COUNT_MAX for one in queues) else ""
    oldest = max((one.oldest or 0.0 for one in queues), default=0.0)
    due = f", due for {duration(oldest)} at the longest" if oldest else ", none is due"
    return Finding("ok", "waiting", f"{_jobs(waiting)}{more}{due}")


async def _unknown(store: Store, queues: Sequence[QueueCounts]) -> AsyncIterator[Finding]:
    """Tell of jobs that workers hand back, each time with a delay: so they are never due for long.

    Only the newest of those that wait are looked at.
    """
    if not any(one.waiting for one in queues):
        return
    tasks = Counter([one.task async for one in newest(store, "waiting") if waits_for_its_task(one)])
    if not tasks:
        return
    waits, its = ("waits", "its") if tasks.total() == 1 else ("wait", "their")
    names = some([safe(task) for task, _ in tasks.most_common()])
    yield Finding(
        "warning",
        "tasks",
        f"{_jobs(tasks.total())} {waits} for a worker that knows {its} task: {names}",
        "The last one did not. Start one that imports the module which declares it, see "
        "Tenure(imports=[...]): within 5 minutes it gets what waits.",
    )


def _stuck(alive: Sequence[ReplicaRecord], queues: Sequence[QueueCounts]) -> Iterator[Finding]:
    """Tell of queues that are behind though they may be served and somebody could."""
    late = [one for one in queues if one.paused_for is None and (one.oldest or 0.0) > _LATE]
    if not late or not alive:
        return
    yield from _triggered(late)
    late = [one for one in late if one.queue != TIMERS_QUEUE]
    idle = [one for one in late if not one.running and not _is_served(one, alive)]
    if idle:
        yield Finding(
            "warning",
            "queues",
            f"jobs are due, and none runs: {_named(idle)}",
            "Is there a worker that serves them? See its log, and 'tenure worker --queues'. "
            "'tenure jobs show' tells what a job waits for.",
        )
    behind = [one for one in late if one not in idle]
    if behind:
        yield Finding(
            "note",
            "behind",
            f"more comes in than is done: {_named(behind)}",
            "Start more workers, or let each one run more: --concurrency.",
        )


def _is_served(queue: QueueCounts, alive: Sequence[ReplicaRecord]) -> bool:
    """Whether a worker says that it serves a queue: then it is busy with others."""
    told = (read_serving(one.meta) for one in alive)
    return any(queue.queue in serving.queues for serving in told if serving is not None)


def _triggered(late: Sequence[QueueCounts]) -> Iterator[Finding]:
    """Tell of timers that somebody wanted to run: only then do their runs wait in a queue."""
    for one in late:
        if one.queue == TIMERS_QUEUE:
            due = f"{_jobs(one.waiting)} of timers, due for {duration(one.oldest or 0.0)}"
            advice = (
                "Runs that were triggered, or were lost and run again, wait for a worker that has "
                "their timer: 'tenure jobs ls --queue @timers', 'tenure timers ls'."
            )
            yield Finding("warning", "timers", due, advice)


async def _timers(store: Store, alive: Sequence[ReplicaRecord]) -> tuple[list[Schedule], int]:
    """Return timers and schedules, and the store's time.

    The first ones of all, and those that living workers leave out in any case.
    """
    left_out = {name for serving in _serving(alive) for name in serving.idle_timers}
    first, wanted = await read_schedules(store), await read_schedules(store, sorted(left_out))
    return [*first.all, *wanted.all], wanted.now


def _serving(alive: Sequence[ReplicaRecord]) -> list[Serving]:
    """Return what workers say of themselves."""
    return [serving for replica in alive if (serving := read_serving(replica.meta)) is not None]


def _not_ticking(
    known: Sequence[Schedule], alive: Sequence[ReplicaRecord], now: int
) -> Iterator[Finding]:
    """Tell of timers and schedules that no worker runs.

    It is a mistake if the app of a living worker declares them. A timer that only the store knows
    may have been removed from the code. Without any worker, `_workers` names them all.
    """
    serving = _serving(alive)
    left_out = {name for worker in serving for name in worker.idle_timers}
    # A worker that starts or is replaced in a deploy declares its timers within that time.
    ticking = {schedule.name for schedule in known if schedule.is_declared(now)}
    ticking.update(name for worker in serving for name in worker.timers)
    if idle := sorted(left_out - ticking):
        yield Finding(
            "warning",
            "idle timers",
            f"no worker that is alive runs {some([safe(name) for name in idle])}",
            "Their app has workers, all with --no-timers, --burst or timers=False. Leave it out of "
            "one, or start one with 'tenure worker --timers-only MODULE:APP'.",
        )
    unknown = {schedule.name for schedule in known if not schedule.standing.successor}
    if alive and (gone := sorted(unknown - ticking - left_out)):
        yield Finding(
            "note",
            "old timers",
            f"no process declares {some([safe(name) for name in gone])}",
            "Start a worker whose app declares them, if they should still run. If they were "
            "removed: the store forgets them after two weeks.",
        )
    yield from _ahead(known, now)


def _ahead(schedules: Sequence[Schedule], now: int) -> Iterator[Finding]:
    """Tell of timers and schedules that a clock that was wrong has silenced."""
    lengths = {schedule.name: silent_for(schedule, now) for schedule in schedules}
    ahead = [f"{safe(name)} for {duration(lengths[name])}" for name in lengths if lengths[name]]
    if ahead:
        yield Finding(
            "warning",
            "timers ahead",
            f"silent, because their last tick is ahead of the store's clock: {some(ahead)}",
            "That clock was wrong when they ticked last, or is wrong now. Check it, then run "
            "'tenure timers reset NAME', or with --all.",
        )


def _paused(queues: Sequence[QueueCounts]) -> Iterator[Finding]:
    paused = [
        f"{safe(one.queue)} {_until(one.paused_for)}"
        for one in queues
        if one.paused_for is not None
    ]
    if paused:
        advice = "'tenure queues resume NAME' lets its jobs start."
        yield Finding("note", "paused", some(paused), advice)


def _until(left: float) -> str:
    return "until it is resumed" if math.isinf(left) else f"for another {duration(left)}"


def _named(queues: Sequence[QueueCounts]) -> str:
    return some([f"{safe(one.queue)} for {duration(one.oldest or 0.0)}" for one in queues])


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"
