"""Counts the leases of a semaphore in a row of its own, so that many leases do not slow calls."""

from __future__ import annotations

from tenure.stores.sqlite.expired import Expired
from tenure.stores.sqlite.statements import Row, Transaction
from tenure.stores.sqlite.tables import SEMAPHORE

__all__ = ["REMOVE_LEASES", "REMOVE_SEMAPHORE", "Count"]

# What is returned of removed leases: numbers, whatever the damage.
_FENCE_KEPT_END = """RETURNING iif(typeof(fence) = 'integer', fence, 0), kept IS NOT 0,
              iif(boot_id = :boot_id AND typeof(expires) = 'integer', min(expires, :now), :now)
"""

# All of a key. By primary key.
REMOVE_LEASES = f"""
    DELETE FROM tenure_lease WHERE namespace = :namespace AND key = :key
    {_FENCE_KEPT_END}
"""  # noqa: S608 - put together from constants

REMOVE_ENDED = f"""
    DELETE FROM tenure_lease INDEXED BY tenure_lease_end
    WHERE namespace = :namespace AND key = :key AND "limit" > 1 AND expires <= :now
    {_FENCE_KEPT_END}
"""  # noqa: S608 - put together from constants

# Boot clocks start at 0 with the machine. Without boot ids, old leases seem to be renewed in the
# future. They get a full ttl from now, so that they end. By primary key; it visits all leases of
# the key, on systems without boot ids only.
CLAMP_LEASES = """
    UPDATE OR IGNORE tenure_lease
    SET renewed = :now, expires = :now + ttl
    WHERE namespace = :namespace AND key = :key AND renewed > :now
"""

NTH_END = """
    SELECT expires
    FROM tenure_lease INDEXED BY tenure_lease_end
    WHERE namespace = :namespace AND key = :key AND "limit" > 1
    ORDER BY expires
    LIMIT 1 OFFSET :nth
"""
NTH_END_FROM_LAST = NTH_END.replace("ORDER BY expires", "ORDER BY expires DESC")

# The number of leases, and their smallest and largest limit. By primary key.
LIMITS = """
    SELECT count(*), min("limit"), max("limit")
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND typeof("limit") = 'integer'
"""

# By primary key.
SMALLEST_BUT = """
    SELECT min("limit")
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder <> :holder
      AND typeof("limit") = 'integer' AND "limit" <> :limit
"""

# By primary key.
READ_SEMAPHORE = f"""
    SELECT boot_id, live, lowest, highest
    FROM tenure_semaphore
    WHERE namespace = :namespace AND key = :key AND {SEMAPHORE.of("tenure_semaphore")}
"""  # noqa: S608 - put together from constants

# By primary key.
KEEP_SEMAPHORE = """
    INSERT OR REPLACE INTO tenure_semaphore (namespace, key, boot_id, live, lowest, highest)
    VALUES (:namespace, :key, :boot_id, :live, :lowest, :highest)
"""

# By primary key.
REMOVE_SEMAPHORE = "DELETE FROM tenure_semaphore WHERE namespace = :namespace AND key = :key"

_SECOND = 1_000_000


class Count:
    """How many live leases a key has, and their smallest and largest limits.

    A semaphore's row is written whenever they change. A lock has none or one.
    """

    def __init__(self, tx: Transaction, key: str) -> None:
        self._tx = tx
        self._key = key
        self.live = self.lowest = self.highest = 0

    def load(self) -> None:
        """Read it for a key with leases of a semaphore, and remove ended leases."""
        tx = self._tx
        stored = tx.row(READ_SEMAPHORE, key=self._key) or self._made_anew()
        boot_id, self.live, self.lowest, self.highest = stored
        if boot_id != tx.boot_id:
            self._expire(tx.rows(REMOVE_LEASES, key=self._key))
            return
        if not tx.boot_id:
            tx.change(CLAMP_LEASES, key=self._key)  # as in `Key._settle_sole`
        self._expire(tx.rows(REMOVE_ENDED, key=self._key))

    def _expire(self, ended: list[Row]) -> None:
        expired = [(fence, end) for fence, kept, end in ended if not kept]
        ago = min((self._tx.now - end for _, end in expired), default=0)
        Expired(self._tx, self._key).add([fence for fence, _ in expired], ago=ago)
        self.shrink(len(ended))

    def _made_anew(self) -> Row:
        """Recompute the row of a semaphore, because it is damaged."""
        tx = self._tx
        tx.damage.report(
            "lock", self._key, "its count is wrong; it is computed again", "tenure_semaphore"
        )
        ((live, lowest, highest),) = tx.rows(LIMITS, key=self._key)
        return tx.boot_id, live, lowest or 1, highest or 1

    def add(self, limit: int) -> None:
        """Count one more lease."""
        self.lowest = min(limit, self.lowest) if self.live else limit
        self.highest = max(self.highest, limit)
        self.live += 1
        if limit > 1:
            self._write()

    def shrink(self, gone: int) -> None:
        """Subtract ended leases of a semaphore."""
        if gone == 0:
            return
        self.live -= gone
        if self.live == 0:
            self.lowest = self.highest = 0
            self._tx.change(REMOVE_SEMAPHORE, key=self._key)
            return
        # An ended lease may have had the smallest or the largest limit.
        if self.lowest < self.highest:
            ((_, self.lowest, self.highest),) = self._tx.rows(LIMITS, key=self._key)
        self._write()

    def smallest_but(self, limit: int, *, without: str) -> int | None:
        """Return the smallest limit of the other holders that differs from `limit`.

        It visits all leases only while their limits differ: during a deployment that changes the
        limit.
        """
        if self.lowest == self.highest:
            return self.lowest if self.lowest != limit else None
        rows = self._tx.rows(SMALLEST_BUT, key=self._key, holder=without, limit=limit)
        smallest: int | None = rows[0][0]
        return smallest

    def end(self, nth: int) -> int:
        """Return when the n-th lease of a semaphore ends, counted from 0."""
        # From the nearer end of the index: with one limit for all it is at the front, after the
        # limit was lowered near the back.
        last = self.live - 1 - nth
        statement = NTH_END if nth <= last else NTH_END_FROM_LAST
        row = self._tx.row(statement, key=self._key, nth=min(nth, last))
        return row[0] if row is not None and isinstance(row[0], int) else self._tx.now + _SECOND

    def _write(self) -> None:
        self._tx.change(
            KEEP_SEMAPHORE,
            key=self._key,
            live=self.live,
            lowest=self.lowest,
            highest=self.highest,
        )
