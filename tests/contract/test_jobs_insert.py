from contextlib import suppress

import pytest

from tenure.core.jobs.records import BATCH_MAX, Inserted, NewJob, Unique
from tenure.core.jobs.states import STATES, JobState
from tenure.errors import StoreError
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    MOMENT,
    bring,
    claim,
    find_all,
    id_of,
    insert,
    join,
    look,
    new,
    prune_jobs,
    settle,
    start_one,
    states,
)
from tests.contract.worlds import World

CONTENTS = {
    "empty": b"",
    "zero": b"\0",
    "every byte": bytes(range(256)),
    "not text": b"\xff\xfe{'\"",
    "looks like JSON": b'{"a": [1, null]}',
    "looks like a number": b"007",
    "large": bytes(range(256)) * 800,
}


def key(name: str = "key", **details) -> Unique:
    return Unique(key=name, **details)


async def test_an_inserted_job_is_stored_unchanged(store: Store, clock: ManualClock):
    job = NewJob(
        id=id_of(1),
        task="mail.send",
        queue="mail",
        priority=3,
        payload=b"[7]",
        tags=("blue", "green"),
        delay=12.5,
        timeout=30.5,
        retention=3600.25,
        retention_failed=7200.5,
        options='{"max_attempts":3}',
    )
    [answer] = await store.jobs.insert([job])
    assert answer == Inserted("created", job.id)
    record = await look(store)
    assert answer.at == record.created
    kept = ("timeout", "retention", "retention_failed", "options")
    for field in ("id", "task", "queue", "priority", "payload", "tags", *kept):
        assert getattr(record, field) == getattr(job, field), field
    assert record.state == "waiting"
    assert record.created == clock.wall()
    assert record.due == clock.wall() + 12_500_000


async def test_a_new_job_has_no_past(store: Store):
    await insert(store, new(1))
    job = await look(store)
    assert (job.attempt, job.failures, job.losses, job.started, job.finished) == (0,) * 5
    assert (job.replica, job.message, job.reason) == ("",) * 3
    assert (job.progress, job.checkpoint, job.result, job.error) == (None,) * 4
    assert (job.history, job.cancelling) == (b"", False)
    assert job.revision >= 1
    assert (job.queue, job.priority, job.timeout, job.tags) == ("default", 5, None, ())


@pytest.mark.parametrize("payload", CONTENTS.values(), ids=CONTENTS)
async def test_a_payload_is_kept_byte_by_byte(store: Store, payload: bytes):
    await insert(store, new(1, payload=payload))
    assert (await look(store)).payload == payload
    await join(store, "ann")
    (job,) = await claim(store)
    assert job.payload == payload
    await settle(store, job, "succeeded")
    assert (await look(store)).payload == payload


@pytest.mark.parametrize(
    "tags", [("a",), ("b", "a"), ("", " "), ("a,b", 'say "hi"', "läuft 🌍", "{x}", "[1]")], ids=str
)
async def test_tags_are_kept_in_their_order(store: Store, tags: tuple[str, ...]):
    await insert(store, new(1, tags=tags))
    assert (await look(store)).tags == tags
    await join(store, "ann")
    (job,) = await claim(store)
    assert job.tags == tags
    await settle(store, job, "succeeded")
    assert (await look(store)).tags == tags


async def test_an_instant_goes_before_a_delay(store: Store, clock: ManualClock):
    for number, at in enumerate((clock.wall() + 1, clock.wall() - 5_000_000, 0)):
        await insert(store, new(number, at=at, delay=60))
        assert (await look(store, number)).due == at


async def test_times_may_be_long(store: Store, clock: ManualClock):
    ten_years, century = 315_360_000.0, 3_155_760_000_000_000
    await insert(
        store,
        new(1, delay=ten_years, timeout=ten_years, retention=ten_years),
        new(2, at=clock.wall() + century),
    )
    job = await look(store, 1)
    assert (job.timeout, job.retention) == (ten_years, ten_years)
    assert job.due == clock.wall() + round(ten_years) * 1_000_000
    assert (await look(store, 2)).due == clock.wall() + century
    clock.shift(ten_years)
    await join(store, "ann", ttl=ten_years)
    (job,) = await claim(store)
    assert job.id == id_of(1)
    await settle(store, job, "succeeded")
    assert await prune_jobs(store) == 0


async def test_many_large_payloads_go_through_one_call(store: Store):
    payload = bytes(range(256)) * 800
    await insert(store, *(new(number, payload=payload) for number in range(20)))
    await join(store, "ann")
    assert {job.payload for job in await claim(store)} == {payload}


