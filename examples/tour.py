"""A tour of what Tenure does, with three real replicas on one SQLite file: `make demo`.

The replicas are processes of their own (examples/tour/replica.py). The tour gives them orders,
kills one, freezes another, and judges from outside what they did. Its exit status is 1 if a
promise was seen broken.
"""

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from tour import replica
from tour.fleet import NAMES, Broken, Fact, Fleet
from tour.replica import TTL, Counter, Page
from tour.screen import Screen

COUNTS = 20  # sections of each replica in the first act
SHARES = 6  # and in the second
HAND_OVER = TTL + 1.0  # the longest a lock may stay with a holder that died or froze

AFTERWARDS = """\
  .venv/bin/python examples/lock.py            a lock in twenty lines
  .venv/bin/python examples/fenced_write.py    the fence in your own SQL
  .venv/bin/python examples/once_per_tick.py   a nightly function on three replicas
  docs/locks.md                                the guide
  make test                                    the same promises, on four stores"""


class Tour:
    """The four acts, and what they came to."""

    def __init__(self, fleet: Fleet, screen: Screen, folder: Path) -> None:
        self._fleet = fleet
        self._screen = screen
        self._counter = Counter(folder)
        self._page = Page(folder)
        self._broken = False
        self._sections = dict.fromkeys(NAMES, 0)
        self._results: list[tuple[str, str, str]] = []

    async def run(self) -> bool:
        """Return whether every promise was kept."""
        try:
            await self.lock()
            await self.semaphore()
            await self.kill()
            await self.freeze()
        except Broken as why:
            self._judge(str(why), kept=False)
        self._sum_up()
        return not self._broken

    async def lock(self) -> None:
        screen, total = self._screen, COUNTS * len(NAMES)
        screen.title("1  One at a time")
        screen.say("Three replicas add to a number in a file: read, think, write.")
        await self._everybody("count_unlocked", times=COUNTS)
        screen.say(f"Without a lock {total} additions came to {self._counter.read()}.")
        screen.say("Now each addition stands inside `async with app.lock('counter')`.")
        self._counter.write(0)
        facts = await self._everybody("count", times=COUNTS)
        fences = [fact.fence for fact in by_time(facts) if fact.what == "in"]
        rising = all(earlier < later for earlier, later in pairwise(fences))
        most, number = most_at_once(facts), self._counter.read()
        self._judge(f"{total} additions came to {number}: none was lost", kept=number == total)
        self._judge(f"at most {most} replica held the lock at any time", kept=most == 1)
        self._judge(f"each fence was larger than the one before, {total} in a row", kept=rising)
        self._results.append(("most holders of the lock at once", str(most), "1"))

    async def semaphore(self) -> None:
        self._screen.title("2  Two at a time")
        self._screen.say("The same three share two places: `app.semaphore('gpu', limit=2)`.")
        facts = await self._everybody("share", times=SHARES)
        most = most_at_once(facts)
        self._judge(f"at most {most} replicas were inside at any time", kept=most == 2)
        self._results.append(("most holders of the semaphore at once", str(most), "2"))

    async def kill(self) -> None:
        fleet, screen, (first, second, third) = self._fleet, self._screen, NAMES
        screen.title("3  A holder dies")
        screen.say(f"{first} takes a lock whose lease is {TTL:g} s; the others wait in line.")
        start = await self._hold_and_line_up("report", "report", NAMES)
        screen.say(f"Now {first} is killed (kill -9 {fleet.pid(first)}). It gives nothing back.")
        killed_at = time.monotonic()
        fleet.kill(first)
        took = await self._take_over(second, start, killed_at)
        self._results.append(("hand-over after the kill", f"{took:.2f} s", f"<= {HAND_OVER:g} s"))
        await self._until_done(start, 2)
        order = [fact.replica for fact in by_time(fleet.facts[start:]) if fact.what == "in"]
        self._judge(f"served in the order of arrival: {', '.join(order[1:])}", kept=order == [*NAMES])
        await fleet.start(first)
        screen.told(first, f"is back as a new process, pid {fleet.pid(first)}")

    async def freeze(self) -> None:
        """Needs SIGSTOP, which Windows has not."""
        if not hasattr(signal, "SIGSTOP"):
            return
        fleet, screen, (_, frozen, next_one) = self._fleet, self._screen, NAMES
        screen.title("4  A holder sleeps through its lease")
        screen.say(f"{frozen} writes to a page under a lock; {next_one} waits for that lock.")
        start = await self._hold_and_line_up("publish", "page", (frozen, next_one))
        screen.say(f"Now {frozen} is frozen (SIGSTOP), as by a suspended machine.")
        frozen_at = time.monotonic()
        await fleet.freeze(frozen)
        await self._take_over(next_one, start, frozen_at)
        await fleet.until(
            lambda: fleet.told("wrote", by=next_one, since=start, times=3),
            f"{next_one} writes",
        )
        screen.told(next_one, f"has written; the page says {self._page.read()[0]!r}")
        screen.say(f"Now {frozen} wakes up (SIGCONT) in the middle of its block.")
        fleet.thaw(frozen)
        await self._judge_late(frozen, start)
        await self._until_done(start, 2)

    async def _judge_late(self, late: str, start: int) -> None:
        fleet, screen = self._fleet, self._screen

        def by_late(what: str) -> list[Fact]:
            return fleet.told(what, by=late, since=start)

        [lost] = await fleet.until(lambda: by_late("lost"), f"{late} is told")
        screen.told(late, f"LeaseLost: {lost.text}")
        self._judge(f"{late} was told, and its block was cancelled", kept=bool(by_late("cancelled")))
        screen.say(f"A write of {late} was on its way already. It carries the old fence.")
        await fleet.until(lambda: fleet.told("done", by=late, since=start), f"{late} ends")
        refused, (body, fence) = len(by_late("refused")), self._page.read()
        screen.told(late, f"fence {lost.fence}: refused, for the page has seen {fence}")
        self._judge(f"the page still says {body!r}", kept=refused == 1 and late not in body)
        self._results.append(("stale writes refused", f"{refused} of 1", "all"))

    async def _hold_and_line_up(self, order: str, key: str, names: tuple[str, ...]) -> int:
        """Have the first replica take a lock, and the others wait for it one behind the other."""
        fleet, start = self._fleet, len(self._fleet.facts)
        fleet.order(names[0], order, seconds=60)
        [held] = await fleet.until(lambda: fleet.told("in", since=start), f"{names[0]} has {key!r}")
        self._screen.told(names[0], f"holds {key!r}, fence {held.fence}")
        for number, name in enumerate(names[1:], 2):
            fleet.order(name, order, seconds=1.5)
            await fleet.until_in_line(key, names[1:number])
            self._screen.told(name, f"waits, number {number - 1} in line")
        return start

    async def _take_over(self, name: str, start: int, since: float) -> float:
        """Wait until `name` has the lock; judge and return how long that took."""
        fleet = self._fleet
        [held] = await fleet.until(
            lambda: fleet.told("in", by=name, since=start),
            f"{name} gets the lock",
            within=HAND_OVER + 5,
            progress=lambda: f"{time.monotonic() - since:.1f} s without an owner at work ...",
        )
        took = held.at - since
        self._screen.told(name, f"holds it now, fence {held.fence}")
        self._judge(f"{name} had it after {took:.2f} s, promised are {HAND_OVER:g} s",
                    kept=took <= HAND_OVER)
        return took

    async def _everybody(self, order: str, times: int) -> list[Fact]:
        """Give all replicas the same order; return what they told until all were done."""
        start = len(self._fleet.facts)
        for name in NAMES:
            self._fleet.order(name, order, times=times)
        await self._until_done(start, len(NAMES), progress=lambda: self._progress(start, times))
        return self._fleet.facts[start:]

    async def _until_done(self, start: int, times: int) -> None:
        fleet = self._fleet
        await fleet.until(lambda: fleet.told("done", since=start, times=times), "they finish",
            within=30)
