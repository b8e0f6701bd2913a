"""The worker: claims jobs in batches, runs them, settles them in batches.

It claims only what it can start soon. A slot is free as soon as its handler has ended; what came of
it is settled with whatever else ended meanwhile. What the worker knows can always be lost: the
store has every claim on the replica's record, and whoever comes later takes it from there.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.jobs.endings import cancelled
from tenure.core.jobs.records import SOON, Claimed, JobRecord, Note
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.jobs.shares import Shares
from tenure.core.leases import Meta, Topic
from tenure.core.policy import (
    UNKNOWN_TASK,
    UNWIND_SECONDS,
    unknown_task_delay,
    yielding_delay,
)
from tenure.core.schedules.definition import Plan
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.settings import Settings
from tenure.observe.events import Events, ReplicaLost, TaskUnknown
from tenure.runtime.attempts.attempt import Around, Handler
from tenure.runtime.attempts.backlog import Backlog
from tenure.runtime.attempts.processes.pool import ProcessLimits
from tenure.runtime.attempts.running_job import Insert
from tenure.runtime.attempts.settler import Settler
from tenure.runtime.attempts.slots import Slots, is_run
from tenure.runtime.attempts.unlocked_runs import UnlockedRuns
from tenure.runtime.data_loss import Holdings
from tenure.runtime.host import Host
from tenure.runtime.replica.audit import Audit
from tenure.runtime.replica.recovery import leave, recovery_grace
from tenure.runtime.replica.replica import Replica
from tenure.runtime.retry import Retrier
from tenure.runtime.supervised.link import SupervisorLink
from tenure.runtime.supervised.messages import HandOver, IsolationOver, Retire, Stop
from tenure.runtime.timers.ticker import Ticker
from tenure.runtime.work.claims import Claims
from tenure.runtime.work.isolation import Isolation
from tenure.runtime.work.loop_watch import LoopWatch
from tenure.runtime.work.postponed_jobs import PostponedJobs
from tenure.runtime.work.quarantine import Quarantine, is_suspicious
from tenure.runtime.work.summary import intentions
from tenure.stores.contract import Store

__all__ = ["Worker", "WorkerOptions"]

log = logging.getLogger("tenure")

# How long a last settlement gets to arrive.
_SETTLE_SECONDS = 5.0
# How long jobs that were handed over wait for each other.
_RESUMED_PATIENCE = 5.0


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """How a worker works."""

    queues: tuple[str, ...]
    weights: tuple[int, ...] = ()
    """How the queues share the worker; without weights they are served in their order."""
    concurrency: int
    timer_concurrency: int
    grace: float
    burst: bool = False
    """Whether it stops when nothing is due and nothing runs here."""


class Worker:
    """One process's part in the work. Made, run and stopped on the loop of the app."""

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
        self._store = store
        self._host = host
        self._clock = store.clock
        self._events = events
        self._handlers = handlers
        self._plans = plans
        self._options = options
        self._long_job = settings.long_job
        self._ttl = settings.replica_ttl
        self._retrier = Retrier(self._clock, events)
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._link = link
        self._resumed = resumed
        self._replica = Replica(
            host,
            settings,
            events,
            meta,
            self,
            link=link,
            resumed=None if resumed is None else resumed.replica,
        )
        self._settler = Settler(
            store,
            self._retrier,
            events,
            on_settled=self._settled,
            on_stale=self._stop_stale,
        )
        self._slots = Slots(
            self._clock,
            events,
            self._settler,
            payload_limit=settings.payload_limit,
            result_limit=settings.result_limit,
            processes=ProcessLimits(
                workers=settings.process_workers,
                start=settings.process_start,
                memory=settings.process_memory,
            ),
            around=around,
            board=None if link is None else link.board,
            concurrency=options.concurrency,
            on_freed=self._slot_freed,
            on_room=self._process_free,
            home=(store.url, store.namespace),
            insert=insert,
        )
        self._audit = Audit(store, self._retrier, self._settler)
        self._unlocked = UnlockedRuns(
            self._clock,
            events,
            handlers,
            is_running=lambda timer: timer in self._slots.timers,
            on_ended=self._unlocked_ended,
        )
        self._backlog = Backlog(
            self._clock,
            self._slots,
            self._settler,
            self._unlocked,
            concurrency=options.concurrency,
            timer_concurrency=options.timer_concurrency,
            needs_process=self._needs_process,
        )
        self._ticker = Ticker(
            store,
            self._retrier,
            events,
            plans,
            replica=lambda: self.replica,
            start=self._start_run,
            withdraw=self._withdraw_run,
            backlog=self._backlog,
            unlocked=self._unlocked,
        )
        self._postponed = PostponedJobs(
            store, self._retrier, self._settler, stopped=self._stopped, burst=options.burst
        )
        self._quarantine = Quarantine(
            self._clock,
            handlers,
            backlog=self._backlog,
            slots=self._slots,
            settler=self._settler,
            unlocked=self._unlocked,
            ticker=self._ticker,
            postponed=self._postponed,
            overdue_after=recovery_grace(settings),
            changed=self._changed,
            stopped=self._stopped,
        )
        self._isolate_after = settings.isolate_after
        self._isolation: Isolation | None = None
        if link is not None and resumed is None:
            self._isolation = Isolation(
                store,
                self._retrier,
                self._settler,
                settings,
                link,
                meta=meta,
                stopped=self._stopped,
            )
        chances = [self._clock.random() for _ in options.weights]
        self._claims = Claims(
            store,
            self._retrier,
            Shares(options.queues, options.weights, chances),
            self._stopped,
            needs_process=self._needs_process,
        )
        self.is_asked_to_stop = False
        self._leave_by = math.inf
        self._look_again = asyncio.Event()
        self._doubted: str | None = None
        self.replica: str | None = None
        """The id under which it works now; None before it has joined."""
        self.is_ready = asyncio.Event()
        """Set once it has joined for the first time."""

    async def run(self) -> None:
        """Work until `stop` is called, then finish what runs and leave."""
        board = None if self._link is None else self._link.board
        watch = LoopWatch(self._clock, self._events, self._slots, ttl=self._ttl, board=board)
        watching = None if self._clock.virtual else self._host.start(watch.run)
        self._replica.start()
        self._host.data.add_source(self._in_hand)
        claiming = asyncio.ensure_future(self._claim_until_stopped())
        ticking = asyncio.ensure_future(self._ticker.run())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((claiming, ticking, stopped), return_when=asyncio.FIRST_COMPLETED)
            # A claim on the way brings jobs to hand back. A store that is away brings none.
            await asyncio.wait([claiming, ticking], timeout=_SETTLE_SECONDS)
            for waiting in (claiming, ticking):
                if waiting.done():
                    waiting.result()
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
        """Stop, and hand back now what runs."""
        self.is_asked_to_stop = True
        self._leave_by = self._clock.boot()
        self.retire()

    def retire(self) -> None:
        """Stop claiming, and leave when what runs has finished, however long that takes."""
        self._stopped.set()
        self._ticker.stop()
        self._look_again.set()
        self._changed.set()

    @property
    def ends(self) -> dict[str, int]:
        """How many attempts have ended here, by their outcome."""
        return dict(self._slots.ends)

    @property
    def _stopping(self) -> bool:
        return self._stopped.is_set()

    # What the replica tells.

    def joined(self, replica: str) -> None:
        self.replica, self._claims.number = replica, 0
        self.is_ready.set()
        self._look_again.set()
        self._changed.set()
        self._ticker.look_again()
        options = self._options
        told = "runs jobs that were lost before, one at a time, and ends"
        if self._resumed is None:
            told = intentions(options.queues, options.weights, self._handlers, self._plans)
        log.info("worker %s %s", replica[:8], told)

    def beaten(self, replica: str, held: int | None, *, revived: bool) -> None:
        if self.replica is None and self._doubted == replica:
            # A claim was told that it is dead. It has come back: in a fail-over, say.
            self.replica = replica
            self._changed.set()
            self._ticker.look_again()
        self._slots.report_long(self._long_job)
        self._audit.beaten(held, len(self._known_here()))
        if revived or self._audit.is_due:
            # Who began to wait while it had expired has rung already, and got nothing.
            self._look_again.set()
            self._changed.set()

    def _in_hand(self) -> Holdings:
        return Holdings(self.replica or "", tuple(self._slots.ids))

    def taken_over(self, replica: str) -> None:
        self._doubted = None
        if self.replica == replica:
            self.replica = None
        self._backlog.forget()
        if self._isolation is not None:
            self._isolation.waiting.clear()
        self._events.emit(ReplicaLost(replica, tuple(self._slots.stop_replica(replica))))
        self._changed.set()

    def cancels(self, jobs: list[str]) -> None:
        wanted = set(jobs)
        self._slots.stop("cancelled", wanted)
        passed_on = [] if self._isolation is None else self._isolation.take(wanted)
        for record in (*self._backlog.take(wanted), *passed_on):
            self._settler.settle(record, cancelled(record))
        self._changed.set()

    def ordered(self, order: Stop | Retire | IsolationOver | None) -> None:
        match order:
            case Stop(now=True):
                self.stop_now()
            case Stop():
                self.stop()
            case Retire():
                self.retire()
            case IsolationOver():
                if self._isolation is not None:
                    self._isolation.process_ended()
            case None if not self.is_asked_to_stop:
                log.warning("the supervisor is gone; finishing within the grace period")
                self.stop()

    # Claiming.

    async def _claim_until_stopped(self) -> None:
        while not self._stopping:
            self._changed.clear()
            self._backlog.hand_back_stale()
            if self.replica is None:
                await self._changed.wait()
            elif self._resumed is not None:
                await self._unless_stopped(self._resume(self._resumed))
            elif self._audit.is_due:
                known = self._known_here
                await self._unless_stopped(
                    self._audit.hand_back(self.replica, known, self._stopped)
                )
            elif self._isolation is not None and self._isolation.waiting:
                await self._unless_stopped(self._isolation.run_isolated())
            elif self._backlog.suspects:
                await self._quarantine.run_next()
            elif self._wanted_jobs or (self._wanted_runs and not self._options.queues):
                await self._claim_or_sleep()
            elif self._wanted_runs and self._until_runs <= 0:
                await self._claim()
            else:
                await self._wait_for_slot()

    @property
    def _wanted_jobs(self) -> int:
        if not self._options.queues or self._claims.are_held(self._slots.process_room):
            return 0
        return self._backlog.capacity()

    def _needs_process(self, record: JobRecord) -> bool:
        handler = self._handlers.get(record.task)
        return handler is not None and handler.executor == "process" and not is_run(record)

    @property
    def _wanted_runs(self) -> int:
        """How many runs of timers could start that were triggered, or that run again."""
        return self._backlog.free_runs if self._plans else 0

    @property
    def _until_runs(self) -> float:
        """How long until runs are looked for while no job could start."""
        return self._claims.runs_looked_for + SOON - self._clock.boot()

    async def _wait_for_slot(self) -> None:
        waits = [self._backlog.wait_limit, self._until_runs if self._wanted_runs else None]
        longest = min((wait for wait in waits if wait is not None), default=None)
        await self._clock.wait(self._changed, longest)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something with patience, which ends with an error when this worker is to stop."""
        try:
            await work
        except Exception:
            if not self._stopping:
                raise

    async def _claim_or_sleep(self) -> None:
        self._look_again.clear()
        claimed = await self._claim()
        if claimed is None or self._claims.is_full:
            return
        if self._has_suspects or self._stopping:
            return
        served = (*([TIMERS_QUEUE] if self._plans else []), *self._options.queues)
        topics: list[Topic] = [("queue", name) for name in served]
        async with self._store.watch(*topics) as watch:
            # Asked again after the bell is armed, so that no wake-up falls in between.
            claimed = await self._claim()
            if claimed is None or claimed.jobs or self._stopping:
                return
            is_idle_burst = self._options.burst and not self._known_here()
            if is_idle_burst and not await self._postponed.any_waiting():
                self.retire()
                return
            pause = SOON if claimed.next_in is None else min(SOON, claimed.next_in + 0.001)
            # What waits for a slot here goes back if it waits too long.
            pause = min(pause, self._backlog.wait_limit or pause)
            waits = [
                asyncio.ensure_future(waiting)
                for waiting in (watch.wait(pause), self._look_again.wait())
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for waiting in waits:
                    waiting.cancel()

    def _stop_stale(self, note: Note) -> None:
        self._slots.stop_stale(note)

    def _settled(self, schedules: Collection[str]) -> None:
        self._ticker.runs_ended(schedules)
        self._changed.set()
        if self._options.burst:
            self._look_again.set()  # this may have been the last one

    def _start_run(self, record: JobRecord) -> None:
        """Start the run of a tick at its time. The ticker has asked for no more than fit."""
        self._slots.start(record, self._handlers[record.task])

    async def _withdraw_run(self, record: JobRecord, reason: str) -> None:
        """End a run that was made here and must not start; return when the store knows."""
        await self._settler.settle(record, replace(cancelled(record), reason=reason))

    async def _claim(self) -> Claimed | None:
        """Claim, and start what can start.

        None: the store does not know this replica any more, which its beat learns as well; or it
        did not answer before this worker was stopped, and leaving hands back what it may have got.
        """
        replica, jobs, runs = self.replica, self._wanted_jobs, self._wanted_runs
        if replica is None or not (jobs or runs) or self._stopping:
            return None
        try:
            claimed = await self._claims.claim(replica, jobs, runs, self._slots.process_room)
        except Exception:  # noqa: BLE001 - told by `Retrier`, and this worker is about to leave
            return None
        if claimed is None or self.replica != replica:
            if self.replica == replica:
                self.replica, self._doubted = None, replica
            return None
        now = self._clock.boot()
        for record in claimed.jobs:
            self._accept(record, now)
        return claimed

    def _accept(self, record: JobRecord, now: float) -> None:
        handler = self._handlers.get(record.task)
        if handler is None:
            self._events.emit(TaskUnknown(record.task, record.id, runs_of(record)), record)
            self._settler.hand_back(
                record,
                unknown_task_delay(record.attempt, self._clock.random()),
                why=UNKNOWN_TASK,
            )
        elif is_suspicious(record, self._isolate_after):
            isolation = self._isolation
            (self._backlog.suspects if isolation is None else isolation.waiting).append(record)
        elif self._slots.must_yield(record):
            self._yield(record)
        elif self._stopping or not self._backlog.has_slot(record):
            self._backlog.wait_for_slot(record, now)
        else:
            self._slots.start(record, handler)

    def _yield(self, record: JobRecord) -> None:
        """Give a job back that would wait for others, which need the slots to run."""
        self._postponed.hand_back(record, yielding_delay(record.attempt, self._clock.random()))

    def _known_here(self) -> set[str]:
        """Return the jobs that run here, wait to run, or wait to be settled."""
        elsewhere = {*self._settler.unsettled, *self._ticker.pending}
        passed_on = [] if self._isolation is None else self._isolation.ids
        return {*self._backlog.ids, *self._slots.ids, *elsewhere, *passed_on}

    @property
    def _has_suspects(self) -> bool:
        """Whether jobs that were claimed wait to run alone."""
        return bool(self._backlog.suspects or (self._isolation and self._isolation.waiting))

    async def _resume(self, taken: HandOver) -> None:
        """Run the jobs that another process has claimed for this one, one at a time; then leave.

        Their deadlines count from the claim, so what cannot start soon goes back.
        """
        self._resumed = None
        get = partial(self._store.jobs.get, taken.jobs)
        records = await self._retrier.until_answered("get", get, give_up=self._stopped)
        waiting = self._backlog.suspects
        for record in filter(None, records):
            if record.state != "running" or record.replica != taken.replica:
                continue
            if record.task in self._handlers:
                waiting.append(record)
            else:
                self._accept(record, self._clock.boot())
        until = self._clock.boot() + _RESUMED_PATIENCE
        while waiting and not self._stopping and self._clock.boot() < until:
            record = waiting.popleft()
            self._slots.start(record, self._handlers[record.task])
            while self._slots and (left := until - self._clock.boot()) > 0 and not self._stopping:
                self._changed.clear()
                await self._clock.wait(self._changed, left)
        self.retire()

    def _slot_freed(self) -> None:
        while not self._stopping and (record := self._backlog.next_for_slot()) is not None:
            if not self._slots.must_yield(record):
                self._slots.start(record, self._handlers[record.task])
                break
            self._yield(record)
        self._ticker.slot_freed()
        self._changed.set()

    def _unlocked_ended(self, timer: str) -> None:
        self._ticker.runs_ended([timer])
        self._slot_freed()

    def _process_free(self) -> None:
        """A child process is free, or another one may start."""
        self._look_again.set()
        self._slot_freed()

    # Stopping.

    async def _shut_down(self) -> None:
        self._settler.handed_back = 0
        self._backlog.hand_back()
        if self._isolation is not None:
            for record in self._isolation.take(self._isolation.ids):
                self._settler.hand_back(record)
        await self._let_finish()
        self._slots.stop("shutting down")
        self._unlocked.stop()
        self._leave_by = self._clock.boot() + UNWIND_SECONDS
        await self._let_finish()
        self._unlocked.abandon()
        await self._slots.abandon()
        await self._within(_SETTLE_SECONDS, self._settler.drain())
        self._settler.close()
        await self._replica.stop()
        replica = self.replica or self._replica.joining
        if replica is not None:
            await self._within(_SETTLE_SECONDS, self._leave(replica))
            back, short = self._settler.handed_back, replica[:8]
            log.info("worker %s has stopped; jobs handed back: %d", short, back)
        self._settler.report_unconfirmed()
        await self._slots.close()

    async def _let_finish(self) -> None:
        while (self._slots or self._unlocked) and (left := self._leave_by - self._clock.boot()) > 0:
            self._changed.clear()
            await self._clock.wait(self._changed, None if left == math.inf else left)

    async def _leave(self, replica: str) -> None:
        async def end_and_leave() -> None:
            # Else a job would be handed back that has run to its end.
            await self._settler.settle_last_time()
            await leave(self._store, replica)

        await self._retrier.until_answered("leave", end_and_leave)

    async def _within(self, seconds: float, work: Coroutine[Any, Any, None]) -> bool:
        """Give something so long to be done; say whether it was."""
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            log.warning("the store did not answer in time; others recover what is left")
            return False
        return True
