"""The lease part of the SQLite store: leases and marks."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.bounds import sound
from tenure.core.durations import micros
from tenure.core.leases import Acquired, Busy, Granted, Lease, Mark, Meta
from tenure.core.meta import decode_meta, encode_meta
from tenure.errors import StoreError
from tenure.stores.sqlite.connection import Part
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.expired import REMOVE_EXPIRED, Expired
from tenure.stores.sqlite.lease_keys import RENEW_LEASE, Key
from tenure.stores.sqlite.semaphores import REMOVE_LEASES, REMOVE_SEMAPHORE
from tenure.stores.sqlite.statements import Row, Transaction
from tenure.stores.sqlite.waiters import Claim

__all__ = ["Leases", "is_live"]

# By primary key.
IS_LIVE = """
    SELECT 1
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder = :holder AND fence = :fence
      AND boot_id = :boot_id AND expires > :now
"""

# By primary key.
REMOVE_LINE = "DELETE FROM tenure_waiter WHERE namespace = :namespace AND key = :key"

# Keys from :first up to, not including, :after. Text is ordered by its UTF-8 bytes, which is the
# order of code points. By the primary keys of both tables, which are already in order of key.
LEASES = """
    SELECT key, 0 AS waiting, fence AS place, holder, fence, "limit", ttl, meta,
           granted AS since, renewed, expires
    FROM tenure_lease
    WHERE namespace = :namespace AND key >= :first AND key < :after
      AND boot_id = :boot_id AND expires > :now
    UNION ALL
    SELECT key, 1 AS waiting, place, holder, 0 AS fence, "limit", ttl, meta,
           arrived AS since, renewed, expires
    FROM tenure_waiter
    WHERE namespace = :namespace AND key >= :first AND key < :after
      AND boot_id = :boot_id AND expires > :now
    ORDER BY key, waiting, place
    LIMIT :limit
"""

# Keys with leases to remove: ended before :since, from another start of the machine, or in need of
# CLAMP_LEASES; and with expired leases to forget. It visits every row of the namespace, by the
# primary keys. Only crashes leave rows behind, so there are few.
KEYS_TO_PRUNE = """
    SELECT key
    FROM tenure_lease
    WHERE namespace = :namespace
      AND (boot_id <> :boot_id OR renewed > :now OR expires <= :since)
    UNION
    SELECT key
    FROM tenure_waiter
    WHERE namespace = :namespace
      AND (boot_id <> :boot_id OR renewed > :now OR expires <= :now)
    UNION
    SELECT key
    FROM tenure_expired
    WHERE namespace = :namespace AND ended <= :before
    LIMIT :limit
"""

# By primary key.
MARK = """
    INSERT OR REPLACE INTO tenure_mark (namespace, key, value, fence)
    VALUES (:namespace, :key, :value, :fence)
