"""The plan of a run: all faults, drawn from the seed before the run begins.

Each seed switches on a part of the faults ("swarm testing"). A run with all of them at once makes
little progress, and hides what only a few of them together can show.

A seed must keep its meaning: the texts that seed the generators stay as they are, and draws keep
their order.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

__all__ = [
    "CALL_FAULTS",
    "CLOCKS",
    "EVENTS",
    "FAULTS",
    "LOSSES",
    "MILD",
    "Event",
    "Plan",
    "Profile",
    "rng_for",
]

CALL_FAULTS: Final = (
    "delays",  # some requests and replies take long
    "lost requests",  # the caller sees an error; the call was not executed
    "lost replies",  # the caller sees an error; the call was executed
    "duplicates",  # a request arrives twice
    "late requests",  # the caller sees an error; the call is executed afterwards
    "lost wake-ups",
    "late effects",  # what a holder writes to the fenced resource arrives late
    "edges",  # a request arrives at the very instant at which a lease ends or a job is due
)
"""Faults that may strike any single call."""
EVENTS: Final = (
    "crash",  # a process is killed between two steps
    "pause",  # a process does nothing for a while, and then continues
    "stop",  # a process is asked to stop, and another one is started
    "break",  # the connections of a machine break
    "cut",  # a machine does not reach the store for a while
    "slow",  # the store takes long for each call
    "clock",  # the clock of a machine is set
    "store clock",  # the clock of the store is set
    "restart",  # the store is down for a moment, and all connections break
    "empty",  # the store comes back without data
    "failover",  # the store comes back without its last writes
)
"""Faults that strike once, at a planned time."""
CLOCKS: Final = ("offset", "drift")
FAULTS: Final = (*CALL_FAULTS, *EVENTS, *CLOCKS)
LOSSES: Final = frozenset({"empty", "failover"})
"""Faults that lose acknowledged writes, as only a store of a low durability grade does."""

MILD: Final = frozenset(
    {"delays", "lost requests", "lost replies", "lost wake-ups", "late effects", "edges", "stop"}
    | {"clock", "offset", "drift", "store clock"}
)
"""Faults that cost no job and no replica, as long as they are rare and short.

A store's clock that is set ahead may still cost a lease.
"""

_MILD_RATE = 0.02
_ON = 0.25
_OFTEN_ON = {"crash": 0.45, "pause": 0.4}
# Guarantees hold for clocks whose rates are less than 1 % apart.
_DRIFT = 0.009
_OFFSET = 100_000.0
# Replicas read the store's clock with each heartbeat, every 0.3 ttl. They cannot notice a step that
# is undone before that.
_STEPS_APART = 0.4


class Profile(Struct, frozen=True, kw_only=True):
    """What all plans of a scenario have in common."""

    ttls: tuple[float, ...] = (1.0, 1.0, 1.5, 2.5)
    """Possible lengths of leases and of replicas' records, about."""
    mild_share: float = 1 / 6
    """The share of runs with mild faults only, in which nothing may be lost."""
    sure: tuple[str, ...] = ()
    """Faults that are always switched on."""
    set_back: float = -3600.0
    """How far the store's clock is set back, at most."""


def rng_for(what: str, scenario: str, seed: int) -> random.Random:
    """Return a random generator for one feature of a run, independent of all other features."""
    return random.Random(f"{what} of {scenario} {seed}")


class Event(Struct, frozen=True):
    """One fault at an instant."""

    at: float
    what: str
    machine: int = 0
    length: float = 0.0
    """Seconds, if it lasts; for a crash, how long the machine stays away."""
    amount: float = 0.0
    """For a crash the steps until then, for a clock its step, for a fail-over the writes lost."""
    number: int = 0
    """Its place in the whole plan of the seed, also if other events are left out."""

    def __str__(self) -> str:
        where = f" of machine {self.machine}" if self.what in _OF_MACHINES else ""
        how = _DETAILS.get(self.what, "").format(self)
        return f"#{self.number:<2} {self.at:.3f} s: {self.what}{where}{how}"


