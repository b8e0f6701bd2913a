"""How timers and schedules look on a screen and in a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import asdict
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.jobs.table import id_of, joined, took
from tenure.cli.output import Cell, Shrinking, duration, safe, table
from tenure.core.schedules.steps import TICKS_COUNTED
from tenure.timers import TickRecord, TimerInfo, TimerPause

__all__ = [
    "TIME",
    "frozen_line",
    "history_table",
    "listed",
    "plain",
    "told_next",
    "told_times",
    "until_when",
]

TIME = "%Y-%m-%d %H:%M:%S"

_UNREADABLE = "unreadable"
_UNREADABLE_TOLD = "What is unreadable here was declared by a newer version of Tenure."

_AHEAD_TOLD = (
    "What is silent here is ahead of the store's clock: that clock was wrong when it ticked last, "
    "or is wrong now. Check it, then 'tenure timers reset --all' lets them tick again."
)

_STYLES = {
    "succeeded": "green",
    "running": "cyan",
    "waiting": "cyan",
    "failed": "bold red",
    "missed": "red",
    "skipped": "yellow",
    "cancelled": "yellow",
}


def plain(value: Any) -> Any:
    """Return a value as documents have it: instants as text that sorts."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, Struct):
        return {name: plain(part) for name, part in asdict(value).items()}
    return value


def until_when(pause: TimerPause | None, now: datetime, otherwise: str) -> str:
    """Return how long a pause lasts."""
    if pause is None or pause.until is None:
        return otherwise
    return f"until {pause.until:{TIME}} UTC, for {_length(pause.until, now)}"


def frozen_line(frozen: TimerPause | None, now: datetime) -> Iterator[RenderableType]:
    """Say that nothing ticks, if that is so."""
    if frozen is not None:
        long = until_when(frozen, now, "until 'tenure timers unfreeze'")
        yield Text(f"All timers are frozen {long}{_because(frozen)}.", "yellow")


def listed(found: Sequence[TimerInfo], now: datetime, *, narrow: bool) -> Iterator[RenderableType]:
    """Yield a table with a line for each timer; a narrow one leaves out the rules."""
    rows: list[list[Cell]] = [
        [
            Shrinking(safe(one.name)),
            *(() if narrow else (Shrinking(safe(one.rule) or _UNREADABLE, tail=0),)),
            _next(one, now),
            _last(one, now),
            str(one.running),
            f"{_length(now, one.declared)} ago",
        ]
        for one in found
    ]
    rule = () if narrow else ("RULE",)
    header = ("NAME", *rule, "NEXT", "LAST", "RUNNING", "DECLARED")
    numbers = ("RUNNING", "DECLARED")
    yield table(rows, header, right=numbers, optional=("DECLARED", "RUNNING"))
    if any(one.kind == "unknown" for one in found):
        yield Text(_UNREADABLE_TOLD, "red")
    if any(info.ahead for info in found):
        yield Text(_AHEAD_TOLD, "red")


def _next(one: TimerInfo, now: datetime) -> Cell:
    if one.ahead:
        return Text(f"silent for {duration(one.ahead)}", "red")
    if one.renamed_to:
        return Shrinking(f"now {safe(one.renamed_to)}", 0, "yellow")
    if one.pause is not None:
        end = "" if one.pause.until is None else f" {_length(one.pause.until, now)}"
        return Shrinking(f"paused{end}{_because(one.pause)}", 0, "yellow")
    if not one.is_declared:
        return Text("nobody runs it", "red")
    if one.next is None:
        otherwise = "after this run" if one.running else "never again"
        return _UNREADABLE if one.kind == "unknown" else otherwise
    return f"in {_length(one.next, now)}"


def _last(one: TimerInfo, now: datetime) -> Cell:
    if one.latest is None:
        return ""
    ago = f"{one.latest.outcome} {_length(now, one.latest.decided)} ago"
    style = _STYLES.get(one.latest.outcome, "")
    return Shrinking(joined(ago, safe(one.latest.reason)), 0, style)