"""

# By primary key.
MARKED = "SELECT value, fence FROM tenure_mark WHERE namespace = :namespace AND key = :key"

# Up to this many leases count as brief work.
_FEW = 4


class Leases(Part):
    """The lease part of the contract."""

    async def acquire(
        self,
        key: str,
        *,
        holder: str,
        limit: int,
        ttl: float,
        meta: Meta,
        waiting: float = 0.0,
    ) -> Acquired:
        claim = Claim(holder, limit, micros(ttl), encode_meta(meta))
        life = micros(waiting)
        return await self._run_brief(lambda tx: _acquire(tx, key, claim, life))

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        run = self._run_brief if len(leases) <= _FEW else self._run
        return await run(lambda tx: [_renew(tx, lease) for lease in leases])

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        run = self._run_brief if len(leases) <= _FEW else self._run
        return await run(lambda tx: [_release(tx, lease) for lease in leases])

    async def find(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        after = _after(prefix)

        def work(tx: Transaction) -> list[Lease]:
            rows = tx.rows(LEASES, first=prefix, after=after, limit=limit)
            leases = (_lease_in(tx, row) for row in rows)
            return [lease for lease in leases if lease is not None]

        return await self._run(work, Mode.READ)

    async def discard(self, key: str) -> bool:
        removals = (REMOVE_LINE, REMOVE_SEMAPHORE, REMOVE_EXPIRED)

        def work(tx: Transaction) -> bool:
            removed = len(tx.rows(REMOVE_LEASES, key=key))
            return removed + sum([tx.change(removal, key=key) for removal in removals]) > 0

        return await self._run(work)

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        return await self._run(lambda tx: _mark(tx, key, lease, value), Mode.DURABLE)

    async def marked(self, keys: Sequence[str]) -> list[Mark | None]:
        return await self._run(lambda tx: [_marked(tx, key) for key in keys], Mode.READ)

    async def prune(self, idle: float, limit: int) -> int:
        """Remove what crashed holders and waiters left behind, and count the keys it cleared.

        A key whose leases were released has no rows.
        """

        def find(tx: Transaction) -> list[Row]:
            since, before = tx.now - micros(idle), tx.wall - micros(idle)
            return tx.rows(KEYS_TO_PRUNE, since=since, before=before, limit=limit)

        # Searched without the write lock, because that visits every row; then checked again with
        # it.
        keys = await self._run(find, Mode.READ)
        if not keys:
            return 0
        return await self._run(lambda tx: sum(_is_idle(tx, key, idle) for (key,) in keys))


def is_live(tx: Transaction, lease: Lease) -> bool:
    """Return whether this lease is held."""
    held = tx.row(IS_LIVE, key=lease.key, holder=lease.holder, fence=lease.fence)
    return held is not None


def _acquire(tx: Transaction, name: str, claim: Claim, life: int) -> Acquired:
    first = Key.grant_if_bare(tx, name, claim)
    if first is not None:
        return Granted(first.as_lease(name, tx.now), None)
    key = Key.load(tx, name)
    grant = key.grant_of(claim.holder)
    other = key.other_limit(grant, claim.limit)
    if grant is not None:
        key.renew(grant, claim.ttl)
        return Granted(grant.as_lease(name, tx.now), other)
    ahead = key.line.ahead_of(claim.holder)
    if not key.room_for(claim.limit, ahead):
        busy = Busy(key.retry_in(claim.limit, ahead), ahead, other)
        if life > 0:
            key.line.join(claim, life)
        return busy
    key.line.leave(claim.holder)
    grant = key.grant(claim)
    key.wake_next()
    return Granted(grant.as_lease(name, tx.now), other, key.took_over)


def _renew(tx: Transaction, lease: Lease) -> bool:
    ttl = micros(lease.ttl)
    renewed = tx.change(
        RENEW_LEASE,
        key=lease.key,
        holder=lease.holder,
        fence=lease.fence,
        ttl=ttl,
        expires=tx.now + ttl,
        kept=int(lease.kept),
    )
    return renewed == 1


def _release(tx: Transaction, lease: Lease) -> bool:
    key = Key.after_release(tx, lease.key, lease.holder, lease.fence)
    held = key is not None
    if key is None:
        try:
            key = Key.load(tx, lease.key)
            grant = key.grant_of(lease.holder)
        except StoreError:
            return False  # it cannot be read, which must not fail the others of the call
        held = grant is not None and lease.fence in (0, grant.fence)
        if grant is not None and held:
            key.remove(grant)
        elif lease.fence:
            Expired(tx, lease.key).take_back(lease.fence)
    key.line.leave(lease.holder)
    key.wake_next()
    return held


def _mark(tx: Transaction, key: str, lease: Lease, value: str) -> bool:
    mark = Mark(key, value, lease.fence)
    if _marked(tx, key) == mark:
        return True
    if not is_live(tx, lease):
        return False
    tx.change(MARK, key=key, value=value, fence=lease.fence)
    return True


def _marked(tx: Transaction, key: str) -> Mark | None:
    row = tx.row(MARKED, key=key)
    if row is None:
        return None
    mark = {"key": key, "value": row[0], "fence": row[1]}
    read = tx.damage.read("mark", "tenure_mark", key, sound, Mark, mark)
    return read or Mark(key, "", 0)  # it exists, readable or not


def _is_idle(tx: Transaction, name: str, idle: float) -> bool:
    """Remove and forget ended leases of a key. Returns whether the key is empty now."""
    try:
        key = Key.load(tx, name)
    except StoreError:
        return False  # it cannot be read
    has_no_expired = Expired(tx, name).forget(idle)
    return has_no_expired and not key.count.live and not key.line.waiters


def _lease_in(tx: Transaction, row: Row) -> Lease | None:
    name = row[0] if isinstance(row[0], str) else repr(row[0])
    if row[1]:
        return tx.damage.read("waiter", "tenure_waiter", name, _as_lease, row, tx.now)
    return tx.damage.read("lock", "tenure_lease", name, _as_lease, row, tx.now)


def _as_lease(row: Row, now: int) -> Lease:
    key, waiting, _, holder, fence, limit, ttl, meta, since, renewed, expires = row
    return sound(
        Lease,
        {
            "key": key,
            "holder": holder,
            "fence": fence,
            "ttl": ttl / 1e6,
            "limit": limit,
            "meta": decode_meta(meta),
            "waiting": bool(waiting),
            "expires_in": (expires - max(renewed, now)) / 1e6,
            "held_for": max(0, now - since) / 1e6,
        },
    )


def _after(prefix: str) -> str | bytes:
    """Return the smallest value after all text that starts with `prefix`."""
    last = chr(0x10FFFF)
    stem = prefix.rstrip(last)
    if not stem:
        return b""  # SQLite orders all text before all blobs
    following = ord(stem[-1]) + 1
    # Skip surrogates, which UTF-8 cannot encode.
    return stem[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
