"""Events as lines of the log: each is complete, readable, and of bounded length."""

from typing import get_args

from tenure import observe
from tenure.observe import AttemptFailed, Event, JobsRecovered, LoopBlocked, TicksMissed
from tenure.observe.base import BaseEvent


def test_long_texts_stand_below_the_line():
    failed = AttemptFailed("pack", "0192", 3, "ValueError: no", trace="Traceback:\n  in pack")
    assert str(failed).splitlines() == [
        "attempt failed: task pack, job 0192, attempt 3, error ValueError: no",
        "  | Traceback:",
        "  |   in pack",
    ]
    assert str(LoopBlocked(2.5, "in pack")) == "loop blocked: seconds 2.5\n  | in pack"


def test_a_run_that_never_runs_again_was_not_lost_too_often():
    line = str(JobsRecovered("recovery", ("replica-1",), ("0192",), failed=("0193",)))
    assert "1 to run again (0192); 1 failed for good (0193)" in line


def test_a_line_of_the_log_names_a_few_jobs_and_counts_the_rest():
    ids = tuple(f"job-{number}" for number in range(200))
    line = str(JobsRecovered("recovery", ("replica-1",), ids))
    assert "200 to run again (job-0, job-1, job-2, job-3, job-4 and 195 more)" in line
    assert "(job-0, job-1)" in str(JobsRecovered("recovery", ("replica-1",), ids[:2]))


def test_missed_ticks_are_counted_up_to_a_bound_and_the_line_says_so():
    assert str(TicksMissed("sweep", 999, "late")) == (
        "ticks missed: timer sweep, ticks 999, reason late"
    )
    assert str(TicksMissed("sweep", 1000, "late")) == (
        "ticks missed: timer sweep, ticks 1000 or more, reason late"
    )


def test_every_event_is_exported():
    """Those that only timers send, as well."""
    kinds = {kind.__name__ for kind in get_args(Event)}
    assert kinds == {kind.__name__ for kind in BaseEvent.__subclasses__()}
    assert kinds | {"Event"} == set(observe.__all__)
    assert {kind.__name__: kind for kind in get_args(Event)} == {
        name: getattr(observe, name) for name in kinds
    }
