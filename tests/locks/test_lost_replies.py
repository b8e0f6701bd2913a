"""A request or reply that gets lost changes nothing for the user: on every store."""

import asyncio

import pytest

from tenure import StoreUnavailable, Tenure
from tenure.observe import HoldLost
from tests.contract.worlds import World
from tests.rig.proxy import Proxy
from tests.rig.wait import wait_until_async


async def only_lease(app: Tenure):
    [lease] = await app.locks()
    return lease


@pytest.mark.parametrize("lost", ["lose_reply", "lose_request"])
async def test_acquire_gives_the_same_grant(real_app, real_rival, faults, lost):
    rival = await real_rival()
    getattr(faults, lost)("acquire")
    async with real_app.lock("x", wait=10) as hold:
        assert (await only_lease(rival)).fence == hold.fence
        assert await rival.lock("x").try_acquire() is None
    # A grant without an answer locks no other caller out.
    again = await rival.lock("x").try_acquire()
    assert again is not None
    await again.release()


async def test_try_acquire_repeats_once(real_app, faults):
    faults.lose_reply("acquire")
    hold = await real_app.lock("x").try_acquire()
    assert hold is not None
    assert (await only_lease(real_app)).holder == hold.holder
    await hold.release()


async def test_an_acquire_that_is_given_up_leaves_nothing(real_app, real_rival, faults):
    rival = await real_rival()
    faults.lose_reply("acquire", times=2)
    with pytest.raises(StoreUnavailable):
        await real_app.lock("x").try_acquire()
    async with asyncio.timeout(10):
        await (await rival.lock("x").acquire()).release()


async def test_renew_is_no_false_loss(real_app, faults):
    seen: list[object] = []
    real_app.on_event(seen.append)
    async with real_app.lock("x", ttl=2) as hold:
        for _ in range(4):
            faults.lose_reply("renew")
            before = faults.calls["renew"]
            await wait_until_async(lambda at=before: faults.calls["renew"] >= at + 2, timeout=20)
        assert hold.is_held
    assert not any(isinstance(event, HoldLost) for event in seen)


@pytest.mark.parametrize("lost", ["lose_reply", "lose_request"])
async def test_release_is_no_loss_and_frees_at_once(real_app, real_rival, faults, lost):
    rival = await real_rival()
    async with real_app.lock("x"):
        getattr(faults, lost)("release")
    hold = await rival.lock("x").try_acquire()
    assert hold is not None
    await hold.release()


@pytest.fixture
def cut_off(family: str, world_url: str, proxy, request) -> Proxy:
    """A proxy in front of the test's server; stores without a server have none."""
    if family not in ("redis", "postgres"):
        pytest.skip("not a server")
    server = {"redis": "valkey_server", "postgres": "postgres_server"}[family]
    return proxy(request.getfixturevalue(server))


@pytest.mark.parametrize("fault", ["cut_after", "cut_before"])
async def test_on_the_wire(real_world: World, cut_off: Proxy, real_rival, fault):
    rival = await real_rival()
    url = cut_off.url(real_world.url)
    async with Tenure(url, namespace=real_world.namespace) as app:
        async with app.lock("warm"):
            pass
        getattr(cut_off, fault)(1)
        async with app.lock("x") as hold:
            assert (await only_lease(rival)).fence == hold.fence
            getattr(cut_off, fault)(1)
        hold = await rival.lock("x").try_acquire()
        assert hold is not None
        await hold.release()


async def test_a_held_reply_is_not_trusted_past_the_ttl(
    real_world: World, cut_off: Proxy, real_rival
):
    rival = await real_rival()
    url = cut_off.url(real_world.url)
    async with Tenure(url, namespace=real_world.namespace) as app:
        async with app.lock("warm"):
            pass
        held = cut_off.hold_reply(1)
        taking = asyncio.ensure_future(app.lock("x", ttl=1, wait=30).acquire())
        await asyncio.to_thread(held.wait_until_held)
        successor = await rival.lock("x", ttl=1).acquire()
        held.let_go()
        await successor.release()
        hold = await taking
        assert hold.fence > successor.fence
        assert hold.expires_in() > 0
        await hold.release()
