"""How long to repeat calls that a store has not answered, and whether its data is still there."""

from __future__ import annotations

__all__ = [
    "INSERT_PATIENCE",
    "KEY_PATIENCE",
    "is_other_data",
    "may_insert_again",
    "may_wait_for_key",
    "retry_after_error",
]

# Shorter than finished jobs are kept: see RETENTION_MIN.
INSERT_PATIENCE = 20.0
_INSERT_TRIES = 3

# How long `enqueue` waits for a unique key that an open transaction holds. A transaction that calls
# a slow service takes seconds; a longer one was usually left open by mistake.
KEY_PATIENCE = 10.0
_ERROR_DELAY_FIRST = 0.05
_ERROR_DELAY_MAX = 1.0


def retry_after_error(failures: int, chance: float) -> float:
    """Return the pause after the n-th failure in a row: doubling, capped, half of it random."""
    ceiling: float = min(_ERROR_DELAY_MAX, _ERROR_DELAY_FIRST * 2.0 ** min(failures - 1, 10))
    return ceiling * (0.5 + 0.5 * chance)


def may_insert_again(failures: int, passed: float) -> bool:
    """Return whether to repeat an insert after so many failures, `passed` seconds after the first.

    A few tries are enough for a lost reply. The caller must handle a longer outage.
    """
    return failures < _INSERT_TRIES and passed < INSERT_PATIENCE


def may_wait_for_key(passed: float) -> bool:
    """Return whether to try again for a unique key that has been held for `passed` seconds."""
    return passed < KEY_PATIENCE


def is_other_data(previous: str | None, current: str) -> bool:
    """Return whether a store has lost its data: the id changed from `previous` to `current`.

    False if there was no previous id.
    """
    return previous is not None and previous != current
