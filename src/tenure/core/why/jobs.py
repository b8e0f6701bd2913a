"""Why a job waits, runs or has ended."""

from __future__ import annotations

from tenure.core.durations import duration
from tenure.core.jobs.error_report import read_report
from tenure.core.jobs.history import AttemptLine, read_history
from tenure.core.jobs.options import read_options
from tenure.core.jobs.records import COUNT_MAX, JobRecord, QueueCounts, Stranded
from tenure.core.jobs.retry_policy import read_backoff
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.jobs.view import waits_for_its_task
from tenure.core.safe_text import safe
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.why.answer import Clause, Why, answer, because, command, counted, moment, quoted
from tenure.core.why.queues import START_WORKER, obstacle, running
from tenure.core.why.surroundings import Surroundings, Worker

__all__ = ["why_job", "why_stranded"]

_FAILED = {
    "lost": "it was lost with its worker too often, or may not run again after a loss",
    "interrupted": "it was stopped and may not run again",
}
_IMPORT = (
    "Start a worker that imports the module which declares the task: see Tenure(imports=[...])."
)
# With these reasons, the stored error is the one that has failed the job.
_LAST_ERROR = ("error", "timeout", "rejected", "arguments")


def why_job(job: JobRecord, around: Surroundings) -> Why:
    """Explain a job. `around` must be at least as new as the record.

    The codes of a waiting job: due, retry, lost, handed-back, task, isolated, paused, no-worker,
    unserved, busy, turn. Of a running one: running, overtime, cancelling, expired, orphan. Of a
    finished one: its state.
    """
    match job.state:
        case "waiting":
            return _waiting(job, around)
        case "running":
            return _running(job, around)
        case "succeeded":
            return answer(Clause("succeeded", f"it succeeded {_end(job)}"), tail=_kept(job))
        case "failed":
            return _failed(job)
        case "cancelled":
            text = f"it was cancelled {_end(job)}{because(job.reason)}"
            return answer(Clause("cancelled", text, _run_again(job)), tail=_kept(job))


def why_stranded(job: Stranded) -> Why:
    """Explain a job that no worker can finish: its code is orphan, or aside for a record that
    cannot be read.
    """
    if job.why == "orphan":
        return _orphan(safe(job.replica))
    text = "its record cannot be read, so it was set aside and does not run"
    tail = f"it is kept in {job.where} for another {duration(job.left)}"
    remove = (
        f"Enqueue it again if it is still needed. Remove it: {command('jobs', 'delete', job.id)}"
    )
    return answer(Clause("aside", text, remove), tail=tail)


# Waiting.


def _waiting(job: JobRecord, around: Surroundings) -> Why:
    timer = job.schedule if job.queue == TIMERS_QUEUE else ""
    queue = around.queue(job.queue)
    left = 0.0 if job.is_due(around.now) else (job.due - around.now) / 1e6
    what = f"its timer {quoted(timer)}" if timer else f"its queue {quoted(job.queue)}"
    late = 0.0 if left else (around.now - job.due) / 1e6
    hurdle = obstacle(queue, around, what, timer=timer, late=late)
    if hurdle is not None and left and not _outlasts(hurdle, queue, left):
        hurdle = None
    if hurdle is None and not left:
        hurdle = _turn(queue, timer)
    rest = _rest(job, around, left)
    if rest is None:
        assert hurdle is not None
        hurdle = hurdle._replace(text=f"it waits: {hurdle.text}")
    clauses = [clause for clause in (rest, hurdle) if clause is not None]
    return answer(*clauses, tail=_last_attempt(job))


def _outlasts(hurdle: Clause, queue: QueueCounts, left: float) -> bool:
    """Return whether this still keeps the job from running when it is due."""
    if hurdle.code == "paused":
        return (queue.paused_for or 0.0) > left
    return hurdle.code in ("no-worker", "unserved")


def _rest(job: JobRecord, around: Surroundings, left: float) -> Clause | None:
    """Return what a job waits for by itself, whatever its queue and the workers do."""
    last = next(iter(read_history(job.history)[-1:]), None)
    after = f" in {duration(left)}" if left else ""
    if waits_for_its_task(job):
        offered = f", and it is offered again{after}" if left else ""
        text = f"the last worker did not know its task {quoted(job.task)}{offered}"
        return Clause("task", text, _IMPORT)
    if job.losses >= around.isolate_after:
        text = f"it runs alone{after or ' next'}, because it was lost {_times(job.losses)}"
        return Clause("isolated", f"{text} and may be what kills its workers")
    if _is_handed_back(job, last):
        again = f", and it is due again{after}" if left else ""
        return Clause("handed-back", f"its last worker handed it back{again}")
    return _delay(job, around, last, after) if left else None


