from tests.process.orders import boot
from tests.process.site import Site, listed, until_waiting
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async

TTL = 2.0
AT_ONCE = 3


async def test_a_waiter_follows_a_killed_holder_within_a_second_of_the_ttl(site: Site):
    names = [f"orphan-{number}" for number in range(AT_ONCE)]
    children = site.start_holders(TTL, *names, *names)
    holders, waiters = children[:AT_ONCE], children[AT_ONCE:]
    for holder in holders:
        holder.send("acquire")
    fences = [holder.expect("held", SIZE.patience)["fence"] for holder in holders]
    async with site.app() as app:
        for name, waiter in zip(names, waiters, strict=True):
            waiter.send("acquire")
            await until_waiting(app, name, 1)

    killed = []
    for holder in holders:
        killed.append(boot())
        holder.kill()
    for since, waiter, fence in zip(killed, waiters, fences, strict=True):
        held = waiter.expect("held", SIZE.patience)
        assert held["fence"] > fence
        assert held["boot"] - since <= TTL + 1.0
        waiter.send("release")
        assert waiter.expect("released", SIZE.patience)


async def test_the_killed_leave_nothing_behind_after_one_ttl(site: Site):
    ttl = 3.0  # as long as a place in the line lives
    children = site.start_holders(ttl, "left", "left", "left", "right", "right")
    for child in children:
        child.send("acquire")

    async with site.app() as app:
        await wait_until_async(lambda: _count(app, 5), SIZE.patience, "two hold and three wait")
        for child in children:
            child.kill()
        await wait_until_async(lambda: _count(app, 0), ttl + 1.0, "nothing is left")


async def _count(app, number: int) -> bool:
    return len(await listed(app)) == number
