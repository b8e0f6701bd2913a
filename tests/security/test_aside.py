"""Jobs that cannot be read, and jobs that run nowhere: out of the way, named, gone in the end."""

import logging

import pytest

from tenure import JobNotFound, JobUnreadable, Tenure
from tenure.core.bounds import ASIDE_FOR
from tenure.core.jobs.records import Unique
from tenure.stores import damage
from tenure.testing import ManualClock
from tests.contract.calls import take
from tests.contract.job_calls import (
    AT_ONCE,
    claim,
    claim_ids,
    id_of,
    insert,
    join,
    new,
    recover_all,
    settle,
    start,
    states,
)
from tests.contract.worlds import World
from tests.rig.endings import leave
from tests.rig.lookups import stranded
from tests.security.hands import Hand

KEY = Unique(key="welcome:7", digest="d")


@pytest.fixture(params=["waiting", "running"])
async def aside(request: pytest.FixtureRequest, world: World, hand: Hand) -> str:
    """The id of a job with a key and tags that was set aside, as it waited or ran."""
    store = await world.store()
    await join(store, "ann")
    await insert(store, new(1, unique=KEY, tags=("a", "b")), new(2))
    if request.param == "running":
        (job, other) = await claim(store)
        hand.spoil_job(job.id)
        assert sorted(await leave(store, "ann")) == [job.id, other.id]
    else:
        hand.spoil_job(id_of(1))
        (other,) = await claim(store)
        assert await settle(store, other, "handed back") == "settled"
    return id_of(1)


async def test_a_job_that_was_set_aside_blocks_no_other(world: World, aside: str):
    store = await world.store()
    assert await store.jobs.get([aside]) == [None]
    assert aside not in {job.id for job in (await store.jobs.find()).jobs}
    assert await store.jobs.cancel([aside]) == [None]
    assert await store.jobs.requeue([aside]) in ([None], ["unfinished"])
    [job] = await stranded(store)
    assert (job.id, job.why) == (aside, "unreadable")
    assert job.left == pytest.approx(ASIDE_FOR)
    assert await stranded(store, [aside]) == [job]
    assert await stranded(store, [id_of(2)]) == []


async def test_its_unique_key_is_free(world: World, aside: str):
    store = await world.store()
    [answer] = await store.jobs.insert([new(3, unique=KEY)])
    assert (answer.outcome, answer.id) == ("created", id_of(3))


async def test_its_unique_key_stays_for_the_time_it_was_to_be_kept(
    world: World, hand: Hand, clock: ManualClock
):
    store = await world.store()
    await join(store, "ann", ttl=1000)
    kept = Unique(key="welcome:7", digest="d", keep=60.0)
    await insert(store, new(1, unique=kept))
    hand.spoil_job(id_of(1))
    assert await claim_ids(store) == []
    [answer] = await store.jobs.insert([new(2, unique=kept)])
    assert (answer.outcome, answer.id) == ("existing", id_of(1))
    clock.shift(60)
    [answer] = await store.jobs.insert([new(2, unique=kept)])
    assert answer.outcome == "created"


async def test_to_insert_it_again_changes_nothing(world: World, aside: str):
    store = await world.store()
    await insert(store, new(1))
    await join(store, "ben")
    assert aside not in await claim_ids(store, "ben")


async def test_a_job_that_was_set_aside_is_gone_after_a_week(
    world: World, hand: Hand, aside: str, clock: ManualClock
):
    store = await world.store()
    await join(store, "ben", ttl=2 * ASIDE_FOR)
    (other,) = await claim(store, "ben")
    assert await settle(store, other, "succeeded") == "settled"
    await store.prune(idle=3600)
    clock.shift(ASIDE_FOR - 1)
    await store.prune(idle=3600)
    assert [job.id for job in await stranded(store)] == [aside]
    clock.shift(1)
    await store.prune(idle=3600)
    assert await stranded(store) == []
    clock.shift(ASIDE_FOR)
    await store.prune(idle=3600)
    assert hand.left() == {}


async def test_an_app_reports_a_job_that_was_set_aside_as_unreadable_not_missing(
    world: World, aside: str
):
    app = Tenure(world.unopened())
    async with app:
        for _ in range(2):
            with pytest.raises(JobUnreadable, match=f"tenure jobs delete {aside}"):
                await app.job(aside)
        with pytest.raises(JobNotFound):
            await app.job(id_of(9))
        await app.delete_job(aside)
        with pytest.raises(JobNotFound):
            await app.job(aside)


async def test_an_app_reports_a_spoiled_job_as_unreadable_not_missing(world: World, hand: Hand):
    store = await world.store()
    await insert(store, new(1))
    app = Tenure(world.unopened())
    async with app:
        job = await app.job(id_of(1))
        hand.spoil_job(id_of(1))
        for ask in (job.refresh, job.wait, job.result):
            with pytest.raises(JobUnreadable):
                await ask()
        await app.delete_job(id_of(1))
        with pytest.raises(JobNotFound):
            await job.refresh()


async def test_a_job_that_was_set_aside_can_be_deleted(world: World, hand: Hand, aside: str):
    store = await world.store()
    await join(store, "ben")
    (other,) = await claim(store, "ben")
    assert await store.jobs.delete([aside, other.id]) == ["deleted", "running"]
    assert await stranded(store) == []
    assert await store.jobs.delete([aside]) == [None]
    assert await settle(store, other, "succeeded") == "settled"
    assert await store.jobs.delete([other.id]) == ["deleted"]
    assert hand.left() == {}


