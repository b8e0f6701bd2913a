"""The main program of a child process: runs one attempt after the other in its main thread.

A second thread exchanges messages with the worker, so that a job can report progress while it
computes, and so that the child ends when its worker is gone.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from socket import socket
from typing import Any

import msgspec

from tenure.core.clock import SystemClock
from tenure.core.jobs.records import Inserted, JobRecord, NewJob, Note
from tenure.core.jobs.results import store_result
from tenure.core.values.signature import Signature
from tenure.errors import ArgumentsError, StoreError, StoreFull, StoreUnavailable
from tenure.runtime.attempts.processes.child import STOP_SIGNALS
from tenure.runtime.attempts.processes.functions import function_at
from tenure.runtime.attempts.processes.messages import (
    Begun,
    Ended,
    Enqueue,
    Noted,
    Run,
    Stored,
    StoreNote,
    ToChild,
    packed,
    receive,
    send,
)
from tenure.runtime.attempts.reports import ErrorReport, Reject, Retry, awaited, report_on
from tenure.runtime.attempts.running_job import RunningJob, current

__all__ = ["main"]

log = logging.getLogger("tenure")

_PR_SET_PDEATHSIG = 1
# Makes the kernel's OOM killer choose this process before the worker.
_OOM_SCORE, _OOM_SCORE_MAX = 500, 1000

_KINDS = {"StoreUnavailable": StoreUnavailable, "StoreFull": StoreFull}

_to_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)


def main(descriptor: int) -> None:
    """Run attempts for the worker at the other end of this socket, until the worker is gone."""
    _die_with_the_worker()
    with suppress(RuntimeError):  # where there is no stderr
        faulthandler.enable()
    _leave_signals_to_the_worker()
    connection = socket(fileno=descriptor)
    connection.set_inheritable(inheritable=False)
    link = _Link(connection)
    link.start()
    signatures: dict[Callable[..., Any], Signature] = {}
    while (order := link.orders.get()) is not None:
        ended = _attempt(order, link, signatures)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the handler may have closed or replaced them
                stream.flush()
        link.done(ended)
    link.join()


def _die_with_the_worker() -> None:
    """Make the kernel kill this process when the thread that started it ends, for any reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        score = Path("/proc/self/oom_score_adj")
        with suppress(OSError):
            worse = int(score.read_text(encoding="ascii")) + _OOM_SCORE
            score.write_text(str(min(worse, _OOM_SCORE_MAX)), encoding="ascii")


def _leave_signals_to_the_worker() -> None:
    """Ignore signals to stop: the worker gets them too, and decides how long the job may run.

    Service managers send SIGTERM to all processes at once. This installs a handler and not SIG_IGN,
    which programs that handlers start would inherit. Processes that a handler forks get the default
    back, because `multiprocessing` ends its processes with SIGTERM.
    """
    defaults = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    forking = threading.local()

    def stay(*_: object) -> None:
        pass

    def hold_back() -> None:
        forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, forking.mask)

    def restore() -> None:
        for number, default in defaults.items():
            if signal.getsignal(number) is stay:
                signal.signal(number, default)
        let_through()

    for number in STOP_SIGNALS:
        signal.signal(number, stay)
    # Blocked until the default is restored: a signal right after the fork would have no effect.
    os.register_at_fork(before=hold_back, after_in_parent=let_through, after_in_child=restore)


def _attempt(order: Run, link: _Link, signatures: dict[Callable[..., Any], Signature]) -> Ended:
    record = order.record
    context = RunningJob(record, link.note, link.loop, order.limit)
    context.home, context.insert = order.home, partial(link.enqueue, record)
    try:
        function = _function(order)
        if function not in signatures:
            signatures[function] = Signature(function, record.task)
        signature = signatures[function]
        try:
            args, kwargs = signature.decode_arguments(record.payload)
        except ArgumentsError as error:
            return Ended(how="unreadable", report=_look_into(error))
        # The time-out begins here. The message must arrive before the handler can kill this
        # process: otherwise the worker would assume that the job has not begun, and run it again.
        context.postponed = max(0.0, SystemClock().boot() - order.claimed)
        link.begun()
        try:
            result = copy_context().run(_call, context, function, args, kwargs)
        finally:
            link.flush_notes(context)
    except BaseException as error:  # noqa: BLE001 - any error fails this attempt only
        return _raised(error)
    stored, problem = store_result(signature.encode_result(result), order.limit)
    return Ended(how="returned", result=stored, problem=problem)


