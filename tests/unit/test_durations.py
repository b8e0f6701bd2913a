from datetime import timedelta

import pytest

from tenure.core.durations import duration, micros, seconds
from tenure.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "length"),
    [
        (0, 0.0),
        (30, 30.0),
        (0.25, 0.25),
        (timedelta(minutes=2), 120.0),
        (timedelta(microseconds=1), 0.000_001),
        ("250ms", 0.25),
        ("30s", 30.0),
        ("1.5s", 1.5),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("1 h 30 min", 5400.0),
        ("5min", 300.0),
        (" 30 s ", 30.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_may_be_written_in_many_ways(value, length: float):
    result = seconds(value, "ttl")
    assert result == pytest.approx(length)
    assert type(result) is float


@pytest.mark.parametrize(
    "value",
    ["", " ", "30", "s", "30x", "-1s", "1e3s", "1h30", "30s foo", ".5s", "1,5s", "1H", "inf"],
)
def test_text_that_is_no_duration_is_refused(value: str):
    with pytest.raises(ConfigError, match=r"ttl must be seconds \(30\), a timedelta, or text"):
        seconds(value, "ttl")


@pytest.mark.parametrize("value", [None, True, False, b"30s", [30], {}, 1j])
def test_other_types_are_refused(value):
    with pytest.raises(ConfigError, match="ttl must be seconds"):
        seconds(value, "ttl")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_duration_is_finite(value: float):
    with pytest.raises(ConfigError, match="wait must be a finite time"):
        seconds(value, "wait")


@pytest.mark.parametrize("value", [-1, -0.001, timedelta(seconds=-1)])
def test_a_duration_is_not_negative(value):
    with pytest.raises(ConfigError, match="wait must be at least 0 s"):
        seconds(value, "wait")


@pytest.mark.parametrize("value", [0, 0.999, "999ms"])
def test_a_minimum_is_named_in_the_refusal(value):
    with pytest.raises(ConfigError, match="ttl must be at least 1 s"):
        seconds(value, "ttl", minimum=1)


def test_the_minimum_itself_is_allowed():
    assert seconds("1s", "ttl", minimum=1) == 1


def test_a_refusal_is_a_value_error_that_shows_the_value():
    with pytest.raises(ValueError, match="'soon'"):
        seconds("soon", "ttl")


@pytest.mark.parametrize(
    ("length", "whole"),
    [
        (0.0, 0),
        (1.0, 1_000_000),
        (1.1, 1_100_000),
        (0.000_001, 1),
        (0.000_000_4, 0),
        (0.000_000_6, 1),
        (4.35, 4_350_000),
        (86_400.0 * 3650, 315_360_000_000_000),
    ],
)
def test_stores_count_in_whole_microseconds(length: float, whole: int):
    assert micros(length) == whole
    assert type(micros(length)) is int


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (0.0002, "0 ms"),
        (0.25, "250 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (10.4, "10 s"),
        (59, "59 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (599, "9 min 59 s"),
        (659, "10 min 59 s"),
        (3600, "1 h"),
        (3659, "1 h"),
        (3660, "1 h 1 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
        (1_000_000, "11 d 13 h"),
    ],
)
def test_a_duration_in_words(length: float, words: str):
    assert duration(length) == words


@pytest.mark.parametrize(
    ("maximum", "most"),
    [(300, "300 s"), (86_399, "86399 s"), (86_400, "1 days"), (31_536_000, "365 days")],
)
def test_a_maximum_is_allowed_and_named(maximum: float, most: str):
    assert seconds(maximum, "ttl", maximum=maximum) == maximum
    with pytest.raises(ConfigError, match=f"ttl must be at most {most}, not"):
        seconds(maximum + 1, "ttl", maximum=maximum)
