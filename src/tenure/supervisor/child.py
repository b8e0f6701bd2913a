"""A worker process as its supervisor sees it."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tenure.runtime.process_info import memory_of
from tenure.runtime.supervised.messages import (
    BeatFailed,
    Order,
    RecordRenewed,
    Report,
    decode_report,
    encode_message,
)
from tenure.runtime.supervised.scoreboard import Scoreboard
from tenure.supervisor.spec import ChildSpec, encode_spec

__all__ = ["CAN_SUPERVISE", "HELD_SIGNALS", "Child", "has_proc", "show_stacks_at_signal"]

CAN_SUPERVISE = hasattr(signal, "pthread_sigmask")
"""Whether this system can start worker processes as `Child` does."""

# Python's faulthandler writes all stacks at it, even while C code keeps the interpreter. Windows
# has no such signal: there is no supervisor there, but this module must be importable.
_DUMP_SIGNAL: signal.Signals | None = getattr(signal, "SIGUSR2", None)

HELD_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGUSR2") if hasattr(signal, name)
)
"""Signals that a child starts with blocked, until it has handlers for them."""

# Heartbeats that a child does not read are repeated anyway.
_UNREAD_MAX = 65_536


def show_stacks_at_signal() -> None:
    """Have this process write the stacks of its threads to stderr at SIGUSR2."""
    if _DUMP_SIGNAL is None:
        return
    try:
        faulthandler.register(_DUMP_SIGNAL)
    except (OSError, RuntimeError):  # stderr is no file, or not there
        signal.signal(_DUMP_SIGNAL, signal.SIG_IGN)  # else it would end the process


def has_proc() -> bool:
    """Whether this system shows the states of processes as files."""
    return Path("/proc/self/stat").exists()


class Child:
    """A process, its line and its board. `replica` is the id under which it works."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        board: Scoreboard,
        started: float,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.board = board
        self.started = started
        self.number = 0
        """The number of its metrics files."""
        self.replica: str | None = None
        self.second_replica: str | None = None
        """A second replica, as which it claims jobs for a process of their own."""
        self.owner: Child | None = None
        """The worker for which it runs some jobs, beside the seats."""
        self.jobs: list[str] = []
        """The jobs that it runs for its owner."""
        self.is_retiring = False
        self.is_too_large = False
        """Whether it is retiring because of its memory."""
        self.is_being_killed = False
        """Whether it is about to be killed."""
        self.are_stacks_shown = False
        """Whether its stacks were shown since its threads ran last."""
        self.vacated = asyncio.Event()
        """Set when another one may take its seat."""

    @classmethod
    async def spawn(cls, spec: ChildSpec, now: float, spawning: asyncio.Lock) -> Child:
        """Start a fresh interpreter: nothing of this process but the line and the board.

        All spawns of a process share the lock `spawning`. Two at a time would each restore the
        signal mask that they found, and the last one found the signals blocked by the other.
        """
        ours, theirs = socket.socketpair()
        file = Scoreboard.make_file(spec.places)
        try:
            spec = msgspec.structs.replace(spec, line=theirs.fileno(), board=file)
            async with spawning:
                with _blocked(HELD_SIGNALS):
                    process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        "-m",
                        "tenure.supervisor.child_main",
                        encode_spec(spec),
                        stdin=asyncio.subprocess.DEVNULL,
                        pass_fds=(theirs.fileno(), file),
                    )
            board = Scoreboard(file, spec.places)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(file)
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer, board, now)

    @property
    def log_fields(self) -> dict[str, object]:
        """The `extra` of a log record about this process."""
        return {} if self.replica is None else {"replica": self.replica}

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with, below 0 for a signal; None while it runs."""
        return self._process.returncode

    def order(self, order: Order) -> None:
        """Send it an order, which may come too late."""
        with suppress(OSError, RuntimeError):
            unread = self._writer.transport.get_write_buffer_size()
            if unread < _UNREAD_MAX or not isinstance(order, RecordRenewed | BeatFailed):
                self._writer.write(encode_message(order) + b"\n")

    async def reports(self) -> AsyncIterator[Report]:
        """Yield its reports until its line ends."""
        # A line too long, or one that is none of ours.
        with suppress(OSError, ValueError, RecursionError):
            while line := await self._reader.readline():
                yield decode_report(line)

    async def exited(self) -> int:
        """Wait for its end, and return its exit code."""
        return await self._process.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    def dump_stacks(self) -> None:
        """Have it write where all its threads are, to its stderr."""
        if _DUMP_SIGNAL is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(_DUMP_SIGNAL)

    def close(self) -> None:
        self._writer.close()
        self.board.close()

    def lives(self, now: float, ttl: float) -> bool:
        """Whether its process exists and is not stopped, whatever its threads do.

        Where the system does not show that, whether its host thread ticked within a ttl.
        """
        if self.exit_code is not None:
            return False
        state = _state(self.pid)
        if state is None:
            return now - max(self.board.ticked, self.started) < ttl
        return state not in "TtZXx"

    def memory(self) -> int:
        """How many bytes of memory it takes; 0 where the system does not say."""
        return memory_of(self.pid)


@contextmanager
def _blocked(signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Hold back signals meanwhile; what is started in the block inherits that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _state(pid: int) -> str | None:
    if not has_proc():
        return None
    try:
        # The name of the program stands in parentheses and may hold anything.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return "X"
