"""What `tenure jobs show` says about one job: why it is as it is, its facts, and its attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.jobs.table import STYLES, progress_of, state_of, timer_of
from tenure.cli.tables import Cell, table
from tenure.cli.text import duration, explanation, joined, safe, took
from tenure.core.jobs.results import shown_result
from tenure.core.jobs.run_numbers import numbered_history
from tenure.core.jobs.view import as_datetime
from tenure.core.schedules.definition import TickArguments
from tenure.core.values.json import shown_value
from tenure.core.why import Surroundings, Why
from tenure.jobs import Job

__all__ = ["shown"]

# How many characters of a replica's id are shown: as many as in the logs.
_REPLICA = 8


def shown(
    job: Job[Any], why: Why, around: Surroundings, *, folded: bool
) -> Iterator[RenderableType]:
    """Yield the page about a job; `folded` breaks attempts into several lines."""
    style = STYLES[job.state]
    yield Text.assemble((safe(job.task), "bold"), f"  {job.id}  ", (state_of(job), style))
    yield Text()
    yield from explanation(why)
    yield Text()
    yield table([fact, Text(value)] for fact, value in _facts(job, around) if value)
    attempts = [*_attempts(job, around, folded=folded)]
    if attempts:
        yield Text()
        yield table(attempts)
    if job.trace:
        yield Text()
        for line in job.trace.splitlines():
            yield Text(safe(line), no_wrap=True)


def _facts(job: Job[Any], around: Surroundings) -> Iterator[tuple[str, str]]:
    record, now = job.record, around.now
    yield "queue", f"{safe(job.queue)}, priority {job.priority}"
    yield "tags", safe(", ".join(job.tags))
    yield "headers", safe(json.dumps({**job.headers}, ensure_ascii=False)) if job.headers else ""
    yield "run of", _origin(job, now)
    yield "enqueued by", f"job {job.parent}" if job.parent else ""
    yield "arguments", "" if timer_of(job) else _text(record.payload)
    yield "created", _when(record.created, now)
    yield "due", _when(record.due, now) if job.state == "waiting" else ""
    yield "started", _when(record.started, now)
    yield "finished", _when(record.finished, now)
    yield "attempts", _counted(job)
    yield "runs on", _where(job.replica, around)
    yield "progress", safe(progress_of(job))
    yield "timeout", _timeout(job, now)
    yield "kept", _kept(job, now)
    yield "checkpoint", _text(record.checkpoint)
    result, problem = shown_result(record.result)
    yield "result", joined(_text(result), safe(f"not available: {problem}") if problem else "")
    yield "reason", safe(job.reason)
    yield "error", safe(job.error or "")


def _origin(job: Job[Any], now: int) -> str:
    """Return the timer or schedule that made it, and the tick if its arguments name one."""
    name = safe(job.record.schedule)
    if not name or not timer_of(job):
        return f"the schedule {name}" if name else ""
    try:
        tick = msgspec.json.decode(job.record.payload, type=TickArguments).nominal
    except (ValueError, RecursionError):
        return f"the timer {name}"
    return f"the timer {name}, tick {_when(tick, now)}"


def _timeout(job: Job[Any], now: int) -> str:
    length = job.record.timeout
    if length is None:
        return ""
    every = f"{duration(length)} per attempt"
    if job.state != "running":
        return every
    left = (job.record.started - now) / 1e6 + length
    end = f"ends in {duration(left)}" if left > 0 else f"exceeded by {duration(-left)}"
    return f"{every}, {end}"


def _kept(job: Job[Any], now: int) -> str:
    record = job.record
    if not job.is_finished:
        return (
            f"{duration(record.retention)} after success or cancellation, "
            f"{duration(record.retention_failed)} after failure"
        )
    end = record.finished + round(record.kept_for * 1e6)
    # It may still be there afterwards: workers prune from time to time.
    return f"until {_when(end, now)}"


def _counted(job: Job[Any]) -> str:
    failures = f"{job.failures} failed" if job.failures else ""
    losses = f"{job.losses} lost with the worker" if job.losses else ""
    bad = joined(failures, losses)
    return f"{job.attempt} ({bad})" if bad else str(job.attempt)


_OUTCOMES = {
    "retry": "failed after {}",
    "failed": "failed after {}",
    "succeeded": "succeeded after {}",
    "cancelled": "cancelled after {}",
    "handed back": "handed back after {}",
    "lost": "lost with its worker after {}",
}


def _attempts(job: Job[Any], around: Surroundings, *, folded: bool) -> Iterator[list[Cell]]:
    """Yield the attempts, oldest first, each with the time until the next attempt."""
    past = numbered_history(job.record)
    starts = [attempt.started for attempt in past]
    if job.state == "running":
        starts.append(job.record.started)
    for attempt, next_start in zip_longest(past, starts[1:]):
        if attempt is None:
            break
        gap = "" if next_start is None else f"next attempt {took(attempt.ended, next_start)} later"
        ended = _OUTCOMES[attempt.outcome].format(took(attempt.started, attempt.ended))
        lines = [
            joined(_when(attempt.started, around.now), _on(_where(attempt.replica, around))),
            joined(ended, gap),
            safe(attempt.error),
        ]
        yield [f"attempt {attempt.attempt}", Text(_laid_out(lines, folded=folded))]
    if job.state == "running":
        running = f"running for {duration((around.now - job.record.started) / 1e6)}"
        lines = [
            joined(_when(job.record.started, around.now), _on(_where(job.replica, around))),
            joined(running, safe(progress_of(job))),
        ]
        yield [f"attempt {job.attempt}", Text(_laid_out(lines, folded=folded))]


def _where(replica: str, around: Surroundings) -> str:
    """Return a replica with its host and process, if the store still has its record."""
    worker = around.fleet.worker(replica)
    place = "" if worker is None else worker.where
    return safe(" at ".join(filter(None, (replica[:_REPLICA], place))))


def _on(replica: str) -> str:
    return f"on {replica}" if replica else ""


def _laid_out(lines: Sequence[str], *, folded: bool) -> str:
    return ("\n" if folded else ": ").join(filter(None, lines))


def _when(micros: int, now: int) -> str:
    if not micros:
        return ""
    past = (now - micros) / 1e6
    date = f"{as_datetime(micros):%Y-%m-%d %H:%M:%S} UTC"
    return f"{date}, in {duration(-past)}" if past < 0 else f"{date}, {duration(past)} ago"


def _text(data: bytes | None) -> str:
    return safe(json.dumps(shown_value(data), ensure_ascii=False)) if data else ""
