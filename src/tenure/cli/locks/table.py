"""How locks look on a screen and in a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from tenure.cli.tables import Cell, ShrinkingCell, table
from tenure.cli.text import duration, safe
from tenure.core.leases import Lease

__all__ = ["by_name", "details", "document", "holder_document", "listed", "process_of"]


def by_name(leases: Iterable[Lease]) -> Iterator[tuple[str, list[Lease]]]:
    """Yield each lock with its holders and waiters."""
    for name, group in groupby(leases, lambda lease: lease.key):
        yield name, list(group)


def document(lock: tuple[str, list[Lease]]) -> dict[str, Any]:
    """Return what a list says about a lock."""
    name, leases = lock
    return {
        "name": name,
        "holders": [holder_document(lease) for lease in leases if not lease.waiting],
        "waiting": [_waiter_document(lease) for lease in leases if lease.waiting],
    }


def holder_document(lease: Lease) -> dict[str, Any]:
    """Return what JSON documents say about a holder."""
    return {
        "holder": lease.holder,
        "fence": lease.fence,
        "limit": lease.limit,
        "ttl": lease.ttl,
        "held_for": lease.held_for,
        "expires_in": lease.expires_in,
        "meta": dict(lease.meta),
    }


def _waiter_document(lease: Lease) -> dict[str, Any]:
    return {
        "holder": lease.holder,
        "limit": lease.limit,
        "ttl": lease.ttl,
        "waits_for": lease.held_for,
        "meta": dict(lease.meta),
    }


def process_of(lease: Lease) -> str:
    """Return host and process of a holder, or its id if they are not recorded."""
    host, pid = lease.meta.get("host"), lease.meta.get("pid")
    return safe(f"{host}:{pid}" if host and pid else lease.holder)


def listed(
    leases: list[Lease], prefix: str, *, waiting: bool, older: float | None = None
) -> RenderableType:
    """Return a table with a row for each holder, and for each waiter if `waiting`.

    With `older`, only for holders and waiters of more than this time, and for such waiters in any
    case. Slots and waiters are counted as ever.
    """
    scope = f' whose name starts with "{safe(prefix)}"' if prefix else ""
    if not leases:
        return Text(f"No lock{scope} is held.")
    rows: list[list[Cell]] = []
    for name, group in by_name(leases):
        held = [lease for lease in group if not lease.waiting]
        waiters = [lease for lease in group if lease.waiting]
        slots = f"{len(held)} of {min((lease.limit for lease in held), default=1)}"
        for lease in held:
            if older is not None and lease.held_for <= older:
                continue
            times = [duration(lease.held_for), duration(lease.expires_in)]
            start: list[Cell] = [safe(name), ShrinkingCell(process_of(lease)), str(lease.fence)]
            rows.append([*start, *times, slots, str(len(waiters))])
        if waiting or not held or older is not None:
            rows += (
                [
                    safe(name),
                    ShrinkingCell(process_of(lease)),
                    Text("waits", "yellow"),
                    duration(lease.held_for),
                    *("", "", ""),
                ]
                for lease in waiters
                if older is None or lease.held_for > older
            )
    if not rows:
        return Text(f"No lock{scope} is held, or waited for, for more than {duration(older or 0)}.")
    columns = ("NAME", "HOLDER", "FENCE", "FOR", "EXPIRES", "SLOTS", "WAITING")
    return table(rows, columns, right=columns[3:], optional=("SLOTS", "EXPIRES", "WAITING"))


def details(name: str, leases: list[Lease]) -> Iterator[RenderableType]:
    """Yield all that is known about one lock."""
    held = [lease for lease in leases if not lease.waiting]
    waiters = [lease for lease in leases if lease.waiting]
    if not leases:
        yield Text(f"{safe(name)} is not held, and no process waits for it.")
        return
    limit = min((lease.limit for lease in held), default=1)
    state = f"  {len(held)} of {limit} held, {len(waiters)} waiting"
    yield Text.assemble((safe(name), "bold"), state)
    for lease in held:
        yield Text()
        left = f"in {duration(lease.expires_in)} of {duration(lease.ttl)}, unless renewed"
        yield table(
            [
                ["holder", process_of(lease)],
                ["fence", str(lease.fence)],
                ["held for", duration(lease.held_for)],
                ["expires", left],
                ["id", safe(lease.holder)],
                *([safe(key), safe(value)] for key, value in _own_meta(lease)),
            ]
        )
    if waiters:
        yield Text()
        yield table(
            [
                [str(place), ShrinkingCell(process_of(lease)), duration(lease.held_for)]
                for place, lease in enumerate(waiters, 1)
            ],
            ("PLACE", "WAITER", "FOR"),
            right=("FOR",),
        )


def _own_meta(lease: Lease) -> Iterator[tuple[str, str]]:
    """Yield the user's own meta, without the host and pid that name the process."""
    shown = {"host", "pid"} if "host" in lease.meta and "pid" in lease.meta else set()
    for key, value in sorted(lease.meta.items()):
        if key not in shown:
            yield key, value
