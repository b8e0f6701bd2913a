"""`tenure timers`: what runs when, what became of it, and holding it off for a while."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
from rich.text import Text

from tenure.app import Tenure, engine_of
from tenure.cli.options import point_in_time
from tenure.cli.output import safe
from tenure.cli.target import Target, store_command
from tenure.cli.timers.explain import explain
from tenure.cli.timers.table import (
    TIME,
    frozen_line,
    history_table,
    listed,
    plain,
    told_next,
    until_when,
)
from tenure.core.jobs.view import as_datetime
from tenure.timers import TickRecord, TimerInfo, TimerPause

__all__ = ["timers"]

# Below this there is no room for rules beside what comes of them.
_NARROW = 75

_until_option = click.option(
    "--until",
    metavar="WHEN",
    callback=point_in_time,
    help="For how long (2h), or until when (18:00, 2026-12-01).",
)
_reason_option = click.option("--reason", default="", help="Why, for those who wonder.")


_INSTEAD = {
    "list": "'tenure timers ls' lists them.",
    **dict.fromkeys(
        ("show", "info", "describe", "status"),
        "'tenure timers next NAME' shows when it ticks, and 'tenure timers history NAME' what "
        "became of its last ticks.",
    ),
    **dict.fromkeys(("run", "fire"), "'tenure timers trigger NAME' has it run once, now."),
    **dict.fromkeys(("stop", "disable"), "'tenure timers pause NAME' lets none of its ticks run."),
    **dict.fromkeys(("start", "enable", "unpause"), "'tenure timers resume NAME' ends a pause."),
}


class _Timers(click.Group):
    """Who asks for what has another name here is told that name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if instead := _INSTEAD.get(args[0]):
            msg = f"There is no 'tenure timers {args[0]}': {instead}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Timers,
    epilog="""\b
Examples:
  tenure timers ls
  tenure timers next sync_orders
  tenure timers history sync_orders
  tenure timers pause sync_orders --until 2h --reason migration
  tenure timers freeze --until 18:00 --reason release
  tenure timers explain '*/20 9-17 * * 1-5' --tz Europe/Berlin""",
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

    async def look(app: Tenure) -> tuple[list[TimerInfo], TimerPause | None, datetime]:
        return await app.timers(), await app.timers_paused(), await _now(app)

    found, frozen, now = target.run_app(look)
    document = {**_about(target), "frozen": plain(frozen), "timers": [*map(plain, found)]}
    nothing = Text("There are no timers. A worker whose app declares some makes them known.")
    is_narrow = target.screen.is_terminal and target.screen.width < _NARROW
    told = listed(found, now, narrow=is_narrow) if found else [nothing]
    target.screen.answer(document, *frozen_line(frozen, now), *told)


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

    async def look(
        app: Tenure,
    ) -> tuple[TimerInfo, list[datetime], TimerPause | None, datetime]:
        timer = app.timer_handle(name)
        ticks = await timer.preview(number)
        return await timer.info(), ticks, await app.timers_paused(), await _now(app)

    info, ticks, frozen, now = target.run_app(look)
    document = {
        **_about(target),
        "name": name,
        "rule": info.rule,
        "tz": info.tz,
        "pause": plain(info.pause),
        "frozen": plain(frozen),
        "next": [*map(plain, ticks)],
    }
    is_narrow = target.screen.is_terminal and target.screen.width < _NARROW
    target.screen.answer(document, *told_next(info, ticks, frozen, now, narrow=is_narrow))


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
        return await app.timer_handle(name).history(number)

    records = target.run_app(look)
    document = {**_about(target), "name": name, "ticks": [*map(plain, records)]}
    told = Text(f"{safe(name)} has not ticked yet.")
    is_narrow = target.screen.is_narrow
    target.screen.answer(document, history_table(records, narrow=is_narrow) if records else told)


@timers.command(
    epilog="""\b
Examples:
  tenure timers pause sync_orders --reason migration
  tenure timers pause sync_orders --until 2h
  tenure timers pause sync_orders --until 2026-12-01T06:00+01:00"""
)
@click.argument("name")
@_reason_option
@_until_option
@store_command
def pause(target: Target, name: str, *, reason: str, until: datetime | float | None) -> None:
    """Let no tick of a timer run. What runs goes on."""
    target.announce()

    async def act(app: Tenure) -> tuple[TimerPause | None, datetime]:
        await app.timer_handle(name).pause(until=until, reason=reason)
        return (await app.timer_handle(name).info()).pause, await _now(app)

    done, now = target.run_app(act)
    document = {**_about(target), "name": name, "pause": plain(done)}
    long = until_when(done, now, "until it is resumed")
    target.screen.answer(document, Text(f"Paused {safe(name)} {long}."))


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
        return await app.timer_handle(name).resume()

    was_paused = target.run_app(act)
    said = f"Resumed {safe(name)}." if was_paused else f"{safe(name)} was not paused."
    target.screen.answer({**_about(target), "name": name, "was_paused": was_paused}, Text(said))


