"""The workers: forked processes with a workbench each, which take one job after the other."""

from __future__ import annotations

import ast
import importlib
import os
import pickle
import selectors
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tests.rig.launch import die_with

__all__ = ["Work", "load_packages", "pool"]

Work = Callable[[Any], Any]
_LENGTH = struct.Struct("!Q")


def load_packages(root: Path) -> None:
    """Import what the source and the tests need from other packages, once for all sessions."""
    own = {"tenure", "tests", "bench", "examples"}
    names: set[str] = set()
    for folder in ("src", "tests"):
        for path in (root / folder).rglob("*.py"):
            names |= set(_imported(path))
    # Plugins of pytest too: every session would load them anew.
    names |= {plugin.module for plugin in entry_points(group="pytest11")}
    for name in sorted(names):
        if name.partition(".")[0] not in own:
            with suppress(Exception):  # it may be for another platform, or not installed
                importlib.import_module(name)


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


@dataclass(eq=False)
class _Worker:
    pid: int
    orders: int
    answers: int


@contextmanager
def pool(size: int, begin: Callable[[int, ExitStack], Work]) -> Iterator[Callable[..., Any]]:
    """Start workers; yields a function that has them do jobs, and yields each job with its result.

    `begin` runs in each worker, with its number and a stack that is closed when the worker ends,
    and returns what does a job. An error in a job ends the run.
    """
    workers = [_start(number, begin) for number in range(size)]
    try:
        yield lambda jobs: _all_done(workers, iter(jobs))
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
        for worker in workers:
            os.waitpid(worker.pid, 0)
            os.close(worker.orders)
            os.close(worker.answers)


def _start(number: int, begin: Callable[[int, ExitStack], Work]) -> _Worker:
    orders, orders_for_it = os.pipe()
    its_answers, answers = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(orders_for_it)
            os.close(its_answers)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            die_with(parent)
            with ExitStack() as stack:
                _serve(begin(number, stack), orders, answers)
        except SystemExit:
            code = 0
        except BaseException:  # noqa: BLE001 - it is shown, and the parent notices the end
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(orders)
    os.close(answers)
    return _Worker(pid, orders_for_it, its_answers)


def _serve(work: Work, orders: int, answers: int) -> None:
    while (job := _receive(orders)) is not None:
        try:
            answer = ("done", work(job))
        except Exception:  # noqa: BLE001 - the parent raises it
            answer = ("error", traceback.format_exc())
        _send(answers, answer)


def _all_done(workers: list[_Worker], jobs: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    selector = selectors.DefaultSelector()
    under_way: dict[int, Any] = {}
    idle = list(workers)
    while True:
        while idle and (job := next(jobs, None)) is not None:
            worker = idle.pop(0)
            _send(worker.orders, job)
            under_way[worker.answers] = job
            selector.register(worker.answers, selectors.EVENT_READ, worker)
        if not under_way:
            return
        for key, _ in selector.select():
            selector.unregister(key.fd)
            answer = _receive(key.fd)
            if answer is None:
                raise RuntimeError(f"a worker has ended during {under_way[key.fd]}")
            kind, result = answer
            if kind == "error":
                raise RuntimeError(f"{under_way[key.fd]}: {result}")
            idle.append(key.data)
            yield under_way.pop(key.fd), result


def _send(pipe: int, message: Any) -> None:
    data = pickle.dumps(message)
    view = memoryview(_LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(pipe, view) :]


def _receive(pipe: int) -> Any:
    header = _read(pipe, _LENGTH.size)
    return pickle.loads(_read(pipe, _LENGTH.unpack(header)[0])) if header else None


def _read(pipe: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size and (part := os.read(pipe, size)):
        parts.append(part)
        size -= len(part)
    return b"" if size else b"".join(parts)
