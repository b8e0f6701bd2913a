"""Calls about jobs that most tests make, with the answer that they expect."""

from collections.abc import Sequence
from itertools import count

from tenure.core.jobs.records import BATCH_MAX, Inserted, JobRecord, NewJob, Settled, Settlement
from tenure.core.jobs.replicas import Recovered
from tenure.core.jobs.states import JobState
from tenure.stores.contract import Store
from tests.contract.calls import MOMENT
from tests.rig.endings import recover, settlement

__all__ = [
    "AT_ONCE",
    "ENDS",
    "MOMENT",
    "TTL",
    "bring",
    "claim",
    "claim_ids",
    "ended",
    "find_all",
    "id_of",
    "insert",
    "join",
    "look",
    "new",
    "new_claim_no",
    "prune_jobs",
    "recover_all",
    "settle",
    "start",
    "start_one",
    "states",
]

TTL = 10.0
AT_ONCE = (0.0, 0.0, 0.0)  # delays: three losses, each due again at once

_AGES = 1e9

ENDS: dict[str, JobState] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "retry": "waiting",
    "handed back": "waiting",
}
"""The state of a job after an attempt with this outcome."""

_claim_numbers = count(1000)  # above those that tests write out


def id_of(number: int) -> str:
    """Return an id in the form of a UUIDv7; larger numbers look younger."""
    return f"01890a5d-ac96-774b-bcce-{number:012x}"


def new(number: int, **details) -> NewJob:
    """Return a job to insert, with one retention for all outcomes unless two are given."""
    details.setdefault("retention_failed", details.get("retention", 0.0))
    return NewJob(**{"id": id_of(number), "task": "work", **details})


def new_claim_no() -> int:
    """Return a claim number above all that this process has used."""
    return next(_claim_numbers)


async def insert(store: Store, *jobs: NewJob) -> None:
    """Insert new jobs."""
    expected = [Inserted("created", job.id) for job in jobs]
    assert await store.jobs.insert(jobs) == expected


async def join(store: Store, *replicas: str, ttl: float = TTL) -> None:
    """Let replicas join."""
    for replica in replicas:
        await store.jobs.beat([replica], ttl=ttl, meta={})


async def claim(
    store: Store,
    replica: str = "ann",
    *,
    queues: Sequence[str] = ("default",),
    limit: int = BATCH_MAX,
) -> list[JobRecord]:
    """Make a new claim for a replica that has joined."""
    answer = await store.jobs.claim(replica, new_claim_no(), queues, limit)
    assert answer is not None, f"the store does not know {replica!r}"
    return answer.jobs


async def claim_ids(store: Store, replica: str = "ann", **details) -> list[str]:
    """Make a new claim; return the ids of its jobs, in order."""
    return [job.id for job in await claim(store, replica, **details)]


async def start(store: Store, *jobs: NewJob, replica: str = "ann") -> list[JobRecord]:
    """Insert jobs and let a replica claim them; nothing else may be due."""
    await join(store, replica)
    await insert(store, *jobs)
    got = {
        job.id: job
        for job in await claim(store, replica, queues=[job.queue for job in jobs], limit=len(jobs))
    }
    assert set(got) == {job.id for job in jobs}
    return [got[job.id] for job in jobs]


async def start_one(store: Store, number: int = 1, *, replica: str = "ann", **details) -> JobRecord:
    """Insert a job and let a replica claim it; nothing else may be due."""
    (job,) = await start(store, new(number, **details), replica=replica)
    return job


def ended(job: JobRecord, outcome: str, **details) -> Settlement:
    """Return the settlement of a claimed job."""
    this = {"id": job.id, "fence": job.fence, "options": job.options}
    return settlement(**{**this, "outcome": outcome, **details})


async def settle(store: Store, job: JobRecord, outcome: str, **details) -> Settled:
    """End the attempt under which `job` was claimed."""
    (answer,) = await store.jobs.settle([ended(job, outcome, **details)])
    return answer


async def bring(store: Store, state: JobState, number: int = 1, **details) -> JobRecord:
    """Create a job in this state; nothing else may be due."""
    if state == "waiting":
        await insert(store, new(number, **details))
    else:
        job = await start_one(store, number, **details)
        if state != "running":
            assert await settle(store, job, state) == "settled"
    job = await look(store, number)
    assert job.state == state
    return job


async def look(store: Store, number: int = 1) -> JobRecord:
    """Return an existing job."""
    (job,) = await store.jobs.get([id_of(number)])
    assert job is not None, f"job {number} is not there"
    return job


async def states(store: Store, *numbers: int) -> list[str | None]:
    """Return the states of jobs."""
    jobs = await store.jobs.get([id_of(number) for number in numbers])
    return [job and job.state for job in jobs]


async def recover_all(
    store: Store, *, delays: Sequence[float] = AT_ONCE, grace: float = 0.0, limit: int = 100
) -> list[Recovered]:
    """Recover until nothing is left; return the recovered jobs, by id."""
    recovered: list[Recovered] = []
    while batch := await recover(store, delays=delays, grace=grace, limit=limit):
        assert len(batch) <= limit
        recovered += batch
    return sorted(recovered, key=lambda job: job.id)


async def prune_jobs(store: Store, *, limit: int = 1000) -> int:
    """Prune jobs but no locks; return the number of removed jobs."""
    pruned = await store.prune(idle=_AGES, limit=limit)
    assert pruned.leases == 0
    return pruned.jobs


async def find_all(store: Store, *, limit: int = 50, **filters) -> list[JobRecord]:
    """Follow the pages of a search to their end."""
    jobs: list[JobRecord] = []
    cursor = None
    while True:
        page = await store.jobs.find(**filters, limit=limit, cursor=cursor)
        assert len(page.jobs) <= limit
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None:
            return jobs
