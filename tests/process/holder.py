"""Holds a lock on orders of the test: python -m tests.process.holder URL NAMESPACE LOCK TTL

acquire         wait for the lock and hold it; meanwhile:
    sleep N     block the event loop for N seconds in a system call
    spin N      block it for N seconds in Python code
    write FILE  write to a fenced sink
    release     give it back
"""

import asyncio
import sys
import time
from pathlib import Path

from tenure import LeaseLost, StoreUnavailable, Tenure
from tenure.locks.hold import Hold
from tenure.locks.lock import Lock
from tests.process.orders import Orders, boot, hearing
from tests.process.sink import FencedSink
from tests.rig.stdio import tell


async def main(url: str, namespace: str, name: str, ttl: str) -> None:
    """Obey until the test sends no more."""
    async with Tenure(url, namespace=namespace) as app, hearing() as hear:
        lock = app.lock(name, ttl=float(ttl))
        tell("ready")
        while order := await hear():
            assert order == "acquire", order
            await hold_until_told(lock, hear)


async def hold_until_told(lock: Lock, hear: Orders) -> None:
    """Hold the lock; tell how it ended."""
    hold = await acquire(lock)
    try:
        async with hold:
            tell("held", fence=hold.fence, boot=boot())
            while (order := await hear()) not in ("release", ""):
                obey(order, hold)
            tell("releasing", boot=boot())
    except LeaseLost as loss:
        tell("lost", fence=loss.fence, boot=boot())
    else:
        tell("released", fence=hold.fence, boot=boot())


async def acquire(lock: Lock) -> Hold:
    """Wait for the lock, over outages of the store."""
    while True:
        try:
            return await lock.acquire()
        except StoreUnavailable as error:
            tell("unavailable", error=error)
            await asyncio.sleep(0.05)


def obey(order: str, hold: Hold) -> None:
    """Do one thing without ever giving the loop a chance."""
    what, _, detail = order.partition(" ")
    if what == "write":
        accepted = FencedSink(Path(detail)).write(hold.fence, "holder")
        tell("wrote", accepted=accepted)
        return
    if what == "sleep":
        time.sleep(float(detail))
    elif what == "spin":
        spin(float(detail))
    else:
        raise ValueError(order)
    tell("unblocked", lost=hold.is_lost, fence=hold.fence)


def spin(seconds: float) -> None:
    """Compute in pure Python, which other threads can only interrupt for moments."""
    end = boot() + seconds
    while boot() < end:
        sum(range(1000))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
