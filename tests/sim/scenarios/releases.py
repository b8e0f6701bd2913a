"""Releases of a program with timers, and when they reach which machine.

The second release gives timers another name, or an option; the third one gives more names, changes
rules, and drops a timer. A seed decides which of them follow each other: roll-backs among them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from tenure.core.jobs.retry_policy import Backoff
from tenure.core.schedules import documents, registration
from tenure.runtime.timers import declarations
from tenure.stores.memory import schedule_table
from tests.sim.fleet import Fleet, Machine

__all__ = [
    "CHAINS",
    "DECLARED_ANEW_AFTER",
    "DECLARED_FOR",
    "FORGOTTEN_AFTER",
    "NAMES",
    "OWN",
    "begin",
    "release_of",
    "short_lifetimes",
]

DECLARED_FOR: Final = 2.0
"""How long a definition rules after it was declared: shorter than in earnest, like all lengths."""
DECLARED_ANEW_AFTER: Final = 0.3
FORGOTTEN_AFTER: Final = 2.2
"""After so many seconds without a declaration a schedule may be deleted."""

_EVERY = 1.0
_OTHER = 1.5
OWN: Final = "own"

_FIRST: dict[str, dict[str, Any]] = {
    "steady": {},
    "queued": {"overlap": "queue_one", "retention": 60},
    "newest": {
        "overlap": "cancel_previous",
        "retry": Backoff(max_attempts=2, base=0.1, cap=0.1),
    },
    "all": {"catch_up": "all", "overlap": "allow", "limit": 2, "on_crash": "rerun"},
    "rested": {"after": "completion"},
    "brief": {"catch_up": "all", "overlap": "allow", "limit": 9},
    OWN: {"each": "replica", "limit": 2},
}
_SECOND: dict[str, dict[str, Any]] = {
    "renamed": {"renamed_from": "steady"},
    "queued": {**_FIRST["queued"], "within": 5},
    "newest": _FIRST["newest"],
    "all": {**_FIRST["all"], "limit": 3},
    "rested": _FIRST["rested"],
    "short": {**_FIRST["brief"], "renamed_from": "brief"},
    OWN: _FIRST[OWN],
}
_THIRD: dict[str, dict[str, Any]] = {
    "again": {"renamed_from": ("renamed", "steady"), "overlap": "allow", "per_replica": 1},
    "queued": {**_FIRST["queued"], "every": _OTHER},
    "newer": {**_FIRST["newest"], "renamed_from": "newest", "every": _OTHER},
    "all": _FIRST["all"],
    "rested": {"after": "completion", "overlap": "allow"},
    OWN: {"each": "replica", "limit": 3, "overlap": "allow", "per_replica": 1},
}
_RELEASES: Final = (_FIRST, _SECOND, _THIRD)
CHAINS: Final = (
    ("steady", "renamed", "again"),
    ("queued",),
    ("newest", "newer"),
    ("all",),
    ("rested",),
)
"""The shared timers of all releases, each with all its names."""
NAMES: Final = (*(name for chain in CHAINS for name in chain), "brief", "short", OWN)
_NEXT = {0: (1, 1, 2), 1: (0, 2), 2: (0, 1)}
_MOST = 3
_ROLLING = 2.0


@contextmanager
def short_lifetimes() -> Iterator[None]:
    """Let definitions be forgotten as soon as fits a history of seconds."""
    with (
        patch.object(documents, "DECLARED_FOR", DECLARED_FOR),
        patch.object(registration, "DECLARED_FOR", DECLARED_FOR),
        patch.object(schedule_table, "DECLARED_ANEW_AFTER", DECLARED_ANEW_AFTER),
        patch.object(declarations, "_DECLARE_EVERY", DECLARED_FOR / 2),
    ):
        yield


def release_of(machine: Machine) -> dict[str, dict[str, Any]]:
    """Return the timers that a machine's next process declares, with their options."""
    release = _RELEASES[machine.disk["release"]]
    return {name: {"every": _EVERY, **options} for name, options in release.items()}


def begin(fleet: Fleet) -> None:
    """Give all machines the first release, and plan which follow."""
    rng = random.Random(f"releases {fleet.plan.seed}")
    for machine in fleet.machines:
        machine.disk["release"] = 0
    release, at = 0, rng.uniform(0.5, 2.5)
    for _ in range(rng.choice((0, 0, 0, 1, 2, _MOST))):
        release = rng.choice(_NEXT[release])
        rolling = rng.choice((0.0, _ROLLING))
        for machine in fleet.machines:
            _later(fleet, at + rng.uniform(0.0, rolling), machine, release)
        at += rng.uniform(0.5, 3.0)


def _later(fleet: Fleet, at: float, machine: Machine, release: int) -> None:
    fleet.loop.call_at(at, _deploy, fleet, machine, release, context=fleet.loop.world.context)


def _deploy(fleet: Fleet, machine: Machine, release: int) -> None:
    """Stop a machine's process; the next one is of that release."""
    if fleet.is_healed:
        return
    names = fleet.server.data.schedules.keys()
    # A name that the store has never seen cannot be taken over from.
    if any(names.isdisjoint(chain) for chain in CHAINS):
        _later(fleet, fleet.loop.time() + 0.2, machine, release)
        return
    fleet.counts["deploys"] += 1
    fleet.history.add(fleet.loop.time(), "world", "deploy", detail=machine.name, number=release + 1)
    machine.disk["release"] = release
    machine.stop()
