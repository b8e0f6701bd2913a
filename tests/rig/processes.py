"""Python programs as children of a test: they report events, can be killed, and never stay behind.

    with Fleet() as fleet:
        child = fleet.start("-m", "tests.chaos.holder", url)
        held = child.expect("held")
        child.kill()

The program reports with `tests.rig.stdio.tell("held", token=7)`.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.rig.spawn import freeze_family, kill_family, send, spawn

Event = dict[str, Any]

_ROOT = Path(__file__).parents[2]
_TAIL = 4000


class Child:
    """A running Python program that prints one JSON object with a `kind` per line.

    Takes what stands after `python` on a command line: "-c" and code, "-m" and a module, or the
    path of a script, and then arguments. It can import `tests` and whatever this process can.
    """

    def __init__(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.name = " ".join(map(str, arguments)).strip()[:60]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the child
        self._process = spawn(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**_environment(), **(env or {})},
            cwd=cwd,
        )
        self._stopped: list[int] = []
        self._news = threading.Condition()
        self._events: list[Event] = []
        self._expected: set[int] = set()
        self._noise: list[str] = []
        self._silent = False
        self._closed = False
        self._last_stderr = ""
        self._reader = threading.Thread(target=self._read, name="events", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The pid of the program."""
        return self._process.pid

    @property
    def events(self) -> list[Event]:
        """All events so far."""
        with self._news:
            return list(self._events)

    @property
    def noise(self) -> list[str]:
        """The lines of stdout that are no events."""
        with self._news:
            return list(self._noise)

    @property
    def stderr(self) -> str:
        """Everything the program has written to stderr."""
        if self._closed:
            return self._last_stderr
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    @property
    def running(self) -> bool:
        """Say whether the program has not ended; a stopped one counts as running."""
        return self._process.poll() is None

    def expect(self, kind: str, timeout: float = 20.0) -> Event:
        """Return the oldest event of this kind that was not expected before.

        Raises `AssertionError`, with what the program said, when none has come at the deadline or
        when the program ended without one.
        """
        with self._news:
            self._news.wait_for(lambda: self._silent or self._next(kind) is not None, timeout)
            line = self._next(kind)
            if line is not None:
                self._expected.add(line)
                return self._events[line]
            why = "and its output has ended" if self._silent else f"within {timeout:g} s"
        raise AssertionError(f"no event {kind!r} {why}\n{self.story()}")

    def send(self, line: str) -> None:
        """Write a line to the program's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL the program and all its descendants, and wait until they are gone."""
        kill_family(self._process)

    def stop_signal(self) -> list[int]:
        """SIGSTOP the program and all its descendants; return their pids."""
        self._stopped = freeze_family(self.pid) if self.running else []
        return self._stopped

    def cont(self) -> None:
        """SIGCONT what `stop_signal` stopped."""
        if self.running:
            send(reversed(self._stopped), signal.SIGCONT)
        self._stopped = []

    def terminate(self) -> None:
        """SIGTERM the program."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program, if it still runs."""
        if self.running:
            self._process.send_signal(number)

    def wait(self, timeout: float = 20.0) -> int:
        """Wait for the end of the program and return its exit code, negative for a signal.

        All its events have been read when this returns.
        """
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            message = f"did not end within {timeout:g} s\n{self.story()}"
            raise AssertionError(message) from None
        self._reader.join(timeout)
        return code

    def close(self) -> None:
        """End the program and all its descendants; may be called at any time, and again."""
        if self._closed:
            return
        self.kill()
        self._reader.join(5)
        self._last_stderr = self.stderr
        self._closed = True
        self._stderr.close()
        _close_quietly(self._process)

    def story(self) -> str:
        """Tell what is known of the program, for the message of a failure."""
        code = self._process.poll()
        state = "is running" if code is None else f"ended with {code}"
        lines = [f"{self.name} (pid {self.pid}) {state}"]
        lines += [f"  event {event}" for event in self.events[-20:]]
        lines += [f"  stdout {line}" for line in self.noise[-20:]]
        lines += [f"  stderr {line}" for line in self.stderr[-_TAIL:].splitlines()]
        return "\n".join(lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _next(self, kind: str) -> int | None:
        for position, event in enumerate(self._events):
            if event["kind"] == kind and position not in self._expected:
                return position
        return None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip("\n")
            event = _as_event(line)
            with self._news:
                if event is None:
                    self._noise.append(line)
                else:
                    self._events.append(event)
                self._news.notify_all()
        with self._news:
            self._silent = True
            self._news.notify_all()


class Fleet:
    """Children that all end with a test, also with one that fails."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def start(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Child:
        """Start one more child; the arguments are those of `Child`."""
        child = Child(*arguments, env=env, cwd=cwd)
        self.children.append(child)
        return child

    def close(self) -> None:
        """End all children and print what they said, which pytest shows when the test failed."""
        for child in reversed(self.children):
            child.close()
        for child in self.children:
            print(child.story())  # noqa: T201
        self.children.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _environment() -> dict[str, str]:
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}


def _as_event(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "kind" in event else None


def _close_quietly(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                continue  # unsent input of a program that has ended
