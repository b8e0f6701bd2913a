"""The worker: claims jobs in batches, runs them, settles them in batches.

It claims only what it can start soon. A slot is free as soon as its handler has ended; what came of
it is settled with whatever else ended meanwhile. What the worker knows can always be lost: the
store has every claim on the replica's record, and whoever comes later takes it from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from msgspec import Struct

from tenure.core.model import Meta
from tenure.core.policy import unknown_task_delay
from tenure.core.records import (
    BATCH_MAX,
    SOON,
    Claimed,
    JobRecord,
    Note,
    Settled,
    Settlement,
)
from tenure.core.settings import Settings
from tenure.errors import StoreError
from tenure.observe.events import AttemptLost, Events, HandlerStuck, ReplicaLost, TaskUnknown
from tenure.runtime.attempt import AttemptRunner, Handler
from tenure.runtime.batcher import Batcher
from tenure.runtime.context import JobContext, StopReason
from tenure.runtime.hosting import Host
from tenure.runtime.loop_watch import LoopWatch
from tenure.runtime.patience import Patience
from tenure.runtime.replica import Replica
from tenure.stores.contract import Store

__all__ = ["Worker", "WorkerOptions"]

T = TypeVar("T")

log = logging.getLogger("tenure")

# Jobs are claimed ahead of free slots only if they start within about this time.
_AHEAD_SECONDS = 0.1
# A claimed job that could not start within this time after all goes back to others.
_AHEAD_PATIENCE = 1.0
# Results pile up while the store is away; nothing more is claimed then.
_UNSETTLED_MAX = 2000
# A job that was lost this often may be what kills its workers: it runs alone.
_SUSPICIOUS_LOSSES = 2
_ALONE_PATIENCE = 30.0
# How long a handler that was told to stop gets to unwind, and a last settlement to arrive.
_UNWIND_SECONDS = 5.0
_SETTLE_SECONDS = 5.0


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """How a worker works."""

    queues: tuple[str, ...]
    concurrency: int
    grace: float


@dataclass(slots=True, eq=False)
class _Running:
    record: JobRecord
    handler: Handler
    context: JobContext
    began: float
    task: asyncio.Task[None] | None = None

    def stop(self, reason: StopReason) -> None:
        """Ask the attempt to stop, once. A thread is only told; it may look at its context."""
        if self.context.stop_reason is not None:
            return
        self.context.stop(reason)
        if self.handler.is_async and self.task is not None:
            self.task.cancel()


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
        options: WorkerOptions,
        meta: Meta,
    ) -> None:
        self._store = store
        self._host = host
        self._clock = store.clock
        self._events = events
        self._handlers = handlers
        self._options = options
        self._result_limit = settings.result_limit
        self._patience = Patience(self._clock, events)
        self._replica = Replica(host, settings, events, meta, self)
        self._runner = AttemptRunner(self._clock, events, settings.result_limit)
        self._settling: Batcher[tuple[str, Settlement], Settled] = Batcher(self._settle_batch)
        self._noting: Batcher[tuple[str, Note], bool] = Batcher(self._note_batch)
        self._loop = asyncio.get_running_loop()
        self._running: set[_Running] = set()
        self._ahead: deque[tuple[JobRecord, float]] = deque()
        self._alone: deque[JobRecord] = deque()
        self._mean_seconds: float | None = None
        self._claim_no = 0
        self._stopping = False
        self._hurry = False
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self.replica: str | None = None
        """The id under which it works now; None before it has joined."""
        self.is_ready = asyncio.Event()
        """Set once it has joined for the first time."""

    async def run(self) -> None:
        """Work until `stop` is called, then finish what runs and leave."""
        watch = LoopWatch(self._clock, self._events)
        watching = None if self._clock.virtual else self._host.start(watch.run)
        self._replica.start()
        try:
            await self._claim_until_stopped()
        finally:
            await self._shut_down()
            if watching is not None:
                await self._host.stop(watching)

    def stop(self) -> None:
        """Stop claiming and let running jobs finish; called again, hand them back now."""
        self._hurry = self._stopping
        self._stopping = True
        self._stopped.set()
        self._changed.set()

    # What the replica tells.

    def joined(self, replica: str) -> None:
        self.replica, self._claim_no = replica, 0
        self.is_ready.set()
        self._changed.set()
        log.info(
            "worker %s takes jobs from %s; it knows the tasks %s",
            replica[:8],
            ", ".join(self._options.queues),
            ", ".join(sorted(self._handlers)) or "(none)",
        )

    def taken_over(self, replica: str) -> None:
        if self.replica == replica:
            self.replica = None
        lost = [one for one in self._running if one.record.replica == replica]
        for one in lost:
            one.stop("taken over")
        self._ahead.clear()
        self._alone.clear()
        self._events.emit(ReplicaLost(replica, tuple(one.record.id for one in lost)))
        self._changed.set()

    def cancels(self, jobs: list[str]) -> None:
        wanted = set(jobs)
        for one in self._running:
            if one.record.id in wanted:
                one.stop("cancelled")
        for record in self._take_unstarted(wanted):
            self._settle(record, Settlement(id=record.id, fence=record.fence, outcome="cancelled"))

    # Claiming.

    async def _claim_until_stopped(self) -> None:
        while not self._stopping:
            self._changed.clear()
            self._hand_back_stale()
            if self.replica is None:
                await self._changed.wait()
            elif self._alone:
                await self._run_alone(self._alone.popleft())
            elif (want := self._wanted()) == 0:
                await self._clock.wait(self._changed, _AHEAD_PATIENCE if self._ahead else None)
            else:
                await self._claim_or_sleep(want)

    def _wanted(self) -> int:
        """Return how many jobs could start soon."""
        if len(self._settling) > _UNSETTLED_MAX:
            return 0
        ahead = self._ahead_target()
        free = self._options.concurrency - len(self._running)
        if free <= 0 and len(self._ahead) > ahead // 2:
            return 0  # a larger claim in a moment is cheaper than many small ones
        return max(0, min(BATCH_MAX, free + ahead - len(self._ahead)))

    def _ahead_target(self) -> int:
        if self._mean_seconds is None or self._mean_seconds >= _AHEAD_SECONDS:
            return 0
        soon = self._options.concurrency * _AHEAD_SECONDS / max(self._mean_seconds, 1e-6)
        return min(BATCH_MAX, int(soon))

    async def _claim_or_sleep(self, want: int) -> None:
        claimed = await self._claim(want)
        if claimed is None or len(claimed.jobs) == want or self._stopping:
            return
        topics = [("queue", name) for name in self._options.queues]
        async with self._store.watch(*topics) as bell:  # type: ignore[arg-type]
            # Asked again after the bell is armed, so that no wake-up falls in between.
            claimed = await self._claim(want - len(claimed.jobs))
            if claimed is None or claimed.jobs or self._stopping:
                return
            pause = SOON if claimed.next_in is None else min(SOON, claimed.next_in + 0.001)
            waits = [asyncio.ensure_future(bell.wait(pause)), self._until_stopped()]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waits:
                    one.cancel()

    def _until_stopped(self) -> asyncio.Future[bool]:
        return asyncio.ensure_future(self._stopped.wait())

    async def _claim(self, want: int) -> Claimed | None:
        """Claim under a new number; an outage repeats it under the same one.

        None: the store does not know this replica any more, which its beat learns as well.
        """
        replica = self.replica
        if replica is None or want <= 0:
            return None
        self._claim_no += 1
        number = self._claim_no
        claimed = await self._patience.until_answered(
            "claim", lambda: self._store.claim(replica, number, self._options.queues, want)
        )
        if claimed is None or self.replica != replica:
            if self.replica == replica:
                self.replica = None
            return None
        now = self._clock.boot()
        for record in claimed.jobs:
            self._accept(record, now)
        return claimed

    def _accept(self, record: JobRecord, now: float) -> None:
        handler = self._handlers.get(record.task)
        if handler is None:
            self._events.emit(TaskUnknown(record.task, record.id, record.attempt))
            self._hand_back(record, unknown_task_delay(record.attempt, self._clock.random()))
        elif record.losses >= _SUSPICIOUS_LOSSES:
            self._alone.append(record)
        elif self._alone or len(self._running) >= self._options.concurrency:
            self._ahead.append((record, now))
        else:
            self._start(record, handler)

    def _hand_back_stale(self) -> None:
        """Give back what was claimed ahead and cannot start soon after all."""
        now = self._clock.boot()
        while self._ahead and now - self._ahead[0][1] >= _AHEAD_PATIENCE:
            self._hand_back(self._ahead.popleft()[0])

    def _take_unstarted(self, ids: set[str] | None = None) -> list[JobRecord]:
        """Remove and return claimed jobs that have not started: these, or all."""
        waiting = [*(record for record, _ in self._ahead), *self._alone]
        taken = [record for record in waiting if ids is None or record.id in ids]
        gone = {record.id for record in taken}
        self._ahead = deque(one for one in self._ahead if one[0].id not in gone)
        self._alone = deque(one for one in self._alone if one.id not in gone)
        return taken

    async def _run_alone(self, record: JobRecord) -> None:
        """Run a job that may kill its process when nothing else would die with it."""
        for other in self._take_unstarted():
            self._hand_back(other)
        give_up_at = self._clock.boot() + _ALONE_PATIENCE
        while self._running and not self._stopping:
            left = give_up_at - self._clock.boot()
            if left <= 0 or self.replica != record.replica:
                break
            self._changed.clear()
            await self._clock.wait(self._changed, left)
        if self._running or self._stopping or self.replica != record.replica:
            self._hand_back(record, 5.0 * self._clock.random())
            return
        self._start(record, self._handlers[record.task])
        while self._running and not self._stopping:
            self._changed.clear()
            await self._changed.wait()

    # Running.

    def _start(self, record: JobRecord, handler: Handler) -> None:
        async def send(note: Note) -> bool:
            return await self._noting.add((record.replica, note))

        context = JobContext(record, send, self._loop, self._result_limit)
        running = _Running(record, handler, context, self._clock.boot())
        self._running.add(running)
        running.task = self._loop.create_task(self._attempt(running))

    async def _attempt(self, running: _Running) -> None:
        settlement: Settlement | None = None
        try:
            settlement = await self._runner.run(running.handler, running.record, running.context)
        except asyncio.CancelledError:
            settlement = self._after_cancel(running)
        finally:
            self._ended(running)
        if settlement is not None:
            self._settle(running.record, settlement)

    def _after_cancel(self, running: _Running) -> Settlement | None:
        """Return how an attempt ended that stopped because it was told to, or by itself."""
        record, began = running.record, running.began
        match running.context.stop_reason:
            case "taken over":
                return None
            case "shutting down":
                return _handed_back(record)
            case "cancelled":
                history = self._runner.history(record, "cancelled", began)
                return Settlement(
                    id=record.id, fence=record.fence, outcome="cancelled", history=history
                )
            case "timed out":
                return self._runner.timed_out(running.handler, record, began)
            case None:
                error = RuntimeError("the handler cancelled itself")
                return self._runner.failed(running.handler, record, error, began)

    def _ended(self, running: _Running) -> None:
        self._running.discard(running)
        took = self._clock.boot() - running.began
        mean = self._mean_seconds
        self._mean_seconds = took if mean is None else 0.9 * mean + 0.1 * took
        if self._ahead and not self._stopping and not self._alone:
            record, _ = self._ahead.popleft()
            self._start(record, self._handlers[record.task])
        self._changed.set()

    # Settling.

    def _settle(self, record: JobRecord, settlement: Settlement) -> None:
        self._settling.add((record.replica, settlement))

    def _hand_back(self, record: JobRecord, delay: float = 0.0) -> None:
        self._settle(record, _handed_back(record, delay))

    async def _settle_batch(self, batch: list[tuple[str, Settlement]]) -> Sequence[Settled]:
        answers: list[Settled] = []
        for replica, settlements in _by_replica(batch):
            settle = partial(self._store.settle, replica, settlements)
            answers += await self._patience.until_answered("settle", settle)
        for (_, one), answer in zip(batch, answers, strict=True):
            if answer == "lost":
                self._events.emit(AttemptLost(one.id, one.fence, one.outcome))
        self._changed.set()
        return answers

    async def _note_batch(self, batch: list[tuple[str, Note]]) -> Sequence[bool]:
        answers: list[bool] = []
        for replica, notes in _by_replica(batch):
            answers += await self._store.note(replica, notes)
        for (_, note), stored in zip(batch, answers, strict=True):
            if not stored:
                self._stop_stale(note)
        return answers

    def _stop_stale(self, note: Note) -> None:
        """Stop an attempt that somebody else has taken over meanwhile."""
        for one in self._running:
            if (one.record.id, one.record.fence) == (note.id, note.fence):
                one.stop("taken over")

    # Stopping.

    async def _shut_down(self) -> None:
        for record in self._take_unstarted():
            self._hand_back(record)
        await self._let_finish(self._options.grace)
        for one in list(self._running):
            one.stop("shutting down")
        self._hurry = False
        await self._let_finish(_UNWIND_SECONDS)
        await self._abandon_stuck()
        await self._within(_SETTLE_SECONDS, self._settling.drain())
        await self._replica.stop()
        if self.replica is not None:
            await self._within(_SETTLE_SECONDS, self._leave(self.replica))
        self._runner.threads.close()

    async def _let_finish(self, seconds: float) -> None:
        until = self._clock.boot() + seconds
        while self._running and not self._hurry and (left := until - self._clock.boot()) > 0:
            self._changed.clear()
            await self._clock.wait(self._changed, left)

    async def _abandon_stuck(self) -> None:
        """Hand back what does not stop. It may go on here while it runs elsewhere: fences tell."""
        for one in list(self._running):
            record = one.record
            self._events.emit(HandlerStuck(record.task, record.id, "shutting down"))
            if one.task is not None:
                one.task.cancel()
        await self._clock.sleep(0)
        for one in list(self._running):
            self._hand_back(one.record)

    async def _leave(self, replica: str) -> None:
        try:
            await self._store.leave(replica)
        except StoreError as error:
            log.warning("could not leave; the others notice within the replica ttl: %s", error)

    async def _within(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            log.warning("the store did not answer in time; others recover what is left")


def _handed_back(record: JobRecord, delay: float = 0.0) -> Settlement:
    return Settlement(id=record.id, fence=record.fence, outcome="handed back", delay=delay)


def _by_replica(batch: list[tuple[str, T]]) -> Iterator[tuple[str, list[T]]]:
    """Split a batch, in its order; more than one part only after a replica was taken for dead."""
    for replica, items in groupby(batch, key=itemgetter(0)):
        yield replica, [item for _, item in items]
