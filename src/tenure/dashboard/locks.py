"""The page about locks and semaphores: who holds them, and who waits."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tenure.core.leases import Lease
from tenure.dashboard.documents import place_of
from tenure.dashboard.request import Request, checked_name
from tenure.dashboard.site import Site
from tenure.dashboard.snapshot import LEASES_MAX

__all__ = ["locks"]


async def locks(site: Site, request: Request) -> dict[str, Any]:
    """Return locks by name, up to 1,000 holders and waiters."""
    prefix = request.query.get("prefix", "")
    if prefix:
        checked_name(prefix, "prefix")
    leases = await site.snapshot.leases(prefix)
    documents = [
        _document(name, [*group]) for name, group in groupby(leases, lambda lease: lease.key)
    ]
    return await site.stamped({"locks": documents, "is_capped": len(leases) >= LEASES_MAX})


def _document(name: str, leases: list[Lease]) -> dict[str, Any]:
    held = [lease for lease in leases if not lease.waiting]
    return {
        "name": name,
        # The smallest limit of the holders rules; without holders, that of the first waiter.
        "limit": min((lease.limit for lease in held or leases[:1]), default=1),
        "holders": [
            {
                "holder": lease.holder,
                "fence": lease.fence,
                "ttl": lease.ttl,
                "held_for": lease.held_for,
                "expires_in": lease.expires_in,
                "where": place_of(lease.meta),
                "meta": {**lease.meta},
            }
            for lease in held
        ],
        "waiters": [
            {
                "holder": lease.holder,
                "waiting_for": lease.held_for,
                "where": place_of(lease.meta),
                "meta": {**lease.meta},
            }
            for lease in leases
            if lease.waiting
        ],
    }
