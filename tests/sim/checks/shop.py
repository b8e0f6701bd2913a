"""Checks the promises to the shop: nothing lost, nothing doubled, no tenant starved, no growth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.sim.history import Entry
from tests.sim.scenarios.shop_plan import BIG, CHARGE, CHECKOUT, RUNS_LEFT, SMALL

__all__ = ["PAID_WITHIN", "SERVED_WITHIN", "check_shop"]

SERVED_WITHIN: Final = 15.0
"""Seconds from the enqueue of a small tenant's job, or of a payment, to its end.

It runs for a second at most. Jobs of the other tenant take 5 to 15 s on 300 slots, so that about 30
of them end in every second.
"""
PAID_WITHIN: Final = 40.0
"""The same for payments while the other tenant's jobs take all slots.

A sale starts 400 checkouts and 400 payments, so it takes 27 s if 30 slots become free per second. A
machine that is away for 20 s takes a third of them with it.
"""
_SLOTS: Final = 300
_AFTER_A_LOSS: Final = 20.0
"""What each loss may add: the ttl of 10 s, and two looks at the expired replicas."""
_TASKS_MAX: Final = 600
"""Of a process: 100 slots, up to 500 more that have lent theirs."""


def check_shop(history: Sequence[Entry]) -> list[str]:
    """Return what is wrong with the shop's hour.

    - Every job that was accepted has succeeded.
    - A mail or a payment is delivered once, and once more for each loss of its job at most.
    - A small tenant's job ends within seconds, beside the backlog of a large tenant. So does a
      payment, also if the checkouts that wait for payments fill all slots.
    - No process has more in hand than its slots; the store forgets what is no longer kept.
    """
    accepted = {entry.job: entry for entry in history if entry.what == "accepted"}
    finals = {entry.job: entry for entry in history if entry.what == "final"}
    if not finals:
        return []  # it has not come to its end, which is a violation already
    wrong = [
        f"{entry.at} s: job {job}, number {entry.number}, was accepted and is "
        f"{finals[job].outcome if job in finals else 'gone'} in the end"
        for job, entry in accepted.items()
        if job not in finals or finals[job].outcome != "succeeded"
    ]
    wrong += _doubled(history, finals)
    wrong += _starved(history, finals)
    wrong += _grown(history)
    return wrong


def _doubled(history: Sequence[Entry], finals: dict[str, Entry]) -> list[str]:
    delivered = [entry for entry in history if entry.what == "delivered"]
    times = Counter(entry.job for entry in delivered)
    first = {entry.number: entry.job for entry in reversed(delivered)}
    wrong = [
        f"{job} was delivered {number} times and lost {finals[job].losses} times"
        for job, number in times.items()
        if job in finals and number > 1 + finals[job].losses
    ]
    return wrong + [
        f"{entry.at} s: {entry.number} was delivered by {entry.job} and by {first[entry.number]}"
        for entry in delivered
        if entry.job != first[entry.number]
    ]


def _starved(history: Sequence[Entry], finals: dict[str, Entry]) -> list[str]:
    """Return jobs of the small tenant, and payments, that took too long."""
    stored: dict[str, tuple[float, float]] = {}
    flood: set[str] = set()
    away = [(entry.at, entry.at + entry.seconds) for entry in history if entry.what == "restart"]
    wrong: list[str] = []
    for entry in history:
        if entry.what == "inserted" and entry.answer == "created":
            if BIG <= entry.number < CHECKOUT:
                flood.add(entry.job)
            elif entry.number >= CHARGE:
                stored[entry.job] = (
                    entry.at,
                    PAID_WITHIN if len(flood) > _SLOTS else SERVED_WITHIN,
                )
            elif SMALL <= entry.number < BIG:
                stored[entry.job] = (entry.at, SERVED_WITHIN)
        elif entry.what == "settled" and entry.outcome == "succeeded":
            flood.discard(entry.job)
            if entry.job not in stored:
                continue
            began, limit = stored.pop(entry.job)
            took = entry.at - began - _AFTER_A_LOSS * finals[entry.job].losses
            # Workers that lost their connections try again within a second.
            took -= sum(
                stop - start + 1.0
                for start, stop in away
                if stop > began - 1.0 and start < entry.at
            )
            if took > limit:
                wrong.append(f"{entry.at} s: {_kind(entry.job, finals)} took {took:.1f} s")
    return wrong + [f"{_kind(job, finals)} has no end" for job in stored]


def _kind(job: str, finals: dict[str, Entry]) -> str:
    is_payment = job in finals and finals[job].number >= CHARGE
    return f"payment {job}" if is_payment else f"the small tenant's {job}"


def _grown(history: Sequence[Entry]) -> list[str]:
    wrong = [
        f"{entry.at} s, {entry.by}: it has {entry.number} tasks"
        for entry in history
        if entry.what == "sampled" and entry.by != "store" and entry.number > _TASKS_MAX
    ]
    left = [entry for entry in history if entry.what == "sampled" and entry.by == "store"]
    return wrong + [
        f"{entry.at} s: {entry.number} records are left, {RUNS_LEFT} at the most were expected"
        for entry in left
        if entry.number > RUNS_LEFT
    ]
