"""The queue of SQLite's writer, so that what goes into one transaction does not depend on time.

The writer joins calls that have queued up while a transaction ran. Which ones these are depends on
how quickly its thread gets its turn. Here all calls that the loop makes in one go are joined.
"""

import asyncio
import queue
import threading
from collections import deque
from typing import Any

__all__ = ["GatheredQueue"]

# Turns of the loop in which calls that follow from each other, without an answer, have come.
_TURNS = 20


class GatheredQueue:
    """Stands in for the SimpleQueue of `tenure.stores.sqlite.writer`."""

    def __init__(self) -> None:
        self._gathered: list[Any] = []
        self._ready: deque[Any] = deque()
        self._changed = threading.Condition()

    def put(self, request: Any) -> None:
        """Take a call from the loop, or the end (None) from any thread."""
        if request is None:
            self._let_go([None])
            return
        self._gathered.append(request)
        if len(self._gathered) == 1:
            self._wait(_TURNS)

    def get(self, timeout: float | None = None) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready, timeout):
                raise queue.Empty
            return self._ready.popleft()

    def empty(self) -> bool:
        with self._changed:
            return not self._ready

    def _wait(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._wait, turns - 1)
        else:
            gathered, self._gathered = self._gathered, []
            self._let_go(gathered)

    def _let_go(self, requests: list[Any]) -> None:
        with self._changed:
            self._ready.extend(requests)
            self._changed.notify()
