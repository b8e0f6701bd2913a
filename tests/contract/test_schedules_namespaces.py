"""Schedules of two namespaces share nothing, whatever their names."""

from typing import Any

from tenure.core.schedules.documents import Decision
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import join
from tests.contract.schedule_calls import (
    SECOND,
    decisions,
    forget,
    freeze,
    look_at,
    look_at_all,
    plant_all,
    register,
    registration,
    run,
    thaw,
    tick,
)
from tests.contract.worlds import World

NAMES = ("sync", "idle", "old")


async def everything(store: Store) -> list[Any]:
    """Return all that the store has about the schedules."""
    return [await look_at_all(store), *[await decisions(store, name) for name in NAMES]]


async def test_two_namespaces_share_no_schedules(world: World, clock: ManualClock):
    """Both sides have the same names. Only one side changes anything."""
    here = await world.store()
    there = await world.store(f"{world.namespace}-other")
    zero = clock.wall()
    for store in (here, there):
        await join(store, "ann", ttl=1000)
        for name in NAMES:
            await register(store, name)
            late = Decision(outcome="missed", reason="late", first=zero + 1, last=zero + 3)
            await tick(store, zero + SECOND, name=name, due=zero, run=None, passed=(late,))
            await freeze(store, name, reason="both")
        await run(store, clock.wall() + 2 * SECOND, name="sync", due=clock.wall(), forced=True)
    before = await everything(there)
    assert all(before)

    clock.shift(10)
    await thaw(here, "sync")
    await freeze(here, "idle", reason="here")
    await plant_all(
        here, [registration("sync", b"second"), registration("new", renamed_from=("idle",))]
    )
    await tick(here, clock.wall() + SECOND, due=clock.wall(), forced=True, run=None)
    assert (await look_at(here)).revision == 2
    clock.shift(100)
    assert await forget(here, idle=60) > 0

    assert await everything(there) == before
