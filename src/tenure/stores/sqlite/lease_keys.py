"""One lease key in SQLite: its leases and waiters, and the rules for granting."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from tenure.core import bounds
from tenure.core.leases import Lease
from tenure.core.meta import decode_meta
from tenure.errors import StoreError
from tenure.stores.sqlite.expired import HAS_EXPIRED, Expired
from tenure.stores.sqlite.semaphores import Count
from tenure.stores.sqlite.statements import Transaction
from tenure.stores.sqlite.tables import LEASE
from tenure.stores.sqlite.waiters import Claim, Line

__all__ = ["RENEW_LEASE", "Grant", "Key"]

# A damaged fence cannot be incremented, so the clock decides.
_NEXT = f"""
    fence = iif(typeof(fence) = 'integer' AND fence BETWEEN 0 AND {bounds.INSTANT_MAX},
                max(fence + 1, excluded.fence), excluded.fence)
"""

# The next fence, one sequence for all keys of the namespace: larger than every earlier one, and
# never behind the clock; and whether the grant takes over an expired lease. By primary keys.
NEXT_FENCE = f"""
    INSERT INTO tenure_space (namespace, fence) VALUES (:namespace, :wall)
    ON CONFLICT (namespace) DO UPDATE SET {_NEXT}
    RETURNING fence, {HAS_EXPIRED}
"""  # noqa: S608 - put together from constants

# The same, but no row if the key has any record: the first caller of a key needs no other
# statement. By primary keys.
FENCE_IF_BARE = f"""
    INSERT INTO tenure_space (namespace, fence)
    SELECT :namespace, :wall
    WHERE NOT EXISTS (SELECT 1 FROM tenure_lease WHERE namespace = :namespace AND key = :key)
      AND NOT EXISTS (SELECT 1 FROM tenure_waiter WHERE namespace = :namespace AND key = :key)
      AND NOT {HAS_EXPIRED}
    ON CONFLICT (namespace) DO UPDATE SET {_NEXT}
    RETURNING fence
"""  # noqa: S608 - put together from constants

# Any lease of the key, to see whether it is a lock or a semaphore. By primary key.
FIRST_LEASE = f"""
    SELECT holder, fence, "limit", ttl, meta, boot_id, granted, renewed, expires, kept,
           {LEASE.of("tenure_lease")}
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key
    LIMIT 1
"""  # noqa: S608 - put together from constants

# The lease of a holder. By primary key.
LEASE_OF = FIRST_LEASE.replace("LIMIT 1", "AND holder = :holder")

# By primary key.
ADD_LEASE = """
    INSERT INTO tenure_lease (namespace, key, holder, fence, "limit", ttl, meta, boot_id,
                              granted, renewed, expires)
    VALUES (:namespace, :key, :holder, :fence, :limit, :ttl, :meta, :boot_id,
            :granted, :renewed, :expires)
"""

# Only this lease, while it lives. One that seems to be renewed in the future (see CLAMP_LEASES)
# passes this test too. A row that breaks a constraint is left alone. By primary key.
RENEW_LEASE = """
    UPDATE OR IGNORE tenure_lease
    SET ttl = :ttl, renewed = :now, expires = :expires, kept = max(kept, :kept)
    WHERE namespace = :namespace AND key = :key AND holder = :holder AND fence = :fence
      AND boot_id = :boot_id AND expires > :now
"""

# By primary key.
REMOVE_LEASE = """
    DELETE FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder = :holder
"""

# This lease of a lock, while it lives; there can be no other. Returns whether there are waiters.
# By primary keys.
RELEASE_LOCK = """
    DELETE FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder = :holder AND fence = :fence
      AND "limit" = 1 AND boot_id = :boot_id AND expires > :now
    RETURNING EXISTS (SELECT 1 FROM tenure_waiter WHERE namespace = :namespace AND key = :key)
