"""Recovery: give jobs of replicas that are gone to others. A look-up, never a scan."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress

from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.policy import UNWIND_SECONDS, loss_delays
from tenure.core.records import JobRecord, Recovered
from tenure.core.runs import runs_of
from tenure.core.settings import Settings, WorkSettings
from tenure.errors import StoreError
from tenure.observe.events import Events, JobLost, JobsRecovered
from tenure.stores.contract import Store

__all__ = ["Recovery", "recovery_grace"]

log = logging.getLogger("tenure")

# A slice of this size holds up nobody else on the store for long.
_SLICE = 100


def recovery_grace(settings: Settings) -> float:
    """Return how far past its deadline a job is taken even from a living replica.

    Not before its own worker has had the time to cancel it. A time-out begins later than the claim
    if a child process has to start first.
    """
    allowance = settings.start_allowance if isinstance(settings, WorkSettings) else 0.0
    return max(settings.grace, allowance + UNWIND_SECONDS)


class Recovery:
    """Recovers for one replica, or by hand."""

    def __init__(self, settings: Settings, clock: Clock, events: Events) -> None:
        self._settings = settings
        self._clock = clock
        self._events = events

    @property
    def delays(self) -> list[float]:
        """When a job is due again after its first, second, ... loss; as many as it may have."""
        return loss_delays(self._settings.loss_budget, self._clock.random())

    async def run(self, store: Store, by: str, as_of: int | None = None) -> list[Recovered]:
        """Take everything that has expired, slice by slice; `by` is named in the event.

        With `as_of`, the instant of a beat, a clock that was set ahead since expires nothing.
        """
        grace = recovery_grace(self._settings)
        everything: list[Recovered] = []
        while True:
            some = await store.recover(delays=self.delays, grace=grace, limit=_SLICE, as_of=as_of)
            if not some:
                return everything
            await self.tell(store, some, by)
            everything += some

    async def tell(self, store: Store, recovered: Collection[Recovered], by: str) -> None:
        """Emit one event for a slice, and one for each job that is lost for good."""
        ids: dict[str, list[str]] = defaultdict(list)
        replicas: dict[str, None] = {}
        for one in recovered:
            ids[one.state or "unreadable"].append(one.id)
            replicas[one.replica] = None
        self._events.emit(
            JobsRecovered(
                by=by,
                replicas=tuple(replicas),
                waiting=tuple(ids["waiting"]),
                failed=tuple(ids["failed"]),
                cancelled=tuple(ids["cancelled"]),
                unreadable=tuple(ids["unreadable"]),
            )
        )
        lost = {one.id: one for one in recovered if one.state == "failed"}
        for id_, job in (await _look_up(store, list(lost))).items():
            one = lost[id_]
            task, attempt = ("?", 0) if job is None else (job.task, runs_of(job))
            event = JobLost(task, id_, attempt, one.losses, one.replica)
            self._events.emit(event, None if job is None else replace(job, replica=one.replica))


async def _look_up(store: Store, ids: list[str]) -> dict[str, JobRecord | None]:
    """Return jobs by id; None for those that the store cannot say anything about now."""
    records: list[JobRecord | None] = [None] * len(ids)
    with suppress(StoreError):
        records = await store.get(ids) if ids else []
    return dict(zip(ids, records, strict=True))
