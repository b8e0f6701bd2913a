"""Child processes for CPU-bound handlers: one job at a time in each, and all of them can be killed.

A child is a fresh interpreter, never a fork: threads and connections of the worker are not in it.
It is told which function to import and gets the arguments as the store has them. When its attempt
must stop it is killed, with everything it has started; whatever it does to itself fails that one
attempt. Children are used again while they are in good shape.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from socket import socketpair
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from tenure.core.records import JobRecord
from tenure.core.sizes import as_size
from tenure.errors import ConfigError, ProcessDied
from tenure.runtime.background import Background
from tenure.runtime.context import RunningJob
from tenure.runtime.process import memory_of, signal_name
from tenure.runtime.process_messages import Begun, Ended, FromChild, Noted, Run, Said, receive, send
from tenure.runtime.reports import (
    RaisedInChild,
    RejectedInChild,
    RetryInChild,
    UnreadableInChild,
)

__all__ = ["STOP_SIGNALS", "Processes", "Returned", "check_processes", "function_at"]

log = logging.getLogger("tenure")

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""What asks the worker to stop, and may reach its children as well."""

# What handlers leave behind must not pile up for ever, whatever it is.
_JOBS_MAX = 100
# The next job of a child should find at least half of the memory free that it may use.
_MEMORY_LEFT = 0.5
# Nobody has used it for so long: its memory is better free.
_IDLE_SECONDS = 300.0
# A runaway fills about 1 GB a second, so that it gets some 100 MB beyond its limit.
_LOOK_EVERY = 0.1
# How long a child that is asked to end may take, and how long its last words may be on the way.
_END_SECONDS = 1.0

# The same modules as here must be found, so the path comes first of all.
_PROGRAM = (
    "import os, sys; sys.path[:] = sys.argv.pop().split(os.pathsep); "
    "from tenure.runtime.process_child import main; main(int(sys.argv.pop()))"
)
_from_child: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


class Returned(Struct, frozen=True):
    """What a handler returned, as the store keeps it."""

    stored: bytes
    problem: str = ""
    """Why callers cannot have it."""


class Processes:
    """Runs functions, each in a child process that is free or new. Use it on one event loop."""

    def __init__(self, memory: int | None = None) -> None:
        self._memory = memory
        self._idle: list[_Child] = []
        self._background = Background()
        self._is_closed = False
        if memory is not None and not Path("/proc/self/statm").exists():
            log.warning("process_memory has no effect here: this system has no /proc")

    async def run(
        self, function: Callable[..., Any], record: JobRecord, context: RunningJob, limit: int
    ) -> Returned:
        """Run an attempt; raise what its handler raised, or ProcessDied.

        Cancelled, it kills the child at once.
        """
        module, qualname = _place_of(function, record.task)
        order = Run(module, qualname, record, limit)
        while True:
            child = await self._take()
            try:
                ended = await child.run(order, context)
            except ProcessDied as error:
                self._end(child, kill=True)
                if child.has_begun or (child.is_new and not _was_told_to_stop(error)):
                    raise
                continue  # it died while it was idle or started: the job is not the reason
            except BaseException:
                self._end(child, kill=True)
                raise
            self._put_back(child)
            return _result(ended)

    async def close(self) -> None:
        """End idle children, and wait until all are gone."""
        self._is_closed = True
        while self._idle:
            self._end(self._idle.pop())
        await self._background.drain(timeout=5 * _END_SECONDS)

    async def _take(self) -> _Child:
        while self._idle:
            child = self._idle.pop()
            child.wake()
            if child.is_alive:
                return child
            self._end(child)
        return await _Child.start(self._memory)

    def _put_back(self, child: _Child) -> None:
        if self._is_closed or child.is_worn:
            self._end(child)
        else:
            child.rest(partial(self._expire, child))
            self._idle.append(child)

    def _expire(self, child: _Child) -> None:
        self._idle.remove(child)
        self._end(child)

    def _end(self, child: _Child, *, kill: bool = False) -> None:
        if kill:
            child.kill()
        child.wake()
        self._background.spawn(child.end())


