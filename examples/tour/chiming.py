"""The sixth act: a tick each second on three workers, one of which was killed and comes back."""

import asyncio
import re
from collections import Counter

from tenure import TickRecord
from tour.screen import Screen
from tour.service import WORKERS, Logged, Service
from tour.verdict import Verdict

AFTER_RETURN = 2  # ticks
LIMIT = 2  # of refresh_rates, in examples/reports
SHOWN = 10  # ticks in the table
DIGEST = re.compile(r"digest of (.*)")
RATES = re.compile(r"rates: (asking|fresh)")


class Chiming:
    """Compares what the workers logged about their timers with what the store says."""

    def __init__(self, service: Service, screen: Screen, verdict: Verdict) -> None:
        self._service = service
        self._screen = screen
        self._verdict = verdict
        self._history: list[TickRecord] = []

    async def run(self, victim: str, killed_at: float) -> None:
        service, screen = self._service, self._screen
        screen.title("6  Each tick once")
        screen.say("Meanwhile the timers ticked: a digest each second, on one worker of three.")
        returns_at = service.now()
        await service.start(victim)
        screen.told(victim, f"is back as a new process, pid {service.pid(victim)}")
        enough = len(self.ticks) + AFTER_RETURN
        await service.until(
            lambda: len(self.ticks) >= enough,
            "it ticks on",
            within=30,
            progress=lambda: _counted(len(self.ticks)),
        )
        self._history = await self._decided()
        # What the store knows was logged before; it may still be on its way to us.
        await service.until(lambda: not self._unexplained(), "each run stands in a log")
        self.tell(victim, killed_at, returns_at)

    async def _decided(self) -> list[TickRecord]:
        """Return what became of all ticks so far, once their runs have ended."""
        async with self._service.app() as app:
            for _ in range(50):
                history = await app.timer_handle("send_digest").history()
                if all(one.outcome != "running" for one in history):
                    break
                await asyncio.sleep(0.1)
        return history

    @property
    def ticks(self) -> Counter[str]:
        """How often each tick has run."""
        lines = self._service.found(DIGEST)
        return Counter(line.text for line in lines)

    def tell(self, victim: str, killed_at: float, returns_at: float) -> None:
        """Draw and judge what there is by now; it ticks on meanwhile."""
        ticks = self.ticks
        if len(ticks) > SHOWN:
            self._screen.say(f"The last {SHOWN} of {len(ticks)} ticks:")
        self._draw()
        most = most_at_once(self._service.found(RATES), victim, killed_at, returns_at)
        self._judge(ticks, most)

    def _judge(self, ticks: Counter[str], most: int) -> None:
        judge, note = self._verdict.judge, self._verdict.note
        twice = sum(number > 1 for number in ticks.values())
        judge(f"no tick runs twice: {len(ticks)} ticks, {twice} of them twice", kept=not twice)
        judge("what the store says has run stands in a log", kept=not self._unexplained())
        judge(
            f"a limit holds over all workers: at most {most} of {LIMIT} at once", kept=most <= LIMIT
        )
        note("runs of a tick, at most", str(max(ticks.values())), "1")
        note("runs of the timer with a limit at once", str(most), str(LIMIT))

    def _unexplained(self) -> set[str]:
        """Return the ticks that the store says have run, and of which no log tells."""
        ran = {one.nominal for one in self._history if one.outcome == "succeeded"}
        return {f"digest of {nominal:%H:%M:%S}" for nominal in ran} - set(self.ticks)

    def _draw(self) -> None:
        """Show what the store has recorded beside what stands in the logs."""
        dot = self._screen.signs["dot"]
        by = {(line.text, line.process) for line in self._service.found(DIGEST)}
        rows = []
        for record in reversed(self._history[:SHOWN]):
            tick, last = (f"{moment:%H:%M:%S}" for moment in (record.first, record.nominal))
            dots = (dot if (f"digest of {tick}", name) in by else "" for name in WORKERS)
            several = f" to {last}" if record.ticks > 1 else ""
            why = f", {record.reason}" if record.reason else ""
            rows.append((f"{tick}{several}", *dots, f"{record.outcome}{why}"))
        self._screen.table(("tick", *WORKERS, "in the store"), rows)


def _counted(ticks: int) -> str:
    return "1 tick" if ticks == 1 else f"{ticks} ticks"


def most_at_once(lines: list[Logged], victim: str, killed_at: float, returns_at: float) -> int:
    """Return how many runs there were at once, at most.

    A run logs that it is fresh before its place is free; one that was killed ended then. The
    signal takes a moment: until then it may have logged on.
    """
    steps = [(line.at, -1 if "fresh" in line.text else 1, line.process) for line in lines]
    first_life = [step for step in steps if step[2] == victim and step[0] < returns_at]
    died_at = max([killed_at, *(at for at, *_ in first_life)])
    steps += [(died_at, -1, victim)] * sum(step for _, step, _ in first_life)
    inside = most = 0
    for _, step, _ in sorted(steps):
        inside += step
        most = max(most, inside)
    return most
