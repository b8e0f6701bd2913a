"""Why something does not run, and what to do about it: the one place that the pages ask.

The rules are those of `tenure jobs show`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from tenure.core.durations import duration
from tenure.core.jobs.records import SOON, JobRecord, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.view import waits_for_its_task
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.worker_info import read_serving
from tenure.dashboard.documents import counted, state_of
from tenure.timers import TimerInfo, TimerPause

__all__ = ["Reason", "Surroundings", "alive", "why_job", "why_timer"]

_START = "Start one: tenure worker MODULE:APP"


class Reason(Struct, frozen=True):
    """Why something does not run, in a sentence, and the next step; "" if there is none."""

    text: str
    next: str = ""


class Surroundings(Struct, frozen=True):
    """What explains the state of a job."""

    now: int
    queues: Sequence[QueueCounts]
    replicas: Sequence[ReplicaRecord]

    def queue(self, name: str) -> QueueCounts:
        """Return the counts of a queue, also of one without jobs."""
        nothing = QueueCounts(queue=name, waiting=0, running=0)
        return next((counts for counts in self.queues if counts.queue == name), nothing)


def alive(replicas: Sequence[ReplicaRecord]) -> list[ReplicaRecord]:
    """Return the replicas that are alive."""
    return [replica for replica in replicas if state_of(replica) == "alive"]


def why_job(job: JobRecord, around: Surroundings) -> Reason | None:
    """Return why a waiting job does not run; None for one that runs or has finished."""
    if job.state != "waiting":
        return None
    if not job.is_due(around.now):
        left = duration((job.due - around.now) / 1e6)
        if job.failures:
            return Reason(f"Waits {left} for its next attempt, after {job.failures} failed.")
        return Reason(f"Is due in {left}.")
    timer = job.schedule if job.queue == TIMERS_QUEUE else ""
    if waits_for_its_task(job):
        what = f"runs the timer {timer!r}" if timer else f"knows the task {job.task!r}"
        return Reason(
            f"Waits for a worker that {what}; the last one did not.",
            "Deploy a worker whose app declares it.",
        )
    queue = around.queue(job.queue)
    if queue.paused_for is not None:
        left = "until it is resumed"
        if not math.isinf(queue.paused_for):
            left = f"for another {duration(queue.paused_for)}"
        reason = f": {queue.pause_reason}" if queue.pause_reason else ""
        return Reason(f"Queue {job.queue} is paused {left}{reason}.", "Resume the queue.")
    return _why_no_worker_takes_it(job, timer, queue, around)


def _why_no_worker_takes_it(
    job: JobRecord, timer: str, queue: QueueCounts, around: Surroundings
) -> Reason:
    living = alive(around.replicas)
    if not living:
        return Reason("No worker is alive.", _START)
    published = {
        replica.id: serving for replica in living if (serving := read_serving(replica.meta))
    }
    slots_of = {
        id_: serving.slots + (serving.timer_slots if timer else 0)
        for id_, serving in published.items()
        if (serving.may_run(timer) if timer else serving.may_serve(queue.queue))
    }
    is_incomplete = len(published) < len(living)
    is_overdue = (around.now - job.due) / 1e6 > SOON and not queue.running
    if not slots_of and (is_overdue or not is_incomplete):
        serves = f"runs the timer {timer!r}" if timer else f"serves queue {queue.queue}"
        return Reason(f"{counted(len(living), 'worker')} alive, but none {serves}.", _START)
    held = sum(replica.held for replica in living if replica.id in slots_of)
    slots = sum(slots_of.values())
    if slots_of and held >= slots and not is_incomplete:
        workers = f"the {len(slots_of)} workers that serve it"
        if len(slots_of) == 1:
            workers = "the worker that serves it"
        return Reason(
            f"All {counted(slots, 'slot')} of {workers} are busy.",
            "Wait, or start more workers.",
        )
    ahead = max(queue.waiting - 1, 0)
    return Reason(f"Waits its turn: {ahead:,} others waiting, {queue.running:,} running.")


def why_timer(info: TimerInfo, everything: TimerPause | None) -> Reason | None:
    """Return what keeps a timer from ticking; None if nothing does."""
    if info.renamed_to:
        return Reason(f"It is called {info.renamed_to} now, so no worker runs this one.")
    if info.ahead:
        return Reason(
            f"It is silent for {duration(info.ahead)}: its last tick lies in the future.",
            f"Check the store's clock, then: tenure timers reset {info.name}",
        )
    if not info.is_declared:
        return Reason("No worker has declared it for over a minute.", _START)
    for whose, pause in (("It is", info.pause), ("All timers are", everything)):
        if pause is not None:
            reason = f": {pause.reason}" if pause.reason else ""
            return Reason(f"{whose} paused{reason}.", "Resume.")
    if info.next is None and info.running:
        return Reason("The next tick comes after its current run.")
    return None if info.next is not None else Reason("It never ticks again.")