async def test_nothing_is_inserted_by_a_call_without_jobs(store: Store):
    assert await store.jobs.insert([]) == []
    assert await find_all(store) == []


async def test_a_full_batch_goes_into_one_call(store: Store):
    jobs = [new(number, unique=key(f"key {number}")) for number in range(BATCH_MAX)]
    await insert(store, *jobs)
    records = await store.jobs.get([job.id for job in jobs])
    assert [job and job.id for job in records] == [job.id for job in jobs]


async def test_a_full_batch_is_stored_whole_or_not_at_all(store: Store):
    """One job late in the batch cannot be stored, except in memory, which takes any text."""
    jobs = [new(number) for number in range(BATCH_MAX)]
    jobs[BATCH_MAX - 10] = new(BATCH_MAX - 10, task="a lone surrogate: \ud800")
    with suppress(UnicodeEncodeError, StoreError):
        await store.jobs.insert(jobs)
    records = await store.jobs.get([job.id for job in jobs])
    assert sum(job is not None for job in records) in (0, BATCH_MAX)


# Repeats.


@pytest.mark.parametrize("state", STATES)
async def test_a_repeated_insert_changes_nothing_in_any_state_of_the_job(
    store: Store, clock: ManualClock, state: JobState
):
    before = await bring(store, state, retention=100, unique=key())
    clock.shift(1)
    assert await store.jobs.insert([new(1, unique=key())]) == [Inserted("created", id_of(1))]
    assert await look(store) == before
    assert len(await find_all(store)) == 1


@pytest.mark.parametrize("state", STATES)
async def test_a_repeat_is_known_by_its_id_alone(store: Store, state: JobState):
    before = await bring(store, state, retention=100)
    other = new(1, task="other", queue="other", priority=0, payload=b"other", tags=("other",))
    assert await store.jobs.insert([other]) == [Inserted("created", id_of(1))]
    assert await look(store) == before


async def test_a_repeated_id_takes_no_unique_key(store: Store):
    await insert(store, new(1))
    await store.jobs.insert([new(1, unique=key())])
    await insert(store, new(2, unique=key()))


async def test_the_same_id_twice_in_one_call_is_one_job(store: Store):
    answers = await store.jobs.insert([new(1, payload=b"first"), new(1, payload=b"second")])
    assert answers == [Inserted("created", id_of(1))] * 2
    (job,) = await find_all(store)
    assert job.payload == b"first"


async def test_a_call_of_repeats_and_others_stores_the_others(store: Store):
    await insert(store, new(1, unique=key()))
    answers = await store.jobs.insert([new(1, unique=key()), new(2, unique=key()), new(3)])
    assert answers == [
        Inserted("created", id_of(1)),
        Inserted("existing", id_of(1)),
        Inserted("created", id_of(3)),
    ]
    assert await states(store, 1, 2, 3) == ["waiting", None, "waiting"]


# Unique keys.


@pytest.mark.parametrize("state", ["waiting", "running"])
async def test_a_unique_key_is_taken_while_its_job_is_unfinished(
    store: Store, clock: ManualClock, state: JobState
):
    before = await bring(store, state, unique=key(digest="d"))
    clock.shift(1_000_000)
    assert await store.jobs.insert([new(2, unique=key(digest="d"))]) == [
        Inserted("existing", id_of(1))
    ]
    assert await look(store) == before
    assert await states(store, 2) == [None]


async def test_a_key_stays_taken_through_retries(store: Store):
    job = await start_one(store, unique=key())
    await settle(store, job, "retry", delay=60)
    assert await store.jobs.insert([new(2, unique=key())]) == [Inserted("existing", id_of(1))]


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
async def test_a_key_is_free_when_its_job_has_finished(store: Store, state: JobState):
    await bring(store, state, retention=1000, unique=key(digest="old"))
    await insert(store, new(2, unique=key(digest="new")))
    assert await store.jobs.insert([new(3, unique=key(digest="new"))]) == [
        Inserted("existing", id_of(2))
    ]


async def test_a_key_is_free_when_its_waiting_job_was_cancelled(store: Store):
    await insert(store, new(1, unique=key()))
    await store.jobs.cancel([id_of(1)])
    await insert(store, new(2, unique=key()))


async def test_another_digest_under_a_taken_key_is_a_mismatch(store: Store):
    await insert(store, new(1, unique=key(digest="one")))
    assert await store.jobs.insert([new(2, unique=key(digest="two"))]) == [
        Inserted("mismatch", id_of(1))
    ]
    assert await store.jobs.insert([new(3, unique=key())]) == [Inserted("mismatch", id_of(1))]
    assert await states(store, 2, 3) == [None, None]


