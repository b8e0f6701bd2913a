"""CPU time of enqueue and run on the tree that PYTHONPATH names; it uses only what all trees have.

`cpu_child URL JOBS`: one process enqueues so many jobs, 50 callers at a time, then runs them with a
worker. Prints the CPU seconds of each of both phases, of all threads of this process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import time

from tenure import Tenure

CALLERS = 50
WARM_UP = 200


class Work:
    """The jobs of one measurement: enqueued, then run."""

    def __init__(self, url: str) -> None:
        self._app = Tenure(url)
        self._missing = 0
        self._complete = asyncio.Event()
        self._task = self._app.task(name="work")(self._run)

    async def _run(self, number: int, text: str) -> int:  # noqa: ARG002 - a usual size
        self._missing -= 1
        if not self._missing:
            self._complete.set()
        return number

    async def measured(self, jobs: int) -> dict[str, float]:
        """Return the CPU seconds of both phases, after a few jobs that load all code."""
        async with self._app:
            await self._enqueue(WARM_UP)
            await self._work_off(WARM_UP)
            gc.collect()
            begin = time.process_time()
            await self._enqueue(jobs)
            enqueued = time.process_time()
            await self._work_off(jobs)
            ended = time.process_time()
        return {"enqueue": enqueued - begin, "run": ended - enqueued}

    async def _enqueue(self, jobs: int) -> None:
        numbers = iter(range(jobs))

        async def call() -> None:
            for number in numbers:
                await self._task.enqueue(number, "x" * 60)

        await asyncio.gather(*(call() for _ in range(CALLERS)))

    async def _work_off(self, jobs: int) -> None:
        """Run all jobs. The end of the worker waits until each is settled."""
        self._missing = jobs
        self._complete.clear()
        async with self._app.worker(concurrency=CALLERS):
            await self._complete.wait()


async def main() -> None:
    logging.getLogger("tenure").setLevel(logging.WARNING)
    report = await Work(sys.argv[1]).measured(int(sys.argv[2]))
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main())
