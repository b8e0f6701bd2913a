"""A terminal with a size of its own, on which a program draws whole screens."""

import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from typing import Any

# The program leads a session, and this is its terminal: else keys such as Ctrl-C are no signals.
_LEAD = (
    "import fcntl, os, sys, termios; fcntl.ioctl(1, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
_TIMEOUT = 20.0


class Tty:
    """The terminal of one process, as a user sees it."""

    def __init__(self, master: int, slave: int, process: "subprocess.Popen[bytes]") -> None:
        self._master = master
        self._slave = slave
        self._process = process
        self.seen = ""

    @property
    def modes(self) -> list[Any]:
        """Whether it echoes, gives whole lines, and so on."""
        return termios.tcgetattr(self._slave)[:4]

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def kill(self, name: str) -> None:
        self._process.send_signal(signal.Signals[name])

    def resize(self, columns: int, lines: int) -> None:
        _resize(self._master, columns, lines)

    def forget(self) -> None:
        """Let `until` look only at what comes from now on."""
        self.seen = ""

    def run_top(self, *options: str) -> None:
        """Type the command into a shell."""
        self.press(shlex.join([sys.executable, "-m", "tenure", *options, "top"]) + "\n")

    def until(self, text: str, columns: int = 0, lines: int = 0) -> None:
        """Wait for a text on the last screen; with a size, for a screen that fills it."""
        deadline = time.monotonic() + _TIMEOUT
        while not self._shows(text, columns, lines):
            assert time.monotonic() < deadline, self.seen[-3000:]
            self._read(0.1)

    def ended(self) -> int:
        """Return the exit status, once it has ended."""
        deadline = time.monotonic() + _TIMEOUT
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.seen[-3000:]
            self._read(0.05)
        while self._read(0.05):
            pass
        return self._process.returncode

    def _shows(self, text: str, columns: int, lines: int) -> bool:
        screen = self.seen.rpartition("\x1b[H")[2]
        rows = [re.sub(r"\r|\x1b\[[\d;?]*[A-Za-z]", "", row) for row in screen.split("\r\n")]
        if lines and (len(rows), len(rows[0])) != (lines, columns):
            return False
        return any(text in row for row in rows)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if ready:
            self.seen += os.read(self._master, 65536).decode("utf-8", "replace")
        return bool(ready)


def top_on_a_tty(*options: str, has_keys: bool = True, **environment: str) -> Any:
    """Run `tenure top` on a terminal of 80 columns and 24 lines."""
    command = [sys.executable, "-W", "error", "-m", "tenure", *options, "top", "--every", "200ms"]
    return _on_a_tty(command, environment, has_keys=has_keys)


def shell_on_a_tty() -> Any:
    """Run a shell with job control."""
    return _on_a_tty(["sh", "-i"], {"PS1": "$ ", "ENV": ""}, has_keys=True)


@contextmanager
def _on_a_tty(command: list[str], environment: dict[str, str], *, has_keys: bool) -> Iterator[Tty]:
    master, slave = pty.openpty()
    _resize(master, 80, 24)
    process = subprocess.Popen(
        [sys.executable, "-c", _LEAD, *command],
        stdin=slave if has_keys else subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", **environment},
        start_new_session=True,
    )
    try:
        yield Tty(master, slave, process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
        os.close(slave)


def _resize(master: int, columns: int, lines: int) -> None:
    ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