async def test_of_two_with_one_key_in_one_call_the_first_wins(store: Store):
    answers = await store.jobs.insert(
        [
            new(2, unique=key(digest="d")),
            new(1, unique=key(digest="d")),
            new(3, unique=key(digest="e")),
            new(4, unique=key("other", digest="e")),
        ]
    )
    assert answers == [
        Inserted("created", id_of(2)),
        Inserted("existing", id_of(2)),
        Inserted("mismatch", id_of(2)),
        Inserted("created", id_of(4)),
    ]
    assert await states(store, 1, 2, 3, 4) == [None, "waiting", None, "waiting"]


@pytest.mark.parametrize(
    "name", ["", " ", "it's", "a:b", "{x}", "%_*", "läuft 🌍", "x" * 400], ids=ascii
)
async def test_a_key_may_be_any_text(store: Store, name: str):
    await insert(store, new(1, unique=key(name)), new(2, unique=key(f"{name} ")), new(3))
    assert await store.jobs.insert([new(4, unique=key(name))]) == [Inserted("existing", id_of(1))]


async def test_keys_differ_by_case(store: Store):
    await insert(store, new(1, unique=key("Key")), new(2, unique=key("key")))


async def test_a_key_is_kept_for_its_time_though_its_job_has_finished(
    store: Store, clock: ManualClock
):
    await bring(store, "succeeded", retention=1000, unique=key(keep=60, digest="d"))
    clock.shift(60 - MOMENT)
    assert await store.jobs.insert([new(2, unique=key(digest="d"))]) == [
        Inserted("existing", id_of(1))
    ]
    assert await store.jobs.insert([new(3, unique=key(digest="e"))]) == [
        Inserted("mismatch", id_of(1))
    ]
    clock.shift(MOMENT)
    await insert(store, new(4, unique=key(digest="e")))


async def test_the_time_of_a_key_counts_from_the_insert(store: Store, clock: ManualClock):
    await insert(store, new(1, unique=key(keep=60)))
    clock.shift(59)
    await join(store, "ann")
    (job,) = await claim(store)
    await settle(store, job, "succeeded")
    clock.shift(1)
    await insert(store, new(2, unique=key()))


async def test_a_key_outlives_its_time_while_its_job_is_unfinished(
    store: Store, clock: ManualClock
):
    await insert(store, new(1, unique=key(keep=60)))
    clock.shift(61)
    assert await store.jobs.insert([new(2, unique=key())]) == [Inserted("existing", id_of(1))]


async def test_a_kept_key_outlives_its_pruned_job(store: Store, clock: ManualClock):
    await bring(store, "succeeded", retention=0, unique=key(keep=60, digest="d"))
    clock.shift(30)
    assert await prune_jobs(store) == 1
    assert await states(store, 1) == [None]
    assert await store.jobs.insert([new(2, unique=key(digest="d"))]) == [
        Inserted("existing", id_of(1))
    ]
    assert await store.jobs.insert([new(2, unique=key(digest="e"))]) == [
        Inserted("mismatch", id_of(1))
    ]
    clock.shift(30)
    await insert(store, new(2, unique=key(digest="e")))


async def test_a_refused_insert_does_not_lengthen_the_time_of_a_key(
    store: Store, clock: ManualClock
):
    await bring(store, "succeeded", retention=1000, unique=key(keep=60))
    clock.shift(59)
    assert await store.jobs.insert([new(2, unique=key(keep=60))]) == [
        Inserted("existing", id_of(1))
    ]
    clock.shift(1)
    await insert(store, new(2, unique=key()))


async def test_the_end_of_an_earlier_job_does_not_free_the_key_of_a_later_one(
    store: Store, clock: ManualClock
):
    await bring(store, "succeeded", 1, retention=10, unique=key())
    await insert(store, new(2, unique=key(), delay=1000))
    clock.shift(10)
    assert await prune_jobs(store) == 1
    assert await store.jobs.insert([new(3, unique=key())]) == [Inserted("existing", id_of(2))]


async def test_a_job_inserted_through_one_store_object_is_seen_by_another(world: World):
    here, there = await world.store(), await world.store()
    await insert(here, new(1, unique=key()))
    assert (await look(there)).state == "waiting"
    assert await there.jobs.insert([new(1), new(2, unique=key())]) == [
        Inserted("created", id_of(1)),
        Inserted("existing", id_of(1)),
    ]