def _function(order: Run) -> Callable[..., Any]:
    """Import the handler. Its module may set up logging, which the worker's choice replaces."""
    prepare = order.preparation if order.module not in sys.modules else None
    if prepare is not None:
        prepare.call(is_imported=False)
    function: Callable[..., Any] = function_at(order.module, order.qualname)
    if prepare is not None:
        prepare.call(is_imported=True)
    return function


def _call(
    context: RunningJob, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> Any:
    current.set(context)
    return awaited(function(*args, **kwargs))


def _raised(error: BaseException) -> Ended:
    match error:
        case asyncio.CancelledError():
            return Ended(how="cancelled")
        case Retry():
            after = getattr(error, "after", None)  # a subclass may not have called __init__
            after = after if isinstance(after, int | float) else None
            return Ended(how="retry", report=_look_into(error), after=after)
        case Reject():
            return Ended(how="rejected", report=_look_into(error))
        case _:
            return Ended(how="raised", report=_look_into(error))


def _look_into(error: BaseException) -> ErrorReport:
    try:
        return report_on(error)
    except Exception:
        log.exception("a job failed with an error that cannot be formatted")
        return ErrorReport(type(error).__qualname__, "it could not be formatted; see the log")


class _Link:
    """The connection to the worker, served by an event loop in a second thread."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._thread = threading.Thread(target=self._run, name="tenure-worker-link", daemon=True)
        self._answers: dict[int, asyncio.Future[Noted]] = {}
        self._enqueued: dict[int, asyncio.Future[Stored]] = {}
        self._last_number = 0
        self._at_work = False
        self._writer: asyncio.StreamWriter
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.loop = self._runner.get_loop()
        self.orders: SimpleQueue[Run | None] = SimpleQueue()
        """The attempts to run; None when the worker is gone."""

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def begun(self) -> None:
        """Send that the handler begins, and wait until it is sent. Called in the main thread."""
        with suppress(RuntimeError):  # as in `done`
            asyncio.run_coroutine_threadsafe(self._say_begun(), self.loop).result()

    async def _say_begun(self) -> None:
        send(self._writer, Begun())
        with suppress(OSError):
            await self._writer.drain()

    def done(self, ended: Ended) -> None:
        """Send how the attempt ended. Called in the main thread."""
        words = packed(ended)  # encoded here, where an error ends this process and so the attempt
        self._at_work = False
        with suppress(RuntimeError):  # the loop has ended, because the worker is gone
            self.loop.call_soon_threadsafe(self._writer.write, words)

    def flush_notes(self, context: RunningJob) -> None:
        """Send the attempt's last notes before its end. Called in the main thread."""
        with suppress(RuntimeError):  # as in `done`
            asyncio.run_coroutine_threadsafe(context.flush_notes(), self.loop).result()

    async def note(self, note: Note) -> bool:
        """Ask the worker to store a note. Returns False if the attempt is over."""
        self._last_number += 1
        number = self._last_number
        self._answers[number] = self.loop.create_future()
        send(self._writer, StoreNote(number, note))
        noted = await self._answers[number]
        if noted.problem:
            raise StoreError(noted.problem)
        return noted.stored

    async def enqueue(
        self, record: JobRecord, news: list[NewJob]
    ) -> tuple[list[Inserted], list[JobRecord]]:
        """Ask the worker to store jobs. Raises what the store raised there."""
        self._last_number += 1
        number = self._last_number
        answer: asyncio.Future[Stored] = self.loop.create_future()
        self._enqueued[number] = answer
        send(self._writer, Enqueue(number, record.id, record.fence, news))
        stored = await answer
        if stored.error:
            raise _KINDS.get(stored.error, StoreError)(stored.problem)
        return stored.answers, stored.existing

    def _run(self) -> None:
        with self._runner as runner:
            runner.run(self._listen())
        self.orders.put(None)

    async def _listen(self) -> None:
        self._connection.settimeout(0)
        reader, self._writer = await asyncio.open_connection(sock=self._connection)
        self._writer.transport.set_write_buffer_limits(0)  # so that `drain` waits for all of it
        with suppress(EOFError, OSError):
            while True:
                match await receive(reader, _to_child):
                    case Run() as order:
                        self._at_work = True
                        self.orders.put(order)
                    case Noted() as noted:
                        answer = self._answers.pop(noted.number, None)
                        if answer is not None and not answer.done():
                            answer.set_result(noted)
                    case Stored() as stored:
                        waiting = self._enqueued.pop(stored.number, None)
                        if waiting is not None and not waiting.done():
                            waiting.set_result(stored)
        if self._at_work:
            # The worker is gone, so the result is lost. Kills all that the job has started as well.
            os.killpg(0, signal.SIGKILL)
        self._writer.close()
