"""The fence in your own SQL: a write that comes too late is refused.

A lease can be lost while a write is under way: the process was paused, the network held a packet
back. Nobody can stop such a write, so the place it goes to has to refuse it. It keeps the
highest fence it has seen, and takes only writes that carry at least that.
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
            print("slow holder computes 150 and sends it off ...")
        async with app.lock("account:7") as quick:
            print("quick holder writes 120:", "ok" if set_balance(120, quick.fence) else "refused")
        # Only now does the first holder's write arrive.
        print("slow holder's 150 arrives:", "ok" if set_balance(150, slow.fence) else "refused")
        print("balance:", *db.execute("SELECT balance FROM account").fetchone())


asyncio.run(main())
db.close()
