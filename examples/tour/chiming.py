"""The sixth act: a tick each second on three replicas, one of which is killed and comes back."""

import asyncio
import time
from collections import Counter
from dataclasses import replace

from tenure import TickRecord
from tour.fleet import NAMES, Fact, Fleet
from tour.screen import Screen

BEFORE_KILL = 4  # ticks
AFTER_KILL = 3
AFTER_RETURN = 3


class Chiming:
    """Lets replicas tick, disturbs them, and compares what they tell with what the store says."""

    def __init__(self, fleet: Fleet, screen: Screen) -> None:
        self._fleet = fleet
        self._screen = screen
        self._start = len(fleet.facts)
        self._died: list[Fact] = []
        self.history: list[TickRecord] = []

    async def run(self) -> None:
        fleet, screen, (victim, *_) = self._fleet, self._screen, NAMES
        screen.say("`@app.timer(every='1s')` on three replicas: each tick runs on one of them.")
        for name in NAMES:
            fleet.order(name, "tick")
        await self._until(BEFORE_KILL)
        screen.say(f"Now {victim} is killed. Nobody was the leader, so nobody is missed.")
        await self._kill(victim)
        await self._until(BEFORE_KILL + AFTER_KILL)
        await fleet.start(victim)
        fleet.order(victim, "tick")
        screen.told(victim, "is back")
        await self._until(BEFORE_KILL + AFTER_KILL + AFTER_RETURN)
        self.history = await self._decided()
        self._draw()

    async def _decided(self) -> list[TickRecord]:
        """Return what became of all ticks so far, once their runs have ended."""
        async with self._fleet.clockwork() as app:
            for _ in range(50):
                history = await app.timers["chime"].history()
                if all(one.outcome != "running" for one in history):
                    break
                await asyncio.sleep(0.1)
        return history

    async def _kill(self, victim: str) -> None:
        fleet = self._fleet
        fleet.kill(victim)
        killed_at = time.monotonic()
        await fleet.bury(victim)
        ended = {fact.fence for fact in fleet.told("out", victim, self._start)}
        begun = fleet.told("in", victim, self._start)
        # What it was in the middle of has ended with it.
        self._died = [
            replace(fact, what="out", at=killed_at) for fact in begun if fact.fence not in ended
        ]

    @property
    def told(self) -> list[Fact]:
        """What the replicas told in this act."""
        return self._fleet.facts[self._start :] + self._died

    @property
    def ticks(self) -> Counter[str]:
        """How often each tick has run."""
        return Counter(fact.text for fact in self.told if fact.what == "chimed")

    @property
    def unexplained(self) -> int:
        """How many ticks the store says have run, and of which no replica has told."""
        ran = {f"{one.nominal:%H:%M:%S}" for one in self.history if one.outcome == "succeeded"}
        return len(ran - set(self.ticks))

    async def _until(self, ticks: int) -> None:
        await self._fleet.until(
            lambda: len(self.ticks) >= ticks,
            "it ticks on",
            within=30,
            progress=lambda: _counted(len(self.ticks)),
        )

    def _draw(self) -> None:
        """Show what the store has recorded beside what the replicas told."""
        dot = self._screen.signs["dot"]
        by = {(fact.text, fact.replica) for fact in self.told if fact.what == "chimed"}
        rows = []
        for record in reversed(self.history):
            tick, last = (f"{moment:%H:%M:%S}" for moment in (record.first, record.nominal))
            dots = (dot if (tick, name) in by else "" for name in NAMES)
            several = f" to {last}" if record.ticks > 1 else ""
            why = f", {record.reason}" if record.reason else ""
            rows.append((f"{tick}{several}", *dots, f"{record.outcome}{why}"))
        self._screen.table(("tick", *NAMES, "in the store"), rows)


def _counted(ticks: int) -> str:
    return "1 tick" if ticks == 1 else f"{ticks} ticks"
