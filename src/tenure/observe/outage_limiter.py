"""Limits the warnings of an outage: while a store is away, each lock and each tick would log one.

The first warning of a kind is logged at once. Those that follow within a minute are counted, and
one line per minute has their number and the last one of them. Nothing is left out silently: the
last count is logged when the minute is over, or when the program ends. Subscribers of events are
not limited, so metrics count everything.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Final

from tenure.core.clock import Clock, SystemClock

__all__ = ["OutageLimiter"]

# Events of which an outage causes many. Lines that are no events name their kind in `outage`.
_EVENTS: Final = frozenset({"RanUnlocked", "RenewalFailing", "StoreFailing", "TickUnlocked"})


class OutageLimiter(logging.Handler):
    """A handler that passes records on to another one, but limits the warnings of an outage.

    handler = OutageLimiter(logging.StreamHandler())
    """

    def __init__(
        self, target: logging.Handler, *, every: float = 60.0, clock: Clock | None = None
    ) -> None:
        """`every`: the length of the minute, in seconds."""
        super().__init__()
        self._target = target
        self.formatter = target.formatter  # or basicConfig would set its own
        self._every = every
        self._clock = clock or SystemClock()
        self._windows: dict[str, _Window] = {}

    def setFormatter(self, fmt: logging.Formatter | None) -> None:  # noqa: N802 - as in logging
        """Set how the other handler writes records."""
        super().setFormatter(fmt)
        self._target.setFormatter(fmt)

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on, or count it."""
        kind = _kind_of(record)
        if kind is None:
            self._pass_on(record)
            return
        window = self._windows.get(kind)
        if window is not None and self._clock.boot() < window.until:
            window.count(record)
            return
        if window is not None:  # its timer is late, or was lost with a fork
            self._end(kind, window)
        self._pass_on(record)
        self._begin(kind)

    def close(self) -> None:
        """Log what was counted so far. `logging` calls it when the program ends."""
        self.acquire()
        try:
            for window in self._windows.values():
                window.timer.cancel()
                self._log_count(window)
            self._windows.clear()
        finally:
            self.release()
        super().close()

    def _pass_on(self, record: logging.LogRecord) -> None:
        if record.levelno >= self._target.level:  # a logger asks for it, and `handle` does not
            self._target.handle(record)

    # The lock of the handler is held in all of these.

    def _begin(self, kind: str) -> None:
        timer = threading.Timer(self._every, self._time_is_over, [kind])
        timer.daemon = True
        timer.name = "tenure-log-limiter"
        self._windows[kind] = _Window(self._clock.boot() + self._every, timer)
        # Where there can be no thread, the next warning or the end of the program has the count.
        with suppress(RuntimeError):
            timer.start()

    def _end(self, kind: str, window: _Window) -> None:
        del self._windows[kind]
        window.timer.cancel()
        self._log_count(window)

    def _log_count(self, window: _Window) -> None:
        if window.last is not None:
            self._pass_on(_summary(window.last, window.left_out, self._every))

    def _time_is_over(self, kind: str) -> None:
        """Log the count, and limit for another minute if there was one. Runs in the timer."""
        self.acquire()
        try:
            window = self._windows.get(kind)
            if window is None or window.timer is not threading.current_thread():
                return  # a record has ended it meanwhile
            self._end(kind, window)
            if window.left_out:
                self._begin(kind)
        finally:
            self.release()


class _Window:
    """The minute after a warning: how many more of its kind came, and the last of them."""

    def __init__(self, until: float, timer: threading.Timer) -> None:
        self.until = until
        self.timer = timer
        self.left_out = 0
        self.last: logging.LogRecord | None = None

    def count(self, record: logging.LogRecord) -> None:
        self.left_out += 1
        self.last = record


def _kind_of(record: logging.LogRecord) -> str | None:
    """Return the kind of a warning that an outage repeats; None for all other records."""
    if record.levelno != logging.WARNING or record.name != "tenure":
        return None
    event = getattr(record, "tenure_event", None)
    if event in _EVENTS:
        return str(event)
    outage = getattr(record, "outage", None)
    return None if outage is None else str(outage)


def _summary(last: logging.LogRecord, left_out: int, every: float) -> logging.LogRecord:
    """Return a record with the number of warnings that were left out, and the last of them."""
    warnings = "warning" if left_out == 1 else "warnings"
    text = f"{left_out:,} more {warnings} of this kind within {every:g} s, the last one: "
    return logging.makeLogRecord(
        {
            **vars(last),
            "msg": "%s%s",
            "args": (text, last.getMessage()),
            "left_out": left_out,
        }
    )
