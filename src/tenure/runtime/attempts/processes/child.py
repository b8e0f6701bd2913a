"""A child process for CPU-bound handlers: it runs one job at a time, and it can be killed.

A child is a new interpreter, never a fork, so it has no threads or connections of the worker. It
gets the name of the function to import, and the arguments as the store has them. When its attempt
must stop, the child is killed with everything it has started. A crash fails that one attempt only.
Children run further jobs until they have run 100 or use too much memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import socketpair

import msgspec

from tenure.core.sizes import as_size
from tenure.errors import ProcessDied, StoreError
from tenure.runtime.attempts.processes.messages import (
    Begun,
    Ended,
    Enqueue,
    FromChild,
    Noted,
    Run,
    Stored,
    StoreNote,
    receive,
    send,
)
from tenure.runtime.attempts.running_job import RunningJob
from tenure.runtime.background import Background
from tenure.runtime.process_info import memory_of, signal_name

__all__ = ["END_SECONDS", "STOP_SIGNALS", "Child"]

log = logging.getLogger("tenure")

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that ask the worker to stop, and that may reach its children as well."""

# Limits what handlers can leave behind in a child: memory, threads, open files.
_JOBS_MAX = 100
# The next job of a child should find at least half of its memory limit free.
_MEMORY_LEFT = 0.5
# After this time without a job a child ends, to free its memory.
_IDLE_SECONDS = 300.0
# Measured: a runaway fills about 1 GB a second, so it exceeds its limit by about 100 MB.
_LOOK_EVERY = 0.1
END_SECONDS = 1.0
"""How many seconds a child may take to end, and its last messages to arrive."""

# The child must find the same modules as this process, so sys.path is set before any import.
_PROGRAM = (
    "import os, sys; sys.path[:] = sys.argv.pop().split(os.pathsep); "
    "from tenure.runtime.attempts.processes.child_main import main; main(int(sys.argv.pop()))"
)
_from_child: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


