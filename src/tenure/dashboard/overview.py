"""The first page: what needs attention, in words, then queues, tasks, failures and next ticks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from tenure.core.jobs.overdue_queues import overdue_queues
from tenure.core.jobs.records import COUNT_MAX, JobRecord, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.why import Surroundings, why_queue, why_timer
from tenure.core.worker_info import Serving, read_serving
from tenure.dashboard.counters import rates, tasks
from tenure.dashboard.documents import counted, instant, state_of
from tenure.dashboard.request import Request, path_word
from tenure.dashboard.site import Site
from tenure.jobs import report_of
from tenure.timers import TimerView, TimerViews

__all__ = ["overview"]

_QUEUES_MAX: Final = 200
_FAILED: Final = 200
_NAMED: Final = 20
_RECENT: Final = 3600.0
_TICKS: Final = 10
_TIMERS_NAMED: Final = 3
_LEVELS: Final = {"paused": "note", "unserved": "error", "no-worker": "error"}
"""How serious it is why a queue waits."""
_TROUBLE: Final = frozenset({"ahead", "not-run", "undeclared", "missed", "unreadable"})
"""Why timers do not tick, if that is nobody's choice."""
_START: Final = "Start one: tenure worker MODULE:APP"


async def overview(site: Site, request: Request) -> dict[str, Any]:
    """Return how everything stands."""
    del request
    snapshot = site.snapshot
    # Together: a store far away would take as long for each.
    counts, replicas, timers, around, failed, stats = await asyncio.gather(
        snapshot.queues(),
        snapshot.replicas(),
        snapshot.timers(),
        site.surroundings(),
        snapshot.jobs(state="failed", limit=_FAILED),
        snapshot.run_stats(),
    )
    site.recent.compare(replicas)
    ages = snapshot.engine.settings.queue_expected
    late = {queue.queue for queue in overdue_queues(counts, ages)}
    queues = [*_queues(counts, replicas, late)]
    failures = _failures(failed.jobs, around.now)
    attention = [
        *_about_replicas(counts, replicas, timers),
        *_about_queues(queues, around),
        *_about_timers(timers, around),
        *_about_failures(failures),
    ]
    attention.sort(key=lambda line: ("error", "warning", "note").index(line["level"]))
    document = {
        "attention": attention[:_NAMED],
        "queues": queues[:_QUEUES_MAX],
        "rates": rates(stats, around.now),
        "tasks": tasks(stats),
        "failures": failures,
        "replicas": _capacity(replicas),
        "ticks": _ticks(timers),
    }
    return await site.stamped(document)


def _queues(
    counts: Sequence[QueueCounts], replicas: Sequence[ReplicaRecord], late: set[str]
) -> Iterator[dict[str, Any]]:
    """Yield the queues with jobs or workers, the longest wait first."""
    published = [serving for replica in _alive(replicas) if (serving := read_serving(replica.meta))]
    counted = {count.queue: count for count in counts}
    names = {name for serving in published for name in serving.queues} | counted.keys()
    nothing = {
        name: QueueCounts(queue=name, waiting=0, running=0) for name in names - counted.keys()
    }
    ordered = sorted(
        (counted | nothing).values(), key=lambda count: (-(count.oldest or 0.0), count.queue)
    )
    for count in ordered:
        slots = [*_slots(count.queue, published)]
        yield {
            "name": count.queue,
            "waiting": count.waiting,
            "running": count.running,
            "is_capped": max(count.waiting, count.running) >= COUNT_MAX,
            "oldest": count.oldest,
            "is_paused": count.paused_for is not None,
            "paused_for": count.paused_for,
            "pause_reason": count.pause_reason,
            "workers": len(slots),
            "slots": sum(slots),
            "is_late": count.queue in late,
        }


def _slots(queue: str, published: Sequence[Serving]) -> Iterator[int]:
    """Yield the slots of each worker that serves a queue."""
    for serving in published:
        if queue == TIMERS_QUEUE:
            if serving.timer_slots:
                yield serving.timer_slots
        elif serving.may_serve(queue):
            yield serving.slots


def _line(level: str, text: str, next_: str = "", link: str | None = None) -> dict[str, Any]:
    return {"level": level, "text": text, "next": next_, "link": link}


def _about_queues(
    queues: Sequence[dict[str, Any]], around: Surroundings
) -> Iterator[dict[str, Any]]:
    for queue in queues:
        name = queue["name"]
        why = why_queue(name, around)
        level = _LEVELS.get(why.code, "warning" if queue["is_late"] else "")
        if level:
            link = f"jobs?{urlencode({'state': 'waiting', 'queue': name})}"
            text = f"Queue {name}: {why.text[0].lower()}{why.text[1:]}"
            yield _line(level, text, why.next, link)


