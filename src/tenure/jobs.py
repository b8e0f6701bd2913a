"""Jobs as callers see them: a handle that can be asked, awaited, cancelled and requeued."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.durations import Duration, seconds
from tenure.core.ids import JobIds, is_job_id
from tenure.core.policy import retry_after_error
from tenure.core.records import (
    Attempt,
    Cancelled,
    Inserted,
    JobRecord,
    NewJob,
    Page,
    read_history,
)
from tenure.core.signature import decode_plain
from tenure.core.states import FINISHED, JobState
from tenure.core.views import JobView, as_datetime
from tenure.errors import (
    ConfigError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStateError,
    StoreUnavailable,
    UniqueMismatch,
)
from tenure.runtime.attempt import ErrorReport, Handler
from tenure.runtime.batcher import Batcher, next_slice
from tenure.runtime.context import storable
from tenure.stores.contract import Store, Within
from tenure.stores.within import plainly

__all__ = ["Job", "JobPage", "JobSnapshot", "Jobs", "Request"]

T = TypeVar("T")

# A call whose reply was lost is repeated; a store that is really away is the caller's to handle.
_TRIES = 3
# Whoever waits for a job looks this often in case a wake-up does not come.
_LOOK_EVERY = 2.0
_REASON_MAX = 1000


class Request(Struct, Generic[T], frozen=True):
    """A job that has not been asked for yet: arguments, checked and written down.

    Made by `task.request(...)`, for `app.enqueue_many`.
    """

    new: NewJob
    unique: str = ""
    """The unique key as it was given, for messages."""


class JobSnapshot(JobView):
    """What the store had about a job at the last look."""

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.task!r}, {self.state}>"

    @property
    def priority(self) -> int:
        return self._record.priority

    @property
    def state(self) -> JobState:
        return self._record.state

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    @property
    def created(self) -> datetime:
        return as_datetime(self._record.created)

    @property
    def due(self) -> datetime:
        """When it may start, or might have."""
        return as_datetime(self._record.due)

    @property
    def started(self) -> datetime | None:
        """When its present or last attempt began."""
        return as_datetime(self._record.started) if self._record.started else None

    @property
    def finished(self) -> datetime | None:
        return as_datetime(self._record.finished) if self._record.finished else None

    @property
    def replica(self) -> str:
        """Where it runs; empty unless it is running."""
        return self._record.replica

    @property
    def progress(self) -> float | None:
        """How far it is, from 0 to 1, if it says so."""
        return self._record.progress

    @property
    def message(self) -> str:
        """What it says beside its progress."""
        return self._record.message

    @property
    def reason(self) -> str:
        """Why it was cancelled or failed, in a word or as given to `cancel`."""
        return self._record.reason

    @property
    def error(self) -> str | None:
        """The last failure in one line."""
        report = self._report
        return None if report is None else report.line

    @property
    def trace(self) -> str:
        """The traceback of the last failure."""
        report = self._report
        return "" if report is None else report.trace

    @property
    def history(self) -> list[Attempt]:
        """The last attempts, oldest first."""
        return read_history(self._record.history)

    @property
    def record(self) -> JobRecord:
        """Everything the store has."""
        return self._record

    @property
    def _report(self) -> ErrorReport | None:
        if self._record.error is None:
            return None
        return msgspec.json.decode(self._record.error, type=ErrorReport)


class Job(JobSnapshot, Generic[T]):
    """A durable request to run a task. What it shows is as of the last look; see `refresh`."""

    def __init__(self, jobs: Jobs, record: JobRecord, *, is_new: bool = False) -> None:
        self._jobs = jobs
        self._record = record
        self.is_new = is_new
        """False if a job with the same unique key was there already, and this is that job."""

    async def refresh(self) -> Job[T]:
        """Look again; return itself. Raises JobNotFound if it was pruned."""
        self._record = await self._jobs.record(self.id)
        return self

    async def wait(self, timeout: Duration | None = None) -> Job[T]:
        """Wait until it has finished, however; return itself. Raises TimeoutError."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        self._record = await self._jobs.finished(self.id, limit)
        return self

    async def result(self, timeout: Duration | None = None) -> T:
        """Return what the task returned, waiting for it.

        Raises:
            JobFailed: it has failed for good.
            JobCancelled: it was cancelled.
            TimeoutError: it has not finished in time; it goes on.
        """
        await self.wait(timeout)
        record = self._record
        if record.state == "failed":
            raise JobFailed(self.id, record.reason, self.error or _NO_ERROR)
        if record.state == "cancelled":
            raise JobCancelled(self.id, record.reason)
        value: T = self._jobs.decode_result(record)
        return value

    async def cancel(self, reason: str = "") -> bool:
        """Ask for an end; return False if it has one already.

        What waits never starts. What runs is told, and stops when its handler does; `wait` for it.
        """
        [answer] = await self._jobs.cancel([self.id], reason)
        if answer is None:
            raise JobNotFound(self.id)
        with suppress(JobNotFound):  # it has ended, and was pruned at once
            await self.refresh()
        return answer != "finished"

    async def requeue(self) -> None:
        """Let a finished job run again, with all its tries.

        Raises JobStateError if it has not finished, or its unique key is taken by now.
        """
        await self._jobs.requeue(self.id)
        await self.refresh()


