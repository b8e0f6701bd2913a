"""Calls of two processes at once: each is one atomic step, so no lease is granted twice or lost."""

import asyncio

import pytest

from tests.contract.other_process import KEYS, take_each
from tests.contract.worlds import World
from tests.rig.processes import Fleet

pytestmark = pytest.mark.leases


async def test_two_processes_never_get_the_same_lease(
    real_world: World, fleet: Fleet, pytestconfig: pytest.Config
):
    store = await real_world.store()
    if store.traits.scope == "process":
        pytest.skip("no other process can reach this store")
    named = pytestconfig.getoption("--lease-store") or ""
    child = fleet.start(
        "-m", "tests.contract.other_process", real_world.url, real_world.namespace, named
    )
    await asyncio.to_thread(child.expect, "ready")
    child.send("go")
    ours = await take_each(store, "test")
    theirs = (await asyncio.to_thread(child.expect, "done"))["fences"]

    assert sorted([*ours, *theirs]) == sorted(KEYS)
    live = {lease.key: (lease.holder, lease.fence) for lease in await store.leases.find()}
    assert live == {
        **{key: ("test", fence) for key, fence in ours.items()},
        **{key: ("other", fence) for key, fence in theirs.items()},
    }
