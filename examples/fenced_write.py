"""The fence in your own SQL: the database refuses a write that comes too late.

A lease can be lost while a write is in flight: the process was paused, or the network delayed a
packet. Nothing can stop such a write, so the database has to refuse it. The row keeps the highest
fence that it has seen, and accepts only writes with at least that fence.
"""

import asyncio
import sqlite3

from tenure import Tenure

app = Tenure()
db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER)")
db.execute("INSERT INTO account VALUES (7, 100, 0)")


def set_balance(balance: int, fence: int) -> bool:
    """Return whether the write was accepted.

    `fence <= :fence` lets one hold write several times; `fence < :fence` only once, and a repeat
    then changes nothing.
    """
    with db:
        done = db.execute(
            "UPDATE account SET balance = :balance, fence = :fence"
            " WHERE id = 7 AND fence <= :fence",
            {"balance": balance, "fence": fence},
        )
    return done.rowcount == 1


async def main() -> None:
    async with app:
        async with app.lock("account:7") as slow:
            print("slow holder computes 150 and sends it ...")
        async with app.lock("account:7") as quick:
            print("quick holder writes 120:", "ok" if set_balance(120, quick.fence) else "refused")
        # Only now does the first holder's write arrive.
        print("slow holder's 150 arrives:", "ok" if set_balance(150, slow.fence) else "refused")
        print("balance:", *db.execute("SELECT balance FROM account").fetchone())


asyncio.run(main())
db.close()
