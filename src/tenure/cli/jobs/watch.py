"""`tenure jobs watch`: follow one job until it has finished, with a progress bar."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from typing import Any, Final

import click
from msgspec.structs import asdict
from rich.text import Text

from tenure.cli.jobs.selection import whole_ids
from tenure.cli.jobs.table import STYLES, document, progress_of, state_of
from tenure.cli.options import span
from tenure.cli.screen import Screen
from tenure.cli.target import Target, explained, store_command
from tenure.cli.text import duration, instant, safe
from tenure.core.jobs.states import JobState
from tenure.core.jobs.view import as_datetime
from tenure.core.why import Why, why_job
from tenure.errors import StoreUnavailable
from tenure.jobs import Job, JobChanges, Jobs
from tenure.stores.contract import Store

__all__ = ["watch"]

EXIT_CODES: Final[dict[JobState, int]] = {"succeeded": 0, "failed": 1, "cancelled": 3}
UNFINISHED: Final = 4

# How often the line of a terminal is drawn: its times grow although the job does not change.
_REDRAW = 0.5
_BAR = 24
_STATE_WIDTH = 10


@click.command(
    epilog="""\b
Examples:
  tenure jobs watch b302099a8057
  tenure jobs watch b302099a8057 --timeout 10m && echo done
  tenure jobs watch b302099a8057 --json | jq -r .progress

Exit codes: 0 succeeded; 1 failed; 3 cancelled; 4 not finished when --timeout was over or you
pressed Ctrl-C; 2 after an error."""
)
@click.argument("job_id", metavar="ID")
@click.option(
    "--timeout", metavar="TIME", callback=span, help="Stop watching after this time [never]."
)
@store_command
def watch(target: Target, job_id: str, *, timeout: float | None) -> None:
    """Follow one job until it has finished: a progress bar, or a line for each change in a pipe.

    While it waits, the line says why. Watching changes nothing, and ending it does not stop the
    job. With --json, each line is a JSON document.
    """
    target.screen.is_stream = True
    target.announce()
    watcher = _Watcher(target.screen, math.inf if timeout is None else timeout)
    code = UNFINISHED
    with suppress(KeyboardInterrupt):  # the job goes on
        code = target.run(lambda store: watcher.run(store, job_id))
    target.screen.progress("")
    if code == UNFINISHED:
        target.screen.remark("The job has not finished; it goes on.")
    raise click.exceptions.Exit(code)


class _Watcher:
    """Shows how one job changes."""

    def __init__(self, screen: Screen, timeout: float) -> None:
        self._screen = screen
        self._timeout = timeout
        self._shown: tuple[object, ...] = ()
        self._is_away = False

    async def run(self, store: Store, job_id: str) -> int:
        """Return the exit code once the job has finished, or the time is over."""
        jobs = Jobs(store, {})
        [id_] = await whole_ids(store, [job_id])
        deadline = store.clock.boot() + self._timeout
        async with jobs.changes(id_) as changes:
            while True:
                job = await self._look(jobs, changes)
                left = deadline - store.clock.boot()
                if job is not None and job.is_finished:
                    return EXIT_CODES[job.state]
                if left <= 0:
                    return UNFINISHED
                pause = _REDRAW if self._screen.is_terminal else left
                await changes.wait(min(left, pause))

    async def _look(self, jobs: Jobs, changes: JobChanges) -> Job[Any] | None:
        """Show the job as it is now; return None while the store does not answer."""
        try:
            job = jobs.handle(await changes.record())
            around = await jobs.surroundings(job.record)
        except StoreUnavailable as error:
            if not self._is_away:
                self._screen.remark(f"{explained(error)} Retrying.")
            self._is_away = True
            return None
        self._is_away = False
        self._show(job, why_job(job.record, around), around.now)
        return job

    def _show(self, job: Job[Any], why: Why, now: int) -> None:
        """Show a change as a line, and what does not last in the line of a terminal."""
        record = job.record
        face = (job.state, record.attempt, record.cancelling, job.progress, job.message)
        is_lasting = job.is_finished or not self._screen.is_terminal
        if is_lasting and face != self._shown:
            self._screen.progress("")
            document_ = {"time": instant(now), **_document(job), "why": asdict(why)}
            self._screen.answer(document_, *_lines(job, why, now))
            sys.stdout.flush()
        elif not is_lasting:
            self._screen.progress(_line(job, why, now)[: self._screen.width - 1])
        self._shown = face


def _document(job: Job[Any]) -> dict[str, Any]:
    fields = document(job)
    del fields["arguments"], fields["headers"]
    return fields


def _lines(job: Job[Any], why: Why, now: int) -> list[Text]:
    """Return a change as lines that stay."""
    is_short = job.state == "running" and not job.record.cancelling
    words = progress_of(job) if is_short else why.text
    state = (state_of(job).ljust(_STATE_WIDTH), STYLES[job.state])
    line = Text.assemble((f"{as_datetime(now):%H:%M:%S}", "dim"), "  ", state, f"  {safe(words)}")
    return [line, Text(why.next, no_wrap=True)] if job.is_finished and why.next else [line]


def _line(job: Job[Any], why: Why, now: int) -> str:
    """Return an unfinished job as one line, with a bar if its handler reports progress."""
    if job.state == "waiting" or job.record.cancelling:
        return safe(f"{state_of(job)}  {why.text}")
    ran = duration((now - job.record.started) / 1e6)
    return safe(f"{job.task}  {bar(job.progress)}{progress_of(job)}  {ran}")


def bar(progress: float | None) -> str:
    """Return a progress bar, with the space after it; empty if no progress was reported."""
    if progress is None:
        return ""
    done = round(max(0.0, min(1.0, progress)) * _BAR)
    return f"[{'#' * done}{'.' * (_BAR - done)}] "
