"""`core.why` on records that no store could be brought to have in a test, or only with effort."""

import math
import re
from pathlib import Path

import msgspec
import pytest

from tenure.core.jobs.error_report import ErrorReport
from tenure.core.jobs.options import write_options
from tenure.core.jobs.records import COUNT_MAX, JobRecord, QueueCounts, Stranded
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.retry_policy import Backoff, write_backoff
from tenure.core.leases import Lease
from tenure.core.schedules.documents import Charter, Schedule, Standing
from tenure.core.schedules.records import ScheduleRecord
from tenure.core.why import (
    Fleet,
    Surroundings,
    TimerFacts,
    Why,
    why_job,
    why_lock,
    why_queue,
    why_stranded,
    why_timer,
    why_unreadable_lock,
)
from tenure.core.worker_info import write_serving

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
EVIL = "evil\x1b[2J\r\u202e\n"


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


def replica(name: str = "web-1", **changed: object) -> ReplicaRecord:
    fields = {"id": name, "meta": {}, "joined": NOW, "ttl": 10.0, "expires_in": 5.0}
    return ReplicaRecord(**{**fields, **changed})


def around(*replicas: ReplicaRecord, **queue: object) -> Surroundings:
    counts = QueueCounts(**{"queue": "default", "waiting": 1, "running": 0, **queue})
    return Surroundings(now=NOW, fleet=Fleet(replicas), queues={counts.queue: counts})


def serving(slots: int = 10, timer_slots: int = 0) -> dict[str, str]:
    timers = ["sweep"] if timer_slots else []
    return {
        "host": "web-1",
        "pid": "7",
        **write_serving(queues=["default"], slots=slots, timers=timers, timer_slots=timer_slots),
    }


def test_the_retries_of_a_job_are_its_own_or_those_of_its_task():
    own = write_options(retry=write_backoff(Backoff(max_attempts=5)))
    due = NOW + 12 * SECOND
    failed = job(failures=2, due=due, options=own)
    assert "retry 2 of 4 in 12 s" in why_job(failed, around()).text
    of_task = msgspec.structs.replace(around(), max_attempts={"send": 20})
    assert "retry 2 of 19 in 12 s" in why_job(job(failures=2, due=due), of_task).text
    assert "retry 2 in 12 s" in why_job(job(failures=2, due=due), around()).text
    # The policy was shortened since.
    fewer = msgspec.structs.replace(around(), max_attempts={"send": 2})
    assert "retry 2 of 2 in 12 s" in why_job(job(failures=2, due=due), fewer).text


def test_counts_that_stop_at_their_bound_are_lower_bounds():
    many = around(replica(meta=serving()), waiting=COUNT_MAX, oldest=1.0)
    assert "10,000 or more jobs wait in its queue 'default'" in why_job(job(), many).text
    assert why_queue("default", many).text.startswith("10,000 or more jobs wait in it")


@pytest.mark.parametrize(
    ("late", "running", "code"), [(4, 0, "turn"), (6, 0, "unserved"), (6, 1, "turn")]
)
def test_a_worker_that_does_not_say_what_it_serves_may_take_the_job(
    late: int, running: int, code: str
):
    """Older releases do not say it. An idle worker would have taken the job within 5 s."""
    waits = job(created=NOW - late * SECOND, due=NOW - late * SECOND)
    assert why_job(waits, around(replica(), running=running)).code == code


@pytest.mark.parametrize(
    ("held", "runs", "code"), [(10, 0, "busy"), (10, 5, "turn"), (15, 5, "busy"), (9, 0, "turn")]
)
def test_runs_of_timers_count_as_no_jobs(held: int, runs: int, code: str):
    full = replica(meta=serving(10, timer_slots=20), held=held)
    scene = around(full)
    timers = QueueCounts(queue="@timers", waiting=0, running=runs)
    scene = msgspec.structs.replace(scene, queues={**scene.queues, "@timers": timers})
    assert why_job(job(), scene).code == code


def test_a_dead_replica_is_no_worker_even_before_it_expires():
    dead = replica(dead=True)
    assert why_job(job(), around(dead)).code == "no-worker"
    running = job(state="running", replica="web-1", started=NOW)
    assert why_job(running, around(dead)).code == "expired"


