from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from time import perf_counter, process_time
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.durations import micros
from tenure.core.rules import Cron, Every, Rule, make_rule, shortest_distance
from tenure.core.spreads import check_spread, spread_offset
from tenure.core.views import as_datetime
from tenure.core.zones import CALENDAR_ENDS, instant_of
from tenure.errors import ConfigError
from tests.rig.sizes import SIZE


def at(text: str, zone: str = "UTC") -> int:
    """Return the instant at which clocks in a zone show this, the first time."""
    return instant_of(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def coming(rule: Rule, instant: int, ticks: int) -> list[str]:
    """Return the next ticks as people in the rule's zone see them."""
    zone = ZoneInfo(getattr(rule, "zone", "UTC"))
    found = []
    for _ in range(ticks):
        instant = rule.next_after(instant)
        found.append(as_datetime(instant).astimezone(zone).isoformat(timespec="minutes"))
    return found


def gone(rule: Rule, instant: int, ticks: int) -> list[int]:
    found = []
    for _ in range(ticks):
        found.append(rule.last_at(instant))
        instant = found[-1] - 1
    return found


# Every ---------------------------------------------------------------------------------------


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


def test_counting_the_ticks_of_a_century_costs_nothing():
    rule = make_rule(every="1s")
    began = perf_counter()
    assert rule.count(0, at("2070-01-01"), 10**12) == at("2070-01-01") // 1_000_000
    assert perf_counter() - began < 0.5


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


# Cron ----------------------------------------------------------------------------------------


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
def test_what_an_expression_means(cron: str, since: str, expected: list[str]):
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


_MINUTE = "Allowed: 0 to 59, '*', ranges (a-b), lists (a,b) and steps (*/n)."
_DOM = (
    "Allowed: 1 to 31, '*', ranges (a-b), lists (a,b) and steps (*/n); "
    "L for the last day, LW for the last weekday."
)
_DOW = (
    "Allowed: 0 to 7 or SUN to SAT, '*', ranges (a-b), lists (a,b) and steps (*/n); "
    "5L for the last Friday, FRI#2 for the second."
)


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("61 * * * *", f": the minute '61' is wrong: 61 is not from 0 to 59. {_MINUTE}"),
        ("*/0 * * * *", f": the minute '*/0' is wrong: a step is at least 1. {_MINUTE}"),
        (
            "*/90 * * * *",
            ": the minute '*/90' is wrong: the step 90 is longer than the whole range of 60. "
            + _MINUTE,
        ),
        ("*/x * * * *", f": the minute '*/X' is wrong: the step 'X' is no number. {_MINUTE}"),
        ("1,,2 * * * *", f": the minute '1,,2' is wrong: a part of the list is empty. {_MINUTE}"),
        ("1- * * * *", f": the minute '1-' is wrong: a number is missing in '1-'. {_MINUTE}"),
        ("-5 * * * *", f": the minute '-5' is wrong: a number is missing in '-5'. {_MINUTE}"),
        ("5.5 * * * *", f": the minute '5.5' is wrong: '5.5' is no number. {_MINUTE}"),
        ("٣ * * * *", f": the minute '٣' is wrong: '٣' is no number. {_MINUTE}"),
        (
            "5-5/2 * * * *",
            ": the minute '5-5/2' is wrong: the range '5-5' is one value, which has no steps. "
            + _MINUTE,
        ),
        ("60 * * * * *", f": the second '60' is wrong: 60 is not from 0 to 59. {_MINUTE}"),
        (
            "0 24 * * *",
            (
                ": the hour '24' is wrong: 24 is not from 0 to 23. Allowed: 0 to 23, '*', "
                "ranges (a-b), lists (a,b) and steps (*/n)."
            ),
        ),
        ("0 0 0 * *", f": the day of month '0' is wrong: 0 is not from 1 to 31. {_DOM}"),
        ("0 0 L-3 * *", f": the day of month 'L-3' is wrong: 'L' is no number. {_DOM}"),
        (
            "0 0 ? * *",
            f": the day of month '?' is wrong: '?' is not known here; write '*'. {_DOM}",
        ),
        (
            "0 0 * FOO *",
            (
                ": the month 'FOO' is wrong: 'FOO' is no number or name. Allowed: 1 to 12 or JAN "
                "to DEC, '*', ranges (a-b), lists (a,b) and steps (*/n)."
            ),
        ),
        (
            "0 0 * * FRI-SUN",
            (
                ": the day of week 'FRI-SUN' is wrong: the range 'FRI-SUN' goes down; write it as "
                f"two, around the end. {_DOW}"
            ),
        ),
        ("0 0 * * 8", f": the day of week '8' is wrong: 8 is not from 0 to 7. {_DOW}"),
        (
            "0 0 * * FRI#6",
            f": the day of week 'FRI#6' is wrong: 'FRI#6' is no number or name. {_DOW}",
        ),
        (
            "0 0 31 2 *",
            (
                " never comes: no date has the day of month '31' in the month '2' on the day of "
                "week '*'."
            ),
        ),
        (
            "0 0 */8 2 MON#5",
            (
                " never comes: no date has the day of month '*/8' in the month '2' on the day of "
                "week 'MON#5'."
            ),
        ),
        (
            "* * * *",
            (
                " has 4 fields. It takes 5 (minute, hour, day of month, month, day of week), or 6 "
                "with the second in front."
            ),
        ),
        (
            "",
            (
                " has 0 fields. It takes 5 (minute, hour, day of month, month, day of week), or 6 "
                "with the second in front."
            ),
        ),
        (
            "@dayly",
            (
                " is not known. Did you mean '@daily'? There are @hourly, @daily, @midnight, "
                "@weekly, @monthly, @yearly, @annually."
            ),
        ),
        ("@reboot", " is no time. Call the function where your program starts."),
    ],
)
def test_a_wrong_expression_is_told_where_it_is_wrong(cron: str, message: str):
    with pytest.raises(ConfigError) as caught:
        make_rule(cron=cron)
    assert str(caught.value) == f"cron={cron!r}{message}"


