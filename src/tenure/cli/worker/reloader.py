"""`tenure worker --reload`: restarts a worker when a source file changes.

For development. The worker is a child process: `tenure worker` with the same options and without
--reload, so it runs as it does in production. If it ends by itself, because of a syntax error for
instance, it has shown why; the next change starts it again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["Reloader", "source_files"]

_LOOK_EVERY = 0.5
# How much longer than its grace period a worker may take after the first signal, and how long after
# the second one.
_PATIENCE = (1.0, 15.0)
_LIBRARIES = frozenset({"node_modules", "__pycache__", "site-packages", "dist-packages"})


def source_files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the Python files below a folder, with their time of change and size.

    Leaves out hidden folders, virtual environments and installed packages.
    """
    for path, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _LIBRARIES
            and not Path(path, name, "pyvenv.cfg").exists()
        ]
        for name in files:
            if name.endswith(".py"):
                file = os.path.join(path, name)  # noqa: PTH118 - there may be thousands
                try:
                    about = os.stat(file)  # noqa: PTH116 - as above
                except OSError:  # it has just been removed or renamed
                    continue
                yield file, about.st_mtime_ns, about.st_size


class Reloader:
    """Runs a worker and restarts it after each change of a Python file below a folder."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, say: Callable[[str], None], grace: float
    ) -> None:
        self._command = [sys.executable, "-m", "tenure", *arguments]
        self._folder = folder
        self._say = say
        self._patience = (grace + _PATIENCE[0], _PATIENCE[1])
        self._stopped = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run until SIGINT, SIGTERM or SIGHUP; return the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stopped.set())
        while not self._stopped.is_set():
            # Before the start, so that changes in between count.
            files = set(source_files(self._folder))
            self._child = subprocess.Popen(self._command)  # noqa: S603 - this same program
            changed = self._wait_for_change(files)
            if changed:
                self._say(f"{changed} has changed: restarting the worker.")
            self._end()
        return 0

    def _wait_for_change(self, files: set[tuple[str, int, int]]) -> str:
        """Wait for a change, and return the name of the file; "" if this process is to stop."""
        assert self._child is not None
        is_end_reported = False
        while not self._stopped.wait(_LOOK_EVERY):
            if difference := files ^ set(source_files(self._folder)):
                return os.path.relpath(min(difference)[0], self._folder)
            if not is_end_reported and self._child.poll() is not None:
                is_end_reported = True
                code = self._child.returncode
                self._say(f"The worker exited with {code}. The next change restarts it.")
        return ""

    def _end(self) -> None:
        """Stop the child: a first signal within its grace period, a second one, then SIGKILL."""
        child = self._child
        assert child is not None
        for patience in self._patience:
            if child.poll() is not None:
                return
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(patience)
        child.kill()
        child.wait()
