"""`tenure timers pause`, `resume`, `freeze` and `unfreeze`: skip the ticks of one or all timers."""

from __future__ import annotations

from datetime import datetime

import click
from rich.text import Text

from tenure.app import Tenure
from tenure.cli.pauses import because, how_long, pause_options
from tenure.cli.target import Target, store_command
from tenure.cli.text import plain, safe
from tenure.cli.timers.table import freeze_lines
from tenure.core.jobs.view import as_datetime
from tenure.stores.contract import Store
from tenure.timers import TimerPause

__all__ = ["freeze", "pause", "resume", "unfreeze"]


@click.command(
    epilog="""\b
Examples:
  tenure timers pause sync_orders --reason migration
  tenure timers pause sync_orders --for 2h
  tenure timers pause sync_orders --until 2026-12-01T06:00+01:00"""
)
@click.argument("name")
@pause_options
@store_command
def pause(target: Target, name: str, *, until: datetime | float | None, reason: str) -> None:
    """Skip the ticks of a timer. Current runs continue. Another pause replaces the first."""
    target.announce()

    async def act(app: Tenure, store: Store) -> tuple[TimerPause | None, int]:
        await app.timer_handle(name).pause(until=until, reason=reason)
        return (await app.timer_handle(name).info()).pause, (await store.ping()).now

    stored, now = target.run_app(act)
    document = {**target.about(target.store()), "name": name, "pause": plain(stored)}
    until = None if stored is None else stored.until
    end = how_long(until, as_datetime(now), "until it is resumed")
    target.screen.answer(document, Text(f"Paused {safe(name)} {end}{because(reason)}."))


@click.command(
    epilog="""\b
Example:
  tenure timers resume sync_orders"""
)
@click.argument("name")
@store_command
def resume(target: Target, name: str) -> None:
    """End the pause of a timer. Ticks skipped meanwhile do not run."""
    target.announce()

    async def act(app: Tenure, _store: Store) -> bool:
        return await app.timer_handle(name).resume()

    was_paused = target.run_app(act)
    document = {**target.about(target.store()), "name": name, "was_paused": was_paused}
    answer = f"Resumed {safe(name)}." if was_paused else f"{safe(name)} was not paused."
    target.screen.answer(document, Text(answer))


@click.command(
    epilog="""\b
Examples:
  tenure timers freeze --until 18:00 --reason release
  tenure timers unfreeze"""
)
@pause_options
@click.option("--end", is_flag=True, help="End a freeze, as 'tenure timers unfreeze' does.")
@store_command
def freeze(target: Target, *, until: datetime | float | None, reason: str, end: bool) -> None:
    """Skip the ticks of all timers. Current runs continue. Another freeze replaces the first."""
    if end and (reason or until is not None):
        raise click.UsageError("--end ends a freeze; use it without --until, --for and --reason.")
    target.announce()
    if end:
        _unfreeze(target)
        return

    async def act(app: Tenure, store: Store) -> tuple[TimerPause | None, int]:
        await app.pause_timers(until=until, reason=reason)
        return await app.timers_paused(), (await store.ping()).now

    stored, now = target.run_app(act)
    document = {**target.about(target.store()), "frozen": plain(stored)}
    target.screen.answer(document, *freeze_lines(stored, as_datetime(now)))


@click.command(
    epilog="""\b
Example:
  tenure timers unfreeze"""
)
@store_command
def unfreeze(target: Target) -> None:
    """End a freeze of all timers. Ticks skipped meanwhile do not run."""
    target.announce()
    _unfreeze(target)


def _unfreeze(target: Target) -> None:
    was_frozen = target.run_app(lambda app, _store: app.resume_timers())
    answer = "All timers tick again." if was_frozen else "The timers were not frozen."
    document = {**target.about(target.store()), "frozen": None, "was_frozen": was_frozen}
    target.screen.answer(document, Text(answer))
