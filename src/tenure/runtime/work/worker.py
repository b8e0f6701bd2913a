"""The worker: claims jobs in batches, runs them, settles them in batches.

Invariant: the worker's state can always be lost. The store has every claim under the replica's
record, and recovery continues from there. The parts, in the order in which a job meets them:

    Claimer     claims what can start soon, and sleeps when nothing is due
    LocalWork   gives each job its place: a slot, the backlog, quarantine, or back to the store
    Settler     sends how each job ended, in batches
        Replica     renews this process's record, and learns of cancellations and take-overs

    The worker creates them, does their chores in turn, and stops them in order. An app runs it
    through `jobs.worker.EmbeddedWorker`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tenure.core.leases import Meta
from tenure.core.recovery_policy import UNWIND_SECONDS
from tenure.core.schedules.definition import Plan
from tenure.core.settings import Settings
from tenure.errors import StoreError
from tenure.observe.events import Events
from tenure.observe.replica import ReplicaJoined, ReplicaLeft, ReplicaLost
from tenure.runtime.attempts.handler import Around, Handler
from tenure.runtime.attempts.run_counter import RunCounter
from tenure.runtime.attempts.running_job import Insert
from tenure.runtime.data_loss import Holdings
from tenure.runtime.host import Host
from tenure.runtime.process_info import own_memory
from tenure.runtime.replica.audit import Audit
from tenure.runtime.replica.recovery import leave, recovery_grace
from tenure.runtime.replica.replica import Replica
from tenure.runtime.store_retry import Retrier
from tenure.runtime.supervised.link import SupervisorLink
from tenure.runtime.supervised.messages import HandOver, IsolationOver, Retire, Stop
from tenure.runtime.work.claimer import Claimer
from tenure.runtime.work.handover import run_handed_over
from tenure.runtime.work.local_work import LocalWork
from tenure.runtime.work.loop_watch import LoopWatch
from tenure.runtime.work.options import WorkerOptions
from tenure.runtime.work.quarantine import Quarantine
from tenure.runtime.work.summary import intentions
from tenure.runtime.work.worker_state import WorkerState
from tenure.stores.contract import Store

__all__ = ["Worker", "WorkerOptions"]

log = logging.getLogger("tenure")

# How long the last settlements may take to arrive.
_SETTLE_SECONDS = 5.0


class Worker:
    """The worker of one process. Created, run and stopped on the loop of the app."""

    def __init__(
        self,
        store: Store,
        host: Host,
        settings: Settings,
        events: Events,
        *,
        handlers: Mapping[str, Handler],
        around: Sequence[Around],
        options: WorkerOptions,
        meta: Meta,
        plans: Sequence[Plan] = (),
        link: SupervisorLink | None = None,
        resumed: HandOver | None = None,
        insert: Insert,
    ) -> None:
        """`resumed`: jobs that another worker has claimed for this process."""
        self._store = store
        self._host = host
        self._clock = store.clock
        self._events = events
        self._handlers = handlers
        self._plans = plans
        self._options = options
        self._ttl = settings.replica_ttl
        self._long_job = settings.long_job
        self._link = link
        self._resumed = resumed
        self._retrier = Retrier(self._clock, events, host.outages)
        self._state = WorkerState()
        self._counter = RunCounter(self._clock, own_memory)
        self._replica = Replica(
            host,
            settings,
            events,
            meta,
            self,
            counter=self._counter,
            link=link,
            resumed=None if resumed is None else resumed.replica,
        )
        self._work = LocalWork(
            store,
            self._retrier,
            events,
            settings,
            self._state,
            counter=self._counter,
            handlers=handlers,
            plans=plans,
            around=around,
            options=options,
            insert=insert,
            link=link,
            isolation_meta=meta if resumed is None else None,
        )
        self._audit = Audit(store, self._retrier, self._work.settler)
        self._quarantine = Quarantine(
            self._clock, self._work, self._state, overdue_after=recovery_grace(settings)
        )
        self._claimer = Claimer(
            store,
            self._retrier,
            self._state,
            self._work,
            options,
            has_timers=bool(plans),
            has_finished=self._has_finished,
        )
        self._leave_by = math.inf
        self._joined: str | None = None
        """The replica that has joined, unless it was declared dead."""
        self.is_asked_to_stop = False
        self.is_ready = asyncio.Event()
        """Set once the replica has joined for the first time."""

    @property
    def replica(self) -> str | None:
        """The current replica id; None before it has joined."""
        return self._state.replica

    @property
    def ends(self) -> dict[str, int]:
        """How many attempts have ended in this process, by outcome."""
        return dict(self._work.slots.ends)

    async def run(self) -> None:
        """Work until `stop` is called, then finish the running jobs and leave."""
        board = None if self._link is None else self._link.board
        watch = LoopWatch(self._clock, self._events, self._work.slots, ttl=self._ttl, board=board)
        watching = None if self._clock.virtual else self._host.start(watch.run)
        self._replica.start()
        self._host.data.add_source(self._in_hand)
        claiming = asyncio.ensure_future(self._claim_until_stopped())
        ticking = asyncio.ensure_future(self._work.ticker.run())
        stopped = asyncio.ensure_future(self._state.stopped.wait())
        try:
            await asyncio.wait((claiming, ticking, stopped), return_when=asyncio.FIRST_COMPLETED)
            # A claim in flight may return jobs, which must be handed back.
            await asyncio.wait([claiming, ticking], timeout=_SETTLE_SECONDS)
            for task in (claiming, ticking):
                if task.done():
                    task.result()
        finally:
            claiming.cancel()
            ticking.cancel()
            stopped.cancel()
            await self._shut_down()
            self._host.data.remove_source(self._in_hand)
            if watching is not None:
                await self._host.stop(watching)

    def stop(self) -> None:
        """Stop claiming and let running jobs finish within the grace period."""
        if not self.is_asked_to_stop:
            self.is_asked_to_stop = True
            self._leave_by = self._clock.boot() + self._options.grace
            self.retire()

    def stop_now(self) -> None:
        """Stop, and hand back the running jobs at once."""
        self.is_asked_to_stop = True
        self._leave_by = self._clock.boot()
        self.retire()

    def retire(self) -> None:
        """Stop claiming, and leave once the running jobs have finished, without a time limit."""
        self._state.stopped.set()
        self._work.ticker.stop()
        self._state.wake()

    # Callbacks of the replica, as its `ReplicaListener`.

    def on_joined(self, replica: str) -> None:
        self._claimer.begin(replica)
        self.is_ready.set()
        self._state.wake()
        self._work.ticker.look_again()
        options = self._options
        purpose = "runs jobs that were lost before, one at a time, and ends"
        if self._resumed is None:
            purpose = intentions(options.queues, options.weights, self._handlers, self._plans)
        log.info("worker %s %s", replica[:8], purpose, extra={"replica": replica})
        self._joined = replica
        if self._events.wants_details:
            self._events.emit(ReplicaJoined(replica, tuple(options.queues)))

    def on_heartbeat(self, replica: str, held: int | None, *, revived: bool) -> None:
        if self._state.confirm(replica):
            self._work.ticker.look_again()
        self._work.slots.report_long(self._long_job)
        self._audit.beaten(held, len(self._work.ids))
        if revived or self._audit.is_due:
            # Jobs that became due while the record had expired woke this worker in vain.
            self._state.wake()

    def on_taken_over(self, replica: str) -> None:
        self._state.lose(replica)
        self._joined = None
        self._events.emit(ReplicaLost(replica, tuple(self._work.take_over(replica))))
        self._state.changed.set()

    def on_cancels(self, jobs: list[str]) -> None:
        self._work.cancel(set(jobs))
        self._state.changed.set()

    def on_order(self, order: Stop | Retire | IsolationOver | None) -> None:
        match order:
            case Stop(now=True):
                self.stop_now()
            case Stop():
                self.stop()
            case Retire():
                self.retire()
            case IsolationOver():
                if self._work.isolation is not None:
                    self._work.isolation.process_ended()
            case None if not self.is_asked_to_stop:
                log.warning("the supervisor is gone; finishing within the grace period")
                self.stop()

    def _in_hand(self) -> Holdings:
        return Holdings(self.replica or "", tuple(self._work.slots.ids))

    # The main loop.

    async def _claim_until_stopped(self) -> None:
        """Claim, and do the chores before each claim, until this worker must stop."""
        state, work = self._state, self._work
        while not state.is_stopping:
            state.changed.clear()
            work.backlog.hand_back_stale()
            if state.replica is None:
                await state.changed.wait()
            elif self._resumed is not None:
                await self._unless_stopped(self._run_handed_over(self._resumed))
            elif self._audit.is_due:
                audit = self._audit.hand_back(state.replica, lambda: work.ids, state.stopped)
                await self._unless_stopped(audit)
            elif work.isolation is not None and work.isolation.waiting:
                await self._unless_stopped(work.isolation.run_isolated())
            elif work.backlog.suspects:
                await self._quarantine.run_next()
            else:
                await self._claimer.claim_or_wait()

    async def _unless_stopped(self, chore: Coroutine[Any, Any, None]) -> None:
        """Await calls to the store that are retried; once this worker stops they may fail."""
        try:
            await chore
        except Exception:
            if not self._state.is_stopping:
                raise

    async def _run_handed_over(self, handed_over: HandOver) -> None:
        self._resumed = None
        await run_handed_over(handed_over, self._store, self._retrier, self._state, self._work)
        self.retire()

    async def _has_finished(self) -> bool:
        """Stop a burst worker if nothing is due, runs, or was postponed."""
        is_idle_burst = self._options.burst and not self._work.ids
        if is_idle_burst and not await self._work.postponed.any_waiting():
            self.retire()
            return True
        return False

    # Stopping.

    async def _shut_down(self) -> None:
        """Hand back jobs that have not begun, let the others finish, and leave the store."""
        settler, slots, unlocked = self._work.settler, self._work.slots, self._work.unlocked
        settler.handed_back = 0
        self._work.hand_back_waiting()
        await self._let_finish()
        slots.stop("shutting down")
        unlocked.stop()
        self._leave_by = self._clock.boot() + UNWIND_SECONDS
        await self._let_finish()
        unlocked.abandon()
        await slots.abandon()
        await self._within(_SETTLE_SECONDS, settler.drain())
        settler.close()
        await self._replica.stop()
        replica = self.replica or self._replica.joining
        if replica is not None:
            await self._within(_SETTLE_SECONDS, self._leave(replica))
            back, short = settler.handed_back, replica[:8]
            text = "worker %s has stopped; jobs handed back: %d"
            log.info(text, short, back, extra={"replica": replica})
        settler.report_unconfirmed()
        await slots.close()

    async def _let_finish(self) -> None:
        state = self._state
        while self._work.is_running and (left := self._leave_by - self._clock.boot()) > 0:
            state.changed.clear()
            await self._clock.wait(state.changed, None if left == math.inf else left)

    async def _leave(self, replica: str) -> None:
        async def end_and_leave() -> None:
            # Otherwise a job that has run to its end would be handed back.
            await self._work.settler.settle_last_time()
            with suppress(StoreError):  # counts are worth no second try
                if (stats := self._counter.due(is_last=True)) is not None:
                    await self._store.jobs.beat([], ttl=self._ttl, stats=stats)
            await leave(self._store, replica, self._events)

        await self._retrier.until_answered("leave", end_and_leave)
        if replica == self._joined and self._events.wants_details:
            self._events.emit(ReplicaLeft(replica))

    async def _within(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        """Await a call for at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            log.warning(
                "the store did not answer in time; other workers recover the remaining jobs"
            )
