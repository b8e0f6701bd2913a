"""What needs attention, from records: which lines there are, and in what order."""

from typing import Any

from tenure.core.jobs.records import JobRecord, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.why import Fleet, Surroundings
from tenure.core.worker_info import write_serving
from tenure.dashboard.attention import attention, failures
from tenure.dashboard.overview import _capacity, _ticks
from tenure.timers import TimerViews

NOW = 1_800_000_000_000_000
HOUR = 3600 * 1_000_000


def replica(name: str, **changed: Any) -> ReplicaRecord:
    meta = write_serving(queues=["mail"], slots=4, timers=[], timer_slots=2)
    fields = {"id": name, "meta": meta, "joined": NOW, "ttl": 10.0, "expires_in": 5.0}
    return ReplicaRecord(**{**fields, **changed})


def failed(number: int, ago: int, task: str = "send", reason: str = "no address") -> JobRecord:
    return JobRecord(
        id=f"job-{number}",
        task=task,
        queue="mail",
        priority=5,
        state="failed",
        payload=b"",
        created=NOW,
        due=NOW,
        finished=NOW - ago,
        reason=reason,
    )


def lines(
    *replicas: ReplicaRecord,
    queues: tuple[QueueCounts, ...] = (),
    late: tuple[str, ...] = (),
    timers: TimerViews | None = None,
    failed: tuple[dict[str, Any], ...] = (),
) -> list[tuple[str, str]]:
    """Return the level and the text of each line."""
    by_name = {queue.queue: queue for queue in queues}
    around = Surroundings(now=NOW, fleet=Fleet(replicas), queues=by_name)
    listed = attention(
        around,
        replicas,
        TimerViews([], None) if timers is None else timers,
        queues=[*by_name],
        late=late,
        failed=failed,
    )
    return [(line["level"], line["text"]) for line in listed]
