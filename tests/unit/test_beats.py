"""How a worker reacts to the answers to its beats."""

from typing import Any, cast

import pytest

from tenure.core.jobs.replicas import CANCELS_MAX, Beat
from tenure.runtime.replica.audit import Audit, CountInterval
from tenure.runtime.replica.janitor import Janitor
from tenure.runtime.replica.replica import pause_after


class Calm:
    """Stands for a caretaker that has nothing to look after."""

    def next_look(self, pause: float) -> float:
        return pause


@pytest.mark.parametrize(
    ("cancels", "soon"), [(0, False), (CANCELS_MAX - 1, False), (CANCELS_MAX, True)]
)
def test_a_full_list_of_cancels_makes_the_next_beat_come_soon(cancels: int, soon: bool):
    beat = Beat(["job"] * cancels, 0, False, 0)
    pause = pause_after(beat, 60.0, 0.5, cast("Janitor", Calm()))
    assert (pause < 5) == soon


def test_a_beat_that_leaves_pauses_behind_is_followed_at_once():
    beat = Beat([], 0, False, 0, more=True)
    assert pause_after(beat, 60.0, 0.5, cast("Janitor", Calm())) == 0


def test_jobs_that_no_worker_knows_are_handed_back_after_two_beats_in_a_row():
    nothing: Any = None
    audit = Audit(nothing, nothing, nothing)
    assert not audit.is_due
    for held, reported, is_due in [
        (1, 0, False),
        (0, 0, False),
        (2, 1, False),
        (1, 2, False),
        (3, 1, False),
        (1, 0, True),
        (1, 1, False),
    ]:
        audit.beaten(held, reported)
        assert audit.is_due is is_due


def test_two_beats_in_a_row_count_once_a_minute():
    counts = CountInterval()
    counted = [second for second in range(0, 130, 3) if counts.take(1000.0 + second)]
    assert counted == [0, 3, 60, 63, 120, 123]
