"""Runs suspects alone in this process, if no supervisor can give them a process of their own.

A suspect that kills its worker then takes no other job with it. The worker starts nothing else
until the suspect has ended, or waits for another job.
"""

from __future__ import annotations

from tenure.core.clock import Clock
from tenure.core.jobs.records import JobRecord
from tenure.runtime.work.local_work import LocalWork
from tenure.runtime.work.worker_state import WorkerState

__all__ = ["Quarantine"]

_WAIT_MAX = 30.0


class Quarantine:
    """Waits until a suspect is alone in this process, and runs it."""

    def __init__(
        self, clock: Clock, work: LocalWork, state: WorkerState, *, overdue_after: float
    ) -> None:
        """`overdue_after`: how long after its deadline others take a job from a living worker."""
        self._clock = clock
        self._work = work
        self._backlog = work.backlog
        self._state = state
        self._overdue_after = overdue_after

    async def run_next(self) -> None:
        """Run the next suspect, or hand it back if other work does not end in time."""
        suspect = self._backlog.suspects.popleft()
        self._backlog.hand_back(reason="its worker runs a job alone")
        # Put back, because a cancellation, a take-over or the end of the worker removes it from
        # there.
        self._backlog.suspects.append(suspect)
        await self._wait_for_other_work(suspect)
        if not self._is_wanted:
            return
        self._backlog.suspects.clear()
        if not self._work.is_empty:
            # Other jobs get about as much time before this worker tries the suspect again.
            delay = _WAIT_MAX * (0.5 + self._clock.random())
            reason = "it must run alone, and other jobs of its worker have not ended"
            self._work.postponed.hand_back(suspect, delay, reason=reason)
            return
        await self._run(suspect)

    async def _run(self, suspect: JobRecord) -> None:
        slots, state = self._work.slots, self._state
        self._backlog.runs_suspect = True
        try:
            self._work.start(suspect)
            # Ends the quarantine for a thread that ignores its time-out, and for a suspect that
            # waits for a job that this worker may have to run.
            while slots.busy and not slots.all_stopping and not state.is_stopping:
                state.changed.clear()
                await self._clock.wait(state.changed, _WAIT_MAX)
        finally:
            self._backlog.runs_suspect = False
            self._work.ticker.slot_freed()

    async def _wait_for_other_work(self, suspect: JobRecord) -> None:
        give_up_at = self._clock.boot() + self._wait_limit_for(suspect)
        while not self._work.is_empty and self._is_wanted:
            if (left := give_up_at - self._clock.boot()) <= 0:
                return
            self._state.changed.clear()
            await self._clock.wait(self._state.changed, left)

    @property
    def _is_wanted(self) -> bool:
        """Whether the suspect must still run here."""
        return bool(self._backlog.suspects) and not self._state.is_stopping

    def _wait_limit_for(self, suspect: JobRecord) -> float:
        """Return how long a suspect may wait. Its deadline counts from the claim."""
        if suspect.timeout is None:
            return _WAIT_MAX
        return min(_WAIT_MAX, self._overdue_after / 2)