def _delay(job: JobRecord, around: Surroundings, last: AttemptLine | None, after: str) -> Clause:
    """Return what a job waits for that is not due."""
    if last is not None and last.outcome == "lost":
        text = f"it waits for its next attempt{after}, because it was lost with its worker"
        return Clause("lost", text)
    if job.failures:
        return Clause("retry", f"it waits for retry {_retry(job, around)}{after}")
    return Clause("due", f"it is due{after}")


def _is_handed_back(job: JobRecord, last: AttemptLine | None) -> bool:
    """Return whether the last claim was handed back. One that did not begin leaves no line."""
    if last is None:
        return job.started > 0 and not job.failures + job.losses
    return last.outcome == "handed back" or last.started < job.started


def _retry(job: JobRecord, around: Surroundings) -> str:
    """Return the number of the next retry, and of how many if that is known here."""
    backoff = read_backoff(read_options(job.options).retry)
    most = around.max_attempts.get(job.task) if backoff is None else backoff.max_attempts
    return f"{job.failures}" if most is None else f"{job.failures} of {max(most - 1, job.failures)}"


def _turn(queue: QueueCounts, timer: str) -> Clause:
    if timer:
        return Clause("turn", "a worker that runs its timer takes it within seconds")
    ahead = max(queue.waiting - 1, 0)
    jobs = "no job is ahead of it"
    if queue.waiting >= COUNT_MAX:
        jobs = f"{COUNT_MAX:,} or more jobs wait"
    elif ahead:
        jobs = f"at most {counted(ahead, 'job')} {'is' if ahead == 1 else 'are'} ahead of it"
    where = f"in its queue {quoted(queue.queue)}"
    return Clause("turn", f"{jobs} {where}, and {running(queue)}")


def _last_attempt(job: JobRecord) -> str:
    """Return how the last failed attempt ended; empty if none did."""
    report = read_report(job.error)
    if report is None or not job.failures:
        return ""
    return f"it has failed {_times(job.failures)}, last with {report.line}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


# Running.


def _running(job: JobRecord, around: Surroundings) -> Why:
    worker = around.fleet.worker(job.replica)
    if worker is None:
        return _orphan(safe(job.replica))
    if not worker.is_alive:
        return _expired(worker, around)
    ran = (around.now - job.started) / 1e6
    where = f"on {worker.where} since {moment(job.started)}, for {duration(ran)}"
    if job.cancelling:
        text = f"it was asked to stop{because(job.reason)} and is still running, {where}"
        return answer(
            Clause("cancelling", text, "It ends when its handler ends, or with its worker.")
        )
    progress = "" if job.progress is None else f"its progress is {job.progress:.0%}"
    if job.timeout is not None and ran > job.timeout:
        past = f"which is {duration(ran - job.timeout)} past its timeout"
        text = f"it has been running {where}, {past}"
        step = "If it stays, see the log of its worker: its handler may block the process."
        return answer(Clause("overtime", text, step), tail=progress)
    return answer(Clause("running", f"it has been running {where}"), tail=progress)


def _orphan(replica: str) -> Why:
    which = f"the replica {replica[:8]}" if replica else "a replica"
    text = f"it runs on {which}, which is not in the store, so no worker will end it"
    return answer(Clause("orphan", text, f"Let another worker run it: {command('recover')}"))


def _expired(worker: Worker, around: Surroundings) -> Why:
    ago = max(0.0, -worker.record.expires_in)
    text = f"its worker {worker.where} expired {duration(ago)} ago"
    if around.fleet.alive:
        recovery = Clause("", "another worker recovers the job within seconds")
    else:
        recovery = Clause(
            "", "no worker is alive to recover the job", f"{START_WORKER}, or {command('recover')}"
        )
    return answer(Clause("expired", text), recovery)


# Finished.


def _failed(job: JobRecord) -> Why:
    text = f"it failed for good {_end(job)}, after {counted(runs_of(job), 'attempt')}{_cause(job)}"
    return answer(Clause("failed", text, _run_again(job)), tail=_kept(job))


def _cause(job: JobRecord) -> str:
    report = read_report(job.error)
    if job.reason in _LAST_ERROR and report is not None:
        return f", with {report.line}"
    why = _FAILED.get(job.reason)
    return because(job.reason) if why is None else f", because {why}"


def _end(job: JobRecord) -> str:
    return f"at {moment(job.finished)}"


def _kept(job: JobRecord) -> str:
    return f"it is kept until {moment(job.finished + round(job.kept_for * 1e6))}"


def _run_again(job: JobRecord) -> str:
    if job.schedule:
        return f"Run it again: {command('timers', 'trigger', job.schedule)}"
    return f"Run it again: {command('jobs', 'requeue', job.id)}"
