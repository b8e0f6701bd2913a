"""Why requests are refused for the store's sake: told in the log, as clients may not know."""

from __future__ import annotations

import logging
import math
from typing import Final

from tenure.core.clock import Clock, SystemClock
from tenure.core.safe_text import safe
from tenure.errors import StoreError, StoreFull, StoreUnavailable

__all__ = ["Complaints", "tell_why"]

log = logging.getLogger("tenure")

# An outage meets every request; one line in so many seconds says as much as thousands.
_AT_MOST_EVERY: Final = 30.0
_MOST: Final = 500


class Complaints:
    """Warns of one kind of failure now and then, and counts the rest."""

    def __init__(self, text: str, clock: Clock) -> None:
        self._text = text
        self._clock = clock
        self._told = -math.inf
        self._more = 0

    def add(self, error: StoreError) -> None:
        now = self._clock.boot()
        if now - self._told < _AT_MOST_EVERY:
            self._more += 1
            return
        more = f" ({self._more:,} more since the last time)" if self._more else ""
        self._told, self._more = now, 0
        # The stores show their address without what is secret in it.
        log.warning("%s: %s%s", self._text, safe(str(error))[:_MOST], more)


_away = Complaints("requests over HTTP cannot be answered, the store is away", SystemClock())
_full = Complaints("requests over HTTP cannot be accepted, the store is full", SystemClock())
_refused = Complaints(
    "requests over HTTP cannot be answered, the store refuses what is asked of it, and will do so "
    "until somebody mends it",
    SystemClock(),
)


def tell_why(error: StoreError) -> None:
    """Warn, now and then, of why requests fail; an outage apart from what will not pass alone."""
    if isinstance(error, StoreFull):
        _full.add(error)
    else:
        (_away if isinstance(error, StoreUnavailable) else _refused).add(error)
