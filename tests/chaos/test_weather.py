"""The weather of the chaos: it counts the faults that hit a connection, not those requested."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import redis
import redis.asyncio

from tests.chaos.places import Place
from tests.chaos.tally import Tally
from tests.chaos.weather import Weather
from tests.rig.fixtures import Endpoint
from tests.rig.proxy import Proxy
from tests.rig.sizes import SIZE


class Calm(Proxy):
    """Takes every order to break something, and breaks nothing."""

    def cut_all(self) -> None: ...

    def freeze(self) -> None: ...

    def one_way(self, direction: object) -> None: ...

    def delay(self, seconds: float, direction: object = None) -> None: ...


async def chat(url: str, over: asyncio.Event) -> None:
    """Ask something all the time, whatever becomes of it."""
    async with redis.asyncio.Redis.from_url(url, socket_timeout=5, retry=None) as client:
        while not over.is_set():
            with suppress(redis.RedisError):
                await client.ping()
            await asyncio.sleep(0.001)


async def broken(network: Proxy, server: Endpoint, folder: Path) -> Counter[str]:
    """Return the effect of three faults, one of which cuts, on a connection that is used."""
    tally = Tally("test")
    place = Place("redis", folder, server.url, "test", network=network)
    no_brood = cast("Any", None)
    weather = Weather(place, no_brood, tally, SIZE.storm, random.Random(), 0.1, replace=no_brood)
    over = asyncio.Event()
    talking = asyncio.ensure_future(chat(network.url(server.url), over))
    try:
        for _ in range(3):
            await asyncio.sleep(0.1)
            await weather._break_the_network()
    finally:
        over.set()  # a client that is cancelled may not notice it
        await talking
    return tally.counts


async def test_faults_of_the_network_are_counted_by_what_they_hit(
    valkey_server: Endpoint, tmp_path: Path
):
    names = ("proxy faults", "connections cut", "messages held up")
    with Proxy(valkey_server.port, "resp") as network:
        counts = await broken(network, valkey_server, tmp_path)
        assert all(counts[name] > 0 for name in names)
    with Calm(valkey_server.port, "resp") as network:
        counts = await broken(network, valkey_server, tmp_path)
        assert not any(counts[name] for name in names)