@timers.command(
    epilog="""\b
Examples:
  tenure timers reset sync_orders
  tenure timers reset sync_orders 'weekly report'
  tenure timers reset --all"""
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All that are ahead, by more than a minute.")
@store_command
def reset(target: Target, names: tuple[str, ...], *, every: bool) -> None:
    """Let timers tick from now on that are ahead of the store's clock.

    They ticked while that clock was wrong, and stay silent until it has caught up with their last
    tick. Ticks that have run ahead of their time may run again when it comes.
    """
    if bool(names) == every:
        raise click.UsageError("Say which timers: NAME..., or --all for those that are ahead.")
    target.announce()

    async def act(app: Tenure) -> tuple[dict[str, bool], datetime]:
        chosen = names or [info.name for info in await app.timers() if info.ahead]
        handles = [app.timer_handle(name) for name in dict.fromkeys(chosen)]
        for handle in handles:
            await handle.info()  # a name that is wrong ends it before anything is changed
        return {handle.name: await handle.reset() for handle in handles}, await _now(app)

    outcomes, now = target.run_app(act)
    listed = [{"name": name, "was_ahead": outcome} for name, outcome in outcomes.items()]
    told = [Text(_told_reset(name, now, is_done=outcome)) for name, outcome in outcomes.items()]
    nothing = Text("No timer is ahead of the store's clock.")
    target.screen.answer(
        {**_about(target), "now": plain(now), "timers": listed}, *told or [nothing]
    )
    if any(outcomes.values()):
        target.screen.aside(
            "Workers notice within 20 s. Ticks that have run ahead of their time may run again."
        )


def _told_reset(name: str, now: datetime, *, is_done: bool) -> str:
    if not is_done:
        return f"{safe(name)} was not ahead of the store's clock."
    return f"Reset {safe(name)}: it ticks from {now:{TIME}} UTC on, the store's time now."


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

    async def act(app: Tenure) -> tuple[str, bool]:
        timer = app.timer_handle(name)
        # Asked first: afterwards the trigger itself counts as a sign of life.
        is_declared = (await timer.info()).is_declared
        return (await timer.trigger()).id, is_declared

    job, is_declared = target.run_app(act)
    document = {**_about(target), "name": name, "job": job, "is_declared": is_declared}
    target.screen.answer(document, Text(f"Triggered {safe(name)}: job {job}"))
    if not is_declared:
        target.screen.aside("It waits: no process that declares this timer was heard of lately.")
    target.screen.aside(f"'tenure jobs show {job[-12:]}' tells how it goes.")


@timers.command(
    epilog="""\b
Examples:
  tenure timers freeze --reason release --until 18:00
  tenure timers unfreeze"""
)
@_reason_option
@_until_option
@click.option("--end", is_flag=True, help="End a freeze, as 'tenure timers unfreeze' does.")
@store_command
def freeze(target: Target, *, reason: str, until: datetime | float | None, end: bool) -> None:
    """Let no tick of any timer run. What runs goes on."""
    if end and (reason or until is not None):
        raise click.UsageError("--end ends a freeze; it takes neither --reason nor --until.")
    target.announce()
    if end:
        _unfreeze(target)
        return

    async def act(app: Tenure) -> tuple[TimerPause | None, datetime]:
        await app.pause_timers(until=until, reason=reason)
        return await app.timers_paused(), await _now(app)

    frozen, now = target.run_app(act)
    document = {**_about(target), "frozen": plain(frozen)}
    target.screen.answer(document, *frozen_line(frozen, now))


@timers.command(
    epilog="""\b
Example:
  tenure timers unfreeze"""
)
@store_command
def unfreeze(target: Target) -> None:
    """End a freeze of all timers. Ticks that came meanwhile stay skipped."""
    target.announce()
    _unfreeze(target)


def _unfreeze(target: Target) -> None:
    was_frozen = target.run_app(Tenure.resume_timers)
    said = "All timers go on." if was_frozen else "The timers were not frozen."
    document = {**_about(target), "frozen": None, "was_frozen": was_frozen}
    target.screen.answer(document, Text(said))


timers.add_command(explain)


def _about(target: Target) -> dict[str, Any]:
    return target.about(target.store())


async def _now(app: Tenure) -> datetime:
    services = engine_of(app).services_here()
    assert services is not None
    return as_datetime((await services.store.ping()).now)
