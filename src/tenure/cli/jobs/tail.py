"""`tenure jobs tail`: follow changes of jobs as they happen."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
from rich.text import Text

from tenure.cli.jobs.follower import PAGES, Change, Follower
from tenure.cli.jobs.selection import PAGE, filter_options
from tenure.cli.jobs.table import STYLES, document, id_of, progress_of, state_of, summary
from tenure.cli.options import span
from tenure.cli.screen import Screen
from tenure.cli.target import Target, explained, store_command
from tenure.cli.text import instant, safe
from tenure.core.jobs.states import STATES, JobState
from tenure.core.jobs.view import as_datetime
from tenure.errors import StoreUnavailable
from tenure.stores.contract import Store, Watch

__all__ = ["tail"]

# One poll sees all jobs of a burst.
_BURST = 0.2
_INTERVAL_MIN = 0.1

# "running -> cancelling"
_MOVE_WIDTH = 21
_STATE_WIDTH = 10
_NARROW = 80


@click.command(
    epilog="""\b
Examples:
  tenure jobs tail
  tenure jobs tail --task resize --state failed -n 0
  tenure jobs tail --json | jq -r 'select(.state == "failed") | .error'"""
)
@filter_options
@click.option("--state", type=click.Choice(STATES), help="Only changes to this state.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, PAGE),
    default=10,
    show_default=True,
    help="How many earlier changes to show first.",
)
@click.option(
    "--interval",
    metavar="TIME",
    callback=span,
    default="1s",
    show_default=True,
    help="How often to poll; a new job triggers a poll at once.",
)
@store_command
def tail(
    target: Target, *, state: JobState | None, lines: int, interval: float, **filters: str | None
) -> None:
    """Follow changes of jobs until Ctrl-C, with a line for each change.

    With --json, each line is a JSON document.

    Each poll reads the newest 200 jobs (up to 1,000 if so many are new), the newest 200 running
    jobs, and up to 1,000 unfinished jobs of earlier polls. If a job changes several times between
    two polls, only its last state is shown. An older job that starts and finishes between two polls
    is not shown.
    """
    if interval < _INTERVAL_MIN:
        raise click.BadParameter("it must be at least 100ms.", param_hint="'--interval'")
    target.screen.is_stream = True
    target.announce()
    if target.screen.is_terminal:
        target.screen.remark("Times are UTC. Ctrl-C ends it.")
    feed = _Feed(target.screen, filters, state, interval)
    with suppress(KeyboardInterrupt):  # the normal end
        target.run(lambda store: feed.run(store, lines))


class _Feed:
    """Shows the changes that a follower returns, poll after poll."""

    def __init__(
        self,
        screen: Screen,
        filters: dict[str, str | None],
        state: JobState | None,
        interval: float,
    ) -> None:
        self._screen = screen
        self._filters = filters
        self._state = state
        self._interval = interval
        self._is_away = False

    async def run(self, store: Store, lines: int) -> None:
        follower = Follower(store, self._filters)
        self._show(await follower.begin(self._state, lines), follower.now)
        while True:
            topics = follower.topics
            async with store.watch(*topics) as bell:
                while topics == follower.topics:
                    await self._poll(follower)
                    await self._wait(store, bell)

    async def _poll(self, follower: Follower) -> None:
        try:
            changes = await follower.poll(self._state)
        except StoreUnavailable as error:
            if not self._is_away:
                problem = {"error": str(error), "kind": type(error).__name__}
                self._remark(f"{explained(error)} Retrying.", problem)
            self._is_away = True
            return
        if self._is_away:
            self._screen.remark("The store answers again.")
            self._is_away = False
        if follower.has_gap:
            text = f"More than {PAGE * PAGES:,} jobs came since the last poll; some are not shown."
            self._remark(text, {"time": instant(follower.now), "gap": True})
        self._show(changes, follower.now)

    def _remark(self, text: str, problem: dict[str, Any]) -> None:
        """Show that changes may be missing: on stderr, or with --json among the changes."""
        self._screen.remark(text)
        if self._screen.as_json:
            self._screen.answer(problem)
            sys.stdout.flush()

    async def _wait(self, store: Store, bell: Watch) -> None:
        if await bell.wait(self._interval):
            await store.clock.sleep(min(_BURST, self._interval))

    def _show(self, changes: Sequence[Change], now: int) -> None:
        for change in changes:
            self._screen.answer(_document(change), self._line(change, now))
        sys.stdout.flush()

    def _line(self, change: Change, now: int) -> Text:
        """Return a change as one line that fits the terminal."""
        job, is_terminal = change.job, self._screen.is_terminal
        when = f"{as_datetime(change.at):%H:%M:%S}" if is_terminal else instant(change.at) or ""
        state = state_of(job)
        move = state if change.was in (None, state) else f"{change.was} -> {state}"
        move = move.ljust(_MOVE_WIDTH)
        if is_terminal and self._screen.width < _NARROW:
            move = state.ljust(_STATE_WIDTH)  # leaves room for what matters most
        line = Text.assemble(
            (when, "dim"),
            f"  {id_of(job.id, short=self._screen.is_narrow)}  ",
            (move, STYLES[job.state]),
            f"  {safe(job.task)}",
            f" #{job.attempt}" if job.attempt else "",
        )
        words = progress_of(job) if job.state == "running" else summary(job, now)
        if words:
            line.append(f"  {safe(words)}")
        if is_terminal and line.cell_len > self._screen.width:
            line.truncate(self._screen.width - 2)
            line.append("..")
        return line


def _document(change: Change) -> dict[str, Any]:
    """Return the change, and what a list shows about the job except its arguments and headers."""
    fields = {"time": instant(change.at), "was": change.was, **document(change.job)}
    del fields["arguments"], fields["headers"]
    return fields
