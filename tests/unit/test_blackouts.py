from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.calendar.blackouts import (
    Blackout,
    Recurring,
    Window,
    check_blackouts,
    clear_at,
    covering,
    daily,
    weekdays,
    weekends,
    window,
)
from tenure.core.calendar.rules import Cron, Every
from tenure.core.calendar.zones import instant_of
from tenure.core.jobs.view import as_datetime
from tenure.errors import ConfigError
from tests.rig.sizes import SIZE

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = "UTC") -> int:
    """Return an instant; without an offset in the text, the first that shows this in the zone."""
    moment = datetime.fromisoformat(text)
    return instant_of(moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone)))


NOW = at("2026-01-01")


# 2026-01-05 is a Monday.
@pytest.mark.parametrize(
    ("blackout", "inside", "outside"),
    [
        (
            weekdays("22:00-06:00"),
            ["2026-01-05T22:00", "2026-01-06T05:59:59", "2026-01-09T23:00", "2026-01-10T05:00"],
            ["2026-01-05T21:59:59", "2026-01-06T06:00", "2026-01-05T05:00", "2026-01-10T22:00"],
        ),
        (
            weekends("08:00-12:00"),
            ["2026-01-10T08:00", "2026-01-11T11:59:59"],
            ["2026-01-09T09:00", "2026-01-12T09:00", "2026-01-10T12:00"],
        ),
        (
            weekends("22:00-06:00"),
            ["2026-01-10T22:00", "2026-01-12T05:00"],
            ["2026-01-10T05:00", "2026-01-12T22:00"],
        ),
        (
            daily("00:00-01:30"),
            ["2026-01-05T00:00", "2026-01-11T01:29"],
            ["2026-01-05T23:59", "2026-01-05T01:30"],
        ),
        (daily("22:00-24:00"), ["2026-01-05T22:00", "2026-01-05T23:59:59"], ["2026-01-06T00:00"]),
        (daily("22:00-00:00"), ["2026-01-05T22:00", "2026-01-05T23:59:59"], ["2026-01-06T00:00"]),
        (weekdays("00:00-24:00"), ["2026-01-05T00:00", "2026-01-09T23:59"], ["2026-01-10T00:00"]),
        (daily(" 7:05 - 8:00 "), ["2026-01-05T07:05"], ["2026-01-05T07:04", "2026-01-05T08:00"]),
        (
            window(datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 6, tzinfo=UTC)),
            ["2026-01-05T00:00", "2026-01-05T23:59:59.999999"],
            ["2026-01-04T23:59:59.999999", "2026-01-06T00:00"],
        ),
    ],
)
def test_a_blackout_covers_its_windows_only(
    blackout: Blackout, inside: list[str], outside: list[str]
):
    assert [text for text in inside if not blackout.covers(at(text))] == []
    assert [text for text in outside if blackout.covers(at(text))] == []
    assert [text for text in outside if blackout.ends_at(at(text)) != at(text)] == []


def test_the_times_are_those_of_the_zone():
    blackout = weekdays("22:00-06:00", tz=BERLIN)
    assert blackout.covers(at("2026-07-06T20:00"))
    assert not blackout.covers(at("2026-07-06T19:59"))
    assert blackout.covers(at("2026-01-05T21:00"))
    assert not blackout.covers(at("2026-01-05T20:59"))
    assert blackout.ends_at(at("2026-01-06T00:00")) == at("2026-01-06T05:00")


