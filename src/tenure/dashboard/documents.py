"""How instants, replicas and jobs look in the documents of the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tenure.core.jobs.options import read_options
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.replicas import ReplicaRecord
from tenure.core.jobs.retry_policy import read_backoff
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.jobs.view import as_datetime
from tenure.core.leases import Meta
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.why import Fleet
from tenure.dashboard.owners import owner_of, tags_to_show
from tenure.jobs import report_of
from tenure.runtime.attempts.handler import Handler

__all__ = ["Places", "counted", "instant", "job_document", "lite", "place_of", "state_of"]


def counted(number: int, noun: str) -> str:
    """Return "1 job" or "1,204 jobs"."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def instant(micros: int) -> datetime | None:
    """Return an instant of the store; None if it is not set."""
    return as_datetime(micros) if micros else None


def place_of(meta: Meta) -> str:
    """Return host and process from the meta of a lease or replica; "" if they are not there."""
    host, pid = meta.get("host", ""), meta.get("pid", "")
    return f"{host}:{pid}".strip(":")


def state_of(replica: ReplicaRecord) -> str:
    """Return "alive", "expired" (its heartbeats have stopped) or "dead" (it cannot come back)."""
    if replica.dead:
        return "dead"
    return "alive" if replica.expires_in > 0 else "expired"


class Places:
    """Where replicas run, as far as the store still knows them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def of(self, replica: str) -> str:
        """Return host and process of a replica; "" if they are not known."""
        worker = self._fleet.worker(replica)
        return "" if worker is None else place_of(worker.record.meta)


def lite(job: JobRecord, places: Places) -> dict[str, Any]:
    """Return what links to a job say about it."""
    return {
        "id": job.id,
        "task": job.task,
        "state": job.state,
        "created": instant(job.created),
        "started": instant(job.started),
        "finished": instant(job.finished),
        "attempt": runs_of(job),
        "progress": job.progress,
        "where": places.of(job.replica),
    }


def job_document(
    job: JobRecord,
    places: Places,
    handlers: Mapping[str, Handler],
    *,
    shows_owner: bool,
    why: str | None,
) -> dict[str, Any]:
    """Return what lists say about a job: no contents, and its owner only if asked for."""
    report = report_of(job)
    return {
        **lite(job, places),
        "queue": job.queue,
        "priority": job.priority,
        "due": instant(job.due),
        "attempts_max": _attempts_max(job, handlers),
        "failures": job.failures,
        "losses": job.losses,
        "message": job.message,
        "error": None if report is None else report.line,
        "owner": owner_of(job.tags) if shows_owner else None,
        "tags": tags_to_show(job.tags),
        "replica": job.replica,
        "timer": job.schedule or None,
        "is_cancelling": job.cancelling,
        "why": why,
    }


def _attempts_max(job: JobRecord, handlers: Mapping[str, Handler]) -> int | None:
    """Return how many attempts may fail; None if only its worker knows."""
    if (backoff := read_backoff(read_options(job.options).retry)) is not None:
        return backoff.max_attempts
    if job.queue == TIMERS_QUEUE:
        return None
    handler = handlers.get(job.task)
    return None if handler is None else handler.retry.max_attempts
