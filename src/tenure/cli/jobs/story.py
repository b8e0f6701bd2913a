"""All about one job, for people: what it is, how it went so far, and what it waits for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import RenderableType
from rich.text import Text

from tenure.cli.jobs.table import (
    STYLES,
    joined,
    plain,
    progress_of,
    shown_result,
    state_of,
    timer_of,
    took,
)
from tenure.cli.output import Cell, duration, safe, table
from tenure.core.jobs.records import SOON, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.run_numbers import numbered_history
from tenure.core.jobs.view import as_datetime, waits_for_its_task
from tenure.core.schedules.definition import TickArguments
from tenure.core.worker_info import read_serving
from tenure.jobs import Job
from tenure.stores.contract import Store

__all__ = ["Surroundings", "shown"]

# Of a replica's id, as much as the logs show.
_REPLICA = 8
_PROCESS = ("host", "pid")


class Surroundings(Struct, frozen=True, kw_only=True):
    """What else the store says that explains how a job fares."""

    now: int
    queue: QueueCounts
    replicas: Sequence[ReplicaRecord]

    @classmethod
    async def of(cls, job: Job[Any], store: Store) -> Surroundings:
        """Look around, no further than this job needs."""
        nothing = QueueCounts(queue=job.queue, waiting=0, running=0)
        counts = await store.jobs.counts() if job.state == "waiting" else []
        return cls(
            now=(await store.ping()).now,
            queue=next((one for one in counts if one.queue == job.queue), nothing),
            replicas=[] if job.is_finished else await store.jobs.replicas(),
        )

    @property
    def alive(self) -> list[ReplicaRecord]:
        return [one for one in self.replicas if one.expires_in > 0 and not one.dead]

    def waits_for(self, job: Job[Any]) -> Iterator[tuple[str, str]]:
        """Yield why a waiting job does not run: in a word, and for people."""
        if job.state != "waiting":
            return
        is_due, left = job.record.is_due(self.now), (job.record.due - self.now) / 1e6
        if not is_due:
            yield "due time", f"its due time, in {duration(left)}"
        timer = timer_of(job)
        if waits_for_its_task(job.record):
            what = f"runs the timer {timer!r}" if timer else f"knows the task {job.task!r}"
            yield "task", f"a worker that {what}; the last one did not"
        pause = self.queue.paused_for
        if pause is not None:
            long = "until it is resumed" if math.isinf(pause) else f"for another {duration(pause)}"
            yield "pause", f"its queue, which is paused {long} ('tenure queues resume {job.queue}')"
        if not self.alive:
            yield "worker", "a worker: none is alive ('tenure worker MODULE:APP' starts one)"
        elif is_due and pause is None:
            yield self._turn(-left, timer)

    def _turn(self, late: float, timer: str) -> tuple[str, str]:
        queue, alive = self.queue, self.alive
        told = {one.id: serving for one in alive if (serving := read_serving(one.meta))}
        may = {
            name: serving.slots + (serving.timer_slots if timer else 0)
            for name, serving in told.items()
            if (serving.may_run(timer) if timer else serving.may_serve(queue.queue))
        }
        does_not_say = len(told) < len(alive)
        # Workers look for jobs this often at the least, and an idle one takes what it finds.
        is_overdue = late > SOON and not queue.running
        if not may and (is_overdue if does_not_say else True):
            return "queue", self._unserved(timer, does_not_say=does_not_say)
        held, slots = sum(one.held for one in alive if one.id in may), sum(may.values())
        if may and held >= slots and not does_not_say:
            return "slot", _taken(len(may), slots)
        others = max(queue.waiting - 1, 0)
        return "turn", f"its turn, beside {others:,} of its queue; {queue.running:,} run"

    def _unserved(self, timer: str, *, does_not_say: bool) -> str:
        serves = f"runs the timer {timer!r}" if timer else "serves its queue"
        workers = "1 worker is" if len(self.alive) == 1 else f"{len(self.alive)} workers are"
        why = "none runs a job of it" if does_not_say else "none does ('tenure replicas')"
        return f"a worker that {serves}: {workers} alive, but {why}"

    def where(self, replica: str) -> str:
        """Return which replica that is, and on which process of which host, if that is known."""
        known = self._replica(replica)
        host, pid = ("", "") if known is None else (known.meta.get(key, "") for key in _PROCESS)
        return safe(" at ".join(filter(None, (replica[:_REPLICA], f"{host}:{pid}".strip(":")))))

    def fate(self, job: Job[Any]) -> str:
        """Return what becomes of a running job whose replica is not alive."""
        if job.state != "running":
            return ""
        known = self._replica(job.replica)
        if known is None:
            which = "which" if job.replica else "a replica that"
            return f"{which} the store does not know: 'tenure recover' lets another worker run it"
        if known.expires_in > 0 and not known.dead:
            return ""
        return "which is gone: a worker takes the job over within seconds, or 'tenure recover'"

    def _replica(self, replica: str) -> ReplicaRecord | None:
        return next((one for one in self.replicas if one.id == replica), None)


def _taken(workers: int, slots: int) -> str:
    whose = "the worker that serves it" if workers == 1 else f"the {workers} workers that serve it"
    return f"a free slot: all {slots:,} of {whose} are taken"


def shown(job: Job[Any], around: Surroundings, *, folded: bool) -> Iterator[RenderableType]:
    """Yield all that is known about a job; `folded` over as many lines as it takes."""
    style = STYLES[job.state]
    yield Text.assemble((safe(job.task), "bold"), f"  {job.id}  ", (state_of(job), style))
    yield Text()
    yield table([fact, Text(value)] for fact, value in _facts(job, around) if value)
    attempts = [*_attempts(job, around, folded=folded)]
    if attempts:
        yield Text()
        yield table(attempts)
    if job.trace:
        yield Text()
        for line in job.trace.splitlines():
            yield Text(safe(line))


def _facts(job: Job[Any], around: Surroundings) -> Iterator[tuple[str, str]]:
    record, now = job.record, around.now
    for at, (_, why) in enumerate(around.waits_for(job)):
        yield "and for" if at else "waits for", safe(why)
    yield "queue", f"{safe(job.queue)}, priority {job.priority}"
    yield "tags", safe(", ".join(job.tags))
    yield "run of", _origin(job, now)
    yield "arguments", "" if timer_of(job) else _text(record.payload)
    yield "created", _when(record.created, now)
    yield "due", _when(record.due, now) if job.state == "waiting" else ""
    yield "started", _when(record.started, now)
    yield "finished", _when(record.finished, now)
    yield "attempts", _counted(job)
    yield "runs on", joined(around.where(job.replica), around.fate(job))
    yield "progress", safe(progress_of(job))
    yield "timeout", _timeout(job, now)
    yield "kept", _kept(job, now)
    yield "checkpoint", _text(record.checkpoint)
    result, problem = shown_result(record)
    yield "result", joined(_text(result), safe(f"not available: {problem}") if problem else "")
    yield "reason", safe(job.reason)
    yield "error", safe(job.error or "")


def _origin(job: Job[Any], now: int) -> str:
    """Return which timer or schedule has made it, and of which tick that tells."""
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
    every = f"{duration(length)} an attempt"
    if job.state != "running":
        return every
    left = (job.record.started - now) / 1e6 + length
    over = f"over in {duration(left)}" if left > 0 else f"over for {duration(-left)}"
    return f"{every}, {over}"


def _kept(job: Job[Any], now: int) -> str:
    record = job.record
    if not job.is_finished:
        return (
            f"{duration(record.retention)} after it has succeeded or was cancelled, "
            f"{duration(record.retention_failed)} after it has failed"
        )
    end = record.finished + round(record.kept_for * 1e6)
    # What is over is removed by workers, from time to time.
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
    """Yield the attempts, oldest first, each with how long it took until the next one."""
    ended_ones = numbered_history(job.record)
    started = [one.started for one in ended_ones]
    if job.state == "running":
        started.append(job.record.started)
    for one, following in zip_longest(ended_ones, started[1:]):
        if one is None:
            break
        again = "" if following is None else f"started again {took(one.ended, following)} later"
        ended = _OUTCOMES[one.outcome].format(took(one.started, one.ended))
        lines = [
            joined(_when(one.started, around.now), _on(around.where(one.replica))),
            joined(ended, again),
            safe(one.error),
        ]
        yield [f"attempt {one.attempt}", Text(_laid_out(lines, folded=folded))]
    if job.state == "running":
        running = f"running for {duration((around.now - job.record.started) / 1e6)}"
        lines = [
            joined(_when(job.record.started, around.now), _on(around.where(job.replica))),
            joined(running, safe(progress_of(job))),
        ]
        yield [f"attempt {job.attempt}", Text(_laid_out(lines, folded=folded))]


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
    return safe(json.dumps(plain(data), ensure_ascii=False)) if data else ""
