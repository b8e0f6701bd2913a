"""Leases on Redis: each call is one script. The shapes stored are described in lua/prelude.lua."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from tenure.core.codec import decode_meta, encode_meta
from tenure.core.durations import micros
from tenure.core.model import Acquired, Busy, Granted, Lease, Mark, Meta
from tenure.stores.redis.connection import Connection
from tenure.stores.redis.scripts import ACQUIRE, LIST, MARK, PRUNE, RELEASE, RENEW
from tenure.stores.redis.sender import Word

__all__ = ["Leases"]

T = TypeVar("T")

# A script stops the whole server while it runs; 200 leases take it about 2 ms.
_SLICE = 200


class Leases(Connection):
    """The lease half of the contract."""

    _swept = ""
    """Up to which lease key this object has pruned in its present round."""

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
        tag, life = self._tag, micros(ttl)
        keys = (f"{tag}names", f"{tag}fence", *self._keys(key))
        patience = micros(waiting) if waiting > 0 else 0
        args = (key, holder, limit, life, encode_meta(meta), patience, self._channel)
        reply = await self._open_sender.run(ACQUIRE, (6, *keys, self._now, *args))
        if type(reply) is not list:
            raise self._fault(reply)
        if not reply[0]:
            _, retry_in, ahead, other = reply
            return Busy(retry_in / 1e6, ahead, other or None)
        _, fence, other, held_for, bound, note = reply
        lease = Lease(
            key=key,
            holder=holder,
            fence=fence,
            ttl=life / 1e6,
            limit=bound,
            meta=decode_meta(note),
            expires_in=life / 1e6,
            held_for=held_for / 1e6,
        )
        return Granted(lease, other or None)

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        sender, now, answers = self._open_sender, self._now, []
        for some in _slices(leases):
            words: list[Word] = [1 + 4 * len(some), f"{self._tag}names"]
            for lease in some:
                words += self._keys(lease.key)
            words.append(now)
            for lease in some:
                words += (lease.key, lease.holder, lease.fence, micros(lease.ttl))
            answers.append(sender.run(RENEW, tuple(words)))
        return [bool(answer) for future in answers for answer in self._list(await future)]

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        sender, now, answers = self._open_sender, self._now, []
        for some in _slices(leases):
            words: list[Word] = [1 + 4 * len(some), f"{self._tag}names"]
            for lease in some:
                words += self._keys(lease.key)
            words.append(now)
            for lease in some:
                words += (lease.key, lease.holder, lease.fence)
            answers.append(sender.run(RELEASE, tuple(words)))
        return [bool(answer) for future in answers for answer in self._list(await future)]

    async def leases(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        # First the names, then what lives on them: a script may only touch keys it was given. A
        # key that comes or goes in between may be in the list or not; its leases are never torn.
        found: list[Lease] = []
        after = b""
        while len(found) < limit:
            names = await self._names(prefix, after, _SLICE)
            if not names:
                break
            after = names[-1]
            for name, rows in zip(names, await self._run_on(LIST, names), strict=True):
                found += sorted(
                    (_lease(name.decode(), row) for row in rows),
                    key=lambda lease: lease.fence or _LAST,
                )
        return found[:limit]
