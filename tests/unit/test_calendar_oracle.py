"""The calendar against an oracle that shares nothing with it.

The oracle walks through UTC minute by minute (or second by second), asks zoneinfo what clocks show,
compares the fields one by one, and keeps the two rules of Debian's cron with a high-water mark of
what clocks have shown, as that cron does itself.
"""

import calendar
import random
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest

from tenure.core.calendar.rules import Cron, _calendar
from tenure.core.calendar.zones import instant_of
from tests.rig.sizes import SIZE

SOAK = SIZE.name == "soak"

MINUTES = [
    "* * * * *",
    "*/15 * * * *",
    "7-59/13 * * * *",
    "*/45 * * * *",
    "0 * * * *",
    "30 * * * *",
    "59 */2 * * *",
    "45 */3 * * *",
    "*/10 2 * * *",
    "*/10 3 * * *",
    "*/20 0 * * *",
    "*/30 23 * * SAT",
    "*/10 1-3 * * SUN",
    "0 */3 * * SUN",
    "5 */12 1 * *",
    "*/5 0-4 * * 0,6",
    "30 2 * * *",
    "15 2 * * *",
    "0 0 * * *",
    "0 1 * * *",
    "30 1 * * *",
    "50 2,3 * * *",
    "0,30 0-3 * * *",
    "0-59 2 * * *",
    "0-59/7 0-23/2 * * *",
    "45 3 * * 0",
    "30 23 * * *",
    "30 0 * * SUN",
    "59 23 L * *",
    "0 12 LW * *",
    "0 9 * * MON-FRI",
    "0 2 * * SUN#1",
    "15 1 * * 0L",
    "0 0 1,15 * FRI",
    "0 3 */5 * *",
]
SECONDS = [
    "*/7 * * * * *",
    "0 30 2 * * *",
    "30 59 1 * * *",
    "*/20 15,45 0-3 * * *",
    "10 */15 * * * SUN,MON,FRI",
    "0-5 0 */2 * * *",
]

# Years with all that a zone has to offer: jumps of an hour, of half an hour, of two, at midnight,
# off the hour, backwards in spring, twice around Ramadan, and by a whole day.
ZONES = {
    "Europe/Berlin": (2026,),
    "America/New_York": (2026,),
    "Australia/Lord_Howe": (2026,),
    "America/Santiago": (2026,),
    "Pacific/Chatham": (2026,),
    "Asia/Kathmandu": (1985,),
    "Pacific/Apia": (2011, 2012),
    "Antarctica/Troll": (2026,),
    "America/Sao_Paulo": (2018, 2019),
    "Asia/Kolkata": (2026,),
    "Africa/Casablanca": (2026,),
    "UTC": (2024,),
}

_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class Fields:
    """An expression, read without any thought of speed or elegance."""

    def __init__(self, expression: str) -> None:
        texts = expression.split()
        if len(texts) == 5:
            texts = ["0", *texts]
        second, minute, hour, self.dom, month, self.dow = texts
        self.seconds = values(second, 0, 59)
        self.minutes = values(minute, 0, 59)
        self.hours = values(hour, 0, 23)
        self.months = values(month, 1, 12)
        self.fixed = minute[0] != "*" and hour[0] != "*"
        self.days: dict[date, bool] = {}

    def fit(self, shown: datetime) -> bool:
        return (
            shown.minute in self.minutes
            and shown.second in self.seconds
            and shown.hour in self.hours
            and self.day_fits(shown.date())
        )

    def day_fits(self, day: date) -> bool:
        if day not in self.days:
            dom = any(dom_fits(item, day) for item in self.dom.split(","))
            dow = any(dow_fits(item, day) for item in self.dow.split(","))
            both = self.dom[0] == "*" or self.dow[0] == "*"
            fits = (dom and dow) if both else (dom or dow)
            self.days[day] = fits and day.month in self.months
        return self.days[day]


def values(text: str, low: int, high: int) -> set[int]:
    numbers = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        if span == "*":
            first, last = low, high
        elif "-" in span:
            first, last = (number(end) for end in span.split("-"))
        else:
            first, last = number(span), high if step else number(span)
        numbers |= set(range(first, last + 1, int(step or 1)))
    return numbers


def number(text: str) -> int:
    return _DAYS.index(text) if text in _DAYS else int(text)


