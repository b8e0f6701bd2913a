"""Leases and marks in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tenure.core.codec import decode_meta
from tenure.core.durations import micros
from tenure.core.model import Acquired, Busy, Granted, Lease, Mark, Meta
from tenure.core.soundness import sound
from tenure.errors import StoreError
from tenure.stores.sqlite import statements as sql
from tenure.stores.sqlite.connection import Connection
from tenure.stores.sqlite.database import Mode
from tenure.stores.sqlite.keys import Claim, Key
from tenure.stores.sqlite.transaction import Row, Transaction
from tenure.stores.within import no_open_transaction, other_database, unknown_connection

__all__ = ["Leases"]

# So many leases at once still count as brief work.
_FEW = 4


class Leases(Connection):
    """The lease half of the contract."""

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
        claim = Claim(holder, limit, micros(ttl), meta)
        life = micros(waiting)
        return await self._run_brief(lambda tx: _acquire(tx, key, claim, life))

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        run = self._run_brief if len(leases) <= _FEW else self._run
        return await run(lambda tx: [_renew(tx, lease) for lease in leases])

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        run = self._run_brief if len(leases) <= _FEW else self._run
        return await run(lambda tx: [_release(tx, lease) for lease in leases])

    async def discard(self, key: str) -> bool:
        removals = (sql.DISCARD_LEASES, sql.DISCARD_LINE, sql.REMOVE_SEMAPHORE)
        return any(
            await self._run(lambda tx: [tx.change(removal, key=key) for removal in removals])
        )

    async def leases(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        after = _after(prefix)

        def work(tx: Transaction) -> list[Lease]:
            rows = tx.rows(sql.LEASES, first=prefix, after=after, limit=limit)
            found = (_lease_in(tx, row) for row in rows)
            return [lease for lease in found if lease is not None]

        return await self._run(work, Mode.READ)

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        return await self._run(lambda tx: _mark(tx, key, lease, value), Mode.DURABLE)

    async def marked(self, keys: Sequence[str]) -> list[Mark | None]:
        return await self._run(lambda tx: [_marked(tx, key) for key in keys], Mode.READ)

    def guard(self, connection: object, lease: Lease) -> bool:
        """Write to the lease's own row: a transaction that has written has the write lock.

        So nobody else changes anything until it ends, our own renewals included.
        """
        if not isinstance(connection, sqlite3.Connection):
            raise unknown_connection("guard()", connection, "sqlite3.Connection")
        if connection.isolation_level is None and not connection.in_transaction:
            raise no_open_transaction("guard()", "BEGIN IMMEDIATE")
        identity = {"namespace": self.namespace, "key": lease.key, "holder": lease.holder}
        now = {"boot_id": self.clock.boot_id, "now": micros(self.clock.boot())}
        try:
            done = connection.execute(sql.GUARD, {**identity, **now, "fence": lease.fence})
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                raise other_database("guard()", self.url) from error
            raise
        if not connection.in_transaction:
            # From Python 3.12 on, autocommit=True: the write has been committed by itself.
            raise no_open_transaction("guard()", "BEGIN IMMEDIATE")
        return done.rowcount == 1

    async def _prune_leases(self, idle: float, limit: int) -> int:
        """Remove what crashed holders and waiters left behind, and count the keys it cleared.

        A key whose leases were released leaves nothing here.
        """

        def find(tx: Transaction) -> list[Row]:
            return tx.rows(sql.KEYS_TO_PRUNE, since=tx.now - micros(idle), limit=limit)

        # Found without the write lock, since that takes a look at every row; then looked at once
        # more with it.
        found = await self._run(find, Mode.READ)
        if not found:
            return 0
        return await self._run(lambda tx: sum(_is_idle(tx, key) for (key,) in found))


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
    ahead = key.ahead_of(claim.holder)
    if not key.room_for(claim.limit, ahead):
        busy = Busy(key.retry_in(claim.limit, ahead), ahead, other)
        if life > 0:
            key.wait(claim, life)
        return busy
    key.leave(claim.holder)
    grant = key.grant(claim)
    key.wake_next()
    return Granted(grant.as_lease(name, tx.now), other)


def _renew(tx: Transaction, lease: Lease) -> bool:
    ttl = micros(lease.ttl)
    renewed = tx.change(
        sql.RENEW_LEASE,
        key=lease.key,
        holder=lease.holder,
        fence=lease.fence,
        ttl=ttl,
        expires=tx.now + ttl,
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
            return False  # it cannot be read; others in the same call must not suffer
        held = grant is not None and lease.fence in (0, grant.fence)
        if grant is not None and held:
            key.remove(grant)
    key.leave(lease.holder)
    key.wake_next()
    return held


def _mark(tx: Transaction, key: str, lease: Lease, value: str) -> bool:
    mark = Mark(key, value, lease.fence)
    if _marked(tx, key) == mark:
        return True
    if not tx.row(sql.IS_LIVE, key=lease.key, holder=lease.holder, fence=lease.fence):
        return False
    tx.change(sql.MARK, key=key, value=value, fence=lease.fence)
    return True


def _marked(tx: Transaction, key: str) -> Mark | None:
    row = tx.row(sql.MARKED, key=key)
    if row is None:
        return None
    mark = {"key": key, "value": row[0], "fence": row[1]}
    read = tx.damage.read("mark", "tenure_mark", key, sound, Mark, mark)
    return read or Mark(key, "", 0)  # it is there, whatever it says


def _is_idle(tx: Transaction, name: str) -> bool:
    """Remove what has ended of a key; return whether that was all of it."""
    try:
        key = Key.load(tx, name)
    except StoreError:
        return False  # it cannot be read
    return not key.live and not key.line


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
    """Return what comes just after all text that starts with `prefix`."""
    last = chr(0x10FFFF)
    stem = prefix.rstrip(last)
    if not stem:
        return b""  # to SQLite, all text comes before all blobs
    following = ord(stem[-1]) + 1
    # Surrogates are no characters of their own and have no UTF-8 form.
    return stem[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
