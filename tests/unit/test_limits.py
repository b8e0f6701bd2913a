"""How a supervisor decides to retire or kill a child."""

import logging
from types import SimpleNamespace

import pytest

from tenure.runtime.supervised.messages import Retire
from tenure.runtime.supervised.scoreboard import Blockage
from tenure.supervisor import child as children
from tenure.supervisor.limits import Limits, SupervisorOptions

JOB = "0193e0e8-0000-7000-8000-000000000000"
OTHER = "0193e0e8-0000-7000-8000-00000000000a"


def a_child(
    *,
    deadline: float | None = None,
    ended: int = 0,
    memory: int = 0,
    blocked: tuple[float, float, str] = (0.0, 0.0, ""),
):
    """What limits see of a child; `orders` is what it was told."""
    orders: list[object] = []
    board = SimpleNamespace(
        ticked=0.0,
        ended=ended,
        deadlines=lambda: {} if deadline is None else {JOB: deadline},
        blockage=Blockage(*blocked),
    )
    return SimpleNamespace(
        pid=1, board=board, is_retiring=False, is_too_large=False, is_shown=False,
        memory=lambda: memory, lives=lambda *_: True, orders=orders, order=orders.append,
        vacated=SimpleNamespace(set=lambda: None), log_fields={},
    )  # fmt: skip


def limits(**options: int) -> Limits:
    return Limits(SupervisorOptions(**options), grace=4.0, ttl=10.0)


@pytest.mark.parametrize(
    ("late", "retires", "dies"),
    [(-1, False, False), (0.5, False, False), (1.5, True, False), (4.5, False, True)],
)
def test_a_job_past_its_time_out_costs_its_child(late: float, retires: bool, dies: bool):
    child = a_child(deadline=100.0)
    why = limits().must_be_killed(child, 100.0 + late)
    assert (child.orders == [Retire()], JOB in why) == (retires, dies)


@pytest.mark.parametrize(
    ("late", "blocked", "retires", "dies"),
    [
        (1.5, (99.0, 0.0, OTHER), False, False),
        (1.5, (99.0, 0.0, ""), False, False),  # by what is not known
        (1.5, (99.0, 0.0, JOB), True, False),  # by itself
        (1.5, (100.5, 0.0, OTHER), False, False),  # noticed a little later
        (1.5, (101.2, 0.0, OTHER), True, False),  # it could have been cancelled before
        (1.5, (99.0, 101.2, OTHER), False, False),  # it turns again, and cancels now
        (3.5, (99.0, 101.2, OTHER), True, False),
        (1.5, (90.0, 99.5, OTHER), True, False),  # that was before
        (4.5, (99.0, 0.0, OTHER), False, True),  # for longer than the grace period
    ],
)
def test_a_job_that_cannot_stop_because_of_another_is_not_blamed(late, blocked, retires, dies):
    child = a_child(deadline=100.0, blocked=blocked)
    why = limits().must_be_killed(child, 100.0 + late)
    assert (child.orders == [Retire()], bool(why)) == (retires, dies)
    if dies:
        assert why == f"job {OTHER} blocks its event loop, so job {JOB} cannot stop at its time-out"


def test_a_job_is_blamed_itself_once_the_loop_turns_again():
    child = a_child(deadline=100.0, blocked=(90.0, 99.5, OTHER))
    assert limits().must_be_killed(child, 104.5) == f"job {JOB} does not stop at its time-out"


@pytest.mark.parametrize(
    ("memory", "retires", "dies"), [(90, False, False), (110, True, False), (151, False, True)]
)
def test_memory_costs_a_child(memory: int, retires: bool, dies: bool):
    child = a_child(memory=memory)
    why = limits(max_memory=100).must_be_killed(child, 100.0)
    assert (child.orders == [Retire()], bool(why)) == (retires, dies)
    assert child.is_too_large == retires


def test_a_child_is_told_once_to_retire_after_its_jobs():
    child = a_child(ended=5)
    for _ in range(3):
        assert limits(max_jobs=5).must_be_killed(child, 100.0) == ""
    assert child.orders == [Retire()]


def test_a_system_without_the_signal_for_stacks_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(children, "_DUMP_SIGNAL", None)
    children.show_stacks_at_signal()


def test_the_stacks_of_a_silent_child_are_shown_once_each_time(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "tenure")
    child = a_child()
    shown: list[float] = []
    now = 100.0
    child.dump_stacks = lambda: shown.append(now)
    for ticked, at, times in [
        (100, 104, 0),
        (100, 106, 1),
        (100, 160, 1),
        (200, 201, 1),
        (200, 206, 2),
    ]:
        child.board.ticked, now = float(ticked), float(at)
        limits().must_be_killed(child, now)
        assert len(shown) == times
    assert f"no thread of worker process {child.pid} has run for 6 s" in caplog.messages[0]
