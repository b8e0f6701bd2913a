"""One worker: a copy of the source to mutate, servers of its own, and the sessions it runs.

This process imports nothing of Tenure. What needs Tenure runs in a process that is forked for it
and ends after it.
"""

from __future__ import annotations

import base64
import compileall
import ctypes
import json
import os
import pickle
import shutil
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.mutation.mutant import Mutant
from tests.mutation.session import Order, TestResult, enter, perform
from tests.rig.spawn import family

__all__ = ["Report", "Workbench", "compiled_copy", "snapshot"]

T = TypeVar("T")

_SUBREAPER = 36
_LOOK_EVERY = 0.01
_STILL_FOR = 15.0
"""How long a session may stand still beyond the limit of its test before it is ended."""
_START_WITHIN = 120.0
_NOT_COPIED = (".git", ".venv", ".*cache*", ".hypothesis", "*.db", "*.db-*")
_COULD_NOT_START = {2, 3, 4}
"""Exit statuses of pytest."""


@dataclass(frozen=True)
class Report:
    """What a session came to."""

    results: tuple[TestResult, ...]
    invalid: str
    """Why the mutated source cannot be loaded, if it cannot."""
    cut: TestResult | None
    """The test in which the session stood still and was ended, or ended by itself."""

    def red(self) -> TestResult | None:
        """Return the first test that failed or did not end."""
        return next((result for result in self.results if result.is_red), self.cut)


def snapshot(root: Path, copy: Path) -> None:
    """Copy a checkout, so that a run does not notice what is edited meanwhile."""
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*_NOT_COPIED))


