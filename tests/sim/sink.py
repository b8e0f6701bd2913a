"""The place outside of the store where effects land. It refuses what comes with an old fence."""

from __future__ import annotations

import random
from collections import Counter

from tests.sim.history import History
from tests.sim.loop import VirtualLoop
from tests.sim.plan import Plan

__all__ = ["Sink"]


class Sink:
    """Takes a write if no newer fence was seen. Writes travel, and arrive whoever dies."""

    def __init__(
        self,
        loop: VirtualLoop,
        history: History,
        dice: random.Random,
        plan: Plan,
        struck: Counter[str],
    ) -> None:
        self._loop = loop
        self._history = history
        self._dice = dice
        self._struck = struck
        self._late = plan.weather.get("late effects", 0.0)
        self._ttl = plan.ttl
        self._highest: dict[str, int] = {}
        self.refused = 0

    def heal(self) -> None:
        self._late = 0.0

    def write(self, by: str, key: str, fence: int) -> None:
        """Send a write. Whoever sends it does not wait for it."""
        late = self._late > 0 and self._dice.random() < self._late
        self._struck["late effects"] += late
        delay = self._dice.uniform(0, 2 * self._ttl) if late else self._dice.uniform(0, 0.002)
        self._loop.call_later(delay, self._arrive, by, key, fence, context=self._loop.world.context)

    def _arrive(self, by: str, key: str, fence: int) -> None:
        is_newest = fence >= self._highest.get(key, 0)
        if is_newest:
            self._highest[key] = fence
        else:
            self.refused += 1
        self._history.add(
            self._loop.time(), "sink", "effect", key=key, fence=fence, ok=is_newest, detail=by
        )
