"""The queue of a lease key: its waiters and their order."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from tenure.stores.sqlite.statements import Transaction
from tenure.stores.sqlite.tables import WAITER

__all__ = ["Claim", "Line", "Waiter"]

# The whole queue: a process has one place, however many of its tasks wait. By primary key.
LINE = f"""
    SELECT place, holder, "limit", boot_id, renewed, expires, {WAITER.of("tenure_waiter")}
    FROM tenure_waiter
    WHERE namespace = :namespace AND key = :key
    ORDER BY place
"""  # noqa: S608 - put together from constants

# By primary key.
JOIN_LINE = """
    INSERT INTO tenure_waiter (namespace, key, place, holder, "limit", ttl, meta, boot_id,
                               arrived, renewed, expires)
    VALUES (:namespace, :key, :place, :holder, :limit, :ttl, :meta, :boot_id,
            :now, :now, :expires)
"""

# By primary key.
KEEP_PLACE = """
    UPDATE OR IGNORE tenure_waiter
    SET "limit" = :limit, ttl = :ttl, meta = :meta, renewed = :now, expires = :expires
    WHERE namespace = :namespace AND key = :key AND place = :place
"""

# As CLAMP_LEASES. By primary key.
CLAMP_WAITER = """
    UPDATE OR IGNORE tenure_waiter
    SET renewed = :now, expires = :expires
    WHERE namespace = :namespace AND key = :key AND place = :place
"""

# By primary key.
REMOVE_WAITER = """
    DELETE FROM tenure_waiter
    WHERE namespace = :namespace AND key = :key AND place = :place
"""


class Claim(Struct, frozen=True):
    """The arguments of an acquire. Times are microseconds."""

    holder: str
    limit: int
    ttl: int
    meta: str


class Waiter(Struct):
    """A stored place in the queue."""

    place: int
    holder: str
    limit: int
    boot_id: str
    renewed: int
    expires: int


class Line:
    """The waiters of a key at the transaction's instant, in order of place."""

    def __init__(self, tx: Transaction, key: str) -> None:
        self._tx = tx
        self._key = key
        self.waiters: list[Waiter] = []

    def load(self) -> None:
        """Read the queue, and remove places that have ended."""
        tx = self._tx
        for *row, is_sound in tx.rows(LINE, key=self._key):
            # The waiter of an unreadable place polls again soon, and takes a new place.
            waiter = Waiter(*row)
            if not is_sound or waiter.boot_id != tx.boot_id or waiter.expires <= tx.now:
                tx.change(REMOVE_WAITER, key=self._key, place=waiter.place)
                continue
            if waiter.renewed > tx.now:  # as in `Key._settle_sole`
                waiter.expires += tx.now - waiter.renewed
                tx.change(CLAMP_WAITER, key=self._key, place=waiter.place, expires=waiter.expires)
            self.waiters.append(waiter)

    def ahead_of(self, holder: str) -> int:
        """Return how many waiters come before `holder`; all of them if it has no place."""
        places = (at for at, waiter in enumerate(self.waiters) if waiter.holder == holder)
        return next(places, len(self.waiters))

    def join(self, claim: Claim, life: int) -> None:
        """Take a place at the end, or keep the place that the waiter has."""
        at = self.ahead_of(claim.holder)
        if at < len(self.waiters):
            statement, place = KEEP_PLACE, self.waiters[at].place
        else:
            statement, place = JOIN_LINE, self.waiters[-1].place + 1 if self.waiters else 0
        expires = self._tx.now + life
        self._tx.change(statement, key=self._key, place=place, expires=expires, **asdict(claim))

    def leave(self, holder: str) -> None:
        """Give up a place, if there is one."""
        at = self.ahead_of(holder)
        if at < len(self.waiters):
            self._tx.change(REMOVE_WAITER, key=self._key, place=self.waiters.pop(at).place)
