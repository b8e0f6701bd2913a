from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.calendar.rules import Cron, Every, make_rule
from tenure.core.calendar.zones import CALENDAR_ENDS, instant_of
from tests.rig.sizes import SIZE
from tests.unit.instants import at, coming, gone


@pytest.mark.parametrize(
    ("cron", "since", "expected"),
    [
        ("30 2 * * *", "2026-01-01T02:30", ["2026-01-02T02:30", "2026-01-03T02:30"]),
        ("*/15 * * * *", "2026-01-01T00:14:59", ["2026-01-01T00:15", "2026-01-01T00:30"]),
        ("0 9 * * MON-FRI", "2026-01-02T10:00", ["2026-01-05T09:00", "2026-01-06T09:00"]),
        ("0 9 * * mon", "2026-01-02T10:00", ["2026-01-05T09:00", "2026-01-12T09:00"]),
        ("0 9 * jan,Feb *", "2026-02-28T09:00", ["2027-01-01T09:00", "2027-01-02T09:00"]),
        ("0 0 L * *", "2026-01-31T00:00", ["2026-02-28T00:00", "2026-03-31T00:00"]),
        ("0 0 LW * *", "2026-01-01T00:00", ["2026-01-30T00:00", "2026-02-27T00:00"]),
        ("0 0 * * 5L", "2026-01-01T00:00", ["2026-01-30T00:00", "2026-02-27T00:00"]),
        ("0 0 * * FRI#2", "2026-01-01T00:00", ["2026-01-09T00:00", "2026-02-13T00:00"]),
        ("0 0 13 * FRI", "2026-01-10T00:00", ["2026-01-13T00:00", "2026-01-16T00:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 29 2 *", "2096-03-01T00:00", ["2104-02-29T00:00", "2108-02-29T00:00"]),
        ("0 0 * 2 MON#5", "2026-01-01T00:00", ["2044-02-29T00:00", "2072-02-29T00:00"]),
        ("@hourly", "2026-01-01T00:00", ["2026-01-01T01:00", "2026-01-01T02:00"]),
        ("@daily", "2026-01-01T00:00", ["2026-01-02T00:00", "2026-01-03T00:00"]),
        ("@midnight", "2026-01-01T00:00", ["2026-01-02T00:00", "2026-01-03T00:00"]),
        ("@weekly", "2026-01-01T00:00", ["2026-01-04T00:00", "2026-01-11T00:00"]),
        ("@monthly", "2026-01-01T00:00", ["2026-02-01T00:00", "2026-03-01T00:00"]),
        ("@yearly", "2026-01-01T00:00", ["2027-01-01T00:00", "2028-01-01T00:00"]),
        ("@Annually", "2026-01-01T00:00", ["2027-01-01T00:00", "2028-01-01T00:00"]),
    ],
)
def test_a_cron_expression_ticks_as_documented(cron: str, since: str, expected: list[str]):
    rule = make_rule(cron=cron)
    assert coming(rule, at(since), 2) == [f"{tick}+00:00" for tick in expected]
    first, second = (at(tick) for tick in expected)
    assert gone(rule, second + 59, 2) == [second, first]


def test_a_sixth_field_in_front_is_the_second():
    rule = make_rule(cron="*/20 30 2 * * *")
    start = at("2026-01-01T02:30:20")
    assert rule.next_after(start - 1) == start
    assert rule.next_after(start) == start + 20_000_000
    assert rule.next_after(start + 20_000_000) == at("2026-01-02T02:30:00")
    assert rule.last_at(start + 19_999_999) == start


# Berlin in 2026: 02:00 to 03:00 is left out on 29 March and shown twice on 25 October.
@pytest.mark.parametrize(
    ("zone", "cron", "since", "expected"),
    [
        pytest.param(
            *("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00"),
            ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
            id="daily-inside-a-gap",
        ),
        pytest.param(
            *("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00"),
            ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
            id="daily-inside-a-repeat",
        ),
        pytest.param(
            *("Europe/Berlin", "0 * * * *", "2026-03-29T00:30"),
            ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"],
            id="hourly-across-a-gap",
        ),
        pytest.param(
            *("Europe/Berlin", "0 * * * *", "2026-10-25T01:30"),
            ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00", "2026-10-25T03:00+01:00"],
            id="hourly-across-a-repeat",
        ),
        pytest.param(
            *("Europe/Berlin", "*/30 * * * *", "2026-10-25T01:30"),
            [
                *("2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00"),
                *("2026-10-25T02:00+01:00", "2026-10-25T02:30+01:00", "2026-10-25T03:00+01:00"),
            ],
            id="every-30-minutes-across-a-repeat",
        ),
        pytest.param(
            *("Europe/Berlin", "0 12 * * *", "2026-03-28T00:00"),
            ["2026-03-28T12:00+01:00", "2026-03-29T12:00+02:00"],
            id="noon-across-a-gap",
        ),
        pytest.param(
            *("Europe/Berlin", "0 12 * * *", "2026-10-24T00:00"),
            ["2026-10-24T12:00+02:00", "2026-10-25T12:00+01:00"],
            id="noon-across-a-repeat",
        ),
        pytest.param(
            *("America/Santiago", "0 0 * * *", "2026-09-05T12:00"),
            ["2026-09-06T01:00-03:00", "2026-09-07T00:00-03:00"],
            id="midnight-inside-a-gap",
        ),
        pytest.param(
            *("America/Santiago", "30 23 * * *", "2026-04-04T12:00"),
            ["2026-04-04T23:30-03:00", "2026-04-05T23:30-04:00"],
            id="2330-repeated",
        ),
        pytest.param(
            *("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00"),
            ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
            id="a-gap-of-30-minutes",
        ),
        pytest.param(
            *("Australia/Lord_Howe", "*/15 * * * *", "2026-04-05T01:15"),
            [
                *("2026-04-05T01:30+11:00", "2026-04-05T01:45+11:00"),
                *("2026-04-05T01:30+10:30", "2026-04-05T01:45+10:30", "2026-04-05T02:00+10:30"),
            ],
            id="a-repeat-of-30-minutes",
        ),
        pytest.param(
            *("Europe/Berlin", "0,20,40 2,3 * * *", "2026-03-29T00:00"),
            ["2026-03-29T03:00+02:00", "2026-03-29T03:20+02:00"],
            id="all-that-is-left-out-comes-together",
        ),
        pytest.param(
            *("Europe/Berlin", "0 30 2 * * *", "2026-03-28T12:00"),
            ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
            id="a-second-in-front-changes-nothing-in-a-gap",
        ),
        pytest.param(
            *("Europe/Berlin", "0 30 2 * * *", "2026-10-24T12:00"),
            ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
            id="a-second-in-front-changes-nothing-in-a-repeat",
        ),
        # The next four are what cronsim alone loses, or makes up.
        pytest.param(
            *("Australia/Lord_Howe", "*/10 3 * * *", "2026-10-03T12:00"),
            ["2026-10-04T03:00+11:00", "2026-10-04T03:10+11:00"],
            id="the-hour-after-a-jump-of-30-minutes",
        ),
        pytest.param(
            *("Pacific/Chatham", "*/10 3 * * *", "2026-09-26T12:00"),
            ["2026-09-27T03:50+13:45", "2026-09-28T03:00+13:45"],
            id="the-rest-of-an-hour-that-a-jump-begins-in",
        ),
        pytest.param(
            *("America/Santiago", "0 */3 * * SUN", "2026-09-05T12:00"),
            ["2026-09-06T03:00-03:00", "2026-09-06T06:00-03:00"],
            id="no-midnight-on-a-day-without-one",
        ),
        pytest.param(
            *("Pacific/Apia", "0 12 * * *", "2011-12-29T12:00"),
            ["2011-12-31T00:00+14:00", "2011-12-31T12:00+14:00"],
            id="a-day-that-was-left-out",
        ),
    ],
)
def test_when_clocks_jump(zone: str, cron: str, since: str, expected: list[str]):
    rule = make_rule(cron=cron, tz=zone)
    assert coming(rule, at(since, zone), len(expected)) == expected
    ticks = [instant_of(datetime.fromisoformat(tick)) for tick in expected]
    assert gone(rule, ticks[-1], len(ticks)) == ticks[::-1]
    assert rule.count(at(since, zone), ticks[-1], 99) == len(ticks)


def test_a_fixed_time_does_not_come_back_in_the_second_pass():
    rule = Cron("30 2 * * *", "Europe/Berlin")
    first = instant_of(datetime.fromisoformat("2026-10-25T02:30+02:00"))
    second_pass = instant_of(datetime.fromisoformat("2026-10-25T02:15+01:00"))
    tomorrow = instant_of(datetime.fromisoformat("2026-10-26T02:30+01:00"))
    assert rule.next_after(second_pass) == tomorrow
    assert rule.last_at(second_pass) == first


def test_a_tick_is_never_at_or_before_what_was_asked():
    rule = Cron("* * * * *", "Europe/Berlin")
    tick = at("2026-06-01T12:00", "Europe/Berlin")
    assert [rule.next_after(tick + n) - tick for n in (-1, 0, 1, 59_999_999, 60_000_000)] == [
        *(0, 60_000_000, 60_000_000, 60_000_000, 120_000_000)
    ]
    assert [rule.last_at(tick + n) - tick for n in (-1, 0, 1, 59_999_999)] == [-60_000_000, 0, 0, 0]


@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 */5 * * SUN", "9 0 2 * * *"]),
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "UTC"]),
    st.integers(0, at("2100-01-01")),
)
@settings(max_examples=SIZE.examples, deadline=None)
def test_the_answers_of_an_expression_agree(cron: str, zone: str, instant: int):
    rule = Cron(cron, zone)
    later, last = rule.next_after(instant), rule.last_at(instant)
    assert last <= instant < later
    assert rule.last_at(later - 1) == last
    assert rule.next_after(last) == later
    assert rule.last_at(later) == later
    assert rule.count(last, later, 9) == 1
    assert rule.count(last - 1, later, 9) == 2