_NO_ERROR = "its worker died each time, and it has used up its loss budget"


class JobPage(list["Job[Any]"]):
    """A part of a list of jobs. With a `cursor` there may be more."""

    def __init__(self, jobs: Iterable[Job[Any]], cursor: str | None) -> None:
        super().__init__(jobs)
        self.cursor = cursor


class Jobs:
    """The jobs of one open app: natural batches of inserts and look-ups."""

    def __init__(self, store: Store, handlers: dict[str, Handler]) -> None:
        self._store = store
        self._clock = store.clock
        self._handlers = handlers
        self._ids = JobIds(store.clock)
        self._naming = threading.Lock()  # threads with connections of their own make ids too
        self._inserting: Batcher[NewJob, Inserted] = Batcher(self._insert, weigh=_weight)
        self._getting: Batcher[str, JobRecord | None] = Batcher(store.get)

    async def enqueue(self, request: Request[T], *, within: object = None) -> Job[T]:
        """Store one job."""
        if within is not None:
            jobs = await self.enqueue_many([request], within=within, return_exceptions=False)
            job: Job[T] = jobs[0]
            return job
        new = self._identified(request)
        answer = await self._inserting.add(new)
        return self._answered(request, new, answer, await self._existing([answer]))

    async def enqueue_many(
        self, requests: Iterable[Request[Any]], *, within: object = None, return_exceptions: bool
    ) -> list[Any]:
        """Store many jobs, a slice in each round trip."""
        given = list(requests)
        news = [self._identified(request) for request in given]
        if within is None:
            answers = await _in_slices(news, self._insert)
            existing = await self._existing(answers)
        else:
            own = self._store.within(within, "bind()")
            answers, existing = await self._enqueue_within(own, news)
        return self._all_answered(given, news, answers, existing, return_exceptions)

    def enqueue_many_blocking(
        self, requests: Iterable[Request[Any]], *, within: object, return_exceptions: bool
    ) -> list[Any]:
        """Do the same on a synchronous connection, in the calling thread."""
        own = self._store.within(within, "bind()")
        if not own.blocks:
            msg = "this connection is asynchronous; give within= a synchronous one here."
            raise ConfigError(msg)
        given = list(requests)
        news = [self._identified(request) for request in given]
        answers, existing = plainly(self._enqueue_within(own, news))
        return self._all_answered(given, news, answers, existing, return_exceptions)

    async def _enqueue_within(
        self, own: Within, news: list[NewJob]
    ) -> tuple[list[Inserted], dict[str, JobRecord | None]]:
        """Store jobs in a transaction of the user's own, and see there what was there before.

        The store's own connection might wait for that transaction, which waits for this.
        """
        answers = await _in_slices(news, own.insert)
        ids = _ids_of_existing(answers)
        return answers, dict(zip(ids, await own.get(ids), strict=True)) if ids else {}

    def _all_answered(
        self,
        given: list[Request[Any]],
        news: list[NewJob],
        answers: list[Inserted],
        existing: Mapping[str, JobRecord | None],
        return_exceptions: bool,  # noqa: FBT001 - passed on as it came
    ) -> list[Any]:
        results: list[Any] = []
        for request, new, answer in zip(given, news, answers, strict=True):
            try:
                results.append(self._answered(request, new, answer, existing))
            except UniqueMismatch as error:
                if not return_exceptions:
                    raise
                results.append(error)
        return results

    def _identified(self, request: Request[Any]) -> NewJob:
        if not hasattr(request, "new"):
            msg = f"enqueue takes task.request(...), not {request!r}."
            raise ConfigError(msg)
        with self._naming:
            return replace(request.new, id=self._ids.make())

    async def _insert(self, news: list[NewJob]) -> list[Inserted]:
        for failures in range(1, _TRIES):
            try:
                return await self._store.insert(news)
            except StoreUnavailable:
                await self._clock.sleep(retry_after_error(failures, self._clock.random()))
        return await self._store.insert(news)

    async def _existing(self, answers: Iterable[Inserted]) -> dict[str, JobRecord | None]:
        """Return the records of jobs that were there already."""
        ids = _ids_of_existing(answers)
        return dict(zip(ids, await asyncio.gather(*map(self._getting.add, ids)), strict=True))

    def _answered(
        self,
        request: Request[T],
        new: NewJob,
        answer: Inserted,
        existing: Mapping[str, JobRecord | None],
    ) -> Job[T]:
        if answer.outcome == "mismatch":
            raise UniqueMismatch(request.unique, answer.id)
        if answer.outcome == "created":
            return Job(self, _fresh(new, self._clock.wall()), is_new=True)
        # Pruned since, or its key outlives it: its id is all there is.
        return Job(self, existing[answer.id] or _fresh(replace(new, id=answer.id), 0))

    async def job(self, id_: str) -> Job[Any]:
        return Job(self, await self.record(id_))

    async def record(self, id_: str) -> JobRecord:
        """Return a job's record, or raise JobNotFound."""
        id_ = str(id_)
        record = await self._getting.add(id_) if is_job_id(id_) else None
        if record is None:
            raise JobNotFound(id_)
        return record

    async def finished(self, id_: str, timeout: float | None) -> JobRecord:
        """Return the record once the job has finished."""
        record = await self.record(id_)
        if record.state in FINISHED:
            return record
        until = None if timeout is None else self._clock.boot() + timeout
        async with self._store.watch(("job", id_)) as bell:
            while (record := await self.record(id_)).state not in FINISHED:
                left = _LOOK_EVERY if until is None else until - self._clock.boot()
                if left <= 0:
                    msg = f"job {id_} has not finished within {timeout:g} s; it is {record.state}."
                    raise TimeoutError(msg)
                await bell.wait(min(left, _LOOK_EVERY))
            return record

    async def page(self, **wanted: Any) -> JobPage:
        page: Page = await self._store.find(**wanted)
        return JobPage((Job(self, record) for record in page.jobs), page.cursor)

    async def cancel(self, ids: Sequence[str], reason: str) -> list[Cancelled | None]:
        return await self._store.cancel(ids, reason=storable(reason, _REASON_MAX))

    async def requeue(self, id_: str) -> None:
        [answer] = await self._store.requeue([id_])
        if answer is None:
            raise JobNotFound(id_)
        if answer == "unfinished":
            raise JobStateError(id_, "has not finished; only finished jobs can be requeued")
        if answer == "conflict":
            raise JobStateError(id_, "cannot be requeued: another job has its unique key by now")

    def decode_result(self, record: JobRecord) -> Any:
        """Return a result by the return type of its task, or plainly if that is not known here."""
        if record.result is None:
            return None
        handler = self._handlers.get(record.task)
        if handler is None:
            return decode_plain(record.result)
        try:
            return handler.signature.decode_result(record.result)
        except (TypeError, ValueError) as error:
            problem = f"has a result that is not what task {record.task!r} says it returns: {error}"
            raise JobStateError(record.id, problem) from error


async def _in_slices(
    news: list[NewJob], insert: Callable[[list[NewJob]], Awaitable[list[Inserted]]]
) -> list[Inserted]:
    answers: list[Inserted] = []
    waiting = deque(news)
    while waiting:
        answers += await insert(next_slice(waiting, _weight))
    return answers


def _ids_of_existing(answers: Iterable[Inserted]) -> list[str]:
    return list({one.id for one in answers if one.outcome == "existing"})


def _weight(new: NewJob) -> int:
    return len(new.payload)


def _fresh(new: NewJob, now: int) -> JobRecord:
    """Return the record of a job that was just inserted, as well as it is known here."""
    due = now + round(new.delay * 1e6) if new.at is None else new.at
    return JobRecord(
        id=new.id,
        task=new.task,
        queue=new.queue,
        priority=new.priority,
        state="waiting",
        payload=new.payload,
        tags=new.tags,
        timeout=new.timeout,
        retention=new.retention,
        created=now,
        due=due,
    )
