"""Shared by tests of jobs: replicas that died or take over, and waiting for an end."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tenure import Tenure
from tenure.core.jobs.records import JobRecord
from tenure.observe import Event
from tenure.observe.base import Detail
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.rig.endings import recover
from tests.rig.wait import wait_until_async

Make: TypeAlias = Callable[..., Awaitable[Tenure]]

DEFAULT_TTL = 10.0


async def claim_and_die(
    store: Store, name: str = "dead", *, ttl: float = DEFAULT_TTL, limit: int = 200
) -> list[JobRecord]:
    """Claim jobs for a replica that never sends a heartbeat."""
    await store.jobs.beat([name], ttl=ttl, meta={})
    claimed = await store.jobs.claim(name, 1, ["default"], limit)
    assert claimed is not None
    return claimed.jobs


async def lose_times(store: Store, clock: ManualClock, times: int) -> None:
    """Lose all waiting jobs with their worker `times` times; they are due again at once."""
    for number in range(times):
        await claim_and_die(store, f"dead-{number}")
        clock.shift(DEFAULT_TTL)
        await recover(store, delays=[0.0] * 100, grace=25)


def of_kind(seen: list[Event], kind: type) -> list[Event]:
    """Return the events of one kind."""
    return [event for event in seen if isinstance(event, kind)]


def reports(seen: list[Event]) -> list[Event]:
    """Return the events of what went wrong or is worth a look, without those of normal work."""
    return [event for event in seen if not isinstance(event, Detail)]


async def until_idle(app: Tenure, clock: ManualClock) -> None:
    """Advance by tiny steps until no job waits or runs."""
    for _ in range(500):
        await clock.advance(0.0001)
        if not await app.queues():
            return
    raise AssertionError(f"still at work: {await app.queues()}")


async def finished(job, clock):
    """Advance by tiny steps until a job has ended, in a thread or not."""

    async def has_ended() -> bool:
        await clock.advance(0)
        return (await job.refresh()).is_finished

    await wait_until_async(has_ended)
    return job
