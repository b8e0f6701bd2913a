"""A store that nobody has damaged has nothing to tell of, whatever was done with it."""

from tenure.core.records import Unique
from tenure.stores.contract import Store
from tests.contract.calls import ask, take
from tests.contract.job_calls import claim, insert, join, new, settle
from tests.contract.schedule_calls import plant, tick


async def test_what_is_sound_is_not_called_damaged(store: Store):
    await take(store, "lock", "ann")
    await ask(store, "lock", "ben", waiting=30)
    await take(store, "pool", "ann", limit=3)
    await join(store, "ann")
    await insert(store, *(new(number) for number in range(1, 5)), new(5, delay=60))
    await insert(store, new(6, unique=Unique(key="welcome"), tags=("a", "b"), timeout=60.0))
    running = await claim(store)
    for job, outcome in zip(
        running, ("succeeded", "failed", "retry", "cancelled", "handed back"), strict=True
    ):
        assert await settle(store, job, outcome) == "settled"
    await store.pause("default")
    await plant(store)
    assert (await tick(store, await store.now())).outcome == "done"
    await store.freeze("sync", reason="a rest")

    assert len(await store.leases()) == 3
    assert len(await store.replicas()) == 1
    assert len((await store.find()).jobs) == 7
    assert await store.counts()
    assert await store.schedules()
    assert await store.decisions("sync")
    assert await store.stranded() == []
    assert await store.stranded([job.id for job in running]) == []
    assert [*store.damage] == []
