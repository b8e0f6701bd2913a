"""How often a job has run, and the numbers of its attempts.

Stores count claims. A worker may claim a job and hand it back without starting it: because it
stops, has no free slot, does not know the task, or must run the job alone. So there are more claims
than runs. The history has a line for each attempt that began, up to ten. Older ones are in the
counters of failures and losses.
"""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.jobs.history import AttemptLine, read_history
from tenure.core.jobs.records import JobRecord

__all__ = ["numbered_history", "runs_of"]


def runs_of(record: JobRecord) -> int:
    """Return how often a job was started, the current attempt included."""
    return _ended_runs(record, read_history(record.history)) + (record.state == "running")


def numbered_history(record: JobRecord) -> list[AttemptLine]:
    """Return the attempts in the history, oldest first, with the numbers of their runs.

    An attempt that did not begin has the number that it would have had.
    """
    lines = read_history(record.history)
    number = _ended_runs(record, lines)
    numbered = []
    for line in reversed(lines):
        numbered.append(replace(line, attempt=number + (not _has_begun(line))))
        number -= _has_begun(line)
    return numbered[::-1]


def _ended_runs(record: JobRecord, lines: list[AttemptLine]) -> int:
    """Return how many runs have ended. A requeued job has zero failures, but keeps its history."""
    number = 0
    for line in lines:
        if _has_begun(line):
            number = max(number + 1, line.attempt)
    return max(number, record.failures + record.losses + (record.state == "succeeded"))


def _has_begun(line: AttemptLine) -> bool:
    return line.outcome != "handed back" or line.ended > line.started