def told_next(
    info: TimerInfo,
    ticks: Sequence[datetime],
    frozen: TimerPause | None,
    now: datetime,
    *,
    narrow: bool,
) -> Iterator[RenderableType]:
    """Yield when a timer ticks next, and what is in the way."""
    yield Text.assemble((safe(info.name), "bold"), f"  {safe(info.rule)}")
    if info.renamed_to:
        name = safe(info.renamed_to)
        yield Text(f"It is called {name} now: see 'tenure timers next {name}'.", "yellow")
        return
    if not info.is_declared:
        silence = _length(now, info.declared)
        told = f"Nobody runs it: no process that declares it was heard of for {silence}."
        yield Text(told, "red")
    if info.ahead:
        yield Text(
            f"It is silent for {duration(info.ahead)}, because it is ahead of the store's clock. "
            f"Check that clock, then 'tenure timers reset {safe(info.name)}' lets it tick again.",
            "red",
        )
    if info.pause is not None:
        long = until_when(info.pause, now, f"until 'tenure timers resume {safe(info.name)}'")
        yield Text(f"It is paused {long}{_because(info.pause)}.", "yellow")
    yield from frozen_line(frozen, now)
    if info.next is None and info.running:
        yield Text("It counts from the end of the run that is under way.")
        return
    held = [one for one in (info.pause, frozen) if one is not None]
    yield Text()
    yield told_times(ticks, now, zone=info.tz, skipped=held, narrow=narrow)


def told_times(
    ticks: Sequence[datetime],
    now: datetime,
    *,
    zone: str = "UTC",
    skipped: Sequence[TimerPause] = (),
    narrow: bool = False,
) -> RenderableType:
    """Return a table of instants; also as clocks in another zone show them."""
    if not ticks:
        return Text("It never ticks again.")
    zones = dict.fromkeys(("UTC", zone))
    date = "%a %m-%d %H:%M:%S" if narrow else "%a %Y-%m-%d %H:%M:%S"
    rows: list[list[Cell]] = [
        [
            *(one.astimezone(ZoneInfo(name)).strftime(date) for name in zones),
            _length(one, now),
            Text("skipped", "yellow") if any(_covers(pause, one) for pause in skipped) else "",
        ]
        for one in ticks
    ]
    return table(rows, (*zones, "IN", ""), right=("IN",))


def history_table(records: Sequence[TickRecord], *, narrow: bool) -> RenderableType:
    """Return a table with a line for each decision; a narrow one leaves out what others show."""
    date = "%m-%d %H:%M:%S" if narrow else TIME
    rows: list[list[Cell]] = [
        [
            one.nominal.strftime(date),
            Text(one.outcome, _STYLES.get(one.outcome, "")),
            _took(one),
            id_of(one.job, short=narrow),
            *(() if narrow else (safe(one.replica[:8]),)),
            Shrinking(_why(one, date), tail=0),
        ]
        for one in records
    ]
    replica = () if narrow else ("REPLICA",)
    columns = ("TICK (UTC)", "CAME TO", "TOOK", "JOB", *replica, "WHY")
    return table(rows, columns, right=("TOOK",), optional=("JOB",))


def _took(one: TickRecord) -> str:
    if one.started is None or one.finished is None:
        return ""
    return took(0, (one.finished - one.started) // timedelta(microseconds=1))


def _why(one: TickRecord, date: str) -> str:
    # The word "error" adds nothing to the error.
    why = safe(one.error or one.reason)
    if one.ticks > 1:
        more = " or more" if one.outcome == "missed" and one.ticks >= TICKS_COUNTED else ""
        return f"{one.ticks:,}x{more} {why} since {one.first.strftime(date)}"
    return joined(why, f"attempt {one.attempts}" if one.attempts > 1 else "")


def _because(pause: TimerPause) -> str:
    """Return the reason so that a sentence can go on after it."""
    reason = safe(pause.reason).rstrip(". ")
    return f": {reason}" if reason else ""


def _covers(pause: TimerPause, tick: datetime) -> bool:
    return pause.until is None or tick < pause.until


def _length(later: datetime, earlier: datetime) -> str:
    return duration(max(0.0, (later - earlier).total_seconds()))
