"""What replicas decide about schedules from outdated knowledge or after a lost reply."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from tenure.core.jobs.records import BATCH_MAX
from tenure.core.schedules.documents import DECLARED_FOR, EVERYTHING
from tenure.core.schedules.records import ScheduleList
from tenure.errors import StoreUnavailable
from tenure.runtime.timers.scheduling import Scheduling
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.commit_calls import look_at as look_at_record
from tests.contract.damage import Meddled, plant_by
from tests.contract.job_calls import join, prune_jobs, settle
from tests.contract.schedule_calls import (
    bound,
    decisions,
    forget,
    freeze,
    look_at,
    look_at_all,
    move,
    plant_all,
    register,
    registration,
    run,
    thaw,
    tick,
)
from tests.contract.test_schedules_rename import rename


class Doubled(Meddled):
    """Sends each commit twice, as a driver does after a lost reply."""

    async def _pass(self, call: str, send: Callable[[], Awaitable[Any]]) -> Any:
        if call == "commit":
            await super()._pass(call, send)
        return await super()._pass(call, send)


class ShortPages(Meddled):
    """Lists one schedule at a time: the others on each page cannot be read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        read = self.schedules.read

        async def read_short(names: Sequence[str] | None = None, **details: Any) -> ScheduleList:
            return await read(names, **(details if names else {**details, "limit": 1}))

        self.schedules.read = read_short


@pytest.fixture
def meddled(store: Store) -> Meddled:
    """The store of another replica, whose calls the test can disturb."""
    return Meddled(store)


@pytest.fixture
def other(meddled: Meddled) -> Scheduling:
    """Another replica."""
    return Scheduling(meddled)


# Changes between a read and the commit that follows it.


async def test_an_older_definition_yields_to_a_declaration_of_the_last_moment(
    store: Store, clock: ManualClock, meddled: Meddled, other: Scheduling
):
    await register(store)
    await register(store, definition=b"second")
    clock.shift(DECLARED_FOR + 1)
    meddled.before("commit", lambda: store.schedules.declare([("sync", "second")]))
    assert (await plant_by(other, "sync")).ruler == ""
    assert (await look_at(store)).ruler == "second"


async def test_a_former_name_yields_to_a_declaration_of_the_last_moment(
    store: Store, clock: ManualClock, meddled: Meddled, other: Scheduling
):
    await register(store, "old")
    await rename(store, "old", "new")
    clock.shift(DECLARED_FOR + 1)
    meddled.before("commit", lambda: store.schedules.declare([("new", "first")]))
    assert (await plant_by(other, "old")).ruler == ""
    assert (await look_at(store, "old")).successor == "new"


async def test_a_former_name_that_appears_at_the_last_moment_is_taken_over(
    store: Store, meddled: Meddled, other: Scheduling
):
    meddled.before("commit", lambda: register(store, "old"))
    assert (await plant_by(other, "new", "old")).ruler
    assert (await look_at(store, "old")).successor == "new"


async def test_a_definition_that_is_replaced_at_the_last_moment_yields(
    store: Store, meddled: Meddled, other: Scheduling
):
    await register(store)
    meddled.before("declare", lambda: register(store, definition=b"second"))
    assert (await plant_by(other, "sync")).ruler == ""


async def test_a_schedule_that_is_declared_at_the_last_moment_is_not_forgotten(
    store: Store, clock: ManualClock, meddled: Meddled, other: Scheduling
):
    await register(store)
    clock.shift(DECLARED_FOR + 1)
    meddled.before("commit", lambda: store.schedules.declare([("sync", "first")]))
    assert await other.forget(idle=DECLARED_FOR) == 0
    assert (await look_at(store)).declared == clock.wall()


async def test_a_schedule_that_is_triggered_at_the_last_moment_is_not_forgotten(
    store: Store, clock: ManualClock, meddled: Meddled, other: Scheduling
):
    await register(store)
    clock.shift(DECLARED_FOR + 1)
    meddled.before("commit", lambda: tick(store, clock.wall(), seen=None, forced=True))
    assert await other.forget(idle=DECLARED_FOR) == 0
    assert (await look_at(store)).live == 1


