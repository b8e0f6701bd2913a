"""The plan of the shop's hour: its requests, its faults, and the numbers of its jobs."""

from __future__ import annotations

from functools import cache
from typing import Final

from tests.sim.fleet import Fleet
from tests.sim.plan import Event, Plan, rng_for

__all__ = [
    "BIG",
    "CHARGE",
    "CHECKOUT",
    "EACH",
    "HOUR",
    "MAIL",
    "RUNS_LEFT",
    "SALE",
    "SMALL",
    "begin",
    "draw",
    "flood_of",
    "outage",
]

HOUR: Final = 3600.0
"""In seconds of virtual time."""
_MINUTE: Final = 60.0
_OUTAGE: Final = 600.0

_FLOODS: Final = (1000, 1500, 2000)
_LARGE_FLOOD: Final = 10_000
_LARGE_IN: Final = 50
"""One of so many seeds has the large flood. It takes several times as long as the others."""
SALE: Final = 400
"""So many customers check out at once: more than all workers together have slots."""
_SMALL: Final = 3
RUNS_LEFT: Final = 20
"""Records in the store when the retention of all jobs is over: the latest runs of timers."""

# The number of a job tells of which kind it is.
MAIL: Final = 1_000_000
SMALL: Final = 2_000_000
BIG: Final = 3_000_000
CHECKOUT: Final = 4_000_000
CHARGE: Final = 5_000_000
EACH: Final = 100_000
"""So many numbers of each kind for each machine."""


def draw(seed: int, *, machines: int) -> Plan:
    """Return the plan of a seed: a kill per minute, one restart of the store, some bad calls."""
    rng = rng_for("plan", "shop", seed)
    events = [
        Event(
            # What a kill has cut off runs again before the next kill, 40 s later at the earliest.
            at=round(minute * _MINUTE + rng.uniform(20, 40), 3),
            what="crash",
            machine=rng.randrange(machines),
            length=rng.choice((0.05, 1.0, 5.0, 20.0)),
            amount=rng.randint(1, 40),
        )
        for minute in range(int(HOUR / _MINUTE))
    ]
    away = rng.choice((0.3, 5.0, 30.0))
    events.append(Event(round(rng.uniform(300, 3000), 3), "restart", length=away))
    events.sort(key=lambda event: event.at)
    call_faults = ("delays", "lost requests", "lost replies", "lost wake-ups", "late effects")
    return Plan(
        seed=seed,
        scenario="shop",
        machines=machines,
        horizon=HOUR,
        ttl=10.0,
        is_mild=False,
        call_faults={kind: 0.01 for kind in call_faults if rng.random() < 0.5},
        events=tuple(
            Event(event.at, event.what, event.machine, event.length, event.amount, number)
            for number, event in enumerate(events)
        ),
        offsets=tuple(rng.uniform(-1000.0, 1000.0) for _ in range(machines)),
        rates=tuple(1 + rng.uniform(-0.005, 0.005) for _ in range(machines)),
    )


@cache
def outage(seed: int) -> tuple[float, float]:
    """Return from when to when the mail server is down."""
    start = rng_for("mail server", "shop", seed).uniform(300, 1500)
    return start, start + _OUTAGE


def flood_of(seed: int) -> int:
    """Return how many jobs the large tenant has."""
    is_large = seed % _LARGE_IN == _LARGE_IN - 1
    return _LARGE_FLOOD if is_large else rng_for("flood", "shop", seed).choice(_FLOODS)


def begin(fleet: Fleet) -> None:
    """Decide when what comes in, and by which machine."""
    rng = fleet.plan.rng("shop")
    flood_at = rng.uniform(60, 2400)
    for machine in fleet.machines:
        machine.disk |= {"mails": 0, "requesting": 0}
    big, small, sale = (fleet.machines[place % len(fleet.machines)] for place in range(3))
    big.disk["flood"] = (flood_at, flood_of(fleet.plan.seed))
    waits = sorted(rng.uniform(1, 15) for _ in range(_SMALL))
    small.disk["small"] = [(flood_at + wait, number) for number, wait in enumerate(waits)]
    sale.disk["sale"] = rng.uniform(60, 3000)
