"""The health of an app: which checks there are, and the rules that judge each of them.

`tenure.app.health` makes the calls and puts what it has seen into an `Observation`; `judge` turns
that into a `Health`. No detail contains a URL with a password or the name of a lock. A detail may
contain the error of the store, which names the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.durations import duration
from tenure.core.jobs.overdue_queues import QueueAges, overdue_queues
from tenure.core.jobs.records import COUNT_MAX, QueueCounts
from tenure.core.leases import Grade
from tenure.core.safe_text import safe

__all__ = [
    "ClockReading",
    "Health",
    "HealthCheck",
    "HealthLimits",
    "HealthStatus",
    "Heartbeat",
    "Observation",
    "Reply",
    "health_of",
    "judge",
]

T = TypeVar("T")

HealthStatus: TypeAlias = Literal["healthy", "degraded", "unhealthy"]

_NAMED: Final = 3
_NOT_CHECKED: Final = "not checked, because the store does not answer"


class HealthCheck(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    """"store", "writes", "clock", "grade", "workers", "queues", "enqueue" or "heartbeat"."""
    status: Literal["healthy", "degraded", "unhealthy", "unknown"]
    """Unknown: there was no time left, or the store does not answer."""
    detail: str
    """What was seen, in words."""
    seconds: float = 0.0
    """How long the calls for this check took."""


class Health(Struct, frozen=True, kw_only=True):
    """How an app is: healthy, degraded (it works, look at it), or unhealthy (it does not work)."""

    status: HealthStatus
    checks: tuple[HealthCheck, ...]

    @property
    def is_ready(self) -> bool:
        """Whether the app can work. A degraded app can, so a probe should let it."""
        return self.status != "unhealthy"

    def document(self, *, details: bool = True) -> dict[str, Any]:
        """Return it as JSON documents have it: the answer of /ready and of `doctor --probe`."""
        return {
            "status": self.status,
            "checks": [
                {
                    "name": check.name,
                    "status": check.status,
                    **({"detail": check.detail} if details else {}),
                    "seconds": round(check.seconds, 4),
                }
                for check in self.checks
            ],
        }


class Reply(Struct, Generic[T], frozen=True, kw_only=True):
    """What became of a call of the store: a value, an error, or nothing within the time limit."""

    value: T | None = None
    error: str = ""
    seconds: float = 0.0


class ClockReading(Struct, frozen=True):
    """By how many seconds the store's clock is ahead of this host's, give or take `error`."""

    ahead: float
    error: float


class Heartbeat(Struct, frozen=True):
    """A worker of this process: for how long it runs, and the age of its last good heartbeat."""

    runs_for: float
    age: float | None
    """None: it has not joined so far."""


class HealthLimits(Struct, frozen=True, kw_only=True):
    """From when on something is not healthy."""

    timeout: float
    """The time limit of the whole check."""
    slow: float = 0.5
    """A ping that takes longer is slow: each lock and each claim takes as long."""
    clock: float = 1.0
    """As `tenure doctor` has it."""
    queue_expected: QueueAges = QueueAges()
    """How long the oldest due job of a queue may have waited, as for the alarm `QueueDelayed`."""
    replica_ttl: float = 10.0
    require: Grade | None = None


class Observation(Struct, frozen=True, kw_only=True):
    """What one look at an app has seen. None: there was no such call."""

    ping: Reply[ClockReading] | None = None
    lease: Reply[bool] | None = None
    """Whether the test lease was granted."""
    workers: Reply[int] | None = None
    """How many replicas are alive."""
    queues: Reply[Sequence[QueueCounts]] | None = None
    grade: Grade | None = None
    keeps_jobs: bool = True
    has_timers: bool = False
    """Whether the app declares timers or schedules."""
    timers: Reply[bool] | None = None
    """Whether the store has any: a probe declares none. Asked if no replica is alive."""
    refused: str = ""
    """Why the last enqueue of this process was refused: the store is full."""
    heartbeats: Sequence[Heartbeat] = ()


def judge(seen: Observation, limits: HealthLimits) -> Health:
    """Return the health of an app that looks like this."""
    return health_of(_checks(seen, limits))


def health_of(checks: Iterable[HealthCheck]) -> Health:
    """Return the health that the checks add up to: the worst of them counts."""
    done = tuple(checks)
    statuses = {check.status for check in done}
    if "unhealthy" in statuses:
        return Health(status="unhealthy", checks=done)
    if statuses & {"degraded", "unknown"}:
        return Health(status="degraded", checks=done)
    return Health(status="healthy", checks=done)


def _checks(seen: Observation, limits: HealthLimits) -> Iterator[HealthCheck]:
    store = _store(seen.ping, limits)
    yield store
    is_away = store.status == "unhealthy"
    yield _writes(None if is_away else seen.lease, limits, is_away=is_away)
    yield _clock(seen.ping, limits)
    if seen.grade is not None:
        yield _grade(seen.grade, limits.require)
    if seen.keeps_jobs:
        yield _workers(seen, limits, is_away=is_away)
        yield _queues(seen.queues, limits, is_away=is_away)
    if seen.refused:
        yield HealthCheck(name="enqueue", status="degraded", detail=seen.refused)
    if seen.heartbeats:
        yield _heartbeat(seen.heartbeats, limits.replica_ttl)


def _store(ping: Reply[ClockReading] | None, limits: HealthLimits) -> HealthCheck:
    check = _check("store", ping)
    if ping is None or ping.value is None:
        detail = (ping.error if ping else "") or f"no answer within {limits.timeout:g} s"
        return replace(check, status="unhealthy", detail=detail)
    if ping.seconds >= limits.slow:
        detail = f"slow: a ping took {ping.seconds:.2f} s"
        return replace(check, status="degraded", detail=detail)
    return replace(check, detail=f"answered in {ping.seconds * 1000:.1f} ms")


def _writes(lease: Reply[bool] | None, limits: HealthLimits, *, is_away: bool) -> HealthCheck:
    check = _check("writes", lease)
    if lease is None:
        return _unseen(check, lease, limits, is_away=is_away)
    if lease.error:
        return replace(check, status="unhealthy", detail=lease.error)
    if lease.value is None:
        detail = f"a test lease was not granted within {limits.timeout:g} s"
        return replace(check, status="unhealthy", detail=detail)
    if not lease.value:
        detail = "not tested: too many health checks at a time"
        return replace(check, status="unknown", detail=detail)
    return replace(check, detail="a test lease was acquired and released")


def _clock(ping: Reply[ClockReading] | None, limits: HealthLimits) -> HealthCheck:
    if ping is None or ping.value is None:
        return HealthCheck(name="clock", status="unknown", detail=_NOT_CHECKED)
    ahead, error = ping.value.ahead, ping.value.error
    check = _check("clock", ping)
    if abs(ahead) - error <= limits.clock:
        most = max(0.1, (abs(ahead) + error) * 1000)
        return replace(check, detail=f"the store's clock is within {most:.1f} ms of this host's")
    direction = "ahead of" if ahead > 0 else "behind"
    detail = (
        f"the store's clock is {duration(abs(ahead))} {direction} this host's: let both machines "
        "follow a time server"
    )
    return replace(check, status="degraded", detail=detail)


def _grade(grade: Grade, require: Grade | None) -> HealthCheck:
    detail = f"{grade.name}, {grade.value}"
    if require is None or not require < grade:
        return HealthCheck(name="grade", status="healthy", detail=detail)
    detail = f"{detail}; {require.name} is required"
    return HealthCheck(name="grade", status="unhealthy", detail=detail)


def _workers(seen: Observation, limits: HealthLimits, *, is_away: bool) -> HealthCheck:
    reply = seen.workers
    check = _check("workers", reply)
    if is_away or reply is None or reply.value is None:
        return _unseen(check, reply, limits, is_away=is_away)
    if reply.value:
        return replace(check, detail=f"{reply.value:,} alive")
    return _idle(check, seen)


def _idle(check: HealthCheck, seen: Observation) -> HealthCheck:
    """Judge that no worker is alive: by what there is to do."""
    queues = seen.queues.value if seen.queues else None
    if queues and (unfinished := sum(queue.waiting + queue.running for queue in queues)):
        more = " or more" if any(queue.waiting >= COUNT_MAX for queue in queues) else ""
        detail = f"none is alive; unfinished jobs: {unfinished:,}{more}"
        return replace(check, status="degraded", detail=detail)
    has_timers = seen.timers.value if seen.timers else None
    if seen.has_timers or has_timers:
        whose = "of this app" if seen.has_timers else "in the store"
        detail = f"none is alive, so the timers {whose} do not tick"
        return replace(check, status="degraded", detail=detail)
    if queues is None or has_timers is None:
        what = "jobs wait" if queues is None else "timers should tick"
        detail = f"none is alive; whether {what} is not known"
        return replace(check, status="unknown", detail=detail)
    return replace(check, detail="none is alive, and there is nothing to do")


def _queues(
    reply: Reply[Sequence[QueueCounts]] | None, limits: HealthLimits, *, is_away: bool
) -> HealthCheck:
    check = _check("queues", reply)
    if is_away or reply is None or reply.value is None:
        return _unseen(check, reply, limits, is_away=is_away)
    late = [
        f"{safe(queue.queue)} for {duration(queue.age)} (expected: {duration(queue.expected)})"
        for queue in overdue_queues(reply.value, limits.queue_expected)
    ]
    if late:
        more = f" and {len(late) - _NAMED} more queues" if len(late) > _NAMED else ""
        detail = f"the oldest job waits in {', '.join(late[:_NAMED])}{more}"
        return replace(check, status="degraded", detail=detail)
    # The jobs of a paused queue wait on purpose.
    ages = [
        queue.oldest
        for queue in reply.value
        if queue.oldest is not None and queue.paused_for is None
    ]
    if not ages:
        return replace(check, detail="no job is due")
    return replace(check, detail=f"the oldest due job waits for {duration(max(ages))}")


def _check(name: str, reply: Reply[Any] | None) -> HealthCheck:
    """Return a healthy check, without its detail so far."""
    seconds = 0.0 if reply is None else reply.seconds
    return HealthCheck(name=name, status="healthy", detail="", seconds=seconds)


def _unseen(
    check: HealthCheck, reply: Reply[Any] | None, limits: HealthLimits, *, is_away: bool
) -> HealthCheck:
    """Return a check without a value: the store is away, it refused, or there was no time."""
    if is_away:
        return replace(check, status="unknown", detail=_NOT_CHECKED)
    if reply is None:
        return replace(check, status="unknown", detail="not checked: no time was left")
    if reply.error:
        return replace(check, status="degraded", detail=reply.error)
    return replace(check, status="unknown", detail=f"no answer within {limits.timeout:g} s")


def _heartbeat(heartbeats: Sequence[Heartbeat], ttl: float) -> HealthCheck:
    """Judge the workers of this process; the worst one counts."""
    silent = max(_silence(heartbeat) for heartbeat in heartbeats)
    joined = [heartbeat.age for heartbeat in heartbeats if heartbeat.age is not None]
    if len(joined) < len(heartbeats):
        status: HealthStatus = "unhealthy" if silent >= ttl else "degraded"
        detail = f"the worker of this process has not joined for {duration(silent)}"
        return HealthCheck(name="heartbeat", status=status, detail=detail)
    detail = f"the last heartbeat of this process was {duration(silent)} ago"
    if silent >= ttl:
        detail = f"{detail}; after {ttl:g} s (replica_ttl) other workers run its jobs"
        return HealthCheck(name="heartbeat", status="unhealthy", detail=detail)
    return HealthCheck(name="heartbeat", status="healthy", detail=detail)


def _silence(heartbeat: Heartbeat) -> float:
    return heartbeat.runs_for if heartbeat.age is None else heartbeat.age
