"""A worker with an idle child process and a busy one, whose pid goes into the given file."""

import asyncio
import sys
from pathlib import Path

from tests.jobs import cpu_tasks
from tests.rig.telling import tell
from tests.rig.waiting import wait_until_async


async def main(file: Path) -> None:
    async with cpu_tasks.app as app, app.worker():
        busy = await cpu_tasks.hold_the_interpreter.enqueue(str(file))
        tell("idle", pid=await (await cpu_tasks.pid.enqueue()).result(20))
        pid = await wait_until_async(lambda: file.exists() and file.read_text(), 20)
        tell("busy", pid=int(pid))
        await busy.wait()


asyncio.run(main(Path(sys.argv[1])))
