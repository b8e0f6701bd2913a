"""The checkers of notifications, on histories written by hand."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.sim.checks.notifications import (
    check_hold_limits,
    check_mild,
    check_notified_in_time,
    check_refused_ends_reported,
)
from tests.sim.entry_builders import entry, granted, of_job, recovered, settled
from tests.sim.history import Entry


def test_losses_must_be_reported_in_time():
    late = Entry(at=5, by="m0.1", what="noticed loss", ok=True, seconds=2)
    pause = Entry(at=2, by="world", what="pause", number=0, seconds=2.5)
    assert len(check_notified_in_time([late])) == 1
    assert not check_notified_in_time([pause, late])
    taken = Entry(at=5, by="m0.1", what="event", detail="ReplicaLost", ids=["j"])
    ran_on = Entry(at=6, by="m0.1", what="finished", job="j")
    assert len(check_notified_in_time([taken, ran_on])) == 1
    assert not check_notified_in_time([taken, Entry(at=6, by="m0.1", what="stopped", job="j")])


def of_handler(at: float, what: str, **facts: Any) -> Entry:
    return Entry(at=at, by="m0.1", what=what, job="j", fence=5, **facts)


PAUSED = Entry(at=3, by="world", what="pause", number=0, seconds=2)
NOTICE = Entry(at=2, by="m0.1", what="received cancel", ids=["j"])


@pytest.mark.parametrize(
    ("history", "is_right"),
    [
        ([NOTICE, of_handler(2.01, "stopped")], True),
        ([NOTICE, of_handler(2.01, "finished")], True),
        ([NOTICE, of_handler(4, "finished")], False),
        ([NOTICE, of_handler(4, "failed")], False),
        ([NOTICE, PAUSED, of_handler(5, "finished")], True),
        ([PAUSED, replace(NOTICE, at=6), of_handler(8, "finished")], False),
        ([NOTICE, replace(NOTICE, at=3), of_handler(3.01, "finished")], False),
        ([NOTICE, of_handler(3, "began"), of_handler(9, "finished")], True),
    ],
)
def test_a_cancelled_job_must_stop_in_time(history: list[Entry], is_right: bool):
    assert len(check_notified_in_time([of_handler(1, "began"), *history])) == (not is_right)


@pytest.mark.parametrize(
    ("history", "is_right"),
    [
        ([of_handler(4, "stopped")], True),
        ([of_handler(5, "stopped")], False),
        ([of_handler(5, "finished")], False),
        ([PAUSED, of_handler(5, "stopped")], True),
    ],
)
def test_attempts_end_with_their_time_out(history: list[Entry], is_right: bool):
    begin = [of_job(1, "inserted", answer="created", ttl=3.0), of_handler(1, "began")]
    assert len(check_notified_in_time([*begin, *history])) == (not is_right)


@pytest.mark.parametrize("outcome", ["succeeded", "retry", "failed", "cancelled"])
def test_a_worker_must_report_a_refused_end(outcome: str):
    refused = of_job(2, "settled", 5, outcome=outcome, answer="lost", holder="m0.1")
    report = Entry(at=3, by="m0.1", what="event", detail="AttemptLost", job="j", fence=5)
    crash = Entry(at=2, by="world", what="crash", detail="m0.1")
    assert len(check_refused_ends_reported([refused])) == 1
    assert not check_refused_ends_reported([refused, report])
    assert not check_refused_ends_reported([refused, crash])
    assert not check_refused_ends_reported([settled(2, 5), refused])


@pytest.mark.parametrize("outcome", ["handed back", "lost"])
def test_a_refused_end_that_another_process_decided_is_no_loss_of_the_worker(outcome: str):
    refused = of_job(2, "settled", 5, outcome=outcome, answer="lost", holder="m0.1")
    assert not check_refused_ends_reported([refused])


def test_fair_weather_costs_nothing():
    lost = Entry(at=1, by="m0.1", what="event", detail="HoldLost", key="k", answer="no more")
    over = Entry(
        at=1, by="m0.1", what="event", detail="HoldLost", key="k", answer="max_hold is over"
    )
    assert not check_mild([over], [])
    assert len(check_mild([lost, *recovered(2)], ["'k' of a"])) == 3
    dead = Entry(at=1, by="m0.1", what="event", detail="ReplicaLost", replica="r")
    back, ahead = (entry(0, "stepped", seconds=seconds) for seconds in (-9, 9))
    assert len(check_mild([back, lost, dead], [])) == 2
    assert len(check_mild([ahead, lost, dead, *recovered(2)], ["'k' of a"])) == 2


def test_holds_keep_within_their_bounds():
    entered = Entry(at=1, by="p", what="entered", key="k", holder="a", limit=1, seconds=2, ttl=5)
    acts = Entry(at=7, by="p", what="acts", key="k", holder="a")
    assert not check_hold_limits([entered, granted(3, "b", 2)])
    assert len(check_hold_limits([entered, granted(2, "b", 2)])) == 1
    assert len(check_hold_limits([entered, acts])) == 1