_OF_MACHINES = ("crash", "pause", "stop", "break", "cut", "clock")
_DETAILS: Final = {
    "crash": " {0.amount:g} steps later, back after {0.length:g} s",
    "pause": " for {0.length:g} s",
    "cut": " for {0.length:g} s",
    "slow": ": {0.amount:g} s for each call, for {0.length:g} s",
    "clock": " by {0.amount:+g} s",
    "store clock": " by {0.amount:+g} s",
    "restart": ", away for {0.length:g} s",
    "empty": ", away for {0.length:g} s",
    "failover": ", {0.amount:g} writes later these are lost",
}


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that a run is decided by."""

    seed: int
    scenario: str
    machines: int
    horizon: float
    """When all faults end."""
    ttl: float
    """The length of leases and of replicas' records, about: faults last some of it."""
    is_mild: bool
    """Whether all faults are mild: none may cost a lease or a job."""
    call_faults: dict[str, float]
    """How likely each fault is, per call."""
    events: tuple[Event, ...]
    offsets: tuple[float, ...]
    rates: tuple[float, ...]

    @classmethod
    def draw(
        cls,
        seed: int,
        scenario: str,
        profile: Profile,
        *,
        machines: int,
        horizon: float,
        faults: Collection[str],
    ) -> Plan:
        """Return the plan of a seed, restricted to `faults`."""
        rng = random.Random(f"plan {scenario} {seed}")
        on = [fault for fault in FAULTS if rng.random() < _OFTEN_ON.get(fault, _ON)]
        on = [fault for fault in FAULTS if fault in on or fault in profile.sure]
        if "empty" in on or "failover" in on:
            # A store without its data draws fences from its clock: set back, they would repeat.
            left_out = LOSSES if "store clock" in profile.sure else {"store clock"}
            on = [fault for fault in on if fault not in left_out]
        ttl = rng.choice(profile.ttls)
        is_mild = rng_for("weather", scenario, seed).random() < profile.mild_share
        if is_mild:
            on = [fault for fault in on if fault in MILD]
        chances = (_MILD_RATE,) if is_mild else (0.02, 0.1, 0.25)
        bounds = _Bounds(machines, horizon, ttl, profile.set_back)
        plan = cls(
            is_mild=is_mild,
            seed=seed,
            scenario=scenario,
            machines=machines,
            horizon=horizon,
            ttl=ttl,
            call_faults={fault: rng.choice(chances) for fault in CALL_FAULTS if fault in on},
            events=tuple(_events(rng, on, bounds)),
            offsets=tuple(rng.uniform(-_OFFSET, _OFFSET) for _ in range(machines)),
            rates=tuple(1 + rng.uniform(-_DRIFT, _DRIFT) for _ in range(machines)),
        )
        off = [fault for fault in FAULTS if fault not in on or fault not in faults]
        return plan.without(off)

    def rng(self, what: str) -> random.Random:
        """Return a random generator for a feature of the scenario."""
        return rng_for(what, self.scenario, self.seed)

    def without(self, faults: Collection[str]) -> Plan:
        """Return the plan without these kinds of faults."""
        return replace(
            self,
            call_faults={
                fault: chance for fault, chance in self.call_faults.items() if fault not in faults
            },
            events=tuple(event for event in self.events if event.what not in faults),
            offsets=(0.0,) * self.machines if "offset" in faults else self.offsets,
            rates=(1.0,) * self.machines if "drift" in faults else self.rates,
        )

    def only(self, numbers: Collection[int]) -> Plan:
        """Return the plan with only these events."""
        kept = tuple(event for event in self.events if event.number in numbers)
        return replace(self, events=kept)

    def until(self, horizon: float) -> Plan:
        """Return the plan without faults from `horizon` on."""
        kept = tuple(event for event in self.events if event.at < horizon)
        return replace(self, horizon=min(horizon, self.horizon), events=kept)

    @property
    def faults(self) -> list[str]:
        """The kinds of faults that are switched on."""
        kinds = {event.what for event in self.events} | set(self.call_faults)
        kinds |= {"offset"} if any(self.offsets) else set()
        kinds |= {"drift"} if any(rate != 1 for rate in self.rates) else set()
        return [fault for fault in FAULTS if fault in kinds]

    def __str__(self) -> str:
        lines = [
            f"{self.machines} machines, ttl {self.ttl:g} s, no faults from {self.horizon:g} s on"
        ]
        lines += [
            f"{fault}: {chance:.0%} of all calls" for fault, chance in self.call_faults.items()
        ]
        lines += [f"clocks: {fault}" for fault in CLOCKS if fault in self.faults]
        lines += map(str, self.events)
        return "\n".join(lines)


class _Bounds(Struct, frozen=True):
    """The limits within which events are drawn."""

    machines: int
    horizon: float
    ttl: float
    set_back: float


def _events(rng: random.Random, on: Collection[str], bounds: _Bounds) -> list[Event]:
    events: list[Event] = []
    for what in EVENTS:
        if what in on:
            times = 1 if what in _ONCE else rng.choice((1, 1, 2, 3))
            events += [_event(rng, what, bounds) for _ in range(times)]
    events.sort(key=lambda event: event.at)
    events = list(_with_steps_apart(events, _STEPS_APART * bounds.ttl))
    return [replace(event, number=number) for number, event in enumerate(events)]


_ONCE = ("empty", "failover")


def _with_steps_apart(events: Iterable[Event], least: float) -> Iterator[Event]:
    """Leave out steps of the store's clock that follow another one too soon."""
    last = -least
    for event in events:
        if event.what != "store clock":
            yield event
        elif event.at >= last + least:
            last = event.at
            yield event


def _event(rng: random.Random, what: str, bounds: _Bounds) -> Event:
    ttl = bounds.ttl
    longer = rng.uniform(0.05, 3 * ttl)
    lengths = {
        "crash": rng.choice((0.05, 1.0, longer)),
        "restart": rng.choice((0.05, 0.3, longer)),
        "empty": rng.choice((0.05, 0.3, longer)),
        "slow": rng.uniform(0.1, ttl),
    }
    amounts = {
        "crash": rng.randint(1, 40),
        "clock": rng.choice((-3600.0, -1.0, 1.0, 3600.0)),
        "store clock": rng.choice((bounds.set_back, -1.0, 0.5, 0.95 * ttl, 1.5 * ttl, 60.0)),
        "failover": rng.randint(1, 20),
        "slow": rng.uniform(0.05, 0.8 * ttl),
    }
    return Event(
        at=round(rng.uniform(0.01, bounds.horizon), 3),
        what=what,
        machine=rng.randrange(bounds.machines),
        length=round(lengths.get(what, longer), 3),
        amount=round(amounts.get(what, 0.0), 3),
    )
