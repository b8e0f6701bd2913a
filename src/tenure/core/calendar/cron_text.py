"""Parses cron expressions, and says where a wrong expression is wrong and what is allowed there."""

from __future__ import annotations

import re
from datetime import datetime
from difflib import get_close_matches
from typing import Final

from cronsim import CronSim, CronSimError
from msgspec import Struct

from tenure.errors import ConfigError

__all__ = ["expand", "normalize"]

_LENGTH_MAX: Final = 256

_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

# Any start date works: a date that does not occur within fifty years, which contain leap years on
# nearly all weekdays, never occurs.
_SEARCH_FROM: Final = datetime(1999, 1, 1)  # noqa: DTZ001 - a date on the calendar, in no zone


_PERIOD: Final = re.compile(
    r"(?:every\s+)?(\d+)\s*((?:s|sec|second|m|min|minute|h|hour|d|day)s?)", re.IGNORECASE
)


class _Field(Struct, frozen=True):
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()
    """Names for values, from `first_word` on."""
    first_word: int = 0
    extra: str = ""
    """What else is allowed, as text for messages and as a pattern."""
    extra_pattern: str = "(?!)"

    def allowed(self) -> str:
        names = f" or {self.words[0]} to {self.words[-1]}" if self.words else ""
        return (
            f"{self.low} to {self.high}{names}, '*', ranges (a-b), lists (a,b) and steps (*/n)"
            f"{self.extra}"
        )


_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_FIELDS: Final = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field(
        *("day of month", 1, 31),
        extra="; L for the last day, LW for the last weekday",
        extra_pattern="L|LW",
    ),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field(
        *("day of week", 0, 7, _DAYS),
        extra="; 5L for the last Friday, FRI#2 for the second",
        extra_pattern=f"[0-7]L|([0-7]|{'|'.join(_DAYS)})#[1-5]",
    ),
)


def normalize(cron: object) -> str:
    """Return an expression in its stored form. Raises ConfigError if it cannot work."""
    if not isinstance(cron, str):
        msg = f"cron must be text such as '30 2 * * *', not {cron!r}."
        raise ConfigError(msg)
    text = " ".join(cron.split())
    text = text.lower() if text.startswith("@") else text
    expand(text)
    return text


def expand(expression: str) -> str:
    """Return the five or six fields of an expression; a nickname such as "@daily" is expanded.

    Raises:
        ConfigError: it cannot work. The message shows where it is wrong and what is allowed there.
    """
    if len(expression) > _LENGTH_MAX:
        msg = (
            f"cron={expression[:40]!r}... has {len(expression)} characters; at most {_LENGTH_MAX} "
            "are allowed."
        )
        raise ConfigError(msg)
    if expression.startswith("@"):
        return _nickname(expression)
    fields = expression.upper().split()
    if len(fields) not in {5, 6}:
        number = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        msg = (
            f"cron={expression!r} has {number}. It takes 5 (minute, hour, day of month, month, "
            f"day of week), or 6 with the second in front.{_meant(expression)}"
        )
        raise ConfigError(msg)
    for field, text in zip(_FIELDS[-len(fields) :], fields, strict=True):
        if reason := _mistake(field, text):
            msg = (
                f"cron={expression!r}: the {field.name} {text!r} is wrong: {reason}. "
                f"Allowed: {field.allowed()}."
            )
            raise ConfigError(msg)
    _check_that_it_comes(expression, fields)
    return " ".join(fields)


def _nickname(expression: str) -> str:
    if fields := _NICKNAMES.get(expression):
        return fields
    if expression == "@reboot":
        msg = "cron='@reboot' is no time. Call the function where your program starts."
        raise ConfigError(msg)
    near = get_close_matches(expression, _NICKNAMES, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    msg = f"cron={expression!r} is not known. {hint}There are {', '.join(_NICKNAMES)}."
    raise ConfigError(msg)


def _meant(expression: str) -> str:
    """Return a suggestion: a nickname without its sign, or a period."""
    if (nickname := f"@{expression.lower()}") in _NICKNAMES:
        return f" Did you mean {nickname!r}?"
    if period := _PERIOD.fullmatch(expression):
        return f" For a period write every='{period[1]}{period[2][0].lower()}'."
    return ""


def _mistake(field: _Field, text: str) -> str:
    """Return what is wrong with a field; empty if nothing is."""
    for item in text.split(","):
        if not item:
            return "a part of the list is empty"
        if not re.fullmatch(field.extra_pattern, item) and (reason := _wrong_item(field, item)):
            return reason
    return ""


def _wrong_item(field: _Field, item: str) -> str:
    values, slash, step = item.partition("/")
    first, dash, last = values.partition("-")
    if values != "*":
        for value in (first, last) if dash else (first,):
            if reason := _wrong_value(field, value, item):
                return reason
        if dash and _number(field, first) > _number(field, last):
            return f"the range {values!r} goes down; write it as two, around the end"
        if dash and slash and _number(field, first) == _number(field, last):
            return f"the range {values!r} is one value, which has no steps"
    return _wrong_step(field, step) if slash else ""


def _wrong_value(field: _Field, value: str, item: str) -> str:
    if value in field.words:
        return ""
    if value == "?":
        return "'?' is not known here; write '*'"
    if not value:
        return f"a number is missing in {item!r}"
    if not re.fullmatch("[0-9]+", value):
        return _no_number(field, value)
    if not field.low <= int(value) <= field.high:
        return f"{value} is not from {field.low} to {field.high}"
    return ""


def _no_number(field: _Field, value: str) -> str:
    for word in field.words:
        if value.isalpha() and value.startswith(word):
            return f"names have three letters: {word!r}, not {value!r}"
    return f"{value!r} is no {'number or name' if field.words else 'number'}"


def _wrong_step(field: _Field, step: str) -> str:
    if not re.fullmatch("[0-9]+", step):
        return f"the step {step!r} is no number"
    if int(step) < 1:
        return "a step is at least 1"
    size = field.high - field.low + 1
    if int(step) > size:
        return f"the step {step} is longer than the whole range of {size}"
    return ""


def _number(field: _Field, value: str) -> int:
    return field.words.index(value) + field.first_word if value in field.words else int(value)


def _check_that_it_comes(expression: str, fields: list[str]) -> None:
    try:
        comes = next(CronSim(" ".join(fields), _SEARCH_FROM), None)
    except CronSimError:
        comes = None
    if comes is None:
        day, month, weekday = fields[-3:]
        msg = (
            f"cron={expression!r} never comes: no date has the day of month {day!r} in the month "
            f"{month!r} on the day of week {weekday!r}."
        )
        raise ConfigError(msg)
