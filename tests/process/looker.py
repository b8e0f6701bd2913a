"""Looks at its hold all the time: python -m tests.process.looker URL NAMESPACE LOCK TTL SINK

The test stops the whole process. The first look after that must tell the truth, the block must be
cancelled, and a write under the old fence must be refused.
"""

import asyncio
import sys
from pathlib import Path

from tenure import LeaseLost, Tenure
from tenure.locks.hold import Hold
from tests.process.orders import boot
from tests.process.sink import FencedSink
from tests.rig.stdio import tell

LOOKS_FOR_AT_MOST = 60.0


async def main(url: str, namespace: str, name: str, ttl: str, sink: str) -> None:
    """Hold the lock through a pause, then tell what was noticed."""
    facts: dict[str, object] = {}
    async with Tenure(url, namespace=namespace) as app:
        try:
            async with app.lock(name, ttl=float(ttl)) as hold:
                tell("held", fence=hold.fence)
                facts["first_look"] = first_look_after_pause(hold, float(ttl))
                await notice_cancellation(facts)
        except LeaseLost as loss:
            facts["raised"] = loss.fence
        accepted = FencedSink(Path(sink)).write(hold.fence, "looker")
        tell("resumed", accepted=accepted, **facts)


def first_look_after_pause(hold: Hold, pause: float) -> bool | None:
    """Return what the first look that began after a pause said; None if there was no pause.

    A look that the pause fell into may have read the clock before it: only the next one counts.
    """
    began = last = boot()
    while last < began + LOOKS_FOR_AT_MOST:
        now = boot()
        lost = hold.is_lost
        if lost or now - last >= pause:
            return lost
        last = now
    return None


async def notice_cancellation(facts: dict[str, object]) -> None:
    """Wait to be cancelled; without a cancellation the facts have no trace of it."""
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        facts["cancelled"] = True
        raise


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
