"""How attempts end: the job's next state, its counters, its history."""

import pytest

from tenure.core.jobs import endings, loss_policy
from tenure.core.jobs.history import read_history
from tenure.core.jobs.options import write_options
from tenure.core.jobs.records import JobRecord


def job(**details) -> JobRecord:
    fields = {"id": "j", "task": "work", "queue": "default", "priority": 5, "payload": b""}
    running = {"state": "running", "fence": 7, "replica": "ann", "created": 1, "due": 1}
    return JobRecord(**{**fields, **running, "started": 5, **details})


@pytest.mark.parametrize(
    ("losses", "state", "delay", "reason"),
    [(0, "waiting", 1.0, ""), (1, "waiting", 9.0, ""), (2, "failed", 0.0, "lost")],
)
def test_a_lost_job_comes_back_as_often_as_there_are_delays(losses, state, delay, reason):
    end = loss_policy.lost(job(losses=losses), by="eva", at=8, delays=[1.0, 9.0])
    assert (end.state, end.delay, end.reason) == (state, delay, reason)
    assert (end.outcome, end.losses, end.failures, end.error) == ("lost", 1, 0, None)
    assert end.yields_to_cancel


def test_a_loss_adds_a_line_to_the_history():
    lost = job(history=endings.history_of(job(attempt=1), "retry", 6, "E: no"), attempt=4)
    end = loss_policy.lost(lost, by="eva", at=8, delays=[])
    lines = read_history(end.history)
    assert [(line.attempt, line.outcome) for line in lines] == [(1, "retry"), (2, "lost")]
    assert (lines[1].replica, lines[1].started, lines[1].ended) == ("ann", 5, 8)


@pytest.mark.parametrize("options", [write_options(rerun=False), "spoiled"])
def test_a_job_that_may_not_run_again_fails_where_another_one_waits(options):
    once = job(options=options)
    for end, outcome, failures in (
        (endings.handed_back(once, delay=5.0, history=b"h"), "handed back", 0),
        (endings.retried(once, delay=5.0, error=b"e", history=b"h"), "retry", 1),
    ):
        assert (end.state, end.reason, end.error) == ("failed", "interrupted", None)
        assert (end.outcome, end.failures, end.yields_to_cancel) == (outcome, failures, True)
        assert end.history == b"h"
    lost = loss_policy.lost(once, by="eva", at=8, delays=[0.0])
    assert (lost.state, lost.reason) == ("failed", "lost")


def test_marks_tell_outcomes_and_recoverers_apart():
    own = [
        endings.succeeded(job()),
        endings.failed(job(), reason="error"),
        endings.retried(job(), delay=1.0, error=b"e"),
        endings.cancelled(job()),
        endings.handed_back(job()),
    ]
    foreign = [loss_policy.lost(job(), by=by, at=8, delays=[]) for by in ("eva", "fay")]
    assert len({end.mark for end in (*own, *foreign)}) == 7


def test_a_move_is_encoded_as_scripts_read_it():
    assert endings.succeeded(job()).move == "2000s"
    assert endings.failed(job(), reason="error").move == "3010f"
    assert endings.retried(job(), delay=1.0, error=b"e").move == "0010r"
    assert endings.cancelled(job()).move == "4000c"
    assert endings.handed_back(job(), by="eva").move == "0000heva"
    assert loss_policy.lost(job(), by="eva", at=8, delays=[]).move == "3101leva"
