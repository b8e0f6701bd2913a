"""What `tenure jobs show` says about one job: its facts, its attempts, and why it waits."""

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
    payload,
    progress_of,
    shown_result,
    state_of,
    timer_of,
)
from tenure.cli.tables import Cell, table
from tenure.cli.text import count, duration, joined, safe, took
from tenure.core.jobs.records import SOON, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.run_numbers import numbered_history
from tenure.core.jobs.view import as_datetime, waits_for_its_task
from tenure.core.schedules.definition import TickArguments
from tenure.core.worker_info import read_serving
from tenure.jobs import Job
from tenure.stores.contract import Store

__all__ = ["Surroundings", "shown"]

# How many characters of a replica's id are shown: as many as in the logs.
_REPLICA = 8
_PROCESS = ("host", "pid")


class Surroundings(Struct, frozen=True, kw_only=True):
    """What else in the store explains the state of a job: its queue, and the replicas."""

    now: int
    queue: QueueCounts
    replicas: Sequence[ReplicaRecord]

    @classmethod
    async def of(cls, job: Job[Any], store: Store) -> Surroundings:
        """Read what this job needs, and no more."""
        nothing = QueueCounts(queue=job.queue, waiting=0, running=0)
        counts = await store.jobs.counts() if job.state == "waiting" else []
        return cls(
            now=(await store.ping()).now,
            queue=next((queue for queue in counts if queue.queue == job.queue), nothing),
            replicas=[] if job.is_finished else await store.jobs.replicas(),
        )

    @property
    def alive(self) -> list[ReplicaRecord]:
        return [replica for replica in self.replicas if replica.expires_in > 0 and not replica.dead]

    def waits_for(self, job: Job[Any]) -> Iterator[tuple[str, str]]:
        """Yield why a waiting job does not run: a word for programs, a phrase for people."""
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
        published = {
            replica.id: serving for replica in alive if (serving := read_serving(replica.meta))
        }
        slots_of = {
            name: serving.slots + (serving.timer_slots if timer else 0)
            for name, serving in published.items()
            if (serving.may_run(timer) if timer else serving.may_serve(queue.queue))
        }
        is_incomplete = len(published) < len(alive)
        # Workers claim at least this often, and an idle worker takes any due job.
        is_overdue = late > SOON and not queue.running
        if not slots_of and (is_overdue if is_incomplete else True):
            return "queue", self._unserved(timer, is_incomplete=is_incomplete)
        held = sum(replica.held for replica in alive if replica.id in slots_of)
        slots = sum(slots_of.values())
        if slots_of and held >= slots and not is_incomplete:
            return "slot", _taken(len(slots_of), slots)
        others = count(max(queue.waiting - 1, 0), "other job")
        return "turn", f"its turn: {others} waiting in its queue, {queue.running:,} running"

    def _unserved(self, timer: str, *, is_incomplete: bool) -> str:
        serves = f"runs the timer {timer!r}" if timer else "serves its queue"
        workers = "1 worker is" if len(self.alive) == 1 else f"{len(self.alive)} workers are"
        why = "none runs a job of it" if is_incomplete else "none does ('tenure replicas ls')"
        return f"a worker that {serves}: {workers} alive, but {why}"

    def where(self, replica: str) -> str:
        """Return a replica with its host and process, if the store still has its record."""
        record = self._record(replica)
        host, pid = ("", "") if record is None else (record.meta.get(key, "") for key in _PROCESS)
        return safe(" at ".join(filter(None, (replica[:_REPLICA], f"{host}:{pid}".strip(":")))))

    def fate(self, job: Job[Any]) -> str:
        """Return what will happen to a running job whose replica is not alive; else ""."""
        if job.state != "running":
            return ""
        record = self._record(job.replica)
        if record is None:
            which = "which" if job.replica else "a replica that"
            return f"{which} is not in the store: 'tenure recover' lets another worker run the job"
        if record.expires_in > 0 and not record.dead:
            return ""
        if not self.alive:
            return "which has expired; a worker recovers the job, but none is alive: start one"
        return "which has expired: a worker recovers the job within seconds, or 'tenure recover'"

    def _record(self, id_: str) -> ReplicaRecord | None:
        return next((replica for replica in self.replicas if replica.id == id_), None)


def _taken(workers: int, slots: int) -> str:
    whose = "the worker that serves it" if workers == 1 else f"the {workers} workers that serve it"
    return f"a free slot: {slots:,} of {slots:,} slots of {whose} are taken"


def shown(job: Job[Any], around: Surroundings, *, folded: bool) -> Iterator[RenderableType]:
    """Yield the page about a job; `folded` breaks attempts into several lines."""
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
    yield "headers", safe(json.dumps({**job.headers}, ensure_ascii=False)) if job.headers else ""
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
            joined(_when(attempt.started, around.now), _on(around.where(attempt.replica))),
            joined(ended, gap),
            safe(attempt.error),
        ]
        yield [f"attempt {attempt.attempt}", Text(_laid_out(lines, folded=folded))]
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
    return safe(json.dumps(payload(data), ensure_ascii=False)) if data else ""