@pytest.mark.parametrize("state", ["waiting", "running"])
async def test_an_unreadable_job_can_be_deleted_with_its_key_and_tags(
    world: World, hand: Hand, state: str
):
    store = await world.store()
    await join(store, "ann")
    kept = Unique(key="welcome:7", digest="d", keep=600.0)
    await insert(store, new(1, unique=kept, tags=("a", "b"), timeout=60.0))
    if state == "running":
        assert await claim_ids(store) == [id_of(1)]
    hand.spoil_job(id_of(1))
    assert await store.jobs.delete([id_of(1)]) == ["deleted"]
    assert hand.left() == {}
    assert await stranded(store) == []
    assert await store.jobs.counts() == []
    [beat] = await store.jobs.beat(["ann"], ttl=600)
    assert beat is not None
    assert beat.held == 0
    await insert(store, new(2, unique=kept))
    assert await claim_ids(store) == [id_of(2)]
    assert [*store.damage] == []


async def test_a_neighbour_of_what_is_deleted_stays(world: World, hand: Hand):
    store = await world.store()
    await join(store, "ann")
    other = Unique(key="welcome:8", digest="d")
    await insert(store, new(1, unique=KEY, tags=("a",)), new(2, unique=other, tags=("a",)))
    hand.spoil_job(id_of(1))
    assert await store.jobs.delete([id_of(1)]) == ["deleted"]
    assert [job.id for job in (await store.jobs.find(tag="a")).jobs] == [id_of(2)]
    [answer] = await store.jobs.insert([new(3, unique=other)])
    assert (answer.outcome, answer.id) == ("existing", id_of(2))
    assert await claim_ids(store) == [id_of(2)]


async def test_the_log_names_the_command_that_deletes_it(
    world: World, hand: Hand, caplog: pytest.LogCaptureFixture
):
    damage._logged.clear()
    store = await world.store()
    await insert(store, new(1))
    hand.spoil_job(id_of(1))
    with caplog.at_level(logging.INFO, "tenure"):
        await store.jobs.find()
    [line] = [line for line in caplog.messages if "Cannot use job" in line]
    assert f"Run 'tenure jobs delete {id_of(1)}' to remove it" in line


async def test_an_unreadable_job_is_logged_once(
    world: World, hand: Hand, caplog: pytest.LogCaptureFixture
):
    damage._logged.clear()
    store = await world.store()
    await join(store, "ann")
    await insert(store, new(1), new(2))
    hand.spoil_job(id_of(1))
    with caplog.at_level(logging.INFO, "tenure"):
        for _ in range(3):
            await claim_ids(store)
            await store.jobs.find()
            await store.jobs.get([id_of(1)])
    lines = [line for line in caplog.messages if id_of(1) in line]
    assert len(lines) == 1
    assert "Cannot use job" in lines[0]
    assert [(record.kind, record.name) for record in store.damage] == [("job", id_of(1))]


async def test_damage_that_stays_is_logged_once_per_process(
    world: World, hand: Hand, caplog: pytest.LogCaptureFixture
):
    damage._logged.clear()
    stores = [await world.store(), await world.store()]
    await take(stores[0], "bad", "ann")
    hand.spoil_lock("bad")
    with caplog.at_level(logging.INFO, "tenure"):
        for store in stores * 3:
            assert await store.leases.find() == []
    [line] = [line for line in caplog.messages if "Cannot use" in line]
    assert line.startswith("Cannot use lock 'bad'")
    assert [[record.name for record in store.damage] for store in stores] == [["bad"], ["bad"]]


async def test_settling_an_unreadable_job_holds_up_no_other(world: World, hand: Hand):
    store = await world.store()
    first, second, third = await start(store, new(1), new(2), new(3))
    hand.spoil_job(second.id)
    assert await settle(store, first, "succeeded") == "settled"
    await settle(store, second, "failed")
    assert await settle(store, third, "retry") == "settled"
    assert await states(store, 1, 3) == ["succeeded", "waiting"]


async def test_a_job_on_a_replica_that_is_not_known_is_stranded_until_recovery(
    world: World, hand: Hand
):
    store = await world.store()
    await join(store, "ben")
    await start(store, new(1), new(2))
    hand.forget_replica("ann")
    assert {(job.id, job.why) for job in await stranded(store)} == {
        (id_of(1), "orphan"),
        (id_of(2), "orphan"),
    }
    assert [job.id for job in await stranded(store, [id_of(2)])] == [id_of(2)]
    recovered = await recover_all(store, delays=AT_ONCE)
    assert [(recovery.id, recovery.state, recovery.losses) for recovery in recovered] == [
        (id_of(1), "waiting", 1),
        (id_of(2), "waiting", 1),
    ]
    assert await stranded(store) == []
    assert sorted(await claim_ids(store, "ben")) == [id_of(1), id_of(2)]


async def test_a_job_on_a_known_replica_is_no_orphan(world: World, hand: Hand):
    del hand
    store = await world.store()
    await start(store, new(1))
    assert await stranded(store) == []
    assert await recover_all(store) == []
