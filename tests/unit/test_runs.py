"""How often a job has run: claims that started nothing do not count."""

from tenure.core.jobs.hand_backs import UNKNOWN_TASK
from tenure.core.jobs.history import AttemptLine, write_history
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.run_numbers import numbered_history, runs_of


def line(attempt: int, outcome: str, *, seconds: float = 1, error: str = "") -> AttemptLine:
    began = 1_000_000 * attempt
    return AttemptLine(attempt, "web-1", began, began + round(seconds * 1e6), outcome, error)


def job(*lines: AttemptLine, state: str = "waiting", claims: int = 0, **more: int) -> JobRecord:
    return JobRecord(
        id="", task="", queue="", priority=5, state=state, payload=b"", created=1, due=1,
        attempt=claims, history=write_history(lines), **more,
    )  # fmt: skip


def test_a_job_that_was_never_claimed():
    assert runs_of(job()) == 0


def test_a_claimed_job_that_went_back_has_not_run():
    assert runs_of(job(claims=7)) == 0
    assert runs_of(job(claims=8, state="running")) == 1


def test_losses_count_and_hand_overs_do_not():
    lost = [line(1, "lost"), line(2, "lost"), line(3, "lost")]
    poison = job(*lost, claims=11, losses=3, state="failed")
    assert runs_of(poison) == 3
    assert [attempt.attempt for attempt in numbered_history(poison)] == [1, 2, 3]


def test_an_interrupted_run_counts():
    assert runs_of(job(line(1, "handed back"), claims=2, state="running")) == 2


def test_a_worker_that_did_not_know_the_task_has_not_run_it():
    strange = line(1, "handed back", seconds=0, error=UNKNOWN_TASK)
    again = job(strange, strange, line(1, "succeeded"), claims=3, state="succeeded")
    assert runs_of(job(strange, claims=1)) == 0
    assert runs_of(again) == 1
    assert [attempt.attempt for attempt in numbered_history(again)] == [1, 1, 1]


def test_failures_and_losses_count_runs_beyond_the_history():
    lines = [line(number, "retry") for number in range(15, 25)]
    long = job(*lines, claims=30, failures=22, losses=2, state="running")
    assert runs_of(long) == 25
    assert [attempt.attempt for attempt in numbered_history(long)] == [*range(15, 25)]


def test_a_success_counts():
    assert runs_of(job(line(1, "succeeded"), claims=2, state="succeeded")) == 1
    assert runs_of(job(claims=3, state="succeeded", failures=1)) == 2


def test_a_requeued_job_goes_on_counting():
    lines = [line(number, "retry") for number in range(11, 21)]
    assert runs_of(job(*lines, claims=20, failures=0)) == 20
    assert runs_of(job(*lines, line(21, "lost"), claims=30, losses=1)) == 21
