"""Events: facts worth counting or alerting on, as plain values.

A subscriber is called where the event happens, which may be the keeper's thread: it must be quick
and must not block. What it raises is logged and goes no further, `sys.exit()` included: in that
thread it would end the renewals and not the process.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from tenure.core.durations import duration
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.view import as_datetime
from tenure.core.safe_text import indented, safe
from tenure.core.schedules.steps import TICKS_COUNTED
from tenure.observe.log_records import Raised, fields_of, write

__all__ = [
    "AttemptFailed",
    "AttemptLost",
    "DataLost",
    "Event",
    "Events",
    "HandlerStuck",
    "HoldLost",
    "InterpreterBlocked",
    "JobLost",
    "JobRunsLong",
    "JobsRecovered",
    "LimitsDiffer",
    "LoopBlocked",
    "RanUnlocked",
    "RenewalFailing",
    "RenewalRestored",
    "ReplicaLost",
    "ResultNotStored",
    "SlotsKept",
    "StoreFailing",
    "StoreRestored",
    "TaskUnknown",
    "TickSkipped",
    "TickUnlocked",
    "TicksMissed",
    "TimerAhead",
    "TimersFull",
]

log = logging.getLogger("tenure")


class _Fact(Struct, frozen=True):
    """What all events share: a line that a person can read."""

    def __str__(self) -> str:
        parts = (getattr(self, part, None) for part in _LONG)
        return self.line + "".join(indented(str(part)) for part in parts if part)

    @property
    def line(self) -> str:
        """The event in one line."""
        name = re.sub(r"(?<!^)(?=[A-Z])", " ", type(self).__name__).lower()
        parts = {part: getattr(self, part) for part in self.__struct_fields__ if part not in _LONG}
        told = {part: value for part, value in parts.items() if value not in (None, "", ())}
        return f"{name}: {', '.join(_shown(part, value) for part, value in told.items())}"

    @property
    def fields(self) -> dict[str, object]:
        """What its log record has as `extra`."""
        return {
            part: getattr(self, part)
            for part in ("job", "task", "attempt", "replica", "timer")
            if part in self.__struct_fields__
        }


# Of several lines, below. All else that comes from elsewhere stays in one.
_LONG = ("trace", "stack")


def _shown(part: str, value: object) -> str:
    return f"{part} {_listed(value) if isinstance(value, tuple) else safe(str(value))}"


_LISTED = 5


def _listed(names: tuple[str, ...]) -> str:
    """Name a few of them: a line of the log with two hundred ids helps nobody."""
    shown = ", ".join(safe(name) for name in names[:_LISTED])
    more = len(names) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown


class HoldLost(_Fact, frozen=True):
    """A lease ended before its holder gave it back."""

    name: str
    fence: int
    reason: str

    @property
    def fields(self) -> dict[str, object]:
        return {"lock": self.name, "fence": self.fence}


class LimitsDiffer(_Fact, frozen=True):
    """Live holders of a semaphore use different limits; the smallest one rules."""

    name: str
    limit: int
    other: int

    @property
    def fields(self) -> dict[str, object]:
        return {"lock": self.name}


class RanUnlocked(_Fact, frozen=True):
    """A function ran without its lock, as on_unavailable="run" asks. Each time it does."""

    name: str
    error: str

    def __str__(self) -> str:
        return (
            f"with_lock({safe(self.name)!r}) ran its function without the lock, as "
            f"on_unavailable='run' asks: {safe(self.error)} Other replicas may have run it, too."
        )


class RenewalFailing(_Fact, frozen=True):
    """Leases could not be renewed; they are trusted until their deadlines. Once per outage."""

    leases: int
    error: str


class RenewalRestored(_Fact, frozen=True):
    """Renewals work again after an outage."""

    failures: int


class JobsRecovered(_Fact, frozen=True):
    """Jobs were taken from replicas that are gone, or that let them run past their deadline."""

    by: str
    replicas: tuple[str, ...]
    waiting: tuple[str, ...]
    """They run again."""
    failed: tuple[str, ...] = ()
    """They were lost too often; or are runs of timers, which may run only once."""
    cancelled: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Their records were set aside."""

    @property
    def fields(self) -> dict[str, object]:
        return {"replica": self.by}

    def __str__(self) -> str:
        ends = {
            "to run again": self.waiting,
            "failed for good": self.failed,
            "cancelled": self.cancelled,
            "set aside, as they cannot be read": self.unreadable,
        }
        told = (f"{len(ids)} {end} ({_listed(ids)})" for end, ids in ends.items() if ids)
        lost = _listed(tuple(one[:8] for one in self.replicas))
        by = safe(self.by if " " in self.by else self.by[:8])
        return f"jobs of lost workers {lost}: {'; '.join(told)}; recovered by {by}"


