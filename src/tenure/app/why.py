"""Reads what explains jobs, timers, locks and queues, once for any number of them.

`core.why` turns it into words. `Tenure.why_lock` and `why_queue`, `tenure why` and the pages of an
app stand on this; the handles of jobs and timers explain themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenure.app.engine import Engine
from tenure.core.bounds import Kind
from tenure.core.jobs.records import JobRecord
from tenure.core.leases import Lease, check_name
from tenure.core.schedules.documents import EVERYTHING
from tenure.core.why import (
    Surroundings,
    Why,
    why_job,
    why_lock,
    why_queue,
    why_timer,
    why_unreadable_lock,
)
from tenure.jobs import read_surroundings
from tenure.runtime.timers.stored_schedules import StoredSchedules, read_schedules
from tenure.stores.damage import Damage
from tenure.timers import read_facts

__all__ = ["explain_jobs", "explain_lock", "explain_queues", "explain_timers", "surroundings"]

_LEASES = 1000
_LINES = 20


async def surroundings(engine: Engine) -> Surroundings:
    """Return what explains all jobs, timers and queues of the store, in three calls."""
    services = engine.services()
    return await read_surroundings(
        services.store,
        engine.registry.handlers,
        isolate_after=engine.settings.isolate_after,
    )


async def explain_jobs(
    engine: Engine, records: Iterable[JobRecord], around: Surroundings | None = None
) -> dict[str, Why]:
    """Return why each of these jobs waits, runs or has ended, by id: in three calls at most."""
    jobs = list(records)
    if around is None:
        around = await engine.services().jobs.surroundings(*jobs)
    return {job.id: why_job(job, around) for job in jobs}


async def explain_timers(
    engine: Engine,
    names: Sequence[str] | None = None,
    around: Surroundings | None = None,
    *,
    stored: StoredSchedules | None = None,
) -> dict[str, Why]:
    """Return why each timer ticks or does not, by name: in about six calls for 100 timers.

    Names that the store does not know are missing. `stored` are schedules that were read already,
    with up to 20 lines each and with the record EVERYTHING, if there is one.
    """
    services = engine.services()
    if stored is None:
        to_read = None if names is None else [*names, EVERYTHING]
        stored = await read_schedules(services.store, to_read, lines=_LINES)
        if to_read is None:
            frozen = await read_schedules(services.store, [EVERYTHING])
            stored = StoredSchedules(stored.now, [*stored.all, *frozen.all])
    if around is None:
        around = await read_surroundings(services.store, needs_queues=False)
    timers = await read_facts(services.store, engine.registry.plans, stored)
    return {timer.name: why_timer(timer, around) for timer in timers}


async def explain_queues(
    engine: Engine, names: Iterable[str], around: Surroundings | None = None
) -> dict[str, Why]:
    """Return why the jobs of each queue run or wait, by name: in three calls."""
    queues = [check_name(name, "queue") for name in names]
    around = around or await surroundings(engine)
    return {queue: why_queue(queue, around) for queue in queues}


async def explain_lock(engine: Engine, name: str, leases: Sequence[Lease] | None = None) -> Why:
    """Return why a lock or semaphore can be had or not. `leases` are those of it, if known."""
    check_name(name, "lock name")
    if leases is not None:
        return why_lock(name, leases)
    store = engine.holds().store
    before = store.damage.reports
    # Names come in order, and no other name that starts with this one comes before it.
    listed = await store.leases.find(name, limit=_LEASES)
    leases = [lease for lease in listed if lease.key == name]
    if not leases and _is_damaged(store.damage, name, before):
        damage = next(record for record in store.damage if record.name == name)
        return why_unreadable_lock(name, f"{damage.why} (in {damage.where})")
    return why_lock(name, leases)


def _is_damaged(damage: Damage, name: str, before: int) -> bool:
    kinds: tuple[Kind, ...] = ("lock", "waiter")
    return any(damage.is_reported(kind, name, before) for kind in kinds)
