"""Logs why the store made requests fail. Clients only see a 503 and when to retry.

An outage affects every request, so each kind of failure is logged once in a while and counted in
between. The three kinds differ in what an operator has to do: wait, make room, or repair.
"""

from __future__ import annotations

import logging
import math
from typing import Final

from tenure.core.clock import Clock, SystemClock
from tenure.core.safe_text import safe
from tenure.errors import StoreError, StoreFull, StoreUnavailable

__all__ = ["RateLimitedWarning", "log_store_error"]

log = logging.getLogger("tenure")

_AT_MOST_EVERY: Final = 30.0
_LENGTH_MAX: Final = 500


class RateLimitedWarning:
    """A warning that is logged at most every 30 s, with the number of errors in between."""

    def __init__(self, text: str, clock: Clock) -> None:
        self._text = text
        self._clock = clock
        self._logged_at = -math.inf
        self._skipped = 0

    def add(self, error: StoreError) -> None:
        """Log the error, or count it if the last warning is too recent."""
        now = self._clock.boot()
        if now - self._logged_at < _AT_MOST_EVERY:
            self._skipped += 1
            return
        more = f" ({self._skipped:,} more since the last time)" if self._skipped else ""
        self._logged_at, self._skipped = now, 0
        # Stores leave credentials out of their error messages.
        log.warning("%s: %s%s", self._text, safe(str(error))[:_LENGTH_MAX], more)


_unavailable = RateLimitedWarning("HTTP requests fail because the store is away", SystemClock())
_full = RateLimitedWarning("HTTP requests are refused because the store is full", SystemClock())
_refused = RateLimitedWarning(
    "HTTP requests fail because the store refuses a call, and will fail until that is repaired",
    SystemClock(),
)


def log_store_error(error: StoreError) -> None:
    """Log why a request failed, at a limited rate for each kind of failure."""
    if isinstance(error, StoreFull):
        _full.add(error)
    elif isinstance(error, StoreUnavailable):
        _unavailable.add(error)
    else:
        _refused.add(error)
