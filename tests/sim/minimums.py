"""How often each event must have happened: a simulation in which nothing happens proves nothing.

`batches` compares the counts of many runs with these minimums, and the simulation fails below them.
"""

from __future__ import annotations

from typing import Final

from tests.sim.plan import FAULTS

__all__ = ["MINIMUMS", "RUNS_FOR_MINIMUMS", "runs_for_minimums"]

# With fewer runs than this there may be too little of something by chance.
RUNS_FOR_MINIMUMS: Final = 60


def runs_for_minimums(scenario: str) -> int:
    """Return from how many runs on the minimums of a scenario apply.

    One is enough for the shop: its hour has enough of each event.
    """
    return 1 if scenario == "shop" else RUNS_FOR_MINIMUMS


_USUAL = 0.03
_CLIENTS: Final = ("delays", "lost requests", "lost replies", "duplicates", "late requests")


def _faults(rarer: dict[str, float]) -> dict[str, float]:
    """Return the smallest share of runs with each fault: about a fifth of the usual share.

    `rarer` has smaller shares for faults that a scenario seldom meets. A minimum applies once it
    demands at least one event, so rarer faults need more runs.
    """
    shares = dict.fromkeys((*FAULTS, "edges met"), _USUAL)
    shares |= {"store clock": 0.01, "failover": 0.01, "lost wake-ups": 0.01, **rarer}
    return {"mild plans": _USUAL} | {f"runs with {what}": share for what, share in shares.items()}


_STEPS: Final = {
    "steps ahead": 0.02,
    "steps back": 0.003,
    "claims after a step ahead": 0.02,
    "claims after a step back": 0.003,
}
"""Of the store's clock, where jobs run."""

MINIMUMS: Final = {
    "locks": {
        "grants": 2.0,
        "expired leases": 0.15,
        "refused stale calls": 0.1,
        "pause": 0.1,
        **_faults(
            {"failover": 0.001, "lost wake-ups": 0.001, "edges met": 0.003, "late effects": 0.01}
        ),
    },
    "leases": {
        "grants": 5.0,
        "expired leases": 0.5,
        "refused stale calls": 1.0,
        "refused stale effects": 0.05,
        "crash": 0.05,
        "pause": 0.1,
        "lost writes": 1.0,
        **_faults({"failover": 0.003, "lost wake-ups": 0.003, "edges met": 0.003}),
    },
    "jobs": {
        "claims": 6.0,
        "retries": 2.0,
        "recoveries": 0.15,
        "refused stale calls": 0.2,
        "refused stale effects": 0.01,
        "crash": 0.08,
        "pause": 0.15,
        "lost writes": 5.0,
        **_STEPS,
        **_faults({}),
    },
    "fleet": {
        "grants": 3.0,
        "claims": 8.0,
        "recoveries": 0.2,
        "crash": 0.1,
        "pause": 0.15,
        **_STEPS,
        **_faults({}),
    },
    "clocks": {
        "claims": 10.0,
        "retries": 1.0,
        "ticks": 2.0,
        "recoveries": 0.1,
        "steps ahead": 0.6,
        "steps back": 0.15,
        "claims after a step ahead": 8.0,
        "claims after a step back": 2.0,
        "ticks after a step ahead": 4.0,
        "ticks after a step back": 0.5,
        "crash": 0.1,
        **_faults(
            {"store clock": 0.9, "empty": 0.0, "failover": 0.0, "lost wake-ups": 0.003}
            | dict.fromkeys(("pause", "break", "cut", "slow", "restart", "late effects"), 0.01)
            | dict.fromkeys(("duplicates", "late requests", "edges met"), 0.01)
        ),
    },
    "timers": {
        "ticks": 5.0,
        "ticks won by others": 5.0,
        "skipped ticks": 1.0,
        "paused ticks": 0.5,
        "triggered runs": 0.05,
        "second attempts": 0.1,
        "renames": 0.2,
        "redefinitions": 0.3,
        "forgotten timers": 0.06,
        "resets": 0.005,
        "crash": 0.1,
        "pause": 0.15,
        "steps ahead": 0.03,
        "steps back": 0.01,
        "ticks after a step ahead": 0.5,
        "ticks after a step back": 0.03,
        **_faults({"lost wake-ups": 0.003, "edges met": 0.01}),
    },
    "http": {
        "submissions": 5.0,
        "lost answers": 1.5,
        "replays": 1.0,
        "refused requests": 0.25,
        "resumed streams": 0.8,
        "denied": 0.5,
        "recoveries": 0.08,
        "crash": 0.15,
        "pause": 0.15,
        **_STEPS,
        **_faults({"late effects": 0.003, "edges met": 0.01}),
        **{f"runs with {what} of clients": _USUAL for what in _CLIENTS},
    },
    "shop": {
        "claims": 2000.0,
        "retries": 500.0,
        "ticks": 120.0,
        "recoveries": 10.0,
        "crash": 50.0,
        "jobs beside a backlog": 3.0,
        **_faults({fault: 0.0 for fault in FAULTS if fault not in ("crash", "restart")}),
        "runs with crash": 1.0,
        "runs with restart": 1.0,
        "runs with edges met": 0.0,
        "mild plans": 0.0,
        "steps ahead": 0.0,
        "steps back": 0.0,
    },
}
"""The smallest average per run, by scenario and event."""
