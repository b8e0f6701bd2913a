"""Forks while it holds a lock: python -m tests.process.forker URL NAMESPACE TTL CHILDREN"""

import asyncio
import os
import sys
import traceback
from contextlib import suppress

from tenure import Hold, LeaseLost, StoreError, Tenure
from tests.rig.stdio import tell


async def main(url: str, namespace: str, ttl: str, children: str) -> None:
    async with Tenure(url, namespace=namespace) as app:
        async with app.lock("forked", ttl=float(ttl)) as hold:
            tell("held", fence=hold.fence)
            pids = [fork(app, hold, url) for _ in range(int(children))]
            codes = await asyncio.to_thread(lambda: [exit_code(pid) for pid in pids])
            tell("children", codes=codes)
            await asyncio.sleep(2 * float(ttl))
            rival = Tenure(url, namespace=namespace)
            async with rival:
                taken = await rival.lock("forked").try_acquire() is None
            tell("after", held=hold.is_held and taken, fence=hold.fence)
        tell("released")


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fork(app: Tenure, hold: Hold, url: str) -> int:
    """Return the child's pid; the child says with its exit code what it found."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os._exit(in_child(app, hold, url))
    except BaseException:  # noqa: BLE001 - the child must not run on as a second parent
        traceback.print_exc()
    finally:
        os._exit(1)


def in_child(app: Tenure, hold: Hold, url: str) -> int:
    """Try to do what only the parent may, then work with an app of the child's own."""
    if not hold.is_lost:
        return 2
    with suppress(LeaseLost):
        hold.check()
        return 3

    async def use() -> int:
        with suppress(StoreError):
            await app.lock("other").acquire()
            return 4
        if await hold.release():
            return 5
        await app.close()
        if url.startswith("sqlite"):
            # SQLite itself cannot be used in a child if the parent had the file open.
            with suppress(StoreError):
                await app.open()
                return 7
            return 0
        async with app:
            if await app.lock("forked").try_acquire() is not None:
                return 6
            async with app.lock("of the children", wait=30):
                pass
        return 0

    return asyncio.run(use())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
