"""The plan of a run: everything that will go wrong, drawn from the seed before it begins.

Each seed switches a part of the faults on ("swarm testing"): a run with all of them at once hardly
gets anywhere, and hides what only a few of them together can show.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

__all__ = [
    "CLOCKS",
    "EVENTS",
    "FAIR",
    "FAULTS",
    "LOSSES",
    "WEATHER",
    "Event",
    "Kind",
    "Plan",
    "dice_for",
]

WEATHER: Final = (
    "delays",  # some requests and replies take long
    "lost requests",  # the caller sees an error, and nothing has happened
    "lost replies",  # the caller sees an error, and it has happened
    "duplicates",  # a request arrives twice
    "late requests",  # the caller sees an error, and it happens afterwards
    "lost wake-ups",
    "late effects",  # what a holder writes elsewhere arrives late
    "edges",  # a request arrives at the very instant at which something ends or is due
)
EVENTS: Final = (
    "crash",  # a process is gone between two steps
    "pause",  # a process does nothing for a while, and goes on as if nothing had been
    "stop",  # a process is asked to stop, and another one is started
    "break",  # the connections of a machine break
    "cut",  # a machine does not reach the store for a while
    "slow",  # the store takes long for everything
    "clock",  # somebody sets the clock of a machine
    "store clock",  # somebody sets the clock of the store
    "restart",  # the store is away for a moment, and all connections break
    "empty",  # the store comes back without data
    "failover",  # the store comes back without its last writes
)
CLOCKS: Final = ("offset", "drift")
FAULTS: Final = (*WEATHER, *EVENTS, *CLOCKS)
LOSSES: Final = frozenset({"empty", "failover"})
"""What loses acknowledged writes: only a store of a low grade does so."""

FAIR: Final = frozenset(
    {"delays", "lost requests", "lost replies", "lost wake-ups", "late effects", "edges", "stop"}
    | {"clock", "offset", "drift", "store clock"}
)
"""What may go wrong without costing a job or a replica, as long as it is rare and short.

A store's clock that is set ahead may cost a lease.
"""

_FAIR_CHANCE = 0.02
_ON = 0.25
_OFTEN_ON = {"crash": 0.45, "pause": 0.4}
# Guarantees hold for clocks whose rates are less than one per cent apart.
_DRIFT = 0.009
_OFFSET = 100_000.0
# Nobody notices a step that is undone before the next beat, every 0.3 ttl.
_STEPS_APART = 0.4


class Kind(Struct, frozen=True, kw_only=True):
    """What the plans of a scenario have in common."""

    ttls: tuple[float, ...] = (1.0, 1.0, 1.5, 2.5)
    """The lengths of leases and of replicas' records, about."""
    fair_share: float = 1 / 6
    """In so many runs nobody may be taken for dead, and nothing lost."""
    sure: tuple[str, ...] = ()
    """Faults that are always switched on."""
    set_back: float = -3600.0
    """How far the store's clock is set back, at most."""


def dice_for(what: str, scenario: str, seed: int) -> random.Random:
    """Return the dice for one feature of a run: they fall as they like, whatever others show."""
    return random.Random(f"{what} of {scenario} {seed}")


