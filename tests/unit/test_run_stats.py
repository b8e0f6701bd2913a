"""Counts of attempts: what is left in the store, and what readers make of it."""

import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.run_stats import (
    MINUTE,
    MINUTES_KEPT,
    PAIRS_MAX,
    RunCounts,
    decode_stats,
    encode_stats,
    memory_in,
    merge_stats,
)
from tenure.runtime.attempts.run_counter import LEAVE_EVERY, RunCounter, run_end
from tenure.testing import ManualClock
from tests.rig.endings import settlement

MAIL, CUT = ("mail", "default"), ("cut", "images")


def job(task: str = "mail", queue: str = "default") -> JobRecord:
    return JobRecord(
        id="id", task=task, queue=queue, priority=5, state="running", payload=b"", created=0, due=0
    )


def counter(clock: ManualClock) -> RunCounter:
    counting = RunCounter(clock)
    counting.join("ann")
    return counting


def test_what_is_written_is_read():
    minutes = {7: {MAIL: RunCounts(started=2, seconds=0.5, longest=0.25), CUT: RunCounts(lost=1)}}
    assert decode_stats(encode_stats(minutes)) == minutes
    assert decode_stats(encode_stats({})) == {}


def written(*line: object) -> bytes:
    return msgspec.msgpack.encode(("web-1", 7, [("task", "queue", [line])]))


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"junk",
        b"\x91" * 100_000,
        b"\0" * 10_000_000,
        msgspec.msgpack.encode([["task", 7, []]]),
        msgspec.msgpack.encode(("web-1", -1, [])),
        msgspec.msgpack.encode(("web-1", "7", [])),
        msgspec.msgpack.encode(("web-1", 7, [["task", 7, []]])),
        written(1, 2),
        written("1", 0, 0, 0, 0, 0, 0, 0, 0),
        written(1, -1, 0, 0, 0, 0, 0, 0, 0),
        written(1, 0, 0, 0, 0, 0, 0, "x", 0),
        written(1, 0, 0, 0, 0, 0, 0, 0, 2**60),
    ],
)
def test_what_cannot_be_read_counts_as_none(junk: bytes):
    assert decode_stats(junk) == {}
    body = encode_stats({100: {MAIL: RunCounts(started=1)}})
    [stats] = merge_stats([junk, body, junk], 100 * MINUTE)
    assert stats.started == 1


def test_the_memory_of_a_replica_comes_with_its_counts():
    used = [50_000_000]
    counting = RunCounter(ManualClock(), lambda: used[-1])
    counting.join("0123456789abcdef")
    counting.started(job())
    first = counting.due(is_last=True)
    counting.arrived()
    used.append(60_000_000)
    assert counting.due(is_last=True) is None  # memory alone is not worth a call
    counting.join("fedcba9876543210")  # after it was declared dead
    counting.started(job())
    again = counting.due(is_last=True)
    assert first is not None
    assert again is not None
    assert first.source == again.source
    assert memory_in([first.body, b"junk"]) == {"01234567": 50_000_000}
    assert memory_in([again.body]) == {"fedcba98": 60_000_000}
    assert memory_in([encode_stats({})]) == {}
    small = encode_stats({7: {MAIL: RunCounts(started=2)}})
    large = encode_stats({7: {MAIL: RunCounts(started=2)}}, replica="f" * 32, memory=2**40)
    assert len(large) - len(small) <= 16


def test_damaged_values_never_raise():
    chance = random.Random(1)
    body = encode_stats({7: {MAIL: RunCounts(started=2), CUT: RunCounts(lost=1)}})
    for _ in range(500):
        damaged = bytearray(body)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        damaged = damaged[: chance.randrange(1, len(damaged) + 1)]
        decode_stats(bytes(damaged))
        memory_in([bytes(damaged)])


def test_the_counts_of_all_workers_are_added_by_minute_task_and_queue():
    first = {100: {MAIL: RunCounts(2, 1, 0, 1, 0, 0, 1.5, 1.0), CUT: RunCounts(started=1)}}
    second = {
        100: {MAIL: RunCounts(1, 0, 1, 0, 0, 0, 2.0, 2.0)},
        99: {MAIL: RunCounts(cancelled=1, lost=2)},
    }
    merged = merge_stats(map(encode_stats, (first, second)), 100 * MINUTE + 7)
    began = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=100)
    assert [(stats.minute, stats.task, stats.queue) for stats in merged] == [
        (began - timedelta(minutes=1), *MAIL),
        (began, *CUT),
        (began, *MAIL),
    ]
    assert (merged[0].cancelled, merged[0].lost) == (1, 2)
    last = merged[2]
    assert (last.started, last.succeeded, last.failed, last.retried) == (3, 1, 1, 1)
    assert (last.seconds, last.longest) == (3.5, 2.0)


