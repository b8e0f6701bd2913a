"""`tenure timers`: what runs when, what became of it, and holding it off for a while."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from tenure.app import Tenure
from tenure.cli.parameters import point_in_time
from tenure.cli.show import Cell, Shrinking, duration, safe, table
from tenure.cli.target import Target, store_command
from tenure.core.clock import SystemClock
from tenure.core.rules import make_rule
from tenure.core.views import as_datetime
from tenure.timers import Pause, TickRecord, TimerInfo

__all__ = ["timers"]

_STYLES = {"succeeded": "green", "failed": "red", "missed": "red", "skipped": "yellow"}


@click.group(
    epilog="""\b
Examples:
  tenure timers ls
  tenure timers next sync_orders
  tenure timers history sync_orders
  tenure timers pause sync_orders --until 2h --reason migration
  tenure timers freeze --until 18:00 --reason release
  tenure timers explain '*/20 9-17 * * 1-5' --tz Europe/Berlin"""
)
def timers() -> None:
    """See what runs when, what became of it; pause it, trigger it."""


@timers.command(
    epilog="""\b
Examples:
  tenure timers ls
  tenure timers ls --json | jq -r '.timers[] | select(.pause != null) | .name'"""
)
@store_command
def ls(target: Target) -> None:
    """List all timers and schedules that the store knows."""
    target.announce()

    async def look(app: Tenure) -> tuple[list[TimerInfo], Pause | None, datetime]:
        now = as_datetime(await app.timers.store.now())
        return await app.timers.all(), await app.timers.frozen(), now

    found, frozen, now = target.run_app(look)
    document = {
        **_about(target),
        "frozen": _plain(frozen),
        "timers": [_plain(one) for one in found],
    }
    nothing = Text("There are no timers. A worker that declares some makes them known.")
    target.screen.answer(document, *_frozen(frozen), _listed(found, now) if found else nothing)


@timers.command(
    "next",
    epilog="""\b
Examples:
  tenure timers next sync_orders
  tenure timers next sync_orders --number 20""",
)
@click.argument("name")
@click.option(
    "--number",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="How many ticks to show.",
)
@store_command
def next_(target: Target, name: str, *, number: int) -> None:
    """Show when the next ticks of a timer are due."""
    target.announce()

    async def look(app: Tenure) -> tuple[TimerInfo, list[datetime], datetime]:
        timer = app.timers[name]
        now = as_datetime(await app.timers.store.now())
        return await timer.info(), await timer.preview(number), now

    info, ticks, now = target.run_app(look)
    document = {**_about(target), "name": name, "rule": info.rule, "next": [*map(_time, ticks)]}
    target.screen.answer(document, *_told_next(info, ticks, now))


@timers.command(
    epilog="""\b
Examples:
  tenure timers history sync_orders
  tenure timers history sync_orders --number 100 --json"""
)
@click.argument("name")
@click.option(
    "--number",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="How many records to show.",
)
@store_command
def history(target: Target, name: str, *, number: int) -> None:
    """Show what became of the last ticks, newest first: run, skipped and why, missed."""
    target.announce()

    async def look(app: Tenure) -> list[TickRecord]:
        return await app.timers[name].history(number)

    records = target.run_app(look)
    document = {**_about(target), "name": name, "ticks": [_plain(one) for one in records]}
    nothing = Text(f"{safe(name)} has not ticked yet.")
    target.screen.answer(document, _told_history(records) if records else nothing)


@timers.command(
    epilog="""\b
Examples:
  tenure timers pause sync_orders --reason migration
  tenure timers pause sync_orders --until 2h
  tenure timers pause sync_orders --until 2026-12-01T06:00+01:00"""
)
@click.argument("name")
@click.option("--reason", default="", help="Why, for those who wonder.")
@click.option(
    "--until", callback=point_in_time, help="For how long (2h), or until when (18:00, 2026-12-01)."
)
@store_command
def pause(target: Target, name: str, *, reason: str, until: datetime | float | None) -> None:
    """Let no tick of a timer run. What runs goes on."""
    target.announce()

    async def act(app: Tenure) -> Pause | None:
        await app.timers[name].pause(reason, until)
        return (await app.timers[name].info()).pause

    done = target.run_app(act)
    document = {**_about(target), "name": name, "pause": _plain(done)}
    target.screen.answer(document, Text(f"Paused {safe(name)}{_until(done)}."))


@timers.command(
    epilog="""\b
Example:
  tenure timers resume sync_orders"""
)
@click.argument("name")
@store_command
def resume(target: Target, name: str) -> None:
    """End a pause. Ticks that came meanwhile stay skipped."""
    target.announce()

    async def act(app: Tenure) -> bool:
        return await app.timers[name].resume()

    was_paused = target.run_app(act)
    said = "Resumed" if was_paused else "Was not paused:"
    document = {**_about(target), "name": name, "was_paused": was_paused}
    target.screen.answer(document, Text(f"{said} {safe(name)}."))


@timers.command(
    epilog="""\b
Example:
  tenure timers trigger sync_orders"""
)
@click.argument("name")
@store_command
def trigger(target: Target, name: str) -> None:
    """Have a timer run once, now, also while it is paused. Its next tick comes as ever."""
    target.announce()

    async def act(app: Tenure) -> str:
        return (await app.timers[name].trigger()).id

    job = target.run_app(act)
    document = {**_about(target), "name": name, "job": job}
    said = f"Triggered {safe(name)}: job {job}. 'tenure jobs show {job[-12:]}' tells how it goes."
    target.screen.answer(document, Text(said))


@timers.command(
    epilog="""\b
