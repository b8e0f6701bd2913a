from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.calendar.rules import Cron, Every, Rule, make_rule
from tenure.errors import ConfigError
from tests.rig.sizes import SIZE
from tests.unit.instants import at


@pytest.mark.parametrize(
    ("every", "period"),
    [("90s", 90_000_000), (timedelta(minutes=5), 300_000_000), (1, 1_000_000), ("1.5s", 1_500_000)],
)
def test_a_period_may_be_written_in_many_ways(every, period: int):
    assert make_rule(every=every) == Every(period)


def test_a_period_ticks_at_its_multiples_since_1970():
    rule = Every(90_000_000)
    assert rule.next_after(0) == 90_000_000
    assert rule.next_after(89_999_999) == 90_000_000
    assert rule.next_after(90_000_000) == 180_000_000
    assert rule.last_at(90_000_000) == 90_000_000
    assert rule.last_at(89_999_999) == 0
    assert rule.last_at(-1) == -90_000_000


@given(
    st.integers(1_000_000, 10**13), st.integers(0, 10**16), st.integers(0, 10**9), st.integers(0, 9)
)
@settings(max_examples=SIZE.examples, deadline=None)
def test_the_answers_of_a_period_agree(period: int, instant: int, more: int, most: int):
    rule = Every(period)
    later = rule.next_after(instant)
    assert instant < later <= instant + period
    assert rule.last_at(later) == later
    assert rule.last_at(later - 1) == later - period
    assert rule.count(instant, later - 1, 5) == 0
    assert rule.count(instant, later, 5) == 1
    expected = 0
    while expected < most and later <= instant + more:
        expected += 1
        later += period
    assert rule.count(instant, instant + more, most) == expected


def test_a_billion_ticks_are_counted_without_a_look_at_each():
    rule = make_rule(every="1s")
    assert rule.count(0, at("2070-01-01"), 10**12) == at("2070-01-01") // 1_000_000


def test_counting_backwards_counts_nothing():
    for rule in (Every(1_000_000), Cron("* * * * *")):
        assert rule.count(at("2026-01-02"), at("2026-01-01"), 5) == 0
        assert rule.count(at("2026-01-01"), at("2026-01-02"), 0) == 0


@pytest.mark.parametrize(
    ("every", "words"),
    [
        ("90s", "every 90 s"),
        (1.5, "every 1.5 s"),
        ("1m", "every 1 min"),
        ("36h", "every 36 h"),
        ("2w", "every 14 d"),
        ("1.000001s", "every 1.000001 s"),
    ],
)
def test_a_period_in_words(every, words: str):
    assert make_rule(every=every).words() == words


@pytest.mark.parametrize(
    ("every", "message"),
    [
        (0, "every must be at least 1 s, not 0."),
        ("999ms", "every must be at least 1 s, not '999ms'."),
        (-5, "every must be at least 1 s, not -5."),
        ("11000d", "every must be at most 3,650 days, not '11000d'."),
        (float("nan"), "every must be a finite time, not nan."),
    ],
)
def test_a_bad_period(every, message: str):
    with pytest.raises(ConfigError) as caught:
        make_rule(every=every)
    assert str(caught.value) == message


def test_a_period_cannot_be_made_too_short_by_other_ways():
    with pytest.raises(ConfigError, match="at least 1 s"):
        Every(999_999)
    with pytest.raises(msgspec.ValidationError, match="at least 1 s"):
        msgspec.json.decode(b'{"type":"every","period_us":0}', type=Rule)
