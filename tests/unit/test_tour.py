"""What the tour of `make demo` says: numbers that agree, whatever goes on meanwhile."""

import asyncio
import importlib
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def parts_of_the_tour(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[Any]:
    monkeypatch.syspath_prepend(EXAMPLES)
    return [importlib.import_module(f"tour.{name}") for name in names]


class TickingService:
    """One tick more stands in the log with each look."""

    def __init__(self, ticks: int) -> None:
        self._ticks = ticks

    def lines(self, pattern: re.Pattern[str]) -> list[SimpleNamespace]:
        texts = [f"digest of 12:00:{second:02}" for second in range(self._ticks)]
        self._ticks += 1
        return [
            SimpleNamespace(process="worker-1", at=0.0, text=text)
            for text in texts
            if pattern.search(text)
        ]


@pytest.mark.parametrize(
    ("ticks", "said"), [(15, "The last 10 of 15 ticks:"), (10, "tick  worker-1")]
)
def test_ticks_that_are_shown_and_judged_are_the_same(
    ticks: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    screen, verdict, timer_step = parts_of_the_tour(monkeypatch, "screen", "verdict", "timer_step")
    drawing = screen.Screen()
    step = timer_step.TimerStep(TickingService(ticks), drawing, verdict.Verdict(drawing))
    step.show("worker-1", killed_at=0.0, restarted_at=1.0)
    out = capsys.readouterr().out
    assert out.startswith(f"  {said}")
    assert f"no tick ran twice: {ticks} ticks, 0 of them twice" in out


def late_holder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[Any, Any, Any]:
    """Return the steps, their page and its verdict after a holder has slept through its lease.

    It was frozen between its first write and the message about it, so that all of its messages
    arrive after the thaw.
    """
    screen, verdicts, fleets, lock_steps = parts_of_the_tour(
        monkeypatch, "screen", "verdict", "fleet", "lock_steps"
    )
    drawing = screen.Screen()
    verdict = verdicts.Verdict(drawing)
    fleet = fleets.Fleet(EXAMPLES / "tour.py", folder, drawing.move)
    steps = lock_steps.LockSteps(fleet, drawing, verdict, folder)
    page = lock_steps.Page(folder)
    assert page.write("node-2 was here", 1)
    assert page.write("node-3 was here", 2)
    fleet.facts += [
        fleets.Fact("node-2", what, 0.0, 1, "it could not be renewed in time")
        for what in ("wrote", "cancelled", "lost", "refused", "done")
    ]
    return steps, page, verdict


async def test_a_write_before_the_freeze_that_is_told_after_the_thaw_is_not_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    steps, page, verdict = late_holder(monkeypatch, tmp_path)
    assert not page.write("node-2, much too late", 1)
    await steps.judge_late("node-2", 0)
    assert not verdict.broken


async def test_a_late_write_that_the_page_took_breaks_a_promise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    steps, page, verdict = late_holder(monkeypatch, tmp_path)
    with closing(sqlite3.connect(tmp_path / "page.db")) as db, db:
        db.execute("UPDATE page SET fence = 0")  # as a page without a fence would do
    assert page.write("node-2, much too late", 1)
    await steps.judge_late("node-2", 0)
    assert verdict.broken


@pytest.mark.parametrize(
    ("logged", "most"),
    [
        pytest.param(
            [("worker-1", 1.0, "asking"), ("worker-2", 2.0, "asking"), ("worker-3", 9.0, "asking")],
            2,
            id="a killed run ends with its process",
        ),
        pytest.param(
            [
                ("worker-2", 5.5, "asking"),
                ("worker-1", 5.6, "asking"),  # while the signal was on its way
                ("worker-3", 9.0, "asking"),
            ],
            2,
            id="a run that began during the kill ends with it",
        ),
        pytest.param(
            [("worker-1", 8.0, "asking"), ("worker-2", 8.0, "asking"), ("worker-3", 8.0, "asking")],
            3,
            id="a run after the return counts",
        ),
    ],
)
def test_runs_at_once_are_counted_by_what_happened(
    logged: list[tuple[str, float, str]], most: int, monkeypatch: pytest.MonkeyPatch
):
    service, timer_step = parts_of_the_tour(monkeypatch, "service", "timer_step")
    lines = [service.Logged(process, at, f"rates: {what}") for process, at, what in logged]
    assert timer_step.most_at_once(lines, "worker-1", killed_at=5.5, restarted_at=7.0) == most


WRITER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS page (body)")
print("ready", flush=True)
while True:
    db.execute("BEGIN IMMEDIATE")
    time.sleep(0.02)
    db.execute("COMMIT")
    time.sleep(0.02)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="nothing tells if it has stopped")
async def test_a_replica_is_frozen_outside_of_its_transactions_also_if_the_signal_is_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    [fleets] = parts_of_the_tour(monkeypatch, "fleet")

    class LateFleet(fleets.Fleet):
        """Has signals arrive late, as on a busy machine."""

        def hear(self, name: str, line: str) -> None:
            self.facts.append(fleets.Fact(name, line, 0.0, 0, ""))

        def _signal(self, name: str, number: int) -> None:
            asyncio.get_running_loop().call_later(0.03, super()._signal, name, number)

    file = tmp_path / "page.db"
    async with LateFleet(EXAMPLES / "tour.py", tmp_path, str) as fleet:
        await fleet.spawn("writer", sys.executable, "-c", WRITER, str(file))
        await fleet.until(lambda: fleet.facts_of("ready"), "the writer to start")
        for _ in range(5):
            await fleet.freeze("writer")
            assert fleets.stands_still(fleet.pid("writer"))
            with closing(sqlite3.connect(file, timeout=0)) as db, db:
                db.execute("INSERT INTO page VALUES ('written meanwhile')")
            fleet.thaw("writer")
