"""The rules of health: which observation is healthy, degraded or unhealthy, and in which words."""

import math
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.health import (
    ClockReading,
    Health,
    HealthCheck,
    HealthLimits,
    Heartbeat,
    Observation,
    Reply,
    judge,
)
from tenure.core.jobs.overdue_queues import QueueAges
from tenure.core.jobs.records import COUNT_MAX, QueueCounts
from tenure.core.leases import Grade

LIMITS = HealthLimits(timeout=2.0, replica_ttl=10.0)
SOUND = Observation(
    ping=Reply(value=ClockReading(0.001, 0.001), seconds=0.002),
    lease=Reply(value=True, seconds=0.004),
    workers=Reply(value=2, seconds=0.001),
    queues=Reply(value=[], seconds=0.001),
    grade=Grade.B,
)
LATE: Reply[Any] = Reply(seconds=2.0)
REFUSED: Reply[Any] = Reply(error="the store is read-only.", seconds=0.1)


def queue(name: str = "mail", **counts: Any) -> QueueCounts:
    return QueueCounts(**{"queue": name, "waiting": 0, "running": 0, **counts})


def look(limits: HealthLimits = LIMITS, **differences: Any) -> Health:
    return judge(replace(SOUND, **differences), limits)


def check_of(health: Health, name: str) -> HealthCheck:
    [check] = [check for check in health.checks if check.name == name]
    return check


def test_an_app_without_a_problem_is_healthy_in_every_check():
    health = look(heartbeats=[Heartbeat(100.0, 3.0)])
    assert (health.status, health.is_ready) == ("healthy", True)
    assert [(check.name, check.status) for check in health.checks] == [
        (name, "healthy")
        for name in ("store", "writes", "clock", "grade", "workers", "queues", "heartbeat")
    ]
    assert all(check.detail for check in health.checks)
    assert check_of(health, "writes").seconds == 0.004


