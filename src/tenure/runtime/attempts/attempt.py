"""One attempt of a job: runs the handler, and returns how it ended as one value.

From the outside in: time-out, pacing (jitter and retries of timers), middleware, then the handler
on the loop, in a thread or in a child process. Plain middleware of a handler in a thread is entered
there, as its connections and sessions may belong to that thread. `Slots` starts attempts and
settles them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    suppress,
)
from functools import partial
from typing import Any, Final, NoReturn

from tenure.core.clock import Clock
from tenure.core.jobs.endings import succeeded
from tenure.core.jobs.records import JobRecord, Settlement
from tenure.core.jobs.results import store_result
from tenure.errors import ArgumentsError
from tenure.observe.events import Events
from tenure.observe.jobs import HandlerStuck, ResultNotStored
from tenure.observe.log_records import fields_of
from tenure.runtime.attempts.attempt_endings import AttemptEndings, requested_pause
from tenure.runtime.attempts.handler import Around, Handler
from tenure.runtime.attempts.job_context import context_of
from tenure.runtime.attempts.processes.pool import Processes, ProcessLimits, Returned
from tenure.runtime.attempts.reports import Reject, TimedOut, Unreadable, awaited, report_on
from tenure.runtime.attempts.running_job import RunningJob, current
from tenure.runtime.attempts.threads import Threads
from tenure.runtime.attempts.time_limit import TimeLimit, set_alarm
from tenure.runtime.attempts.transaction import Ending

__all__ = ["STUCK_AFTER", "AttemptRunner", "ends_more_than_the_attempt"]

log = logging.getLogger("tenure")

STUCK_AFTER: Final = 1.0
"""A handler that still runs this many seconds after its time-out is reported as stuck."""


class AttemptRunner:
    """Runs attempts of one worker."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        endings: AttemptEndings,
        *,
        payload_limit: int,
        result_limit: int,
        around: Sequence[Around] = (),
        processes: ProcessLimits,
        on_room: Callable[[], None],
    ) -> None:
        self._endings = endings
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
        """Run the handler and return how it ended; None if its own transaction has settled it.

        Raises CancelledError if it was asked to stop; `context.stop_reason` says why.
        """
        began = self._clock.boot()
        history = partial(self._endings.history, record, "succeeded", began)
        context.ending = Ending(handler.signature, history, self._result_limit)
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
            return self._endings.failed(handler, record, error, began)
        if context.is_settled:
            return None
        if not isinstance(result, Returned):
            written = handler.signature.encode_result(result)
            result = Returned(*store_result(written, self._result_limit))
        # The handler has returned, so its effects have happened: the job has succeeded.
        if result.problem and handler.pacing is None:  # timers have no callers for a result
            self._events.emit(ResultNotStored(record.task, record.id, result.problem), record)
        return succeeded(record, result=result.stored, history=history())

    async def _with_timeout(self, handler: Handler, record: JobRecord, context: RunningJob) -> Any:
        """Run the handler with its pacing and middleware, up to its time-out."""
        work = self._with_pacing(handler, record, context)
        if record.timeout is None:
            return await work
        if handler.is_cancellable:
            return await self._cancel_at_timeout(work, context, record.timeout)
        return await self._stop_at_timeout(work, record, context, record.timeout)

    async def _with_pacing(self, handler: Handler, record: JobRecord, context: RunningJob) -> Any:
        """Wait for the jitter and run the handler. Retries as its pacing says, in one attempt."""
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
                pause = pacing.after_failure(record, context.tries, passed, requested_pause(error))
                if pause is None or context.is_settled or context.stop_reason is not None:
                    raise
                self._endings.report_retry(record, report_on(error), pause, began)
                await self._pause(pause, context)
                context.tries += 1

    async def _pause(self, seconds: float, context: RunningJob) -> None:
        """Wait, or raise CancelledError if the attempt is asked to stop meanwhile.

        A synchronous handler runs in a thread, which no cancellation reaches. Hence the check.
        """
        if seconds > 0:
            await self._clock.wait(context.stopped, seconds)
        context.check()

    async def _with_middleware(
        self, handler: Handler, record: JobRecord, context: RunningJob
    ) -> Any:
        """Call the handler inside the user's middleware.

        Plain context managers of a handler in a thread are entered there, so inside of async ones.
        """
        if not self._around:
            return await self._call(handler, record, context, ())
        in_thread: list[AbstractContextManager[Any]] = []
        async with AsyncExitStack() as stack:
            for make in self._around:
                manager = make(context_of(context))
                if isinstance(manager, AbstractAsyncContextManager):
                    await stack.enter_async_context(manager)
                elif handler.runs_in_thread:
                    in_thread.append(manager)
                else:
                    stack.enter_context(manager)
            return await self._call(handler, record, context, in_thread)

    async def _call(
        self,
        handler: Handler,
        record: JobRecord,
        context: RunningJob,
        in_thread: Sequence[AbstractContextManager[Any]],
    ) -> Any:
        """Call the handler; `in_thread` are the context managers to enter in its thread."""
        if handler.runs_in_thread:
            call = self._deferred(handler, record) if in_thread else self._bound(handler, record)
            context.check()  # the middleware may have used up the time
            return await self.threads.run(partial(_call_inside, in_thread, call, context))
        if handler.executor == "process":
            self._check_size(record)
            return await self._call_in_process(handler, record, context)
        args, kwargs = self._arguments(handler, record)
        return awaited(await handler.function(*args, **kwargs))

    def _arguments(
        self, handler: Handler, record: JobRecord
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments of the handler. Raises Unreadable."""
        self._check_size(record)
        try:
            return handler.signature.decode_arguments(record.payload)
        except ArgumentsError as error:
            raise Unreadable(error.task, error.problem) from None

    def _bound(self, handler: Handler, record: JobRecord) -> Callable[[], Any]:
        """Return the handler with its arguments. Raises Unreadable."""
        args, kwargs = self._arguments(handler, record)
        return partial(handler.function, *args, **kwargs)

    def _deferred(self, handler: Handler, record: JobRecord) -> Callable[[], Any]:
        """Return the handler with its arguments, or what raises Unreadable when it is called.

        Middleware in a thread must see that error as middleware on the loop does.
        """
        try:
            return self._bound(handler, record)
        except Unreadable as error:
            return partial(_raise, error)

    def _check_size(self, record: JobRecord) -> None:
        """Raise Unreadable for too large arguments, which other programs may have stored."""
        if len(record.payload) > self._payload_limit:
            size, limit = len(record.payload), self._payload_limit
            problem = f"they take {size:,} bytes, and in this worker payload_limit allows {limit:,}"
            raise Unreadable(record.task, problem)

    async def _call_in_process(
        self, handler: Handler, record: JobRecord, context: RunningJob
    ) -> Any:
        """Call the handler in a child process. The start of the child does not count as run time.

        If it did, an import that takes longer than the time-out would fail every attempt: each
        attempt would kill the child that the next one needs.
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
        """Run a cancellable handler, and cancel it at its time-out."""
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
        """Run a handler in a thread, which can only be asked to stop at its time-out."""
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


def _nothing() -> None:
    pass


def _raise(error: Exception) -> NoReturn:
    raise error


def _call_inside(
    managers: Sequence[AbstractContextManager[Any]], call: Callable[[], Any], context: RunningJob
) -> Any:
    """Call a plain handler in its thread, inside the context managers.

    Returns None if one of them swallows an error, as a handler that returns nothing.
    """
    with ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
            context.check()  # it may have used up the time
        return awaited(call())


def ends_more_than_the_attempt(
    error: BaseException, handler: Handler, task: asyncio.Task[Any] | None
) -> bool:
    """Whether the error comes from outside the handler: the user has pressed Ctrl-C, or Python
    closes a task that will never continue.
    """
    if isinstance(error, KeyboardInterrupt):
        return handler.is_async  # only the main thread gets Ctrl-C
    if isinstance(error, GeneratorExit):
        with suppress(RuntimeError):  # no loop runs any more
            return asyncio.current_task() is not task
        return True
    return False
