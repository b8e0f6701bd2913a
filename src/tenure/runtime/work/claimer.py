"""The claimer: decides when a worker claims jobs and when it waits.

It claims only jobs that can start soon. When nothing is due it sleeps until the store wakes it, and
polls about once a second in case a wake-up is lost. The `Worker` calls it in turn with its chores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tenure.core.jobs.queue_shares import Shares
from tenure.core.jobs.records import SOON, Claimed
from tenure.core.leases import Topic
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.runtime.store_retry import Retrier
from tenure.runtime.work.claims import Claims
from tenure.runtime.work.local_work import LocalWork
from tenure.runtime.work.options import WorkerOptions
from tenure.runtime.work.worker_state import WorkerState
from tenure.stores.contract import Store

__all__ = ["Claimer"]


class Claimer:
    """Claims jobs for one worker, and passes them to its `LocalWork`."""

    def __init__(
        self,
        store: Store,
        retrier: Retrier,
        state: WorkerState,
        work: LocalWork,
        options: WorkerOptions,
        *,
        has_timers: bool,
        has_finished: Callable[[], Awaitable[bool]],
    ) -> None:
        """`has_finished` is called when nothing is due. If it returns True, the worker stops."""
        self._store = store
        self._clock = store.clock
        self._state = state
        self._work = work
        self._queues = options.queues
        self._has_timers = has_timers
        self._has_finished = has_finished
        chances = [self._clock.random() for _ in options.weights]
        self._claims = Claims(
            store,
            retrier,
            Shares(options.queues, options.weights, chances),
            state.stopped,
            needs_process=work.needs_process,
        )

    def begin(self, replica: str) -> None:
        """Claim under this id from now on, with claim numbers from 1."""
        self._state.replica, self._claims.number = replica, 0

    async def claim_or_wait(self) -> None:
        """Claim if a job could start, else wait until one could."""
        if self._jobs_wanted or (self._runs_wanted and not self._queues):
            await self._claim_or_sleep()
        elif self._runs_wanted and self._until_runs <= 0:
            await self._claim()
        else:
            await self._wait_for_slot()

    @property
    def _jobs_wanted(self) -> int:
        """How many more jobs could start soon."""
        if not self._queues or self._claims.are_held(self._work.slots.process_room):
            return 0
        return self._work.backlog.capacity()

    @property
    def _runs_wanted(self) -> int:
        """How many triggered or repeated runs of timers could start."""
        return self._work.backlog.free_runs if self._has_timers else 0

    @property
    def _until_runs(self) -> float:
        """How long until the next look for runs of timers while no job could start."""
        return self._claims.runs_looked_for + SOON - self._clock.boot()

    async def _wait_for_slot(self) -> None:
        limits = [self._work.backlog.wait_limit, self._until_runs if self._runs_wanted else None]
        longest = min((limit for limit in limits if limit is not None), default=None)
        await self._clock.wait(self._state.changed, longest)

    async def _claim_or_sleep(self) -> None:
        self._state.look_again.clear()
        claimed = await self._claim()
        if claimed is None or self._claims.is_full:
            return
        if self._work.has_suspects or self._state.is_stopping:
            return
        served = (*([TIMERS_QUEUE] if self._has_timers else []), *self._queues)
        topics: list[Topic] = [("queue", name) for name in served]
        async with self._store.watch(*topics) as watch:
            # Claim again now that the watch is armed, so that no wake-up is missed.
            claimed = await self._claim()
            if claimed is None or claimed.jobs or self._state.is_stopping:
                return
            if await self._has_finished():
                return
            pause = SOON if claimed.next_in is None else min(SOON, claimed.next_in + 0.001)
            # Jobs that wait too long for a slot are handed back.
            pause = min(pause, self._work.backlog.wait_limit or pause)
            wake_ups = [
                asyncio.ensure_future(wake_up)
                for wake_up in (watch.wait(pause), self._state.look_again.wait())
            ]
            try:
                await asyncio.wait(wake_ups, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wake_up in wake_ups:
                    wake_up.cancel()

    async def _claim(self) -> Claimed | None:
        """Claim jobs, and start them or queue them for a slot.

        Returns None if the store no longer knows this replica, which the heartbeat learns as well.
        Also if it did not answer before this worker was stopped; leaving hands back what that claim
        may have taken.
        """
        state, work = self._state, self._work
        replica, jobs, runs = state.replica, self._jobs_wanted, self._runs_wanted
        if replica is None or not (jobs or runs) or state.is_stopping:
            return None
        try:
            claimed = await self._claims.claim(replica, jobs, runs, work.slots.process_room)
        except Exception:  # noqa: BLE001 - logged by `Retrier`, and this worker is about to leave
            return None
        if claimed is None or state.replica != replica:
            if state.replica == replica:
                state.doubt()
            return None
        now = self._clock.boot()
        for record in claimed.jobs:
            work.accept(record, now)
        return claimed