Examples:
  tenure timers freeze --reason release --until 18:00
  tenure timers freeze --end"""
)
@click.option("--reason", default="", help="Why, for those who wonder.")
@click.option(
    "--until", callback=point_in_time, help="For how long (2h), or until when (18:00, 2026-12-01)."
)
@click.option("--end", is_flag=True, help="End a freeze.")
@store_command
def freeze(target: Target, *, reason: str, until: datetime | float | None, end: bool) -> None:
    """Let no tick of any timer run. What runs goes on."""
    if end and (reason or until is not None):
        raise click.UsageError("--end ends a freeze; it takes neither --reason nor --until.")
    target.announce()

    async def act(app: Tenure) -> tuple[bool, Pause | None]:
        if end:
            return await app.unfreeze(), None
        await app.freeze(reason, until)
        return True, await app.timers.frozen()

    changed, frozen = target.run_app(act)
    said = f"All timers are frozen{_until(frozen)}."
    if end:
        said = "All timers go on." if changed else "They were not frozen."
    target.screen.answer({**_about(target), "frozen": _plain(frozen)}, Text(said))


@timers.command(
    epilog="""\b
Examples:
  tenure timers explain '*/20 9-17 * * 1-5' --tz Europe/Berlin
  tenure timers explain @daily --number 3
  tenure timers explain 90s"""
)
@click.argument("rule")
@click.option("--tz", default="UTC", show_default=True, help="The zone in which it is read.")
@click.option(
    "--number",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="How many ticks to show.",
)
@store_command
def explain(target: Target, rule: str, *, tz: str, number: int) -> None:
    """Say in words what a cron expression or a period means, and when it ticks next.

    Needs no store, and changes nothing.
    """
    is_period = len(rule.split()) == 1 and not rule.startswith("@")
    made = make_rule(every=rule if is_period else None, cron=None if is_period else rule, tz=tz)
    instant = SystemClock().wall()
    now = as_datetime(instant)
    ticks: list[datetime] = []
    while len(ticks) < number and (tick := made.next_after(instant)) is not None:
        ticks.append(as_datetime(tick))
        instant = tick
    document = {"rule": rule, "tz": tz, "words": made.words(), "next": [*map(_time, ticks)]}
    target.screen.answer(document, Text(made.words()), _times(ticks, now))


def _about(target: Target) -> dict[str, Any]:
    return target.about(target.store())


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return msgspec.to_builtins(value)


def _time(moment: datetime) -> str:
    return moment.isoformat()


def _until(pause: Pause | None) -> str:
    if pause is None or pause.until is None:
        return " until it is resumed"
    return f" until {pause.until:%Y-%m-%d %H:%M:%S} UTC"


def _frozen(frozen: Pause | None) -> Iterator[RenderableType]:
    if frozen is not None:
        why = f": {safe(frozen.reason)}" if frozen.reason else ""
        yield Text(f"All timers are frozen{_until(frozen)}{why}.", "yellow")
        yield Text()


def _listed(found: list[TimerInfo], now: datetime) -> RenderableType:
    rows: list[list[Cell]] = [
        [safe(one.name), Shrinking(safe(one.rule)), *_state(one, now), str(one.running)]
        for one in found
    ]
    return table(rows, ("NAME", "RULE", "NEXT", "LAST", "RUNNING"), right=("RUNNING",))


def _state(one: TimerInfo, now: datetime) -> tuple[Cell, Cell]:
    last: Cell = ""
    if one.latest is not None:
        ago = duration(max(0.0, (now - one.latest.decided).total_seconds()))
        said = one.latest.outcome + (f" ({one.latest.reason})" if one.latest.reason else "")
        last = Text(f"{safe(said)} {ago} ago", _STYLES.get(one.latest.outcome, ""))
    if one.pause is not None:
        return Text(f"paused{_until(one.pause)}", "yellow"), last
    if not one.is_declared:
        return Text("nobody runs it", "red"), last
    if one.next is None:
        return "never again", last
    return f"in {duration(max(0.0, (one.next - now).total_seconds()))}", last


def _told_next(info: TimerInfo, ticks: list[datetime], now: datetime) -> Iterator[RenderableType]:
    yield Text.assemble((safe(info.name), "bold"), f"  {safe(info.rule)}")
    if info.pause is not None:
        yield Text(f"It is paused{_until(info.pause)}; ticks before that are skipped.", "yellow")
    yield _times(ticks, now)


def _times(ticks: list[datetime], now: datetime) -> RenderableType:
    if not ticks:
        return Text("It never ticks again.")
    rows: list[list[Cell]] = [
        [f"{one:%a %Y-%m-%d %H:%M:%S}", duration((one - now).total_seconds())] for one in ticks
    ]
    return table(rows, ("UTC", "IN"), right=("IN",))


def _told_history(records: list[TickRecord]) -> RenderableType:
    rows: list[list[Cell]] = []
    for one in records:
        several = f" (and {one.ticks - 1} before)" if one.ticks > 1 else ""
        took = ""
        if one.started is not None and one.finished is not None:
            took = duration((one.finished - one.started).total_seconds())
        rows.append(
            [
                f"{one.nominal:%Y-%m-%d %H:%M:%S}{several}",
                Text(one.outcome, _STYLES.get(one.outcome, "")),
                Shrinking(safe(one.error or one.reason)),
                one.replica[:8],
                took,
            ]
        )
    return table(rows, ("TICK (UTC)", "CAME TO", "WHY", "REPLICA", "TOOK"), right=("TOOK",))
