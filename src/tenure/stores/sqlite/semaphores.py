"""Counts the leases of a semaphore in a row of its own, so that many leases do not slow calls."""

from __future__ import annotations

from tenure.stores.sqlite.statements import Row, Transaction
from tenure.stores.sqlite.tables import SEMAPHORE

__all__ = ["REMOVE_LEASES", "REMOVE_SEMAPHORE", "Count"]

# All of a key. By primary key.
REMOVE_LEASES = "DELETE FROM tenure_lease WHERE namespace = :namespace AND key = :key"

REMOVE_ENDED = """
    DELETE FROM tenure_lease INDEXED BY tenure_lease_end
    WHERE namespace = :namespace AND key = :key AND "limit" > 1 AND expires <= :now
"""

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

# The number of leases without that of a holder, and their limits. By primary key.
LIMITS = """
    SELECT count(*), min("limit"), max("limit")
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder <> :holder
      AND typeof("limit") = 'integer'
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
            self.shrink(tx.change(REMOVE_LEASES, key=self._key))
            return
        if not tx.boot_id:
            tx.change(CLAMP_LEASES, key=self._key)  # as in `Key._settle_sole`
        self.shrink(tx.change(REMOVE_ENDED, key=self._key))

    def _made_anew(self) -> Row:
        """Recompute the row of a semaphore, because it is damaged."""
        tx = self._tx
        tx.damage.report(
            "lock", self._key, "its count is wrong; it is computed again", "tenure_semaphore"
        )
        ((live, lowest, highest),) = tx.rows(LIMITS, key=self._key, holder="")
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
        self.lowest, self.highest = self.limits(without="")
        self._write()

    def limits(self, *, without: str) -> tuple[int, int]:
        """Return the smallest and the largest limit of the other holders.

        It visits all leases only while their limits differ: during a deployment that changes the
        limit.
        """
        if self.lowest == self.highest:
            return self.lowest, self.highest
        ((_, lowest, highest),) = self._tx.rows(LIMITS, key=self._key, holder=without)
        return lowest, highest

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