def test_only_the_last_hour_is_returned():
    """And the next minute, because the clock of a worker may be ahead."""
    minutes = {minute: {MAIL: RunCounts(started=1)} for minute in range(200)}
    merged = merge_stats([encode_stats(minutes)], 150 * MINUTE)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert [(stats.minute - epoch) // timedelta(minutes=1) for stats in merged] == [*range(91, 152)]


def test_a_counter_counts_by_minute_task_and_queue(clock: ManualClock):
    counting = counter(clock)
    minute = clock.wall() // MINUTE
    for number in range(3):
        counting.started(job())
        counting.ended(job(), "succeeded", 1.0 + number)
    counting.ended(job(), "retried", 0.5)
    counting.ended(job(), None, 99.0)
    counting.ended(job("cut", "images"), "failed", 0.0)
    clock.shift(60)
    counting.ended(job(), "lost", 4.0)
    stats = counting.due()
    assert stats is not None
    assert stats.source == "ann"
    assert decode_stats(stats.body) == {
        minute: {MAIL: RunCounts(3, 3, 0, 1, 0, 0, 6.5, 3.0), CUT: RunCounts(failed=1)},
        minute + 1: {MAIL: RunCounts(lost=1, seconds=4.0, longest=4.0)},
    }


def test_stats_are_due_after_a_change_and_a_while(clock: ManualClock):
    counting = counter(clock)
    counting.started(job())
    assert counting.due() is None
    clock.shift(LEAVE_EVERY)
    assert counting.due() is not None
    clock.shift(LEAVE_EVERY)
    again = counting.due()  # the one before has not arrived
    assert again is not None
    counting.started(job())  # while it is on its way
    counting.arrived()
    assert counting.due() is None
    clock.shift(LEAVE_EVERY)
    assert counting.due() is not None
    counting.arrived()
    clock.shift(1000 * LEAVE_EVERY)
    assert counting.due() is None
    assert counting.due(is_last=True) is None
    counting.started(job())
    assert counting.due() is not None
    counting.started(job())
    assert counting.due() is None
    assert counting.due(is_last=True) is not None


def test_a_worker_that_joins_again_keeps_its_source(clock: ManualClock):
    counting = counter(clock)
    counting.join("ben")
    counting.started(job())
    clock.shift(LEAVE_EVERY)
    stats = counting.due()
    assert stats is not None
    assert stats.source == "ann"


def test_old_minutes_are_forgotten(clock: ManualClock):
    counting = counter(clock)
    first = clock.wall() // MINUTE
    for _ in range(200):
        counting.started(job())
        clock.shift(60)
    stats = counting.due()
    assert stats is not None
    assert [*decode_stats(stats.body)] == [*range(first + 201 - MINUTES_KEPT, first + 200)]


def test_a_clock_that_is_set_back_leaves_no_minutes_ahead(clock: ManualClock):
    counting = counter(clock)
    counting.started(job())
    clock.step(-7200)
    counting.started(job("cut"))
    clock.shift(LEAVE_EVERY)
    stats = counting.due()
    assert stats is not None
    assert [[*pairs] for pairs in decode_stats(stats.body).values()] == [[("cut", "default")]]


def test_too_many_pairs_are_counted_together(clock: ManualClock):
    counting = counter(clock)
    for _ in range(2):
        for number in range(PAIRS_MAX + 20):
            counting.started(job("mail", f"customer {number}"))
    clock.shift(LEAVE_EVERY)
    stats = counting.due()
    assert stats is not None
    [pairs] = decode_stats(stats.body).values()
    assert len(pairs) == PAIRS_MAX + 1
    assert pairs["*", "*"].started == 40
    clock.shift(3600)  # room for others, once these are old
    counting.started(job("mail", "new"))
    stats = counting.due()
    assert stats is not None
    assert [[*pairs] for pairs in decode_stats(stats.body).values()] == [[("mail", "new")]]


def test_the_largest_value_is_small_enough_for_a_beat():
    minutes = {
        minute: {
            (f"task {number}", f"queue {number}"): RunCounts(9999, 9990, 9, 9, 9, 9, 1234.5, 12.5)
            for number in range(PAIRS_MAX + 1)
        }
        for minute in range(MINUTES_KEPT)
    }
    assert len(encode_stats(minutes)) < 200_000


@pytest.mark.parametrize(
    ("outcome", "answer", "end"),
    [
        ("succeeded", "settled", "succeeded"),
        ("succeeded", "repeated", "succeeded"),
        ("succeeded", "lost", "lost"),
        ("failed", "settled", "failed"),
        ("failed", "unreadable", "lost"),
        ("retry", "settled", "retried"),
        ("retry", "cancelled", "cancelled"),
        ("cancelled", "settled", "cancelled"),
        ("handed back", "settled", None),
        ("handed back", "lost", None),
        ("handed back", "cancelled", "cancelled"),
    ],
)
def test_an_attempt_counts_by_what_the_store_has_answered(outcome, answer, end):
    settled = settlement(id="id", fence=1, outcome=outcome)
    assert run_end(settled, answer) == end
