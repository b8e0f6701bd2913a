"""What a store promises about leases. A store for locks alone implements only this part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenure.core.leases import Acquired, Lease, Mark, Meta

__all__ = ["Leases"]


class Leases(Protocol):
    """The lease part of a store.

    A lease record that cannot be read counts as held until its end, or until `discard` removes it:
    `acquire` answers `Busy`, other calls as if it did not exist. `damage` of the store names it.
    """

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
        """Try once to take a lease on `key`; never wait.

        Admitted while live leases + live waiters ahead of the caller < limit, where limit is the
        smallest of the caller's own, those of the live holders and those of the live waiters
        ahead. So at most `limit` leases live at any store instant, and no caller overtakes a
        waiter: not on a free key, and not by asking with a larger limit.

        The fence is larger than every earlier fence of this key, also over release, removal of
        idle keys and clock steps. A holder that has the lease already gets it again: the fence,
        limit, meta and start of the first grant, with the full ttl of this call.

        Refused with `waiting` > 0, the caller joins the queue (or keeps its place) for that many
        seconds. Asking again with `waiting` replaces its ttl, limit, meta and time; asking without
        it changes nothing.

        `Busy.retry_in` is the time until the lease ends whose place the caller would get, as the
        waiters ahead take the earlier ones: the k-th live lease to end, with
        k = live + ahead - limit + 1, at most the last one. Without any live lease it is the end of
        the record of the first waiter.

        Granting wakes the next waiter if there is still room. A lease or place that expires need
        not wake any, because waiters ask again after `retry_in`, or after a second.

        A grant with `took_over` takes the place of a lease that has expired. Each lease that ends
        without a release is taken over by one grant: the next one of its key, or, if several leases
        of a semaphore have expired, one of the next ones. `discard`, pruning and a late release
        that names the fence take that back, and a `kept` lease is never taken over. A repeated
        request gets no `took_over`. A store remembers at least the newest 100 expired leases of a
        key (`core.leases.EXPIRED_MAX`), for at least a day.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[bool | None]:
        """Let each lease live for the `ttl` that it is passed with, counted from now.

        True: done. False: this lease (key, holder, fence) does not exist or has ended; it is never
        resurrected. None: undecided, because another transaction has it locked; try again.

        A lease that is passed as `kept` was released by its holder: its place becomes free when its
        ttl is over, and no grant takes it over. It stays `kept` if a late renewal without `kept`
        arrives afterwards.
        """
        ...

    async def release(self, leases: Sequence[Lease]) -> list[bool]:
        """End each lease, and its holder's place in the queue. Returns whether the lease was live.

        A fence of 0 compares the holder alone. Releasing twice or too late is harmless; a newer
        lease is never touched. If there is room now for the first waiter whose place has not
        expired, only that one is woken, also after a release that came too late.
        """
        ...

    async def find(self, prefix: str = "", *, limit: int = 1000) -> list[Lease]:
        """Return live leases and live waiters of keys that start with `prefix`, literally.

        By key in code-point order; within a key, leases by fence, then waiters by arrival. At
        most `limit` of them. A waiter has fence 0, and the ttl, limit and meta that it asked for
        last; `expires_in` is what is left of its place. After a clock was set back, `held_for` is
        0, never negative.
        """
        ...

    async def discard(self, key: str) -> bool:
        """Remove a lease key with its leases and its queue, readable or not.

        For an operator, if the record cannot be read and its holder is gone. Fences still grow
        afterwards. It need not wake the waiters, which join a new queue when they ask again.
        Returns whether the key existed.
        """
        ...

    async def mark(self, key: str, lease: Lease, value: str) -> bool:
        """Store a durable value under `key` if `lease` is live, in one atomic step.

        Repeating it with the same fence and value is True even if the lease has ended since.
        Marks are never pruned.
        """
        ...

    async def marked(self, keys: Sequence[str]) -> list[Mark | None]:
        """Return the mark under each key."""
        ...
