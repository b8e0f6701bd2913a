"""A seeded simulation of the real runtime: many replicas, one process, virtual time.

    python -m tests.sim --count 3000
    python -m tests.sim --scenario jobs --seed 7

The parts, from the bottom up: `loop` runs lanes of callbacks in virtual time; `clock` is off on
every machine; `server` is the memory store, whose `parts` write into a `diary` what they answer,
and `commits` reads what happened to timers from what was stored; `link` loses, delays and repeats
what travels to it; `sink` is where effects land; `plan` is drawn from the seed, and `fleet` carries
it out; the `scenarios` are what machines do, and the `checks` what must be true of the history. The
`test_*` modules run some seeds, and try the checks on histories that are written by hand.

A scenario is a program for each process, with a word on when all is done: whatever an app can do
joins the simulation by being done there.
"""

from __future__ import annotations

from tests.sim.history import Entry, read_lines, write_lines
from tests.sim.plan import Plan
from tests.sim.running import SCENARIOS, Outcome, planned, run

__all__ = ["SCENARIOS", "Entry", "Outcome", "Plan", "planned", "read_lines", "run", "write_lines"]
