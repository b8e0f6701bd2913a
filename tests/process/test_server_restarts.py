import asyncio
from pathlib import Path
from statistics import median

import pytest

from tenure import Tenure
from tenure.core.lease_policy import WAITER_LIFE
from tests.process import history
from tests.process.crowd import Crowd
from tests.process.site import Site, listed, until_waiting
from tests.rig.processes import Child
from tests.rig.servers import Postgres, Valkey
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

HAND_OVERS = 7
# A pushed waiter needs some milliseconds. One that only looks now and then needs at least
# `NEXT_LOOK`, because it is given what it waits for when its next look is that far ahead.
PUSHED_WITHIN = 0.3
NEXT_LOOK = 0.5
LONG_TTL = 10.0  # longer than any restart


@pytest.mark.draw(1)
@pytest.mark.on("redis", "postgres")
@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_clients_outlive_a_server_and_are_woken_by_push_again(
    site: Site, server: Valkey | Postgres, end: str, tmp_path: Path
):
    crowd = Crowd(site, tmp_path, "load", "--patient")
    giver, taker = site.start_holders(LONG_TTL, "baton", "baton")
    await crowd.gather(SIZE.processes // 2)
    async with site.app() as app:
        await line_up(app, giver, taker)
        await crowd.each_works_on()
        await asyncio.to_thread(server.kill if end == "kill" else server.stop)
        await asyncio.to_thread(server.start)
        await crowd.each_works_on()
        await crowd.dismiss()

        assert await hand_over(app, giver, taker) < NEXT_LOOK, "who waited through it is not woken"
        latencies = []
        for _ in range(HAND_OVERS):
            await line_up(app, giver, taker)
            latencies.append(await hand_over(app, giver, taker))
        assert median(latencies) < PUSHED_WITHIN, latencies
    history.check_one_at_a_time(crowd.sections())
    history.check_fences_rise(crowd.sections())


@pytest.mark.on("redis")
async def test_a_server_that_comes_back_empty_hands_out_higher_fences(site: Site, server: Valkey):
    ttl = 3.0
    old, heir = site.start_holders(ttl, "ark", "ark")
    old.send("acquire")
    first = old.expect("held", SIZE.patience)["fence"]
    heir.send("acquire")
    async with site.app() as app:
        await until_waiting(app, "ark", 1)
    await asyncio.to_thread(server.restart, empty=True)

    assert old.expect("lost", ttl + 2.0)["fence"] == first
    second = heir.expect("held", SIZE.patience)["fence"]
    assert second > first
    old.send("acquire")
    heir.send("release")
    assert heir.expect("released", SIZE.patience)["fence"] == second
    third = old.expect("held", SIZE.patience)["fence"]
    assert third > second
    old.send("release")
    assert old.expect("released", SIZE.patience)["fence"] == third


async def line_up(app: Tenure, giver: Child, taker: Child) -> None:
    """Let one hold the baton and the other wait for it."""
    giver.send("acquire")
    giver.expect("held", SIZE.patience)
    taker.send("acquire")
    await until_waiting(app, "baton", 1)


async def hand_over(app: Tenure, giver: Child, taker: Child) -> float:
    """Return how long a sleeping waiter takes to hold what is given back."""
    await until_asleep(app, "baton")
    giver.send("release")
    released = giver.expect("releasing", SIZE.patience)["boot"]
    held = taker.expect("held", SIZE.patience)["boot"]
    taker.send("release")
    assert giver.expect("released", SIZE.patience)
    assert taker.expect("released", SIZE.patience)
    return held - released


async def until_asleep(app: Tenure, name: str) -> None:
    """Return when the waiter's last look lies a little back and its next one far ahead.

    Every look renews its place in the line, so the age of that place is the age of the look.
    """

    async def asleep() -> bool:
        waiters = [lease for lease in await listed(app, name) if lease.waiting]
        ages = [WAITER_LIFE - waiter.expires_in for waiter in waiters]
        return any(0.2 < age < WAITER_LIFE / 3 - NEXT_LOOK for age in ages)

    await wait_until_async(asleep, SIZE.patience, f"the waiter for {name!r} sleeps")
