"""Remembers leases of a key that ended without a release, for the grants that take them over."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.durations import micros
from tenure.core.leases import EXPIRED_MAX
from tenure.stores.sqlite.statements import Transaction, as_json

__all__ = ["HAS_EXPIRED", "REMOVE_EXPIRED", "Expired"]

# By primary key. A fence that is unsound breaks a constraint, and is left out.
ADD_EXPIRED = """
    INSERT OR IGNORE INTO tenure_expired (namespace, key, fence, ended)
    SELECT :namespace, :key, value, :ended FROM json_each(:fences)
"""

# By primary key.
TAKE_FIRST = """
    DELETE FROM tenure_expired
    WHERE namespace = :namespace AND key = :key AND fence = (
        SELECT min(fence) FROM tenure_expired WHERE namespace = :namespace AND key = :key)
"""

# By primary key.
TAKE_BACK = """
    DELETE FROM tenure_expired WHERE namespace = :namespace AND key = :key AND fence = :fence
"""

# By primary key.
FORGET_EXPIRED = """
    DELETE FROM tenure_expired WHERE namespace = :namespace AND key = :key AND ended <= :before
"""

# By primary key.
ANY_EXPIRED = "SELECT 1 FROM tenure_expired WHERE namespace = :namespace AND key = :key LIMIT 1"

# All of a key. By primary key.
REMOVE_EXPIRED = "DELETE FROM tenure_expired WHERE namespace = :namespace AND key = :key"


# Whether a key has any, as a part of other statements. By primary key.
HAS_EXPIRED = "EXISTS (SELECT 1 FROM tenure_expired WHERE namespace = :namespace AND key = :key)"


class Expired:
    """The expired leases of a key, by their fences."""

    def __init__(self, tx: Transaction, key: str) -> None:
        self._tx = tx
        self._key = key

    def add(self, fences: Sequence[int], *, ago: int = 0) -> None:
        """Remember expired leases that were just found; the last ended `ago` microseconds ago."""
        newest = sorted(fences)[-EXPIRED_MAX:]
        if newest:
            self._tx.change(
                ADD_EXPIRED, key=self._key, fences=as_json(newest), ended=self._tx.wall - ago
            )

    def take_first(self) -> None:
        """Forget the oldest one: a grant has taken it over."""
        self._tx.change(TAKE_FIRST, key=self._key)

    def take_back(self, fence: int) -> None:
        """Forget one that its holder has released after its end."""
        self._tx.change(TAKE_BACK, key=self._key, fence=fence)

    def forget(self, idle: float) -> bool:
        """Forget those that ended `idle` seconds ago. Returns whether none is left."""
        self._tx.change(FORGET_EXPIRED, key=self._key, before=self._tx.wall - micros(idle))
        return self._tx.row(ANY_EXPIRED, key=self._key) is None
