"""Sends settlements and notes of running jobs to the store, in batches.

A settlement is sent until the store answers it: a lost reply is repeated, which the store
recognises. What is still unanswered when the worker stops is recovered by other workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from tenure.core.jobs import endings
from tenure.core.jobs.records import JobRecord, Note, Settled, Settlement
from tenure.errors import StoreError
from tenure.observe.events import Events
from tenure.observe.jobs import AttemptLost, JobFailed, JobRetried
from tenure.observe.log_records import Raised, fields_of, write
from tenure.runtime.attempts.job_ends import report_end
from tenure.runtime.attempts.run_counter import RunCounter, run_end
from tenure.runtime.batcher import Batcher, next_slice
from tenure.runtime.store_retry import Retrier
from tenure.stores.contract import Purpose, Store, UserTransaction

__all__ = ["Ended", "Settler"]


class Ended(NamedTuple):
    """An attempt that has ended, with what its event says about the end."""

    job: JobRecord
    settlement: Settlement
    seconds: float = 0.0
    """How long it ran."""
    reason: str = ""
    """Why it is handed back."""


class Settler:
    """Settles the jobs of one worker. `slots` and `backlog` hand it their ended jobs."""

    def __init__(
        self,
        store: Store,
        retrier: Retrier,
        events: Events,
        counter: RunCounter,
        *,
        on_settled: Callable[[Collection[str]], None],
        on_stale: Callable[[Note], None],
    ) -> None:
        self._store = store
        self._retrier = retrier
        self._events = events
        self._counter = counter
        self._on_settled = on_settled
        self._on_stale = on_stale
        self.unsettled: dict[str, Ended] = {}
        """Settlements that the store has not answered yet, by job."""
        self.handed_back = 0
        """How many jobs were handed back."""
        self._failures: dict[
            tuple[str, int], tuple[JobRecord, JobFailed | JobRetried, Raised | None]
        ] = {}
        self._settling: Batcher[Ended, Settled] = Batcher(self._settle, weigh=_weight_of_end)
        self._noting: Batcher[Note, bool] = Batcher(
            self._note, weigh=lambda note: len(note.checkpoint or b"")
        )

    def within(self, connection: object, purpose: Purpose) -> UserTransaction:
        """Join a transaction of the user; see `Store.within`."""
        return self._store.within(connection, purpose)

    def __len__(self) -> int:
        """How many settlements wait to be sent."""
        return len(self._settling)

    def settle(
        self, record: JobRecord, settlement: Settlement, *, seconds: float = 0.0, reason: str = ""
    ) -> asyncio.Future[Settled]:
        """Queue a settlement. Returns a future of the store's answer.

        `seconds` is how long the attempt ran, `reason` why it is handed back: for its event.
        """
        self.handed_back += settlement.outcome == "handed back"
        ended = Ended(record, settlement, seconds, reason)
        self.unsettled[settlement.id] = ended
        return self._settling.add(ended)

    def report_when_settled(
        self, job: JobRecord, event: JobFailed | JobRetried, raised: Raised | None
    ) -> None:
        """Emit a failure once the store has settled it: another worker may have the job."""
        self._failures[job.id, job.fence] = (job, event, raised)

    def hand_back(
        self, record: JobRecord, delay: float = 0.0, *, reason: str, is_recorded: bool = False
    ) -> None:
        """Hand a job back for any worker, without counting a failure.

        `is_recorded`: the reason enters the job's history.
        """
        end = _handed_back(record, delay, reason if is_recorded else "")
        self.settle(record, end, reason=reason)

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
        """Log failures that the store has not confirmed."""
        for job, event, raised in self._failures.values():
            text = f"{event.line}; the store has not confirmed it, so the job may run again"
            write(min(event.level, logging.WARNING), text, fields_of(job), raised)
        self._failures.clear()

    async def _settle(self, batch: list[Ended]) -> Sequence[Settled]:
        settle = partial(self._store.jobs.settle, [ended.settlement for ended in batch])
        answers = await self._retrier.until_answered("settle", settle)
        if "repeated" in answers or "lost" in answers:
            self._settled(*await self._clarified(batch, answers))
        else:
            self._settled(batch, answers)
        self._on_settled({ended.job.schedule for ended in batch})
        return answers

    async def settle_last_time(self) -> None:
        """Send the unanswered settlements once more, after `close`. Raises if the store fails."""
        waiting = deque(self.unsettled.values())
        while waiting:
            batch = next_slice(waiting, _weight_of_end)
            answers = await self._store.jobs.settle([ended.settlement for ended in batch])
            self._settled(*await self._clarified(batch, answers))

    async def _clarified(
        self, batch: Sequence[Ended], answers: Sequence[Settled]
    ) -> tuple[list[Ended], list[Settled]]:
        """Return what has really been settled, where the answers do not say it.

        The answer to a repeat does not say that the store has cancelled the job, which would have
        waited again. And an attempt is "lost" as well if its own transaction has ended the job,
        although the handler has got no answer to its commit.
        """
        ends, clear = list(batch), list(answers)
        unclear = [
            number
            for number, answer in enumerate(answers)
            if _is_unclear(batch[number].settlement, answer)
        ]
        if unclear:
            with suppress(StoreError):  # the settlements are stored, and that is what counts
                jobs = await self._store.jobs.get([batch[number].job.id for number in unclear])
                for number, job in zip(unclear, jobs, strict=True):
                    if job is None:
                        continue
                    if clear[number] == "repeated" and _is_cancelled_by_it(job, batch[number]):
                        clear[number] = "cancelled"
                    elif clear[number] == "lost" and _has_succeeded(job, batch[number]):
                        ends[number], clear[number] = self._committed(batch[number]), "repeated"
        return ends, clear

    def _committed(self, ended: Ended) -> Ended:
        """Return the end of an attempt whose own transaction has ended the job; log its error."""
        if failure := self._failures.pop((ended.job.id, ended.job.fence), None):
            text = f"job {ended.job.id} has succeeded with its commit, although it raised"
            write(logging.WARNING, f"{text} {failure[1].error}", fields_of(ended.job))
        end = replace(ended.settlement, state="succeeded", outcome="succeeded")
        return ended._replace(settlement=end)

    def _settled(self, batch: Sequence[Ended], answers: Sequence[Settled]) -> None:
        wants_details = self._events.wants_details
        for ended, answer in zip(batch, answers, strict=True):
            end = ended.settlement
            self.unsettled.pop(end.id, None)
            self._counter.ended(ended.job, run_end(end, answer), ended.seconds)
            if wants_details or answer != "settled" or end.state != "succeeded":
                self.report(ended, answer)

    def report(self, ended: Ended, answer: Settled) -> None:
        """Emit the event that the store's answer to a settlement calls for."""
        job, end = ended.job, ended.settlement
        failure = self._failures.pop((end.id, end.fence), None)
        if answer == "lost":
            # A job that was handed back need not be reported; the reply may have been lost.
            if end.outcome != "handed back":
                self._events.emit(AttemptLost(end.id, end.fence, end.outcome), job)
        elif answer == "unreadable":  # the store has logged it
            self._events.notify(AttemptLost(end.id, end.fence, end.outcome, "unreadable"))
        elif answer == "cancelled":
            report_end(self._events, job, replace(end, state="cancelled"))
        elif failure is not None and _is_failure(end):
            self._events.emit(failure[1], job, failure[2])
        else:
            report_end(self._events, job, end, seconds=ended.seconds, reason=ended.reason)

    async def _note(self, batch: list[Note]) -> Sequence[bool]:
        send = partial(self._store.jobs.note, batch)
        # Progress is best effort. The handler waits for a checkpoint, so that is retried.
        is_patient = any(note.checkpoint is not None for note in batch)
        answers = await (self._retrier.until_answered("note", send) if is_patient else send())
        for note, stored in zip(batch, answers, strict=True):
            if not stored:
                self._on_stale(note)
        return answers


