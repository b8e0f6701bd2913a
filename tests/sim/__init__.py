"""A seeded simulation of the real runtime: many replicas, one process, virtual time.

    python -m tests.sim --count 3000
    python -m tests.sim --scenario jobs --seed 7

The parts, from the bottom up:

- `loop` runs callbacks in virtual time, and `clock` gives each machine a clock that is off.
- `server` is the memory store. Its `store_parts` write each answer into the history with a
  `recorder`; `commit_entries` reads what a commit did to timers from the stored documents.
- `store_connection` loses, delays and repeats what travels to the store, and `client_network` what
  travels between HTTP clients and replicas.
- `fenced_resource` takes the effects of jobs and holders, outside of the store.
- `plan` draws all faults from the seed, `fleet` injects them, and `runner` runs a plan and checks
  its history.
- `scenarios` are the programs of the machines, and `checks` what must be true of the history.

The `test_*` modules run some seeds and try the checkers on histories that are written by hand.

A scenario is a program for each process, and a rule for when all work is done. To simulate another
feature of an app, call it from the program of a scenario.
"""

from __future__ import annotations

from tests.sim.history import Entry, read_lines, write_lines
from tests.sim.plan import Plan
from tests.sim.runner import Outcome, planned, run
from tests.sim.scenarios.catalog import SCENARIOS

__all__ = ["SCENARIOS", "Entry", "Outcome", "Plan", "planned", "read_lines", "run", "write_lines"]