class JobLost(_Fact, frozen=True):
    """A job was lost with its worker too often, or may run only once: it has failed for good."""

    task: str
    job: str
    attempt: int
    losses: int
    replica: str
    """The worker that it was lost with last."""

    def __str__(self) -> str:
        times = "once" if self.losses == 1 else f"{self.losses} times"
        lost = (
            f"it was lost with its worker {times}, last with {safe(self.replica[:8])} in attempt "
            f"{self.attempt}"
        )
        if self.task.startswith("@"):
            run = f"run {safe(self.job)} of timer {safe(self.task[1:])!r} failed for good"
            return f"{run}: {lost}; later ticks are not affected"
        return f"job {safe(self.job)} of task {safe(self.task)!r} failed for good: {lost}"


class ReplicaLost(_Fact, frozen=True):
    """This replica was taken for dead: what it ran was stopped here and runs elsewhere."""

    replica: str
    jobs: tuple[str, ...]


class AttemptLost(_Fact, frozen=True):
    """What came of an attempt was not stored: the job was taken over while it ran here."""

    job: str
    fence: int
    outcome: str
    reason: str = ""
    """"unreadable": it was not taken over, but its record was damaged and set aside."""


class AttemptFailed(_Fact, frozen=True):
    """A handler raised, or took too long: the job is tried again or, without `retry_in`, failed."""

    task: str
    job: str
    attempt: int
    error: str
    retry_in: float | None = None
    trace: str = ""
    """Only of the last attempt."""


class ResultNotStored(_Fact, frozen=True):
    """A job has succeeded, but callers cannot have what its handler returned."""

    task: str
    job: str
    problem: str


class TaskUnknown(_Fact, frozen=True):
    """A job was handed back because this replica has no task of that name."""

    task: str
    job: str
    attempt: int

    def __str__(self) -> str:
        job = safe(self.job)
        return (
            f"this worker knows no task {self.task!r}: job {job} waits for one that does. "
            "If it should, name the module that declares it in Tenure(imports=...)."
        )


class JobRunsLong(_Fact, frozen=True):
    """A job without a time-out runs for longer than `long_job`. Once per attempt; it goes on."""

    task: str
    job: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"job {safe(self.job)} of task {safe(self.task)!r} has run for {self.seconds:.0f} s, "
            "and it has no time-out. Give its task a timeout if that is too long; else raise "
            "long_job."
        )


class HandlerStuck(_Fact, frozen=True):
    """A handler goes on although it was asked to stop; a synchronous one occupies its thread."""

    task: str
    job: str
    """Empty in a run of a timer without the store."""
    reason: str
    """Why it was asked to stop: timed out, or shutting down."""


class LoopBlocked(_Fact, frozen=True):
    """Something keeps the event loop of a worker from turning; nothing else runs meanwhile."""

    seconds: float
    stack: str
    task: str = ""
    """The task whose handler does that; empty if no job runs at that moment."""
    job: str = ""


