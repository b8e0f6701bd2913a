"""Events as lines of the log: each is complete, readable, and of bounded length."""

import logging
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tenure import observe
from tenure.observe import (
    AttemptLost,
    ClockJumped,
    Event,
    HandlerStuck,
    HoldLost,
    JobFailed,
    JobsRecovered,
    LimitsDiffer,
    LoopBlocked,
    RenewalFailing,
    RenewalRestored,
    ReplicaExpired,
    ReplicaLost,
    ResultNotStored,
    StoreFailing,
    StoreRestored,
    TicksMissed,
)
from tenure.observe.base import BaseEvent


def test_long_texts_stand_below_the_line():
    failed = JobFailed(
        "pack", "0192", "mail", 3, error="ValueError: no", trace="Traceback:\n  in pack"
    )
    assert str(failed).splitlines() == [
        "job 0192 of task 'pack' failed for good: ValueError: no, in attempt 3",
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


LINES = {
    HoldLost("invoice:42", 7, "it could not be renewed in time"): (
        "lock 'invoice:42', fence 7, was lost: it could not be renewed in time. Another process"
    ),
    RenewalFailing(2, "PostgreSQL did not answer within 5 s."): (
        "cannot renew 2 locks: PostgreSQL did not answer within 5 s. Nothing is lost so far"
    ),
    RenewalRestored(1): "locks are renewed again, after 1 failed try",
    LimitsDiffer("api", 5, 3): "semaphore 'api' is used with the limits 5 and 3: the smallest",
    StoreFailing("beat", "no route"): (
        "the store has failed the call beat: no route. No job is lost: running handlers go on"
    ),
    StoreRestored("beat", 12): (
        "the store answers again, after 12 failed calls; the first was beat"
    ),
    ReplicaExpired("fdf0" * 8, "web-2:1", "web-1:4711"): (
        "worker fdf0fdf0 (host and process web-1:4711) was found dead by web-2:1: its process"
    ),
    ReplicaLost("fdf0" * 8, ("0192",)): (
        "worker fdf0fdf0 was taken for dead: its heartbeats did not arrive in time, or the store "
        "has lost its record. Its jobs were stopped here and run elsewhere (0192). It joins again"
    ),
    AttemptLost("0192", 3, "succeeded"): (
        "job 0192, fence 3, has succeeded, and that was not stored: another worker had taken it"
    ),
    ResultNotStored("pack", "0192", "it is too large"): (
        "job 0192 of task 'pack' has succeeded, but its result was not stored: it is too large."
    ),
    HandlerStuck("pack", "0192", "timed out"): (
        "job 0192 of task 'pack' does not stop (timed out), and may keep its thread. Let"
    ),
    ClockJumped(-3.0): "the store's clock jumped back by 3 s. Locks and running jobs are safe",
}


@pytest.mark.parametrize("event", LINES, ids=lambda event: type(event).__name__)
def test_a_line_says_what_happened_and_what_to_do(event: BaseEvent):
    line = str(event)
    assert line.startswith(LINES[event])
    assert "\n" not in line
    assert event.level == logging.INFO or line.endswith(".")


def test_an_error_of_a_user_forges_no_line():
    line = str(StoreFailing("beat", "no route\n2026-11-15 ERROR forged"))
    assert "\n" not in line


def leaves(kind: type) -> list[type]:
    """Return the classes below this one that have no subclasses."""
    return [leaf for below in kind.__subclasses__() for leaf in leaves(below) or [below]]


def test_every_event_is_exported():
    """Those that only timers send, as well."""
    kinds = {kind.__name__ for kind in get_args(Event)}
    assert kinds == {kind.__name__ for kind in leaves(BaseEvent)}
    assert kinds | {"Event"} == set(observe.__all__)
    assert {kind.__name__: kind for kind in get_args(Event)} == {
        name: getattr(observe, name) for name in kinds
    }


def filled(kind: type) -> Any:
    """Return an event with some value in each field."""
    hints = {name: str(hint) for name, hint in get_type_hints(kind).items()}
    values = {"tuple": ("x",), "bool": True, "int": 1, "float": 1.0}
    return kind(**{
        name: next((values[part] for part in values if part in hints[name]), "x")
        for name in kind.__struct_fields__
    })  # fmt: skip


def test_the_table_of_the_guide_has_each_event_with_its_level_and_fields():
    page = (Path(__file__).parents[2] / "docs/jobs.md").read_text("utf-8")
    table = page.partition("| event | level | fields | when |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:4] for row in table.splitlines()[2:]]
    documented = {name.strip(): (level.strip(), fields.strip()) for name, level, fields in rows}
    assert documented == {
        f"`{kind.__name__}`": (
            logging.getLevelName(filled(kind).level),
            ", ".join(f"`{name}`" for name in kind.__struct_fields__),
        )
        for kind in leaves(BaseEvent)
    }
