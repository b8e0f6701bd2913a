"""Blackouts: times in which ticks do not run.

Times of the day are local times of a zone. An instant is covered if its local time is. A local time
that a clock change skips counts as the end of the change. Of a local time that occurs twice, the
first begins a stretch and the second ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from tenure.core.calendar.rules import Rule
from tenure.core.calendar.zones import DAY, SECOND, instant_of, shown_at, stretches_from, zone_name
from tenure.core.jobs.view import as_datetime
from tenure.errors import ConfigError

__all__ = [
    "Action",
    "Blackout",
    "Recurring",
    "Window",
    "check_blackouts",
    "clear_at",
    "covering",
    "daily",
    "weekdays",
    "weekends",
    "window",
]

Action: TypeAlias = Literal["skip", "defer"]
"""What happens to a tick inside: it does not run, or it runs once when the blackout ends."""

_MINUTE: Final = 60 * SECOND
_DAY_MINUTES: Final = 24 * 60
_TEXT: Final = re.compile(r"(\d\d?):(\d\d)\s*-\s*(\d\d?):(\d\d)", re.ASCII)
_DAY_NAMES: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_HORIZON: Final = 2 * 365 * DAY
# The search looks this far ahead. A rule may be rarer, such as every 29 February.
_TICKS_MIN: Final = 4


class Recurring(Struct, frozen=True, tag="recurring"):
    """The same times of some days of every week."""

    days: tuple[int, ...]
    """The days on which it begins; 0 is Monday."""
    start: int
    """The minute of the day, from 0."""
    end: int
    """The minute of the day up to 1440; if not after `start`, that of the next day."""
    zone: str = "UTC"
    action: Action = "skip"

    def __post_init__(self) -> None:
        zone_name(self.zone)
        _check_action(self.action)
        inside = 0 <= self.start < _DAY_MINUTES and 0 <= self.end <= _DAY_MINUTES
        if not inside or self.start == self.end or not set(self.days) <= set(range(7)):
            msg = f"{self!r} is no blackout. Make one with weekdays(), weekends() or daily()."
            raise ConfigError(msg)

    def covers(self, instant: int) -> bool:
        """Return whether `instant` is inside."""
        return any(begin <= instant < end for begin, end in self._around(instant))

    def ends_at(self, instant: int) -> int:
        """Return when the stretch around `instant` ends, with all that follow without a gap.

        Returns `instant` itself if it is not inside.
        """
        return clear_at((self,), instant)

    def stretch_end(self, instant: int) -> int:
        """Return when the one stretch around `instant` ends."""
        return max(
            (end for begin, end in self._around(instant) if begin <= instant < end),
            default=instant,
        )

    def words(self) -> str:
        """Say it to people."""
        days = " ".join(_DAY_NAMES[day] for day in self.days) if len(self.days) < 7 else "daily"
        return f"{days} {_clock(self.start)}-{_clock(self.end)} {self.zone} ({self.action})"

    def _around(self, instant: int) -> Iterator[tuple[int, int]]:
        """Yield all stretches that could have `instant` in them, and a few others."""
        shift = next((stretch.offset for stretch in stretches_from(self.zone, instant)), 0)
        today = (instant + shift) // DAY
        length = (self.end - self.start) % _DAY_MINUTES or _DAY_MINUTES
        # The next day may have begun once already, before the clocks were set back.
        for day in (today - 1, today, today + 1):
            # 1970 began with a Thursday.
            if (day + 3) % 7 in self.days:
                start = day * DAY + self.start * _MINUTE
                end = start + length * _MINUTE
                yield shown_at(self.zone, start), shown_at(self.zone, end, last=True)


class Window(Struct, frozen=True, tag="window"):
    """One stretch between two instants."""

    start: int
    end: int
    action: Action = "skip"

    def __post_init__(self) -> None:
        _check_action(self.action)
        if self.end <= self.start:
            msg = (
                f"The window from {as_datetime(self.start).isoformat()} to "
                f"{as_datetime(self.end).isoformat()} is empty: it must end after it starts."
            )
            raise ConfigError(msg)

    def covers(self, instant: int) -> bool:
        """Return whether `instant` is inside."""
        return self.start <= instant < self.end

    def ends_at(self, instant: int) -> int:
        """Return when it ends, or `instant` itself if that is not inside."""
        return self.end if self.covers(instant) else instant

    stretch_end = ends_at

    def words(self) -> str:
        """Return the blackout as text for people."""
        start, end = (as_datetime(at).isoformat() for at in (self.start, self.end))
        return f"{start} to {end} ({self.action})"


Blackout: TypeAlias = Recurring | Window


def weekdays(times: str, *, tz: object = "UTC", action: Action = "skip") -> Recurring:
    """Return a blackout such as "22:00-06:00" that begins on Monday to Friday."""
    return _recurring("weekdays", (0, 1, 2, 3, 4), times, tz, action)


def weekends(times: str, *, tz: object = "UTC", action: Action = "skip") -> Recurring:
    """Return a blackout such as "08:00-12:00" that begins on Saturday and Sunday."""
    return _recurring("weekends", (5, 6), times, tz, action)


def daily(times: str, *, tz: object = "UTC", action: Action = "skip") -> Recurring:
    """Return a blackout such as "22:00-06:00" that begins every day."""
    whole_day = _recurring("daily", (0, 1, 2, 3, 4, 5, 6), times, tz, action)
    if whole_day.end - whole_day.start == _DAY_MINUTES:
        msg = (
            f"daily({times!r}) covers everything: nothing would ever run. Pause the timer instead."
        )
        raise ConfigError(msg)
    return whole_day


def window(start: datetime, end: datetime, *, action: Action = "skip") -> Window:
    """Return a blackout for one stretch between two datetimes with a time zone."""
    return Window(_aware(start, "start"), _aware(end, "end"), action)


def covering(blackouts: Sequence[Blackout], instant: int) -> Blackout | None:
    """Return a blackout that covers `instant`, preferably one that skips; None if none does."""
    inside = [each for each in blackouts if each.covers(instant)]
    return next((each for each in inside if each.action == "skip"), inside[0] if inside else None)


def clear_at(blackouts: Sequence[Blackout], instant: int) -> int:
    """Return the first instant from `instant` on that no blackout covers.

    It searches two years. If all of them are covered, it returns the covered instant at their end.
    """
    at = instant
    while at - instant <= _HORIZON:
        end = max((each.stretch_end(at) for each in blackouts), default=at)
        if end <= at:
            break
        at = end
    return at


def check_blackouts(blackouts: object, rule: Rule, *, now: int) -> tuple[Blackout, ...]:
    """Return the blackouts as a tuple. Raises ConfigError if they cover all ticks of two years."""
    if isinstance(blackouts, Recurring | Window):
        msg = f"blackout takes a list. Put this one into [ ]: {blackouts.words()}."
        raise ConfigError(msg)
    checked = []
    for each in blackouts if isinstance(blackouts, Iterable) else (blackouts,):
        if not isinstance(each, Recurring | Window):
            raise ConfigError(_no_blackout(blackouts if isinstance(blackouts, str) else each))
        checked.append(each)
    if checked and not _some_tick_runs(checked, rule, now):
        msg = (
            f"The blackouts cover everything: no tick of the next two years would run "
            f"({rule.words()}; blackout {'; '.join(each.words() for each in checked)})."
        )
        raise ConfigError(msg)
    return tuple(checked)


def _no_blackout(value: object) -> str:
    is_text = isinstance(value, str) and _TEXT.fullmatch(value.strip())
    hint = f" Did you mean blackout=[blackout.daily({value!r})]?" if is_text else ""
    return (
        "blackout takes a list of what tenure.blackout makes: weekdays(...), weekends(...), "
        f"daily(...) or window(...), not {value!r}.{hint}"
    )


def _some_tick_runs(blackouts: Sequence[Blackout], rule: Rule, now: int) -> bool:
    until = max(now + _HORIZON, _after_ticks(rule, now, _TICKS_MIN))
    first = tick = rule.next_after(now)
    while tick is not None and tick <= until:
        cover = covering(blackouts, tick)
        if cover is None:
            return True
        clear = clear_at(blackouts, tick)
        if cover.action == "defer" and clear - tick <= _HORIZON:
            return True
        # Jump over the covered ticks, because a rule may have millions of them.
        tick = rule.next_after(clear - 1)
    # A rule without any tick is reported elsewhere.
    return first is None


def _after_ticks(rule: Rule, now: int, ticks: int) -> int:
    at = now
    for _ in range(ticks):
        at = rule.next_after(at) or at
    return at


def _recurring(
    kind: str, days: tuple[int, ...], times: object, tz: object, action: Action
) -> Recurring:
    zone = zone_name(tz)
    match = _TEXT.fullmatch(times.strip()) if isinstance(times, str) else None
    numbers = [int(number) for number in match.groups()] if match else []
    if not numbers or not _possible(*numbers):
        msg = (
            f"{kind}() takes two times of the day, such as '22:00-06:00' (from 00:00 to 24:00), "
            f"not {times!r}."
        )
        raise ConfigError(msg)
    start, end = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
    if start == end:
        msg = (
            f"{kind}({times!r}) is empty: it ends when it starts. For the whole day write "
            "'00:00-24:00'."
        )
        raise ConfigError(msg)
    return Recurring(days, start, end, zone, action)


def _possible(start_hour: int, start_minute: int, end_hour: int, end_minute: int) -> bool:
    return (
        start_hour < 24
        and start_minute < 60
        and end_minute < 60
        and end_hour * 60 + end_minute <= _DAY_MINUTES
    )


def _check_action(action: object) -> None:
    if action not in {"skip", "defer"}:
        msg = f"action must be 'skip' or 'defer', not {action!r}."
        raise ConfigError(msg)


def _aware(at: object, what: str) -> int:
    if not isinstance(at, datetime):
        msg = f"The {what} of a window must be a datetime, not {at!r}."
        raise ConfigError(msg)
    if at.utcoffset() is None:
        msg = (
            f"The {what} of the window, {at.isoformat()}, has no time zone, so that it means "
            "another instant on every machine. Give it a tzinfo, such as ZoneInfo('Europe/Berlin')."
        )
        raise ConfigError(msg)
    return instant_of(at)


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
