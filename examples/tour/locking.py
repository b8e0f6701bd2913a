"""The acts on locks: three replicas that count, wait and freeze under one."""

import signal
import time
from itertools import pairwise
from pathlib import Path

from tour.fleet import NAMES, Fact, Fleet
from tour.replica import TTL, Counter, Page
from tour.screen import Screen
from tour.verdict import Verdict

COUNTS = 20  # sections of each replica in the first of these acts
SHARES = 4  # and in the second
HAND_OVER = TTL + 1  # seconds a lock may at most stay with a holder that froze


class Locking:
    """One at a time, two at a time, and a holder that sleeps."""

    def __init__(self, fleet: Fleet, screen: Screen, verdict: Verdict, folder: Path) -> None:
        self._fleet = fleet
        self._screen = screen
        self._verdict = verdict
        self._counter = Counter(folder)
        self._page = Page(folder)

    async def run(self) -> None:
        await self.lock()
        await self.semaphore()
        if hasattr(signal, "SIGSTOP"):  # Windows has none
            await self.freeze()

    async def lock(self) -> None:
        screen, total = self._screen, COUNTS * len(NAMES)
        screen.title("7  One at a time")
        screen.say("Three replicas add to a number in a file: read, think, write.")
        await self._everybody("count_unlocked", COUNTS)
        screen.say(f"Without a lock, {total} additions came to {self._counter.read()}.")
        screen.say("Now each addition stands inside `async with app.lock('counter')`.")
        self._counter.write(0)
        facts = await self._everybody("count", COUNTS)
        most, number = most_at_once(facts), self._counter.read()
        rising = all(one.fence < other.fence for one, other in pairwise(entries(facts)))
        self._verdict.judge(
            f"nothing is lost: {total} additions came to {number}", kept=number == total
        )
        self._verdict.judge(f"one holder at a time: at most {most} at once", kept=most == 1)
        self._verdict.judge(
            f"fences only rise: {total} holds, each above the one before", kept=rising
        )
        self._verdict.note("most holders of the lock at once", str(most), "1")

    async def semaphore(self) -> None:
        self._screen.title("8  Two at a time")
        self._screen.say("The same three share two places: `app.semaphore('gpu', limit=2)`.")
        most = most_at_once(await self._everybody("share", SHARES))
        self._verdict.judge(f"two holders at a time: at most {most} at once", kept=most == 2)
        self._verdict.note("most holders of the semaphore at once", str(most), "2")

    async def freeze(self) -> None:
        fleet, screen, (_, sleeper, heir) = self._fleet, self._screen, NAMES
        screen.title("9  A holder sleeps through its lease")
        screen.say(f"{sleeper} writes to a page under a lock. {heir} waits for that lock.")
        start = await self._line_up("publish", (sleeper, heir))
        screen.say(f"Now {sleeper} is frozen (SIGSTOP), like a machine that is suspended.")
        frozen_at = await fleet.freeze(sleeper)
        took = await self._take_over(heir, start, frozen_at)
        self._verdict.note("hand-over of a lock", f"{took:.2f} s", f"{HAND_OVER:g} s")
        await fleet.until(lambda: fleet.told("wrote", heir, start), f"{heir} writes")
        screen.told(heir, f"has written; the page says {self._page.read()[0]!r}")
        screen.say(f"Now {sleeper} wakes up (SIGCONT), still in the middle of its block.")
        fleet.thaw(sleeper)
        await self.judge_late(sleeper, start)
        await self._until_done(start, 2)

    async def judge_late(self, late: str, start: int) -> None:
        """Judge what becomes of a holder that slept through its lease.

        Only the record of the page says which writes came late: the replica may have been frozen
        between a write and its message.
        """
        fleet, screen = self._fleet, self._screen
        [lost] = await fleet.until(lambda: fleet.told("lost", late, start), f"{late} is told")
        screen.told(late, f"LeaseLost: {lost.text}")
        stopped = bool(fleet.told("cancelled", late, start))
        self._verdict.judge("who lost a lock is told, and its block is cancelled", kept=stopped)
        screen.say(f"But a write of {late} was on its way already. It carries the old fence.")
        await fleet.until(lambda: fleet.told("done", late, start), f"{late} ends")
        stale = self._page.stale_writes()
        body, fence = self._page.read()
        screen.told(late, f"writes under fence {lost.fence}; the page saw {fence}")
        kept = bool(stale) and not any(stale) and late not in body
        self._verdict.judge(f"late writes are refused: the page still says {body!r}", kept=kept)
        refused = f"{stale.count(False)} of {len(stale)}"
        self._verdict.note("stale writes under a lost lock refused", refused, "all")

    async def _line_up(self, order: str, names: tuple[str, ...]) -> int:
        """Have the first replica take the lock, and the others wait for it one after the other.

        The lock is named like the order.
        """
        fleet, start, (first, *others) = self._fleet, len(self._fleet.facts), names
        fleet.order(first, order, seconds=60)
        await self._entry(first, start)
        for place, name in enumerate(others, 1):
            fleet.order(name, order, seconds=1)
            await fleet.until_in_line(order, others[:place])
            self._screen.told(name, f"waits, number {place} in line")
        return start

    async def _take_over(self, name: str, start: int, since: float) -> float:
        """Wait until `name` holds the lock; judge and return how long that took."""
        held = await self._entry(name, start, since)
        took = held.at - since
        promise = f"the next one has it within ttl + 1 s = {HAND_OVER:g} s"
        self._verdict.judge(f"{promise}: {took:.2f} s", kept=took <= HAND_OVER)
        return took

    async def _entry(self, name: str, start: int, since: float | None = None) -> Fact:
        """Wait until `name` tells that it has the lock."""
        begun = since or time.monotonic()
        [held] = await self._fleet.until(
            lambda: self._fleet.told("in", name, start),
            f"{name} gets the lock",
            within=HAND_OVER + 30,
            progress=lambda: f"{name} waits, {time.monotonic() - begun:.1f} s",
        )
        self._screen.told(name, f"holds the lock, fence {held.fence}")
        return held

    async def _everybody(self, order: str, times: int) -> list[Fact]:
        """Give all replicas the same order; return what they told until all were done."""
        start = len(self._fleet.facts)
        for name in NAMES:
            self._fleet.order(name, order, times=times)
        await self._until_done(start, len(NAMES), times)
        return self._fleet.facts[start:]

    async def _until_done(self, start: int, replicas: int, total: int = 0) -> None:
        await self._fleet.until(
            lambda: self._fleet.told("done", since=start, times=replicas),
            "they finish",
            within=30,
            progress=(lambda: self._progress(self._fleet.facts[start:], total)) if total else None,
        )

    def _progress(self, facts: list[Fact], total: int) -> str:
        """Draw a bar for each replica, with a dot at those that are inside now."""
        parts, signs = [], self._screen.signs
        for name in NAMES:
            told = [fact.what for fact in facts if fact.replica == name]
            done = told.count("out")
            dot = signs["dot"] if told.count("in") > done else " "
            bar = self._screen.bar(done / total, 8)
            parts.append(self._screen.paint(f"{dot} {name} {bar} {done:>2}", name))
        return "  ".join(parts)


def entries(facts: list[Fact]) -> list[Fact]:
    """Return who got inside, in the order of time."""
    return sorted((fact for fact in facts if fact.what == "in"), key=lambda fact: fact.at)


def most_at_once(facts: list[Fact]) -> int:
    """Return how many replicas were inside at once, at most.

    A replica tells "in" after it got in and "out" before it gives back, so what overlaps here
    did overlap.
    """
    steps = {"in": 1, "out": -1}
    inside = most = 0
    for fact in sorted(facts, key=lambda fact: fact.at):
        inside += steps.get(fact.what, 0)
        most = max(most, inside)
    return most
