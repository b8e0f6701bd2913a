"""Stretches of a time zone: without gaps, without overlaps, in both directions."""

from itertools import islice, pairwise

import pytest

from tenure.core.calendar.zones import (
    CALENDAR_BEGINS,
    CALENDAR_ENDS,
    shown_at,
    stretches_back,
    stretches_from,
    zone_name,
)
from tenure.errors import ConfigError
from tests.unit.instants import at

ZONES = ("UTC", "Europe/Berlin", "Africa/Freetown", "Pacific/Apia", "Asia/Manila", "Africa/Niamey")


@pytest.mark.parametrize("zone", ZONES)
def test_each_stretch_begins_where_the_one_before_ends(zone: str):
    begin, end = at("1938-06-01"), at("2031-06-01")
    ahead = [
        stretch for stretch in islice(stretches_from(zone, begin), 400) if stretch.begin <= end
    ]
    assert ahead[0].begin <= begin < ahead[0].end
    for before, after in pairwise(ahead):
        assert before.end == after.begin
        assert before.offset == after.before
        assert before.begin < before.end
    back = [stretch for stretch in islice(stretches_back(zone, end), 400) if stretch.end > begin]
    assert back == ahead[::-1]


@pytest.mark.parametrize("zone", ZONES)
def test_stretches_reach_from_end_to_end_of_the_calendar(zone: str):
    first = next(stretches_from(zone, CALENDAR_BEGINS - 1))
    assert first.begin == CALENDAR_BEGINS
    assert list(stretches_back(zone, CALENDAR_BEGINS)) == [first]
    assert list(stretches_back(zone, CALENDAR_BEGINS - 1)) == []
    last = next(stretches_back(zone, CALENDAR_ENDS + 1))
    assert last.end == CALENDAR_ENDS
    assert list(stretches_from(zone, CALENDAR_ENDS - 1)) == [last]
    assert list(stretches_from(zone, CALENDAR_ENDS)) == []


@pytest.mark.parametrize(
    ("offset", "hint"),
    [
        ("UTC+1", "'Etc/GMT-1'"),
        ("UTC+14", "'Etc/GMT-14'"),
        ("UTC-12", "'Etc/GMT+12'"),
        ("gmt-3", "'Etc/GMT+3'"),
    ],
)
def test_a_fixed_offset_is_shown_as_the_zone_that_has_it(offset: str, hint: str):
    with pytest.raises(ConfigError, match="whose sign is the other way round") as error:
        zone_name(offset)
    assert hint in str(error.value)


@pytest.mark.parametrize("offset", ["UTC+15", "UTC-13", "UTC+0", "UTC+5:30"])
def test_an_offset_that_no_such_zone_has_gets_a_place_as_advice(offset: str):
    with pytest.raises(ConfigError, match="use the name of a place") as error:
        zone_name(offset)
    assert "Etc/GMT" not in str(error.value)


@pytest.mark.parametrize(
    ("wall", "first", "last"),
    [
        ("2026-03-29 01:59:59", "2026-03-29 00:59:59", "2026-03-29 00:59:59"),
        ("2026-03-29 02:00", "2026-03-29 01:00", "2026-03-29 01:00"),  # the jump leaves it out
        ("2026-03-29 02:59:59", "2026-03-29 01:00", "2026-03-29 01:00"),
        ("2026-03-29 03:00", "2026-03-29 01:00", "2026-03-29 01:00"),
        ("2026-10-25 01:59:59", "2026-10-24 23:59:59", "2026-10-24 23:59:59"),
        ("2026-10-25 02:00", "2026-10-25 00:00", "2026-10-25 01:00"),  # shown twice
        ("2026-10-25 02:59:59", "2026-10-25 00:59:59", "2026-10-25 01:59:59"),
        ("2026-10-25 03:00", "2026-10-25 02:00", "2026-10-25 02:00"),
    ],
)
def test_when_clocks_show_a_time_around_a_jump(wall: str, first: str, last: str):
    assert shown_at("Europe/Berlin", at(wall)) == at(first)
    assert shown_at("Europe/Berlin", at(wall), last=True) == at(last)
