from tests.process.site import Site, listed
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

TTL = 2.0  # short, and still four times what a loaded machine takes for a renewal
WAYS = ("sleep", "spin")


async def test_a_blocked_event_loop_loses_nothing(site: Site):
    holders = site.start_holders(TTL, *WAYS)
    for holder in holders:
        holder.send("acquire")
    fences = [holder.expect("held", SIZE.patience)["fence"] for holder in holders]
    async with site.app() as app:
        rivals = [app.lock(way, ttl=TTL) for way in WAYS]

        async def all_unblocked() -> bool:
            assert [await rival.try_acquire() for rival in rivals] == [None, None]
            assert [lease.fence for lease in await listed(app)] == fences
            return all(holder.events[-1]["kind"] == "unblocked" for holder in holders)

        for holder, way in zip(holders, WAYS, strict=True):
            holder.send(f"{way} {3 * TTL}")
        await wait_until_async(all_unblocked, SIZE.patience, "the loops are free again")

    for holder, fence in zip(holders, fences, strict=True):
        after = holder.expect("unblocked")
        assert (after["lost"], after["fence"]) == (False, fence)
        holder.send("release")
        assert holder.expect("released", SIZE.patience)["fence"] == fence
