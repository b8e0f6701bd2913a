"""The supervisor: keeps worker processes running, sends their heartbeats, and recovers their jobs.

Each child is a replica of its own. The supervisor renews all their records in one call, for every
child whose process exists and is not stopped, so that blocked loops and C code that keeps the
interpreter lose nothing. When a child exits, its jobs are recovered at once: those that had begun
count a loss, those that were only claimed go back.

A child does not need the supervisor: after two heartbeats of silence it sends its own, and when the
line to the supervisor ends it finishes and leaves.
"""

from __future__ import annotations

from tenure.supervisor.limits import SupervisorOptions
from tenure.supervisor.supervisor import Supervisor, check_platform

__all__ = ["Supervisor", "SupervisorOptions", "check_platform"]
