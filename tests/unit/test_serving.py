"""What a worker's record says about the worker."""

import pytest

from tenure.core.leases import check_meta
from tenure.core.worker_info import Serving, read_serving, write_serving


def test_a_record_is_read_as_it_was_written():
    meta = write_serving(queues=["a", "b, c"], slots=100, timers=["sweep"], timer_slots=20)
    assert read_serving(meta) == Serving(
        queues=("a", "b, c"), slots=100, timers=("sweep",), timer_slots=20
    )


def test_without_queues_or_timers_there_are_no_slots_for_them():
    serving = read_serving(write_serving(queues=[], slots=100, timers=[], timer_slots=20))
    assert serving == Serving(queues=(), slots=0)


def test_very_many_names_are_bounded_and_counted():
    names = [f"tenant-{number:04}" for number in range(5000)]
    meta = write_serving(queues=names, slots=1, timers=names, timer_slots=1)
    check_meta({**meta, "host": "h" * 200, "pid": "4711"})
    serving = read_serving(meta)
    assert len(serving.queues) + serving.more_queues == 5000
    assert len(serving.timers) + serving.more_timers == 5000
    assert serving.queues[0] == "tenant-0000"
    assert serving.may_serve("tenant-4999")
    assert serving.may_run("anything")


def test_very_many_idle_timers_are_bounded_and_counted():
    names = [f"tenant-{number:04}" for number in range(5000)]
    meta = write_serving(queues=names, slots=1, timers=[], timer_slots=1, idle_timers=names)
    check_meta({**meta, "host": "h" * 200, "pid": "4711"})
    serving = read_serving(meta)
    assert len(serving.idle_timers) + serving.more_idle_timers == 5000
    assert not serving.may_run("tenant-0000")


@pytest.mark.parametrize("text", ["", "{}", "[" * 5000, '{"queues":7,"slots":1}', "junk"])
def test_an_unreadable_record_is_ignored(text):
    assert read_serving({"serving": text}) is None
    assert read_serving({}) is None


def test_slots_of_jobs_and_of_timers_are_told_apart():
    serving = read_serving(write_serving(queues=[], slots=100, timers=["sweep"], timer_slots=20))
    assert serving == Serving(queues=(), slots=0, timers=("sweep",), timer_slots=20)
    serving = read_serving(write_serving(queues=["a"], slots=100, timers=[], timer_slots=20))
    assert serving == Serving(queues=("a",), slots=100)
