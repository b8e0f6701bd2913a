"""Reports jumps of the store's clock, as the answers to heartbeats show them.

There is one for all workers of an app, on the loop of the host. The first heartbeat after a jump
moves the state, so each jump is reported once per app, whichever worker has sent that heartbeat.
"""

from __future__ import annotations

from tenure.core.clock_jumps import Lead, jump_between, lead_of
from tenure.observe.events import Events
from tenure.observe.replica import ClockJumped

__all__ = ["ClockWatch"]

# What a slow call says is too vague to find a jump by. A better reading is kept in its place, but
# not for long: a clock that is adjusted slowly does not jump.
_VAGUE = 0.1
_KEPT_FOR = 300.0


class ClockWatch:
    """Compares each instant of the store with one before."""

    def __init__(self) -> None:
        self._last: Lead | None = None
        self._heard_at = 0.0

    def heard(self, at: int, *, sent: float, answered: float, events: Events) -> None:
        """Take the store's instant in the answer to a request, and the local ones around it."""
        lead = lead_of(at, sent=sent, answered=answered)
        jump = 0.0 if self._last is None else jump_between(self._last, lead)
        if jump:
            events.emit(ClockJumped(round(jump, 1)))
        if jump or self._replaces_last(lead, answered):
            self._last, self._heard_at = lead, answered

    def _replaces_last(self, lead: Lead, answered: float) -> bool:
        last = self._last
        is_as_good = last is None or lead.spread <= last.spread + _VAGUE
        return is_as_good or answered - self._heard_at >= _KEPT_FOR
