"""Leases on Redis: each call is one script. lua/leases.lua describes the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenure.core.bounds import UNREADABLE, sound
from tenure.core.durations import micros
from tenure.core.leases import Acquired, Busy, Granted, Lease, Mark, Meta
from tenure.core.meta import decode_meta, encode_meta
from tenure.errors import StoreError
from tenure.stores.redis.connection import Connection
from tenure.stores.redis.job_part import Part, slices
from tenure.stores.redis.wire import Word, text

__all__ = ["Leases"]

# Redis serves no other client while a script runs; a slice of this size takes about 2 ms.
_SLICE = 200

# How many leases of a large semaphore one script visits, which takes about 2 ms.
_MEMBERS = 500

# The first part of an answer of acquire.lua.
_TOOK_OVER = 2

# The answers of renew.lua. An unreadable lease is undecided: its holder gives up in time.
_RENEWED = (False, True, None)


class Leases(Part):
    """The lease part of the contract."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._names, self._fence = f"{self._tag}names", f"{self._tag}fence"
        self._marks = f"{self._tag}marks"
        # The last lease key that `prune` has visited in its current round.
        self._swept = b""

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
        life, patience = micros(ttl), micros(waiting) if waiting > 0 else 0
        keys = (self._names, self._fence, *self._keys(key))
        words = (key, holder, limit, life, encode_meta(meta), patience, self._connection.channel)
        reply = await self._connection.run("acquire", keys, *words)
        if not reply:
            raise self._unreadable(key)
        if not reply[0]:
            _, retry_in, ahead, other = reply
            return Busy(retry_in / 1e6, ahead, other or None)
        state, fence, other, held_for, granted_limit, granted_meta = reply
        lease = Lease(
            key=key,
            holder=holder,
            fence=fence,
            ttl=life / 1e6,
            limit=granted_limit,
            meta=decode_meta(granted_meta),
            expires_in=life / 1e6,
            held_for=held_for / 1e6,
        )
        return Granted(lease, other or None, state == _TOOK_OVER)

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        def arguments(lease: Lease) -> tuple[Word, ...]:
            ttl = micros(lease.ttl)
            return lease.key, lease.holder, lease.fence, -ttl if lease.kept else ttl

        return [_RENEWED[answer] for answer in await self._each("renew", leases, arguments)]

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        def arguments(lease: Lease) -> tuple[Word, ...]:
            return lease.key, lease.holder, lease.fence

        return [bool(answer) for answer in await self._each("release", leases, arguments)]

    async def discard(self, key: str) -> bool:
        return bool((await self._run("discard", [key], key))[0])

    async def find(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        # First the names, then their leases: a script may only use keys that it was passed. A key
        # that is created or removed in between may be listed or not. The leases of a key are of
        # one instant, unless there are more than one script may visit.
        leases: list[Lease] = []
        after = b""
        while len(leases) < limit:
            stored = await self._names_after(after, prefix, min(_SLICE, limit - len(leases)))
            if not stored:
                break
            after = stored[-1]
            names = self._read_names(stored)
            while names and len(leases) < limit:
                listed, names = await self._listed(names)
                leases += listed
        return leases[:limit]

    async def _listed(self, names: list[str]) -> tuple[list[Lease], list[str]]:
        """Return the leases of the first lease keys, and the names of the others."""
        answers = await self._run("find", names, *names)
        listed: list[Lease] = []
        for name, rows in zip(names, answers, strict=False):
            read = [self._read_lease(name, row) for row in rows]
            lives = [lease for lease in read if lease is not None]
            # The script returns waiters in order of arrival, and the sort is stable.
            listed += sorted(lives, key=lambda lease: (lease.waiting, lease.fence))
        if answers or not names:
            return listed, names[len(answers) :]
        return await self._members(names[0]), names[1:]

    async def _members(self, name: str) -> list[Lease]:
        """Return the leases of a large semaphore, by several short scripts."""
        members: dict[str, tuple[bool, int, Lease]] = {}
        cursor = b"0"
        while True:
            reply = await self._run("members", [name], name, cursor, _MEMBERS)
            if not reply:  # there are few of them now
                return (await self._listed([name]))[0]
            cursor, *rows = reply
            for *row, place in rows:
                lease = self._read_lease(name, row)
                if lease is not None:
                    rank = int(float(place)) if lease.waiting else lease.fence
                    members[lease.holder] = lease.waiting, rank, lease
            if cursor == b"0":
                return [
                    lease for _, _, lease in sorted(members.values(), key=lambda member: member[:2])
                ]

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        keys = (self._names, self._marks, *self._keys(lease.key))
        words = (lease.key, lease.holder, lease.fence, key, value)
        return bool((await self._connection.run("mark", keys, *words))[0])

    async def marked(self, keys: Sequence[str]) -> list[Mark | None]:
        marks: list[bytes | None] = []
        for batch in slices(keys, _SLICE):
            marks += await self._connection.ask("HMGET", self._marks, *batch)
        return [self._read_mark(key, mark) for key, mark in zip(keys, marks, strict=True)]

    def _read_mark(self, key: str, mark: bytes | None) -> Mark | None:
        if mark is None:
            return None
        read = self._damage.read("mark", self._marks, key, _mark, key, mark)
        return read or Mark(key, "", 0)  # it exists, readable or not

    def _read_names(self, stored: Sequence[bytes]) -> list[str]:
        """Return the names of lease keys, which are text."""
        read = (self._damage.read("lock", self._names, text(name), name.decode) for name in stored)
        return [name for name in read if name is not None]

    def _read_lease(self, name: str, row: list[Any]) -> Lease | None:
        where = f"{self._tag}head:{name}"
        if len(row) == 1:
            self._damage.report("lock", name, UNREADABLE, where)
            return None
        return self._damage.read("lock", where, name, _lease, name, *row)

    def _unreadable(self, name: str) -> StoreError:
        where = f"{self._tag}head:{name}"
        why = "what is stored for it cannot be read, so it counts as held"
        self._damage.report("lock", name, why, where)
        return StoreError(
            f"{name!r} cannot be acquired: {why}. If its holder is gone, 'tenure locks release "
            "NAME --force' removes it; 'tenure doctor' says more."
        )

    async def prune(self, idle: float, limit: int) -> int:
        """Remove up to `limit` unused lease keys, last granted `idle` seconds ago."""
        # Released keys are gone already. Keys that crashed holders left are found by a walk over
        # the names: each call visits `limit` names, and continues where the last one stopped.
        pruned = looked_at = 0
        while looked_at < limit:
            stored = await self._names_after(self._swept, "", min(_SLICE, limit - looked_at))
            self._swept = stored[-1] if stored else b""
            if not stored:
                break
            looked_at += len(stored)
            names = self._read_names(stored)
            pruned += (await self._run("prune", names, micros(idle), *names))[0]
        return pruned

    def _keys(self, name: str) -> tuple[str, str, str, str]:
        """The Redis keys of a lease key, in the order in which scripts expect them."""
        tag = self._tag
        return (
            f"{tag}head:{name}",
            f"{tag}places:{name}",
            f"{tag}info:{name}",
            f"{tag}patience:{name}",
        )

    async def _names_after(self, after: bytes, prefix: str, count: int) -> list[bytes]:
        """Return lease keys in use that start with `prefix` and come after `after`, in order."""
        start = b"(" + after if after else f"[{prefix}"
        end = b"(" + prefix.encode() + b"\xff"  # no UTF-8 text has this byte
        names: list[bytes] = await self._connection.ask(
            "ZRANGEBYLEX", self._names, start, end, "LIMIT", 0, count
        )
        return names

    async def _each(
        self, script: str, leases: Sequence[Lease], arguments: Callable[[Lease], Sequence[Word]]
    ) -> list[int]:
        """Run a script that answers for each of many leases."""
        answers: list[int] = []
        for batch in slices(leases, _SLICE):
            words = [word for lease in batch for word in arguments(lease)]
            answers += await self._run(script, [lease.key for lease in batch], *words)
        return answers

    async def _run(self, script: str, names: Sequence[str], *arguments: Word) -> list[Any]:
        """Run a script on the Redis keys of some lease keys."""
        keys = [key for name in names for key in self._keys(name)]
        return await self._connection.run(script, [self._names, *keys], *arguments)


def _lease(  # noqa: PLR0917 - the values of a row, in its order
    name: str,
    holder: bytes,
    fence: int,
    ttl: int,
    limit: int,
    meta: bytes,
    left: int,
    held_for: int,
) -> Lease:
    return sound(
        Lease,
        {
            "key": name,
            "holder": holder.decode(),
            "fence": fence,
            "ttl": ttl / 1e6,
            "limit": limit,
            "meta": decode_meta(meta),
            "waiting": not fence,
            "expires_in": left / 1e6,
            "held_for": held_for / 1e6,
        },
    )


def _mark(key: str, stored: bytes) -> Mark:
    fence, _, value = stored.decode().partition(" ")
    return sound(Mark, {"key": key, "value": value, "fence": int(fence)})
