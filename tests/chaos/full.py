"""Redis has no memory left for a while: new jobs are refused, and everything else goes on.

The server stays full until it is given more memory, because finished jobs are kept. Meanwhile the
backlog has to drain, a worker is killed and another one starts, and holders keep their locks.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from tests.chaos.disks import works
from tests.chaos.places import Place
from tests.chaos.storm import Scene, scene
from tests.chaos.tally import Tally
from tests.process.orders import boot
from tests.rig.sizes import SIZE, Storm
from tests.rig.wait import wait_until_async

_CREW = {"worker": 3, "producer": 2, "holder": 3}
_ROOM = 24 << 20
_BALLAST = 60_000
# Long enough for a busy machine. The server is full for three of them, so that locks that were
# taken before are lost unless they are renewed while it is.
_TTL = 4.0
_LOSSES = ("noticed loss", "notified of loss")


async def fill_memory(
    place: Place, tally: Tally, size: Storm, seed: int, *, faults: bool = True
) -> None:
    """Fill the memory of a server at work, and give it more, several times."""
    tally.demand("full servers", size.rounds)
    tally.demand("refused by a full server", size.rounds)
    tally.demand("drained while full", size.rounds)
    tally.demand("kills", size.rounds)
    tally.demand("accepted", 100 * size.rounds)
    orders = {
        "producer": {"pace": 0.02, "ballast": _BALLAST},
        "holder": {"longest": 3 * _TTL},
    }
    async with scene(place, tally, seed, orders=orders, ttl=_TTL) as here:
        for role, number in _CREW.items():
            for _ in range(number):
                here.start(role)
        await works(here, "before the server is full")
        for _ in range(size.rounds if faults else 0):
            async with _limited(place):
                await _be_full(here, tally)
            await works(here, "after the server was full")
        await here.settle_down()
        await here.account()
    tally.expect_none("locks lost on a full server")


@asynccontextmanager
async def _limited(place: Place) -> AsyncIterator[None]:
    """Give the server so much room, and in the end as much as it likes."""
    async with Redis.from_url(place.url) as operator:
        used = (await operator.info("memory"))["used_memory"]
        await operator.config_set("maxmemory", used + _ROOM)
        try:
            yield
        finally:
            await operator.config_set("maxmemory", 0)


async def _be_full(here: Scene, tally: Tally) -> None:
    began = boot()

    def is_refused() -> bool:
        refusals = (
            entry for entry in here.entries() if entry.what == "unavailable" and entry.at > began
        )
        return any(refusal.detail.startswith("StoreFull") for refusal in refusals)

    await wait_until_async(is_refused, 3 * SIZE.patience, "a producer is refused")
    full_since = boot()
    tally.add("refused by a full server")
    await _replace_a_worker(here, tally)
    await _drain(here, tally)
    await asyncio.sleep(max(0.0, full_since + 3 * _TTL - boot()))
    tally.add("full servers")
    # A lease that was renewed before lasts for a ttl; after that it lives by renewals while full.
    losses = [
        entry for entry in here.entries() if entry.what in _LOSSES and entry.at > full_since + _TTL
    ]
    tally.add("locks lost on a full server", len(losses))


async def _replace_a_worker(here: Scene, tally: Tally) -> None:
    """Kill a worker: others recover its jobs, and its successor joins, on a full server."""
    [victim, *_] = here.brood.living("worker")
    if await here.brood.kill(victim):
        tally.add("kills")
    here.replace(victim)


async def _drain(here: Scene, tally: Tally) -> None:
    """Wait until all jobs that were accepted have finished; the producers get no more in."""
    async with here.place.app() as app:

        async def is_drained() -> bool:
            return not any(queue.running or queue.waiting for queue in await app.queues())

        try:
            await wait_until_async(is_drained, 3 * SIZE.patience)
        except AssertionError:
            tally.violate(f"a full server does not drain: {await app.queues()}")
        else:
            tally.add("drained while full")
