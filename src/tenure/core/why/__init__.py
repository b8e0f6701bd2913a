"""Why a job, a timer, a lock or a queue is as it is: one sentence and the next step.

Pure functions from stored records to words. `tenure why`, the methods `why` of handles, errors
about time limits, `jobs show`, `timers next` and `doctor` show the same answers.
"""

from __future__ import annotations

from tenure.core.why.answer import Why
from tenure.core.why.jobs import why_job, why_stranded
from tenure.core.why.locks import why_lock, why_unreadable_lock
from tenure.core.why.queues import LATE_AFTER, why_queue
from tenure.core.why.surroundings import Fleet, Surroundings
from tenure.core.why.timers import TimerFacts, why_timer

__all__ = [
    "LATE_AFTER",
    "Fleet",
    "Surroundings",
    "TimerFacts",
    "Why",
    "why_job",
    "why_lock",
    "why_queue",
    "why_stranded",
    "why_timer",
    "why_unreadable_lock",
]
