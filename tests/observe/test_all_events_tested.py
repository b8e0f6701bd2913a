"""Every event has a test of the situation that it names, in the table of its subject."""

from pathlib import Path

import pytest

from tenure import observe
from tenure.observe.base import BaseEvent
from tests.unit.test_event_words import leaves

TESTS = Path(__file__).parents[1]
TABLES = {
    "jobs": "observe/test_job_events.py",
    "locks": "observe/test_lock_events.py",
    "replica": "observe/test_replica_events.py",
    "store": "observe/test_store_events.py",
    "timers": "observe/test_tick_events.py",
}
"""The tests of each module of `tenure.observe`."""
ELSEWHERE = {
    "DataLost": "process/test_data_loss.py",
    "HandlerStuck": "jobs/test_timeouts.py",
    "InterpreterBlocked": "jobs/test_blocked_loop.py",
    "JobRunsLong": "observe/test_alarms.py",
    "LimitsDiffer": "locks/test_locking.py",
    "LoopBlocked": "jobs/test_blocked_loop.py",
    "QueueDelayed": "observe/test_alarms.py",
    "RenewalFailing": "locks/test_loss.py",
    "RenewalRestored": "locks/test_loss.py",
    "ResultNotStored": "jobs/test_results.py",
    "SlotsKept": "jobs/test_lent_slots.py",
    "TimerAhead": "timers/test_wrong_clock.py",
    "TimerRunsLong": "observe/test_alarms.py",
    "TimersFull": "timers/test_budget.py",
}
"""Alarms, and events of trouble that needs a setting of its own."""


def subject_of(kind: type) -> str:
    return kind.__module__.removeprefix("tenure.observe.")


@pytest.mark.parametrize("kind", leaves(BaseEvent), ids=lambda kind: kind.__name__)
def test_the_tests_of_its_subject_name_each_event(kind: type):
    name = kind.__name__
    assert getattr(observe, name) is kind
    path = TESTS / ELSEWHERE.get(name, TABLES[subject_of(kind)])
    assert name in path.read_text(encoding="utf-8"), f"no test of {name} in {path.name}"


def test_the_list_of_others_names_existing_events():
    assert set(ELSEWHERE) < {kind.__name__ for kind in leaves(BaseEvent)}
    assert {subject_of(kind) for kind in leaves(BaseEvent)} == set(TABLES)
