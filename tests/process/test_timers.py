"""Timers of real processes, on every store that they can share."""

from collections import Counter
from pathlib import Path

from tenure import Tenure, TickRecord
from tests.process.job_ledger import JobLedger, Line
from tests.process.site import Site
from tests.process.ticker import LIMIT, declare
from tests.rig.processes import Child
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

BEFORE, AFTER = 4, 8  # ticks before and after one of three is killed


async def test_each_tick_runs_at_most_once_while_a_replica_dies(site: Site, tmp_path: Path):
    ledger = JobLedger(tmp_path / "ledger")
    replicas = [start(site, ledger) for _ in range(3)]
    await chimed(ledger, BEFORE)
    replicas[0].kill()
    await chimed(ledger, BEFORE + AFTER)
    for replica in replicas[1:]:
        replica.terminate()
        assert replica.wait(SIZE.patience) == 0, replica.story()
    async with app_of(site, ledger) as app:
        history = await app.timer_handle("chime").history(100)
    ran = Counter(line.number for line in ledger.read("chimed"))
    assert max(ran.values()) == 1
    assert ticks_of(history) >= set(ran)
    everything = range(min(ran), max(ran) + 1)
    assert set(everything) <= ticks_of(history), "a tick that left no record"
    assert most_at_once(ledger, dead=replicas[0].pid) <= LIMIT
    ledger.close()


def start(site: Site, ledger: JobLedger) -> Child:
    child = site.start("ticker", ledger.path)
    child.expect("ready", SIZE.patience)
    return child


def app_of(site: Site, ledger: JobLedger) -> Tenure:
    app = site.app()
    declare(app, ledger)
    return app


async def chimed(ledger: JobLedger, number: int) -> None:
    await wait_until_async(
        lambda: len(ledger.read("chimed")) >= number, SIZE.patience + number, f"{number} ticks"
    )


def ticks_of(history: list[TickRecord]) -> set[int]:
    """Return all ticks that the history accounts for, in seconds."""
    return {
        second
        for record in history
        for second in range(round(record.first.timestamp()), round(record.nominal.timestamp()) + 1)
    }


def most_at_once(ledger: JobLedger, *, dead: int) -> int:
    """Return how many runs of the timer with a limit there were at a time."""
    ended = {line.job for line in ledger.read("out")}
    begun = ledger.read("in", lambda line: line.pid != dead or line.job in ended)
    lines: list[Line] = sorted([*begun, *ledger.read("out")], key=lambda line: line.boot)
    inside = most = 0
    for line in lines:
        inside += 1 if line.what == "in" else -1
        most = max(most, inside)
    return most