class _Child:
    """One child process, seen from the worker."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        memory: int | None,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._storing = Background()
        self._jobs = 0
        self._excess = 0
        self.has_begun = False
        """Whether its present or last job got as far as that."""
        self._expiry: asyncio.TimerHandle | None = None
        self._gone = asyncio.ensure_future(process.wait())
        # A process that a handler has forked may keep the socket open: then no end of it is seen.
        self._gone.add_done_callback(
            lambda _: self._loop.call_later(_END_SECONDS, self._writer.transport.abort)
        )

    @classmethod
    async def start(cls, memory: int | None) -> _Child:
        ours, theirs = socketpair()
        ours.settimeout(0)
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    _PROGRAM,
                    str(theirs.fileno()),
                    os.pathsep.join(str(one) or str(Path.cwd()) for one in sys.path),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # so that it can be killed with all it has started
                )
            except BaseException:
                writer.close()
                raise
        return cls(process, reader, writer, memory)

    @property
    def is_new(self) -> bool:
        return self._jobs == 1

    @property
    def is_alive(self) -> bool:
        return not self._gone.done() and not self._reader.at_eof()

    @property
    def is_worn(self) -> bool:
        """Whether it has done enough, or holds on to too much."""
        if self._jobs >= _JOBS_MAX:
            return True
        return (
            self._memory is not None and memory_of(self._process.pid) > self._memory * _MEMORY_LEFT
        )

    def rest(self, expire: Callable[[], None]) -> None:
        """Wait for the next job, but not for ever."""
        self._expiry = self._loop.call_later(_IDLE_SECONDS, expire)

    def wake(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    async def run(self, order: Run, context: RunningJob) -> Ended:
        """Run one attempt there; raise ProcessDied if the child does not survive it."""
        self._jobs += 1
        self.has_begun = False
        looking = asyncio.ensure_future(self._end_a_runaway()) if self._memory else None
        try:
            send(self._writer, order)
            return await self._follow(order, context)
        except (EOFError, OSError, msgspec.MsgspecError):
            raise await self._died() from None
        finally:
            if looking is not None:
                looking.cancel()

    async def _follow(self, order: Run, context: RunningJob) -> Ended:
        this = order.record.id, order.record.fence
        while True:
            match await receive(self._reader, _from_child):
                case Begun():
                    self.has_begun = True
                case Said(note=note) as said:
                    # Nobody waits for the store here: the end of the job may follow at once. And
                    # what an earlier job says late goes nowhere.
                    if (note.id, note.fence) == this:
                        self._storing.spawn(self._store(said, context))
                    else:
                        send(self._writer, Noted(said.number, stored=False))
                case ended:
                    return ended

    async def _store(self, said: Said, context: RunningJob) -> None:
        try:
            answer = Noted(said.number, await context.pass_on(said.note))
        except Exception as error:  # noqa: BLE001 - whatever it is, the job waits to hear of it
            answer = Noted(said.number, stored=False, problem=str(error) or repr(error))
        send(self._writer, answer)

    def kill(self) -> None:
        """Kill it with everything it has started, at once."""
        # While its group has a member, the system gives its number to no other process.
        if self._gone.done() and _exists(self._process.pid):
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Let it end, and wait until it is gone; kill it if that takes long."""
        self._writer.close()
        await asyncio.wait([self._gone], timeout=_END_SECONDS)
        if not self._gone.done():
            self.kill()
        await asyncio.wait([self._gone])
        await self._storing.drain(timeout=_END_SECONDS)

    # How it died.

    async def _died(self) -> ProcessDied:
        await asyncio.wait([self._gone], timeout=_END_SECONDS)
        if not self._gone.done():
            self.kill()
            await asyncio.wait([self._gone])
            return ProcessDied("its process has cut the connection to the worker", 0)
        code = self._gone.result()
        return ProcessDied(self._how(code), code)

    def _how(self, code: int) -> str:
        if self._excess and self._memory:
            return (
                f"its process was ended because it used {as_size(self._excess)} of memory, and "
                f"process_memory allows {as_size(self._memory)}"
            )
        if code == -signal.SIGKILL:
            return (
                "its process was killed by SIGKILL: most likely this machine or container ran out "
                "of memory. Run fewer jobs at a time, or set process_memory to stop the one "
                "that takes too much"
            )
        if code < 0:
            return f"its process was killed by {signal_name(-code)}"
        when = "in the middle of the job" if self.has_begun else "before the job began"
        return f"its process ended with exit code {code} {when}"

    # Memory.

    async def _end_a_runaway(self) -> None:
        """Kill the child when it uses more memory than it may.

        It is the memory really in use that counts. A limit of the system's own (RLIMIT_AS) counts
        address space: of that, threads and numeric libraries reserve many times what they use, so
        that a limit low enough to help would fail jobs that are in order.
        """
        assert self._memory is not None
        while True:
            if (used := memory_of(self._process.pid)) > self._memory:
                self._excess = used
                self.kill()
                return
            waiting = self._loop.create_future()
            # Real time also where the clock is virtual: the memory is real.
            self._loop.call_later(_LOOK_EVERY, _ring, waiting)
            await waiting


def _was_told_to_stop(error: ProcessDied) -> bool:
    """Return whether a signal to stop ended the child, which can only be before it handles them."""
    return -error.exit_code in STOP_SIGNALS


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


def _ring(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _result(ended: Ended) -> Returned:
    """Return what a handler returned, or raise what it raised."""
    report = ended.report
    if ended.how == "returned":
        return Returned(ended.result, ended.problem)
    if report is None:  # it has cancelled itself
        raise asyncio.CancelledError
    if ended.how == "retry":
        raise RetryInChild(report, ended.after)
    kinds = {"rejected": RejectedInChild, "unreadable": UnreadableInChild}
    raise kinds.get(ended.how, RaisedInChild)(report)


# Which function.


class _Runnable(Protocol):
    """What of a handler matters here."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def executor(self) -> str: ...


def check_processes(handlers: Iterable[_Runnable]) -> None:
    """Raise ConfigError if a child process could not import one of these."""
    for handler in handlers:
        if handler.executor == "process":
            _place_of(handler.function, handler.name)


def _place_of(function: Callable[..., Any], task: str) -> tuple[str, str]:
    """Return the module and the name by which a child process gets this very function."""
    module, qualname = function.__module__, function.__qualname__
    if os.name != "posix":
        msg = f"task {task!r} has executor='process', which needs Linux, macOS or another Unix."
        raise ConfigError(msg)
    if module == "__main__":
        msg = (
            f"task {task!r} has executor='process' and is declared in the program that was "
            "started (__main__), from which a child process cannot import it. Move it into a "
            "module and import that. Only a worker needs this; enqueueing works anyway."
        )
        raise ConfigError(msg)
    try:
        found = function_at(module, qualname)
    except (ImportError, AttributeError, ValueError):
        found = None
    if found is not function:
        msg = (
            f"task {task!r} has executor='process', but {module}.{qualname} is not its function: "
            "a child process would import something else, or nothing. Give the function a name "
            "of its own at the top of its module, and let app.task be its outermost decorator."
        )
        raise ConfigError(msg)
    return module, qualname


def function_at(module: str, qualname: str) -> Any:
    """Return the function of that name, out of the task that may have taken its place."""
    found: Any = import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    return getattr(getattr(found, "_handler", None), "function", found)