def test_an_expression_has_a_length():
    with pytest.raises(ConfigError) as caught:
        make_rule(cron="0," * 200)
    shown = "0," * 20
    assert str(caught.value) == f"cron='{shown}'... has 400 characters; at most 256 are allowed."
    long = f"{','.join(str(n) for n in range(60))} * * * *"
    assert make_rule(cron=long).next_after(0) == 60_000_000


@pytest.mark.parametrize("cron", [5, b"* * * * *", ["*"] * 5])
def test_an_expression_is_text(cron):
    with pytest.raises(ConfigError, match=r"cron must be text such as '30 2 \* \* \*', not"):
        make_rule(cron=cron)


@given(st.text("0159*/,-L#W? MONJULsat\t@", max_size=30))
@settings(max_examples=SIZE.examples * 4, deadline=None)
@pytest.mark.timeout(600)
def test_any_text_is_a_rule_or_a_config_error(cron: str):
    try:
        rule = make_rule(cron=cron)
    except ConfigError:
        return
    assert rule.next_after(0) is not None
    assert rule.words()


_item = st.sampled_from(["*", "1", "2-4", "*/3", "3/2", "1-5/2"])
_days = st.sampled_from(["L", "LW", "1", "*", "2-9/3", "*/10"])
_names = st.sampled_from(["MON", "5L", "FRI#2", "*", "1-5", "SUN", "7", "TUE-THU", "*/2"])


@given(
    *(st.lists(_item, min_size=1, max_size=3) for _ in range(4)),
    st.lists(_days, min_size=1, max_size=2),
    st.lists(_names, min_size=1, max_size=2),
    st.booleans(),
)
@settings(max_examples=SIZE.examples, deadline=None)
def test_whatever_is_allowed_works(second, minute, hour, month, dom, dow, six: bool):
    fields = [",".join(each) for each in (second, minute, hour, dom, month, dow)]
    rule = Cron(" ".join(fields if six else fields[1:]), "Europe/Berlin")
    now = at("2026-01-01")
    tick = rule.next_after(now)
    assert tick > now
    assert rule.last_at(tick) == tick
    assert rule.words().endswith(", Europe/Berlin")


# Zones, and the choice of a rule -------------------------------------------------------------


