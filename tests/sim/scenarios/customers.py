"""The requests to the shop: mails, orders, a sale, and the reports of two tenants.

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
    disk = process.machine.disk
    yield _visitors(process, shop)
    if "flood" in disk:
        yield _flood(process, shop)
    if "small" in disk:
        yield _small(process, shop)
    if "sale" in disk:
        yield _sale(process, shop)


def are_asking(fleet: Fleet) -> bool:
    """Return whether anything is on its way to the store, or still to be asked for."""
    memories = [machine.disk for machine in fleet.machines]
    return any(
        disk["requesting"] or disk.get("small") or disk.get("flood", (0, 0))[1] for disk in memories
    )


async def _visitors(process: Process, shop: Shop) -> None:
    """Send a mail every ten seconds or so; every fifth visitor checks out."""
    disk, rng = process.machine.disk, process.machine.rng
    first = EACH * process.machine.number
    while process.fleet.loop.time() < _LAST:
        await process.clock.sleep(rng.uniform(2, 18))
        disk["mails"] += 1
        await _ask(process, shop.mail, Item(MAIL + first + disk["mails"], 0.2))
        if disk["mails"] % 5 == 0:
            number = CHECKOUT + first + disk["mails"]
            await _ask(process, shop.checkout, Item(number), unique=f"checkout:{number}")


async def _flood(process: Process, shop: Shop) -> None:
    """Enqueue thousands of reports of one tenant."""
    disk, rng = process.machine.disk, process.machine.rng
    at, _ = disk["flood"]
    await _until(process, at)
    while (left := disk["flood"][1]) > 0:
        number = min(_BATCH, left)
        disk["flood"] = (at, left - number)
        items = [Item(BIG + left - place, round(rng.uniform(5, 15), 3)) for place in range(number)]
        await _ask_many(process, shop, shop.big, items)


async def _small(process: Process, shop: Shop) -> None:
    """Enqueue the three reports of another tenant, while the first one has many."""
    disk = process.machine.disk
    while disk["small"]:
        at, number = disk["small"][0]
        await _until(process, at)
        waiting = process.fleet.server.data.jobs.jobs.values()
        backlog = sum(job.state == "waiting" and job.new.queue == "tenant-big" for job in waiting)
        process.record("beside", number=SMALL + number, limit=backlog)
        await _ask(process, shop.small, Item(SMALL + number, 1.0), unique=f"small:{number}")
        disk["small"].pop(0)


async def _sale(process: Process, shop: Shop) -> None:
    """Let hundreds of customers check out at once."""
    disk = process.machine.disk
    await _until(process, disk["sale"])
    first = CHECKOUT + EACH * len(process.fleet.machines)
    left = disk.setdefault("sold", SALE)
    while left > 0:
        number = min(_BATCH, left)
        disk["sold"] = left - number
        items = [Item(first + left - place) for place in range(number)]
        await _ask_many(process, shop, shop.checkout, items)
        left = disk["sold"]


async def _until(process: Process, at: float) -> None:
    while (left := at - process.fleet.loop.time()) > 0:
        await process.clock.sleep(left)


async def _ask(
    process: Process, task: Task[[Item], Any], item: Item, unique: str | None = None
) -> None:
    """Enqueue a job; one with a unique key until the store accepts it."""
    request = task.using(unique=None if unique is None else Unique(unique, keep="1d"))
    with _asking(process):
        process.record("offered", number=item.number)
        while True:
            try:
                job = await request.enqueue(item)
            except StoreUnavailable as error:
                process.record("refused", number=item.number, detail=type(error).__name__)
                if unique is None:
                    return
                await process.clock.sleep(_AGAIN)
            else:
                process.record("accepted", number=item.number, job=job.id)
                return


async def _ask_many(
    process: Process, shop: Shop, task: Task[[Item], Any], items: Sequence[Item]
) -> None:
    """Enqueue many jobs at once."""
    with _asking(process):
        for item in items:
            process.record("offered", number=item.number)
        try:
            accepted = await shop.app.enqueue_many(task.request(item) for item in items)
        except StoreUnavailable as error:
            process.record("refused", number=items[0].number, detail=type(error).__name__)
            return
        for item, job in zip(items, accepted, strict=True):
            process.record("accepted", number=item.number, job=job.id)


@contextmanager
def _asking(process: Process) -> Iterator[None]:
    """Tell that something is on its way to the store."""
    disk = process.machine.disk
    disk["requesting"] += 1
    try:
        yield
    finally:
        disk["requesting"] = max(0, disk["requesting"] - 1)
