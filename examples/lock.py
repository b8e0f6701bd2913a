"""A lock: one holder across all replicas.

Like every example here it uses the store in TENURE_URL, or else a file tenure.db in the current
directory. Start it twice at the same time: the two processes take turns.
"""

import asyncio

from tenure import AcquireTimeout, Tenure

app = Tenure()


async def charge(worker: int) -> None:
    async with app.lock("invoice:42", ttl=30, wait=20) as hold:
        print(f"worker {worker} charges, fence {hold.fence}")
        await asyncio.sleep(0.2)


async def wait_in_vain() -> None:
    try:
        async with app.lock("invoice:42", wait=0.3):
            print("never printed")
    except AcquireTimeout as error:
        print(f"AcquireTimeout: {error}")


async def main() -> None:
    async with app:
        # Three tasks want the lock at once. They get it one after the other, in order of arrival.
        await asyncio.gather(*(charge(worker) for worker in (1, 2, 3)))

        # acquire() instead of a block, for a hold that outlives the function that acquires it.
        hold = await app.lock("invoice:42", meta={"why": "month end"}).acquire()
        async with hold:
            print("try_acquire:", await app.lock("invoice:42").try_acquire())
            for lease in await app.locks("invoice:"):
                print(f"{lease.key} is held for {lease.held_for:.1f} s by {dict(lease.meta)}")
            await asyncio.create_task(wait_in_vain())


asyncio.run(main())
