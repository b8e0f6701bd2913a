"""Runs of timers that have ended: they do not change any more, so they are read once and kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from tenure.core.clock import Clock
from tenure.core.jobs.records import JobRecord
from tenure.core.jobs.states import FINISHED
from tenure.core.schedules.documents import Decision
from tenure.jobs import Job
from tenure.stores.contract import Store
from tenure.timers.facts import read_runs
from tenure.timers.info import TickRecord
from tenure.timers.tick_records import tick_record

__all__ = ["EndedRuns"]

_KEPT_FOR: Final = 60.0
_KEPT_MAX: Final = 10_000


class EndedRuns:
    """The runs that earlier looks have found, without their contents, and what they became.

    A page about hundreds of timers asks for the same thousands of runs again and again. All are
    read anew every minute, as some may have been deleted since.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_at = clock.boot()
        self._ended: dict[str, JobRecord | None] = {}
        self._ticks: dict[str, TickRecord] = {}

    def forget(self) -> None:
        """Read all of them anew the next time."""
        self._read_at = self._clock.boot()
        self._ended.clear()
        self._ticks.clear()

    async def read(self, store: Store, ids: Iterable[str]) -> dict[str, JobRecord]:
        """Return runs as far as they are still there, by id. Empty ids are left out."""
        if self._clock.boot() - self._read_at >= _KEPT_FOR or len(self._ended) > _KEPT_MAX:
            self.forget()
        ids_once = [*dict.fromkeys(filter(None, ids))]
        missing = [id_ for id_ in ids_once if id_ not in self._ended]
        fresh = {
            id_: _without_contents(run) for id_, run in (await read_runs(store, missing)).items()
        }
        # One that is not there was pruned or deleted, and does not return.
        runs = {id_: fresh.get(id_) or self._ended.get(id_) for id_ in ids_once}
        self._ended |= {
            id_: runs[id_] for id_ in missing if (run := runs[id_]) is None or _has_ended(run)
        }
        return {id_: run for id_, run in runs.items() if run is not None}

    def tick(self, decision: Decision, run: Job[Any] | None) -> TickRecord:
        """Return the outcome of a tick, which is kept as well once its run has ended."""
        if run is None or not _has_ended(run.record):
            return tick_record(decision, run)
        if run.id not in self._ticks:
            self._ticks[run.id] = tick_record(decision, run)
        return self._ticks[run.id]


def _has_ended(run: JobRecord) -> bool:
    return run.state in FINISHED


def _without_contents(run: JobRecord) -> JobRecord:
    return replace(run, payload=b"", checkpoint=None, result=None)
