"""Why a lock or semaphore can be had or not: its holders, its limit, and who waits in line."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.durations import duration
from tenure.core.leases import Lease
from tenure.core.safe_text import safe
from tenure.core.why.answer import Clause, Why, answer, command, listed, process

__all__ = ["why_lock", "why_unreadable_lock"]


def why_lock(name: str, leases: Sequence[Lease]) -> Why:
    """Explain a lock or semaphore by its holders and waiters, as a store lists them.

    Codes: free; open: a semaphore with holders and room for more; held: a lock, or a semaphore
    without room.
    """
    holders = [lease for lease in leases if not lease.waiting]
    waiters = [lease for lease in leases if lease.waiting]
    line = _line(waiters)
    if not holders:
        return answer(Clause("free", f"no process holds it{_next_in_line(waiters)}"))
    limit = min(holder.limit for holder in holders)
    is_lock = limit == 1 and len(holders) == 1
    text = _holder(holders[0]) if is_lock else _slots(holders, limit)
    code = "held" if len(holders) >= limit else "open"
    tail = "; ".join(filter(None, (_limits(holders, limit), line)))
    return answer(Clause(code, text, _release(name, holders)), tail=tail)


def why_unreadable_lock(name: str, damage: str) -> Why:
    """Explain a lock whose record is damaged: its code is unreadable."""
    remove = f"If its holder is gone, remove it: {command('locks', 'release', name, '--force')}"
    text = f"its record cannot be read: {safe(damage)}"
    return answer(Clause("unreadable", text, remove), tail="it counts as held")


def _holder(holder: Lease) -> str:
    held = f"held by {_process(holder)} for {duration(holder.held_for)}"
    return f"it is {held}, and expires in {duration(holder.expires_in)} unless it is renewed"


def _slots(holders: Sequence[Lease], limit: int) -> str:
    who = listed([_process(holder) for holder in holders])
    first = min(holder.expires_in for holder in holders)
    held = f"{len(holders):,} of {limit:,} slots are held by {who}"
    if len(holders) == 1:
        held = f"1 of {limit:,} slots is held by {who}"
    return f"{held}, and the next one expires in {duration(first)} unless it is renewed"


def _limits(holders: Sequence[Lease], limit: int) -> str:
    limits = sorted({holder.limit for holder in holders})
    if len(limits) == 1:
        return ""
    numbers = listed([f"{each:,}" for each in limits])
    return f"its holders use the limits {numbers}, and {limit:,} rules"


def _line(waiters: Sequence[Lease]) -> str:
    if not waiters:
        return ""
    first = waiters[0]
    next_ = f"{_process(first)} has waited for {duration(first.held_for)} and is next"
    return next_ if len(waiters) == 1 else f"{len(waiters):,} wait in line: {next_}"


def _next_in_line(waiters: Sequence[Lease]) -> str:
    if not waiters:
        return ""
    others = f" of {len(waiters):,} in line" if len(waiters) > 1 else ""
    return f", and {_process(waiters[0])} is the next{others} to get it"


def _release(name: str, holders: Sequence[Lease]) -> str:
    if len(holders) > 1:
        return (
            f"If a holder is gone, release it by its fence, see: {command('locks', 'show', name)}"
        )
    release = command("locks", "release", name, "--fence", str(holders[0].fence))
    return f"If its holder is gone, release it: {release}"


def _process(lease: Lease) -> str:
    return process(lease.meta, lease.holder)
