"""Sends settlements and notes of running jobs to the store, in batches.

A settlement is sent until the store answers it: a lost reply is repeated, which the store
recognises. What is still unanswered when the worker stops is recovered by other workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial

from tenure.core.jobs import endings
from tenure.core.jobs.records import JobRecord, Note, Settled, Settlement
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.safe_text import safe
from tenure.observe.events import Events
from tenure.observe.jobs import AttemptFailed, AttemptLost
from tenure.observe.log_records import Raised, fields_of, write
from tenure.runtime.batcher import Batcher, next_slice
from tenure.runtime.store_retry import Retrier
from tenure.stores.contract import Purpose, Store, UserTransaction

__all__ = ["Settler"]

log = logging.getLogger("tenure")


class Settler:
    """Settles the jobs of one worker. `slots` and `backlog` hand it their ended jobs."""

    def __init__(
        self,
        store: Store,
        retrier: Retrier,
        events: Events,
        *,
        on_settled: Callable[[Collection[str]], None],
        on_stale: Callable[[Note], None],
    ) -> None:
        self._store = store
        self._retrier = retrier
        self._events = events
        self._on_settled = on_settled
        self._on_stale = on_stale
        self.unsettled: dict[str, tuple[JobRecord, Settlement]] = {}
        """Settlements that the store has not answered yet, by job."""
        self.handed_back = 0
        """How many jobs were handed back."""
        self._failures: dict[tuple[str, int], tuple[JobRecord, AttemptFailed, Raised]] = {}
        self._settling: Batcher[tuple[JobRecord, Settlement], Settled] = Batcher(
            self._settle, weigh=lambda item: _weight_of_end(item[1])
        )
        self._noting: Batcher[Note, bool] = Batcher(
            self._note, weigh=lambda note: len(note.checkpoint or b"")
        )

    def within(self, connection: object, purpose: Purpose) -> UserTransaction:
        """Join a transaction of the user; see `Store.within`."""
        return self._store.within(connection, purpose)

    def __len__(self) -> int:
        """How many settlements wait to be sent."""
        return len(self._settling)

    def settle(self, record: JobRecord, settlement: Settlement) -> asyncio.Future[Settled]:
        """Queue a settlement. Returns a future of the store's answer."""
        self.handed_back += settlement.outcome == "handed back"
        self.unsettled[settlement.id] = (record, settlement)
        return self._settling.add((record, settlement))

    def report_when_settled(self, job: JobRecord, event: AttemptFailed, raised: Raised) -> None:
        """Emit a final failure once the store has settled it: another worker may have the job."""
        self._failures[job.id, job.fence] = (job, event, raised)

    def hand_back(self, record: JobRecord, delay: float = 0.0, why: str = "") -> None:
        """Hand a job back for any worker, without counting a failure. `why` enters its history."""
        self.settle(record, _handed_back(record, delay, why))

    async def note(self, note: Note) -> bool:
        """Store a note of a running job. Returns False if it no longer runs under that fence."""
        return await self._noting.add(note)

    async def drain(self) -> None:
        """Wait until everything is settled."""
        await self._settling.drain()

    def close(self) -> None:
        """Drop unanswered settlements. Other workers recover those jobs."""
        self._settling.close()
        self._noting.close()

    def report_unconfirmed(self) -> None:
        """Log final failures that the store has not confirmed."""
        for job, event, raised in self._failures.values():
            text = f"{event}; the store has not confirmed it, so the job may run again"
            write(logging.WARNING, text, fields_of(job), raised)
        self._failures.clear()

    async def _settle(self, batch: list[tuple[JobRecord, Settlement]]) -> Sequence[Settled]:
        settle = partial(self._store.jobs.settle, [end for _, end in batch])
        answers = await self._retrier.until_answered("settle", settle)
        for (job, end), answer in zip(batch, answers, strict=True):
            self.unsettled.pop(end.id, None)
            self._report(job, end, answer)
        self._on_settled({job.schedule for job, _ in batch})
        return answers

    async def settle_last_time(self) -> None:
        """Send the unanswered settlements once more, after `close`. Raises if the store fails."""
        waiting = deque(self.unsettled.values())
        while waiting:
            batch = next_slice(waiting, lambda item: _weight_of_end(item[1]))
            ends = [end for _, end in batch]
            answers = await self._store.jobs.settle(ends)
            for (job, end), answer in zip(batch, answers, strict=True):
                self.unsettled.pop(end.id, None)
                self._report(job, end, answer)

    def _report(self, job: JobRecord, end: Settlement, answer: Settled) -> None:
        """Emit the event that the store's answer to a settlement calls for."""
        failure = self._failures.pop((end.id, end.fence), None)
        if answer == "lost":
            # A job that was handed back need not be reported; the reply may have been lost.
            if end.outcome != "handed back":
                self._events.emit(AttemptLost(end.id, end.fence, end.outcome), job)
        elif answer == "unreadable":  # the store has logged it
            self._events.notify(AttemptLost(end.id, end.fence, end.outcome, "unreadable"))
        elif answer == "settled" and end.reason == endings.INTERRUPTED:
            error = "interrupted: its worker was stopped, and it may run only once"
            self._events.emit(AttemptFailed(job.task, job.id, runs_of(job), error), job)
        elif failure is not None and answer in ("settled", "repeated") and end.outcome == "failed":
            self._events.emit(failure[1], job, failure[2])
        elif log.isEnabledFor(logging.DEBUG):
            text = f"job {job.id} of task {safe(job.task)!r}: {end.outcome}, attempt {runs_of(job)}"
            write(logging.DEBUG, text, fields_of(job))

    async def _note(self, batch: list[Note]) -> Sequence[bool]:
        send = partial(self._store.jobs.note, batch)
        # Progress is best effort. The handler waits for a checkpoint, so that is retried.
        is_patient = any(note.checkpoint is not None for note in batch)
        answers = await (self._retrier.until_answered("note", send) if is_patient else send())
        for note, stored in zip(batch, answers, strict=True):
            if not stored:
                self._on_stale(note)
        return answers


def _weight_of_end(settlement: Settlement) -> int:
    return (
        len(settlement.result or b"")
        + len(settlement.error or b"")
        + len(settlement.history or b"")
    )


def _handed_back(record: JobRecord, delay: float = 0.0, why: str = "") -> Settlement:
    """Return the settlement of a job that runs again elsewhere or later."""
    history = endings.history_of(record, "handed back", record.started, why) if why else None
    return endings.handed_back(record, delay=delay, history=history)
