"""`core.why` where two things are in the way at once, or where one only seems to be."""

import msgspec
import pytest

from tenure import Tenure
from tenure.app import engine_of
from tenure.core.jobs.error_report import ErrorReport
from tenure.core.jobs.history import AttemptLine, AttemptOutcome, write_history
from tenure.core.jobs.records import JobRecord, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.schedules.documents import Charter, Decision, Schedule, Standing
from tenure.core.schedules.records import TIMERS_QUEUE, ScheduleRecord
from tenure.core.why import Fleet, Surroundings, TimerFacts, why_job, why_queue, why_timer
from tenure.core.worker_info import write_serving

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
HOUR = 3600 * SECOND


def job(**changed: object) -> JobRecord:
    fields = {
        "id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "task": "send",
        "queue": "default",
        "priority": 5,
        "state": "waiting",
        "payload": b"",
        "created": NOW,
        "due": NOW,
    }
    return JobRecord(**{**fields, **changed})


def worker(name: str = "web-1", *, expires_in: float = 5.0, held: int = 0, **serving: object):
    """Return the record of a worker; without `serving`, it does not say what it serves."""
    fields = {"queues": ["default"], "slots": 4, "timers": [], "timer_slots": 0, **serving}
    meta = {"host": name, **(write_serving(**fields) if serving else {})}
    return ReplicaRecord(id=name, meta=meta, joined=NOW, ttl=10.0, expires_in=expires_in, held=held)


def around(*workers: ReplicaRecord, **queue: object) -> Surroundings:
    counts = QueueCounts(**{"queue": "default", "waiting": 1, "running": 0, **queue})
    return Surroundings(now=NOW, fleet=Fleet(workers), queues={counts.queue: counts})


def history(outcome: AttemptOutcome, started: int) -> bytes:
    return write_history([AttemptLine(1, "web-1", started, started + SECOND, outcome)])


# Jobs.


def test_a_delay_does_not_hide_that_no_worker_will_take_the_job():
    delayed = job(due=NOW + 60 * SECOND)
    why = why_job(delayed, around(worker(queues=["mail"])))
    assert why.code == "due"
    assert "is due in 1 min, and the only live worker does not serve its queue" in why.text
    assert why.next.startswith("Start a worker that serves it")
    # Slots that are taken now may be free by then.
    assert why_job(delayed, around(worker(slots=1, held=1))).text == "It is due in 1 min."


def test_a_job_that_was_handed_back_after_it_had_failed():
    """A claim that did not begin leaves no line in the history."""
    failed = job(failures=1, due=NOW + 9 * SECOND, history=history("retry", NOW - 50 * SECOND))
    assert why_job(failed, around(worker(slots=4))).code == "retry"
    again = msgspec.structs.replace(failed, started=NOW - 5 * SECOND)
    assert why_job(again, around(worker(slots=4))).code == "handed-back"


def test_a_job_that_was_lost_after_it_had_failed():
    lost = job(failures=2, losses=1, due=NOW + 9 * SECOND, history=history("lost", NOW))
    why = why_job(lost, around(worker(slots=4)))
    assert (why.code, "because it was lost with its worker" in why.text) == ("lost", True)


def test_a_worker_of_an_older_release_may_have_free_slots():
    full = worker(slots=1, held=1)
    assert why_job(job(), around(full)).code == "busy"
    assert why_job(job(), around(full, worker("old"))).code == "turn"
    assert why_job(job(), around(full, worker("old", expires_in=-1.0))).code == "busy"


@pytest.mark.parametrize(("held", "code"), [(2, "turn"), (3, "busy")])
def test_a_run_of_a_timer_may_take_any_slot(held: int, code: str):
    run = job(queue=TIMERS_QUEUE, schedule="sweep")
    serves = worker(slots=1, held=held, timers=["sweep"], timer_slots=2)
    why = why_job(run, around(serves, queue=TIMERS_QUEUE, running=2))
    assert why.code == code
    if code == "busy":
        assert "all 3 slots of the worker that runs its timer 'sweep' are taken" in why.text


def test_the_queue_of_timers_is_served_by_those_that_run_any():
    workers = [worker(timers=["sweep"], timer_slots=2), worker("web-2", slots=4)]
    text = "It has no unfinished jobs, and 1 worker serves it."
    assert why_queue(TIMERS_QUEUE, around(*workers)).text == text


# Timers.


def timer(*, each: str = "cluster", cursor: int = NOW, live: int = 0, **facts: object):
    """Return a timer that ticks every hour."""
    app = Tenure("memory://")

    @app.timer(every="1h", name="sweep", each=each)
    async def sweep() -> None: ...

    definition = engine_of(app).registry.plans["sweep"].definition
    record = ScheduleRecord(
        name="sweep",
        version="1",
        definition="",
        standing="",
        ruler="r",
        declared=NOW,
        last_job="job-1",
        live=live,
    )
    raw = msgspec.Raw(msgspec.json.encode(definition))
    charter = Charter(
        definition=raw, digests=(), calendar=definition.calendar, registered=NOW - 24 * HOUR
    )
    schedule = Schedule(record=record, standing=Standing(cursor=cursor), charter=charter)
    return TimerFacts(schedule=schedule, **facts)


def runs_it(name: str = "web-1") -> ReplicaRecord:
    return worker(name, timers=["sweep"], timer_slots=2)


def test_a_worker_without_timers_beside_one_that_runs_it():
    idle = worker("web-2", idle_timers=["sweep"])
    assert why_timer(timer(), around(runs_it(), idle)).code == "scheduled"
    assert why_timer(timer(), around(idle)).code == "not-run"


def test_a_timer_of_each_replica_is_decided_there_and_not_in_the_store():
    cursor = NOW - 3 * HOUR
    assert why_timer(timer(cursor=cursor), around(runs_it())).code == "late"
    assert why_timer(timer(each="replica", cursor=cursor), around(runs_it())).code == "scheduled"


def test_a_failure_is_told_of_the_last_tick_only():
    error = msgspec.json.encode(ErrorReport("TimeoutError", "no answer"))
    run = job(id="job-1", state="failed", error=error, reason="error", finished=NOW)
    last = Decision(outcome="ran", first=NOW, last=NOW, job="job-1")
    failed = why_timer(timer(latest=last, runs=(run,)), around(runs_it()))
    assert "failed with TimeoutError: no answer" in failed.text
    newer = msgspec.structs.replace(last, job="job-2")
    assert "failed" not in why_timer(timer(latest=newer, runs=(run,)), around(runs_it())).text


def test_runs_that_are_not_known_are_counted():
    """The store may have more of them than were read."""
    run = job(state="running", replica="web-1", started=NOW)
    text = why_timer(timer(live=2, runs=(run,)), around(runs_it())).text
    assert text.startswith("2 runs have been running on web-1 since")
    assert " and 1 more, and its next tick" in text
