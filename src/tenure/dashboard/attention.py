"""What needs attention, in words and the worst first: for the overview and for `tenure top`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from tenure.core.jobs.records import JobRecord, QueueCounts
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.schedules.definition import TASK_PREFIX
from tenure.core.why import Surroundings, why_queue, why_timer
from tenure.core.why.answer import command
from tenure.dashboard.documents import counted, instant, state_of
from tenure.dashboard.request import path_word
from tenure.jobs import report_of
from tenure.timers import TimerView, TimerViews

__all__ = ["attention", "failures"]

_NAMED: Final = 20
_RECENT: Final = 3600.0
_TIMERS_NAMED: Final = 3
_TASKS_NAMED: Final = 3
_TEXT_MAX: Final = 300
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
        *_about_timers(timers, around, failed),
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


def _about_timers(
    timers: TimerViews, around: Surroundings, failures: Sequence[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    if timers.pause is not None:
        reason = f": {timers.pause.reason}" if timers.pause.reason else ""
        yield _line("warning", f"All timers are paused{reason}.", "Resume them.", "timers")
    failed = {timer: each for each in failures if (timer := _timer_of(each["task"]))}
    names = {view.info.name for view in timers.timers}
    about = (_about_timer(view, around, failed.get(view.info.name)) for view in timers.timers)
    lines = [
        *(line for line in about if line is not None),
        *(_about_runs(name, each) for name, each in failed.items() if name not in names),
    ]
    yield from lines[:_TIMERS_NAMED]
    if more := lines[_TIMERS_NAMED:]:
        text = f"{counted(len(more), 'more timer')} did not tick as they should."
        yield _line("warning", text, "Look at all timers.", "timers")


def _about_timer(
    view: TimerView, around: Surroundings, failed: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return one line about a timer that does not tick, or whose runs fail."""
    why, name = why_timer(view.facts, around), view.info.name
    if why.code in _TROUBLE:
        return _timer_line(name, f"{why.text[0].lower()}{why.text[1:]}", why.next)
    latest = view.info.latest
    if latest is None or latest.outcome != "failed":
        return None if failed is None else _about_runs(name, failed)
    error = latest.error or ("" if failed is None else failed["error"])
    others = 0 if failed is None else failed["count"] - 1
    more = f", as {counted(others, 'other')} within the hour" if others else ""
    cause = f": {error}" if error else ""
    return _timer_line(name, f"its last run failed{more}{cause}")


def _about_runs(name: str, failed: dict[str, Any]) -> dict[str, Any]:
    """Return the line about a timer that ticks well by now."""
    many = counted(failed["count"], "run")
    return _timer_line(name, f"{many} failed in the last hour: {failed['error']}")


def _timer_line(name: str, text: str, next_: str = "") -> dict[str, Any]:
    advice = next_ or f"See its history: {command('timers', 'history', name)}"
    text = f"Timer {name}: {text}"[:_TEXT_MAX]
    return _line("warning", text, advice, f"timers/{path_word(name)}")


def _timer_of(task: str) -> str:
    """Return the timer whose runs have this task; empty for a task of users."""
    return task.removeprefix(TASK_PREFIX) if task.startswith(TASK_PREFIX) else ""


def _about_failures(failures: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    # Runs of timers are named with their timers; they cannot be requeued either.
    of_tasks = [line for line in failures if not _timer_of(line["task"])]
    for line in of_tasks[:_TASKS_NAMED]:
        many = counted(line["count"], "job")
        text = f"Task {line['task']}: {many} failed for good in the last hour: {line['error']}"
        link = f"jobs?{urlencode({'state': 'failed', 'task': line['task']})}"
        yield _line("warning", text[:_TEXT_MAX], "Mend the cause, then requeue them.", link)
