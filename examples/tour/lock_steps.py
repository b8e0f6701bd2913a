"""Steps 7 to 9: a lock, a semaphore, and a holder that is frozen past its lease."""

import signal
import time
from itertools import pairwise
from pathlib import Path

from tour.fleet import NAMES, Fact, Fleet
from tour.replica import TTL, Counter, Page
from tour.screen import Screen
from tour.verdict import Verdict

COUNTS = 20  # increments by each replica in step 7
SHARES = 4  # holds of each replica in step 8
HAND_OVER = TTL + 1  # seconds until a waiter gets the lock of a frozen holder, at most


class LockSteps:
    """Gives orders to the replicas and judges twaiter reports."""

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
        screen.title("7  A lock: one holder at a time")
        screen.say("Three replicas increment a number in a file: read, pause, write.")
        await self._order_all("count_unlocked", COUNTS)
        screen.say(f"Without a lock, {total} increments result in {self._counter.read()}.")
        screen.say("Now each increment runs inside `async with app.lock('counter')`.")
        self._counter.write(0)
        facts = await self._order_all("count", COUNTS)
        most, number = most_at_once(facts), self._counter.read()
        rising = all(hold.fence < after.fence for hold, after in pairwise(entries(facts)))
        self._verdict.judge(
            f"no increment is lost: {total} increments result in {number}", kept=number == total
        )
        self._verdict.judge(f"at most {most} holder at a time", kept=most == 1)
        self._verdict.judge(
            f"each of {total} holds has a higher fence than the one before", kept=rising
        )
        self._verdict.note("holders of the lock at once, at most", str(most), "1")

    async def semaphore(self) -> None:
        self._screen.title("8  A semaphore: two holders at a time")
        self._screen.say("The same replicas share two places: `app.semaphore('gpu', limit=2)`.")
        most = most_at_once(await self._order_all("share", SHARES))
        self._verdict.judge(f"at most {most} holders at a time", kept=most == 2)
        self._verdict.note("holders of the semaphore at once, at most", str(most), "2")

    async def freeze(self) -> None:
        fleet, screen, (_, holder, waiter) = self._fleet, self._screen, NAMES
        screen.title("9  A frozen holder loses its lock")
        screen.say(f"{holder} writes to a page under a lock. {waiter} waits for the same lock.")
        start = await self._line_up("publish", (holder, waiter))
        screen.say(f"Now {holder} is frozen (SIGSTOP), like a machine that is suspended.")
        frozen_at = await fleet.freeze(holder)
        took = await self._take_over(waiter, start, frozen_at)
        self._verdict.note(
            "time until the waiter has the lock", f"{took:.2f} s", f"{HAND_OVER:g} s"
        )
        await fleet.until(lambda: fleet.facts_of("wrote", waiter, start), f"{waiter} to write")
        screen.report(waiter, f"writes to the page, which now says {self._page.read()[0]!r}")
        screen.say(f"Now {holder} runs again (SIGCONT), still inside its `async with` block.")
        fleet.thaw(holder)
        await self.judge_late(holder, start)
        await self._until_done(start, 2)

    async def judge_late(self, late: str, start: int) -> None:
        """Judge what happens to a holder that was frozen past its lease.

        The page records which writes came late. The replica's reports cannot: it may have been
        frozen between a write and the report of it.
        """
        fleet, screen = self._fleet, self._screen
        [lost] = await fleet.until(lambda: fleet.facts_of("lost", late, start), f"{late} to notice")
        screen.report(late, f"LeaseLost: {lost.text}")
        stopped = bool(fleet.facts_of("cancelled", late, start))
        self._verdict.judge(f"{late} gets LeaseLost, and its block is cancelled", kept=stopped)
        screen.say(f"A late write of {late} still reaches the page. It carries the old fence.")
        await fleet.until(lambda: fleet.facts_of("done", late, start), f"{late} to finish")
        stale = self._page.stale_writes()
        body, fence = self._page.read()
        screen.report(late, f"writes with fence {lost.fence}; the page has {fence}")
        kept = bool(stale) and not any(stale) and late not in body
        self._verdict.judge(f"late writes are refused: the page still says {body!r}", kept=kept)
        refused = f"{stale.count(False)} of {len(stale)}"
        self._verdict.note("stale writes refused", refused, "all")

    async def _line_up(self, order: str, names: tuple[str, ...]) -> int:
        """Let the first replica take the lock and the others wait for it, in this order.

        The lock has the name of the order.
        """
        fleet, start, (first, *others) = self._fleet, len(self._fleet.facts), names
        fleet.order(first, order, seconds=60)
        await self._entry(first, start)
        for place, name in enumerate(others, 1):
            fleet.order(name, order, seconds=1)
            await fleet.until_in_line(order, others[:place])
            self._screen.report(name, f"waits for the lock, place {place} in line")
        return start

    async def _take_over(self, name: str, start: int, since: float) -> float:
        """Wait until `name` holds the lock; judge the time that took, and return it."""
        held = await self._entry(name, start, since)
        took = held.at - since
        promise = f"promised: ttl + 1 s = {HAND_OVER:g} s"
        self._verdict.judge(f"{name} has it after {took:.2f} s ({promise})", kept=took <= HAND_OVER)
        return took

    async def _entry(self, name: str, start: int, since: float | None = None) -> Fact:
        """Wait until `name` reports that it has the lock."""
        begun = since or time.monotonic()
        [held] = await self._fleet.until(
            lambda: self._fleet.facts_of("in", name, start),
            f"{name} to get the lock",
            within=HAND_OVER + 30,
            progress=lambda: f"{name} waits, {time.monotonic() - begun:.1f} s",
        )
        self._screen.report(name, f"holds the lock, fence {held.fence}")
        return held

    async def _order_all(self, order: str, times: int) -> list[Fact]:
        """Give all replicas the same order; return their reports until all are done."""
        start = len(self._fleet.facts)
        for name in NAMES:
            self._fleet.order(name, order, times=times)
        await self._until_done(start, len(NAMES), times)
        return self._fleet.facts[start:]

    async def _until_done(self, start: int, replicas: int, total: int = 0) -> None:
        await self._fleet.until(
            lambda: self._fleet.facts_of("done", since=start, times=replicas),
            "the replicas to finish",
            within=30,
            progress=(lambda: self._progress(self._fleet.facts[start:], total)) if total else None,
        )

    def _progress(self, facts: list[Fact], total: int) -> str:
        """Return a bar for each replica, with a dot at those that hold the lock now."""
        parts, signs = [], self._screen.signs
        for name in NAMES:
            events = [fact.what for fact in facts if fact.replica == name]
            done = events.count("out")
            dot = signs["dot"] if events.count("in") > done else " "
            bar = self._screen.bar(done / total, 8)
            parts.append(self._screen.paint(f"{dot} {name} {bar} {done:>2}", name))
        return "  ".join(parts)


def entries(facts: list[Fact]) -> list[Fact]:
    """Return the start of each hold, in the order of time."""
    return sorted((fact for fact in facts if fact.what == "in"), key=lambda fact: fact.at)


def most_at_once(facts: list[Fact]) -> int:
    """Return the highest number of holders at the same time.

    A replica reports "in" after it got the lock and "out" before it releases it. So holds that
    overlap here did overlap.
    """
    steps = {"in": 1, "out": -1}
    inside = most = 0
    for fact in sorted(facts, key=lambda fact: fact.at):
        inside += steps.get(fact.what, 0)
        most = max(most, inside)
    return most