class InterpreterBlocked(_Fact, frozen=True):
    """No thread of a worker without a supervisor ran for a while: not even its heartbeats.

    C code that keeps the interpreter does that, or a pause of the process. At most once a minute.
    """

    seconds: float
    replica_ttl: float
    jobs: tuple[str, ...]
    """Tasks and ids of jobs that ran meanwhile, some of them."""

    def __str__(self) -> str:
        jobs = f"one of these jobs keeps it ({_listed(self.jobs)}), or " if self.jobs else ""
        ttl = f"replica_ttl is {self.replica_ttl:g} s"
        effect = (
            f"{ttl}: others have taken this worker for dead, and run its jobs again"
            if self.seconds >= self.replica_ttl
            else f"{ttl}: if it takes longer than that, others run the jobs of this worker again"
        )
        return (
            f"the interpreter was blocked for {self.seconds:g} s: {jobs}the process was paused. "
            f"{effect}. Use executor='process' for such code, or 'tenure worker', whose supervisor "
            "renews meanwhile."
        )


class TickSkipped(_Fact, frozen=True):
    """A tick of a timer or schedule did not run, as its rules say."""

    timer: str
    reason: str


class TickUnlocked(_Fact, frozen=True):
    """A timer runs a tick although the store does not answer, as `on_unavailable` says.

    The run has no job, no fence and no limit. Other replicas may run the same tick.
    """

    timer: str
    nominal: int
    """The nominal instant of the tick, in microseconds."""

    @property
    def line(self) -> str:
        at = as_datetime(self.nominal).isoformat()
        return f"tick runs without the store: timer {safe(self.timer)}, tick {at}"


class TicksMissed(_Fact, frozen=True):
    """No worker was there to run these ticks in time."""

    timer: str
    ticks: int
    """How many; they are counted up to 1,000."""
    reason: str

    @property
    def line(self) -> str:
        more = " or more" if self.ticks >= TICKS_COUNTED else ""
        timer, reason = safe(self.timer), safe(self.reason)
        return f"ticks missed: timer {timer}, ticks {self.ticks}{more}, reason {reason}"


class SlotsKept(_Fact, frozen=True):
    """A handler waits for another job and keeps its slot.

    Too many have lent theirs already, or it is a plain function and no slot is free. If all slots
    of all workers are kept like this, none of them goes on. At most once a minute.
    """

    task: str
    job: str
    awaited: str
    """The job that it waits for."""
    lent: int
    """How many slots of this worker are lent."""
    why: str

    def __str__(self) -> str:
        return (
            f"job {safe(self.job)} of {safe(self.task)!r} waits for job {safe(self.awaited)} and "
            f"keeps its slot: {safe(self.why)}. If such handlers take all slots, none goes on. "
            "Wait for fewer jobs at a time, or let the last job enqueue what follows."
        )


class TimersFull(_Fact, frozen=True):
    """A tick waits because all timer slots of this worker are taken. At most once a minute.

    Another worker may run it. Else it runs when a slot is free, or counts as missed, as its timer's
    policy says.
    """

    timer: str
    timer_concurrency: int
    running: tuple[str, ...]
    """The timers that run in this worker, some of them."""

    def __str__(self) -> str:
        return (
            f"timer {safe(self.timer)!r} waits for a slot: {self.timer_concurrency} runs of timers "
            f"are all that this worker runs at a time ({_listed(self.running)}). Another worker "
            "may run it. If they are meant to be that long or that many, raise timer_concurrency."
        )


class TimerAhead(_Fact, frozen=True):
    """The last tick of a timer lies in the store's future, so the timer is silent until then.

    The store's clock was ahead when that tick was decided, or it is behind now. Once per worker.
    """

    timer: str
    seconds: float
    """How far in the future."""
    until: int
    """When it ticks again at the earliest, in microseconds."""
    is_own: bool = False
    """Whether that is so in this worker only: a timer with each="replica"."""

    def __str__(self) -> str:
        name, until = safe(self.timer), as_datetime(self.until)
        remedy = (
            "Restart this worker"
            if self.is_own
            else f"Run 'tenure timers reset {name}' to let it tick again"
        )
        return (
            f"timer {name!r} does not tick until {until:%Y-%m-%d %H:%M:%S} UTC: its last tick is "
            f"{duration(self.seconds)} ahead of the store's clock. That clock was wrong when the "
            f"tick was decided, or is wrong now: check it first. {remedy}; ticks that have run "
            "ahead of their time may run again."
        )


