"""Virtual time for code that waits by the event loop's own clock: seconds cost nothing."""

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.loop import VirtualLoop


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an event loop in virtual time; it must leave no task and no complaint."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        loop = VirtualLoop(random.Random(0).random)
        try:
            loop.run(test(*arguments, **named), max_steps=100_000)
            assert loop.world.unfinished() == []
            assert [task for task in loop.world.tasks if _hides_an_error(task)] == []
            assert loop.errors == []
        finally:
            loop.close()

    return run


def _hides_an_error(task: asyncio.Task[Any]) -> bool:
    return bool(getattr(task, "_log_traceback", False))  # set until its error is fetched


def now() -> float:
    """Return the seconds since the test began."""
    return asyncio.get_running_loop().time()


async def settle() -> None:
    """Let every task that can go on do so; no time passes."""
    for _ in range(20):
        await asyncio.sleep(0)