@pytest.mark.parametrize(
    ("differences", "name", "status", "words"),
    [
        ({"ping": LATE}, "store", "unhealthy", "no answer within 2 s"),
        ({"ping": None}, "store", "unhealthy", "no answer within 2 s"),
        ({"ping": Reply(error="connection refused.")}, "store", "unhealthy", "connection refused."),
        ({"ping": replace(SOUND.ping, seconds=0.6)}, "store", "degraded", "slow: a ping took 0.60"),
        ({"lease": REFUSED}, "writes", "unhealthy", "read-only"),
        ({"lease": LATE}, "writes", "unhealthy", "not granted within 2 s"),
        ({"lease": Reply(value=False)}, "writes", "unknown", "too many health checks"),
        ({"lease": None}, "writes", "unknown", "no time was left"),
        ({"ping": Reply(value=ClockReading(5.0, 0.1))}, "clock", "degraded", "5 s ahead of"),
        ({"ping": Reply(value=ClockReading(-90.0, 0.1))}, "clock", "degraded", "1 min 30 s behind"),
        ({"ping": Reply(value=ClockReading(1.5, 0.6))}, "clock", "healthy", "within 2100.0 ms"),
        ({"grade": Grade.D}, "grade", "healthy", "D, volatile"),
        (
            {"workers": Reply(value=0), "timers": Reply(value=False)},
            *("workers", "healthy", "there is nothing to do"),
        ),
        ({"workers": LATE}, "workers", "unknown", "no answer within 2 s"),
        ({"workers": None}, "workers", "unknown", "no time was left"),
        ({"workers": REFUSED}, "workers", "degraded", "read-only"),
        ({"workers": Reply(value=0), "queues": LATE}, "workers", "unknown", "not known"),
        ({"workers": Reply(value=0), "has_timers": True}, "workers", "degraded", "do not tick"),
        (
            {"workers": Reply(value=0), "timers": Reply(value=True)},
            *("workers", "degraded", "timers in the store do not tick"),
        ),
        ({"workers": Reply(value=0), "timers": LATE}, "workers", "unknown", "timers should tick"),
        (
            {"workers": Reply(value=0), "queues": Reply(value=[queue(waiting=3, running=1)])},
            "workers",
            "degraded",
            "none is alive; unfinished jobs: 4",
        ),
        (
            {"workers": Reply(value=0), "queues": Reply(value=[queue(waiting=COUNT_MAX)])},
            "workers",
            "degraded",
            f"{COUNT_MAX:,} or more",
        ),
        ({"queues": LATE}, "queues", "unknown", "no answer within 2 s"),
        (
            {"queues": Reply(value=[queue(oldest=299.0)])},
            "queues",
            "healthy",
            "waits for 4 min 59 s",
        ),
        (
            {"queues": Reply(value=[queue(oldest=301.0)])},
            "queues",
            "degraded",
            "in mail for 5 min 1 s",
        ),
        (
            {"queues": Reply(value=[queue(oldest=9e3, paused_for=math.inf)])},
            "queues",
            "healthy",
            "no job is due",
        ),
        (
            {"queues": Reply(value=[queue(f"q{n}", oldest=400.0 + n) for n in range(5)])},
            "queues",
            "degraded",
            "q3 for 6 min 43 s (expected: 5 min), q2 for 6 min 42 s (expected: 5 min) and 2 more",
        ),
        ({"refused": "the store is full."}, "enqueue", "degraded", "full"),
        ({"heartbeats": [Heartbeat(99.0, 10.0)]}, "heartbeat", "unhealthy", "other workers run"),
        ({"heartbeats": [Heartbeat(9.0, None)]}, "heartbeat", "degraded", "has not joined"),
        ({"heartbeats": [Heartbeat(10.0, None)]}, "heartbeat", "unhealthy", "has not joined"),
        (
            {"heartbeats": [Heartbeat(99.0, 1.0), Heartbeat(99.0, 12.0)]},
            "heartbeat",
            "unhealthy",
            "was 12 s ago",
        ),
    ],
)
def test_each_problem_has_its_status_and_says_what_was_seen(
    differences: dict[str, Any], name: str, status: str, words: str
):
    health = look(**differences)
    check = check_of(health, name)
    assert check.status == status
    assert words in check.detail
    overall = {"unknown": "degraded"}.get(status, status)
    worst = {check.status for check in health.checks}
    assert health.status == ("unhealthy" if "unhealthy" in worst else overall)
    assert health.is_ready == (health.status != "unhealthy")


def test_a_store_that_is_away_leaves_the_other_checks_unknown():
    health = judge(Observation(ping=LATE, grade=Grade.A), LIMITS)
    assert [(check.name, check.status) for check in health.checks] == [
        ("store", "unhealthy"),
        ("writes", "unknown"),
        ("clock", "unknown"),
        ("grade", "healthy"),
        ("workers", "unknown"),
        ("queues", "unknown"),
    ]


def test_a_store_below_the_required_grade_is_unhealthy():
    limits = replace(LIMITS, require=Grade.A)
    assert check_of(look(limits, grade=Grade.A), "grade").status == "healthy"
    check = check_of(look(limits, grade=Grade.B), "grade")
    assert (check.status, check.detail.endswith("; A is required")) == ("unhealthy", True)


def test_the_alarm_of_a_queue_replaces_the_usual_age():
    limits = replace(LIMITS, queue_expected=QueueAges(300.0, {"mail": 5.0, "reports": 3600.0}))
    queues = Reply(value=[queue("mail", oldest=6.0), queue("reports", oldest=900.0)])
    check = check_of(look(limits, queues=queues), "queues")
    assert check.status == "degraded"
    assert check.detail == "the oldest job waits in mail for 6 s (expected: 5 s)"


def test_a_store_for_locks_alone_has_no_checks_of_jobs():
    health = look(keeps_jobs=False, workers=None, queues=None)
    assert [check.name for check in health.checks] == ["store", "writes", "clock", "grade"]
    assert health.status == "healthy"


def test_the_document_leaves_details_out_where_strangers_read_it():
    health = look()
    assert health.document()["checks"][0] == {
        "name": "store",
        "status": "healthy",
        "detail": "answered in 2.0 ms",
        "seconds": 0.002,
    }
    assert not [check for check in health.document(details=False)["checks"] if "detail" in check]
