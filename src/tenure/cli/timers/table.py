"""How timers and schedules look on a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from rich.console import RenderableType
from rich.text import Text

from tenure.cli.jobs.table import id_of
from tenure.cli.pauses import TIME, because, how_long, length
from tenure.cli.tables import Cell, ShrinkingCell, table
from tenure.cli.text import age, duration, explanation, joined, safe, took
from tenure.core.schedules.steps import TICKS_COUNTED
from tenure.core.why import Why
from tenure.timers import TickRecord, TimerInfo, TimerPause

__all__ = [
    "freeze_lines",
    "history_table",
    "last_of",
    "listed",
    "next_lines",
    "next_of",
    "tick_table",
]

_UNREADABLE = "unreadable"
_UNREADABLE_EXPLAINED = "Timers with an unreadable rule were declared by a newer version of Tenure."

_AHEAD_EXPLAINED = (
    "A silent timer has a last tick that is ahead of the store's clock: the clock was wrong then, "
    "or is wrong now. Check it, then run 'tenure timers reset --all' to let them tick again."
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


def freeze_lines(freeze: TimerPause | None, now: datetime) -> Iterator[RenderableType]:
    """Yield a line if all timers are frozen."""
    if freeze is not None:
        end = how_long(freeze.until, now, "until 'tenure timers unfreeze'")
        yield Text(f"All timers are frozen {end}{because(freeze.reason)}.", "yellow")


def listed(timers: Sequence[TimerInfo], now: datetime, *, narrow: bool) -> Iterator[RenderableType]:
    """Yield a table with a row for each timer; a narrow one has no rules."""
    rows: list[list[Cell]] = [
        [
            ShrinkingCell(safe(timer.name)),
            *(() if narrow else (ShrinkingCell(safe(timer.rule) or _UNREADABLE, tail=0),)),
            next_of(timer, now),
            last_of(timer, now),
            str(timer.running),
            _ago(now, timer.declared),
        ]
        for timer in timers
    ]
    rule = () if narrow else ("RULE",)
    header = ("NAME", *rule, "NEXT", "LAST", "RUNNING", "DECLARED")
    numbers = ("RUNNING", "DECLARED")
    yield table(rows, header, right=numbers, optional=("DECLARED", "RUNNING"))
    if any(timer.kind == "unknown" for timer in timers):
        yield Text(_UNREADABLE_EXPLAINED, "red")
    if any(timer.ahead for timer in timers):
        yield Text(_AHEAD_EXPLAINED, "red")


def next_of(timer: TimerInfo, now: datetime) -> Cell:
    """Return when a timer ticks next, or why it does not."""
    if timer.ahead:
        return Text(f"silent for {duration(timer.ahead)}", "red")
    if timer.renamed_to:
        return ShrinkingCell(f"now {safe(timer.renamed_to)}", 0, "yellow")
    if timer.pause is not None:
        end = "" if timer.pause.until is None else f" {length(timer.pause.until, now)}"
        return ShrinkingCell(f"paused{end}{because(timer.pause.reason)}", 0, "yellow")
    if not timer.is_declared:
        return Text("no worker runs it", "red")
    if timer.next is None:
        otherwise = "after this run" if timer.running else "never again"
        return _UNREADABLE if timer.kind == "unknown" else otherwise
    return f"in {length(timer.next, now)}"


def last_of(timer: TimerInfo, now: datetime) -> Cell:
    """Return the outcome of its last tick."""
    latest = timer.latest
    if latest is None:
        return ""
    ago = f"{latest.outcome} {_ago(now, latest.decided)}"
    return ShrinkingCell(joined(ago, safe(latest.reason)), 0, _STYLES.get(latest.outcome, ""))


def _ago(now: datetime, instant: datetime) -> str:
    return f"{age(max(0.0, (now - instant).total_seconds()))} ago"


def next_lines(
    timer: TimerInfo,
    why: Why,
    ticks: Sequence[datetime],
    freeze: TimerPause | None,
    now: datetime,
    *,
    narrow: bool,
) -> Iterator[RenderableType]:
    """Yield why a timer ticks or does not, and its next ticks."""
    yield Text.assemble((safe(timer.name), "bold"), f"  {safe(timer.rule)}")
    yield from explanation(why)
    if timer.renamed_to or (timer.next is None and timer.running):
        return
    pauses = [pause for pause in (timer.pause, freeze) if pause is not None]
    yield Text()
    yield tick_table(ticks, now, zone=timer.tz, pauses=pauses, narrow=narrow)


def tick_table(
    ticks: Sequence[datetime],
    now: datetime,
    *,
    zone: str = "UTC",
    pauses: Sequence[TimerPause] = (),
    narrow: bool = False,
) -> RenderableType:
    """Return a table of ticks in UTC and in `zone`; ticks during a pause are marked as skipped."""
    if not ticks:
        return Text("It never ticks again.")
    zones = dict.fromkeys(("UTC", zone))
    date = "%a %m-%d %H:%M:%S" if narrow else "%a %Y-%m-%d %H:%M:%S"
    rows: list[list[Cell]] = [
        [
            *(tick.astimezone(ZoneInfo(name)).strftime(date) for name in zones),
            length(tick, now),
            Text("skipped", "yellow") if any(_covers(pause, tick) for pause in pauses) else "",
        ]
        for tick in ticks
    ]
    return table(rows, (*zones, "IN", ""), right=("IN",))


def history_table(records: Sequence[TickRecord], *, narrow: bool) -> RenderableType:
    """Return a table with a row for each decision; a narrow one has short ids and no replicas."""
    date = "%m-%d %H:%M:%S" if narrow else TIME
    rows: list[list[Cell]] = [
        [
            record.nominal.strftime(date),
            Text(record.outcome, _STYLES.get(record.outcome, "")),
            _took(record),
            id_of(record.job, short=narrow),
            *(() if narrow else (safe(record.replica[:8]),)),
            ShrinkingCell(_details(record, date), tail=0),
        ]
        for record in records
    ]
    replica = () if narrow else ("REPLICA",)
    columns = ("TICK (UTC)", "OUTCOME", "TOOK", "JOB", *replica, "DETAILS")
    return table(rows, columns, right=("TOOK",), optional=("JOB",))


def _took(record: TickRecord) -> str:
    if record.started is None or record.finished is None:
        return ""
    return took(0, (record.finished - record.started) // timedelta(microseconds=1))


def _details(record: TickRecord, date: str) -> str:
    # The reason "error" adds nothing to the error.
    why = safe(record.error or record.reason)
    if record.ticks > 1:
        is_more = record.outcome == "missed" and record.ticks >= TICKS_COUNTED
        more = " or more" if is_more else ""
        return f"{record.ticks:,}x{more} {why} since {record.first.strftime(date)}"
    return joined(why, f"attempt {record.attempts}" if record.attempts > 1 else "")


def _covers(pause: TimerPause, tick: datetime) -> bool:
    return pause.until is None or tick < pause.until