async def test_a_name_at_rest_stays_if_its_successor_comes_back_at_the_last_moment(
    store: Store, clock: ManualClock, meddled: Meddled, other: Scheduling
):
    await register(store, "old")
    await rename(store, "old", "new")
    clock.shift(DECLARED_FOR + 1)
    assert await forget(store, idle=DECLARED_FOR) == 1
    meddled.before("commit", lambda: register(store, "new"))
    assert await other.forget(idle=DECLARED_FOR) == 0
    assert (await look_at(store, "old")).successor == "new"


@pytest.mark.parametrize("name", ["sync", EVERYTHING])
@pytest.mark.parametrize("is_shared", [True, False])
async def test_a_pause_that_begins_at_the_last_moment_counts(
    store: Store,
    clock: ManualClock,
    meddled: Meddled,
    other: Scheduling,
    is_shared: bool,
    name: str,
):
    registered = await plant_by(other, "sync")
    clock.shift(1)
    meddled.before("commit", lambda: freeze(store, name))
    seen = registered.cursor if is_shared else None
    answer = await other.advance(move(registered, clock.wall(), seen=seen))
    assert (answer.outcome, answer.reason) == ("skipped", "paused")


# Knowledge of a replica.


async def test_an_older_definition_moves_no_cursor(store: Store, clock: ManualClock):
    """Not even with the same ticks as the newer one."""
    (before,) = await plant_all(store, [registration(definition=b"first", calendar="daily")])
    clock.shift(5)
    (after,) = await plant_all(store, [registration(definition=b"second", calendar="daily")])
    assert after.cursor == before.cursor
    answer = await Scheduling(store).advance(move(before, clock.wall()))
    assert (answer.outcome, answer.ruler) == ("passed", "second")
    assert (await look_at(store)).live == 0


async def test_a_replica_that_is_out_of_date_asks_once_more(
    store: Store, clock: ManualClock, meddled: Meddled, other: Scheduling
):
    registered = await plant_by(other, "sync")
    clock.shift(1)
    await freeze(store, "sync")
    await thaw(store, "sync")
    before = meddled.faults.calls.copy()
    assert (await other.advance(move(registered, clock.wall()))).outcome == "done"
    assert meddled.faults.calls - before == {"commit": 2}


async def test_no_tick_is_refused_because_of_outdated_knowledge(
    store: Store, clock: ManualClock, other: Scheduling
):
    await plant_by(other, "sync")
    clock.shift(1)
    await run(store, clock.wall())
    clock.shift(1)
    answer = await other.advance(move(await look_at(store), clock.wall()))
    assert answer.outcome == "done"


async def test_every_replica_waits_for_a_run_that_was_triggered(
    store: Store, clock: ManualClock, other: Scheduling
):
    await join(store, "ann")
    registered = await plant_by(other, "sync")
    clock.shift(1)
    await run(store, clock.wall(), seen=None, forced=True)
    answer = await other.advance(move(registered, clock.wall(), replica="ann", rest=60.0))
    assert (answer.outcome, answer.reason) == ("held", "running")


async def test_a_replicas_own_tick_makes_nothing_stale(store: Store, clock: ManualClock):
    await join(store, "ann")
    await register(store)
    before = await look_at_record(store)
    clock.shift(1)
    await run(store, clock.wall(), seen=None, replica="ann")
    assert (await look_at_record(store)).version == before.version


# Lost replies.


@pytest.mark.parametrize("limit", [None, bound(1)])
async def test_a_tick_is_recognised_although_its_run_is_gone(
    store: Store, clock: ManualClock, meddled: Meddled, other: Scheduling, limit: Any
):
    await join(store, "ann", ttl=1000)
    registered = await plant_by(other, "sync")
    clock.shift(1)
    tick_move = move(registered, clock.wall(), replica="ann", limit=limit)
    meddled.faults.lose_reply("commit")
    with pytest.raises(StoreUnavailable):
        await other.advance(tick_move)
    (made,) = await store.jobs.get([tick_move.id])
    assert made is not None
    await settle(store, made, "succeeded")
    clock.shift(60)
    assert await prune_jobs(store) == 1
    answer = await other.advance(tick_move)
    assert (answer.outcome, answer.run, answer.cursor) == ("done", None, tick_move.to)
    assert len(await decisions(store)) == 1
    assert (await look_at(store)).live == 0


