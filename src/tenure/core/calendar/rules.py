"""Rules: at which instants a timer ticks.

A tick is a nominal instant, in whole microseconds since 1970 UTC. It follows from the rule alone,
so all replicas agree on it without communication.

At a clock change of the zone, cron rules behave as in Debian's cron. If the hour or minute field
begins with `*`, the rule follows elapsed time: it ticks at every matching local time, so not in a
skipped hour, and twice in a repeated hour. A rule with a fixed time ticks once: at the end of the
change if its time is skipped, in the first pass if it is repeated. A field for seconds does not
matter here. (Debian's cron treats changes of more than three hours as corrections of the clock and
drops the skipped times. Here all changes of a zone are alike.)

cronsim parses the expressions and finds the dates; this module handles clock changes. cronsim's own
handling loses ticks at changes of half an hour or off the hour, loops for ever on some expressions
(`45 */3 * * *` on Chatham in autumn), and returns past ticks in the second pass of an hour.
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

# With a shorter period, the round trip to the store would take a good part of it.
_PERIOD_MIN: Final = 1.0
_PERIOD_MAX: Final = 315_360_000.0
_UNITS: Final = (("d", 86_400 * SECOND), ("h", 3_600 * SECOND), ("min", 60 * SECOND))

# Later than every wall time, and earlier than every wall time.
_NEVER: Final = 1 << 62

# A preview asks for five ticks, each after the one before.
_ANSWERS_KEPT: Final = 8

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

        It visits each tick, so `most` bounds the cost.
        """
        ticks = 0
        first = self.next_after(after)  # cached, and mostly there is none to visit
        if most > 0 and first is not None and first <= upto:
            for tick in _calendar(self.expression, self.zone).after(after):
                if tick > upto:
                    break
                ticks += 1
                if ticks == most:
                    break
        return ticks

    def words(self) -> str:
        """Say it to people."""
        return f"{_words(self.expression)}, {self.zone}"


Rule: TypeAlias = Every | Cron


def make_rule(
    *, every: Duration | None = None, cron: str | None = None, tz: object = "UTC"
) -> Rule:
    """Return the rule of a declaration. Raises ConfigError unless it has exactly one."""
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
    """Return the shortest time between two of the next ticks, in microseconds."""
    if isinstance(rule, Every):
        return rule.period_us
    coming = islice(_calendar(rule.expression, rule.zone).after(now), ticks + 1)
    return min((later - tick for tick, later in pairwise(coming)), default=_NEVER)


@lru_cache(maxsize=4096)
def _words(expression: str) -> str:
    calendar = CronSim(expand(expression), _WALL_EPOCH)
    words = calendar.explain()
    # cron combines the two day fields with "or".
    return words if calendar.day_and else words.replace(" and on ", " or on ")


@lru_cache(maxsize=4096)
def _calendar(expression: str, zone: str) -> _Calendar:
    return _Calendar(expression, zone)


class _Calendar:
    """The ticks of an expression in a zone.

    Timers ask repeatedly while no tick is due, and pages for the next few ticks. So it caches its
    last answers with the range of instants for which they hold.
    """

    def __init__(self, expression: str, zone: str) -> None:
        self._text = expand(expression)
        minute, hour = self._text.split()[-5:-3]
        self._fixed = not minute.startswith("*") and not hour.startswith("*")
        self._zone = zone_name(zone)
        # Answers of next_after, the newest first, and since when each of them holds.
        self._ahead: tuple[tuple[int, int], ...] = ()
        # The answer of last_at, and the end of the half-open range for which it holds.
        self._behind = (0, 0)

    def next_after(self, instant: int) -> int | None:
        for since, tick in self._ahead:
            if since <= instant < tick:
                return tick
        following = next(self.after(instant), None)
        if following is not None:
            self._ahead = ((instant, following), *self._ahead[: _ANSWERS_KEPT - 1])
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
        """Return the first wall time that may tick in a stretch.

        For a fixed time that is the end of the previous stretch in wall time: skipped times are
        included (and tick at the change), repeated ones are not.
        """
        return stretch.begin + (stretch.before if self._fixed else stretch.offset)


def _walls(text: str, floor: int) -> Iterator[int]:
    """Yield the matching wall times from `floor` on. Ends after fifty years without one."""
    whole = -(-floor // SECOND) * SECOND
    try:
        for wall in CronSim(text, _WALL_EPOCH + timedelta(microseconds=whole - SECOND)):
            yield (wall - _WALL_EPOCH) // _MICROSECOND
    except OverflowError:  # the calendar has ended
        return


def _walls_back(text: str, ceiling: int) -> Iterator[int]:
    """Yield the matching wall times before `ceiling`, the latest first."""
    whole = -(-ceiling // SECOND) * SECOND
    try:
        for wall in CronSim(text, _WALL_EPOCH + timedelta(microseconds=whole), reverse=True):
            yield (wall - _WALL_EPOCH) // _MICROSECOND
    except OverflowError:
        return
