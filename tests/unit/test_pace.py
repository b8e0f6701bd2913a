"""How long clients are advised to wait before they poll again."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.jobs.records import JobRecord
from tenure.http.job_resource import Pace
from tenure.http.server.routes import Routes


def record(number: int, seconds: float = 0.0, *, state: str = "succeeded") -> JobRecord:
    started = 1_000_000
    return JobRecord(
        id=f"job-{number}",
        task="work",
        queue="default",
        priority=5,
        state=state,
        payload=b"",
        created=0,
        due=0,
        started=started,
        finished=started + int(seconds * 1e6),
    )


def test_at_first_soon_then_when_jobs_usually_end():
    pace = Pace()
    waiting, running = record(0, state="waiting"), record(0, state="running")
    now = 5_000_000  # four seconds after its start
    assert (pace.usual, pace.retry_after(running, now)) == (1, 1)
    for number, seconds in enumerate((7.2, 6.0, 900.0)):
        pace.see(record(number, seconds))
    assert pace.usual == 8
    assert pace.retry_after(waiting, now) == 8
    assert pace.retry_after(running, now) == 4
    assert pace.retry_after(running, now + 60_000_000) == 1


def test_repeated_and_failed_jobs_do_not_count():
    pace = Pace()
    pace.see(record(1, 5.0))
    for _ in range(3):
        pace.see(record(2, 20.0))
        pace.see(record(3, 20.0, state="failed"))
    assert pace.usual == 13  # the median of 5 and 20, rounded up


def test_the_advised_pause_is_bounded_and_old_times_are_forgotten():
    pace = Pace()
    for number in range(50):
        pace.see(record(number, 900.0))
    assert pace.usual == 30
    for number in range(50, 100):
        pace.see(record(number, 2.0))
    assert pace.usual == 2
    pace.see(record(0, 30.0))  # it is forgotten too that this one was seen
    assert len(pace._counted) == len(pace._seen) == 50
    assert pace._seen[-1] == 30.0


@pytest.mark.parametrize(("task", "after"), [("work", "4"), ("of another router", "1")])
def test_a_job_that_runs_is_shown_with_the_pace_of_its_endpoint(task: str, after: str):
    pace = Pace()
    pace.see(record(1, 7.2))
    routes: Any = SimpleNamespace(endpoints={"work": SimpleNamespace(pace=pace)})
    clock = SimpleNamespace(wall=lambda: 5_000_000)
    services: Any = SimpleNamespace(store=SimpleNamespace(clock=clock))
    running = replace(record(2, state="running"), task=task)
    assert Routes._look_again(routes, services, running) == {"Retry-After": after}
    assert Routes._look_again(routes, services, record(3, 2.0)) == {}
    assert pace.usual == 5  # it has learned from the one that has finished
