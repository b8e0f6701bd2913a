"""What needs attention, in words and the worst first: for the overview and for `tenure top`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from tenure.core.jobs.records import JobRecord, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.why import Surroundings, why_queue, why_timer
from tenure.dashboard.documents import counted, instant, state_of
from tenure.dashboard.request import path_word
from tenure.jobs import report_of
from tenure.timers import TimerView, TimerViews

__all__ = ["attention", "failures"]

_NAMED: Final = 20
_RECENT: Final = 3600.0
_TIMERS_NAMED: Final = 3
_LEVELS: Final = {"paused": "note", "unserved": "error", "no-worker": "error"}
"""How serious it is why a queue waits."""
_TROUBLE: Final = frozenset({"ahead", "not-run", "undeclared", "missed", "unreadable"})
"""Why timers do not tick, if that is nobody's choice."""
_START: Final = "Start one: tenure worker MODULE:APP"


def attention(
    around: Surroundings,
    replicas: Sequence[ReplicaRecord],
    timers: TimerViews,
    *,
    queues: Sequence[str],
    late: Collection[str],
    failed: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return at most 20 lines, each with a level, a text, a next step and a link of the pages.

    Args:
        around: the store's time and its queues.
        replicas: all of them.
        timers: all of them.
        queues: the names to look at, in this order.
        late: those whose oldest job waits for longer than expected.
        failed: what `failures` returns.
    """
    lines = [
        *_about_replicas([*around.queues.values()], replicas, timers),
        *_about_queues(queues, late, around),
        *_about_timers(timers, around),
        *_about_failures(failed),
    ]
    lines.sort(key=lambda line: ("error", "warning", "note").index(line["level"]))
    return lines[:_NAMED]


def failures(failed: Sequence[JobRecord], now: int) -> list[dict[str, Any]]:
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


def _line(level: str, text: str, next_: str = "", link: str | None = None) -> dict[str, Any]:
    return {"level": level, "text": text, "next": next_, "link": link}


def _about_queues(
    names: Sequence[str], late: Collection[str], around: Surroundings
) -> Iterator[dict[str, Any]]:
    for name in names:
        why = why_queue(name, around)
        level = _LEVELS.get(why.code, "warning" if name in late else "")
        if level:
            link = f"jobs?{urlencode({'state': 'waiting', 'queue': name})}"
            text = f"Queue {name}: {why.text[0].lower()}{why.text[1:]}"
            yield _line(level, text, why.next, link)


def _about_replicas(
    counts: Sequence[QueueCounts], replicas: Sequence[ReplicaRecord], timers: TimerViews
) -> Iterator[dict[str, Any]]:
    if not any(state_of(replica) == "alive" for replica in replicas):
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


def _about_failures(failures: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for line in failures[:3]:
        many = counted(line["count"], "job")
        text = f"Task {line['task']}: {many} failed for good in the last hour: {line['error']}"
        link = f"jobs?{urlencode({'state': 'failed', 'task': line['task']})}"
        yield _line("warning", text[:300], "Mend the cause, then requeue them.", link)
