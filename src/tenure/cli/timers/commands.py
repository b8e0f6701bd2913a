"""`tenure timers ls`, `next`, `history`, `trigger` and `reset`: list, explain and run timers."""

from __future__ import annotations

from datetime import datetime

import click
from rich.text import Text

from tenure.app import Tenure
from tenure.cli.pauses import TIME
from tenure.cli.target import Target, store_command, store_group
from tenure.cli.text import plain, safe
from tenure.cli.timers.explain import explain
from tenure.cli.timers.pause import freeze, pause, resume, unfreeze
from tenure.cli.timers.table import freeze_lines, history_table, listed, next_lines
from tenure.core.jobs.view import as_datetime
from tenure.core.why import Why
from tenure.stores.contract import Store
from tenure.timers import TickRecord, TimerInfo, TimerPause

__all__ = ["timers"]

# Below this, rules leave too little room for the other columns.
_NARROW = 75

_INSTEAD = {
    **dict.fromkeys(
        ("show", "info", "describe", "status"),
        "'tenure timers next NAME' shows its next ticks, and 'tenure timers history NAME' its last "
        "ticks.",
    ),
    **dict.fromkeys(("run", "fire"), "'tenure timers trigger NAME' runs it once, now."),
    **dict.fromkeys(("stop", "disable"), "'tenure timers pause NAME' skips all its ticks."),
    **dict.fromkeys(("start", "enable", "unpause"), "'tenure timers resume NAME' ends a pause."),
}


@store_group(
    instead=_INSTEAD,
    epilog="""\b
Examples:
  tenure timers ls
  tenure timers next sync_orders
  tenure timers history sync_orders
  tenure timers pause sync_orders --for 2h --reason migration
  tenure timers freeze --until 18:00 --reason release
  tenure timers explain '*/20 9-17 * * 1-5' --tz Europe/Berlin""",
)
def timers() -> None:
    """List, explain, pause and trigger timers and schedules."""


for command in (explain, pause, resume, freeze, unfreeze):
    timers.add_command(command)


@timers.command(
    epilog="""\b
Examples:
  tenure timers ls
  tenure timers ls --json | jq -r '.timers[] | select(.pause != null) | .name'"""
)
@store_command
def ls(target: Target) -> None:
    """List timers and schedules: rule, next tick, last tick, unfinished runs."""
    target.announce()

    async def look(app: Tenure, store: Store) -> tuple[list[TimerInfo], TimerPause | None, int]:
        return await app.timers(), await app.timers_paused(), (await store.ping()).now

    infos, pause_of_all, micros = target.run_app(look)
    document = {
        **target.about(target.store()),
        "frozen": plain(pause_of_all),
        "timers": [*map(plain, infos)],
    }
    now = as_datetime(micros)
    nothing = Text("There are no timers. A worker registers the timers that its app declares.")
    shown = listed(infos, now, narrow=_is_narrow(target)) if infos else [nothing]
    target.screen.answer(document, *freeze_lines(pause_of_all, now), *shown)


@timers.command(
    "next",
    epilog="""\b
Examples:
  tenure timers next sync_orders
  tenure timers next sync_orders --number 20""",
)
@click.argument("name")
@click.option(
    "-n",
    "--number",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="How many ticks to show.",
)
@store_command
def next_(target: Target, name: str, *, number: int) -> None:
    """Show the next ticks of a timer, and what keeps it from ticking."""
    target.announce()

    async def look(
        app: Tenure, store: Store
    ) -> tuple[TimerInfo, Why, list[datetime], TimerPause | None, int]:
        timer = app.timer_handle(name)
        ticks = await timer.preview(number)
        info, why = await timer.info(), await timer.why()
        return info, why, ticks, await app.timers_paused(), (await store.ping()).now

    info, why, ticks, pause_of_all, now = target.run_app(look)
    document = {
        **target.about(target.store()),
        "name": name,
        "rule": info.rule,
        "tz": info.tz,
        "pause": plain(info.pause),
        "frozen": plain(pause_of_all),
        "next": [*map(plain, ticks)],
        "why": plain(why),
    }
    lines = next_lines(info, why, ticks, pause_of_all, as_datetime(now), narrow=_is_narrow(target))
    target.screen.answer(document, *lines)


