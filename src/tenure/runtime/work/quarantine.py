"""Jobs that may be what kills their workers.

Each of them runs alone, so that nothing else dies with it: others do not pay for its crashes. Under
a supervisor it has a process of its own, see `isolation`. Without one, the worker runs nothing else
meanwhile, until the suspect waits for another job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tenure.core.clock import Clock
from tenure.core.jobs.records import JobRecord
from tenure.runtime.attempts.attempt import Handler
from tenure.runtime.attempts.backlog import Backlog
from tenure.runtime.attempts.settler import Settler
from tenure.runtime.attempts.slots import Slots
from tenure.runtime.attempts.unlocked_runs import UnlockedRuns
from tenure.runtime.timers.ticker import Ticker
from tenure.runtime.work.postponed_jobs import PostponedJobs

__all__ = ["Quarantine", "is_suspicious"]

_ALONE_PATIENCE = 30.0


def is_suspicious(record: JobRecord, losses: int) -> bool:
    """Whether it must run alone: after so many losses it may be what kills its workers."""
    return record.losses >= losses


class Quarantine:
    """Waits until a suspect would be alone in this process, and runs it."""

    def __init__(
        self,
        clock: Clock,
        handlers: Mapping[str, Handler],
        *,
        backlog: Backlog,
        slots: Slots,
        settler: Settler,
        unlocked: UnlockedRuns,
        ticker: Ticker,
        postponed: PostponedJobs,
        overdue_after: float,
        changed: asyncio.Event,
        stopped: asyncio.Event,
    ) -> None:
        self._clock = clock
        self._handlers = handlers
        self._backlog = backlog
        self._slots = slots
        self._settler = settler
        self._unlocked = unlocked
        self._ticker = ticker
        self._postponed = postponed
        self._overdue_after = overdue_after
        self._changed = changed
        self._stopped = stopped

    async def run_next(self) -> None:
        """Run the next suspect, or give it back if others do not make room."""
        suspect = self._backlog.suspects.popleft()
        self._backlog.hand_back()
        self._backlog.suspects.append(suspect)  # a cancel, a take-over or the end takes it
        await self._wait_for_other_work(suspect)
        if not self._is_wanted:
            return
        self._backlog.suspects.clear()
        if self._has_other_work:
            # Before it is tried here again, the others get their turn for about as long.
            self._postponed.hand_back(suspect, _ALONE_PATIENCE * (0.5 + self._clock.random()))
            return
        self._backlog.runs_suspect = True
        try:
            self._slots.start(suspect, self._handlers[suspect.task])
            # A thread that does not listen to its time-out must not keep the worker for itself,
            # nor a suspect that waits for a job which this worker may have to run.
            while self._slots.busy and not self._slots.all_stopping and not self._stopped.is_set():
                self._changed.clear()
                await self._clock.wait(self._changed, _ALONE_PATIENCE)
        finally:
            self._backlog.runs_suspect = False
            self._ticker.slot_freed()

    async def _wait_for_other_work(self, suspect: JobRecord) -> None:
        give_up_at = self._clock.boot() + self._wait_limit_for(suspect)
        while self._has_other_work and self._is_wanted:
            if (left := give_up_at - self._clock.boot()) <= 0:
                return
            self._changed.clear()
            await self._clock.wait(self._changed, left)

    @property
    def _is_wanted(self) -> bool:
        """Whether the suspect is still to be run here."""
        return bool(self._backlog.suspects) and not self._stopped.is_set()

    @property
    def _has_other_work(self) -> bool:
        """Whether other work would be lost with this process: also jobs on their way back."""
        runs_here = self._slots or self._unlocked
        return bool(runs_here or self._settler.unsettled or self._ticker.pending)

    def _wait_limit_for(self, suspect: JobRecord) -> float:
        """Return how long it may wait; its deadline counts from the claim, so not for too long."""
        if suspect.timeout is None:
            return _ALONE_PATIENCE
        return min(_ALONE_PATIENCE, self._overdue_after / 2)
