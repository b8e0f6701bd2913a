"""`tenure worker --reload`: run a worker as a child, and start it anew when a source file changes.

For development. The child is `tenure worker` with the same options and without --reload, so what
it runs is what runs elsewhere. A child that ends by itself, over a syntax error say, has shown why;
the next change starts another one.
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
# How much longer than its grace period a worker may take after a first signal, and how long after a
# second one.
_PATIENCE = (1.0, 15.0)
_ELSEWHERE = frozenset({"node_modules", "__pycache__", "site-packages", "dist-packages"})


def source_files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Return the Python files below a folder, with their age and size. No hidden folders."""
    for path, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _ELSEWHERE
            and not Path(path, name, "pyvenv.cfg").exists()
        ]
        for name in files:
            if name.endswith(".py"):
                file = os.path.join(path, name)  # noqa: PTH118 - there may be thousands
                try:
                    about = os.stat(file)  # noqa: PTH116 - as above
                except OSError:  # it has just been removed, or renamed
                    continue
                yield file, about.st_mtime_ns, about.st_size


class Reloader:
    """Keeps a worker running on what the source files below a folder say now."""

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
        """Run until SIGINT, SIGTERM or SIGHUP; return an exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stopped.set())
        while not self._stopped.is_set():
            # Looked at before the start: what changes meanwhile counts as a change.
            files = set(source_files(self._folder))
            self._child = subprocess.Popen(self._command)  # noqa: S603 - this same program
            changed = self._changed(files)
            if changed:
                self._say(f"{changed} has changed: starting the worker anew.")
            self._end()
        return 0

    def _changed(self, files: set[tuple[str, int, int]]) -> str:
        """Wait until a file has changed, and return its name; "" if this process is to stop."""
        assert self._child is not None
        is_told = False
        while not self._stopped.wait(_LOOK_EVERY):
            if difference := files ^ set(source_files(self._folder)):
                return os.path.relpath(min(difference)[0], self._folder)
            if not is_told and self._child.poll() is not None:
                is_told = True
                code = self._child.returncode
                self._say(f"The worker ended with {code}. It starts anew with the next change.")
        return ""

    def _end(self) -> None:
        """Have the child hand its jobs back and end: first politely, then in a hurry."""
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
