"""Zones: what clocks on the wall show at an instant, and the instants at which they jump.

Instants are whole microseconds since 1970 UTC. A *wall* is what the clocks of a zone show, counted
the same way, as if it were UTC: there is no date in it that could be compared with the wrong kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from tenure.errors import ConfigError

__all__ = [
    "CALENDAR_BEGINS",
    "CALENDAR_ENDS",
    "DAY",
    "SECOND",
    "Stretch",
    "find_zone",
    "instant_of",
    "shown_at",
    "stretches_back",
    "stretches_from",
    "zone_name",
]

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# They differ from host to host, or count leap seconds, which nothing else does.
_NOT_FOR_FLEETS: Final = ("localtime", "posixrules", "right/", "posix/")


_OFFSET: Final = re.compile(r"(?:UTC|GMT|Z)?\s*([+-])(\d{1,2})(?::?(\d\d))?", re.IGNORECASE)


def instant_of(moment: datetime) -> int:
    """Return an aware datetime as an instant, to the microsecond (a float would lose some)."""
    return (moment - _EPOCH) // _MICROSECOND


# Two days short of what datetime can count, so that no zone's clock leaves its range.
CALENDAR_BEGINS: Final = instant_of(datetime(1, 1, 3, tzinfo=UTC))
CALENDAR_ENDS: Final = instant_of(datetime(9999, 12, 30, tzinfo=UTC))


def zone_name(tz: object) -> str:
    """Return the name of a zone given by name or as a ZoneInfo; raise ConfigError if it has none.

    Only a name means the same on every replica.
    """
    if tz is UTC:
        return "UTC"
    if isinstance(tz, ZoneInfo) and tz.key:
        tz = tz.key
    if not isinstance(tz, str):
        msg = f"tz must be the name of a time zone, such as 'Europe/Berlin', not {tz!r}."
        raise ConfigError(msg)
    find_zone(tz)
    return tz


@lru_cache(maxsize=1024)
def find_zone(name: str) -> ZoneInfo:
    """Return the zone of this name; raise ConfigError, with names like it, if there is none."""
    if name.startswith(_NOT_FOR_FLEETS):
        msg = (
            f"{name!r} is no zone that all replicas agree on. Use the name of a place, such as "
            "'Europe/Berlin', or 'UTC'."
        )
        raise ConfigError(msg)
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        # A name with "..", a folder, a file that is no zone: all the same mistake.
        msg = f"There is no time zone {name[:80]!r}. {_similar(name[:80])}"
        raise ConfigError(msg) from None


def _similar(name: str) -> str:
    zones = sorted(available_timezones())
    if not zones:
        return "This system has no zones at all: install the package tzdata."
    if offset := _OFFSET.fullmatch(name):
        return _told_offset(offset)
    folded = {zone.casefold(): zone for zone in zones}
    if exact := folded.get(name.casefold()):
        return f"Did you mean {exact!r}? Capitals count."
    # People know the city, not the continent: compare with the last part as well.
    folded |= {zone.rpartition("/")[2].casefold(): zone for zone in zones if "/" in zone}
    folded_name = name.casefold().replace(" ", "_")
    near = get_close_matches(folded_name, folded, n=6, cutoff=0.7)
    near += get_close_matches(folded_name.rpartition("/")[2], folded, n=6, cutoff=0.7)
    similar = list(dict.fromkeys(folded[each] for each in near))[:3]
    if similar:
        return f"Did you mean {' or '.join(repr(zone) for zone in similar)}?"
    return "Use a name such as 'Europe/Berlin', 'America/New_York' or 'UTC'."


def _told_offset(offset: re.Match[str]) -> str:
    """Say what to write for something like UTC+1."""
    sign, hours, minutes = offset[1], int(offset[2]), int(offset[3] or 0)
    place = "An offset has no summer time: use the name of a place, such as 'Europe/Berlin'"
    if minutes or not 0 < hours <= (14 if sign == "+" else 12):
        return f"{place}."
    other = "-" if sign == "+" else "+"
    return f"{place}; or 'Etc/GMT{other}{hours}', whose sign is the other way round."


class Stretch(NamedTuple):
    """A time in which a zone's clocks do not jump."""

    begin: int
    end: int
    """The first instant that is not part of it."""
    before: int
    """How far ahead of UTC the clocks were until `begin`; the same as `offset`: no jump there."""
    offset: int
    """How far ahead of UTC they are."""


