"""Events of a worker process: it was declared dead, or its loop or interpreter was blocked."""

from __future__ import annotations

import logging

from tenure.core.durations import duration
from tenure.core.safe_text import safe
from tenure.observe.base import BaseEvent, Detail, first_of

__all__ = [
    "ClockJumped",
    "InterpreterBlocked",
    "LoopBlocked",
    "QueueDelayed",
    "ReplicaExpired",
    "ReplicaJoined",
    "ReplicaLeft",
    "ReplicaLost",
]


class ReplicaJoined(Detail, BaseEvent, frozen=True):
    """A worker of this process has joined: it takes jobs from now on."""

    replica: str
    queues: tuple[str, ...] = ()


class ReplicaLeft(Detail, BaseEvent, frozen=True):
    """A worker of this process has left, and has handed back what it had not finished."""

    replica: str


class ReplicaExpired(BaseEvent, frozen=True):
    """This process has found the worker of another process dead, with or without jobs.

    Its heartbeats have stopped, or its supervisor has seen its process end. Once per worker: of all
    processes that look, the first one reports it.
    """

    replica: str
    by: str
    """The host and process that found it, such as "web-1:4711"."""
    process: str = ""
    """The host and process of the dead worker; empty if its record did not say."""

    @property
    def line(self) -> str:
        of = f" (host and process {safe(self.process)})" if self.process else ""
        return (
            f"worker {safe(self.replica[:8])}{of} was found dead by {safe(self.by)}: its process "
            "has ended, or sent no heartbeat in time. No job is lost: what it ran is recovered. "
            "See the last lines of its log."
        )

    @property
    def level(self) -> int:
        return logging.INFO


class ClockJumped(BaseEvent, frozen=True):
    """The store's clock was set: it moved by more, or less, than the time that has passed here.

    Once per jump of a second or more and process with a worker, by the instants in the answers to
    heartbeats. Not on SQLite, whose workers are judged by a clock that nobody sets.
    """

    seconds: float
    """How far it jumped ahead; negative: back. Precise to the duration of a call."""

    @property
    def line(self) -> str:
        way = "ahead" if self.seconds > 0 else "back"
        return (
            f"the store's clock jumped {way} by {abs(self.seconds):g} s. Locks and running jobs "
            "are safe; delayed jobs and timers may start early or late. Let its server follow a "
            "time server."
        )


class QueueDelayed(BaseEvent, frozen=True):
    """The oldest due job of a queue waits for longer than `queue_expected`. Not if it is paused.

    Once when it becomes late, by the one worker that looks at the queues. Another worker that
    follows this one reports a queue that is late then once more.
    """

    queue: str
    age: float
    expected: float

    def __str__(self) -> str:
        return (
            f"the oldest due job of queue {safe(self.queue)!r} waits for {duration(self.age)}; "
            f"expected is {duration(self.expected)}. Start workers for this queue, or raise "
            "queue_expected."
        )


class ReplicaLost(BaseEvent, frozen=True):
    """Other replicas declared this one dead. Its jobs were stopped here and run elsewhere."""

    replica: str
    jobs: tuple[str, ...]

    @property
    def line(self) -> str:
        jobs = "It ran no job."
        if self.jobs:
            jobs = f"Its jobs were stopped here and run elsewhere ({first_of(self.jobs)})."
        return (
            f"worker {safe(self.replica[:8])} was taken for dead: its heartbeats did not arrive in "
            f"time, or the store has lost its record. {jobs} It joins again by itself. Look for a "
            "paused process, a blocked interpreter or a slow store."
        )


class LoopBlocked(BaseEvent, frozen=True):
    """A handler blocks the event loop of a worker, so nothing else runs there."""

    seconds: float
    stack: str
    task: str = ""
    """The task of the blocking handler; empty if no job runs at that moment."""
    job: str = ""


class InterpreterBlocked(BaseEvent, frozen=True):
    """No thread of a worker ran for a while, not even its heartbeats; workers without a supervisor.

    The cause is C code that holds the GIL, or a pause of the process. At most once a minute.
    """

    seconds: float
    replica_ttl: float
    jobs: tuple[str, ...]
    """Tasks and ids of some of the jobs that ran meanwhile."""

    def __str__(self) -> str:
        jobs = f"one of these jobs blocks it ({first_of(self.jobs)}), or " if self.jobs else ""
        ttl = f"replica_ttl is {self.replica_ttl:g} s"
        effect = (
            f"{ttl}: other workers have taken this worker for dead, and run its jobs again"
            if self.seconds >= self.replica_ttl
            else f"{ttl}: if it takes longer than that, other workers run its jobs again"
        )
        return (
            f"the interpreter was blocked for {self.seconds:g} s: {jobs}the process was paused. "
            f"{effect}. Use executor='process' for such code, or 'tenure worker', whose supervisor "
            "sends heartbeats meanwhile."
        )
