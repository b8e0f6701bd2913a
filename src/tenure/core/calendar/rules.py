"""Rules: at which instants a timer ticks.

A tick is a nominal instant, in whole microseconds since 1970 UTC. It follows from the rule alone,
so that all replicas agree on it without a word.

When the clocks of a zone jump, a rule by cron does what Debian's cron does. One that leaves the
hour or the minute open (its field begins with a `*`) follows the time that passes: it ticks
whenever the clocks show a time that fits, so not in what a jump leaves out, and in both passes of
what is shown twice. One with a fixed time ticks once where people expect it: at the end of the jump
if the clocks leave it out, in the first pass if they show it twice. A second in front changes
nothing about this. (Debian's cron takes jumps beyond three hours for corrections of the clock and
lets them swallow what they leave out. A zone's jumps are none, whatever their length.)

cronsim reads the expressions and finds the dates; the jumps are handled here. Its own walk over
them loses ticks where clocks jump by half an hour or off the hour, does not end for some
expressions (`45 */3 * * *` on Chatham in autumn), and in the second pass of an hour answers with
ticks of the past.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final, TypeAlias

from cronsim import CronSim
from msgspec import Struct

from tenure.core.calendar.cron_text import expand, normalize
from tenure.core.calendar.zones import (
    CALENDAR_BEGINS,
    CALENDAR_ENDS,
    SECOND,
    Stretch,
    stretches_back,
    stretches_from,
    zone_name,
)
from tenure.core.durations import Duration, micros, seconds
from tenure.errors import ConfigError

__all__ = ["Cron", "Every", "Rule", "make_rule", "shortest_distance"]

# Below, the way to the store and back is a good part of the period.
_PERIOD_MIN: Final = 1.0
_PERIOD_MAX: Final = 315_360_000.0
_UNITS: Final = (("d", 86_400 * SECOND), ("h", 3_600 * SECOND), ("min", 60 * SECOND))

# Later than every wall, and earlier.
_NEVER: Final = 1 << 62

_WALL_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall has no zone, see core/zones
_MICROSECOND: Final = timedelta(microseconds=1)


class Every(Struct, frozen=True, tag="every"):
    """Ticks at the whole multiples of a period since 1970 UTC."""

    period_us: int

    def __post_init__(self) -> None:
        seconds(self.period_us / SECOND, "every", minimum=_PERIOD_MIN, maximum=_PERIOD_MAX)

    def next_after(self, instant: int) -> int | None:
        """Return the first tick strictly after `instant`; None beyond the end of the calendar."""
        tick = instant - instant % self.period_us + self.period_us
        return tick if tick < CALENDAR_ENDS else None

    def last_at(self, instant: int) -> int | None:
        """Return the latest tick at or before `instant`; None before the calendar begins."""
        latest = min(instant, CALENDAR_ENDS - 1)
        tick = latest - latest % self.period_us
        return tick if tick >= CALENDAR_BEGINS else None

    def count(self, after: int, upto: int, most: int) -> int:
        """Return how many ticks are after `after` and not after `upto`, or `most` if more are."""
        return max(0, min(upto // self.period_us - after // self.period_us, most))

    def words(self) -> str:
        """Say it to people."""
        for unit, length in _UNITS:
            if self.period_us % length == 0:
                return f"every {self.period_us // length} {unit}"
        return f"every {self.period_us / SECOND:.15g} s"


class Cron(Struct, frozen=True, tag="cron"):
    """Ticks when clocks in a zone show a time that fits the expression."""

    expression: str
    """minute, hour, day of month, month, day of week; or with the second in front."""
    zone: str = "UTC"

    def __post_init__(self) -> None:
        _calendar(self.expression, self.zone)

    def next_after(self, instant: int) -> int | None:
        """Return the first tick strictly after `instant`; None if there is none any more."""
        return _calendar(self.expression, self.zone).next_after(instant)

    def last_at(self, instant: int) -> int | None:
        """Return the latest tick at or before `instant`; None if there is none."""
        return _calendar(self.expression, self.zone).last_at(instant)

    def count(self, after: int, upto: int, most: int) -> int:
        """Return how many ticks are after `after` and not after `upto`, or `most` if more are.

        It looks at each of them, so `most` bounds what it costs.
        """
        ticks = 0
        if most > 0:
            for tick in _calendar(self.expression, self.zone).after(after):
                if tick > upto:
                    break
                ticks += 1
                if ticks == most:
                    break
        return ticks

    def words(self) -> str:
        """Say it to people."""
        calendar = CronSim(expand(self.expression), _WALL_EPOCH)
        words = calendar.explain()
        if not calendar.day_and:
            # Of the two days either one will do, which "and" does not say.
            words = words.replace(" and on ", " or on ")
        return f"{words}, {self.zone}"


Rule: TypeAlias = Every | Cron


def make_rule(
    *, every: Duration | None = None, cron: str | None = None, tz: object = "UTC"
) -> Rule:
    """Return the rule that a timer is declared with; raise ConfigError unless it is exactly one."""
    if every is None and cron is None:
        msg = "A timer needs a rule: every='60s', or cron='30 2 * * *'."
        raise ConfigError(msg)
    if every is not None and cron is not None:
        msg = f"A timer ticks by every={every!r} or by cron={cron!r}, not by both: leave one out."
        raise ConfigError(msg)
    zone = zone_name(tz)
    if cron is not None:
        return Cron(normalize(cron), zone)
    if zone != "UTC":
        msg = (
            f"tz={zone!r} has no meaning for every=, whose ticks follow the time that passes. "
            "Use cron= for times of the day."
        )
        raise ConfigError(msg)
    assert every is not None
    period = seconds(every, "every", minimum=_PERIOD_MIN, maximum=_PERIOD_MAX)
    return Every(micros(period))


def shortest_distance(rule: Rule, now: int, *, ticks: int = 50) -> int:
    """Return the smallest distance, in microseconds, of the next ticks from one to the next."""
    if isinstance(rule, Every):
        return rule.period_us
    coming = islice(_calendar(rule.expression, rule.zone).after(now), ticks + 1)
    return min((later - tick for tick, later in pairwise(coming)), default=_NEVER)


@lru_cache(maxsize=4096)
def _calendar(expression: str, zone: str) -> _Calendar:
    return _Calendar(expression, zone)


class _Calendar:
    """The ticks of an expression in a zone.

    Timers ask the same again and again, as most of the time no tick is due: it remembers between
    which two instants its last answers hold.
    """

    def __init__(self, expression: str, zone: str) -> None:
        self._text = expand(expression)
        minute, hour = self._text.split()[-5:-3]
        self._fixed = not minute.startswith("*") and not hour.startswith("*")
        self._zone = zone_name(zone)
        # The answer to next_after from the first up to, not including, the second.
        self._ahead = (0, 0)
        # The answer to last_at, and up to which instant, not including it.
        self._behind = (0, 0)

    def next_after(self, instant: int) -> int | None:
        since, tick = self._ahead
        if since <= instant < tick:
            return tick
        following = next(self.after(instant), None)
        if following is not None:
            self._ahead = (instant, following)
        return following

    def last_at(self, instant: int) -> int | None:
        tick, until = self._behind
        if tick <= instant < until:
            return tick
        latest = next(self.before(instant), None)
        if latest is not None:
            self._behind = (latest, self.next_after(instant) or _NEVER)
        return latest

    def after(self, instant: int) -> Iterator[int]:
        """Yield the ticks after `instant`."""
        read_from, wall = 1, 0
        walls: Iterator[int] = iter(())
        last = instant
        for stretch in stretches_from(self._zone, instant):
            floor = self._floor(stretch)
            if stretch.begin <= instant:
                floor = max(floor, instant + stretch.offset)
            if not read_from <= floor <= wall:
                walls = _walls(self._text, floor)
                read_from, wall = floor, next(walls, _NEVER)
            while wall < stretch.end + stretch.offset:
                tick = max(wall - stretch.offset, stretch.begin)
                if tick > last:
                    last = tick
                    yield tick
                read_from, wall = wall + 1, next(walls, _NEVER)
            if wall == _NEVER:
                return

    def before(self, instant: int) -> Iterator[int]:
        """Yield the ticks at or before `instant`, the latest first."""
        wall, read_below = 1, 0
        walls: Iterator[int] = iter(())
        last = instant + 1
        for stretch in stretches_back(self._zone, instant):
            ceiling = min(stretch.end, instant + 1) + stretch.offset
            if not wall < ceiling <= read_below:
                walls = _walls_back(self._text, ceiling)
                read_below, wall = ceiling, next(walls, -_NEVER)
            while wall >= self._floor(stretch):
                tick = max(wall - stretch.offset, stretch.begin)
                if tick < last:
                    last = tick
                    yield tick
                read_below, wall = wall, next(walls, -_NEVER)
            if wall == -_NEVER:
                return

    def _floor(self, stretch: Stretch) -> int:
        """Return the first wall that ticks in a stretch.

        For a fixed time this is where the stretch before has ended: what a jump leaves out comes
        with it (and is put to its instant), what it shows again does not.
        """
        return stretch.begin + (stretch.before if self._fixed else stretch.offset)


def _walls(text: str, floor: int) -> Iterator[int]:
    """Yield the walls from `floor` on that fit; none after fifty years without one."""
    whole = -(-floor // SECOND) * SECOND
    try:
        for wall in CronSim(text, _WALL_EPOCH + timedelta(microseconds=whole - SECOND)):
            yield (wall - _WALL_EPOCH) // _MICROSECOND
    except OverflowError:  # the calendar has ended
        return


def _walls_back(text: str, ceiling: int) -> Iterator[int]:
    """Yield the walls before `ceiling` that fit, the latest first."""
    whole = -(-ceiling // SECOND) * SECOND
    try:
        for wall in CronSim(text, _WALL_EPOCH + timedelta(microseconds=whole), reverse=True):
            yield (wall - _WALL_EPOCH) // _MICROSECOND
    except OverflowError:
        return