class Child:
    """One child process, seen from the worker."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        memory: int | None,
        start_seconds: float = 30.0,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._memory = memory
        self._start_seconds = start_seconds
        self._loop = asyncio.get_running_loop()
        self._storing = Background()
        self._jobs = 0
        self._excess = 0
        self._module = ""
        self.has_begun = False
        """Whether the handler of its current or last job has begun."""
        self.is_too_slow = False
        """Whether it was killed because its job did not begin in time."""
        self._expiry: asyncio.TimerHandle | None = None
        self._gone = asyncio.ensure_future(process.wait())
        # A process that a handler has forked may keep the socket open, so the end of the child
        # alone would not close the stream.
        self._gone.add_done_callback(
            lambda _: self._loop.call_later(END_SECONDS, self._writer.transport.abort)
        )

    @classmethod
    async def start(cls, memory: int | None, start_seconds: float = 30.0) -> Child:
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
                    os.pathsep.join(str(folder) or str(Path.cwd()) for folder in sys.path),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    # a process group, to kill it with everything it has started
                    start_new_session=True,
                )
            except BaseException:
                writer.close()
                raise
        return cls(process, reader, writer, memory, start_seconds)

    @property
    def is_new(self) -> bool:
        return self._jobs == 1

    @property
    def is_alive(self) -> bool:
        return not self._gone.done() and not self._reader.at_eof()

    @property
    def is_worn(self) -> bool:
        """Whether it should be replaced: it has run many jobs, or uses much memory."""
        if self._jobs >= _JOBS_MAX:
            return True
        return (
            self._memory is not None and memory_of(self._process.pid) > self._memory * _MEMORY_LEFT
        )

    def rest(self, expire: Callable[[], None]) -> None:
        """Call `expire` if no job comes for a while."""
        self._expiry = self._loop.call_later(_IDLE_SECONDS, expire)

    def wake(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    async def run(self, order: Run, context: RunningJob, begun: Callable[[], None]) -> Ended:
        """Run one attempt in the child. Raises ProcessDied if the child does not survive it."""
        self._jobs += 1
        self.has_begun = False
        slow = self._loop.call_later(self._start_seconds, self._end_too_slow, order)
        looking = asyncio.ensure_future(self._end_a_runaway()) if self._memory else None
        try:
            send(self._writer, order)
            return await self._follow(order, context, slow, begun)
        except (EOFError, OSError, msgspec.MsgspecError):
            raise await self._died() from None
        finally:
            slow.cancel()
            if looking is not None:
                looking.cancel()

    async def _follow(
        self,
        order: Run,
        context: RunningJob,
        slow: asyncio.TimerHandle,
        begun: Callable[[], None],
    ) -> Ended:
        this = order.record.id, order.record.fence
        while True:
            match await receive(self._reader, _from_child):
                case Begun():
                    slow.cancel()
                    self.has_begun = True
                    begun()
                case StoreNote(note=note) as store:
                    # Stored in the background, because the end of the job may follow at once. Late
                    # messages of an earlier job are dropped.
                    if (note.id, note.fence) == this:
                        self._storing.spawn(self._store(store, context))
                    else:
                        send(self._writer, Noted(store.number, stored=False))
                case Enqueue() as enqueue:
                    if (enqueue.id, enqueue.fence) == this:
                        self._storing.spawn(self._enqueue(enqueue, context))
                    else:
                        problem = f"job {enqueue.id} has ended, so it can enqueue nothing."
                        send(self._writer, Stored(enqueue.number, error="over", problem=problem))
                case ended:
                    return ended

    async def _enqueue(self, enqueue: Enqueue, context: RunningJob) -> None:
        """Store jobs for the child, over the worker's own connection."""
        try:
            answers, existing = await context.insert(enqueue.news)
        except Exception as error:  # noqa: BLE001 - any error must reach the waiting job
            kind = type(error).__name__ if isinstance(error, StoreError) else "error"
            answer = Stored(enqueue.number, error=kind, problem=str(error) or repr(error))
        else:
            answer = Stored(enqueue.number, answers, existing)
        send(self._writer, answer)

    def _end_too_slow(self, order: Run) -> None:
        self.is_too_slow = True
        self._module = order.module
        self.kill()

    async def _store(self, store: StoreNote, context: RunningJob) -> None:
        try:
            answer = Noted(store.number, await context.send_note(store.note))
        except Exception as error:  # noqa: BLE001 - any error must reach the waiting job
            answer = Noted(store.number, stored=False, problem=str(error) or repr(error))
        send(self._writer, answer)

    def kill(self) -> None:
        """Kill the child and everything it has started."""
        # While its group has a member, the system does not reuse the id. If the child is gone but
        # its id exists, that is another process.
        if self._gone.done() and _exists(self._process.pid):
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Close the connection and wait until the child has ended; kill it after a second."""
        self._writer.close()
        await asyncio.wait([self._gone], timeout=END_SECONDS)
        if not self._gone.done():
            self.kill()
        await asyncio.wait([self._gone])
        await self._storing.drain(timeout=END_SECONDS)

    # How it died.

    async def _died(self) -> ProcessDied:
        await asyncio.wait([self._gone], timeout=END_SECONDS)
        if not self._gone.done():
            self.kill()
            await asyncio.wait([self._gone])
            return ProcessDied("its process closed the connection to the worker", 0)
        code = self._gone.result()
        return ProcessDied(self._how(code), code)

    def _how(self, code: int) -> str:
        if self._excess and self._memory:
            return (
                f"its process was ended because it used {as_size(self._excess)} of memory, and "
                f"process_memory allows {as_size(self._memory)}"
            )
        if self.is_too_slow:
            return (
                f"its process was ended because it did not begin the job within "
                f"{self._start_seconds:g} s: starting Python and importing {self._module!r} took "
                "longer than process_start allows. Import less there, or raise process_start"
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

        The resident memory counts. A limit by the system (RLIMIT_AS) counts address space, of
        which threads and numeric libraries reserve many times what they use. A limit low enough to
        help would fail jobs that use little memory.
        """
        assert self._memory is not None
        while True:
            if (used := memory_of(self._process.pid)) > self._memory:
                self._excess = used
                self.kill()
                return
            waiting = self._loop.create_future()
            # Real time also under a virtual clock: the memory is real.
            self._loop.call_later(_LOOK_EVERY, _finish, waiting)
            await waiting


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


def _finish(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
