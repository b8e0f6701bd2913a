"""The service behind job handles: batches of inserts and look-ups on one store."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from tenure.core.durations import micros
from tenure.core.ids import JobIds, is_job_id
from tenure.core.jobs.parents import parent_tag
from tenure.core.jobs.records import (
    Cancelled,
    Deleted,
    Inserted,
    JobRecord,
    NewJob,
    Page,
)
from tenure.core.jobs.results import read_stored
from tenure.core.jobs.retention import kept_with_key
from tenure.core.jobs.states import FINISHED
from tenure.core.leases import storable
from tenure.core.schedules.records import TIMERS_QUEUE
from tenure.core.settings import ISOLATE_AFTER
from tenure.core.values.json import decode_plain
from tenure.core.why import Surroundings, Why, why_job, why_stranded
from tenure.errors import (
    ConfigError,
    JobNotFound,
    JobStateError,
    JobUnreadable,
    ResultUnavailable,
    StoreError,
    UniqueBusy,
    UniqueMismatch,
)
from tenure.jobs.changes import JobChanges
from tenure.jobs.deletion import Deletion
from tenure.jobs.enqueue_hooks import EnqueueHooks, OutgoingInThread
from tenure.jobs.inserter import Inserter, Refusal, in_slices
from tenure.jobs.job import Job, JobPage, JobRequest
from tenure.jobs.surroundings import read_surroundings
from tenure.observe.events import Events
from tenure.observe.jobs import JobEnqueued
from tenure.runtime.attempts.handler import Handler
from tenure.runtime.attempts.job_ends import report_cancelled
from tenure.runtime.attempts.running_job import Insert, current
from tenure.runtime.batcher import Batcher
from tenure.stores.contract import Store, UserTransaction
from tenure.stores.transaction import run_sync

__all__ = ["Jobs"]

T = TypeVar("T")

_Stored: TypeAlias = tuple[list[NewJob], list[Inserted], dict[str, JobRecord | None]]
"""Jobs with their headers, the answers of the store, and the jobs that were there before."""

_REASON_MAX = 1000
# How many jobs are looked at for one page without the runs of timers: ten calls of 200.
_LOOKS = 10
_LOOK = 200


class Jobs:
    """The jobs of one open app: natural batches of inserts and look-ups."""

    def __init__(
        self,
        store: Store,
        handlers: dict[str, Handler],
        insert: Insert | None = None,
        hooks: EnqueueHooks | None = None,
        *,
        events: Events | None = None,
        isolate_after: int = ISOLATE_AFTER,
    ) -> None:
        """`insert` stores jobs instead of the store's own connection."""
        self._isolate_after = isolate_after
        self._hooks = hooks or EnqueueHooks()
        self._events = events or Events()
        self._store = store
        self._clock = store.clock
        self._handlers = handlers
        self._insert_elsewhere = insert
        self._ids = JobIds(store.clock)
        self._naming = threading.Lock()  # threads with connections of their own make ids too
        self._inserter = Inserter(store, self._report_created)
        self._getting: Batcher[str, JobRecord | None] = Batcher(store.jobs.get)

    @property
    def refusal(self) -> Refusal | None:
        """Why the last job was refused; None if the store has taken it."""
        return self._inserter.refusal

    async def enqueue(self, request: JobRequest[T], *, within: object = None) -> Job[T]:
        """Store one job."""
        if within is not None or self._insert_elsewhere is not None:
            jobs = await self.enqueue_many([request], within=within, return_exceptions=False)
            job: Job[T] = jobs[0]
            return job
        new = self._identified(request)
        if not self._hooks:
            return await self._enqueue(request, new)
        async with self._hooks.around([new]) as [new]:
            return await self._enqueue(request, new)

    async def _enqueue(self, request: JobRequest[T], new: NewJob) -> Job[T]:
        answer = await self._inserter.insert(new)
        existing = {} if answer.outcome == "created" else await self._existing([answer])
        return self._answered(request, new, answer, existing)

    async def enqueue_many(
        self, requests: Iterable[JobRequest[Any]], *, within: object = None, return_exceptions: bool
    ) -> list[Any]:
        """Store many jobs, a slice in each round trip."""
        batch = list(requests)
        async with self._hooks.around([self._identified(request) for request in batch]) as news:
            answers, existing = await self._inserted(news, within)
            return self._all_answered(batch, news, answers, existing, return_exceptions)

    async def _inserted(
        self, news: list[NewJob], within: object
    ) -> tuple[list[Inserted], dict[str, JobRecord | None]]:
        """Store jobs; return the answers, and the jobs that were there before."""
        if within is not None:
            return await self._enqueue_within(self._store.within(within, "within()"), news)
        if self._insert_elsewhere is not None:
            answers, records = await self._insert_elsewhere(news)
            missing: dict[str, JobRecord | None] = dict.fromkeys(_ids_of_existing(answers))
            return answers, missing | {job.id: job for job in records}
        answers = await self._inserter.insert_many(news)
        return answers, await self._existing(answers)

    def enqueue_many_blocking(
        self,
        requests: Iterable[JobRequest[Any]],
        *,
        within: object,
        return_exceptions: bool,
        call: Callable[[Coroutine[Any, Any, _Stored]], _Stored],
    ) -> list[Any]:
        """Do the same for a thread, which runs the hooks.

        With `within`, a synchronous connection, this thread stores the jobs as well. `call` runs a
        coroutine on the loop of this object.
        """
        own = None if within is None else self._store.within(within, "within()")
        if own is not None and not own.blocks:
            msg = "this connection is asynchronous; give within= a synchronous one here."
            raise ConfigError(msg)
        batch = list(requests)
        identified = [self._identified(request) for request in batch]
        with self._hooks.around_in_thread(identified) as outgoing:
            if own is None:
                news, answers, existing = call(self._outgoing_inserted(outgoing))
            else:
                news = outgoing.stamped()
                answers, existing = run_sync(self._enqueue_within(own, news))
            return self._all_answered(batch, news, answers, existing, return_exceptions)

    async def _outgoing_inserted(self, outgoing: OutgoingInThread) -> _Stored:
        async with outgoing.around() as news:
            return news, *await self._inserted(news, None)

    async def _enqueue_within(
        self, own: UserTransaction, news: list[NewJob]
    ) -> tuple[list[Inserted], dict[str, JobRecord | None]]:
        """Store jobs in a transaction of the user's own, and see there what was there before.

        The store's own connection might wait for that transaction, which waits for this.
        """

        async def insert(slice_: list[NewJob]) -> list[Inserted]:
            answers = await own.insert(slice_)
            self._report_created(slice_, answers, is_pending=True)
            return answers

        answers = await in_slices(news, insert)
        ids = _ids_of_existing(answers)
        return answers, dict(zip(ids, await own.get(ids), strict=True)) if ids else {}

    def _all_answered(
        self,
        batch: list[JobRequest[Any]],
        news: list[NewJob],
        answers: list[Inserted],
        existing: Mapping[str, JobRecord | None],
        return_exceptions: bool,  # noqa: FBT001 - passed on as it came
    ) -> list[Any]:
        results: list[Any] = []
        for request, new, answer in zip(batch, news, answers, strict=True):
            try:
                results.append(self._answered(request, new, answer, existing))
            except (UniqueMismatch, UniqueBusy) as error:
                if not return_exceptions:
                    raise
                results.append(error)
        return results

    def _identified(self, request: JobRequest[Any]) -> NewJob:
        if not hasattr(request, "draft"):
            msg = f"enqueue takes task.request(...), not {request!r}."
            raise ConfigError(msg)
        draft = kept_with_key(request.draft)
        running = current.get(None)
        # A job of another store is not to be found in this one.
        if running is not None and running.home == (self._store.url, self._store.namespace):
            draft = replace(draft, tags=(*draft.tags, parent_tag(running.id)))
        return draft.with_id(self.new_id())

    def new_id(self) -> str:
        """Return an id that no job has."""
        with self._naming:
            return self._ids.make()

    def handle(self, record: JobRecord) -> Job[Any]:
        """Return the handle of a job whose record is known."""
        return Job(self, record)

    async def insert(self, news: list[NewJob]) -> tuple[list[Inserted], list[JobRecord]]:
        """Store jobs that have ids; return also those that were there before."""
        answers = await self._inserter.insert_many(news)
        existing = await self._existing(answers)
        return answers, [record for record in existing.values() if record is not None]

    def _report_created(
        self, news: list[NewJob], answers: list[Inserted], *, is_pending: bool = False
    ) -> None:
        """Emit which of these jobs the store has just stored.

        Called with each answer of the store: the caller of `enqueue` may be cancelled by now, and a
        later slice of the same call may fail.
        """
        if self._events.wants_details:
            for new, answer in zip(news, answers, strict=True):
                if answer.outcome == "created":
                    self.report_enqueued(new, is_pending=is_pending)

    def report_enqueued(self, job: NewJob | JobRecord, *, is_pending: bool = False) -> None:
        """Emit that a job was stored, if there are subscribers."""
        if self._events.wants_details:
            event = JobEnqueued(
                job.task, job.id, job.queue, timer=job.schedule, is_pending=is_pending
            )
            self._events.emit(event, job)

    async def _existing(self, answers: Iterable[Inserted]) -> dict[str, JobRecord | None]:
        """Return the records of jobs that were there already."""
        ids = _ids_of_existing(answers)
        return dict(zip(ids, await asyncio.gather(*map(self._getting.add, ids)), strict=True))

    def _answered(
        self,
        request: JobRequest[T],
        new: NewJob,
        answer: Inserted,
        existing: Mapping[str, JobRecord | None],
    ) -> Job[T]:
        if answer.outcome == "mismatch":
            raise UniqueMismatch(request.unique, answer.id)
        if answer.outcome == "busy":
            raise UniqueBusy(request.unique)
        if answer.outcome == "created":
            return Job(self, _fresh(new, answer.at), is_new=True)
        # Removed since the insert, or unreadable: its id is all there is.
        return Job(self, existing[answer.id] or _fresh(replace(new, id=answer.id), 0))

    async def job(self, id_: str) -> Job[Any]:
        return Job(self, await self.record(id_))

    async def record(self, id_: str) -> JobRecord:
        """Return a job's record, or raise JobNotFound or JobUnreadable."""
        id_ = str(id_)
        before = self._store.damage.reports
        record = await self._getting.add(id_) if is_job_id(id_) else None
        if record is None and self._store.damage.is_reported("job", id_, before):
            raise JobUnreadable(id_)
        if record is None:
            raise JobNotFound(id_)
        return record

    async def finished(self, id_: str, timeout: float | None) -> JobRecord:
        """Return the record once the job has finished."""
        record = await self.record(id_)
        if record.state in FINISHED:
            return record
        deadline = math.inf if timeout is None else self._clock.boot() + timeout
        async with _lent_slot(id_), self.changes(id_) as changes:
            record = await changes.until(lambda record: record.state in FINISHED, deadline)
            if record.state not in FINISHED:
                why = await self._why_unfinished(record)
                msg = f"job {id_} has not finished within {timeout:g} s. {why}"
                raise TimeoutError(msg)
            return record

    @asynccontextmanager
    async def changes(self, id_: str) -> AsyncIterator[JobChanges]:
        """Watch a job. Every wait for a job goes through here."""
        async with self._store.watch(("job", id_)) as watch:
            yield JobChanges(partial(self.record, id_), watch, self._clock)

    async def why(self, record: JobRecord) -> Why:
        """Return why a job is as it is, by its record of now."""
        why = why_job(record, await self.surroundings(record))
        if why.code != "orphan":
            return why
        # It may have ended since, and its worker left, before the replicas were read.
        record = await self.record(record.id)
        return why_job(record, await self.surroundings(record))

    async def why_unreadable(self, id_: str) -> Why:
        """Return why a job does not run whose record was set aside. Raises JobUnreadable else."""
        page = await self._store.jobs.find(state="stranded", limit=_LOOK)
        for stranded in page.stranded:
            if stranded.id == id_:
                return why_stranded(stranded)
        raise JobUnreadable(id_)

    async def surroundings(self, *records: JobRecord) -> Surroundings:
        """Read what explains these jobs: once for all of them, and no more than they need."""
        states = {record.state for record in records}
        return await read_surroundings(
            self._store,
            self._handlers,
            isolate_after=self._isolate_after,
            needs_queues="waiting" in states,
            needs_replicas=not states <= FINISHED,
        )

    async def _why_unfinished(self, record: JobRecord) -> str:
        """Return what keeps a job from finishing, as well as the store tells."""
        try:
            return why_job(record, await self.surroundings(record)).text
        except StoreError:
            return f"It is {record.state}."

    async def page(self, **filters: Any) -> JobPage:
        """Return jobs that pass the filters of `Store.find`."""
        page: Page = await self._store.jobs.find(**filters)
        return JobPage((Job(self, record) for record in page.jobs), page.cursor)

    async def page_without_timers(
        self, *, limit: int, cursor: str | None, **filters: Any
    ) -> JobPage:
        """Return jobs that pass; runs of timers only if a filter names their task or queue."""
        if any((filters.get(name) or "").startswith("@") for name in ("task", "queue")):
            return await self.page(**filters, limit=limit, cursor=cursor)
        page = await _find_without_timers(partial(self._store.jobs.find, **filters), limit, cursor)
        return JobPage((Job(self, record) for record in page.jobs), page.cursor)

    async def cancel(self, job: JobRecord, reason: str) -> Cancelled | None:
        answers = await self._store.jobs.cancel([job.id], reason=storable(reason, _REASON_MAX))
        await report_cancelled(self._store, self._events, [job], answers)
        return answers[0]

    async def requeue(self, id_: str) -> None:
        [answer] = await self._store.jobs.requeue([id_])
        if answer is None:
            raise JobNotFound(id_)
        if answer == "unfinished":
            raise JobStateError(id_, "has not finished; only finished jobs can be requeued")
        if answer == "conflict":
            raise JobStateError(id_, "cannot be requeued: another job has its unique key by now")
        if answer == "refused":
            problem = "is a run of a timer or schedule, which has its limits: trigger that instead"
            raise JobStateError(id_, problem)

    async def delete(self, id_: str, *, cancel: bool, timeout: float | None = None) -> None:
        """Remove a job that does not run, or with `cancel` once it has stopped."""
        id_ = str(id_)
        ids = [id_] if is_job_id(id_) else []
        answers = await self.delete_many(ids, cancel=cancel, timeout=timeout)
        if answers in ([], [None]):
            raise JobNotFound(id_)
        if answers == ["running"]:
            raise JobStateError(id_, "is running; cancel it first, or delete it with cancel=True")

    async def delete_many(
        self, ids: Sequence[str], *, cancel: bool, timeout: float | None = None
    ) -> list[Deleted | None]:
        """Remove at most as many jobs as one call to the store takes; see `Deletion.run`."""
        deletion = Deletion(
            self._store, self._events, self.finished, cancel=cancel, timeout=timeout
        )
        return await deletion.run(ids)

    def decode_result(self, record: JobRecord) -> Any:
        """Return a result by the return type of its task, or plainly if that is not known here."""
        if record.result is None:
            return None
        handler = self._handlers.get(record.task)
        value = None
        try:
            stored = read_stored(record.result)
            if stored.problem:
                value = decode_plain(bytes(stored.sent)) if stored.sent else None
                raise ResultUnavailable(record.id, stored.problem, value)
            if handler is None:
                return decode_plain(bytes(stored.sent))
            value = decode_plain(stored.readable)
            return handler.signature.decode_result(stored.readable)
        except ResultUnavailable:
            raise
        except Exception as error:
            problem = f"it is not what task {record.task!r} returns in this process: {error}"
            raise ResultUnavailable(record.id, problem, value) from error


