"""A tour of what Tenure does: `make demo`.

First the example service (examples/reports), as two APIs and three workers on one SQLite file, and
two people who use it over HTTP; then three replicas that share locks. All of them are processes of
their own. The tour kills and freezes some, and judges from outside what they did. Its exit status
is 1 if a promise was seen broken.
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
from tour.chiming import Chiming
from tour.fleet import NAMES, Fleet
from tour.locking import Locking
from tour.outliving import Outliving
from tour.processes import Broken
from tour.screen import Screen
from tour.service import APIS, WORKERS, Service
from tour.verdict import Verdict
from tour.visiting import Visiting

AFTERWARDS = """\
  make run                                     the service, for you to try
  examples/reports/service.py                  how it is made
  .venv/bin/python examples/jobs.py            jobs, retries and results
  .venv/bin/python examples/lock.py            a lock, a try, and who waits
  .venv/bin/python examples/semaphore.py       a limit over all replicas
  .venv/bin/python examples/fenced_write.py    the fence in your own SQL
  .venv/bin/python examples/timers.py          one run per tick, and a pause
  .venv/bin/python examples/once_per_tick.py   the same by hand, with a lock
  .venv/bin/pip install -e '.[cli]'            then .venv/bin/tenure --help
  docs/http.md, jobs.md, timers.md, locks.md   the guides
  make test                                    the same promises on four stores"""


async def visit_the_service(folder: Path, screen: Screen, verdict: Verdict) -> None:
    """Jobs and timers, over HTTP."""
    async with Service(folder, screen) as service:
        await service.start(*APIS, *WORKERS)
        for one in (*APIS, *WORKERS):
            screen.told(one, f"is a process of its own, pid {service.pid(one)}")
        visiting = Visiting(service, screen, verdict)
        try:
            await visiting.submit()
            await visiting.retry()
            await visiting.pry()
            await visiting.cancel()
            outliving = Outliving(service, visiting, screen, verdict)
            await outliving.run()
            await Chiming(service, screen, verdict).run(outliving.victim, outliving.killed_at)
        finally:
            await visiting.close()


async def share_locks(folder: Path, screen: Screen, verdict: Verdict) -> None:
    """What all of it stands on."""
    async with Fleet(Path(__file__), folder, screen.move) as fleet:
        await fleet.start(*NAMES)
        await Locking(fleet, screen, verdict, folder).run()


async def tour(screen: Screen) -> bool:
    """Return whether every promise was kept."""
    screen.line(screen.paint("Tenure: a service of five processes on one SQLite file", "bold"))
    started = time.monotonic()
    verdict = Verdict(screen)
    with tempfile.TemporaryDirectory(prefix="tenure-tour-") as name:
        try:
            await visit_the_service(Path(name), screen, verdict)
            await share_locks(Path(name), screen, verdict)
        except (Broken, httpx2.HTTPError) as why:
            verdict.judge(str(why) or repr(why), kept=False)
    verdict.sum_up()
    screen.line(f"\nThat took {time.monotonic() - started:.0f} s. To go on:\n{AFTERWARDS}")
    return not verdict.broken


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