def dom_fits(item: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if item == "L":
        return day.day == last
    if item == "LW":
        worked = [n for n in range(1, last + 1) if day.replace(day=n).weekday() < 5]
        return day.day == worked[-1]
    return day.day in values(item, 1, 31)


def dow_fits(item: str, day: date) -> bool:
    weekday = day.isoweekday() % 7
    if item.endswith("L"):
        return weekday == int(item[:-1]) % 7 and (day + timedelta(7)).month != day.month
    if "#" in item:
        name, _, nth = item.partition("#")
        return weekday == number(name) % 7 and (day.day - 1) // 7 + 1 == int(nth)
    return weekday in {n % 7 for n in values(item, 0, 7)}


class Walk:
    """What clocks in a zone show from one instant to another."""

    def __init__(self, zone: str, begin: datetime, end: datetime, step: timedelta) -> None:
        self.begin, self.end = begin, end
        self.step = step
        self.rows: list[tuple[int, datetime, datetime]] = []
        tz = ZoneInfo(zone)
        # The mark may be higher than what is shown now, if clocks went back a short time ago.
        earlier = [begin - step, *(begin - n * timedelta(minutes=1) for n in range(1, 180))]
        mark = max(at.astimezone(tz).replace(tzinfo=None) for at in earlier)
        at = begin
        while at < end:
            shown = at.astimezone(tz).replace(tzinfo=None)
            self.rows.append((instant_of(at), shown, mark))
            mark = max(mark, shown)
            at += step

    def ticks(self, fields: Fields) -> list[int]:
        if fields.fixed:
            return [at for at, shown, mark in self.rows if self._new_time_fits(fields, shown, mark)]
        return [at for at, shown, _ in self.rows if fields.fit(shown)]

    def _new_time_fits(self, fields: Fields, shown: datetime, mark: datetime) -> bool:
        """Return whether a fixed time has come: never twice, and together with all left out."""
        while mark < shown:
            mark += self.step
            if fields.fit(mark):
                return True
        return False


@lru_cache
def jumps(zone: str) -> list[tuple[datetime, timedelta]]:
    """Return when the clocks of a zone jump, to the hour, and how far."""
    steps = []
    tz, years = ZoneInfo(zone), ZONES[zone]
    at = datetime(years[0], 1, 1, tzinfo=UTC)
    offset = at.astimezone(tz).utcoffset()
    while at.year <= years[-1]:
        at += timedelta(hours=1)
        if (new := at.astimezone(tz).utcoffset()) != offset:
            steps.append((at, new - offset))
            offset = new
    return steps


def periods(zone: str, around: timedelta) -> list[tuple[datetime, datetime]]:
    """Return what is walked through: a time around every jump, and one without."""
    quiet = datetime(ZONES[zone][0], 2, 28, 12, tzinfo=UTC)
    return [(at - around, at + around) for at in (*(at for at, _ in jumps(zone)), quiet)]


def agree(rule: Cron, walk: Walk, expected: list[int], dice: random.Random) -> None:
    """Compare all that a rule answers with what the oracle has found."""
    begin, end = instant_of(walk.begin) - 1, instant_of(walk.end) - 1
    calendar_ = _calendar(rule.expression, rule.zone)
    forward = []
    for tick in calendar_.after(begin):
        if tick > end:
            break
        forward.append(tick)
    assert forward == expected
    back = []
    for tick in calendar_.before(end):
        if tick <= begin:
            break
        back.append(tick)
    assert back[::-1] == expected
    if SOAK:
        assert rule.count(begin, end, len(expected) + 1) == len(expected)
    if not expected:
        return
    for place in dice.choices(range(len(expected)), k=4):
        tick = expected[place]
        assert rule.next_after(tick - 1) == tick
        assert rule.last_at(tick) == tick
        if place + 1 < len(expected):
            later = expected[place + 1]
            between = dice.randrange(tick, later)
            assert rule.next_after(between) == later
            assert rule.last_at(between) == tick
            assert rule.count(tick - 1, between, 5) == 1
        after, upto = expected[max(place - 9, 0)] - 1, end
        assert rule.count(after, tick, 20) == min(place, 9) + 1
        assert rule.count(after, upto, 7) == min(len(expected) - max(place - 9, 0), 7)


@pytest.mark.parametrize("zone", ZONES)
def test_every_tick_is_where_the_oracle_has_it(zone: str):
    dice = random.Random(zone)
    for begin, end in periods(zone, timedelta(hours=15)):
        walk = Walk(zone, begin, end, timedelta(minutes=1))
        for expression in MINUTES:
            agree(Cron(expression, zone), walk, walk.ticks(Fields(expression)), dice)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("zone", ZONES)
def test_seconds_as_well(zone: str):
    dice = random.Random(zone)
    for begin, end in periods(zone, timedelta(minutes=1440 if SOAK else 95)):
        walk = Walk(zone, begin, end, timedelta(seconds=1))
        for expression in SECONDS:
            agree(Cron(expression, zone), walk, walk.ticks(Fields(expression)), dice)


@pytest.mark.skipif(not SOAK, reason="walks through whole years; TENURE_TEST_SIZE=soak")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zone", ZONES)
def test_whole_years(zone: str):
    dice = random.Random(zone)
    for year in ZONES[zone]:
        begin, end = (datetime(y, 1, 1, tzinfo=UTC) for y in (year, year + 1))
        walk = Walk(zone, begin, end, timedelta(minutes=1))
        for expression in MINUTES:
            agree(Cron(expression, zone), walk, walk.ticks(Fields(expression)), dice)


def test_the_oracle_sees_jumps_of_every_kind():
    lengths = {length / timedelta(minutes=1) for zone in ZONES for _, length in jumps(zone)}
    assert lengths == {60, -60, 30, -30, 120, -120, 15, 1440}
    assert len(MINUTES) + len(SECONDS) >= 40
    assert len(ZONES) == 12