def stretches_from(zone: str, instant: int) -> Iterator[Stretch]:
    """Yield the stretch around `instant` and all later ones, to the end of the calendar."""
    start = max(instant, CALENDAR_BEGINS)
    if start >= CALENDAR_ENDS:
        return
    for year in range(_year(start), 10_000):
        yield from (stretch for stretch in _stretches(zone, year) if stretch.end > start)


def stretches_back(zone: str, instant: int) -> Iterator[Stretch]:
    """Yield the stretch around `instant` and all earlier ones."""
    start = min(instant, CALENDAR_ENDS - 1)
    if start < CALENDAR_BEGINS:
        return
    for year in range(_year(start), 0, -1):
        for stretch in reversed(_stretches(zone, year)):
            if stretch.begin <= start:
                yield stretch


def shown_at(zone: str, wall: int, *, last: bool = False) -> int:
    """Return the first (or the last) instant at which clocks show `wall`.

    If a jump leaves it out, that is the instant of the jump: clocks show a later time from then on.
    """
    shown = []
    for stretch in stretches_from(zone, wall - 2 * DAY):
        if stretch.begin > wall + 2 * DAY:
            break
        if stretch.begin + stretch.before <= wall < stretch.begin + stretch.offset:
            shown.append(stretch.begin)
        if stretch.begin <= wall - stretch.offset < stretch.end:
            shown.append(wall - stretch.offset)
    if not shown:
        return min(max(wall, CALENDAR_BEGINS), CALENDAR_ENDS)
    return max(shown) if last else min(shown)


def _year(instant: int) -> int:
    return (_EPOCH + timedelta(microseconds=instant)).year


@lru_cache(maxsize=4096)
def _stretches(zone: str, year: int) -> tuple[Stretch, ...]:
    """Return the stretches of a year of UTC.

    zoneinfo does not tell when a zone jumps. It is found by looking every other day, as no zone has
    jumped twice within three (in Freetown, 1939, four days were between).
    """
    tz = find_zone(zone)
    begin = max(instant_of(datetime(year, 1, 1, tzinfo=UTC)), CALENDAR_BEGINS)
    end = CALENDAR_ENDS if year == 9999 else instant_of(datetime(year + 1, 1, 1, tzinfo=UTC))
    stretches = []
    before, offset = _offset(tz, begin - SECOND), _offset(tz, begin)
    looked = begin
    while looked < end:
        later = min(looked + 2 * DAY, end)
        if (then := _offset(tz, later)) != offset:
            jump = _jump(tz, looked, later)
            # A jump with the new year belongs to the new year.
            if jump < end:
                stretches.append(Stretch(begin, jump, before, offset))
                begin, before, offset = jump, offset, then
        looked = later
    return (*stretches, Stretch(begin, end, before, offset))


def _jump(tz: ZoneInfo, early: int, late: int) -> int:
    """Return the first instant that has the offset of `late`; zones jump at whole seconds."""
    old = _offset(tz, early)
    while late - early > SECOND:
        middle = early + (late - early) // (2 * SECOND) * SECOND
        if _offset(tz, middle) == old:
            early = middle
        else:
            late = middle
    return late


def _offset(tz: ZoneInfo, instant: int) -> int:
    moment = (_EPOCH + timedelta(microseconds=instant)).astimezone(tz)
    ahead = moment.utcoffset()
    assert ahead is not None
    return ahead // _MICROSECOND
