"""`tenure jobs tail`: what happens to jobs, as it happens."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
from rich.text import Text

from tenure.cli.jobs.follower import PAGES, Change, Follower
from tenure.cli.jobs.selection import PAGE, narrowing
from tenure.cli.jobs.table import STYLES, about, document, id_of, instant, progress_of, state_of
from tenure.cli.options import span
from tenure.cli.output import Screen, safe
from tenure.cli.target import Target, explained, store_command
from tenure.core.jobs.states import STATES, JobState
from tenure.core.jobs.view import as_datetime
from tenure.errors import StoreUnavailable
from tenure.stores.contract import Store, Watch

__all__ = ["tail"]

# Jobs that come in a burst are seen in one look.
_BURST = 0.2
_INTERVAL_MIN = 0.1

# "running -> cancelling"
_MOVE_WIDTH = 21


@click.command(
    epilog="""\b
Examples:
  tenure jobs tail
  tenure jobs tail --task resize --state failed -n 0
  tenure jobs tail --json | jq -r 'select(.state == "failed") | .error'"""
)
@narrowing
@click.option("--state", type=click.Choice(STATES), help="Only what has led to this state.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, PAGE),
    default=10,
    show_default=True,
    help="How much of the past to begin with.",
)
@click.option(
    "--interval",
    metavar="TIME",
    callback=span,
    default="1s",
    show_default=True,
    help="How long to wait for a wake-up before looking anyway.",
)
@store_command
def tail(
    target: Target, *, state: JobState | None, lines: int, interval: float, **wanted: str | None
) -> None:
    """Follow what happens to jobs, until Ctrl-C.

    There is a line for each change; with --json, each line is a document.

    It looks again and again, at the newest 200 jobs (up to 1,000 if so many are new), the newest
    200 that run, and 1,000 that it has seen waiting or running. So between two looks, of a job
    only the last state is seen; and of a job that is older than these, nothing if it starts and
    ends in that time.
    """
    if interval < _INTERVAL_MIN:
        raise click.BadParameter("it must be at least 100ms.", param_hint="'--interval'")
    target.screen.is_stream = True
    target.announce()
    if target.screen.is_terminal:
        target.screen.aside("Times are UTC. Ctrl-C ends it.")
    following = _Following(target.screen, wanted, state, interval)
    with suppress(KeyboardInterrupt):  # that is how it ends
        target.run(lambda store: following.run(store, lines))


class _Following:
    def __init__(
        self,
        screen: Screen,
        wanted: dict[str, str | None],
        state: JobState | None,
        interval: float,
    ) -> None:
        self._screen = screen
        self._wanted = wanted
        self._state = state
        self._interval = interval
        self._is_away = False

    async def run(self, store: Store, lines: int) -> None:
        follower = Follower(store, self._wanted)
        self._show(await follower.begin(self._state, lines), follower.now)
        while True:
            topics = follower.topics
            async with store.watch(*topics) as bell:
                while topics == follower.topics:
                    await self._look(follower)
                    await self._wait(store, bell)

    async def _look(self, follower: Follower) -> None:
        try:
            changes = await follower.look(self._state)
        except StoreUnavailable as error:
            if not self._is_away:
                told = {"error": str(error), "kind": type(error).__name__}
                self._remark(f"{explained(error)} Trying on.", told)
            self._is_away = True
            return
        if self._is_away:
            self._screen.aside("The store answers again.")
            self._is_away = False
        if follower.has_gap:
            many = f"More than {PAGE * PAGES:,} jobs came since the last look; not all are here."
            self._remark(many, {"time": instant(follower.now), "gap": True})
        self._show(changes, follower.now)

    def _remark(self, text: str, told: dict[str, Any]) -> None:
        """Say beside the changes that some may be missing; programs get it among them."""
        self._screen.aside(text)
        if self._screen.as_json:
            self._screen.answer(told)
            sys.stdout.flush()

    async def _wait(self, store: Store, bell: Watch) -> None:
        if await bell.wait(self._interval):
            await store.clock.sleep(min(_BURST, self._interval))

    def _show(self, changes: Sequence[Change], now: int) -> None:
        for change in changes:
            self._screen.answer(_document(change), self._line(change, now))
        sys.stdout.flush()

    def _line(self, change: Change, now: int) -> Text:
        """Return a change in one line, which fits a terminal."""
        job, is_terminal = change.job, self._screen.is_terminal
        when = f"{as_datetime(change.at):%H:%M:%S}" if is_terminal else instant(change.at) or ""
        state = state_of(job)
        move = state if change.was in (None, state) else f"{change.was} -> {state}"
        line = Text.assemble(
            (when, "dim"),
            f"  {id_of(job.id, short=self._screen.is_narrow)}  ",
            (move.ljust(_MOVE_WIDTH), STYLES[job.state]),
            f"  {safe(job.task)}",
            f" #{job.attempt}" if job.attempt else "",
        )
        words = progress_of(job) if job.state == "running" else about(job, now)
        if words:
            line.append(f"  {safe(words)}")
        if is_terminal and line.cell_len > self._screen.width:
            line.truncate(self._screen.width - 2)
            line.append("..")
        return line


def _document(change: Change) -> dict[str, Any]:
    """Return what a list says about the job, but for its arguments, and what has changed."""
    told = {"time": instant(change.at), "was": change.was, **document(change.job)}
    del told["arguments"]
    return told
