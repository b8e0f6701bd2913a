"""Why the jobs of a queue do not run: it is paused, no worker serves it, or all slots are taken."""

from __future__ import annotations

from tenure.core.durations import duration
from tenure.core.jobs.records import COUNT_MAX, SOON, QueueCounts
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.why.answer import (
    Clause,
    Why,
    answer,
    because,
    command,
    counted,
    pause_left,
)
from tenure.core.why.surroundings import Surroundings, Worker

__all__ = ["LATE_AFTER", "START_WORKER", "obstacle", "running", "why_queue"]

LATE_AFTER = 60.0
"""A due job that waits for more seconds waits for more than the next free slot."""

START_WORKER = f"Start one: {command('worker')} MODULE:APP"
_MORE_WORKERS = (
    "Start more workers, or let each worker run more jobs: tenure worker --concurrency NUMBER"
)


def why_queue(name: str, around: Surroundings) -> Why:
    """Explain a queue.

    What keeps its jobs from running comes first, with the codes of a waiting job: paused,
    no-worker, unserved, busy. Others: late: jobs are due for more than a minute although workers
    serve it; waiting: jobs wait, and none is late; running: jobs run, and none waits; empty: it has
    no unfinished jobs.
    """
    queue = around.queue(name)
    if queue.paused_for is not None:
        return answer(_pause(queue, "it"), _contents(queue))
    if not queue.waiting and not queue.running:
        return _empty(name, around)
    if queue.oldest is None:
        return answer(_contents(queue))
    hurdle = obstacle(queue, around, "it", late=queue.oldest)
    contents = _contents(queue)
    return answer(contents) if hurdle is None else answer(hurdle, contents)


def obstacle(
    queue: QueueCounts, around: Surroundings, what: str, *, timer: str = "", late: float = 0.0
) -> Clause | None:
    """Return what keeps jobs of a queue from running; None if workers are about to take them.

    `what` names the queue in the sentence. With `timer`, the jobs are runs of it, which only
    workers with that timer take. `late` is for how many seconds they have been due.
    """
    if queue.paused_for is not None:
        return _pause(queue, what)
    alive, fleet = around.fleet.alive, around.fleet
    if not alive:
        return Clause("no-worker", "no worker is alive", START_WORKER)
    is_of_timers = queue.queue == TIMERS_QUEUE
    workers = fleet.running(timer) if is_of_timers else fleet.serving(queue.queue)
    # Workers claim at least this often, and an idle worker takes any due job.
    is_overdue = late > SOON and not queue.running
    if not workers and (fleet.is_complete or is_overdue):
        return _unserved(queue, len(alive), what, is_of_timers=is_of_timers, around=around)
    if workers and fleet.is_complete and _is_full(workers, around, is_of_timers=is_of_timers):
        return _busy(workers, what, is_of_timers=is_of_timers)
    return None


def running(queue: QueueCounts) -> str:
    """Return how many jobs of a queue run."""
    if not queue.running:
        return "none runs"
    return f"{queue.running:,} {'runs' if queue.running == 1 else 'run'}"


def _pause(queue: QueueCounts, what: str) -> Clause:
    assert queue.paused_for is not None
    left = pause_left(queue.paused_for)
    resume = f"Resume it: {command('queues', 'resume', queue.queue)}"
    return Clause("paused", f"{what} is paused {left}{because(queue.pause_reason)}", resume)


def _contents(queue: QueueCounts) -> Clause:
    """Return what is in a queue that has unfinished jobs."""
    runs = running(queue)
    if not queue.waiting:
        return Clause("running", f"no job waits in it, and {runs}")
    more = f"{COUNT_MAX:,} or more jobs wait" if queue.waiting >= COUNT_MAX else ""
    waiting = more or f"{counted(queue.waiting, 'job')} {'waits' if queue.waiting == 1 else 'wait'}"
    if queue.oldest is None:
        return Clause("waiting", f"{waiting} in it, none is due yet, and {runs}")
    text = f"{waiting} in it, the oldest due for {duration(queue.oldest)}, and {runs}"
    is_late = queue.oldest > LATE_AFTER
    return Clause("late", text, _MORE_WORKERS) if is_late else Clause("waiting", text)


def _empty(name: str, around: Surroundings) -> Why:
    workers = around.fleet.serving(name)
    if name == TIMERS_QUEUE:
        workers = around.fleet.running("")
    serve = "no live worker says that it serves it"
    if workers:
        serve = f"{counted(len(workers), 'worker')} {'serves' if len(workers) == 1 else 'serve'} it"
    return answer(Clause("empty", "it has no unfinished jobs"), Clause("", serve))


def _unserved(
    queue: QueueCounts, alive: int, what: str, *, is_of_timers: bool, around: Surroundings
) -> Clause:
    verb = "run" if is_of_timers else "serve"
    if not around.fleet.is_complete:
        workers = "1 worker is alive" if alive == 1 else f"{alive:,} workers are alive"
        text = f"{workers}, but none runs a job of {what}"
    elif alive == 1:
        text = f"the only live worker does not {verb} {what}"
    else:
        text = f"none of the {alive:,} live workers {verb}s {what}"
    start = (
        f"Start a worker that serves it: {command('worker', '--queues', queue.queue)} MODULE:APP"
    )
    if is_of_timers:
        start = "Start a worker whose app declares the timer, without --no-timers."
    return Clause("unserved", text, start)


def _is_full(workers: list[Worker], around: Surroundings, *, is_of_timers: bool) -> bool:
    """Return whether all slots of these workers are certainly taken.

    A record counts jobs and runs of timers together, which have slots of their own. So as many of
    them as possible count as runs of timers.
    """
    if is_of_timers:
        return sum(worker.record.held for worker in workers) >= _slots(workers, is_of_timers=True)
    runs, jobs = around.timer_runs, 0
    for worker in workers:
        assert worker.serving is not None
        jobs += max(0, worker.record.held - min(runs, worker.serving.timer_slots))
    return jobs >= _slots(workers, is_of_timers=False)


def _slots(workers: list[Worker], *, is_of_timers: bool) -> int:
    """Return how many jobs these workers can run; runs of timers may be among any of them."""
    slots = 0
    for worker in workers:
        assert worker.serving is not None
        slots += worker.serving.slots + (worker.serving.timer_slots if is_of_timers else 0)
    return slots


def _busy(workers: list[Worker], what: str, *, is_of_timers: bool) -> Clause:
    verb = "run" if is_of_timers else "serve"
    slots, number = _slots(workers, is_of_timers=is_of_timers), len(workers)
    whose = f"the worker that {verb}s {what}"
    if number > 1:
        whose = f"the {number:,} workers that {verb} {what}"
    taken = "the only slot" if slots == 1 else f"all {slots:,} slots"
    is_taken = "is" if slots == 1 else "are"
    return Clause("busy", f"{taken} of {whose} {is_taken} taken", _MORE_WORKERS)
