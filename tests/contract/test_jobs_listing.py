import math

import pytest

from tenure.core.jobs.records import BATCH_MAX
from tenure.core.jobs.states import STATES, JobState
from tenure.stores.contract import Store
from tenure.testing import ManualClock
from tests.contract.job_calls import (
    MOMENT,
    TTL,
    bring,
    claim,
    claim_ids,
    ended,
    find_all,
    id_of,
    insert,
    join,
    look,
    new,
    settle,
    start,
    start_one,
)
from tests.rig.endings import leave, recover

ODD_NAMES = ["it's", "{x}", "a b\n", "100%_*", "läuft 🌍", 'say "hi" \\', "x" * 200]


async def numbers_of(store: Store, **filters) -> list[int]:
    """Return the numbers of the jobs that match."""
    return [int(job.id[-12:], 16) for job in await find_all(store, **filters)]


async def in_every_state(store: Store) -> None:
    """Jobs 0 to 9, two in each state."""
    for number in range(10):
        if STATES[number % 5] != "waiting":
            await bring(store, STATES[number % 5], number, retention=1000)
    await insert(store, new(0, retention=1000), new(5, retention=1000))


# By id.


async def test_jobs_are_found_by_id_in_the_order_asked(store: Store):
    await in_every_state(store)
    numbers = [7, 99, 0, 3, 7, 4]
    jobs = await store.jobs.get([id_of(number) for number in numbers])
    assert [job and job.id for job in jobs] == [
        None if number == 99 else id_of(number) for number in numbers
    ]
    assert [job and job.state for job in jobs] == [
        None if number == 99 else STATES[number % 5] for number in numbers
    ]
    assert await store.jobs.get([]) == []


async def test_a_full_batch_is_read_in_one_call(store: Store):
    await insert(store, *(new(number) for number in range(BATCH_MAX)))
    ids = [id_of(number) for number in reversed(range(BATCH_MAX))]
    assert [job and job.id for job in await store.jobs.get(ids)] == ids


# Searching.


async def test_all_jobs_are_found_newest_first(store: Store):
    await in_every_state(store)
    jobs = await find_all(store)
    assert [job.id for job in jobs] == [id_of(number) for number in reversed(range(10))]
    assert jobs == await store.jobs.get([job.id for job in jobs])


async def test_an_empty_store_lists_no_jobs(store: Store):
    assert await find_all(store) == []


@pytest.mark.parametrize("state", STATES)
async def test_jobs_are_found_by_state(store: Store, state: JobState):
    await in_every_state(store)
    place = STATES.index(state)
    assert await numbers_of(store, state=state) == [place + 5, place]


async def test_jobs_are_found_by_queue(store: Store):
    await insert(store, *(new(number, queue="aab"[number % 3]) for number in range(6)))
    assert await numbers_of(store, queue="a") == [4, 3, 1, 0]
    assert await numbers_of(store, queue="A") == []


async def test_jobs_are_found_by_task(store: Store):
    await insert(store, *(new(number, task=("send", "sen")[number % 2]) for number in range(4)))
    assert await numbers_of(store, task="sen") == [3, 1]
    assert await numbers_of(store, task="Send") == []


async def test_jobs_are_found_by_one_of_their_tags(store: Store):
    await insert(
        store,
        new(0, tags=("blue", "green")),
        new(1, tags=("green",)),
        new(2, tags=("bluegreen",)),
        new(3),
        new(4, tags=("red", "blue", "x")),
    )
    assert await numbers_of(store, tag="blue") == [4, 0]
    assert await numbers_of(store, tag="green") == [1, 0]
    assert await numbers_of(store, tag="Blue") == []
    assert await numbers_of(store, tag="blu") == []


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
async def test_names_are_found_whatever_they_are(store: Store, name: str):
    await insert(
        store,
        new(1, queue=name, task=name, tags=(name,)),
        new(2, queue=f"{name} ", task=f"{name} ", tags=(f"{name} ", "x")),
    )
    for field in ("queue", "task", "tag"):
        assert await numbers_of(store, **{field: name}) == [1], field
    await join(store, "ann")
    (job,) = await claim(store, queues=[name])
    await settle(store, job, "cancelled")
    for field in ("queue", "task", "tag"):
        assert await numbers_of(store, **{field: name}) == [1], field


