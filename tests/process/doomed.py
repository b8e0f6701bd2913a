"""A store whose process dies at a chosen moment, as a crash would have it."""

import os
import signal
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

from tenure.core.clock import SystemClock
from tenure.stores.connect import connect
from tenure.testing import FaultyStore

T = TypeVar("T")


class DoomedStore(FaultyStore):
    """Kills its own process before or after one kind of call takes effect."""

    moment = ""

    async def _pass(self, call: str, send: Callable[[], Awaitable[T]]) -> T:
        if self.moment == f"before {call}":
            die()
        answer = await super()._pass(call, send)
        if self.moment == f"after {call}":
            die()
        return answer


def doomed(url: str, namespace: str, moment: str) -> DoomedStore:
    """Return a store whose process dies at `moment`, such as "after mark"; never, if empty."""
    store = DoomedStore(connect(url, namespace=namespace, clock=SystemClock()))
    store.moment = moment
    return store


def die() -> NoReturn:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")
