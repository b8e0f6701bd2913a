"""The fifth act: 200 jobs, three workers, one of them killed, one frozen past its lease."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from tenure import Job
from tour.bakery import LOAVES, declare
from tour.fleet import NAMES, Fact, Fleet
from tour.replica import TTL
from tour.screen import Screen

RECOVERY = TTL + 3  # seconds until the jobs of a lost worker have begun again
BEFORE_TROUBLE = 40  # loaves


class Baking:
    """Orders jobs, disturbs the workers, and watches what they tell."""

    def __init__(self, fleet: Fleet, screen: Screen, folder: Path) -> None:
        self._fleet = fleet
        self._screen = screen
        self._bake = declare(fleet.app, folder, lambda *_, **__: None)
        self._start = len(fleet.facts)
        self.jobs: list[Job[int]] = []
        self.recovered_after = 0.0
        self.late: list[Fact] = []
        """What became of the writes of the worker that slept, after it woke up."""

    async def run(self) -> None:
        await self._begin()
        taken = await self._disturb()
        await self._wake(taken)
        await asyncio.gather(*(job.wait(timeout=60) for job in self.jobs))

    async def _begin(self) -> None:
        fleet = self._fleet
        self.jobs = await fleet.app.enqueue_many(self._bake.request(n) for n in range(LOAVES))
        self._screen.say(f"{LOAVES} jobs are in the store, and the three replicas become workers.")
        for name in NAMES:
            fleet.order(name, "bake")
        await self._until(lambda: len(self._ids("baked")) >= BEFORE_TROUBLE, "they bake")

    async def _disturb(self) -> set[str]:
        """Kill one worker and freeze another; return the jobs that the third one takes over."""
        fleet, screen, (victim, sleeper, survivor) = self._fleet, self._screen, NAMES
        screen.say(f"Now {victim} is killed and {sleeper} frozen, both in the middle of jobs.")
        both = (victim, sleeper)
        await self._until(lambda: all(map(self._unfinished, both)), "both are at work")
        await fleet.freeze(sleeper)
        await fleet.bury(victim)
        since = time.monotonic()
        taken = self._unfinished(victim) | self._unfinished(sleeper)
        await self._until(lambda: taken <= self._ids("began", survivor), "its jobs begin again")
        again = [fact.at for fact in self._facts("began", survivor) if fact.text in taken]
        self.recovered_after = max(again) - since
        screen.told(survivor, f"has begun the {len(taken)} jobs of the other two again")
        return taken

    async def _wake(self, taken: set[str]) -> None:
        """Let the frozen worker go on, long after its jobs were done by another one."""
        fleet, screen, (_, sleeper, survivor) = self._fleet, self._screen, NAMES
        await self._until(lambda: taken <= self._ids("baked", survivor), "they are baked")
        late = self._unfinished(sleeper)
        screen.say(f"Now {sleeper} wakes up, with {len(late)} jobs that {survivor} has long done.")
        fleet.thaw(sleeper)
        await self._until(lambda: not late & self._unfinished(sleeper), "the late writes come")
        told = [*self._facts("baked", sleeper), *self._facts("refused", sleeper)]
        self.late = [fact for fact in told if fact.text in late]

    def _facts(self, what: str, by: str | None = None) -> list[Fact]:
        return self._fleet.told(what, by, self._start)

    def _ids(self, what: str, by: str | None = None) -> set[str]:
        return {fact.text for fact in self._facts(what, by)}

    def _unfinished(self, name: str) -> set[str]:
        """Return the jobs that a worker has begun and not ended."""
        ended = self._ids("baked", name) | self._ids("refused", name)
        return self._ids("began", name) - ended

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        await self._fleet.until(condition, what, within=60, progress=self._progress)

    def _progress(self) -> str:
        done, signs = len(self._ids("baked")), self._screen.signs
        bar = (signs["full"] * round(30 * done / LOAVES)).ljust(30, signs["empty"])
        each = (f"{name} {len(self._ids('baked', name))}" for name in NAMES)
        return f"{bar} {done:>3} of {LOAVES}   " + "   ".join(each)
