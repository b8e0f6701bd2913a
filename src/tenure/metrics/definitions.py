"""Every metric that is counted from events: its name, its labels, its buckets.

`jobs.enqueued` is `tenure_jobs_enqueued_total` in Prometheus and `tenure.jobs.enqueued` in
OpenTelemetry. docs/metrics.md has one row for each; a test compares the two. The gauges of the
whole store are in `snapshot`.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

__all__ = ["METRICS", "Metric"]


class Metric(Struct, frozen=True):
    """One metric. Histograms are in seconds."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


# Jobs run for milliseconds or for hours; the default buckets of both systems end at 10 s.
_JOB = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21_600)
_WAIT = (0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 21_600)
_CALL = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

_OF_JOB = ("queue", "task")
_OF_LOCK = ("lock",)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", text, labels)


def _seconds(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name, "histogram", text, labels, buckets)


JOBS_ENQUEUED: Final = _counter("jobs.enqueued", "Jobs stored.", *_OF_JOB)
JOBS_STARTED: Final = _counter("jobs.started", "Attempts begun.", *_OF_JOB)
JOBS_FINISHED: Final = _counter("jobs.finished", "Attempts ended.", *_OF_JOB, "outcome")
JOB_DURATION: Final = _seconds("job.duration", "How long attempts ran.", _JOB, *_OF_JOB)
JOB_WAIT: Final = _seconds("job.wait", "How long due jobs waited for an attempt.", _WAIT, *_OF_JOB)
JOBS_RUN_LONG: Final = _counter(
    "jobs.run_long", "Attempts that took much longer than expected.", *_OF_JOB
)
JOBS_RECOVERED: Final = _counter("jobs.recovered", "Jobs taken from lost workers.")
STALE_WRITES_REFUSED: Final = _counter(
    "stale_writes.refused", "Outcomes refused: the job was taken over meanwhile."
)

LOCKS_ACQUIRED: Final = _counter("locks.acquired", "Locks acquired.", *_OF_LOCK)
LOCK_REFUSALS: Final = _counter("lock.refusals", "Locks not acquired.", *_OF_LOCK, "reason")
LOCK_WAIT: Final = _seconds("lock.wait", "How long callers waited for a lock.", _WAIT, *_OF_LOCK)
LOCK_HOLD: Final = _seconds("lock.hold", "How long locks were held.", _WAIT, *_OF_LOCK)
LOCKS_LOST: Final = _counter("locks.lost", "Locks that ended before their release.", *_OF_LOCK)
LOCKS_TAKEN_OVER: Final = _counter(
    "locks.taken_over", "Locks whose last holder never released them.", *_OF_LOCK
)
LOCKS_HELD_LONG: Final = _counter(
    "locks.held_long", "Holds that took 1.5 times as long as expected.", *_OF_LOCK
)
RAN_UNLOCKED: Final = _counter("ran_unlocked", "Functions run without their lock.", *_OF_LOCK)

TICKS: Final = _counter("ticks", "Ticks of timers decided.", "timer", "outcome")
TICK_LATENESS: Final = _seconds("tick.lateness", "How late ticks were decided.", _WAIT, "timer")

TIMERS_RUN_LONG: Final = _counter(
    "timers.run_long", "Runs of timers that took much longer than expected.", "timer"
)

STORE_CALL: Final = _seconds("store.call", "How long calls of the store took.", _CALL, "call")
STORE_ERRORS: Final = _counter("store.errors", "Calls of the store failed.", "call")
STORE_UP: Final = Metric("store.up", "gauge", "Whether the last call of the store was answered.")
DATA_LOST: Final = _counter("data.lost", "Times that all data of the store was gone.")
CLOCK_JUMPS: Final = _counter("clock.jumps", "Jumps of the store's clock.")
QUEUES_DELAYED: Final = _counter(
    "queues.delayed", "Times that a queue became older than expected.", "queue"
)
REPLICAS_EXPIRED: Final = _counter("replicas.expired", "Workers found dead.")

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All of them."""
