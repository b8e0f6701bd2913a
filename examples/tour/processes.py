"""Starts real processes, reads their output, and ends them however the tour ends."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class Broken(Exception):
    """Something that was promised did not happen in time."""


class Processes:
    """Starts processes by name and ends every one of them."""

    def __init__(self, draw: Callable[[str], None]) -> None:
        self._draw = draw
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._listeners: list[asyncio.Task[None]] = []
        self._killed: set[str] = set()
        self._news = asyncio.Event()

    def hear(self, name: str, line: str) -> None:
        """Handle a line that a process has printed."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in self._processes:
            self.kill(name)
        await asyncio.gather(*self._listeners, return_exceptions=True)

    async def spawn(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> None:
        self._killed.discard(name)
        self._processes[name] = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **(env or {})},
            # A group of its own: Ctrl-C then reaches only the tour, which ends the process.
            process_group=0 if os.name == "posix" else None,
        )
        self._listeners.append(asyncio.create_task(self._listen(name, process)))

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """Kill with SIGKILL: the process cannot release anything."""
        self._killed.add(name)
        with suppress(ProcessLookupError):
            self._processes[name].kill()

    async def until(
        self,
        condition: Callable[[], T],
        what: str,
        *,
        within: float = 30.0,
        progress: Callable[[], str] | None = None,
    ) -> T:
        """Return the result of the condition once it is true; raise Broken after `within` s."""
        deadline = time.monotonic() + within
        while not (result := condition()):
            if time.monotonic() > deadline:
                raise Broken(f"waited {within:g} s in vain for {what}")
            if progress is not None:
                self._draw(progress())
            self._check_alive()
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), 0.05)
        return result

    def _signal(self, name: str, number: int) -> None:
        self._processes[name].send_signal(number)

    def _write(self, name: str, text: str) -> None:
        self._processes[name].stdin.write(text.encode())

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.returncode is not None and name not in self._killed:
                raise Broken(f"{name} ended with status {process.returncode}")

    async def _listen(self, name: str, process: asyncio.subprocess.Process) -> None:
        while line := await process.stdout.readline():
            self.hear(name, line.decode(errors="replace").rstrip("\n"))
            self._news.set()
        await process.wait()