"""


class Grant(Struct):
    """A lease as it is stored."""

    holder: str
    fence: int
    limit: int
    ttl: int
    meta: str
    boot_id: str
    granted: int
    renewed: int
    expires: int
    kept: int = 0

    def as_lease(self, key: str, now: int) -> Lease:
        return Lease(
            key=key,
            holder=self.holder,
            fence=self.fence,
            ttl=self.ttl / 1e6,
            limit=self.limit,
            meta=decode_meta(self.meta),
            expires_in=(min(self.renewed, now) + self.ttl - now) / 1e6,
            held_for=max(0, now - self.granted) / 1e6,
        )


class Key:
    """A key at the transaction's instant, without ended leases.

    With limit 1 there is at most one lease, `sole`. With larger limits the leases stay in the
    table, and only their `count` is loaded. The two kinds never mix: there are at most as many
    leases as the smallest limit among them.
    """

    def __init__(self, tx: Transaction, name: str) -> None:
        self.tx = tx
        self.name = name
        self.count = Count(tx, name)
        self.sole: Grant | None = None
        self.line = Line(tx, name)
        self.took_over = False
        """Whether the grant of this transaction takes over an expired lease."""

    @classmethod
    def load(cls, tx: Transaction, name: str) -> Key:
        """Read the key and remove what has ended.

        Raises StoreError if its lease cannot be read: it may be held for an unknown time.
        """
        key = cls(tx, name)
        first = key._read(FIRST_LEASE)
        if first is not None and first.limit == 1:
            key._settle_sole(first)
        elif first is not None:
            key.count.load()
        key.line.load()
        return key

    @classmethod
    def grant_if_bare(cls, tx: Transaction, name: str, claim: Claim) -> Grant | None:
        """Grant a lease if the key has no leases and no waiters.

        A short cut for the most frequent call, with the same effect as `load` and `grant`.
        """
        fences = tx.rows(FENCE_IF_BARE, key=name)
        return cls(tx, name).grant(claim, fences[0][0]) if fences else None

    @classmethod
    def after_release(cls, tx: Transaction, name: str, holder: str, fence: int) -> Key | None:
        """Release the lease of a lock, and return the rest of the key; None if it was not there.

        A short cut as well, with the same effect as `load` and `remove`.
        """
        released = tx.rows(RELEASE_LOCK, key=name, holder=holder, fence=fence)
        if not released:
            return None
        key = cls(tx, name)
        ((somebody_waits,),) = released
        if somebody_waits:
            key.line.load()
        return key

    def _read(self, statement: str, **values: str) -> Grant | None:
        tx = self.tx
        row = tx.row(statement, key=self.name, **values)
        if row is None:
            return None
        *lease, is_sound = row
        if is_sound:
            return Grant(*lease)
        why = "a lease of it cannot be read, so it counts as held"
        tx.damage.report("lock", self.name, why, "tenure_lease")
        msg = (
            f"{self.name!r} cannot be acquired: {why}. If its holder is gone, 'tenure locks "
            "release NAME --force' removes it; 'tenure doctor' says more."
        )
        raise StoreError(msg)

    def _settle_sole(self, grant: Grant) -> None:
        tx = self.tx
        if grant.boot_id != tx.boot_id or grant.expires <= tx.now:
            tx.change(REMOVE_LEASE, key=self.name, holder=grant.holder)
            if not grant.kept:
                ago = tx.now - grant.expires if grant.boot_id == tx.boot_id else 0
                Expired(tx, self.name).add([grant.fence], ago=ago)
            return
        if grant.renewed > tx.now:
            # From before a restart without a boot id: the boot clock began again at 0. It gets a
            # full ttl from now, so that it ends.
            self.renew(grant, grant.ttl)
        self.sole = grant
        self.count.add(grant.limit)

    def grant_of(self, holder: str) -> Grant | None:
        """Return the live lease of a holder."""
        if self.sole is not None:
            return self.sole if self.sole.holder == holder else None
        return self._read(LEASE_OF, holder=holder) if self.count.live else None

    def effective(self, limit: int, ahead: int) -> int:
        """Return the smallest limit among the caller, the holders and the waiters ahead of it."""
        held = [self.count.lowest] if self.count.live else []
        return min([limit, *held, *(waiter.limit for waiter in self.line.waiters[:ahead])])

    def room_for(self, limit: int, ahead: int) -> bool:
        """Return whether one more lease fits beside the current ones and the waiters ahead."""
        return self.count.live + ahead < self.effective(limit, ahead)

    def other_limit(self, mine: Grant | None, limit: int) -> int | None:
        """Return the smallest limit of the other live leases that differs from `limit`."""
        if self.count.live == (0 if mine is None else 1):
            return None
        return self.count.smallest_but(limit, without=mine.holder if mine else "")

    def retry_in(self, limit: int, ahead: int) -> float:
        """Return the seconds until the lease ends whose place a refused caller would get."""
        if self.sole is not None:
            ends = self.sole.expires
        elif not (live := self.count.live):
            ends = self.line.waiters[0].expires
        else:
            ends = self.count.end(min(live, live + ahead - self.effective(limit, ahead) + 1) - 1)
        return (ends - self.tx.now) / 1e6

    def grant(self, claim: Claim, fence: int | None = None) -> Grant:
        """Grant a lease, under the next fence or this new one. The caller has checked the room."""
        tx = self.tx
        if fence is None:
            ((fence, has_expired),) = tx.rows(NEXT_FENCE, key=self.name)
            self.took_over = bool(has_expired)
            if self.took_over:
                Expired(tx, self.name).take_first()
        tx.keep_fence(fence)
        grant = Grant(
            **asdict(claim),
            fence=fence,
            boot_id=tx.boot_id,
            granted=tx.now,
            renewed=tx.now,
            expires=tx.now + claim.ttl,
        )
        tx.change(ADD_LEASE, key=self.name, **asdict(grant))
        self.count.add(grant.limit)
        if grant.limit == 1:
            self.sole = grant
        return grant

    def renew(self, grant: Grant, ttl: int) -> None:
        """Let a lease live for `ttl` from now."""
        grant.ttl, grant.renewed, grant.expires = ttl, self.tx.now, self.tx.now + ttl
        self.tx.change(RENEW_LEASE, key=self.name, **asdict(grant))

    def remove(self, grant: Grant) -> None:
        """End a lease."""
        self.tx.change(REMOVE_LEASE, key=self.name, holder=grant.holder)
        if self.sole is None:
            self.count.shrink(1)
        else:
            self.sole = None
            self.count.live = 0

    def wake_next(self) -> None:
        """Wake the first waiter if there is room for it."""
        waiters = self.line.waiters
        if waiters and self.room_for(waiters[0].limit, ahead=0):
            self.tx.ring(("lease", waiters[0].holder))
