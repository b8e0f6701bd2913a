"""When to renew a lease, how long to trust it, and which fence the next one gets.

Pure. Stores know none of this but the fences. Each number has its reason beside it.
"""

from __future__ import annotations

__all__ = [
    "TTL_DEFAULT",
    "TTL_MAX",
    "TTL_MIN",
    "WAITER_LIFE",
    "margin",
    "next_fence",
    "renew_after",
    "retry_when_busy",
    "trust_until",
]

TTL_DEFAULT = 30.0

# Ten years, which every store can count.
TTL_MAX = 315_360_000.0

# Below one second a garbage collection or a slow fsync looks like a crash.
TTL_MIN = 1.0

# A dead waiter delays those behind it by this time. A living waiter polls every third of it, so two
# polls may fail before it loses its place.
WAITER_LIFE = 3.0

# Four attempts fit into one ttl, so three renewals in a row may fail.
_RENEW_SHARE = 0.3
_RENEW_JITTER = 0.1


def next_fence(last: int, floor: int, now: int) -> int:
    """Return a fence above `last` (of this key) and `floor` (of removed keys).

    The store's time in microseconds keeps it rising after a loss of data: a restart without data,
    or a fail-over that lost the newest writes. `last` and `floor` keep it rising when the clock is
    set back.
    """
    return max(last + 1, floor + 1, now)


def margin(ttl: float) -> float:
    """Return how much earlier than the store a holder stops trusting its lease.

    One percent covers two clocks whose rates differ by 1 %; 100 ms covers the time until the body
    learns of the loss.
    """
    return max(0.1, 0.01 * ttl)


def trust_until(sent: float, ttl: float) -> float:
    """Return the boot instant up to which a grant or renewal *sent* at `sent` may be trusted.

    The store counts the ttl from the arrival of the request, which is never before it was sent.
    """
    return sent + ttl - margin(ttl)


def renew_after(ttl: float, chance: float) -> float:
    """Return the seconds between two renewals. `chance` in [0, 1) only shortens them."""
    return ttl * _RENEW_SHARE * (1.0 - _RENEW_JITTER * chance)


def retry_when_busy(retry_in: float, chance: float) -> float:
    """Return how long a waiter sleeps if no wake-up comes.

    At most a third of its record's life, so that it keeps its place in the queue. Up to 20 ms after
    the end of a lease, so that many waiters do not poll at the same instant.
    """
    return min(max(retry_in, 0.0) + 0.001 + 0.02 * chance, WAITER_LIFE / 3)
