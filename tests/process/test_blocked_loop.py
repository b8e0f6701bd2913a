import pytest

from tests.process.site import Site, listed
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until_async

TTL = 1.0


@pytest.mark.parametrize("how", ["sleep", "spin"])
async def test_a_blocked_event_loop_loses_nothing(site: Site, how: str):
    [holder] = site.start_holders(TTL, "report")
    holder.send("acquire")
    fence = holder.expect("held", SIZE.patience)["fence"]
    async with site.app() as app:
        rival = app.lock("report", ttl=TTL)

        async def unblocked() -> bool:
            assert await rival.try_acquire() is None
            [lease] = await listed(app, "report")
            assert lease.fence == fence
            return any(event["kind"] == "unblocked" for event in holder.events)

        holder.send(f"{how} {3 * TTL}")
        await wait_until_async(unblocked, SIZE.patience, "the loop is free again")
        assert await rival.try_acquire() is None
    after = holder.expect("unblocked")
    assert (after["lost"], after["fence"]) == (False, fence)
    holder.send("release")
    assert holder.expect("released", SIZE.patience)["fence"] == fence