def test_a_cancellation_that_is_pending_outweighs_the_timeout():
    late = job(
        state="running",
        replica="web-1",
        started=NOW - 60 * SECOND,
        timeout=30.0,
        cancelling=True,
        progress=0.5,
    )
    assert why_job(late, around(replica())).code == "cancelling"
    late = msgspec.structs.replace(late, cancelling=False)
    why = why_job(late, around(replica()))
    assert (why.code, why.text.endswith("; its progress is 50%.")) == ("overtime", True)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("interrupted", ", because it was stopped and may not run again"),
        ("timeout", ", with TimeoutError: too long"),
        ("rejected", ", with TimeoutError: too long"),
        ("of another release", " (of another release)"),
    ],
)
def test_why_a_job_failed(reason: str, text: str):
    error = msgspec.json.encode(ErrorReport("TimeoutError", "too long"))
    failed = job(state="failed", reason=reason, error=error, finished=NOW, failures=1)
    assert f"after 1 attempt{text}; it is kept" in why_job(failed, around()).text


def test_a_run_of_a_timer_is_triggered_again_and_not_requeued():
    run = job(state="failed", reason="error", finished=NOW, schedule="clean up")
    assert why_job(run, around()).next == "Run it again: tenure timers trigger 'clean up'"


def test_an_orphan_in_the_list_of_stranded_jobs():
    orphan = Stranded(id="1", why="orphan", where="job", replica="web-1")
    assert why_stranded(orphan).code == "orphan"


def timer(definition: bytes = b"null", **standing: object) -> TimerFacts:
    record = ScheduleRecord(
        name=EVIL,
        version="1",
        definition="",
        standing="",
        ruler="r",
        declared=NOW,
    )
    charter = Charter(definition=msgspec.Raw(definition), digests=(), calendar="", registered=NOW)
    schedule = Schedule(record=record, standing=Standing(cursor=NOW, **standing), charter=charter)
    return TimerFacts(schedule=schedule)


def test_a_timer_of_a_newer_release():
    assert why_timer(timer(b'{"kind": "moon"}'), around()).code == "unreadable"
    assert why_timer(timer(b'{"kind": "moon"}', successor="new"), around()).code == "renamed"


def said_about_evil_records() -> list[Why]:
    error = msgspec.json.encode(ErrorReport(EVIL, EVIL))
    meta = {"host": EVIL, "pid": EVIL, **serving()}
    evil = job(task=EVIL, queue=EVIL, error=error, failures=1, reason=EVIL, schedule=EVIL)
    queue = {"queue": EVIL, "paused_for": math.inf, "pause_reason": EVIL}
    lease = Lease(key=EVIL, holder=EVIL, fence=7, meta={"host": EVIL, "pid": EVIL})
    changed = msgspec.structs.replace
    return [
        why_job(evil, around(**queue)),
        why_job(evil, around(replica())),
        why_job(changed(evil, state="running", replica=EVIL), around(replica(EVIL, meta=meta))),
        why_job(changed(evil, state="running", replica=EVIL), around()),
        why_job(changed(evil, state="failed", finished=NOW), around()),
        why_job(changed(evil, state="cancelled", finished=NOW), around()),
        why_queue(EVIL, around(**queue)),
        why_queue(EVIL, around(replica(meta=serving()), queue=EVIL, oldest=99.0)),
        why_lock(EVIL, [lease, changed(lease, waiting=True)]),
        why_lock(EVIL, [lease, changed(lease, limit=3)]),
        why_unreadable_lock(EVIL, EVIL),
        why_stranded(Stranded(id=EVIL, why="orphan", where="", replica=EVIL)),
        why_timer(timer(successor=EVIL), around()),
        why_timer(timer(), around()),
    ]


def test_texts_of_users_cannot_steer_a_terminal():
    for why in said_about_evil_records():
        assert why.text.isprintable(), why
        assert why.next.isprintable(), why
        assert why.code.isascii(), why


def test_each_answer_is_one_sentence():
    for why in said_about_evil_records():
        assert why.text.endswith(".")
        assert not why.text.endswith("..")
        assert not why.text[0].islower()


def test_every_code_is_documented():
    root = Path(__file__).parents[2]
    source = "".join(
        path.read_text("utf-8") for path in (root / "src/tenure/core/why").glob("*.py")
    )
    codes = {*re.findall(r"Clause\(\s*\"([a-z-]+)\"", source), "held", "open", "skipped", "missed"}
    page = (root / "docs/cli.md").read_text("utf-8")
    section = page.partition("\n## tenure why\n")[2].partition("\n## ")[0]
    assert sorted(codes - {*re.findall(r"`([a-z-]+)`", section)}) == []
