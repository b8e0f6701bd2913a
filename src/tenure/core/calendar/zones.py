"""Time zones: the wall time at an instant, and the instants at which clocks change.

Instants are whole microseconds since 1970 UTC. A *wall* is a local time, counted in the same way as
if it were UTC. As an integer it cannot be compared with an aware datetime by mistake.
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

# These zones differ between hosts, or count leap seconds.
_NOT_FOR_FLEETS: Final = ("localtime", "posixrules", "right/", "posix/")


_OFFSET: Final = re.compile(r"(?:UTC|GMT|Z)?\s*([+-])(\d{1,2})(?::?(\d\d))?", re.IGNORECASE)


def instant_of(moment: datetime) -> int:
    """Return an aware datetime as an instant, exact to the microsecond, unlike a float."""
    return (moment - _EPOCH) // _MICROSECOND


# Two days within the range of datetime, so that no zone's local time leaves the range.
CALENDAR_BEGINS: Final = instant_of(datetime(1, 1, 3, tzinfo=UTC))
CALENDAR_ENDS: Final = instant_of(datetime(9999, 12, 30, tzinfo=UTC))


def zone_name(tz: object) -> str:
    """Return the name of a zone, which may be passed as a ZoneInfo. Raises ConfigError without one.

    Replicas exchange names only, because a name means the same zone on each of them.
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
    """Return the zone of this name. Raises ConfigError, which suggests similar names."""
    if name.startswith(_NOT_FOR_FLEETS):
        msg = (
            f"{name!r} differs between hosts. Use the name of a place, such as "
            "'Europe/Berlin', or 'UTC'."
        )
        raise ConfigError(msg)
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        # Also for a name with "..", a folder, or a file that is not a zone.
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
    # People often know the city without the continent: compare with the last part as well.
    folded |= {zone.rpartition("/")[2].casefold(): zone for zone in zones if "/" in zone}
    folded_name = name.casefold().replace(" ", "_")
    near = get_close_matches(folded_name, folded, n=6, cutoff=0.7)
    near += get_close_matches(folded_name.rpartition("/")[2], folded, n=6, cutoff=0.7)
    similar = list(dict.fromkeys(folded[each] for each in near))[:3]
    if similar:
        return f"Did you mean {' or '.join(repr(zone) for zone in similar)}?"
    return "Use a name such as 'Europe/Berlin', 'America/New_York' or 'UTC'."


def _told_offset(offset: re.Match[str]) -> str:
    """Return advice for a fixed offset such as UTC+1."""
    sign, hours, minutes = offset[1], int(offset[2]), int(offset[3] or 0)
    place = "An offset has no summer time: use the name of a place, such as 'Europe/Berlin'"
    if minutes or not 0 < hours <= (14 if sign == "+" else 12):
        return f"{place}."
    other = "-" if sign == "+" else "+"
    return f"{place}; or 'Etc/GMT{other}{hours}', whose sign is the other way round."


class Stretch(NamedTuple):
    """A stretch of time between two clock changes of a zone."""

    begin: int
    end: int
    """The first instant after it."""
    before: int
    """The UTC offset before `begin`; equal to `offset` if `begin` is no clock change."""
    offset: int
    """The UTC offset during the stretch."""


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
    """Return the first (or the last) instant of a wall time.

    If a clock change skips it, that is the instant of the change.
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

    zoneinfo does not list clock changes. They are found by comparing offsets every other day,
    because no zone has changed twice within three days (the shortest gap is four days, in Freetown
    in 1939).
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
            # A change at the turn of the year belongs to the new year.
            if jump < end:
                stretches.append(Stretch(begin, jump, before, offset))
                begin, before, offset = jump, offset, then
        looked = later
    return (*stretches, Stretch(begin, end, before, offset))


def _jump(tz: ZoneInfo, early: int, late: int) -> int:
    """Return the first instant with the offset of `late`. Zones change at whole seconds."""
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
