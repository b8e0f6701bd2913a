"""Wait for a condition with a deadline, instead of sleeping and hoping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


def wait_until(condition: Callable[[], T], timeout: float = 5.0, what: str = "") -> T:
    """Return the first true result of `condition`, or raise `AssertionError` at the deadline.

    The condition is always asked once more after the deadline has passed, so that a machine that
    stalls for longer than `timeout` does not fail a test whose condition holds.
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        late = time.monotonic() >= deadline
        if result := condition():
            return result
        if late:
            raise AssertionError(_complaint(condition, timeout, what))
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def wait_until_async(
    condition: Callable[[], T | Awaitable[T]], timeout: float = 5.0, what: str = ""
) -> T:
    """Do what `wait_until` does without blocking the loop; `condition` may be async."""
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        late = time.monotonic() >= deadline
        answer = condition()
        result = await answer if inspect.isawaitable(answer) else answer
        if result:
            return result
        if late:
            raise AssertionError(_complaint(condition, timeout, what))
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _complaint(condition: object, timeout: float, what: str) -> str:
    name = what or getattr(condition, "__qualname__", repr(condition))
    return f"did not come true within {timeout:g} s: {name}"
