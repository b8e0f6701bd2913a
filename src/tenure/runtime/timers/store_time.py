"""Estimates the store's clock from its answers, without extra calls."""

from __future__ import annotations

from tenure.core.clock import Clock
from tenure.core.durations import micros

__all__ = ["StoreTime"]


class StoreTime:
    """Follows the store's clock by the instants in its answers.

    The store made an answer before it arrived. Counted from the arrival, the estimate is never
    ahead of the store's clock, and behind by one network latency at most. So no tick is requested
    before it is due.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind: int | None = None
        """A lower bound of the store's clock minus this machine's boot clock, in microseconds."""

    def heard(self, now: int, sent: float) -> None:
        """Take the instant in the answer to a request that was sent at the boot instant `sent`."""
        least, most = now - micros(self._clock.boot()), now - micros(sent)
        # A later answer may have travelled faster, or a clock was set.
        if self._behind is None or not least <= self._behind <= most:
            self._behind = least

    def now(self) -> int:
        """Return the store's instant, or slightly less."""
        assert self._behind is not None, "the store has not answered yet"
        return micros(self._clock.boot()) + self._behind
