"""A resource outside of the store, such as a file server, that checks fences.

Jobs and holders of locks write to it. It refuses a write whose fence is older than the newest fence
that it has seen for the same key. Checkers compare its entries with what the store granted.
"""

from __future__ import annotations

import random
from collections import Counter

from tests.sim.history import History
from tests.sim.loop import VirtualLoop
from tests.sim.plan import Plan

__all__ = ["FencedResource"]


class FencedResource:
    """Accepts a write unless it has seen a newer fence for the key.

    A write that was sent arrives, even if its process is killed on the way.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        history: History,
        rng: random.Random,
        plan: Plan,
        injected: Counter[str],
    ) -> None:
        self._loop = loop
        self._history = history
        self._rng = rng
        self._injected = injected
        self._late = plan.call_faults.get("late effects", 0.0)
        self._ttl = plan.ttl
        self._highest: dict[str, int] = {}
        self.refused = 0

    def heal(self) -> None:
        self._late = 0.0

    def write(self, by: str, key: str, fence: int) -> None:
        """Send a write, without waiting for its arrival. "late effects" delay it beyond a ttl."""
        late = self._late > 0 and self._rng.random() < self._late
        self._injected["late effects"] += late
        delay = self._rng.uniform(0, 2 * self._ttl) if late else self._rng.uniform(0, 0.002)
        self._loop.call_later(delay, self._arrive, by, key, fence, context=self._loop.world.context)

    def _arrive(self, by: str, key: str, fence: int) -> None:
        is_newest = fence >= self._highest.get(key, 0)
        if is_newest:
            self._highest[key] = fence
        else:
            self.refused += 1
        self._history.add(
            self._loop.time(), "resource", "effect", key=key, fence=fence, ok=is_newest, detail=by
        )
