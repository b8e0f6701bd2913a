"""Takes a lock again and again: python -m tests.process.contender URL NAMESPACE LEDGER NAME ...

It begins when the test says so and ends when the test says anything more. Whatever it is not told
to expect ends it with an error.
"""

import argparse
import asyncio
import random
from pathlib import Path

from tenure import LeaseLost, StoreUnavailable, Tenure
from tenure.locks.hold import Hold
from tenure.locks.lock import Semaphore
from tests.process.ledger import Count, Counter, Ledger
from tests.process.orders import hearing
from tests.process.sink import FencedSink
from tests.rig.stdio import tell


def parsed() -> argparse.Namespace:
    """Return what the test wants."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("namespace")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("names", nargs="+", help="one of them at random each time")
    parser.add_argument("--ttl", type=float, default=3.0)
    parser.add_argument("--limit", type=int, default=1)
    parser.add_argument("--stay", type=float, default=0.002, help="seconds inside")
    parser.add_argument("--counter", type=Path, help="a file to count the stays in")
    parser.add_argument("--sink", type=Path, help="a fenced sink, written to without a look")
    parser.add_argument("--eager", action="store_true", help="try at once instead of waiting")
    parser.add_argument("--patient", action="store_true", help="outlive outages of the store")
    return parser.parse_args()


class Contender:
    """One process among those that want the same thing."""

    def __init__(self, app: Tenure, options: argparse.Namespace) -> None:
        self._app = app
        self._options = options
        self._ledger = Ledger(options.ledger)
        self._counter = Counter(options.counter) if options.counter else None
        self._sink = FencedSink(options.sink) if options.sink else None
        self.outages = 0

    async def once(self) -> None:
        """Get inside, count, come out; or be refused, if eager."""
        name = random.choice(self._options.names)
        try:
            hold = await self._take(name)
            if hold is None:
                await asyncio.sleep(random.uniform(0.0, 0.002))
                return
            async with hold:
                await self._inside(name, hold)
        except LeaseLost as loss:
            # Allowed: the machine may have stood still. The ledger says so.
            self._ledger.lose(loss.fence)
        except StoreUnavailable:
            if not self._options.patient:
                raise
            self.outages += 1
            await asyncio.sleep(0.05)

    async def _take(self, name: str) -> Hold | None:
        options = self._options
        lock: Semaphore = self._app.lock(name, ttl=options.ttl)
        if options.limit > 1:
            lock = self._app.semaphore(name, options.limit, ttl=options.ttl)
        return await (lock.try_acquire() if options.eager else lock.acquire())

    async def _inside(self, name: str, hold: Hold) -> None:
        saw = self._counter.read() if self._counter else Count(0, 0)
        self._ledger.enter(name, hold.fence, saw)
        # Between reading and writing, so that a second one inside would spoil the count.
        try:
            await asyncio.sleep(self._options.stay)
        finally:
            if self._sink:  # also by who was told to stop: the sink has to refuse
                accepted = self._sink.write(hold.fence, self._options.ledger.stem)
                self._ledger.effect(hold.fence, accepted=accepted)
        hold.check()
        if self._counter:
            self._counter.write(Count(saw.value + 1, hold.fence))
        self._ledger.leave(hold.fence)


async def main() -> None:
    """Contend until told to end."""
    options = parsed()
    async with Tenure(options.url, namespace=options.namespace) as app, hearing() as hear:
        contender = Contender(app, options)
        tell("ready")
        await hear()
        end = asyncio.ensure_future(hear())
        while not end.done():
            await contender.once()
        tell("finished", outages=contender.outages)


if __name__ == "__main__":
    asyncio.run(main())
