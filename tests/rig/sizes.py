"""How much the tests do: little in an ordinary run, much in a soak.

The environment variable TENURE_TEST_SIZE chooses: `short` (the default, for the gate), `proof` (as
`make proof` has it) or `soak`.
"""

import os
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Storm:
    """How hard a storm of `tests.chaos` is, and for how long; all times are in seconds.

    One kind of fault comes every so often, on average. What must have come of it at the least is
    derived from that, see `tests.chaos.weather`.
    """

    seconds: float
    workers: int = 5
    producers: int = 2
    holders: int = 6
    kill_every: float = 0.42
    pause_every: float = 2.0
    terminate_every: float = 6.0
    restart_every: float = 8.0
    network_every: float = 5.0
    longest_pause: float = 4.5
    """Of a process, in ttls."""
    busy_seconds: float = 60.0
    """How long eight processes share one SQLite file."""
    rounds: int = 3
    """How often the clock of a store is set, a disk filled, a worker given poison."""
    steps: int = 6
    """How often each kind of group fails over."""
    shop_seconds: float = 300.0
    """How long the shop has customers."""
    shop_flood: int = 10_000
    """How many jobs its large tenant enqueues at once."""
    shop_kills: int = 5
    """How many of its workers are killed."""


@dataclass(frozen=True)
class Size:
    """The amounts that tests with many processes, random faults or generated examples use."""

    name: str
    processes: int
    """Children that compete for the same thing."""
    seconds: float
    """How long a test that runs "for a while" goes on."""
    examples: int
    """Generated examples per property."""
    steps: int
    """Steps of one generated example with state."""
    rounds: int
    """Repetitions of a test that hunts for a race."""
    faults: int
    """Faults injected by a test that breaks things at random."""
    jobs: int
    """Jobs that a queue under test works off."""
    old_jobs: int
    """Idle jobs in a store, which ought to slow nothing down."""
    outage: float
    """How long, in seconds, a store that goes away stays away."""
    fuzz: float
    """How long, in seconds, each decoder is fed with bad input."""
    patience: float
    """The deadline, in seconds, for something that ought to happen at once."""
    storm: Storm
    """The chaos of each store."""
    planted_share: int
    """One in so many planted bugs is planted."""


FULL_STORM = Storm(seconds=220.0)
"""What `make chaos` does; with all stores and parts it takes about 25 minutes."""

_PROOF = Size(
    name="proof",
    processes=6,
    seconds=4.0,
    examples=50,
    steps=30,
    rounds=20,
    faults=10,
    jobs=200,
    old_jobs=10_000,
    outage=5.0,
    fuzz=0.15,
    patience=20.0,
    storm=Storm(
        seconds=7.0,
        workers=4,
        holders=5,
        kill_every=0.6,
        pause_every=1.1,
        terminate_every=3.0,
        restart_every=3.5,
        network_every=2.5,
        longest_pause=4.0,
        busy_seconds=3.0,
        rounds=1,
        steps=1,
        shop_seconds=6.0,
        shop_flood=1000,
        shop_kills=1,
    ),
    planted_share=10,
)
# Of everything random a little: the gate has five minutes, and `make proof` has the rest.
_SHORT = replace(_PROOF, name="short", examples=24, rounds=10, faults=6, planted_share=200)
_SOAK = Size(
    name="soak",
    processes=16,
    seconds=30.0,
    examples=2000,
    steps=100,
    rounds=500,
    faults=300,
    jobs=20_000,
    old_jobs=1_000_000,
    outage=30.0,
    fuzz=30.0,
    patience=120.0,
    storm=FULL_STORM,
    planted_share=1,
)
_SIZES = {size.name: size for size in (_SHORT, _PROOF, _SOAK)}


def _chosen() -> Size:
    name = os.environ.get("TENURE_TEST_SIZE", "short")
    if name not in _SIZES:
        raise ValueError(f"TENURE_TEST_SIZE is {name!r}; it must be one of {sorted(_SIZES)}")
    return _SIZES[name]


SIZE = _chosen()
