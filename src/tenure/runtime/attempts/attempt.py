"""One attempt of a job: run the handler, and say in one value how it ended."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    suppress,
)
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

import msgspec
from msgspec import Struct

from tenure.core.clock import Clock
from tenure.core.durations import micros
from tenure.core.jobs import endings
from tenure.core.jobs.options import read_options
from tenure.core.jobs.records import AttemptOutcome, JobRecord, Settlement
from tenure.core.jobs.results import store_result
from tenure.core.jobs.run_numbers import runs_of
from tenure.core.policy import TTL_MAX, Backoff, read_backoff
from tenure.core.values.signature import Signature
from tenure.errors import ArgumentsError
from tenure.observe.events import Events
from tenure.observe.jobs import AttemptFailed, HandlerStuck, ResultNotStored
from tenure.observe.log_records import Raised, fields_of, write
from tenure.runtime.attempts.job_context import JobContext, context_of
from tenure.runtime.attempts.processes.pool import Processes, ProcessLimits, Returned
from tenure.runtime.attempts.reports import (
    ErrorReport,
    Reject,
    Retry,
    TimedOut,
    Unreadable,
    UnreadableInChild,
    awaited,
    report_on,
    traceback_of,
)
from tenure.runtime.attempts.running_job import RunningJob, current
from tenure.runtime.attempts.threads import Threads
from tenure.runtime.attempts.time_limit import TimeLimit, set_alarm
from tenure.runtime.attempts.transaction import Ending

__all__ = [
    "EXECUTORS",
    "STUCK_AFTER",
    "Around",
    "AttemptRunner",
    "ErrorReport",
    "Executor",
    "Handler",
    "Pacing",
    "Reject",
    "Retry",
    "ends_more_than_the_attempt",
]

Around: TypeAlias = Callable[
    [JobContext], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
]
"""Makes what is entered before an attempt and left after it."""

Executor: TypeAlias = Literal["auto", "thread", "process"]
"""Where a handler runs; "auto": async functions on the loop, plain ones in threads."""
EXECUTORS: Final = get_args(Executor)

log = logging.getLogger("tenure")

STUCK_AFTER: Final = 1.0
"""A function that goes on for so many seconds after its time-out is reported."""


class Pacing(Protocol):
    """When an attempt begins, and whether it begins again by itself after an error."""

    def before(self, record: JobRecord) -> float:
        """Return how long to wait before the handler is called."""
        ...

    def after_failure(
        self, record: JobRecord, tries: int, seconds: float, asked: float | None
    ) -> float | None:
        """Return how long to wait before it is called again; None: not again.

        `seconds` have passed since the attempt began, and the handler has `asked` for a pause.
        """
        ...


class Handler(Struct, frozen=True, kw_only=True):
    """A function that jobs of one name run."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    signature: Signature
    retry: Backoff
    executor: Executor = "auto"
    pacing: Pacing | None = None

    @property
    def is_cancellable(self) -> bool:
        """Whether it can be stopped. A thread can only be asked to."""
        return self.is_async or self.executor == "process"


