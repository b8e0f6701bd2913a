"""Collects the library's log during a simulation: each error is a violation."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_errors", "silent_log"]

# A job that fails for good, or a store that loses all data, is an expected result of the faults.
_EXPECTED_EVENTS = ("JobFailed", "DataLost")


class _ErrorCollector(logging.Handler):
    def __init__(self, wrong: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._wrong = wrong

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "tenure_event", "") in _EXPECTED_EVENTS:
            return
        error = record.exc_info[1] if record.exc_info else None
        self._wrong.append(f"logged: {record.getMessage()} {error!r}")


@contextmanager
def collect_errors(wrong: list[str]) -> Iterator[None]:
    """Append each logged error to `wrong`, as a violation; drop all other log lines."""
    log = logging.getLogger("tenure")
    collector = _ErrorCollector(wrong)
    before = log.level, log.propagate
    log.addHandler(collector)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(collector)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextmanager
def silent_log() -> Iterator[None]:
    """Drop what is logged, and raised in finalizers, while a simulation is torn down."""
    log, hook = logging.getLogger("tenure"), sys.unraisablehook
    log.disabled, sys.unraisablehook = True, lambda _: None
    try:
        yield
    finally:
        log.disabled, sys.unraisablehook = False, hook
