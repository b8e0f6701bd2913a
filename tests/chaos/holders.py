"""Processes that want the same locks, and write down honestly when they were inside.

`at` is read before the look that proves the hold, so a pause between the two can only make a stay
seem shorter than it was. Whoever was paused writes to the sink before it looks, as careless code
would: the sink has to refuse, and the look that follows has to tell.
"""

import asyncio
import time

from tenure import LeaseLost
from tenure.locks.hold import Hold
from tests.chaos.roles import Actor, Order
from tests.process.orders import boot

_NAP = 0.004


class Holder(Actor):
    """Takes one lock or semaphore after the other."""

    async def live(self) -> None:
        async with self.opened(self.app()) as app:

            async def once() -> None:
                name = self.chance.choice(self.order.names)
                limit = self.order.limits.get(name, 1)
                lock = app.semaphore(name, limit, ttl=self.order.ttl)
                hold = await (lock.try_acquire() if self.chance.random() < 0.5 else lock.acquire())
                if hold is not None:
                    await self._stay(name, limit, hold)
                await asyncio.sleep(self.chance.uniform(0, self.order.pace))

            await self.until_told(once)

    async def _stay(self, name: str, limit: int, hold: Hold) -> None:
        # Seen before the block, because leaving it may say the same.
        was_lost = False
        try:
            async with hold:
                was_lost = await self._inside(name, limit, hold)
        except LeaseLost:
            if not was_lost:
                self.diary.write("notified of loss", key=name, fence=hold.fence)

    async def _inside(self, name: str, limit: int, hold: Hold) -> bool:
        """Stay a while; say whether the loss was seen and written down."""
        entered = boot()
        lost = hold.is_lost
        self.diary.write(
            "entered", at=entered, key=name, fence=hold.fence, limit=limit, ttl=self.order.ttl
        )
        if lost:
            return self._sees_a_loss(name, hold)
        # The fence of a semaphore excludes no other holder, so a sink cannot go by it.
        write = self.sink.write if limit == 1 else _nowhere
        write(name, hold.fence)
        trusted = self._says_how_long(name, limit, hold)
        until = boot() + min(self.chance.expovariate(4 / self.order.longest), self.order.longest)
        deaf = self.chance.random() < 0.5
        while (before := boot()) < until:
            if deaf:
                time.sleep(_NAP)  # noqa: ASYNC251 - a look right after a pause, before the loop's turn
            else:
                await asyncio.sleep(_NAP)
            if boot() - before > self.order.ttl:
                write(name, hold.fence)
            if hold.is_lost:
                return self._sees_a_loss(name, hold)
            if boot() > trusted + self.order.ttl / 4:
                trusted = self._says_how_long(name, limit, hold)
        left = boot()
        hold.check()
        self.diary.write("leaves", at=left, key=name, fence=hold.fence)
        write(name, hold.fence)
        return False

    def _says_how_long(self, name: str, limit: int, hold: Hold) -> float:
        """Write down how long the lease lasts: no other process may get it before."""
        now = boot()
        lasts = hold.expires_in()  # looked at later than the clock, so a pause makes it shorter
        self.diary.write("acts", at=now, key=name, fence=hold.fence, limit=limit, seconds=lasts)
        return now

    def _sees_a_loss(self, name: str, hold: Hold) -> bool:
        self.diary.write("noticed loss", key=name, fence=hold.fence)
        return True


def _nowhere(name: str, fence: int) -> None:
    """Take no effect."""


async def main(order: Order) -> None:
    """Hold until told to end."""
    await Holder(order).live()
