"""What is logged while a simulation runs: an error is a violation, everything else is dropped."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["complaints", "nobody_listening"]


class _Listener(logging.Handler):
    def __init__(self, wrong: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._wrong = wrong

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "tenure_event", "") in ("AttemptFailed", "JobLost", "DataLost"):
            return  # a job that fails for good, or a store that loses everything: no fault of ours
        error = record.exc_info[1] if record.exc_info else None
        self._wrong.append(f"logged: {record.getMessage()} {error!r}")


@contextmanager
def complaints(wrong: list[str]) -> Iterator[None]:
    """Take what is logged as an error for one; be quiet about the rest."""
    log = logging.getLogger("tenure")
    listener = _Listener(wrong)
    before = log.level, log.propagate
    log.addHandler(listener)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(listener)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextmanager
def nobody_listening() -> Iterator[None]:
    """Drop what is logged and raised while a simulation is taken apart."""
    log, hook = logging.getLogger("tenure"), sys.unraisablehook
    log.disabled, sys.unraisablehook = True, lambda _: None
    try:
        yield
    finally:
        log.disabled, sys.unraisablehook = False, hook
