"""What time it is by the store's clock, as far as a replica can know without asking."""

from __future__ import annotations

from tenure.core.clock import Clock
from tenure.core.durations import micros

__all__ = ["StoreTime"]


class StoreTime:
    """Follows the store's clock by what its answers say.

    An answer was made after it was asked for and before it arrived. Counted from its arrival, the
    time is never ahead of the store's, and behind by at most one way of the network: so nobody
    asks for something before it is due.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind: int | None = None
        """The store's microseconds minus those of this machine's boot clock, at least."""

    def heard(self, now: int, sent: float) -> None:
        """Take note of an answer that was asked for at the boot instant `sent`."""
        least, most = now - micros(self._clock.boot()), now - micros(sent)
        # A later answer may have travelled faster; or somebody has set a clock.
        if self._behind is None or not least <= self._behind <= most:
            self._behind = least

    def now(self) -> int:
        """Return the store's instant, or a little less."""
        assert self._behind is not None, "nothing was heard of the store yet"
        return micros(self._clock.boot()) + self._behind