class AttemptRunner:
    """Runs attempts of one worker."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        *,
        payload_limit: int,
        result_limit: int,
        around: Sequence[Around] = (),
        processes: ProcessLimits,
        on_room: Callable[[], None],
        on_given_up: Callable[[JobRecord, AttemptFailed, Raised], None],
    ) -> None:
        self._on_given_up = on_given_up
        self._clock = clock
        self._events = events
        self._payload_limit = payload_limit
        self._result_limit = result_limit
        self._around = around
        self.threads = Threads()
        self.processes = Processes(processes, on_room)

    async def run(
        self, handler: Handler, record: JobRecord, context: RunningJob
    ) -> Settlement | None:
        """Run the handler and return how it ended; None if it has settled itself.

        Raises CancelledError if it stopped because it was told to; the caller knows why.
        """
        began = self._clock.boot()
        succeeded = partial(self.history, record, "succeeded", began)
        context.ending = Ending(handler.signature, succeeded, self._result_limit)
        current.set(context)
        context.check()
        task = asyncio.current_task()
        try:
            result = await self._with_timeout(handler, record, context)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if ends_more_than_the_attempt(error, handler, task):
                raise
            if context.is_settled:
                message = "job %s failed after the commit that settled it"
                log.exception(message, record.id, extra=fields_of(record))
                return None
            if context.stop_reason is not None:
                raise asyncio.CancelledError from error
            return self.failed(handler, record, error, began)
        if context.is_settled:
            write(logging.DEBUG, f"job {record.id} succeeded in its own commit", fields_of(record))
            return None
        if not isinstance(result, Returned):
            written = handler.signature.encode_result(result)
            result = Returned(*store_result(written, self._result_limit))
        # The handler has returned, so its effects have happened: the job has succeeded.
        if result.problem and handler.pacing is None:  # nobody asks a timer what it returned
            self._events.emit(ResultNotStored(record.task, record.id, result.problem), record)
        history = self.history(record, "succeeded", began)
        return endings.succeeded(record, result=result.stored, history=history)

    async def _with_timeout(self, handler: Handler, record: JobRecord, context: RunningJob) -> Any:
        """Run it with all that is around it, until its time-out."""
        work = self._with_pacing(handler, record, context)
        if record.timeout is None:
            return await work
        if handler.is_cancellable:
            return await self._cancel_at_timeout(work, context, record.timeout)
        return await self._stop_at_timeout(work, record, context, record.timeout)

    async def _with_pacing(self, handler: Handler, record: JobRecord, context: RunningJob) -> Any:
        """Run it when its time has come; some kinds again and again, within the same attempt."""
        pacing = handler.pacing
        if pacing is None:
            return await self._with_middleware(handler, record, context)
        began = self._clock.boot()
        await self._pause(pacing.before(record), context)
        while True:
            try:
                return await self._with_middleware(handler, record, context)
            except (Reject, Unreadable):
                raise
            except Exception as error:
                passed = self._clock.boot() - began
                pause = pacing.after_failure(record, context.tries, passed, _requested_pause(error))
                if pause is None or context.is_settled or context.stop_reason is not None:
                    raise
                self._report_retry(record, report_on(error), pause)
                await self._pause(pause, context)
                context.tries += 1

    async def _pause(self, seconds: float, context: RunningJob) -> None:
        """Wait; an attempt that cannot be cancelled, because it runs in a thread, ends here too."""
        if seconds > 0:
            await self._clock.wait(context.stopped, seconds)
        context.check()

    async def _with_middleware(
        self, handler: Handler, record: JobRecord, context: RunningJob
    ) -> Any:
        """Call the handler inside of everything that the user wants around attempts."""
        if not self._around:
            return await self._call(handler, record, context)
        async with AsyncExitStack() as stack:
            for make in self._around:
                manager = make(context_of(context))
                if isinstance(manager, AbstractAsyncContextManager):
                    await stack.enter_async_context(manager)
                else:
                    stack.enter_context(manager)
            return await self._call(handler, record, context)

    async def _call(self, handler: Handler, record: JobRecord, context: RunningJob) -> Any:
        if len(record.payload) > self._payload_limit:
            # Before anybody reads it: who writes to the store keeps to no limit of ours.
            size, limit = len(record.payload), self._payload_limit
            problem = f"they take {size:,} bytes, and in this worker payload_limit allows {limit:,}"
            raise Unreadable(record.task, problem)
        if handler.executor == "process":
            return await self._call_in_process(handler, record, context)
        try:
            args, kwargs = handler.signature.decode_arguments(record.payload)
        except ArgumentsError as error:
            raise Unreadable(error.task, error.problem) from None
        if handler.is_async:
            return awaited(await handler.function(*args, **kwargs))
        context.check()  # its time may be over before it has begun
        return awaited(await self.threads.run(partial(handler.function, *args, **kwargs)))

    async def _call_in_process(
        self, handler: Handler, record: JobRecord, context: RunningJob
    ) -> Any:
        """Call the handler in a child process; the time that the child takes to start is free.

        Else an import that takes longer than the time-out would fail every attempt: each one would
        kill the child that the next one needs.
        """
        limit = context.time_limit
        if limit is not None:
            limit.pause()
        begun = limit.resume if limit is not None else _nothing
        try:
            return await self.processes.run(
                handler.function, record, context, self._result_limit, begun
            )
        finally:
            begun()

    async def _cancel_at_timeout(
        self, work: Coroutine[Any, Any, Any], context: RunningJob, timeout: float
    ) -> Any:
        """Wait for what can be cancelled, until its time-out."""
        limit, loop = asyncio.timeout(None), asyncio.get_running_loop()
        context.time_limit = alarm = TimeLimit(
            self._clock, timeout, lambda: limit.reschedule(loop.time()), context.on_deadline
        )
        try:
            async with limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimedOut(timeout) from error
        finally:
            alarm.cancel()

    async def _stop_at_timeout(
        self, work: Coroutine[Any, Any, Any], record: JobRecord, context: RunningJob, timeout: float
    ) -> Any:
        """Wait for what cannot be stopped, only asked to."""
        stuck = HandlerStuck(record.task, record.id, "timed out")
        tell = partial(self._events.emit, stuck, record)
        alarms = [
            set_alarm(self._clock, timeout, partial(context.stop, "timed out")),
            set_alarm(self._clock, timeout + STUCK_AFTER, tell),
        ]
        try:
            result = await work
        finally:
            for alarm in alarms:
                alarm.cancel()
        if context.stop_reason == "timed out":
            raise asyncio.CancelledError
        return result

    def timed_out(self, handler: Handler, record: JobRecord, began: float) -> Settlement:
        """Return the end of an attempt whose thread came back after its time-out."""
        return self.failed(handler, record, TimedOut(record.timeout or 0.0), began)

    def failed(
        self, handler: Handler, record: JobRecord, error: BaseException, began: float
    ) -> Settlement:
        """Return the end of an attempt that raised: another try, or none."""
        failures = record.failures + 1
        if isinstance(error, Reject):
            return self._given_up(record, error, "rejected", began)
        if isinstance(error, Unreadable | UnreadableInChild):
            # They stay the same, however often they are read.
            return self._given_up(record, error, "arguments", began)
        retry = read_backoff(read_options(record.options).retry) or handler.retry
        if not retry.allows(failures):
            reason = "timeout" if isinstance(error, TimedOut) else "error"
            return self._given_up(record, error, reason, began)
        report = report_on(error)
        asked = _requested_pause(error)
        delay = retry.delay(failures, self._clock.random()) if asked is None else asked
        self._report_retry(record, report, delay)
        return endings.retried(
            record,
            delay=min(delay, TTL_MAX),
            error=msgspec.json.encode(report),
            history=self.history(record, "retry", began, report.line),
        )

    def _given_up(
        self, record: JobRecord, error: BaseException, reason: str, began: float
    ) -> Settlement:
        report = report_on(error)
        event = AttemptFailed(
            record.task, record.id, runs_of(record), report.line, None, report.trace
        )
        raised = Raised(error, traceback_of(error), report.trace or report.line)
        self._on_given_up(record, event, raised)
        history = self.history(record, "failed", began, report.line)
        error_kept = msgspec.json.encode(report)
        return endings.failed(record, reason=reason, error=error_kept, history=history)

    def failed_unreadably(self, record: JobRecord, error: BaseException) -> Settlement:
        """Return the end of an attempt whose error cannot be looked into."""
        report = ErrorReport(type(error).__qualname__, "it could not be looked into; see the log")
        return endings.failed(record, reason="error", error=msgspec.json.encode(report))

    def _report_retry(self, record: JobRecord, report: ErrorReport, pause: float) -> None:
        """Tell of a failure that was not the last one."""
        retry_in = round(pause, 1)
        event = AttemptFailed(record.task, record.id, runs_of(record), report.line, retry_in)
        self._events.emit(event, record)

    def history(
        self, record: JobRecord, outcome: AttemptOutcome, began: float, error: str = ""
    ) -> bytes:
        """Return the job's history with this attempt at its end.

        Its end is the store's instant of the claim plus the time that has passed here.
        """
        ended = record.started + micros(self._clock.boot() - began)
        return endings.history_of(record, outcome, ended, error)


def _nothing() -> None:
    pass


def _requested_pause(error: BaseException) -> float | None:
    """Return the pause that a handler asks for, if it is one: a subclass may set anything."""
    after = getattr(error, "after", None) if isinstance(error, Retry) else None
    is_pause = isinstance(after, int | float) and math.isfinite(after) and after >= 0
    return after if is_pause else None


def ends_more_than_the_attempt(
    error: BaseException, handler: Handler, task: asyncio.Task[Any] | None
) -> bool:
    """Whether it was not the handler that raised this: the user has pressed Ctrl-C, or Python
    closes a task that will never go on, from outside of it.
    """
    if isinstance(error, KeyboardInterrupt):
        return handler.is_async  # which only the main thread gets
    if isinstance(error, GeneratorExit):
        with suppress(RuntimeError):  # no loop runs any more
            return asyncio.current_task() is not task
        return True
    return False
