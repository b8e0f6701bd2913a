"""A run of pytest against one copy of the source, in a process that was forked for it.

The process that forks has imported pytest and all that the tests need from other packages, but
nothing of Tenure: so a run starts in well under a second, and imports the copy it is told to.

It writes a line of JSON for each test that begins and ends. The worker reads these lines, and kills
the session if it stands still.
"""

from __future__ import annotations

import atexit
import base64
import importlib
import json
import os
import random
import sys
import time
import traceback
import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.mutation.probes import HITS_VARIABLE, hits_in_log
from tests.rig.launch import die_with

__all__ = ["Order", "Outcome", "TestResult", "enter", "perform"]

Outcome = Literal["passed", "failed", "timed out", "skipped"]

_TIMEOUT = "Timeout (>"


@dataclass(frozen=True)
class Order:
    """What a session has to do."""

    root: Path
    source: Path
    """The copy of `src` that it imports."""
    folder: Path
    """For its report, its output and its temporary files."""
    files: tuple[str, ...]
    tests: tuple[str, ...] = ()
    """Their ids in the order in which they run; empty for all tests of the files."""
    collects: bool = False
    """Whether to look only if the files can be loaded, if no tests are named."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a test may take, if not as many as it says itself."""
    seconds: float = 1e9
    """After which no further test begins."""
    stops: bool = True
    """Whether the first failure ends it."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """The URLs of servers that run already, by their kind."""
    module: str = ""
    """A module that has to load, or the mutant is invalid."""
    seed: str = ""
    hits: Path | None = None
    """Where the probes of this copy of the source leave their marks."""
    logs: tuple[Path, ...] = ()
    """The logs of the servers, where probes leave marks too."""

    @property
    def report(self) -> Path:
        return self.folder / "report.jsonl"


@dataclass(frozen=True)
class TestResult:
    """How one test ended."""

    __test__ = False

    test: str
    outcome: Outcome
    seconds: float
    why: str = ""
    hits: bytes = b""
    """The probes that it reached, as a compressed bit field."""

    @property
    def is_red(self) -> bool:
        return self.outcome in {"failed", "timed out"}


def perform(order: Order, parent: int) -> None:
    """Be the session: run the tests, write the report, and end this process."""
    code = 1
    try:
        die_with(parent)
        _prepare(order)
        report = _Report(order.report)
        if not order.module or _loads(order.module, report):
            arguments = [*order.files, "-q", "-p", "no:cacheprovider", "--tb=short"]
            arguments += [f"--basetemp={order.folder / 't'}", f"--rootdir={order.root}"]
            # Plugins of pytest are loaded already, on purpose.
            arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
            if not order.tests and order.collects:
                arguments.append("--collect-only")
            code = int(pytest.main(arguments, plugins=[_Plugin(order, report)]))
        report.write(end=code)
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 - it belongs into the output of the session
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def enter(root: Path, source: Path) -> None:
    """Have this process import the tests below `root`, and Tenure from this copy of the source."""
    for name in [name for name in sys.modules if name.startswith(("tests.rig", "tests.planted"))]:
        del sys.modules[name]
    tests = sys.modules["tests"]
    own = [str(Path(path).parent.resolve()) for path in tests.__path__]
    tests.__path__ = [str(root / "tests")]
    rest = [path for path in sys.path if str(Path(path).resolve()) not in own]
    sys.path[:] = [str(source), str(root), *rest]
    os.chdir(root)


def _prepare(order: Order) -> None:
    os.setsid()
    output = os.open(order.folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(old, new)
    enter(order.root, order.source)
    # A forked process continues the random numbers of its parent, so two would draw the same ones.
    random.seed(order.seed or None)
    sys.dont_write_bytecode = order.hits is None
    os.environ |= {
        "PYTHONPATH": str(order.source),
        # What a mutant makes fail must not be tried again with others.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(order.folder / "hypothesis"),
    }
    if order.hits is None:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    else:
        os.environ[HITS_VARIABLE] = str(order.hits)


def _loads(module: str, report: _Report) -> bool:
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - whatever it is, this mutant cannot be tried
        report.write(invalid=f"{type(error).__name__}: {error}")
        return False
    return True


class _Report:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self._owner = os.getpid()

    def write(self, **facts: Any) -> None:
        if os.getpid() == self._owner:  # not from what a test forks
            os.write(self._file, json.dumps(facts).encode() + b"\n")


class _Plugin:
    """Chooses and orders the tests, limits them, and reports them."""

    def __init__(self, order: Order, report: _Report) -> None:
        self._order = order
        self._report = report
        self._probes = _Probes(order) if order.hits is not None else None
        self._entered = time.monotonic()
        self._began = 0.0
        self._outcome: Outcome = "passed"
        self._why = ""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        if self._order.servers:
            from tests.rig.fixtures import SERVERS, BorrowedServers

            config.stash[SERVERS] = BorrowedServers(self._order.servers)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._order.tests:
            by_id = {item.nodeid: item for item in items}
            items[:] = [by_id[test] for test in self._order.tests if test in by_id]
        for item in items:
            if limit := self._order.limits.get(item.nodeid):
                item.add_marker(pytest.mark.timeout(limit), append=False)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        marker = item.get_closest_marker("timeout")
        limit = float(marker.args[0]) if marker and marker.args else 60.0
        self._report.write(start=item.nodeid, limit=limit)
        self._began, self._outcome, self._why = time.monotonic(), "passed", ""
        if self._probes is not None:
            self._probes.clear()
        yield
        hits = "" if self._probes is None else self._probes.read()
        self._report.write(
            test=item.nodeid,
            outcome=self._outcome,
            seconds=round(time.monotonic() - self._began, 4),
            why=self._why,
            hits=hits,
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            why = _reason(report.longreprtext)
            self._report.write(test=report.nodeid, outcome="failed", seconds=0.0, why=why, hits="")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._outcome in {"passed", "skipped"}:
            text = report.longreprtext
            self._outcome = "timed out" if _TIMEOUT in text else "failed"
            self._why = _reason(text)
        elif report.skipped and self._outcome == "passed":
            self._outcome = "skipped"

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._session is None:
            return
        if self._order.stops and self._outcome in {"failed", "timed out"}:
            self._session.shouldstop = "a test has failed"
        elif time.monotonic() - self._entered > self._order.seconds:
            self._session.shouldstop = "the time is up"

    _session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session


def _reason(text: str) -> str:
    """Return the line of a failure that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("E  ")]
    fallback = [line.strip() for line in text.splitlines() if line.strip()]
    line = lines[0] if lines else (fallback[-1] if fallback else "")
    return line.removeprefix("E").strip()[:200]


class _Probes:
    """The marks that probes have left since they were last cleared."""

    def __init__(self, order: Order) -> None:
        assert order.hits is not None
        self._file = os.open(order.hits, os.O_RDWR)
        self._size = order.hits.stat().st_size
        self._logs = dict.fromkeys(order.logs, 0)

    def clear(self) -> None:
        os.pwrite(self._file, bytes(self._size), 0)
        for path in self._logs:
            self._logs[path] = path.stat().st_size

    def read(self) -> str:
        marks = bytearray(os.pread(self._file, self._size, 0))
        for path, offset in self._logs.items():
            with path.open("rb") as file:
                file.seek(offset)
                for number in hits_in_log(file.read()):
                    marks[number] = 1
        return base64.b64encode(zlib.compress(_as_bits(marks))).decode()


def _as_bits(marks: Sequence[int]) -> bytes:
    bits = 0
    packed = bytearray()
    for position, mark in enumerate(marks):
        if mark:
            bits |= 1 << position % 8
        if position % 8 == 7:
            packed.append(bits)
            bits = 0
    packed.append(bits)
    return bytes(packed)
