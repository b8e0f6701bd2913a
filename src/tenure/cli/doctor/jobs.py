"""What `tenure doctor` finds about workers, queues and timers: idle, late or paused ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence

from tenure.cli.jobs.selection import newest_jobs
from tenure.cli.text import count, duration, first_few, safe
from tenure.core.jobs.records import COUNT_MAX, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.view import waits_for_its_task
from tenure.core.leases import Finding
from tenure.core.schedules.documents import Schedule
from tenure.core.schedules.pauses import silent_for
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.why import LATE_AFTER, Fleet, Surroundings, why_queue
from tenure.core.worker_info import Serving, read_serving
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores.contract import Store

__all__ = ["job_findings"]


async def job_findings(store: Store) -> list[Finding]:
    """Return facts and problems of workers, queues and timers."""
    replicas, queues = await store.jobs.replicas(), await store.jobs.counts()
    alive = [replica for replica in replicas if replica.expires_in > 0 and not replica.dead]
    gone = [replica for replica in replicas if replica not in alive]
    schedules, now = await _schedules(store, alive)
    around = Surroundings(
        now=now, fleet=Fleet(replicas), queues={queue.queue: queue for queue in queues}
    )
    return [
        _workers(alive, queues, schedules),
        *_recovery(gone, alive),
        _waiting(queues),
        *[finding async for finding in _unknown_tasks(store, queues)],
        *_late_queues(queues, around),
        *_not_ticking(schedules, alive, now),
        *_paused(queues),
    ]


def _workers(
    alive: Sequence[ReplicaRecord], queues: Sequence[QueueCounts], schedules: Sequence[Schedule]
) -> Finding:
    if alive:
        running = sum(replica.held for replica in alive)
        detail = f"{len(alive):,} alive, with {count(running, 'running job')}"
        return Finding("ok", "workers", detail)
    idle = []
    if any(queue.waiting or queue.running for queue in queues):
        idle.append("there are jobs that have not finished")
    if names := sorted(timer.name for timer in schedules if not timer.standing.successor):
        idle.append(f"these timers do not tick: {_names(names)}")
    if not idle:
        return Finding("ok", "workers", "none, and there is nothing to do")
    return Finding(
        "warning",
        "workers",
        f"none is alive, and {'; '.join(idle)}",
        "Start one: tenure worker MODULE:APP. If workers should be running, check that they use "
        "this store and this namespace.",
    )


def _recovery(gone: Sequence[ReplicaRecord], alive: Sequence[ReplicaRecord]) -> Iterator[Finding]:
    held = sum(replica.held for replica in gone)
    if not held:
        return
    workers = "a worker that is" if len(gone) == 1 else f"{len(gone):,} workers that are"
    detail = f"{count(held, 'job')} of {workers} gone"
    if alive:
        advice = "Other workers recover them within seconds. If this stays, see their logs."
        yield Finding("note", "recovery", detail, advice)
    else:
        advice = "Start a worker, which recovers them, or run 'tenure recover'."
        yield Finding("warning", "recovery", detail, advice)


def _waiting(queues: Sequence[QueueCounts]) -> Finding:
    waiting = sum(queue.waiting for queue in queues)
    if not waiting:
        return Finding("ok", "waiting", "no job")
    more = " or more" if any(queue.waiting >= COUNT_MAX for queue in queues) else ""
    oldest = max((queue.oldest or 0.0 for queue in queues), default=0.0)
    due = f", the oldest due for {duration(oldest)}" if oldest else ", none is due"
    return Finding("ok", "waiting", f"{count(waiting, 'job')}{more}{due}")


async def _unknown_tasks(store: Store, queues: Sequence[QueueCounts]) -> AsyncIterator[Finding]:
    """Yield a warning about jobs that no worker knows the task of, among the newest waiting jobs.

    Workers hand such jobs back with a growing delay, so they are never due for long.
    """
    if not any(queue.waiting for queue in queues):
        return
    tasks = Counter(
        [job.task async for job in newest_jobs(store, "waiting") if waits_for_its_task(job)]
    )
    if not tasks:
        return
    waits, its = ("waits", "its") if tasks.total() == 1 else ("wait", "their")
    jobs, names = count(tasks.total(), "job"), _names([task for task, _ in tasks.most_common()])
    yield Finding(
        "warning",
        "tasks",
        f"{jobs} {waits} for a worker that knows {its} task: {names}",
        "The last worker did not know it. Start a worker that imports the module which declares "
        "it, see Tenure(imports=[...]). It gets these jobs within 5 minutes.",
    )


def _late_queues(queues: Sequence[QueueCounts], around: Surroundings) -> Iterator[Finding]:
    """Yield the queues that have late jobs although workers are alive and it is not paused."""
    late = [queue for queue in queues if (queue.oldest or 0.0) > LATE_AFTER]
    whys = {queue.queue: why_queue(queue.queue, around) for queue in late}
    late = [queue for queue in late if whys[queue.queue].code not in ("paused", "no-worker")]
    yield from _late_timer_runs(late)
    late = [queue for queue in late if queue.queue != TIMERS_QUEUE]
    idle = [queue for queue in late if whys[queue.queue].code == "unserved"]
    if idle:
        yield Finding(
            "warning",
            "queues",
            f"jobs are due, and none runs: {_delays(idle)}",
            f"{whys[idle[0].queue].next}. 'tenure why QUEUE' explains each queue.",
        )
    behind = [queue for queue in late if queue not in idle]
    if behind:
        yield Finding(
            "note",
            "behind",
            f"jobs come in faster than they are done: {_delays(behind)}",
            f"{whys[behind[0].queue].next}. 'tenure why QUEUE' explains each queue.",
        )


def _late_timer_runs(late: Sequence[QueueCounts]) -> Iterator[Finding]:
    """Yield a warning about late runs of timers: only triggered and recovered runs have to wait."""
    for queue in late:
        if queue.queue == TIMERS_QUEUE:
            runs = count(queue.waiting, "run")
            detail = f"{runs} of timers, due for {duration(queue.oldest or 0.0)}"
            advice = (
                "Runs that were triggered, or lost and run again, wait for a worker that has their "
                "timer: 'tenure jobs ls --queue @timers', 'tenure timers ls'."
            )
            yield Finding("warning", "timers", detail, advice)


async def _schedules(store: Store, alive: Sequence[ReplicaRecord]) -> tuple[list[Schedule], int]:
    """Return timers and schedules, and the store's time.

    These are the first ones of all, and in any case those that living workers leave out.
    """
    left_out = {name for serving in _servings(alive) for name in serving.idle_timers}
    first, others = await read_schedules(store), await read_schedules(store, sorted(left_out))
    return [*first.all, *others.all], others.now


def _servings(alive: Sequence[ReplicaRecord]) -> list[Serving]:
    """Return what workers publish about themselves."""
    return [serving for replica in alive if (serving := read_serving(replica.meta)) is not None]


def _not_ticking(
    schedules: Sequence[Schedule], alive: Sequence[ReplicaRecord], now: int
) -> Iterator[Finding]:
    """Yield timers and schedules that no worker runs.

    It is a mistake if the app of a living worker declares them. A timer that only the store has
    may have been removed from the code. Without any worker, `_workers` names all of them.
    """
    servings = _servings(alive)
    left_out = {name for serving in servings for name in serving.idle_timers}
    # During a deploy, workers that start or are replaced declare their timers within that time.
    ticking = {schedule.name for schedule in schedules if schedule.is_declared(now)}
    ticking.update(name for serving in servings for name in serving.timers)
    if idle := sorted(left_out - ticking):
        yield Finding(
            "warning",
            "idle timers",
            f"no living worker runs {_names(idle)}",
            "All workers of their app have --no-timers, --burst or timers=False. Start a worker "
            "without it, or one with 'tenure worker --timers-only MODULE:APP'.",
        )
    stored = {schedule.name for schedule in schedules if not schedule.standing.successor}
    if alive and (gone := sorted(stored - ticking - left_out)):
        yield Finding(
            "note",
            "old timers",
            f"no process declares {_names(gone)}",
            "If they should still run, start a worker whose app declares them. If they were "
            "removed from the code, the store forgets them after two weeks.",
        )
    yield from _ahead(schedules, now)


def _ahead(schedules: Sequence[Schedule], now: int) -> Iterator[Finding]:
    """Yield timers and schedules that are silent because the store's clock was wrong."""
    lengths = {schedule.name: silent_for(schedule, now) for schedule in schedules}
    ahead = [f"{safe(name)} for {duration(lengths[name])}" for name in lengths if lengths[name]]
    if ahead:
        yield Finding(
            "warning",
            "timers ahead",
            f"silent, because their last tick is ahead of the store's clock: {first_few(ahead)}",
            "That clock was wrong when they ticked last, or is wrong now. Check it, then run "
            "'tenure timers reset NAME', or with --all.",
        )


def _paused(queues: Sequence[QueueCounts]) -> Iterator[Finding]:
    paused = [
        f"{safe(queue.queue)} {_time_left(queue.paused_for)}"
        for queue in queues
        if queue.paused_for is not None
    ]
    if paused:
        advice = "'tenure queues resume NAME' ends the pause."
        yield Finding("note", "paused", first_few(paused), advice)


def _time_left(seconds: float) -> str:
    return "until it is resumed" if math.isinf(seconds) else f"for another {duration(seconds)}"


def _delays(queues: Sequence[QueueCounts]) -> str:
    return first_few(
        [f"{safe(queue.queue)} for {duration(queue.oldest or 0.0)}" for queue in queues]
    )


def _names(names: Sequence[str]) -> str:
    return first_few([safe(name) for name in names])
