"""The child's side of `processes`: runs one attempt after the other in its main thread.

A second thread talks with the worker, so that a job can say something while it computes, and so
that a child whose worker is gone ends.
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
# The kernel looks for what to kill when memory runs out: rather this than the worker.
_OOM_SCORE, _OOM_SCORE_MAX = 500, 1000

_KINDS = {"StoreUnavailable": StoreUnavailable, "StoreFull": StoreFull}

_to_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)


def main(descriptor: int) -> None:
    """Run what the worker at the other end of this socket wants, until it goes away."""
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
            with suppress(Exception):  # it is the handler's business what became of them
                stream.flush()
        link.done(ended)
    link.join()


def _die_with_the_worker() -> None:
    """Have the kernel end this process with the thread that started it, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        score = Path("/proc/self/oom_score_adj")
        with suppress(OSError):
            worse = int(score.read_text(encoding="ascii")) + _OOM_SCORE
            score.write_text(str(min(worse, _OOM_SCORE_MAX)), encoding="ascii")


def _leave_signals_to_the_worker() -> None:
    """Survive a signal to stop: the worker gets it too, and decides how long the job may run.

    Service managers send SIGTERM to all processes at once. It is not SIG_IGN, which programs that
    handlers start would inherit. Processes that a handler forks get the default back:
    `multiprocessing` ends its own with SIGTERM.
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
    # Held back until the default is there, or a signal right after the fork would have no effect.
    os.register_at_fork(before=hold_back, after_in_parent=let_through, after_in_child=restore)


def _attempt(order: Run, link: _Link, signatures: dict[Callable[..., Any], Signature]) -> Ended:
    record = order.record
    context = RunningJob(record, link.note, link.loop, order.limit)
    context.home, context.insert = order.home, partial(link.enqueue, record)
    try:
        function = function_at(order.module, order.qualname)
        if function not in signatures:
            signatures[function] = Signature(function, record.task)
        signature = signatures[function]
        try:
            args, kwargs = signature.decode_arguments(record.payload)
        except ArgumentsError as error:
            return Ended(how="unreadable", report=_look_into(error))
        # The time-out begins here. The worker has heard it before the handler can kill this
        # process: else it would take the job for one that has not run, and run it again.
        context.postponed = max(0.0, SystemClock().boot() - order.claimed)
        link.begun()
        try:
            result = copy_context().run(_call, context, function, args, kwargs)
        finally:
            link.flush_notes(context)
    except BaseException as error:  # noqa: BLE001 - it belongs to the attempt, whatever it is
        return _raised(error)
    stored, problem = store_result(signature.encode_result(result), order.limit)
    return Ended(how="returned", result=stored, problem=problem)


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
            after = getattr(error, "after", None)  # a subclass may have forgotten it
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
        log.exception("a job failed with an error that cannot be looked into")
        return ErrorReport(type(error).__qualname__, "it could not be looked into; see the log")


class _Link:
    """The connection with the worker, on a loop in a thread of its own."""

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
        """What to run; None: nothing more."""

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def begun(self) -> None:
        """Say that the handler begins, and wait until that is on its way. In the main thread."""
        with suppress(RuntimeError):  # as in `done`
            asyncio.run_coroutine_threadsafe(self._say_begun(), self.loop).result()

    async def _say_begun(self) -> None:
        send(self._writer, Begun())
        with suppress(OSError):
            await self._writer.drain()

    def done(self, ended: Ended) -> None:
        """Say how the attempt ended. Called in the main thread."""
        words = packed(ended)  # here, where an error ends this process and so the attempt
        self._at_work = False
        with suppress(RuntimeError):  # the loop has ended: nobody listens any more
            self.loop.call_soon_threadsafe(self._writer.write, words)

    def flush_notes(self, context: RunningJob) -> None:
        """Have the attempt's last words sent before its end. Called in the main thread."""
        with suppress(RuntimeError):  # as in `done`
            asyncio.run_coroutine_threadsafe(context.flush_notes(), self.loop).result()

    async def note(self, note: Note) -> bool:
        """Have the worker store a note; False if the attempt is over."""
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
        """Have the worker store jobs. Raises what the store raised there."""
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
            # Nobody wants the result any more. Whatever the job has started ends as well.
            os.killpg(0, signal.SIGKILL)
        self._writer.close()