# Berlin: 02:00 to 03:00 is left out on 29 March and shown twice on 25 October.
@pytest.mark.parametrize(
    ("blackout", "begins", "ends"),
    [
        pytest.param(
            daily("22:00-06:00", tz=BERLIN),
            "2026-03-28T22:00+01:00",
            "2026-03-29T06:00+02:00",
            id="over-a-gap",
        ),
        pytest.param(
            daily("22:00-06:00", tz=BERLIN),
            "2026-10-24T22:00+02:00",
            "2026-10-25T06:00+01:00",
            id="over-a-repeat",
        ),
        pytest.param(
            daily("02:30-04:00", tz=BERLIN),
            "2026-03-29T03:00+02:00",
            "2026-03-29T04:00+02:00",
            id="begins-in-a-gap",
        ),
        pytest.param(
            daily("01:00-02:30", tz=BERLIN),
            "2026-03-29T01:00+01:00",
            "2026-03-29T03:00+02:00",
            id="ends-in-a-gap",
        ),
        pytest.param(
            daily("02:30-04:00", tz=BERLIN),
            "2026-10-25T02:30+02:00",
            "2026-10-25T04:00+01:00",
            id="begins-with-the-first-of-two",
        ),
        pytest.param(
            daily("01:00-02:30", tz=BERLIN),
            "2026-10-25T01:00+02:00",
            "2026-10-25T02:30+01:00",
            id="ends-with-the-second-of-two",
        ),
        pytest.param(
            weekends("23:15-23:45", tz="America/Santiago"),
            "2026-04-04T23:15-03:00",
            "2026-04-04T23:45-04:00",
            id="an-evening-shown-twice",
        ),
        pytest.param(
            weekends("00:30-02:00", tz="America/Santiago"),
            "2026-09-06T01:00-03:00",
            "2026-09-06T02:00-03:00",
            id="a-day-without-midnight",
        ),
        pytest.param(
            daily("02:10-05:00", tz="Australia/Lord_Howe"),
            "2026-10-04T02:30+11:00",
            "2026-10-04T05:00+11:00",
            id="a-gap-of-30-minutes",
        ),
        pytest.param(
            daily("22:00-06:00", tz="Pacific/Apia"),
            "2011-12-29T22:00-10:00",
            "2011-12-31T06:00+14:00",
            id="a-day-that-was-left-out",
        ),
    ],
)
def test_when_clocks_jump(blackout: Blackout, begins: str, ends: str):
    begin, end = at(begins), at(ends)
    assert not blackout.covers(begin - 1)
    assert blackout.covers(begin)
    assert blackout.covers(end - 1)
    assert not blackout.covers(end)
    assert blackout.ends_at(begin) == blackout.ends_at((begin + end) // 2) == end


def test_a_blackout_all_inside_a_gap_does_not_happen():
    blackout = daily("02:10-02:50", tz=BERLIN)
    jump = at("2026-03-29T01:00")
    assert not any(blackout.covers(jump + minute * 60_000_000) for minute in range(-90, 90))


@given(
    st.sampled_from([BERLIN, "Australia/Lord_Howe", "America/Santiago", "Antarctica/Troll"]),
    st.integers(0, 1439),
    st.integers(1, 1439),
    st.integers(at("2026-01-01") // 10**6, at("2027-01-01") // 10**6),
)
@settings(max_examples=SIZE.examples * 2, deadline=None)
@pytest.mark.timeout(600)
def test_whenever_clocks_show_a_time_inside_it_is_covered(zone, start, length, second):
    end = (start + length) % 1440
    blackout = Recurring((0, 1, 2, 3, 4, 5, 6), start, end, zone)
    shown = as_datetime(second * 10**6).astimezone(ZoneInfo(zone))
    since = (shown.hour * 60 + shown.minute - start) % 1440
    if since < length:
        assert blackout.covers(second * 10**6)
        assert blackout.ends_at(second * 10**6) > second * 10**6
    elif blackout.covers(second * 10**6):
        # Only around a jump, as then a stretch has no hole.
        day = timedelta(days=1)
        assert (shown - day).utcoffset() != (shown + day).utcoffset()


def test_adjoining_stretches_end_together():
    monday = at("2026-01-05")
    assert weekdays("00:00-24:00").ends_at(monday) == at("2026-01-10")
    assert daily("06:00-05:59").ends_at(at("2026-01-05T06:00")) == at("2026-01-06T05:59")
    both = (weekdays("22:00-24:00"), weekdays("00:00-06:00"), weekends("00:00-08:00"))
    assert clear_at(both, at("2026-01-05T23:00")) == at("2026-01-06T06:00")
    assert clear_at(both, at("2026-01-09T23:00")) == at("2026-01-10T08:00")
    assert clear_at(both, at("2026-01-09T12:00")) == at("2026-01-09T12:00")
    assert clear_at((), monday) == monday


def test_endless_blackouts_are_followed_for_two_years_only():
    all_days = (weekdays("00:00-24:00"), weekends("00:00-24:00"))
    assert NOW + 729 * 86_400_000_000 < clear_at(all_days, NOW) < NOW + 733 * 86_400_000_000


def test_a_tick_that_is_skipped_is_not_deferred_as_well():
    later, never = daily("10:00-12:00", action="defer"), daily("11:00-13:00")
    assert covering((later, never), at("2026-01-05T10:30")) is later
    assert covering((later, never), at("2026-01-05T11:30")) is never
    assert covering((later, never), at("2026-01-05T13:30")) is None


@pytest.mark.parametrize("times", ["22:00", "22:00-", "22-06", "25:00-06:00", "22:60-23:00", ""])
@pytest.mark.parametrize("kind", [weekdays, weekends, daily])
def test_bad_times(kind, times: str):
    with pytest.raises(ConfigError) as caught:
        kind(times)
    assert str(caught.value) == (
        f"{kind.__name__}() takes two times of the day, such as '22:00-06:00' (from 00:00 to "
        f"24:00), not {times!r}."
    )


@pytest.mark.parametrize(
    "times", ["24:00-06:00", "22:00-24:01", "22:00\u201306:00", "٢٢:00-06:00", None, 5]
)
def test_more_bad_times(times):
    with pytest.raises(ConfigError, match=r"daily\(\) takes two times of the day"):
        daily(times)


def test_bad_blackouts():
    with pytest.raises(ConfigError) as caught:
        daily("22:00-22:00")
    assert str(caught.value) == (
        "daily('22:00-22:00') is empty: it ends when it starts. For the whole day write "
        "'00:00-24:00'."
    )
    with pytest.raises(ConfigError) as caught:
        daily("00:00-24:00")
    assert str(caught.value) == (
        "daily('00:00-24:00') covers everything: nothing would ever run. Pause the timer instead."
    )
    with pytest.raises(ConfigError, match="There is no time zone 'Europe/Berlim'"):
        weekdays("22:00-06:00", tz="Europe/Berlim")
    with pytest.raises(ConfigError) as caught:
        weekdays("22:00-06:00", action="delay")
    assert str(caught.value) == "action must be 'skip' or 'defer', not 'delay'."
    with pytest.raises(ConfigError, match="There is no time zone 'Europe/Berlim'"):
        Recurring((0,), 0, 60, zone="Europe/Berlim")
    with pytest.raises(ConfigError, match="is no blackout"):
        Recurring((7,), 0, 60)
    with pytest.raises(ConfigError, match="is no blackout"):
        Recurring((0,), 0, 1441)


def test_bad_windows():
    start, end = datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 6, tzinfo=UTC)
    with pytest.raises(ConfigError) as caught:
        window(start.replace(tzinfo=None), end)
    assert str(caught.value) == (
        "The start of the window, 2026-01-05T00:00:00, has no time zone, so that it means another "
        "instant on every machine. Give it a tzinfo, such as ZoneInfo('Europe/Berlin')."
    )
    with pytest.raises(ConfigError, match="The end of the window, 2026-01-06T00:00:00, has no"):
        window(start, end.replace(tzinfo=None))
    with pytest.raises(ConfigError) as caught:
        window(end, start)
    assert str(caught.value) == (
        "The window from 2026-01-06T00:00:00+00:00 to 2026-01-05T00:00:00+00:00 is empty: it must "
        "end after it starts."
    )
    with pytest.raises(ConfigError, match="is empty"):
        window(start, start.astimezone(ZoneInfo("Asia/Tokyo")))
    with pytest.raises(ConfigError, match="The start of a window must be a datetime, not"):
        window(date(2026, 1, 5), end)
    with pytest.raises(ConfigError, match="action must be"):
        window(start, end, action="later")


@pytest.mark.parametrize(
    ("blackouts", "rule"),
    [
        ([weekdays("00:00-24:00"), weekends("00:00-24:00")], Every(60_000_000)),
        ([weekdays("00:00-24:00"), weekends("00:00-24:00", action="defer")], Every(1_000_000)),
        ([weekdays("00:00-24:00")], Cron("0 9 * * MON-FRI")),
        ([daily("22:00-06:00", tz=BERLIN)], Cron("30 2 * * *", BERLIN)),
        ([daily("22:00-06:00")], Cron("0 0 29 2 *")),
        ([daily("00:00-12:00"), daily("12:00-00:00")], Cron("* * * * *")),
        ([Window(NOW, at("2029-01-01"))], Cron("* * * * *")),
    ],
)
def test_blackouts_that_leave_no_tick_are_refused(blackouts: list[Blackout], rule):
    with pytest.raises(ConfigError, match="The blackouts cover everything: no tick of the"):
        check_blackouts(blackouts, rule, now=NOW)


def test_the_refusal_shows_the_rule_and_the_blackouts():
    with pytest.raises(ConfigError) as caught:
        check_blackouts([weekdays("22:00-24:00"), daily("00:00-08:00")], Cron("0 7 * * *"), now=NOW)
    assert str(caught.value) == (
        "The blackouts cover everything: no tick of the next two years would run (At 07:00 every "
        "day, UTC; blackout Mon Tue Wed Thu Fri 22:00-24:00 UTC (skip); daily 00:00-08:00 UTC "
        "(skip))."
    )


@pytest.mark.parametrize(
    ("blackouts", "rule"),
    [
        ([], Every(60_000_000)),
        ([weekdays("22:00-06:00")], Every(60_000_000)),
        ([weekdays("00:00-24:00"), weekends("00:00-23:59")], Every(60_000_000)),
        ([weekdays("00:00-24:00")], Cron("0 9 * * *")),
        ([daily("22:00-06:00", action="defer")], Cron("30 2 * * *")),
        ([daily("22:00-06:00", tz=BERLIN)], Cron("30 2 * * *", "America/New_York")),
        ([Window(NOW, at("2027-12-01"))], Cron("* * * * *")),
        ([weekdays("00:00-24:00")], Cron("0 0 29 2 *")),
    ],
)
def test_blackouts_that_leave_a_tick_are_fine(blackouts: list[Blackout], rule):
    check_blackouts(blackouts, rule, now=NOW)


@pytest.mark.parametrize("junk", ["22:00-06:00", None, Every(1_000_000)])
def test_a_blackout_is_a_blackout(junk):
    with pytest.raises(ConfigError, match="blackout takes a list of what"):
        check_blackouts([junk], Every(60_000_000), now=NOW)


def test_blackouts_survive_json():
    blackouts = (
        weekdays("22:00-06:00", tz=BERLIN, action="defer"),
        window(datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 6, tzinfo=UTC)),
    )
    text = msgspec.json.encode(blackouts)
    assert msgspec.json.decode(text, type=tuple[Blackout, ...]) == blackouts
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'later'"):
        msgspec.json.decode(text.replace(b"defer", b"later"), type=tuple[Blackout, ...])


def test_blackouts_in_words():
    assert weekends("08:00-12:00", tz=BERLIN, action="defer").words() == (
        "Sat Sun 08:00-12:00 Europe/Berlin (defer)"
    )
    assert Window(NOW, at("2026-01-02")).words() == (
        "2026-01-01T00:00:00+00:00 to 2026-01-02T00:00:00+00:00 (skip)"
    )


def test_the_ends_of_the_calendar_do_no_harm():
    for instant in (-(10**18), 10**18, at("9999-12-31T23:59"), at("0001-01-01")):
        assert daily("22:00-06:00", tz=BERLIN).covers(instant) in {True, False}
        weekdays("00:00-24:00", tz="Pacific/Kiritimati").ends_at(instant)


def test_a_blackout_that_began_before_the_clocks_went_back_past_midnight():
    """In St. John's they went back from 00:01 to 23:01 of the day before."""
    blackout = daily("00:00-00:30", tz="America/St_Johns")
    again = at("2010-11-07T02:40+00:00")  # 23:10 for the second time
    assert blackout.covers(again)
    assert blackout.ends_at(again) == at("2010-11-07T04:00+00:00")
