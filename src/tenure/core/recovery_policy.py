"""When a replica may recover the jobs of others: not while a clock or an outage misleads it."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["UNWIND_SECONDS", "Reading", "clock_jump", "first_recovery_after", "recovery_pause"]

UNWIND_SECONDS = 5.0
"""How many seconds a handler gets to end after a request to stop."""


class Reading(Struct, frozen=True):
    """A reading of the store's clock, from the answer to a request."""

    sent: float
    """When the request was sent, in seconds of the local boot clock."""
    at: int
    """The instant of the store's clock, in microseconds."""


def clock_jump(before: Reading, after: Reading) -> float:
    """Return by how many seconds the store's clock ran ahead of the local one between two readings.

    Negative if it was set back. A difference in network latency counts as a jump.
    """
    return (after.at - before.at) / 1e6 - (after.sent - before.sent)


# Healthy replicas beat every 0.3 ttl, so a jump below 0.7 ttl expires no record. The margin allows
# a jump in each of two beats, and a request that was in flight for 0.2 ttl.
_JUMP_SHARE = 0.25

# Other replicas may have beaten up to a third of a ttl earlier, so their gap may be longer.
_GAP_SHARE = 0.5

# The time in which every healthy replica beats, and a third more.
_NEWCOMER_SHARE = 0.4


def recovery_pause(ttl: float, *, gap: float, jump: float) -> float:
    """Return for how long after a beat a replica must not recover the jobs of others.

    `gap` is the time since the last good beat, `jump` by how much the store's clock jumped ahead
    meanwhile. If either is long, records of healthy replicas may have expired as well. After one
    ttl each healthy replica has beaten again, and only dead ones are still expired.
    """
    is_steady = gap <= _GAP_SHARE * ttl and jump <= _JUMP_SHARE * ttl
    return 0.0 if is_steady else ttl


def first_recovery_after(ttl: float, *, is_alone: bool) -> float:
    """Return for how long a replica that has just joined must not recover the jobs of others.

    It cannot know what happened before. If no other replica is alive, there may have been an outage
    for all of them, so they get a ttl to come back. If others are alive, the clock may just have
    jumped, so they get the time for their next beat.
    """
    return ttl if is_alone else _NEWCOMER_SHARE * ttl
