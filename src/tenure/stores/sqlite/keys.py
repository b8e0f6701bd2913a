"""One lease key: who holds it, who waits for it, and what may change."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.core.codec import decode_meta, encode_meta
from tenure.core.model import Lease, Meta
from tenure.errors import StoreError
from tenure.stores.sqlite import statements as sql
from tenure.stores.sqlite.transaction import Row, Transaction

__all__ = ["Claim", "Grant", "Key", "Waiter"]

_SECOND = 1_000_000


def _unusable(tx: Transaction, name: str) -> StoreError:
    why = "a lease of it cannot be read, so it counts as held"
    tx.damage.report("lock", name, why, "tenure_lease")
    msg = (
        f"nobody can take {name!r}: {why}. If its holder is gone, 'tenure locks release NAME "
        "--force' removes it; 'tenure doctor' says more."
    )
    return StoreError(msg)


@dataclass(slots=True, frozen=True)
class Claim:
    """What a caller asks for. Times are microseconds."""

    holder: str
    limit: int
    ttl: int
    meta: Meta


@dataclass(slots=True)
class Grant:
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


@dataclass(slots=True)
class Waiter:
    """A place in the line as it is stored."""

    place: int
    holder: str
    limit: int
    boot_id: str
    renewed: int
    expires: int


@dataclass(slots=True)
class Key:
    """A key as it stands at the transaction's instant: what has ended is gone.

    With limit 1 there is at most one lease, `sole`. With larger limits the leases stay in the
    table and only their number and limits are known here, so that no answer takes longer because
    there are many. Both kinds never meet: whoever is admitted makes it at most as many leases as
    the smallest limit among them.
    """

    tx: Transaction
    name: str
    live: int = 0
    lowest: int = 0
    highest: int = 0
    sole: Grant | None = None
    line: list[Waiter] = field(default_factory=list)

    @classmethod
    def load(cls, tx: Transaction, name: str) -> Key:
        """Read the key and remove what has ended.

        Raises StoreError if its lease cannot be read: somebody may hold it, for how long is not
        known.
        """
        key = cls(tx, name)
        first = tx.row(sql.FIRST_LEASE, key=name)
        if first is not None:
            *values, is_sound = first
            if not is_sound:
                raise _unusable(tx, name)
            grant = Grant(*values)
            if grant.limit == 1:
                key._settle_sole(grant)
            else:
                key._settle_semaphore()
        key._load_line()
        return key

    @classmethod
    def grant_if_bare(cls, tx: Transaction, name: str, claim: Claim) -> Grant | None:
        """Give out a lease if nobody has or wants one.

        A short way through what everybody does most; `load` and `grant` come to the same.
        """
        fences = tx.rows(sql.FENCE_IF_BARE, key=name)
        return cls(tx, name).grant(claim, fences[0][0]) if fences else None

    @classmethod
    def after_release(cls, tx: Transaction, name: str, holder: str, fence: int) -> Key | None:
        """Release the one lease of a lock and read what is left, or None if it is not there.

        A short way as well; `load` and `remove` come to the same.
        """
        released = tx.rows(sql.RELEASE_LOCK, key=name, holder=holder, fence=fence)
        if not released:
            return None
        key = cls(tx, name)
        ((somebody_waits,),) = released
        if somebody_waits:
            key._load_line()
        return key

    def _load_line(self) -> None:
        for *row, is_sound in self.tx.rows(sql.LINE, key=self.name):
            if is_sound:
                self._settle_waiter(Waiter(*row))
            else:
                # Who waits there asks again soon, and takes a place anew.
                self.tx.change(sql.REMOVE_WAITER, key=self.name, place=row[0])

    def _settle_sole(self, grant: Grant) -> None:
        tx = self.tx
        if grant.boot_id != tx.boot_id or grant.expires <= tx.now:
            tx.change(sql.REMOVE_LEASE, key=self.name, holder=grant.holder)
            return
        if grant.renewed > tx.now:
            # From before a restart that nobody told us of: boot clocks begin again at 0. It gets
            # a full ttl from now, so that it ends at all.
            self.renew(grant, grant.ttl)
        self.sole = grant
        self.live = self.lowest = self.highest = 1

    def _settle_semaphore(self) -> None:
        tx = self.tx
        counted = tx.row(sql.SEMAPHORE, key=self.name)
        boot_id, self.live, self.lowest, self.highest = counted or self._recounted()
        if boot_id != tx.boot_id:
            self._shrink(tx.change(sql.REMOVE_LEASES, key=self.name))
            return
        if not tx.boot_id:
            tx.change(sql.CLAMP_LEASES, key=self.name)  # as in _settle_sole
        self._shrink(tx.change(sql.REMOVE_ENDED, key=self.name))

    def _recounted(self) -> Row:
        """Return what the row of the semaphore should say, which cannot be used."""
        tx = self.tx
        tx.damage.report("lock", self.name, "its count is wrong, and made anew", "tenure_semaphore")
        ((live, lowest, highest),) = tx.rows(sql.RECOUNT, key=self.name)
        return tx.boot_id, live, lowest or 1, highest or 1

    def _settle_waiter(self, waiter: Waiter) -> None:
        tx = self.tx
        if waiter.boot_id != tx.boot_id or waiter.expires <= tx.now:
            tx.change(sql.REMOVE_WAITER, key=self.name, place=waiter.place)
            return
        if waiter.renewed > tx.now:
            waiter.expires = tx.now + waiter.expires - waiter.renewed
            waiter.renewed = tx.now
            tx.change(sql.CLAMP_WAITER, key=self.name, place=waiter.place, expires=waiter.expires)
        self.line.append(waiter)

    def grant_of(self, holder: str) -> Grant | None:
        """Return the live lease of a holder."""
        if self.live == 0:
            return None
        if self.sole is not None:
            return self.sole if self.sole.holder == holder else None
        row = self.tx.row(sql.LEASE, key=self.name, holder=holder)
        if row is None:
            return None
        *values, is_sound = row
        if not is_sound:
            raise _unusable(self.tx, self.name)
        return Grant(*values)

    def effective(self, limit: int, ahead: int) -> int:
        """Return the smallest limit among the caller, the holders and the waiters ahead of it."""
        held = [self.lowest] if self.live else []
        return min([limit, *held, *(waiter.limit for waiter in self.line[:ahead])])

    def room_for(self, limit: int, ahead: int) -> bool:
        """Return whether one more lease may live beside the present ones and those ahead."""
        return self.live + ahead < self.effective(limit, ahead)

    def ahead_of(self, holder: str) -> int:
        """Return how many waiters come before `holder`; all of them if it has no place."""
        places = (at for at, waiter in enumerate(self.line) if waiter.holder == holder)
        return next(places, len(self.line))

    def other_limit(self, mine: Grant | None, limit: int) -> int | None:
        """Return the smallest limit among the live leases but `mine`, if any of them differs."""
        if self.live == (0 if mine is None else 1):
            return None
        lowest, highest = self.lowest, self.highest
        if mine is not None and lowest != highest:
            lowest, highest = self._limits(without=mine.holder)
        return None if lowest == highest == limit else lowest

    def retry_in(self, limit: int, ahead: int) -> float:
        """Return the seconds until the lease ends whose place a refused caller would get."""
        if self.sole is not None:
            ends = self.sole.expires
        elif self.live == 0:
            ends = self.line[0].expires
        else:
            nth = min(self.live, self.live + ahead - self.effective(limit, ahead) + 1) - 1
            # From whichever end is nearer: with one limit for all it is a place at the front,
            # with a limit that was lowered one near the back.
            last = self.live - 1 - nth
            statement = sql.NTH_END if nth <= last else sql.NTH_END_FROM_LAST
            row = self.tx.row(statement, key=self.name, nth=min(nth, last))
            ends = row[0] if row is not None and isinstance(row[0], int) else self.tx.now + _SECOND
        return (ends - self.tx.now) / 1e6

    def grant(self, claim: Claim, fence: int | None = None) -> Grant:
        """Give out a lease, under the next fence or this new one; there is room."""
        tx = self.tx
        if fence is None:
            ((fence,),) = tx.rows(sql.NEXT_FENCE)
        tx.keep_fence(fence)
        grant = Grant(
            claim.holder,
            fence,
            claim.limit,
            claim.ttl,
            encode_meta(claim.meta),
            tx.boot_id,
            granted=tx.now,
            renewed=tx.now,
            expires=tx.now + claim.ttl,
        )
        tx.change(
            sql.ADD_LEASE,
            key=self.name,
            holder=grant.holder,
            fence=fence,
            limit=grant.limit,
            ttl=grant.ttl,
            meta=grant.meta,
            expires=grant.expires,
        )
        self.lowest = self.effective(grant.limit, ahead=0)
        self.highest = max(self.highest, grant.limit)
        self.live += 1
        if grant.limit == 1:
            self.sole = grant
        else:
            self._keep_count()
        return grant

    def renew(self, grant: Grant, ttl: int) -> None:
        """Let a lease live for `ttl` from now."""
        grant.ttl = ttl
        grant.renewed = self.tx.now
        grant.expires = self.tx.now + ttl
        self.tx.change(
            sql.RENEW_LEASE,
            key=self.name,
            holder=grant.holder,
            fence=grant.fence,
            ttl=ttl,
            expires=grant.expires,
        )

    def remove(self, grant: Grant) -> None:
        """End a lease."""
        self.tx.change(sql.REMOVE_LEASE, key=self.name, holder=grant.holder)
        if self.sole is None:
            self._shrink(1)
        else:
            self.sole = None
            self.live = self.lowest = self.highest = 0

    def wait(self, claim: Claim, life: int) -> None:
        """Join the line at its end, or keep the place there is."""
        place = next((one.place for one in self.line if one.holder == claim.holder), None)
        statement = sql.JOIN_LINE if place is None else sql.KEEP_PLACE
        if place is None:
            place = self.line[-1].place + 1 if self.line else 0
        self.tx.change(
            statement,
            key=self.name,
            place=place,
            holder=claim.holder,
            limit=claim.limit,
            ttl=claim.ttl,
            meta=encode_meta(claim.meta),
            expires=self.tx.now + life,
        )

    def leave(self, holder: str) -> None:
        """Give up a place in the line, if there is one."""
        for waiter in self.line:
            if waiter.holder == holder:
                self.tx.change(sql.REMOVE_WAITER, key=self.name, place=waiter.place)
                self.line.remove(waiter)
                return

    def wake_next(self) -> None:
        """Wake the first in line if there is room for it."""
        if self.line and self.room_for(self.line[0].limit, ahead=0):
            self.tx.ring(("lease", self.line[0].holder))

    def _shrink(self, gone: int) -> None:
        if gone == 0:
            return
        self.live -= gone
        if self.live == 0:
            self.lowest = self.highest = 0
            self.tx.change(sql.REMOVE_SEMAPHORE, key=self.name)
            return
        # Whoever is gone may have had the smallest or the largest limit. That takes a look at all
        # leases, but only while their limits differ: during a deployment that changes the limit.
        if self.lowest != self.highest:
            self.lowest, self.highest = self._limits(without="")
        self._keep_count()

    def _keep_count(self) -> None:
        self.tx.change(
            sql.KEEP_SEMAPHORE,
            key=self.name,
            live=self.live,
            lowest=self.lowest,
            highest=self.highest,
        )

    def _limits(self, *, without: str) -> tuple[int, int]:
        ((lowest, highest),) = self.tx.rows(sql.LIMITS, key=self.name, holder=without)
        return lowest, highest
