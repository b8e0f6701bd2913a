"""How attempts end in tests that drive a store by hand, as a worker would end them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tenure.core.jobs import endings, loss_policy
from tenure.core.jobs.records import JobRecord, Settlement
from tenure.core.jobs.replicas import Recovered
from tenure.runtime.replica.recovery import leave, recover_replica, take
from tenure.stores.contract import Store

__all__ = ["bury", "leave", "recover", "settlement"]


def settlement(
    *,
    id: str,  # noqa: A002 - as a record has it
    fence: int,
    outcome: str,
    options: str = "",
    **details: Any,
) -> Settlement:
    """Return how an attempt ended, in the words of a worker."""
    job = JobRecord(
        id=id,
        task="",
        queue="",
        priority=5,
        state="running",
        payload=b"",
        created=0,
        due=0,
        fence=fence,
        options=options,
    )
    if outcome not in ("failed", "retry"):
        details.pop("error", None)
    match outcome:
        case "succeeded":
            end = endings.succeeded(job)
        case "failed":
            end = endings.failed(job, reason="")
        case "cancelled":
            end = endings.cancelled(job)
        case "retry":
            end = endings.retried(job, delay=0, error=None)
        case "handed back":
            end = endings.handed_back(job)
        case _:
            raise AssertionError(outcome)
    if end.reason == endings.INTERRUPTED:
        details = {name: details[name] for name in details if name in ("history", "by")}
    return replace(end, **details)


async def recover(
    store: Store,
    *,
    delays: Sequence[float],
    grace: float,
    limit: int = 100,
    as_of: int | None = None,
    by: str = "rescuer",
) -> list[Recovered]:
    """Take up to `limit` jobs whose replicas are gone, or that are past their deadline."""

    def end(job: JobRecord, at: int) -> Settlement:
        return loss_policy.lost(job, by=by, at=at, delays=delays)

    recovered: list[Recovered] = []
    while len(recovered) < limit:
        most = limit - len(recovered)
        taken = await take(store, by=by, end=end, grace=grace, limit=most, as_of=as_of)
        if not taken:
            break
        recovered += [job.became for job in taken]
    return recovered


async def bury(
    store: Store,
    replica: str,
    started: Sequence[str],
    *,
    delays: Sequence[float],
    by: str = "undertaker",
    pause: float = 0.0,
) -> list[Recovered]:
    """Take the jobs of a process that is known to be dead."""
    taken = await recover_replica(store, replica, started, by=by, delays=delays, pause=pause)
    return [job.became for job in taken]