def _is_narrow(target: Target) -> bool:
    return target.screen.is_terminal and target.screen.width < _NARROW


@timers.command(
    epilog="""\b
Examples:
  tenure timers history sync_orders
  tenure timers history sync_orders --number 100 --json"""
)
@click.argument("name")
@click.option(
    "-n",
    "--number",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="How many records to show.",
)
@store_command
def history(target: Target, name: str, *, number: int) -> None:
    """Show the last ticks of a timer, newest first: outcome, duration, job, error."""
    target.announce()

    async def look(app: Tenure, _store: Store) -> list[TickRecord]:
        return await app.timer_handle(name).history(number)

    records = target.run_app(look)
    document = {
        **target.about(target.store()),
        "name": name,
        "ticks": [*map(plain, records)],
    }
    nothing = Text(f"{safe(name)} has not ticked yet.")
    is_narrow = target.screen.is_narrow
    target.screen.answer(document, history_table(records, narrow=is_narrow) if records else nothing)


@timers.command(
    epilog="""\b
Examples:
  tenure timers reset sync_orders
  tenure timers reset sync_orders 'weekly report'
  tenure timers reset --all"""
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--all", "all_ahead", is_flag=True, help="Reset all timers that are ahead by over a minute."
)
@store_command
def reset(target: Target, names: tuple[str, ...], *, all_ahead: bool) -> None:
    """Let timers tick again that are ahead of the store's clock.

    A timer that ticked while the clock was wrong stays silent until the clock has caught up with
    its last tick. Ticks that ran ahead of their time may run again when their time comes.
    """
    if bool(names) == all_ahead:
        raise click.UsageError("Name timers: NAME..., or use --all for all that are ahead.")
    target.announce()

    async def act(app: Tenure, store: Store) -> tuple[dict[str, bool], int]:
        chosen = names or [info.name for info in await app.timers() if info.ahead]
        handles = [app.timer_handle(name) for name in dict.fromkeys(chosen)]
        for handle in handles:
            await handle.info()  # raises for a wrong name before anything is changed
        outcomes = {handle.name: await handle.reset() for handle in handles}
        return outcomes, (await store.ping()).now

    outcomes, micros = target.run_app(act)
    now = as_datetime(micros)
    documents = [{"name": name, "was_ahead": was_ahead} for name, was_ahead in outcomes.items()]
    lines = [
        Text(_reset_line(name, now, was_ahead=was_ahead)) for name, was_ahead in outcomes.items()
    ]
    nothing = Text("No timer is ahead of the store's clock.")
    target.screen.answer(
        {**target.about(target.store()), "now": plain(now), "timers": documents},
        *lines or [nothing],
    )
    if any(outcomes.values()):
        target.screen.remark(
            "Workers notice within 20 s. Ticks that ran ahead of their time may run again."
        )


def _reset_line(name: str, now: datetime, *, was_ahead: bool) -> str:
    if not was_ahead:
        return f"{safe(name)} was not ahead of the store's clock."
    return f"Reset {safe(name)}: it ticks again from {now:{TIME}} UTC, the store's time now."


@timers.command(
    epilog="""\b
Example:
  tenure timers trigger sync_orders"""
)
@click.argument("name")
@store_command
def trigger(target: Target, name: str) -> None:
    """Run a timer once, now, even if it is paused. Its next tick stays the same."""
    target.announce()

    async def act(app: Tenure, _store: Store) -> tuple[str, bool]:
        timer = app.timer_handle(name)
        # Read first: a trigger also marks the timer as declared.
        is_declared = (await timer.info()).is_declared
        return (await timer.trigger()).id, is_declared

    job, is_declared = target.run_app(act)
    about = target.about(target.store())
    document = {**about, "name": name, "job": job, "is_declared": is_declared}
    target.screen.answer(document, Text(f"Triggered {safe(name)}: job {job}"))
    if not is_declared:
        target.screen.remark("It waits: no process has declared this timer for a minute.")
    target.screen.remark(f"Follow it with 'tenure jobs show {job[-12:]}'.")
