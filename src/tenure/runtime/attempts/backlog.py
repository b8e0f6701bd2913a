"""Jobs that a worker has claimed and not started: how many it may claim, and how long they wait.

Quick jobs are claimed ahead of free slots, so that no slot is idle during a round trip to the
store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from tenure.core.clock import Clock
from tenure.core.jobs.records import BATCH_MAX, JobRecord
from tenure.runtime.attempts.settler import Settler
from tenure.runtime.attempts.slots import Slots, is_run
from tenure.runtime.attempts.unlocked_runs import UnlockedRuns

__all__ = ["Backlog"]

# Jobs are claimed ahead of free slots only if they can start within about this time.
_AHEAD_SECONDS = 0.1
# A claimed job that has not started after this time is handed back for other workers.
_WAIT_MAX = 1.0
# Results queue up while the store does not answer. Beyond this number nothing is claimed.
_UNSETTLED_MAX = 2000

_NO_SLOT = "its worker has no free slot"


class Backlog:
    """Claimed jobs that wait for a slot, or to run alone in this process."""

    def __init__(
        self,
        clock: Clock,
        slots: Slots,
        settler: Settler,
        unlocked: UnlockedRuns,
        *,
        concurrency: int,
        timer_concurrency: int,
        needs_process: Callable[[JobRecord], bool],
    ) -> None:
        self._clock = clock
        self._slots = slots
        self._settler = settler
        self._unlocked = unlocked
        self._concurrency = concurrency
        self.timer_concurrency = timer_concurrency
        self._ahead: deque[tuple[JobRecord, float]] = deque()
        self._needs_process = needs_process
        self._runs: deque[tuple[JobRecord, float]] = deque()
        self._for_process: deque[tuple[JobRecord, float]] = deque()
        self.suspects: deque[JobRecord] = deque()
        """Jobs that may kill their process. Nothing else starts while one waits."""

        self.runs_suspect = False
        """Whether a suspect runs. Nothing else may start beside it."""

    @property
    def wait_limit(self) -> float | None:
        """How soon to call `hand_back_stale`; None if no job waits for a slot."""
        return _WAIT_MAX if self._ahead or self._runs or self._for_process else None

    @property
    def ids(self) -> set[str]:
        return {record.id for record in self._waiting}

    @property
    def _waiting(self) -> list[JobRecord]:
        waiting = (*self._ahead, *self._runs, *self._for_process)
        return [*(record for record, _ in waiting), *self.suspects]

    def capacity(self) -> int:
        """Return how many more jobs to claim: free slots, and those that will be free soon."""
        if len(self._settler) > _UNSETTLED_MAX:
            return 0
        ahead = self._ahead_target()
        free = self._free
        if free <= 0 and len(self._ahead) > ahead // 2:
            return 0  # one larger claim later costs less than many small ones
        return max(0, min(BATCH_MAX, free + ahead - len(self._ahead)))

    def _ahead_target(self) -> int:
        mean = self._slots.mean_seconds
        if mean is None or mean >= _AHEAD_SECONDS:
            return 0
        soon = self._concurrency * _AHEAD_SECONDS / max(mean, 1e-6)
        return min(BATCH_MAX, int(soon))

    @property
    def free_runs(self) -> int:
        """How many more runs of timers could start now."""
        if self.suspects or self.runs_suspect:
            return 0
        return max(0, self._free_timer_slots - len(self._runs))

    @property
    def running_timers(self) -> list[str]:
        """The timers that have an unfinished run in this process, with or without a job."""
        return list(dict.fromkeys([*self._slots.timers, *self._unlocked.timers]))

    @property
    def _free_timer_slots(self) -> int:
        return self.timer_concurrency - self._slots.runs - len(self._unlocked)

    def has_slot(self, record: JobRecord) -> bool:
        """Whether a job or run that was just claimed may start."""
        if self.suspects:
            return False
        if is_run(record):
            return self.free_runs > 0
        return self._free > 0 and self._has_process(record)

    @property
    def _free(self) -> int:
        """How many jobs could start. Jobs that want a lent slot back come first."""
        return self._concurrency - self._slots.jobs - self._slots.returning

    def _has_process(self, record: JobRecord) -> bool:
        return self._slots.process_room > 0 or not self._needs_process(record)

    def wait_for_slot(self, record: JobRecord, now: float) -> None:
        if is_run(record):
            self._runs.append((record, now))
        elif not self._has_process(record):
            self._for_process.append((record, now))
        else:
            self._ahead.append((record, now))

    def next_for_slot(self) -> JobRecord | None:
        """Remove and return the job that gets the next free slot, if there is one."""
        if self.suspects:
            return None
        if self._free > 0:
            if self._for_process and self._slots.process_room:
                return self._for_process.popleft()[0]
            while self._ahead:
                waiting = self._ahead.popleft()
                if self._has_process(waiting[0]):
                    return waiting[0]
                self._for_process.append(waiting)
        if self._runs and self._free_timer_slots > 0:
            return self._runs.popleft()[0]
        return None

    def hand_back_stale(self) -> None:
        """Hand back jobs that were claimed ahead and have waited too long for a slot."""
        now = self._clock.boot()
        while self._ahead and now - self._ahead[0][1] >= _WAIT_MAX:
            self._settler.hand_back(self._ahead.popleft()[0], reason=_NO_SLOT)
            # Jobs take longer than measured: claim nothing ahead until one has ended.
            self._slots.mean_seconds = None
        for waiting in (self._runs, self._for_process):
            while waiting and now - waiting[0][1] >= _WAIT_MAX:
                self._settler.hand_back(waiting.popleft()[0], reason=_NO_SLOT)

    def hand_back(self, *, reason: str) -> None:
        """Hand back all waiting jobs to other workers."""
        for record in self.take(self.ids):
            self._settler.hand_back(record, reason=reason)

    def take(self, ids: Collection[str]) -> list[JobRecord]:
        """Remove these jobs from the backlog; return the ones that were in it."""
        taken = [record for record in self._waiting if record.id in ids]
        self._ahead = deque(waiting for waiting in self._ahead if waiting[0].id not in ids)
        self._runs = deque(waiting for waiting in self._runs if waiting[0].id not in ids)
        self._for_process = deque(
            waiting for waiting in self._for_process if waiting[0].id not in ids
        )
        self.suspects = deque(waiting for waiting in self.suspects if waiting.id not in ids)
        return taken

    def forget(self) -> None:
        """Drop all waiting jobs: other replicas have recovered them."""
        self._ahead.clear()
        self._runs.clear()
        self._for_process.clear()
        self.suspects.clear()
