"""Whether a job that was lost with its worker runs again, and when: its loss budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from tenure.core.jobs.endings import history_of
from tenure.core.jobs.options import read_options
from tenure.core.jobs.records import JobRecord, Settlement

__all__ = ["LOSS_DELAY_MAX", "LOST", "loss_delays", "lost"]

LOST: Final = "lost"
"""The reason of a job that failed because it was lost too often, or may not run again."""


# A job that killed its process twice may do so again. The pauses let other jobs through.
_LOSS_DELAY = 2.0
_LOSS_FACTOR = 3.0
LOSS_DELAY_MAX = 300.0


def lost(job: JobRecord, *, by: str, at: int, delays: Sequence[float]) -> Settlement:
    """Return the end of an attempt whose replica is dead, or that ran past its deadline.

    `delays` are the delays after the first, second, ... loss. With more losses the job fails.
    """
    losses = job.losses + 1
    comes_back = read_options(job.options).rerun and losses <= len(delays)
    return Settlement(
        id=job.id,
        fence=job.fence,
        outcome="lost",
        state="waiting" if comes_back else "failed",
        by=by,
        yields_to_cancel=True,
        delay=delays[losses - 1] if comes_back else 0.0,
        losses=1,
        reason="" if comes_back else LOST,
        history=history_of(job, "lost", at),
    )


def loss_delays(budget: int, chance: float) -> list[float]:
    """Return when a job is due again after its first, second, ... loss.

    The first delay is short: usually a machine died, and the job is not the cause.
    """
    share = 0.5 + 0.5 * chance
    return [ceiling * share for ceiling in _loss_ceilings(budget)]


@cache  # computed for each job, so that jobs that were lost together do not return together
def _loss_ceilings(budget: int) -> tuple[float, ...]:
    """Return the longest delay after each loss."""
    ceilings = (_LOSS_DELAY * _LOSS_FACTOR ** min(n, 100) for n in range(budget - 1))
    return (0.0, *(min(LOSS_DELAY_MAX, ceiling) for ceiling in ceilings))[:budget]
