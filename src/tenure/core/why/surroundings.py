"""What else in the store explains a job, a timer or a queue: the queues, and the workers.

It is read once, and explains any number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from tenure.core.jobs.records import QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.settings import ISOLATE_AFTER
from tenure.core.why.answer import process
from tenure.core.worker_info import Serving, read_serving

__all__ = ["Fleet", "Surroundings", "Worker"]


class Worker(Struct, frozen=True):
    """A replica, and what it serves; None if its record does not say so."""

    record: ReplicaRecord
    serving: Serving | None

    @property
    def is_alive(self) -> bool:
        return self.record.expires_in > 0 and not self.record.dead

    @property
    def where(self) -> str:
        """Its host and process."""
        return process(self.record.meta, self.record.id)


class Fleet:
    """All replicas that the store knows, looked up by what they serve."""

    def __init__(self, replicas: Iterable[ReplicaRecord] = ()) -> None:
        workers = [Worker(replica, read_serving(replica.meta)) for replica in replicas]
        self.alive = [worker for worker in workers if worker.is_alive]
        self.is_complete = all(worker.serving is not None for worker in self.alive)
        """Whether each live worker says what it serves."""
        self._by_id = {worker.record.id: worker for worker in workers}
        # A page of jobs asks for the same few queues and timers again and again.
        self._serving: dict[str, list[Worker]] = {}
        self._running: dict[str, list[Worker]] = {}

    def worker(self, id_: str) -> Worker | None:
        """Return a replica by its id, alive or not."""
        return self._by_id.get(id_)

    def where(self, id_: str) -> str:
        """Return the host and process of a replica, or a part of its id."""
        worker = self.worker(id_)
        return process({}, id_) if worker is None else worker.where

    def serving(self, queue: str) -> list[Worker]:
        """Return the live workers that take jobs from a queue."""
        if queue not in self._serving:
            self._serving[queue] = [
                worker
                for worker in self.alive
                if worker.serving and worker.serving.may_serve(queue)
            ]
        return self._serving[queue]

    def running(self, timer: str) -> list[Worker]:
        """Return the live workers that run a timer; with "" those that run any."""
        if timer not in self._running:
            self._running[timer] = [
                worker
                for worker in self.alive
                if worker.serving
                and (worker.serving.may_run(timer) if timer else worker.serving.timer_slots > 0)
            ]
        return self._running[timer]

    def leaves_out(self, timer: str) -> bool:
        """Return whether the app of a live worker declares a timer that this worker must not run.

        Workers with --no-timers do.
        """
        return any(
            worker.serving is not None and timer in worker.serving.idle_timers
            for worker in self.alive
        )


class Surroundings(Struct, frozen=True, kw_only=True):
    """The store's time, its queues and its replicas, as they were read together."""

    now: int
    fleet: Fleet
    queues: Mapping[str, QueueCounts] = {}
    """By name. Queues without unfinished jobs are missing."""
    max_attempts: Mapping[str, int] = {}
    """How many attempts the jobs of a task have, as far as tasks are declared in this process."""
    isolate_after: int = ISOLATE_AFTER
    """After how many losses a job runs alone."""

    def queue(self, name: str) -> QueueCounts:
        """Return the counts of a queue."""
        return self.queues.get(name) or QueueCounts(queue=name, waiting=0, running=0)

    @property
    def timer_runs(self) -> int:
        """How many runs of timers there are on all workers."""
        return self.queue(TIMERS_QUEUE).running