async def test_jobs_are_found_by_where_they_run(store: Store):
    await start_one(store, 1, replica="ann")
    job = await start_one(store, 2, replica="ann", retention=100)
    await start_one(store, 3, replica="ben")
    assert await numbers_of(store, replica="ann") == [2, 1]
    await settle(store, job, "succeeded")
    assert await numbers_of(store, replica="ann") == [1]
    assert await numbers_of(store, replica="nobody") == []


async def test_a_job_must_match_all_filters(store: Store):
    for number in range(32):
        details = {
            "queue": "ab"[number % 2],
            "task": "cd"[number // 2 % 2],
            "tags": ("ef"[number // 4 % 2], "g"),
            "retention": 100,
        }
        state: JobState = ("succeeded", "running")[number // 8 % 2]
        await bring(store, state, number, **details, replica="pq"[number // 16])
    assert await numbers_of(store, queue="a", task="c", tag="e") == [24, 16, 8, 0]
    assert await numbers_of(store, queue="a", task="c", tag="e", state="running") == [24, 8]
    assert await numbers_of(store, queue="a", task="c", tag="g", state="running", replica="p") == [
        12,
        8,
    ]
    assert await numbers_of(store, queue="b", state="succeeded", tag="f") == [23, 21, 7, 5]
    assert await numbers_of(store, task="d", replica="q") == [31, 30, 27, 26]
    assert await numbers_of(store, state="waiting", queue="a") == []


async def test_jobs_are_found_by_the_end_of_their_id(store: Store):
    await in_every_state(store)
    await insert(store, new(0x11, queue="b", tags=("t",)), new(0x21, queue="b"))
    assert await numbers_of(store, id_end="0011") == [0x11]
    assert await numbers_of(store, id_end="1") == [0x21, 0x11, 1]
    assert await numbers_of(store, id_end=id_of(7)) == [7]
    for number in range(2, 7):
        for state in STATES:
            fits = state == STATES[number % 5]
            numbers = await numbers_of(store, id_end=str(number), state=state)
            assert numbers == ([number] if fits else [])
    assert await numbers_of(store, id_end="1", queue="b") == [0x21, 0x11]
    assert await numbers_of(store, id_end="1", tag="t") == [0x11]
    assert await numbers_of(store, id_end="%") == await numbers_of(store, id_end="_") == []


TEXTS = {
    0: b'{"type":"TimeoutError","message":"no answer within 10 s","trace":"at line 7"}',
    1: b"timeouterror: \xff\x00 and so on",
    2: b"x" * 2500 + b"Timeout",
}


async def test_jobs_are_found_by_the_text_of_their_error(store: Store):
    jobs = await start(store, *(new(number, retention_failed=100.0) for number in range(5)))
    for number, job in enumerate(jobs):
        end = "retry" if number == 1 else "failed"
        await settle(store, job, end, error=TEXTS.get(number), reason="" if number else "Lost 10 %")
    await insert(store, new(7), new(8))
    await store.jobs.cancel([id_of(8)], reason="No TIME left, it's over")
    assert await numbers_of(store, error="timeout") == [1, 0]
    assert await numbers_of(store, error="TIMEoutERROR", state="failed") == [0]
    assert await numbers_of(store, error="time") == [8, 1, 0]
    assert await numbers_of(store, error="t 10 %") == [0]
    assert await numbers_of(store, error="so on", state="waiting") == [1]
    assert await numbers_of(store, error="time_ut") == await numbers_of(store, error="(t|e)") == []
    assert await numbers_of(store, error="e", id_end="00") == [0]


async def test_a_search_says_how_many_jobs_it_has_looked_at(store: Store):
    await insert(store, *(new(number) for number in range(60)))
    for search in ({"id_end": "zz"}, {"error": "zz"}):
        page = await store.jobs.find(**search)
        assert (page.jobs, page.cursor, page.visited) == ([], None, 60)
    page = await store.jobs.find(id_end=id_of(40)[-2:], limit=1)
    assert [job.id for job in page.jobs] == [id_of(40)]
    assert page.visited >= 20


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 10, 50])
async def test_pages_add_up_to_the_whole(store: Store, limit: int):
    await in_every_state(store)
    assert await numbers_of(store, limit=limit) == list(reversed(range(10)))
    for state in STATES:
        place = STATES.index(state)
        assert await numbers_of(store, state=state, limit=limit) == [place + 5, place]


async def test_a_page_continues_where_the_last_one_ended_despite_changes(store: Store):
    await insert(store, *(new(number, retention=100) for number in range(10, 20)))
    first = await store.jobs.find(limit=4)
    assert [job.id for job in first.jobs] == [id_of(number) for number in (19, 18, 17, 16)]
    assert first.cursor is not None
    await store.jobs.cancel([id_of(19), id_of(16), id_of(12)])
    await insert(store, new(30), new(5))
    second = await find_all_from(store, first.cursor)
    assert second == [id_of(number) for number in (15, 14, 13, 12, 11, 10, 5)]


async def find_all_from(store: Store, cursor: str | None) -> list[str]:
    ids = []
    while cursor is not None:
        page = await store.jobs.find(limit=4, cursor=cursor)
        ids += [job.id for job in page.jobs]
        cursor = page.cursor
    return ids


async def test_the_default_page_is_bounded(store: Store):
    await insert(store, *(new(number) for number in range(60)))
    page = await store.jobs.find()
    assert len(page.jobs) <= 50
    assert page.cursor is not None


async def test_few_among_many_are_found(store: Store):
    tags = [("rare",) if number in (3, 170) else ("common",) for number in range(BATCH_MAX)]
    await insert(store, *(new(number, tags=tags[number]) for number in range(BATCH_MAX)))
    assert await numbers_of(store, tag="rare", limit=10) == [170, 3]


async def test_a_page_keeps_its_limit_if_few_of_many_jobs_fit(store: Store):
    tasks = ["wanted" if number % 2 else "other" for number in range(BATCH_MAX)]
    await insert(store, *(new(number, task=task) for number, task in enumerate(tasks)))
    page = await store.jobs.find(task="wanted", limit=60)
    assert len(page.jobs) <= 60
    assert await numbers_of(store, task="wanted", limit=60) == list(range(BATCH_MAX - 1, 0, -2))


# Counts of queues.


async def test_a_queue_without_jobs_is_not_counted(store: Store):
    assert await store.jobs.counts() == []


async def test_unfinished_jobs_are_counted_by_queue(store: Store):
    for number, state in enumerate(STATES):
        if state != "waiting":
            await bring(store, state, number, queue="b", retention=100)
    await insert(store, new(10, queue="b"), new(11, queue="b", delay=60), new(12, queue="a"))
    counts = {count.queue: (count.waiting, count.running) for count in await store.jobs.counts()}
    assert counts == {"a": (1, 0), "b": (2, 1)}
    assert [count.queue for count in await store.jobs.counts()] == ["a", "b"]
    assert [count.paused_for for count in await store.jobs.counts()] == [None, None]


async def test_queues_are_ordered_by_name(store: Store):
    names = ["b", "a", "B", "ä", "a b", "🌍", "ab", "\uffee", "_"]
    await insert(store, *(new(number, queue=name) for number, name in enumerate(names)))
    assert [count.queue for count in await store.jobs.counts()] == sorted(names)


async def test_finished_jobs_are_never_counted(store: Store):
    for number, state in enumerate(("succeeded", "failed", "cancelled")):
        await bring(store, state, number, retention=1000)
    assert await store.jobs.counts() == []


async def test_counts_follow_every_move(store: Store, clock: ManualClock):
    async def counts() -> tuple[int, int]:
        for count in await store.jobs.counts():
            return count.waiting, count.running
        return 0, 0

    job = await start_one(store, retention=1000)
    assert await counts() == (0, 1)
    await settle(store, job, "retry")
    assert await counts() == (1, 0)
    await claim(store)
    clock.shift(TTL)
    await recover(store, delays=[5.0], grace=0)
    assert await counts() == (1, 0)
    await store.jobs.cancel([id_of(1)])
    assert await counts() == (0, 0)
    await store.jobs.requeue([id_of(1)])
    assert await counts() == (1, 0)
    await join(store, "ann")
    await claim(store)
    await leave(store, "ann")
    assert await counts() == (1, 0)


async def test_jobs_that_succeed_together_are_counted_one_by_one(store: Store):
    *together, last = await start(store, new(1), new(2), new(3, queue="b"), new(4))
    ends = [ended(job, "succeeded") for job in together]
    assert await store.jobs.settle(ends) == ["settled"] * 3
    [counts] = await store.jobs.counts()
    assert (counts.queue, counts.running) == ("default", 1)
    assert await settle(store, last, "succeeded") == "settled"
    assert await store.jobs.counts() == []


async def test_the_oldest_is_counted_from_when_it_became_due(store: Store, clock: ManualClock):
    async def oldest() -> float | None:
        (count,) = await store.jobs.counts()
        return count.oldest

    await insert(store, new(1, delay=10, priority=9), new(2, delay=30, priority=0))
    assert await oldest() is None
    clock.shift(10 - MOMENT)
    assert await oldest() is None
    clock.shift(MOMENT)
    assert await oldest() == pytest.approx(0, abs=0.001)
    clock.shift(25)
    assert await oldest() == pytest.approx(25, abs=0.001)
    await join(store, "ann")
    (first,) = await claim(store, limit=1)
    assert first.id == id_of(2)
    assert await oldest() == pytest.approx(25, abs=0.001)
    await claim(store, limit=1)
    assert await oldest() is None


async def test_a_job_that_is_not_due_yet_does_not_hide_the_oldest(store: Store, clock: ManualClock):
    await insert(store, new(1, at=clock.wall() + 700), new(2, at=clock.wall()))
    (count,) = await store.jobs.counts()
    assert count.oldest == pytest.approx(0, abs=0.001)


async def test_a_paused_queue_is_shown_with_or_without_jobs(store: Store, clock: ManualClock):
    await store.jobs.pause("empty", seconds=60)
    await store.jobs.pause("for ever")
    await insert(store, new(1, queue="for ever"), new(2, queue="open"))
    clock.shift(20)
    empty, for_ever, open_ = await store.jobs.counts()
    assert (empty.queue, empty.waiting, empty.running, empty.oldest) == ("empty", 0, 0, None)
    assert empty.paused_for == pytest.approx(40, abs=0.001)
    assert (for_ever.queue, for_ever.waiting, for_ever.paused_for) == ("for ever", 1, math.inf)
    assert (open_.queue, open_.paused_for) == ("open", None)
    clock.shift(40)
    await store.jobs.pause("for ever", seconds=0)
    assert [(count.queue, count.paused_for) for count in await store.jobs.counts()] == [
        ("for ever", None),
        ("open", None),
    ]


async def test_counts_return_the_reason_of_a_pause(store: Store):
    await store.jobs.pause("a", seconds=60, reason="migration  of\norders, 10 %: ä")
    await store.jobs.pause("b", reason=" ")
    await store.jobs.pause("c")
    await join(store, "ann")
    await insert(store, new(1, queue="a"), new(2, queue="b"), new(3, queue="c"), new(4, queue="d"))
    assert [queue.pause_reason for queue in await store.jobs.counts()] == [
        "migration  of\norders, 10 %: ä",
        " ",
        "",
        "",
    ]
    assert await claim_ids(store, queues=["a", "b", "c"]) == []


@pytest.mark.parametrize("seconds", [60, None])
async def test_the_last_pause_gives_the_reason(store: Store, seconds: float | None):
    await store.jobs.pause("default", reason="first")
    await store.jobs.pause("default", seconds=seconds, reason="second")
    assert [queue.pause_reason for queue in await store.jobs.counts()] == ["second"]
    await store.jobs.pause("default", seconds=seconds)
    assert [queue.pause_reason for queue in await store.jobs.counts()] == [""]


async def test_a_reason_ends_with_its_pause(store: Store, clock: ManualClock):
    await insert(store, new(1, queue="a"), new(2, queue="b"))
    await store.jobs.pause("a", seconds=10, reason="short")
    await store.jobs.pause("b", reason="long")
    await store.jobs.pause("b", seconds=0, reason="resumed")
    clock.shift(10)
    counts = await store.jobs.counts()
    assert [(queue.paused_for, queue.pause_reason) for queue in counts] == [(None, "")] * 2


async def test_a_pause_does_not_hide_how_long_jobs_wait(store: Store, clock: ManualClock):
    await insert(store, new(1))
    await store.jobs.pause("default")
    clock.shift(7)
    (count,) = await store.jobs.counts()
    assert count.oldest == pytest.approx(7, abs=0.001)


async def test_listing_changes_nothing(store: Store):
    await in_every_state(store)
    before = [await look(store, number) for number in range(10)]
    await find_all(store)
    await store.jobs.counts()
    await store.jobs.replicas()
    assert [await look(store, number) for number in range(10)] == before