class Event(Struct, frozen=True):
    """One thing that goes wrong at an instant."""

    at: float
    what: str
    machine: int = 0
    length: float = 0.0
    """Seconds, if it lasts; for a crash, how long the machine stays away."""
    amount: float = 0.0
    """For a crash the steps until then, for a clock its step, for a fail-over the writes lost."""
    number: int = 0
    """Its place in the plan of the seed, whatever is left out of that."""

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
    """What a run is made of."""

    seed: int
    scenario: str
    machines: int
    horizon: float
    """When everything stops going wrong."""
    ttl: float
    """The length of leases and of replicas' records, about: faults last some of it."""
    is_fair: bool
    """Whether nothing happens that could cost anybody a lease or a job."""
    weather: dict[str, float]
    """How likely each is, per call."""
    events: tuple[Event, ...]
    offsets: tuple[float, ...]
    rates: tuple[float, ...]

    @classmethod
    def draw(
        cls,
        seed: int,
        scenario: str,
        kind: Kind,
        *,
        machines: int,
        horizon: float,
        faults: Collection[str],
    ) -> Plan:
        """Return the plan of a seed; only what is among `faults` can be in it."""
        dice = random.Random(f"plan {scenario} {seed}")
        on = [fault for fault in FAULTS if dice.random() < _OFTEN_ON.get(fault, _ON)]
        on = [fault for fault in FAULTS if fault in on or fault in kind.sure]
        if "empty" in on or "failover" in on:
            # Without its data a store needs a clock that was not set back, or fences repeat.
            left_out = LOSSES if "store clock" in kind.sure else {"store clock"}
            on = [fault for fault in on if fault not in left_out]
        ttl = dice.choice(kind.ttls)
        is_fair = dice_for("weather", scenario, seed).random() < kind.fair_share
        if is_fair:
            on = [fault for fault in on if fault in FAIR]
        chances = (_FAIR_CHANCE,) if is_fair else (0.02, 0.1, 0.25)
        bounds = _Bounds(machines, horizon, ttl, kind.set_back)
        plan = cls(
            is_fair=is_fair,
            seed=seed,
            scenario=scenario,
            machines=machines,
            horizon=horizon,
            ttl=ttl,
            weather={one: dice.choice(chances) for one in WEATHER if one in on},
            events=tuple(_events(dice, on, bounds)),
            offsets=tuple(dice.uniform(-_OFFSET, _OFFSET) for _ in range(machines)),
            rates=tuple(1 + dice.uniform(-_DRIFT, _DRIFT) for _ in range(machines)),
        )
        off = [one for one in FAULTS if one not in on or one not in faults]
        return plan.without(off)

    def dice(self, what: str) -> random.Random:
        """Return dice for a feature that the scenario has."""
        return dice_for(what, self.scenario, self.seed)

    def without(self, faults: Collection[str]) -> Plan:
        """Return the plan with these kinds of faults left out."""
        return replace(
            self,
            weather={one: chance for one, chance in self.weather.items() if one not in faults},
            events=tuple(event for event in self.events if event.what not in faults),
            offsets=(0.0,) * self.machines if "offset" in faults else self.offsets,
            rates=(1.0,) * self.machines if "drift" in faults else self.rates,
        )

    def only(self, numbers: Collection[int]) -> Plan:
        """Return the plan with these events alone."""
        return replace(self, events=tuple(one for one in self.events if one.number in numbers))

    def until(self, horizon: float) -> Plan:
        """Return the plan with everything going well from `horizon` on."""
        kept = tuple(event for event in self.events if event.at < horizon)
        return replace(self, horizon=min(horizon, self.horizon), events=kept)

    @property
    def faults(self) -> list[str]:
        """What is switched on."""
        kinds = {event.what for event in self.events} | set(self.weather)
        kinds |= {"offset"} if any(self.offsets) else set()
        kinds |= {"drift"} if any(rate != 1 for rate in self.rates) else set()
        return [one for one in FAULTS if one in kinds]

    def __str__(self) -> str:
        lines = [f"{self.machines} machines, ttl {self.ttl:g} s, all well from {self.horizon:g} s"]
        lines += [f"{one}: {chance:.0%} of all calls" for one, chance in self.weather.items()]
        lines += [f"clocks: {one}" for one in CLOCKS if one in self.faults]
        lines += map(str, self.events)
        return "\n".join(lines)


class _Bounds(Struct, frozen=True):
    """Within what events are drawn."""

    machines: int
    horizon: float
    ttl: float
    set_back: float


def _events(dice: random.Random, on: Collection[str], bounds: _Bounds) -> list[Event]:
    events: list[Event] = []
    for what in EVENTS:
        if what in on:
            times = 1 if what in _ONCE else dice.choice((1, 1, 2, 3))
            events += [_event(dice, what, bounds) for _ in range(times)]
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


def _event(dice: random.Random, what: str, bounds: _Bounds) -> Event:
    ttl = bounds.ttl
    longer = dice.uniform(0.05, 3 * ttl)
    lengths = {
        "crash": dice.choice((0.05, 1.0, longer)),
        "restart": dice.choice((0.05, 0.3, longer)),
        "empty": dice.choice((0.05, 0.3, longer)),
        "slow": dice.uniform(0.1, ttl),
    }
    amounts = {
        "crash": dice.randint(1, 40),
        "clock": dice.choice((-3600.0, -1.0, 1.0, 3600.0)),
        "store clock": dice.choice((bounds.set_back, -1.0, 0.5, 0.95 * ttl, 1.5 * ttl, 60.0)),
        "failover": dice.randint(1, 20),
        "slow": dice.uniform(0.05, 0.8 * ttl),
    }
    return Event(
        at=round(dice.uniform(0.01, bounds.horizon), 3),
        what=what,
        machine=dice.randrange(bounds.machines),
        length=round(lengths.get(what, longer), 3),
        amount=round(amounts.get(what, 0.0), 3),
    )
