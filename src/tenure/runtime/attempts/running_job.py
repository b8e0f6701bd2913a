"""A running job, as its worker and its handler use it: notes, checkpoints, stop requests.

Handlers get the `JobContext`, which calls the methods here.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypeVar

from tenure.core.jobs.records import Inserted, JobRecord, NewJob, Note
from tenure.core.jobs.view import as_datetime
from tenure.core.leases import storable
from tenure.core.values.json import decode_plain, encode
from tenure.errors import ConfigError, StoreError, TooLarge
from tenure.runtime.attempts.time_limit import TimeLimit
from tenure.runtime.attempts.transaction import Ending, JobTransaction
from tenure.stores.contract import Purpose, UserTransaction

__all__ = ["Insert", "RunningJob", "StopReason", "current"]

StopReason: TypeAlias = Literal["cancelled", "timed out", "taken over", "shutting down"]

T = TypeVar("T")

_MESSAGE_MAX = 1000
# Longer than a working store takes. The result of the job does not wait longer than that.
_LAST_WORD_SECONDS = 1.0

Insert: TypeAlias = Callable[[list[NewJob]], Awaitable[tuple[list[Inserted], list[JobRecord]]]]
"""Stores jobs. Returns the answers, and the jobs that existed before."""

current: ContextVar[RunningJob] = ContextVar("tenure_job")


class RunningJob:
    """One running job, with what its worker keeps about it."""

    def __init__(
        self,
        record: JobRecord,
        send: Callable[[Note], Awaitable[bool]],
        loop: asyncio.AbstractEventLoop,
        checkpoint_limit: int,
        within: Callable[[object, Purpose], UserTransaction] | None = None,
    ) -> None:
        self.record = record
        self._send = send
        self._loop = loop
        self._limit = checkpoint_limit
        self._within = within
        self._transaction: weakref.ref[JobTransaction] | None = None
        self._checkpoint = record.checkpoint
        self._newest: Note | None = None
        self._is_scheduled = False
        self._progress: Note | None = None
        self._sending: set[asyncio.Future[Any]] = set()
        self._has_notes = False
        self.stop_reason: StopReason | None = None
        """Why the attempt was asked to stop; None if it was not."""
        self.stopped = asyncio.Event()
        """Set when the attempt was asked to stop."""
        self.is_settled = False
        """Whether a transaction of the handler has settled it already."""
        self.ending: Ending | None = None
        """Set by `AttemptRunner`."""
        self.lend_slot: Callable[[str], AbstractAsyncContextManager[None]] | None = None
        """Lends its slot while it waits for the job of that id. Set by `Slots`."""
        self.home = ("", "")
        """The store of the worker: its URL and namespace."""
        self.insert: Insert = _insert_nothing
        """Stores jobs over the worker's own connection, on the loop of the worker."""
        self.postponed = 0.0
        """How long after the claim the time-out began, in seconds."""
        self.time_limit: TimeLimit | None = None
        """Its time-out, if that can be paused while a child process starts."""
        self.on_deadline: Callable[[float], None] | None = None
        """Gets the deadline of the attempt by the local clock; 0 while it has none."""
        self.tries = 1
        """How often the handler was called in this attempt."""
        self.shown: Any = None
        """Its `JobContext`, once the handler has one."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def fence(self) -> int:
        """A number larger than that of every earlier attempt. Pass it on with writes."""
        return self.record.fence

    @property
    def started(self) -> datetime:
        """When this attempt was claimed, by the store's clock."""
        return as_datetime(self.record.started)

    @property
    def deadline(self) -> datetime | None:
        """When the time-out of this attempt is over, by the store's clock."""
        record = self.record
        if record.timeout is None:
            return None
        return as_datetime(record.started) + timedelta(seconds=record.timeout + self.postponed)

    @property
    def cancelled(self) -> bool:
        """Whether this attempt should stop. Asynchronous code is cancelled anyway."""
        return self.stop_reason is not None

    def check(self) -> None:
        """Raise CancelledError if this attempt should stop: for loops in synchronous code."""
        if self.stop_reason is not None:
            raise asyncio.CancelledError(self.stop_reason)

    def progress(self, part: float, message: str = "") -> None:
        """Report progress from 0 to 1; see `JobContext.progress`."""
        if not 0 <= part <= 1:
            msg = f"progress goes from 0 to 1, not {part!r}."
            raise ConfigError(msg)
        shown_message = storable(message, _MESSAGE_MAX)
        if self.is_settled:
            return  # the attempt has ended: late progress must not make it look alive
        note = Note(id=self.id, fence=self.fence, progress=float(part), message=shown_message)
        self._has_notes = True
        self._newest = note
        if self._is_scheduled:
            return  # the loop has not run it yet, and will send the newest then
        self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._send_newest)
        except RuntimeError:
            self._is_scheduled = False
            raise

    @property
    def checkpoint(self) -> Any:
        """What `save` stored last, in this attempt or an earlier one; None if nothing.

        Raises StoreError for what cannot have been stored by `save`.
        """
        if self._checkpoint is None:
            return None
        try:
            return decode_plain(self._checkpoint)
        except (ValueError, RecursionError) as error:
            msg = (
                f"the checkpoint of job {self.id} cannot be read: {error}. It was damaged in the "
                "store. Enqueue the job again: the new job starts without a checkpoint."
            )
            raise StoreError(msg) from error

    def save(self, value: Any) -> Awaitable[None]:
        """Store a value for the next attempt, in case this one does not finish.

        Await it in asynchronous code. Called in a handler's thread it returns when it is stored.

        Raises TooLarge, TypeError for what has no JSON form, StoreError if this attempt is over.
        """
        if self._is_in_transaction:
            msg = "save() inside of transaction() would wait for its commit: call it before."
            raise ConfigError(msg)
        value = encode(value)
        if len(value) > self._limit:
            raise TooLarge("this checkpoint", len(value), self._limit, "result_limit")
        if _runs_on(self._loop):
            return self._save(value)
        asyncio.run_coroutine_threadsafe(self._save(value), self._loop).result()
        return _Done()

    async def _save(self, value: bytes) -> None:
        note = Note(id=self.id, fence=self.fence, checkpoint=value)
        if self.is_settled or not await self._send(note):
            msg = f"job {self.id} no longer runs under fence {self.fence}; nothing was saved."
            raise StoreError(msg)
        self._checkpoint = value

    async def send_note(self, note: Note) -> bool:
        """Store a note of an attempt in a child process. Returns False if the attempt is over."""
        self._has_notes = True
        return await self._track(self._send(note))

    async def flush_notes(self) -> None:
        """Wait up to a second until the store has the last notes of the attempt."""
        if not self._has_notes or self.is_settled:
            return
        # The newest note is sent in the next turn of the loop.
        await asyncio.sleep(0)  # noqa: TID251 - it takes no time
        if self._sending:
            await asyncio.wait(self._sending, timeout=_LAST_WORD_SECONDS)

    def transaction(self, connection: object) -> JobTransaction:
        """Return a transaction that settles this job; see `JobContext.transaction`."""
        if self._within is None or self.ending is None:
            msg = (
                "transaction() needs a handler that runs in the worker's process, not in a child "
                "process. Use executor='thread' or an async function."
            )
            raise ConfigError(msg)
        if self.is_settled:
            msg = (
                f"job {self.id} has succeeded with the commit of its first transaction(). Put all "
                "its writes into one transaction(), at the end of the handler."
            )
            raise ConfigError(msg)
        if self._is_in_transaction:
            msg = f"job {self.id} is in a transaction() already: one commit settles it, not two."
            raise ConfigError(msg)
        within = self._within(connection, "transaction()")
        transaction = JobTransaction(within, self.record, self.ending, self._has_settled)
        # A weak reference: a dropped transaction must be able to release the locks of its
        # connection.
        self._transaction = weakref.ref(transaction)
        return transaction

    @property
    def settles_itself(self) -> bool:
        """Whether a transaction of the handler is open or has settled the job."""
        return self.is_settled or self._is_in_transaction

    @property
    def _is_in_transaction(self) -> bool:
        transaction = None if self._transaction is None else self._transaction()
        return transaction is not None and transaction.is_open

    async def insert_from_elsewhere(
        self, news: list[NewJob]
    ) -> tuple[list[Inserted], list[JobRecord]]:
        """Store jobs for code that runs on another loop than the worker's connection."""
        inserting = asyncio.run_coroutine_threadsafe(self._inserted(news), self._loop)
        return await asyncio.wrap_future(inserting)

    async def _inserted(self, news: list[NewJob]) -> tuple[list[Inserted], list[JobRecord]]:
        return await self.insert(news)

    def _has_settled(self) -> None:
        self.is_settled = True

    def _send_newest(self) -> None:
        """Send the newest progress once the last one has arrived; drop those in between."""
        # The flag first: progress that a thread reports from here on schedules this again.
        self._is_scheduled = False
        is_sending = self._progress is not None
        self._progress = self._newest
        if not is_sending:
            self._track(self._send_progress()).add_done_callback(_forget)

    def _track(self, sending: Awaitable[T]) -> asyncio.Future[T]:
        sent = asyncio.ensure_future(sending)
        self._sending.add(sent)
        sent.add_done_callback(self._sending.discard)
        return sent

    async def _send_progress(self) -> None:
        note = None
        try:
            while self._progress is not note:
                note = self._progress
                assert note is not None
                await self._send(note)
        finally:
            self._progress = None

    def stop(self, reason: StopReason) -> None:
        """Ask the attempt to stop; only the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.stopped.set()


def _runs_on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _insert_nothing(_: list[NewJob]) -> tuple[list[Inserted], list[JobRecord]]:
    msg = "this job has no worker that could store jobs for it."
    raise StoreError(msg)


class _Done:
    """An awaitable that is done. Callers may await it or not."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


def _forget(sent: asyncio.Future[None]) -> None:
    if not sent.cancelled():
        sent.exception()  # progress is best effort, so its errors are dropped