@pytest.mark.parametrize(
    ("tz", "message"),
    [
        ("Europe/Berlim", "There is no time zone 'Europe/Berlim'. Did you mean 'Europe/Berlin'"),
        ("berlin", "There is no time zone 'berlin'. Did you mean 'Europe/Berlin'"),
        ("europe/berlin", "There is no time zone 'europe/berlin'. Did you mean 'Europe/Berlin'"),
        ("New York", "There is no time zone 'New York'. Did you mean 'America/New_York'"),
        ("Qqq", "There is no time zone 'Qqq'. Use a name such as 'Europe/Berlin', 'America/New"),
        ("", "There is no time zone ''. Use a name such as"),
        ("../../etc/passwd", "There is no time zone '../../etc/passwd'."),
        ("/etc/localtime", "There is no time zone '/etc/localtime'."),
        ("zone.tab", "There is no time zone 'zone.tab'."),
        ("a\0b", "There is no time zone 'a\\x00b'."),
        ("localtime", "'localtime' is no zone that all replicas agree on. Use the name of a place"),
        ("right/UTC", "'right/UTC' is no zone that all replicas agree on."),
        (None, "tz must be the name of a time zone, such as 'Europe/Berlin', not None."),
        (timezone(timedelta(hours=1)), "tz must be the name of a time zone, such as"),
    ],
)
def test_an_unknown_zone_is_refused(tz, message: str):
    with pytest.raises(ConfigError) as caught:
        make_rule(cron="* * * * *", tz=tz)
    assert str(caught.value).startswith(message)


def test_a_zone_may_be_an_object_that_has_a_name():
    assert make_rule(cron="* * * * *", tz=ZoneInfo("Asia/Tokyo")).zone == "Asia/Tokyo"
    assert make_rule(cron="* * * * *", tz=UTC).zone == "UTC"


def test_a_timer_has_exactly_one_rule():
    with pytest.raises(ConfigError) as caught:
        make_rule()
    assert str(caught.value) == "A timer needs a rule: every='60s', or cron='30 2 * * *'."
    with pytest.raises(ConfigError, match="not by both: leave one out"):
        make_rule(every=5, cron="* * * * *")
    with pytest.raises(ConfigError) as caught:
        make_rule(every="1d", tz="Europe/Berlin")
    assert str(caught.value) == (
        "tz='Europe/Berlin' has no meaning for every=, whose ticks follow the time that passes. "
        "Use cron= for times of the day."
    )


def test_rules_that_mean_the_same_are_the_same():
    assert make_rule(cron="  30\t2 * * *\n") == Cron("30 2 * * *")
    assert make_rule(cron="@DAILY") == Cron("@daily")
    assert make_rule(every="1m") == make_rule(every=60)
    assert hash(make_rule(every="1m")) == hash(make_rule(every=60))


@pytest.mark.parametrize(
    "rule", [Every(90_000_000), Cron("@daily", "Asia/Tokyo"), Cron("*/5 0 9 * * MON-FRI")]
)
def test_a_rule_survives_json(rule: Rule):
    text = msgspec.json.encode((rule,))
    assert msgspec.json.decode(text, type=tuple[Rule, ...]) == (rule,)


def test_a_stored_rule_that_cannot_work_here_is_refused():
    stored = b'{"type":"cron","expression":"0 0 * * *","zone":"Mars/Olympus"}'
    with pytest.raises(msgspec.ValidationError, match="There is no time zone 'Mars/Olympus'"):
        msgspec.json.decode(stored, type=Rule)


# What it costs -------------------------------------------------------------------------------


def test_a_thousand_idle_timers_cost_next_to_nothing():
    rules = [Cron(f"{n % 60} {n % 24} * * *", "Europe/Berlin") for n in range(1000)]
    now = at("2026-06-01T12:00")
    for rule in rules:
        rule.next_after(now)
        rule.last_at(now)
    began = process_time()
    # As if each were asked twice a second, for a second.
    for step in (1, 500_000):
        for rule in rules:
            rule.next_after(now + step)
            rule.last_at(now + step)
    # 20 ms would be 2 % of a core; it takes about 3.
    assert process_time() - began < 0.02


# Spreads -------------------------------------------------------------------------------------


def test_a_spread_depends_on_the_name_alone():
    # Whoever changes these moves the timers of everybody.
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