def _about_replicas(
    counts: Sequence[QueueCounts], replicas: Sequence[ReplicaRecord], timers: TimerViews
) -> Iterator[dict[str, Any]]:
    if not _alive(replicas):
        unfinished = sum(count.waiting + count.running for count in counts)
        if unfinished or timers.timers:
            what = counted(unfinished, "unfinished job") if unfinished else "timers do not tick"
            yield _line("error", f"No worker is alive: {what}.", _START, "replicas")
    expired = [replica for replica in replicas if state_of(replica) != "alive" and replica.held]
    if expired:
        held = sum(replica.held for replica in expired)
        text = f"{counted(len(expired), 'worker')} stopped beating with {held:,} running."
        advice = "Workers recover them within seconds. If none is alive: tenure recover"
        yield _line("warning", text, advice, "replicas")


def _about_timers(timers: TimerViews, around: Surroundings) -> Iterator[dict[str, Any]]:
    if timers.pause is not None:
        reason = f": {timers.pause.reason}" if timers.pause.reason else ""
        yield _line("warning", f"All timers are paused{reason}.", "Resume them.", "timers")
    lines = [line for view in timers.timers if (line := _about_timer(view, around))]
    yield from lines[:_TIMERS_NAMED]
    if more := lines[_TIMERS_NAMED:]:
        text = f"{counted(len(more), 'more timer')} did not tick as they should."
        yield _line("warning", text, "Look at all timers.", "timers")


def _about_timer(view: TimerView, around: Surroundings) -> dict[str, Any] | None:
    why = why_timer(view.facts, around)
    latest = view.info.latest
    has_failed = latest is not None and latest.outcome == "failed"
    if why.code not in _TROUBLE and not has_failed:
        return None
    text = why.text if why.code in _TROUBLE else "its last tick failed."
    link = f"timers/{path_word(view.info.name)}"
    text = f"Timer {view.info.name}: {text[0].lower()}{text[1:]}"
    return _line("warning", text, why.next or "Look at its history.", link)


def _failures(failed: Sequence[JobRecord], now: int) -> list[dict[str, Any]]:
    """Return the newest 200 failed jobs by task, as far as they failed within the hour."""
    by_task: dict[str, list[JobRecord]] = {}
    for job in failed:
        if (now - job.finished) / 1e6 <= _RECENT:
            by_task.setdefault(job.task, []).append(job)
    documents = []
    for task, group in by_task.items():
        last = max(group, key=lambda job: job.finished)
        report = report_of(last)
        documents.append(
            {
                "task": task,
                "count": len(group),
                "error": last.reason if report is None else report.line,
                "at": instant(last.finished),
                "job": last.id,
            }
        )
    return sorted(documents, key=lambda line: (-line["count"], line["task"]))


def _about_failures(failures: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for line in failures[:3]:
        many = counted(line["count"], "job")
        text = f"Task {line['task']}: {many} failed for good in the last hour: {line['error']}"
        link = f"jobs?{urlencode({'state': 'failed', 'task': line['task']})}"
        yield _line("warning", text[:300], "Mend the cause, then requeue them.", link)


def _alive(replicas: Sequence[ReplicaRecord]) -> list[ReplicaRecord]:
    return [replica for replica in replicas if state_of(replica) == "alive"]


def _capacity(replicas: Sequence[ReplicaRecord]) -> dict[str, int]:
    states = [state_of(replica) for replica in replicas]
    living = _alive(replicas)
    serving = [read_serving(replica.meta) for replica in living]
    return {
        "alive": len(living),
        "expired": len(states) - len(living),
        "slots": sum(each.slots for each in serving if each is not None),
        "busy": sum(replica.held for replica in living),
    }


def _ticks(timers: TimerViews) -> list[dict[str, Any]]:
    """Return the next ticks of all timers that nothing keeps from ticking."""
    if timers.pause is not None:
        return []
    coming = [
        {
            "timer": view.info.name,
            "kind": view.info.kind,
            "at": view.info.next,
            "rule": view.info.rule,
        }
        for view in timers.timers
        if view.info.next is not None and view.info.pause is None and view.info.is_declared
    ]
    return sorted(coming, key=lambda tick: (tick["at"], tick["timer"]))[:_TICKS]
