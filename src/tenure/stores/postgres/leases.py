"""Leases in PostgreSQL: one statement for each call, which runs a function in sql/."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenure.core.bounds import sound
from tenure.core.durations import micros
from tenure.core.leases import Acquired, Busy, Granted, Lease, Mark, Meta
from tenure.core.meta import decode_meta, encode_meta
from tenure.stores.postgres.connection import Part
from tenure.stores.postgres.pool import Row, Subject

__all__ = ["Leases"]

_ACQUIRE = "SELECT * FROM tenure.lease_acquire($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_RENEW = "SELECT tenure.lease_renew($1, $2, $3)"
_RELEASE = "SELECT tenure.lease_release($1, $2, $3)"
_DISCARD = "SELECT tenure.lease_discard($1, $2)"
_MARK = "SELECT tenure.lease_mark($1, $2, $3, $4, $5, $6, $7)"

# A read: it clamps values in its result and writes nothing. Served by lease_pkey and waiter_pkey.
# Sums are of floats, which take any number that a row may hold. They are exact below 2^53.
_FIND = """
WITH clock AS MATERIALIZED (SELECT tenure.now($5) AS now)
SELECT * FROM (
    (SELECT l.key, l.holder, l.fence, l."limit", l.meta, l.ttl, false AS waiting,
            least(l.renewed, c.now)::float8 + l.ttl - c.now AS left,
            c.now::float8 - l.granted AS since, l.fence AS turn
     FROM clock c, tenure.lease l
     WHERE l.namespace = $1 AND l.key >= $2 AND l.key < $3
       AND least(l.renewed, c.now)::float8 + l.ttl > c.now
     ORDER BY l.key, l.fence LIMIT $4)
    UNION ALL
    (SELECT w.key, w.holder, 0, w."limit", w.meta, w.ttl, true,
            least(w.renewed, c.now)::float8 + w.life - c.now, c.now::float8 - w.arrived, w.place
     FROM clock c, tenure.waiter w
     WHERE w.namespace = $1 AND w.key >= $2 AND w.key < $3
       AND least(w.renewed, c.now)::float8 + w.life > c.now
     ORDER BY w.key, w.place LIMIT $4)
) AS found
ORDER BY key, waiting, turn LIMIT $4
"""

# Served by mark_pkey.
_MARKED = """
SELECT u.key, m.value, m.fence, m.key AS is_there
FROM json_array_elements_text($2) WITH ORDINALITY AS u (key, number)
LEFT JOIN tenure.mark m ON m.namespace = $1 AND m.key = u.key
ORDER BY u.number
"""

# Sorts after all names that begin with a prefix: longer than any, of the largest character.
_LAST = "\U0010ffff" * 201
_ANSWERS = {"y": True, "n": False, "?": None}


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
        request = (key, holder, limit, micros(ttl), encode_meta(meta), micros(waiting))
        ear = self._connection.ear
        [row] = await self._decide(_ACQUIRE, *request, ear, about=[("lease", [key])])
        if row["grant_fence"] is None:
            return Busy((row["ends"] - row["at"]) / 1e6, row["ahead"], row["other_limit"])
        lease = Lease(
            key=key,
            holder=holder,
            fence=row["grant_fence"],
            ttl=micros(ttl) / 1e6,
            limit=row["grant_limit"],
            meta=decode_meta(row["grant_meta"]),
            expires_in=micros(ttl) / 1e6,
            held_for=max(0, row["at"] - row["grant_begun"]) / 1e6,
        )
        return Granted(lease, row["other_limit"], row["ahead"] == 1)

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        if not leases:
            return []
        [[letters]] = await self._decide(_RENEW, _as_json(leases), about=_about(leases))
        return [_ANSWERS[letter] for letter in letters]

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        if not leases:
            return []
        [[letters]] = await self._decide(_RELEASE, _as_json(leases), about=_about(leases))
        return [letter == "y" for letter in letters]

    async def discard(self, key: str) -> bool:
        [[had_any]] = await self._read(_DISCARD, key, about=[("lease", [key])])
        return bool(had_any)

    async def find(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        rows = await self._decide(_FIND, prefix, prefix + _LAST, limit)
        return [lease for row in rows if (lease := self._lease_in(row)) is not None]

    def _lease_in(self, row: Row) -> Lease | None:
        if row["waiting"]:
            return self._damage.read("waiter", "tenure.waiter", row["key"], _as_lease, row)
        return self._damage.read("lock", "tenure.lease", row["key"], _as_lease, row)

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        about = [("mark", [key]), ("lease", [lease.key])]
        which = lease.key, lease.holder, lease.fence
        [[stored]] = await self._decide(_MARK, key, value, *which, about=about)
        return bool(stored)

    async def marked(self, keys: Sequence[str]) -> list[Mark | None]:
        rows = await self._read(_MARKED, _text(keys), about=[("mark", keys)])
        return [self._mark_in(row) for row in rows]

    def _mark_in(self, row: Row) -> Mark | None:
        if row["is_there"] is None:
            return None
        mark = {"key": row["key"], "value": row["value"], "fence": row["fence"]}
        read = self._damage.read("mark", "tenure.mark", row["key"], sound, Mark, mark)
        return read or Mark(row["key"], "", 0)  # it exists, readable or not


def _about(leases: Sequence[Lease]) -> list[Subject]:
    return [("lease", [lease.key for lease in leases])]


def _as_json(leases: Sequence[Lease]) -> str:
    """Return what identifies each lease, its ttl, and whether it is kept."""
    return _text(
        [
            {
                "key": lease.key,
                "holder": lease.holder,
                "fence": lease.fence,
                "ttl": micros(lease.ttl),
                **({"kept": True} if lease.kept else {}),
            }
            for lease in leases
        ]
    )


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _as_lease(row: Row) -> Lease:
    return sound(
        Lease,
        {
            "key": row["key"],
            "holder": row["holder"],
            "fence": row["fence"],
            "ttl": row["ttl"] / 1e6,
            "limit": row["limit"],
            "meta": decode_meta(row["meta"]),
            "waiting": row["waiting"],
            "expires_in": row["left"] / 1e6,
            "held_for": max(0.0, row["since"]) / 1e6,
        },
    )