async def _find_without_timers(
    find: Callable[..., Awaitable[Page]], limit: int, cursor: str | None
) -> Page:
    """Return up to `limit` jobs that are no runs of timers, among a bounded number."""
    jobs: list[JobRecord] = []
    for _ in range(_LOOKS):
        page = await find(limit=_LOOK, cursor=cursor)
        jobs += [record for record in page.jobs if record.queue != TIMERS_QUEUE]
        cursor = page.cursor
        if len(jobs) > limit:
            cursor = jobs[limit - 1].id  # a page goes on behind the id that it is given
        if cursor is None or len(jobs) >= limit:
            break
    return Page(jobs[:limit], cursor)


def _lent_slot(awaited: str) -> AbstractAsyncContextManager[None]:
    """Lend the slot of the job whose handler waits here; nothing outside of handlers."""
    running = current.get(None)
    if running is None or running.lend_slot is None:
        return nullcontext()
    return running.lend_slot(awaited)


def _ids_of_existing(answers: Iterable[Inserted]) -> list[str]:
    return list({answer.id for answer in answers if answer.outcome == "existing"})


def _fresh(new: NewJob, now: int) -> JobRecord:
    """Return the record of a job that was just inserted, as well as it is known here."""
    due = now + micros(new.delay) if new.at is None else new.at
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
        retention_failed=new.retention_failed,
        options=new.options,
        created=now,
        due=due,
    )
