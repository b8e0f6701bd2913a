"""A tour of what Tenure does, with three real replicas on one SQLite file: `make demo`.

The replicas are processes of their own (examples/tour/replica.py). The tour gives them orders,
kills one, freezes another, and judges from outside what they did. Its exit status is 1 if a
promise was seen broken.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from tour import replica
from tour.bakery import LOAVES, Ledger
from tour.baking import RECOVERY, Baking
from tour.chiming import Chiming
from tour.clockwork import LIMIT
from tour.fleet import NAMES, Broken, Fact, Fleet
from tour.replica import TTL, Counter, Page
from tour.screen import Screen

COUNTS = 30  # sections of each replica in the first act
SHARES = 8  # and in the second
HAND_OVER = TTL + 1  # seconds a lock may at most stay with a holder that died or froze

AFTERWARDS = """\
  .venv/bin/python examples/jobs.py            jobs, retries and results
  .venv/bin/python examples/lock.py            a lock, a try, and who waits
  .venv/bin/python examples/semaphore.py       a limit over all replicas
  .venv/bin/python examples/fenced_write.py    the fence in your own SQL
  .venv/bin/python examples/timers.py          one run per tick, and a pause
  .venv/bin/python examples/once_per_tick.py   the same by hand, with a lock
  .venv/bin/pip install -e '.[cli]'            then .venv/bin/tenure --help
  docs/locks.md, jobs.md, timers.md            the guides
  make test                                    the same promises on four stores"""


class Tour:
    """The six acts, and what they came to."""

    def __init__(self, fleet: Fleet, screen: Screen, folder: Path) -> None:
        self._fleet = fleet
        self._screen = screen
        self._folder = folder
        self._counter = Counter(folder)
        self._page = Page(folder)
        self._broken = False
        self._results: list[tuple[str, str, str]] = []

    async def run(self) -> bool:
        """Return whether every promise was kept."""
        try:
            await self.lock()
            await self.semaphore()
            await self.kill()
            if hasattr(signal, "SIGSTOP"):  # Windows has none
                await self.freeze()
                await self.bake()
            await self.chime()
        except Broken as why:
            self._judge(str(why), kept=False)
        self._sum_up()
        return not self._broken

    async def lock(self) -> None:
        screen, total = self._screen, COUNTS * len(NAMES)
        screen.title("1  One at a time")
        screen.say("Three replicas add to a number in a file: read, think, write.")
        await self._everybody("count_unlocked", COUNTS)
        screen.say(f"Without a lock, {total} additions came to {self._counter.read()}.")
        screen.say("Now each addition stands inside `async with app.lock('counter')`.")
        self._counter.write(0)
        facts = await self._everybody("count", COUNTS)
        most, number = most_at_once(facts), self._counter.read()
        rising = all(one.fence < other.fence for one, other in pairwise(entries(facts)))
        self._judge(f"nothing is lost: {total} additions came to {number}", kept=number == total)
        self._judge(f"one holder at a time: at most {most} at once", kept=most == 1)
        self._judge(f"fences only rise: {total} holds, each above the one before", kept=rising)
        self._results.append(("most holders of the lock at once", str(most), "1"))

    async def semaphore(self) -> None:
        self._screen.title("2  Two at a time")
        self._screen.say("The same three share two places: `app.semaphore('gpu', limit=2)`.")
        most = most_at_once(await self._everybody("share", SHARES))
        self._judge(f"two holders at a time: at most {most} at once", kept=most == 2)
        self._results.append(("most holders of the semaphore at once", str(most), "2"))

    async def kill(self) -> None:
        fleet, screen, (victim, heir, last) = self._fleet, self._screen, NAMES
        screen.title("3  A holder dies")
        screen.say(f"{victim} takes a lock with a lease of {TTL:g} s. The others wait in line.")
        start = await self._line_up("report", NAMES)
        await self._outlive_lease(victim, start)
        screen.say(f"Now {victim} is killed (kill -9 {fleet.pid(victim)}). It gives nothing back.")
        killed_at = time.monotonic()
        fleet.kill(victim)
        took = await self._take_over(heir, start, killed_at)
        self._results.append(("hand-over after the kill", f"{took:.2f} s", f"{HAND_OVER:g} s"))
        await self._entry(last, start)
        order = [fact.replica for fact in entries(fleet.facts[start:])]
        self._judge(f"first come, first served: {', '.join(order)}", kept=order == [*NAMES])
        await self._until_done(start, 2)
        await fleet.start(victim)
        screen.told(victim, f"is back as a new process, pid {fleet.pid(victim)}")

    async def freeze(self) -> None:
        fleet, screen, (_, sleeper, heir) = self._fleet, self._screen, NAMES
        screen.title("4  A holder sleeps through its lease")
        screen.say(f"{sleeper} writes to a page under a lock. {heir} waits for that lock.")
        start = await self._line_up("publish", (sleeper, heir))
        screen.say(f"Now {sleeper} is frozen (SIGSTOP), like a machine that is suspended.")
        frozen_at = time.monotonic()
        await fleet.freeze(sleeper)
        await self._take_over(heir, start, frozen_at)
        await fleet.until(lambda: fleet.told("wrote", heir, start, times=3), f"{heir} writes")
        screen.told(heir, f"has written; the page says {self._page.read()[0]!r}")
        screen.say(f"Now {sleeper} wakes up (SIGCONT), still in the middle of its block.")
        woken = len(fleet.facts)
        fleet.thaw(sleeper)
        await self._judge_late(sleeper, woken)
        await self._until_done(start, 2)

    async def bake(self) -> None:
        """Durable jobs, while the workers die and sleep."""
        self._screen.title("5  Jobs outlive their workers")
        baking = Baking(self._fleet, self._screen, self._folder)
        await baking.run()
        took, baked = baking.recovered_after, Ledger(self._folder).loaves()
        promise = f"lost jobs run again within ttl + 3 s = {RECOVERY:g} s"
        self._judge(f"{promise}: {took:.2f} s", kept=took <= RECOVERY)
        done = sum(job.state == "succeeded" for job in baking.jobs)
        self._judge(f"no job is lost: {done} of {LOAVES} succeeded", kept=done == LOAVES)
        once = baked == list(range(LOAVES))
        self._judge(f"every effect is there once: {len(baked)} loaves in the ledger", kept=once)
        refused = sum(fact.what == "refused" for fact in baking.late)
        seen = f"{refused} of {len(baking.late)}"
        self._judge(f"late writes are refused: {seen}", kept=refused == len(baking.late) > 0)
        self._results.append(("stale writes of a lost worker refused", seen, "all"))
        self._results.append(
            ("recovery of jobs after the kill", f"{took:.2f} s", f"{RECOVERY:g} s")
        )
        self._results.append(
            ("jobs done, and effects in the ledger", f"{done}, {len(baked)}", f"{LOAVES}")
        )

    async def chime(self) -> None:
        """Timers, while a replica dies and comes back."""
        fleet = self._fleet
        self._screen.title("6  Each tick once")
        for name in NAMES:  # they were workers for good
            await fleet.bury(name)
        await fleet.start(*NAMES)
        chiming = Chiming(fleet, self._screen)
        await chiming.run()
        ticks, most = chiming.ticks, most_at_once(chiming.told)
        twice = sum(number > 1 for number in ticks.values())
        self._judge(
            f"no tick runs twice: {len(ticks)} ticks, {twice} of them twice", kept=not twice
        )
        explained = not chiming.unexplained
        self._judge("what the store says has run was told by a replica", kept=explained)
        limit = f"a limit holds over all replicas: at most {most} of {LIMIT} at once"
        self._judge(limit, kept=most <= LIMIT)
        self._results.append(("runs of a tick, at most", str(max(ticks.values())), "1"))
        self._results.append(("runs of the timer with a limit at once", str(most), f"{LIMIT}"))

    async def _judge_late(self, late: str, start: int) -> None:
        """Judge what becomes of a holder that slept through its lease."""
        fleet, screen = self._fleet, self._screen
        [lost] = await fleet.until(lambda: fleet.told("lost", late, start), f"{late} is told")
        screen.told(late, f"LeaseLost: {lost.text}")
        stopped = bool(fleet.told("cancelled", late, start))
        self._judge("who lost a lock is told, and its block is cancelled", kept=stopped)
        screen.say(f"But a write of {late} was on its way already. It carries the old fence.")
        await fleet.until(lambda: fleet.told("done", late, start), f"{late} ends")
        written, refused = fleet.told("wrote", late, start), fleet.told("refused", late, start)
        body, fence = self._page.read()
        screen.told(late, f"writes under fence {lost.fence}; the page saw {fence}")
        kept = bool(refused) and not written and late not in body
        self._judge(f"late writes are refused: the page still says {body!r}", kept=kept)
        seen = f"{len(refused)} of {len(refused) + len(written)}"
        self._results.append(("stale writes under a lost lock refused", seen, "all"))

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

    async def _outlive_lease(self, name: str, start: int) -> None:
        """Judge that a living holder keeps its lock for longer than one lease."""
        [held] = self._fleet.told("in", name, start)

        def age() -> float:
            return time.monotonic() - held.at

        await self._fleet.until(
            lambda: age() > TTL + 0.5,
            "time passes",
            progress=lambda: f"{name} works, {age():.1f} s",
        )
        holder = next(lease for lease in await self._fleet.app.locks("report") if not lease.waiting)
        kept = holder.fence == held.fence
        self._judge(f"who lives is renewed: {name} has held it for {age():.1f} s", kept=kept)

    async def _take_over(self, name: str, start: int, since: float) -> float:
        """Wait until `name` holds the lock; judge and return how long that took."""
        held = await self._entry(name, start, since)
        took = held.at - since
        promise = f"the next one has it within ttl + 1 s = {HAND_OVER:g} s"
        self._judge(f"{promise}: {took:.2f} s", kept=took <= HAND_OVER)
        return took

    async def _entry(self, name: str, start: int, since: float | None = None) -> Fact:
        """Wait until `name` tells that it has the lock."""
        begun = since or time.monotonic()
        [held] = await self._fleet.until(
            lambda: self._fleet.told("in", name, start),
            f"{name} gets the lock",
            within=HAND_OVER + 5,
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
            bar = (signs["full"] * round(8 * done / total)).ljust(8, signs["empty"])
            parts.append(self._screen.paint(f"{dot} {name} {bar} {done:>2}", name))
        return "  ".join(parts)

    def _judge(self, text: str, *, kept: bool) -> None:
        self._broken |= not kept
        self._screen.judge(text, kept=kept)

    def _sum_up(self) -> None:
        screen, inside = self._screen, entries(self._fleet.facts)
        each = [sum(fact.replica == name for fact in inside) for name in NAMES]
        screen.title("What was seen")
        screen.table(
            ("", "seen", "promised"),
            [
                (f"holds in all acts, of {', '.join(NAMES)}", ", ".join(map(str, each)), ""),
                *self._results,
            ],
        )
        verdict = "a promise was BROKEN, see above" if self._broken else "every promise was kept"
        screen.line(f"\n  {screen.paint(verdict, 'bad' if self._broken else 'good')}")


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


async def tour(screen: Screen) -> bool:
    screen.line(screen.paint("Tenure: three replicas, one SQLite file, no server", "bold"))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tenure-tour-") as name:
        folder = Path(name)
        async with Fleet(Path(__file__), folder, screen.move) as fleet:
            await fleet.start(*NAMES)
            for one in NAMES:
                screen.told(one, f"is a process of its own, pid {fleet.pid(one)}")
            kept = await Tour(fleet, screen, folder).run()
    screen.line(f"\nThat took {time.monotonic() - started:.0f} s. To go on:\n{AFTERWARDS}")
    return kept


def main() -> None:
    if sys.argv[1:2] == ["replica"]:
        asyncio.run(replica.main(sys.argv[2], Path(sys.argv[3])))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end the replicas then, too
    screen = Screen()
    try:
        kept = asyncio.run(tour(screen))
    except KeyboardInterrupt:
        screen.leave()
        sys.exit(130)
    except BrokenPipeError:  # nobody reads on, as in `tour.py | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left to flush
        sys.exit(141)  # as if SIGPIPE had ended it
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