def test_the_calendar_ends_with_the_year_9999():
    hour = 3_600_000_000
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12", "Europe/Berlin"):
        rule = Cron("0 * * * *", zone)
        assert rule.next_after(CALENDAR_ENDS - 2 * hour) == CALENDAR_ENDS - hour
        assert rule.next_after(CALENDAR_ENDS - hour) is None
        assert rule.next_after(10**18) is None
        assert rule.last_at(10**18) == CALENDAR_ENDS - hour
    assert Cron("0 0 29 2 *").next_after(at("9996-03-01")) is None
    assert Cron("0 0 29 2 *").last_at(10**18) == at("9996-02-29")
    assert Every(1_000_000).next_after(10**18) is None
    assert Every(1_000_000).last_at(10**18) == CALENDAR_ENDS - 1_000_000
    assert Every(1_000_000).next_after(CALENDAR_ENDS - 1) is None


def test_the_calendar_has_a_beginning():
    for rule in (Cron("0 0 * * *", "Europe/Berlin"), Every(1_000_000)):
        assert rule.last_at(-(10**18)) is None
    assert Cron("0 0 * * *").next_after(-(10**18)) == at("0001-01-03")


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("30 2 * * *", "Europe/Berlin", "At 02:30 every day, Europe/Berlin"),
        ("*/5 * * * *", "UTC", "Every fifth minute of every hour, UTC"),
        ("@weekly", "UTC", "At 00:00 on Sunday, UTC"),
        ("0 30 2 * * *", "UTC", "At 02:30 every day, UTC"),
    ],
)
def test_an_expression_in_words(cron: str, zone: str, words: str):
    assert make_rule(cron=cron, tz=zone).words() == words


def test_a_thousand_idle_timers_cost_next_to_nothing(monkeypatch):
    rules = [Cron(f"{n % 60} {n % 24} * * *", "Europe/Berlin") for n in range(1000)]
    now = at("2026-06-01T12:00:01")
    answers = [(rule.next_after(now), rule.last_at(now)) for rule in rules]
    # As long as none of them is due, the calendar is not read again.
    monkeypatch.setattr("tenure.core.calendar.rules.CronSim", None)
    for later in (now + 1, now + 500_000, at("2026-06-01T12:00:59")):
        assert [(rule.next_after(later), rule.last_at(later)) for rule in rules] == answers
