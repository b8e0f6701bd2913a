"""The records of one lock, and what is wrong with those that cannot be read."""

from __future__ import annotations

from tenure.core.leases import Lease
from tenure.stores.contract import Store

__all__ = ["advice_for_damage", "damage_of", "leases_of"]

_MOST = 100_000


async def leases_of(store: Store, name: str) -> list[Lease]:
    """Return all holders and waiters of a lock."""
    # Names come in order, and no other name that starts with this one comes before it.
    return [lease for lease in await store.leases.find(name, limit=_MOST) if lease.key == name]


def damage_of(store: Store, name: str) -> str:
    """Return what is wrong with the records of a lock, and where; "" if all could be read."""
    problems = (
        f"{record.why} (in {record.where})"
        for record in store.damage
        if record.kind in ("lock", "waiter") and record.name == name
    )
    return next(problems, "")


def advice_for_damage(name: str, damage: str) -> str:
    """Return the error for a lock that cannot be read."""
    return (
        f"Cannot read {name!r}: {damage}. It counts as held. If its holder is gone, remove it with "
        f"'tenure locks release {name} --force'."
    )
