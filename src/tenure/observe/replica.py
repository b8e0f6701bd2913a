"""Events of a worker process: it was declared dead, or its loop or interpreter was blocked."""

from __future__ import annotations

from tenure.observe.base import BaseEvent, first_of

__all__ = ["InterpreterBlocked", "LoopBlocked", "ReplicaLost"]


class ReplicaLost(BaseEvent, frozen=True):
    """Other replicas declared this one dead. Its jobs were stopped here and run elsewhere."""

    replica: str
    jobs: tuple[str, ...]


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
