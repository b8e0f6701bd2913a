"""The supervisor: keeps worker processes running, beats for them, and buries the dead at once.

Each child is a replica of its own. The supervisor renews all their records in one call, for every
child whose process exists and is not stopped, so that blocked loops and C code that keeps the
interpreter lose nothing. A child that exits is buried at once: what it had begun counts a loss,
what it had only claimed goes back.

A child does not need the supervisor: after two beats of silence it beats for itself, and when the
line to the supervisor ends it finishes and leaves.
"""

from __future__ import annotations

from tenure.supervisor.limits import SupervisorOptions
from tenure.supervisor.supervisor import Supervisor, check_platform

__all__ = ["Supervisor", "SupervisorOptions", "check_platform"]
