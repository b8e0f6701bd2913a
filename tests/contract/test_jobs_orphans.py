"""What a look for orphaned jobs returns, and what can happen before they are settled."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.jobs import endings, loss_policy
from tenure.core.jobs.options import write_options
from tenure.core.jobs.records import JobRecord, Note, Settled
from tenure.core.jobs.replicas import RESERVED_FOR
from tenure.stores.contract import Store
from tenure.testing import FaultyStore, ManualClock
from tests.contract.job_calls import (
    AT_ONCE,
    TTL,
    id_of,
    insert,
    join,
    look,
    new,
    new_claim_no,
    settle,
    start,
    start_one,
)
from tests.rig.endings import recover


class SentTwice(FaultyStore):
    """A store that gets each settlement twice and returns the second answer."""

    async def _pass(self, call: str, send: Callable[[], Awaitable[Any]]) -> Any:
        if call == "settle":
            await super()._pass(call, send)
        return await super()._pass(call, send)


async def orphans_of(store: Store, by: str = "eva", replica: str | None = None) -> list[JobRecord]:
    return (await store.jobs.orphans(by=by, replica=replica)).jobs


async def settle_lost(store: Store, job: JobRecord, by: str, delays=AT_ONCE) -> Settled:
    end = loss_policy.lost(job, by=by, at=0, delays=delays)
    (answer,) = await store.jobs.settle([end])
    return answer


async def test_a_look_returns_what_a_decision_needs(store: Store, clock: ManualClock):
    details = {"payload": b"p" * 1000, "tags": ("t",), "timeout": 5.0, "retention": 7.0}
    job = await start_one(store, options="[]", **details)
    note = Note(id=job.id, fence=job.fence, progress=0.5, message="half", checkpoint=b"c" * 1000)
    assert await store.jobs.note([note]) == [True]
    before = await look(store)
    clock.shift(TTL)
    orphans = await store.jobs.orphans(by="eva")
    assert orphans.now == clock.wall()
    (orphan,) = orphans.jobs
    assert (orphan.payload, orphan.checkpoint, orphan.result, orphan.error) == (
        b"",
        None,
        None,
        None,
    )
    same = [name for name in JobRecord.__struct_fields__ if name not in ("payload", "checkpoint")]
    assert [getattr(orphan, name) for name in same] == [getattr(before, name) for name in same]
    assert await look(store) == before


async def test_a_dead_replica_is_reserved_for_the_first_recoverer(store: Store, clock: ManualClock):
    await start(store, new(1), new(2))
    clock.shift(TTL)
    assert len(await orphans_of(store, "eva")) == 2
    assert await orphans_of(store, "fay") == []
    assert len(await orphans_of(store, "eva")) == 2, "its reply was lost"
    clock.shift(RESERVED_FOR - 0.001)
    assert await orphans_of(store, "fay") == []
    clock.shift(0.001)
    assert len(await orphans_of(store, "fay")) == 2, "the first has died"
    assert await orphans_of(store, "eva") == []


async def test_a_clock_that_is_set_back_does_not_prolong_the_reservation(
    store: Store, clock: ManualClock
):
    await start_one(store)
    clock.shift(TTL)
    assert len(await orphans_of(store, "eva")) == 1
    clock.shift(-1000)
    assert len(await orphans_of(store, "fay")) == 1


async def test_one_replica_is_taken_though_it_has_not_expired(store: Store):
    job = await start_one(store)
    await start(store, new(2), replica="ben")
    assert [job.id for job in await orphans_of(store, replica="ann")] == [job.id]
    assert await store.jobs.beat(["ann"], ttl=TTL) == [None]
    assert await store.jobs.claim("ann", new_claim_no(), ["default"], 1) is None
    assert await store.jobs.beat(["ben"], ttl=TTL) != [None]


async def test_a_claim_whose_reply_was_lost_is_found(store: Store):
    await join(store, "ann")
    await insert(store, new(1))
    await store.jobs.claim("ann", new_claim_no(), ["default"], 1)
    assert [job.id for job in await orphans_of(store, by="ann", replica="ann")] == [id_of(1)]


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "retry", "handed back"])
async def test_a_worker_that_settles_after_the_look_wins(
    store: Store, clock: ManualClock, outcome: str
):
    job = await start_one(store, retention=100)
    clock.shift(TTL)
    (orphan,) = await orphans_of(store)
    assert await settle(store, job, outcome) == "settled"
    settled = await look(store)
    assert await settle_lost(store, orphan, "eva") == "lost"
    assert await look(store) == settled
    assert settled.losses == 0
    assert await recover(store, delays=AT_ONCE, grace=0, by="eva") == []
    assert await store.jobs.replicas() == []


@pytest.mark.parametrize("delays", [AT_ONCE, ()])
async def test_a_cancel_after_the_look_wins(store: Store, clock: ManualClock, delays):
    await start_one(store, retention=100)
    clock.shift(TTL)
    (orphan,) = await orphans_of(store)
    assert not orphan.cancelling
    assert await store.jobs.cancel([orphan.id], reason="enough") == ["requested"]
    assert await settle_lost(store, orphan, "eva", delays) == "cancelled"
    after = await look(store)
    assert (after.state, after.reason, after.losses) == ("cancelled", "enough", 1)
    assert await settle_lost(store, orphan, "eva", delays) == "repeated"


async def test_a_recovery_that_is_sent_twice_reports_the_job_as_cancelled(
    store: Store, clock: ManualClock
):
    """A driver sends it again if the reply is lost."""
    await start_one(store, retention=100)
    await store.jobs.cancel([id_of(1)], reason="enough")
    clock.shift(TTL)
    (lost,) = await recover(SentTwice(store), delays=AT_ONCE, grace=0)
    assert lost.state == "cancelled"
    assert (await look(store)).state == "cancelled"


async def test_of_two_recoverers_only_one_settles(store: Store, clock: ManualClock):
    await start_one(store)
    clock.shift(TTL)
    (first,) = await orphans_of(store, "eva")
    clock.shift(RESERVED_FOR)
    (second,) = await orphans_of(store, "fay")
    assert await settle_lost(store, second, "fay") == "settled"
    assert await settle_lost(store, first, "eva") == "lost"
    assert await settle_lost(store, second, "fay") == "repeated"
    assert (await look(store)).losses == 1


async def test_an_interrupted_job_yields_to_a_cancel(store: Store, clock: ManualClock):
    job = await start_one(store, retention=100)
    await store.jobs.cancel([job.id], reason="enough")
    end = endings.handed_back(replace(job, options=write_options(rerun=False)))
    assert (end.state, end.reason) == ("failed", "interrupted")
    assert await store.jobs.settle([end]) == ["cancelled"]
    after = await look(store)
    assert (after.state, after.reason) == ("cancelled", "enough")


async def test_of_all_looks_one_names_a_replica_as_dead(store: Store, clock: ManualClock):
    await start(store, new(1), replica="busy")
    await join(store, "idle")
    clock.shift(TTL / 2)
    await join(store, "alive")
    assert (await store.jobs.orphans(by="eva")).dead == []
    clock.shift(TTL / 2)
    assert sorted((await store.jobs.orphans(by="eva")).dead) == ["busy", "idle"]
    for by in ("eva", "adam"):
        assert (await store.jobs.orphans(by=by)).dead == []
    clock.shift(RESERVED_FOR)
    assert await store.jobs.beat(["alive"], ttl=TTL) != [None]
    taken = await store.jobs.orphans(by="adam")  # the first one has not settled its job
    assert (taken.dead, len(taken.jobs)) == ([], 1)


async def test_a_look_at_one_replica_names_it_unless_it_was_dead(store: Store):
    await start(store, new(1), replica="busy")
    await join(store, "idle")
    assert (await store.jobs.orphans(by="eva", replica="busy")).dead == ["busy"]
    assert (await store.jobs.orphans(by="eva", replica="busy")).dead == []
    assert (await store.jobs.orphans(by="eva", replica="idle")).dead == ["idle"]
    assert (await store.jobs.orphans(by="eva", replica="idle")).dead == []
