from tests.process.site import Site, until_waiting
from tests.rig.sizes import SIZE

WAITERS = 5
TTL = 10.0


async def test_processes_are_served_in_the_order_they_came(site: Site):
    # They come in another order than they were started in, so that their age explains nothing.
    *waiters, holder = site.start_holders(TTL, *["counter"] * (WAITERS + 1))
    waiters.reverse()
    holder.send("acquire")
    holder.expect("held", SIZE.patience)
    async with site.app() as app:
        for number, waiter in enumerate(waiters, start=1):
            waiter.send("acquire")
            waiter.send("release")  # at once, when it has been served
            await until_waiting(app, "counter", number)

    holder.send("release")
    fences = [waiter.expect("held", SIZE.patience)["fence"] for waiter in waiters]
    assert fences == sorted(fences)
    for waiter in waiters:
        waiter.expect("released", SIZE.patience)