async def test_a_tick_is_recognised_after_a_look_at_its_schedule(
    store: Store, clock: ManualClock, meddled: Meddled, other: Scheduling
):
    registered = await plant_by(other, "sync")
    clock.shift(1)
    tick_move = move(registered, clock.wall())
    meddled.faults.lose_reply("commit")
    with pytest.raises(StoreUnavailable):
        await other.advance(tick_move)
    await run(store, clock.wall())
    await plant_by(other, "sync")
    answer = await other.advance(tick_move)
    assert answer.outcome == "done"
    assert answer.run is not None
    assert answer.run.id == tick_move.id


async def test_a_change_that_is_sent_twice_counts_once(store: Store, clock: ManualClock):
    twice = Scheduling(Doubled(store))
    assert (await plant_by(twice, "sync")).revision == 1
    assert await twice.freeze("sync", reason="release")
    assert await twice.thaw("sync")
    assert not await twice.thaw("sync")
    assert (await plant_by(twice, "sync", definition=b"second")).revision == 2
    assert (await plant_by(twice, "successor", "sync")).revision == 1
    clock.step(-10)
    assert await twice.reset("successor")
    assert not await twice.reset("successor")


async def test_a_tick_is_held_until_the_runs_before_it_are_cancelled(
    store: Store, clock: ManualClock, meddled: Meddled, other: Scheduling
):
    registered = await plant_by(other, "sync")
    before = await run(store, clock.wall())
    clock.shift(1)
    newer = move(registered, clock.wall(), limit=bound(1, "newer", "cancel"))
    meddled.faults.lose_request("cancel")
    assert (await other.advance(newer)).outcome == "held"
    assert (await other.advance(newer)).outcome == "held"
    (cancelled,) = await store.jobs.get([before.id])
    assert cancelled is not None
    assert (cancelled.state, cancelled.reason) == ("cancelled", "newer")
    assert (await other.advance(newer)).outcome == "done"


# Names that were forgotten.


async def test_a_name_that_was_forgotten_runs_none_of_its_ticks_again(
    store: Store, clock: ManualClock
):
    """Its former name still exists, with its old cursor."""
    await register(store, "old")
    await rename(store, "old", "new")
    clock.shift(5)
    await tick(store, clock.wall(), name="new", run=None)
    clock.shift(DECLARED_FOR)
    assert await forget(store, idle=DECLARED_FOR) == 1
    again = await rename(store, "old", "new")
    assert again.cursor == clock.wall() > (await look_at(store, "old")).cursor


async def test_a_pause_that_was_ended_under_a_name_that_was_forgotten_does_not_come_back(
    store: Store, clock: ManualClock
):
    await register(store, "old")
    await freeze(store, "old", reason="release")
    await rename(store, "old", "new")
    await thaw(store, "new")
    clock.shift(DECLARED_FOR + 1)
    assert await forget(store, idle=DECLARED_FOR) == 1
    await rename(store, "old", "new")
    assert (await look_at(store, "new")).freeze is None


async def test_everything_idle_is_forgotten_although_pages_are_short(
    store: Store, clock: ManualClock
):
    for name in "abc":
        await register(store, name)
    clock.shift(DECLARED_FOR + 1)
    assert await Scheduling(ShortPages(store)).forget(idle=DECLARED_FOR) == 3
    assert await look_at_all(store) == []


async def test_the_freeze_of_everything_is_not_forgotten(store: Store, clock: ManualClock):
    await freeze(store, EVERYTHING, reason="release")
    clock.shift(DECLARED_FOR + 1)
    assert await forget(store, idle=DECLARED_FOR) == 0
    await register(store)
    clock.shift(1)
    assert (await tick(store, clock.wall())).reason == "paused"


async def test_any_number_of_schedules_is_planted_and_forgotten(store: Store, clock: ManualClock):
    names = [f"timer-{number}" for number in range(BATCH_MAX + 1)]
    registered = await plant_all(store, [registration(name) for name in names])
    assert [schedule.cursor for schedule in registered] == [clock.wall()] * len(names)
    clock.shift(20)
    assert await Scheduling(store).declare([(name, "first") for name in names]) == []
    assert {schedule.declared for schedule in await look_at_all(store)} == {clock.wall()}
    clock.shift(DECLARED_FOR + 1)
    assert await forget(store, idle=DECLARED_FOR) == len(names)
