"""Step 6: a timer that ticks every second on three workers, one of them killed and restarted."""

import asyncio
import re
from collections import Counter

from tenure import TickRecord
from tour.screen import Screen
from tour.service import WORKERS, Logged, Service
from tour.verdict import Verdict

TICKS_AFTER_RESTART = 2
LIMIT = 2  # of the timer refresh_rates in examples/reports
SHOWN = 10  # ticks in the table
DIGEST = re.compile(r"digest of (.*)")
RATES = re.compile(r"rates: (asking|fresh)")


class TimerStep:
    """Compares the runs in the workers' logs with the runs that the store records."""

    def __init__(self, service: Service, screen: Screen, verdict: Verdict) -> None:
        self._service = service
        self._screen = screen
        self._verdict = verdict
        self._history: list[TickRecord] = []

    async def run(self, victim: str, killed_at: float) -> None:
        service, screen = self._service, self._screen
        screen.title("6  One run per tick")
        screen.say("A timer has ticked every second since the start, on one worker each time.")
        restarted_at = service.now()
        await service.start(victim)
        screen.report(victim, f"runs again, pid {service.pid(victim)}")
        enough = len(self.ticks) + TICKS_AFTER_RESTART
        await service.until(
            lambda: len(self.ticks) >= enough,
            "the timer to tick on",
            within=30,
            progress=lambda: _counted(len(self.ticks)),
        )
        self._history = await self._decided()
        # A run is logged before the store records its end; the line may still be in the pipe.
        await service.until(lambda: not self._unlogged(), "a log line of every recorded run")
        self.show(victim, killed_at, restarted_at)

    async def _decided(self) -> list[TickRecord]:
        """Return the record of all ticks so far, once their runs have ended."""
        async with self._service.app() as app:
            for _ in range(50):
                history = await app.timer_handle("send_digest").history()
                if all(record.outcome != "running" for record in history):
                    break
                await asyncio.sleep(0.1)
        return history

    @property
    def ticks(self) -> Counter[str]:
        """The number of runs of each tick."""
        lines = self._service.lines(DIGEST)
        return Counter(line.text for line in lines)

    def show(self, victim: str, killed_at: float, restarted_at: float) -> None:
        """Print and judge the ticks so far; the timer ticks on meanwhile."""
        ticks = self.ticks
        if len(ticks) > SHOWN:
            self._screen.say(f"The last {SHOWN} of {len(ticks)} ticks:")
        self._draw()
        most = most_at_once(self._service.lines(RATES), victim, killed_at, restarted_at)
        self._judge(ticks, most)

    def _judge(self, ticks: Counter[str], most: int) -> None:
        judge, note = self._verdict.judge, self._verdict.note
        twice = sum(number > 1 for number in ticks.values())
        judge(f"no tick ran twice: {len(ticks)} ticks, {twice} of them twice", kept=not twice)
        judge("every run in the store is in a worker's log", kept=not self._unlogged())
        judge(f"limit={LIMIT} holds across workers: at most {most} at once", kept=most <= LIMIT)
        note("runs per tick, at most", str(max(ticks.values())), "1")
        note(f"concurrent runs of a timer with limit={LIMIT}", str(most), str(LIMIT))

    def _unlogged(self) -> set[str]:
        """Return the ticks that have run according to the store, but are in no log."""
        ran = {record.nominal for record in self._history if record.outcome == "succeeded"}
        return {f"digest of {nominal:%H:%M:%S}" for nominal in ran} - set(self.ticks)

    def _draw(self) -> None:
        """Print each tick with the worker that logged it and the outcome in the store."""
        dot = self._screen.signs["dot"]
        by = {(line.text, line.process) for line in self._service.lines(DIGEST)}
        rows = []
        for record in reversed(self._history[:SHOWN]):
            tick, last = (f"{moment:%H:%M:%S}" for moment in (record.first, record.nominal))
            dots = (dot if (f"digest of {tick}", name) in by else "" for name in WORKERS)
            several = f" to {last}" if record.ticks > 1 else ""
            why = f", {record.reason}" if record.reason else ""
            rows.append((f"{tick}{several}", *dots, f"{record.outcome}{why}"))
        self._screen.table(("tick", *WORKERS, "outcome in the store"), rows)


def _counted(ticks: int) -> str:
    return "1 tick" if ticks == 1 else f"{ticks} ticks"


def most_at_once(lines: list[Logged], victim: str, killed_at: float, restarted_at: float) -> int:
    """Return the highest number of runs at the same time.

    A run logs "fresh" before it frees its place. A killed run ends with its process. The process
    may still log until the signal reaches it.
    """
    steps = [(line.at, -1 if "fresh" in line.text else 1, line.process) for line in lines]
    first_life = [step for step in steps if step[2] == victim and step[0] < restarted_at]
    died_at = max([killed_at, *(at for at, *_ in first_life)])
    steps += [(died_at, -1, victim)] * sum(step for _, step, _ in first_life)
    inside = most = 0
    for _, step, _ in sorted(steps):
        inside += step
        most = max(most, inside)
    return most
