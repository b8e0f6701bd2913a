"""What comes in at the shop: mails, orders, a sale, and the reports of two tenants.

What a machine still has to ask for outlives its crashes. A request that the store refuses is given
up, like one whose customer sees an error page; only those with a unique key are repeated.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tenure.errors import StoreUnavailable
from tenure.jobs import Task, Unique
from tests.sim.fleet import Fleet, Process
from tests.sim.scenarios.shop_plan import BIG, CHECKOUT, EACH, HOUR, MAIL, SALE, SMALL

if TYPE_CHECKING:
    from tests.sim.scenarios.shop import Shop

__all__ = ["Item", "are_asking", "come"]

_LAST = HOUR - 60.0
_BATCH = 200
_AGAIN = 1.0


class Item(Struct, frozen=True):
    """What a job of the shop is about."""

    number: int
    seconds: float = 0.0


def come(process: Process, shop: Shop) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield what comes in at a machine, each to be run beside the others."""
    memory = process.machine.memory
    yield _visitors(process, shop)
    if "flood" in memory:
        yield _flood(process, shop)
    if "small" in memory:
        yield _small(process, shop)
    if "sale" in memory:
        yield _sale(process, shop)


def are_asking(fleet: Fleet) -> bool:
    """Return whether anything is on its way to the store, or still to be asked for."""
    memories = [machine.memory for machine in fleet.machines]
    return any(
        memory["asking"] or memory.get("small") or memory.get("flood", (0, 0))[1]
        for memory in memories
    )


async def _visitors(process: Process, shop: Shop) -> None:
    """Send a mail every ten seconds or so; every fifth visitor checks out."""
    memory, dice = process.machine.memory, process.machine.dice
    first = EACH * process.machine.number
    while process.fleet.loop.time() < _LAST:
        await process.clock.sleep(dice.uniform(2, 18))
        memory["mails"] += 1
        await _ask(process, shop.mail, Item(MAIL + first + memory["mails"], 0.2))
        if memory["mails"] % 5 == 0:
            number = CHECKOUT + first + memory["mails"]
            await _ask(process, shop.checkout, Item(number), unique=f"checkout:{number}")


async def _flood(process: Process, shop: Shop) -> None:
    """Enqueue thousands of reports of one tenant."""
    memory, dice = process.machine.memory, process.machine.dice
    at, _ = memory["flood"]
    await _until(process, at)
    while (left := memory["flood"][1]) > 0:
        number = min(_BATCH, left)
        memory["flood"] = (at, left - number)
        items = [Item(BIG + left - place, round(dice.uniform(5, 15), 3)) for place in range(number)]
        await _ask_many(process, shop, shop.big, items)


async def _small(process: Process, shop: Shop) -> None:
    """Enqueue the three reports of another tenant, while the first one has many."""
    memory = process.machine.memory
    while memory["small"]:
        at, number = memory["small"][0]
        await _until(process, at)
        waiting = process.fleet.server.data.jobs.jobs.values()
        backlog = sum(job.state == "waiting" and job.new.queue == "tenant-big" for job in waiting)
        process.say("beside", number=SMALL + number, limit=backlog)
        await _ask(process, shop.small, Item(SMALL + number, 1.0), unique=f"small:{number}")
        memory["small"].pop(0)


async def _sale(process: Process, shop: Shop) -> None:
    """Let hundreds of customers check out at once."""
    memory = process.machine.memory
    await _until(process, memory["sale"])
    first = CHECKOUT + EACH * len(process.fleet.machines)
    left = memory.setdefault("sold", SALE)
    while left > 0:
        number = min(_BATCH, left)
        memory["sold"] = left - number
        items = [Item(first + left - place) for place in range(number)]
        await _ask_many(process, shop, shop.checkout, items)
        left = memory["sold"]


async def _until(process: Process, at: float) -> None:
    while (left := at - process.fleet.loop.time()) > 0:
        await process.clock.sleep(left)


async def _ask(
    process: Process, task: Task[[Item], Any], item: Item, unique: str | None = None
) -> None:
    """Enqueue a job; one with a unique key until the store accepts it."""
    request = task.using(unique=None if unique is None else Unique(unique, keep="1d"))
    with _asking(process):
        process.say("offered", number=item.number)
        while True:
            try:
                job = await request.enqueue(item)
            except StoreUnavailable as error:
                process.say("refused", number=item.number, detail=type(error).__name__)
                if unique is None:
                    return
                await process.clock.sleep(_AGAIN)
            else:
                process.say("accepted", number=item.number, job=job.id)
                return


async def _ask_many(
    process: Process, shop: Shop, task: Task[[Item], Any], items: Sequence[Item]
) -> None:
    """Enqueue many jobs at once."""
    with _asking(process):
        for item in items:
            process.say("offered", number=item.number)
        try:
            accepted = await shop.app.enqueue_many(task.request(item) for item in items)
        except StoreUnavailable as error:
            process.say("refused", number=items[0].number, detail=type(error).__name__)
            return
        for item, job in zip(items, accepted, strict=True):
            process.say("accepted", number=item.number, job=job.id)


@contextmanager
def _asking(process: Process) -> Iterator[None]:
    """Tell that something is on its way to the store."""
    memory = process.machine.memory
    memory["asking"] += 1
    try:
        yield
    finally:
        memory["asking"] = max(0, memory["asking"] - 1)
