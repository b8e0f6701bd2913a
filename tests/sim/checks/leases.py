"""Checks the life of leases: what the store granted, and what the holders did with it.

The store's answers are replayed on a small model of the contract. It knows nothing of how a store
works; it only counts who holds what, since when, and who waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from tests.sim.history import Entry

__all__ = ["LeaseFindings", "check_leases"]


@dataclass(slots=True)
class _Record:
    """A lease, or a place in the line, by the store's clock."""

    since: int
    ttl: int
    limit: int
    fence: int = 0
    first_ttl: int = 0

    def is_over(self, now: int) -> bool:
        self.since = min(self.since, now)  # the clock was set back: never longer than the ttl
        return self.since + self.ttl <= now


@dataclass(slots=True)
class _Key:
    holders: dict[str, _Record] = field(default_factory=dict)
    line: dict[str, _Record] = field(default_factory=dict)

    def settle(self, now: int) -> tuple[int, list[str]]:
        """Drop what is over; say how many leases have ended, and which were not released."""
        over = [holder for holder, claim in self.holders.items() if claim.is_over(now)]
        left = [holder for holder, claim in self.line.items() if claim.is_over(now)]
        for holder in left:
            del self.line[holder]
        # A last renewal that was shortened gives it back, in a while.
        left += [
            holder for holder in over if self.holders[holder].ttl >= self.holders[holder].first_ttl
        ]
        for holder in over:
            del self.holders[holder]
        return len(over), left

    def ahead_of(self, holder: str) -> int:
        names = list(self.line)
        return names.index(holder) if holder in self.line else len(names)

    def has_room(self, holder: str, limit: int) -> bool:
        ahead = self.ahead_of(holder)
        waiters = islice(self.line.values(), ahead)
        limits = [limit, *(record.limit for record in (*self.holders.values(), *waiters))]
        return len(self.holders) + ahead < min(limits)