class DataLost(_Fact, frozen=True):
    """The store answers, but what was stored in it is gone. Once per process and loss."""

    store: str
    replica: str = ""
    jobs: tuple[str, ...] = ()
    """Those that ran in this process. What waited is not known here."""
    holds: tuple[str, ...] = ()
    """The names of the locks that this process held."""

    def __str__(self) -> str:
        gone = {
            f"worker {safe(self.replica[:8])}": self.replica,
            f"{len(self.jobs)} running jobs ({_listed(self.jobs)})": self.jobs,
            f"{len(self.holds)} locks ({_listed(self.holds)})": self.holds,
        }
        known = ", ".join(text for text, is_there in gone.items() if is_there) or "nothing"
        return (
            f"the store {safe(self.store)} has lost its data. Jobs that waited, results, locks and "
            f"the last ticks of timers are gone. Of this process: {known}. It goes on with an "
            "empty store. Enqueue again what must not be lost. 'tenure doctor' says what the store "
            "survives."
        )


class StoreFailing(_Fact, frozen=True):
    """A worker cannot reach the store; it goes on trying. Once per outage."""

    call: str
    error: str


class StoreRestored(_Fact, frozen=True):
    """The store answers a worker again."""

    call: str
    failures: int


Event: TypeAlias = (
    HoldLost
    | LimitsDiffer
    | RanUnlocked
    | RenewalFailing
    | RenewalRestored
    | JobsRecovered
    | JobLost
    | ReplicaLost
    | AttemptLost
    | AttemptFailed
    | ResultNotStored
    | DataLost
    | TaskUnknown
    | JobRunsLong
    | HandlerStuck
    | LoopBlocked
    | InterpreterBlocked
    | StoreFailing
    | StoreRestored
    | TickSkipped
    | TicksMissed
    | TickUnlocked
    | TimerAhead
    | TimersFull
    | SlotsKept
)

_FAILED = "an event subscriber failed on %s"


def _level(event: Event) -> int:
    match event:
        case AttemptFailed(retry_in=None) | JobLost():
            return logging.ERROR  # a job has failed for good
        case DataLost():
            return logging.ERROR
        case AttemptFailed() | RenewalRestored() | StoreRestored():
            return logging.INFO
        case TickSkipped():
            return logging.DEBUG  # its rules say so, and its history has it
        case _:
            return logging.WARNING


class Events:
    """Hands events to the log and to subscribers; those of `origin` get them, too.

    An app that is cloned for another event loop has events of its own, with the app as the origin.
    """

    def __init__(self, origin: Events | None = None) -> None:
        self._origin = origin
        self._subscribers: list[Callable[[Event], None]] = []

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        self._subscribers.append(subscriber)

    def emit(
        self, event: Event, job: JobRecord | None = None, raised: Raised | None = None
    ) -> None:
        """Log an event and call the subscribers; the log gets what is known about its job."""
        text = event if raised is None else event.line
        fields = {"tenure_event": type(event).__name__, **event.fields, **fields_of(job)}
        write(_level(event), text, fields, raised)
        self.tell(event)

    def tell(self, event: Event) -> None:
        """Call the subscribers only."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except KeyboardInterrupt:
                # Ctrl-C reaches the main thread only, and ends what that does.
                if threading.current_thread() is threading.main_thread():
                    raise
                log.exception(_FAILED, event)
            except BaseException:
                log.exception(_FAILED, event)
        if self._origin is not None:
            self._origin.tell(event)
