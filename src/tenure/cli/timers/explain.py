"""`tenure timers explain`: what a rule means, without a store and before it is declared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import click
from rich.text import Text

from tenure.cli.options import number_or_text
from tenure.cli.target import Target, store_command
from tenure.cli.text import plain
from tenure.cli.timers.table import tick_table
from tenure.core.calendar.rules import Cron, Rule, make_rule
from tenure.core.clock import SystemClock
from tenure.core.durations import seconds
from tenure.core.jobs.view import as_datetime
from tenure.errors import ConfigError

__all__ = ["explain"]


@click.command(
    epilog="""\b
Examples:
  tenure timers explain '*/20 9-17 * * 1-5' --tz Europe/Berlin
  tenure timers explain @daily --number 3
  tenure timers explain 90s"""
)
@click.argument("rule", nargs=-1, required=True)
@click.option("--tz", default="UTC", show_default=True, help="The time zone of a cron expression.")
@click.option(
    "-n",
    "--number",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="How many ticks to show.",
)
@store_command
def explain(target: Target, rule: tuple[str, ...], *, tz: str, number: int) -> None:
    """Show what a cron expression or a period means, and when it ticks next.

    Needs no store and changes nothing. Put RULE in quotes: the shell replaces a bare * with the
    names of files.
    """
    text = " ".join(rule)
    parsed = _rule(text, tz, is_quoted=len(rule) == 1)
    now = SystemClock().wall()
    ticks = [as_datetime(tick) for tick in islice(_ticks(parsed, now), number)]
    document = {"rule": text, "tz": tz, "words": parsed.words(), "next": [*map(plain, ticks)]}
    zone = parsed.zone if isinstance(parsed, Cron) else "UTC"
    shown = tick_table(ticks, as_datetime(now), zone=zone)
    target.screen.answer(document, Text(parsed.words()), Text(), shown)


def _rule(text: str, tz: str, *, is_quoted: bool) -> Rule:
    """Return the rule: a period if the text is one, else a cron expression."""
    period = number_or_text(text)
    with suppress(ConfigError):
        period = seconds(period, "every")
    if isinstance(period, float):
        return make_rule(every=period, tz=tz)
    try:
        return make_rule(cron=text, tz=tz)
    except ConfigError as error:
        if not is_quoted:
            hint = "Put the rule in quotes: the shell replaces a bare * with the names of files."
        elif text.isidentifier():
            hint = f"If it is the name of a timer: 'tenure timers next {text}'."
        else:
            raise
        msg = f"{error} {hint}"
        raise ConfigError(msg) from None


def _ticks(rule: Rule, after: int) -> Iterator[int]:
    while (tick := rule.next_after(after)) is not None:
        yield tick
        after = tick
