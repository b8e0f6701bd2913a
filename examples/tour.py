"""A tour of what Tenure does: `make demo`.

It starts the example service (examples/reports) as two APIs and three workers on one SQLite file,
and uses it over HTTP as two users. Then it starts three replicas that share locks. The tour kills
and freezes some of these processes and checks from outside what they did. It exits with status 1
if a promise was broken.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import httpx2
from tour import replica
from tour.fleet import NAMES, Fleet
from tour.http_steps import HttpSteps
from tour.lock_steps import LockSteps
from tour.processes import Broken
from tour.recovery_step import RecoveryStep
from tour.screen import Screen
from tour.service import APIS, WORKERS, Service
from tour.timer_step import TimerStep
from tour.verdict import Verdict

AFTERWARDS = """\
  make run                                     try the service and its dashboard
  examples/reports/service.py                  read its source
  .venv/bin/python examples/jobs.py            jobs, retries and results
  .venv/bin/python examples/lock.py            a lock, try_acquire and waiting
  .venv/bin/python examples/semaphore.py       a limit across all replicas
  .venv/bin/python examples/fenced_write.py    check the fence in your own SQL
  .venv/bin/python examples/timers.py          one run per tick, pause, trigger
  .venv/bin/python examples/once_per_tick.py   one run per tick, by hand
  .venv/bin/pip install -e '.[cli]'            then .venv/bin/tenure --help
  docs/http.md, jobs.md, timers.md, locks.md   the guides
  make test                                    the tests, on all four stores"""


async def use_service(folder: Path, screen: Screen, verdict: Verdict) -> None:
    """Show jobs and timers over HTTP."""
    async with Service(folder, screen) as service:
        await service.start(*APIS, *WORKERS)
        for name in (*APIS, *WORKERS):
            screen.report(name, f"runs, pid {service.pid(name)}")
        http_steps = HttpSteps(service, screen, verdict)
        try:
            await http_steps.submit()
            await http_steps.retry()
            await http_steps.separate_users()
            await http_steps.cancel()
            recovery = RecoveryStep(service, http_steps, screen, verdict)
            await recovery.run()
            await TimerStep(service, screen, verdict).run(recovery.victim, recovery.killed_at)
        finally:
            await http_steps.close()


async def share_locks(folder: Path, screen: Screen, verdict: Verdict) -> None:
    """Show locks and semaphores across replicas."""
    async with Fleet(Path(__file__), folder, screen.move) as fleet:
        await fleet.start(*NAMES)
        await LockSteps(fleet, screen, verdict, folder).run()


async def tour(screen: Screen) -> bool:
    """Return whether every promise was kept."""
    screen.line(screen.paint("Tenure: one service, five processes, one SQLite file", "bold"))
    started = time.monotonic()
    verdict = Verdict(screen)
    with tempfile.TemporaryDirectory(prefix="tenure-tour-") as name:
        try:
            await use_service(Path(name), screen, verdict)
            await share_locks(Path(name), screen, verdict)
        except (Broken, httpx2.HTTPError) as error:
            verdict.judge(str(error) or repr(error), kept=False)
    verdict.sum_up()
    screen.line(
        f"\nThe tour took {time.monotonic() - started:.0f} s. What to try next:\n{AFTERWARDS}"
    )
    return not verdict.broken


def main() -> None:
    if sys.argv[1:2] == ["replica"]:
        asyncio.run(replica.main(sys.argv[2], Path(sys.argv[3])))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end the child processes too
    screen = Screen()
    try:
        kept = asyncio.run(tour(screen))
    except KeyboardInterrupt:
        screen.leave()
        sys.exit(130)
    except BrokenPipeError:  # the reader has gone, as in `tour.py | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left to flush
        sys.exit(141)  # as if SIGPIPE had ended it
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