class _Leases:
    """The model, and what was wrong."""

    def __init__(self) -> None:
        self.keys: dict[str, _Key] = {}
        self.wrong: list[str] = []
        self.expired = 0
        self.unreleased: list[str] = []
        self.highest: dict[str, int] = {}
        """Never goes back, whatever the store loses."""
        self._copy: dict[str, _Key] = {}
        self._doubtful: dict[tuple[str, int], float] = {}
        """Leases that the store has lost, and until when their holders may trust them."""
        self._trust: dict[tuple[str, int], float] = {}
        self._marks: set[str] = set()

    def key(self, entry: Entry) -> _Key:
        key = self.keys.setdefault(entry.key, _Key())
        self._settle(entry.key, key, entry.now)
        return key

    def _settle(self, name: str, key: _Key, now: int) -> None:
        expired, left = key.settle(now)
        self.expired += expired
        self.unreleased += [f"{name!r} of {holder[:8]}" for holder in left]

    def listed(self, entry: Entry) -> None:
        """A list of leases, or a pruning, sees and removes what has ended."""
        for name, key in self.keys.items():
            if name.startswith(entry.key):
                self._settle(name, key, entry.now)

    def report(self, entry: Entry, why: str) -> None:
        holder = entry.holder[:8]
        self.wrong.append(
            f"{entry.at:.6f} s, {entry.by}: {entry.what} {entry.key!r} {holder} "
            f"fence {entry.fence}: {why}"
        )

    # What the store says.

    def granted(self, entry: Entry) -> None:
        key, ttl = self.key(entry), round(entry.ttl * 1e6)
        held = key.holders.get(entry.holder)
        self._trust[entry.key, entry.fence] = entry.at + entry.ttl
        if held is not None:
            if held.fence != entry.fence:
                self.report(entry, f"it has it already, under fence {held.fence}")
            held.since, held.ttl = entry.now, ttl
            return
        if not key.has_room(entry.holder, entry.limit):
            self.report(
                entry,
                f"{len(key.holders)} hold it and {key.ahead_of(entry.holder)} wait before it, "
                f"and the limit is {entry.limit}",
            )
        if entry.fence <= self.highest.get(entry.key, 0):
            self.report(entry, f"an earlier fence was {self.highest[entry.key]}")
        self.highest[entry.key] = max(entry.fence, self.highest.get(entry.key, 0))
        key.line.pop(entry.holder, None)
        key.holders[entry.holder] = _Record(entry.now, ttl, entry.limit, entry.fence, ttl)

    def busy(self, entry: Entry) -> None:
        key = self.key(entry)
        if entry.holder in key.holders:
            self.report(entry, "it holds it")
        elif key.has_room(entry.holder, entry.limit):
            self.report(entry, "there is room for it")
        if entry.ttl > 0:
            # A waiter that asks again keeps its place.
            key.line[entry.holder] = _Record(entry.now, round(entry.ttl * 1e6), entry.limit)

    def renewed(self, entry: Entry) -> None:
        held = self._held(entry)
        if entry.ok and held is None:
            self.report(entry, "it had ended, and was renewed")
        elif not entry.ok and held is not None:
            self.report(entry, "it was not renewed although it lives")
        if entry.ok and held is not None:
            held.since, held.ttl = entry.now, round(entry.ttl * 1e6)
            self._trust[entry.key, entry.fence] = entry.at + entry.ttl

    def released(self, entry: Entry) -> None:
        held = self._held(entry)
        if entry.ok and held is None:
            self.report(entry, "there was nothing of its own to release")
        elif not entry.ok and held is not None:
            self.report(entry, "it was there, and is said not to have been")
        key = self.key(entry)
        if held is not None:
            del key.holders[entry.holder]
        key.line.pop(entry.holder, None)

    def marked(self, entry: Entry) -> None:
        if entry.ok and entry.detail in self._marks:
            return  # a repeat: the store does not look at the lease for that
        if entry.ok and self._held(entry) is None:
            self.report(entry, "marked under a lease that had ended")
        if entry.ok:
            self._marks.add(entry.detail)

    def _held(self, entry: Entry) -> _Record | None:
        held = self.key(entry).holders.get(entry.holder)
        return held if held is not None and entry.fence in (0, held.fence) else None

    # What the store loses.

    def emptied(self, _: Entry) -> None:
        self._doubt()
        self.keys = {}

    def copied(self, _: Entry) -> None:
        self._copy = deepcopy(self.keys)

    def rolled_back(self, _: Entry) -> None:
        self._doubt()
        self.keys, self._copy = self._copy, {}

    def stepped(self, entry: Entry) -> None:
        if entry.seconds > 0:
            self._doubt()

    def _doubt(self) -> None:
        """Current holders may go on until their own trust ends, and no longer."""
        for name, key in self.keys.items():
            for holder in key.holders.values():
                grant = name, holder.fence
                self._doubtful[grant] = self._trust[grant]

    # What the holders do.

    def acts(self, entry: Entry) -> None:
        # Only looked at: a store, too, does nothing about what has ended before a call asks.
        key = self.keys.get(entry.key, _Key())
        held = key.holders.get(entry.holder)
        left = 0.0 if held is None else (held.since + held.ttl - entry.now) / 1e6
        if held is not None and held.fence == entry.fence and left > 0:
            if entry.seconds > left and not self._may_doubt(entry):
                self.report(entry, f"it trusts it for {entry.seconds} s; the store for {left} s")
        elif not self._may_doubt(entry):
            others = ", ".join(holder[:8] for holder in key.holders) or "nobody"
            self.report(entry, f"its lease has ended, and {others} has it")

    def _may_doubt(self, entry: Entry) -> bool:
        until = self._doubtful.get((entry.key, entry.fence))
        return until is not None and entry.at + entry.seconds <= until


class LeaseFindings(NamedTuple):
    """What came of the leases of a history."""

    wrong: list[str]
    expired: int
    """How many leases ended by themselves."""
    unreleased: list[str]
    """Leases, and places in a line, that were not released."""


def check_leases(history: Iterable[Entry]) -> LeaseFindings:
    """Return what is wrong with the leases of a history.

    - At most `limit` hold a key at any instant of the store, and no caller overtakes a waiter:
      the smallest limit among the caller, the holders and the waiters ahead of it rules.
    - Fences rise, whatever the store loses. Nothing that has ended is renewed or released.
    - Nobody acts on a lease that it does not have, nor trusts it longer than the store does,
      but for what the store itself has lost: that is trusted to the end of its last renewal.
    """
    model = _Leases()
    steps = {
        "granted": model.granted,
        "busy": model.busy,
        "renewed": model.renewed,
        "released": model.released,
        "marked": model.marked,
        "listed": model.listed,
        "emptied": model.emptied,
        "copied": model.copied,
        "rolled back": model.rolled_back,
        "stepped": model.stepped,
        "acts": model.acts,
    }
    for entry in history:
        step = steps.get(entry.what)
        if step is not None:
            step(entry)
    return LeaseFindings(model.wrong, model.expired, model.unreleased)