def _is_failure(end: Settlement) -> bool:
    """Whether a handler's failure is what the store has stored; not that it was interrupted."""
    return end.outcome in ("failed", "retry") and end.reason != endings.INTERRUPTED


def _is_unclear(end: Settlement, answer: Settled) -> bool:
    """Whether only the job itself says what has become of it; see `Settler._clarified`."""
    if answer == "repeated":
        return end.state == "waiting" or end.yields_to_cancel
    return answer == "lost" and end.outcome in ("failed", "retry")


def _is_cancelled_by_it(job: JobRecord, ended: Ended) -> bool:
    """Whether the settlement has cancelled the job: a job that has waited since has a new fence."""
    return job.state == "cancelled" and job.fence == ended.job.fence


def _has_succeeded(job: JobRecord, ended: Ended) -> bool:
    """Whether this very attempt has succeeded: only its own transaction could settle that."""
    return job.state == "succeeded" and job.fence == ended.job.fence


def _weight_of_end(ended: Ended) -> int:
    settlement = ended.settlement
    return (
        len(settlement.result or b"")
        + len(settlement.error or b"")
        + len(settlement.history or b"")
    )


def _handed_back(record: JobRecord, delay: float = 0.0, why: str = "") -> Settlement:
    """Return the settlement of a job that runs again elsewhere or later."""
    history = endings.history_of(record, "handed back", record.started, why) if why else None
    return endings.handed_back(record, delay=delay, history=history)