def compiled_copy(root: Path, copy: Path) -> None:
    """Copy `src` and compile it, once for all workers."""
    shutil.copytree(root / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(copy, quiet=2)


class Workbench:
    """Where one worker tries mutants, one at a time."""

    def __init__(self, root: Path, original: Path, folder: Path) -> None:
        self.root = root
        self.original = original
        """A copy of the source that nothing changes."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.source = folder / "src"
        shutil.copytree(original, self.source)
        self._servers: Any = None
        # What outlives the process that started it becomes a child of this one, and is ended.
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)

    def open(self, source: Path | None = None) -> None:
        """Start the servers, for tests on this copy of the source."""
        if (self.root / "tests" / "rig" / "servers").is_dir():
            from tests.mutation.servers import Servers

            self._servers = Servers(self, source or self.original)
            self._servers.start()

    def close(self) -> None:
        self._sweep()
        if self._servers is not None:
            self._servers.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def text_of(self, file: str) -> str:
        """Return a file of the source without a mutant."""
        return (self.original / Path(file).relative_to("src")).read_text(encoding="utf-8")

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[str]:
        """Have the mutant in the copy; yields why it cannot be loaded, if that is known already."""
        path = self.source / Path(mutant.file).relative_to("src")
        original, times = path.read_bytes(), path.stat()
        # Another time than that of the compiled form, which then does not count.
        path.write_text(mutant.apply(original.decode()), encoding="utf-8")
        try:
            yield self._why_not_loaded(mutant.language)
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if self._servers is not None and mutant.language == "sql":
                self._servers.load_schema(self.original)

    def _why_not_loaded(self, language: str) -> str:
        if self._servers is None or language == "python":
            return ""
        load = self._servers.load_scripts if language == "lua" else self._servers.load_schema
        return str(load(self.source))

    def run(self, order: Order) -> Report:
        """Run a session to its end, and end all that it leaves behind."""
        shutil.rmtree(order.folder, ignore_errors=True)
        order.folder.mkdir(parents=True)
        if self._servers is not None:
            self._servers.refresh()
            order = replace(order, servers=self._servers.urls, logs=self._servers.logs)
        worker, pid = os.getpid(), os.fork()
        if pid == 0:
            perform(order, worker)
        is_hung = self._wait(pid, order)
        self._sweep()
        return _read(order, is_hung)

    def passes(self, test: str, limit: float = 0.0) -> bool:
        """Return whether a test passes without a mutant, or a file of tests can be loaded."""
        report = self.run(
            self.order(
                source=self.original,
                files=(test.partition("::")[0],),
                tests=(test,) if "::" in test else (),
                collects=True,
                limits={test: limit} if limit else {},
            )
        )
        return report.red() is None and bool(report.results or "::" not in test)

    def call(self, source: Path, function: Callable[..., T], *arguments: Any) -> T:
        """Return what a function returns in a process that has this copy of the source."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            enter(self.root, source)
            _answer(function, arguments, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(pid, 0)
        self._sweep()
        if not answer:
            raise RuntimeError(f"{function.__name__} ended without an answer")
        kind, value = pickle.loads(answer)
        if kind == "error":
            raise RuntimeError(value)
        return cast("T", value)

    def order(self, **details: Any) -> Order:
        """Return an order for this worker's copy of the source."""
        return Order(
            root=self.root, source=details.pop("source", self.source),
            folder=self.folder / "s", **details,
        )  # fmt: skip

    def _wait(self, pid: int, order: Order) -> bool:
        """Wait for the end of a session; return whether it stood still and had to be ended."""
        order.report.touch()
        deadline = time.monotonic() + _START_WITHIN
        unread = b""
        with order.report.open("rb") as report:
            while os.waitpid(pid, os.WNOHANG)[0] == 0:
                *lines, unread = (unread + report.read()).split(b"\n")
                for line in lines:
                    limit = json.loads(line).get("limit", 60.0)
                    deadline = time.monotonic() + limit + _STILL_FOR
                if time.monotonic() > deadline:
                    _kill(pid)
                    return True
                self._reap_orphans(pid)
                time.sleep(_LOOK_EVERY)
        return False

    def _reap_orphans(self, session: int) -> None:
        """Do what init does: a test may wait until the child of a killed process is gone."""
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        kept = {session, *(() if self._servers is None else self._servers.pids())}
        with suppress(FileNotFoundError):
            for pid in {int(word) for word in children.read_text().split()} - kept:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _sweep(self) -> None:
        """End every process that a session has left behind."""
        servers = () if self._servers is None else self._servers.pids()
        for pid in family(os.getpid(), without=servers)[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _kill(pid: int) -> None:
    for member in family(pid):
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    os.waitpid(pid, 0)


def _answer(function: Callable[..., object], arguments: tuple[Any, ...], pipe: int) -> None:
    try:
        sys.dont_write_bytecode = True
        try:
            answer: tuple[str, object] = ("value", function(*arguments))
        except Exception as error:  # noqa: BLE001 - it is the caller's to judge
            answer = ("error", f"{type(error).__name__}: {error}")
        os.write(pipe, pickle.dumps(answer))
    finally:
        os._exit(0)


def _read(order: Order, is_hung: bool) -> Report:
    results, invalid, current, code = [], "", "", None
    text = order.report.read_text() if order.report.exists() else ""
    for line in text.rpartition("\n")[0].splitlines():  # the last one may be cut off
        facts: Mapping[str, Any] = json.loads(line)
        current = facts.get("start", current)
        if "test" in facts:
            hits = zlib.decompress(base64.b64decode(facts["hits"])) if facts["hits"] else b""
            results.append(TestResult(**{**facts, "hits": hits}))
            current = ""
        invalid = facts.get("invalid", invalid)
        code = facts.get("end", code)
    cut, at = None, current or order.files[0]
    if is_hung:
        cut = TestResult(at, "timed out", 0.0, "the process of the tests stood still")
    elif code is None:
        cut = TestResult(at, "failed", 0.0, "the process of the tests ended")
    elif not results and code in _COULD_NOT_START:
        cut = TestResult(at, "failed", 0.0, "pytest could not start")
    return Report(tuple(results), invalid, cut)
