from itertools import pairwise

import pytest

from tenure.core.calendar.rules import Cron, Every, shortest_distance
from tenure.core.calendar.spreads import check_spread, spread_offset
from tenure.core.durations import micros
from tenure.errors import ConfigError
from tests.unit.instants import at


def test_a_spread_depends_on_the_name_alone():
    # Changing these moves the timers of all users.
    assert spread_offset("sync_orders", 60.0) == 52_482_900
    assert spread_offset("nightly", 3600.0) == 1_210_168_866


def test_spreads_fill_their_window():
    window = 600.0
    drawn = sorted(spread_offset(f"timer-{n}", window) for n in range(1000))
    assert drawn[0] >= 0
    assert drawn[-1] < micros(window)
    assert max(later - early for early, later in pairwise([0, *drawn, micros(window)])) < 10_000_000
    assert spread_offset("x", 0.0) == 0
    assert spread_offset("\ud800", 1.0) < 1_000_000


def test_the_shortest_distance_of_ticks():
    now = at("2026-03-28T12:00")
    assert shortest_distance(Every(90_000_000), now) == 90_000_000
    assert shortest_distance(Cron("0,10,13 * * * *"), now) == 3 * 60_000_000
    # On the day of the jump, 02:50 comes at 03:00.
    berlin = Cron("50 2,3 * * *", "Europe/Berlin")
    assert shortest_distance(berlin, now) == 50 * 60_000_000
    assert shortest_distance(Cron("0 0 1 1 *"), at("9998-06-01")) > 10**17


def test_a_spread_is_shorter_than_the_time_between_ticks():
    now = at("2026-01-01")
    assert check_spread("59s", Every(60_000_000), now=now) == 59.0
    with pytest.raises(ConfigError) as caught:
        check_spread("60s", Every(60_000_000), now=now)
    assert str(caught.value) == (
        "spread='60s' must be shorter than the time from one tick to the next, which is 60 s "
        "(every 1 min)."
    )
    with pytest.raises(ConfigError, match=r"which is 180 s \(At "):
        check_spread("5m", Cron("0,10,13 9 * * *"), now=now)
    with pytest.raises(ConfigError, match="spread must be at least 0 s"):
        check_spread(-1, Every(60_000_000), now=now)
