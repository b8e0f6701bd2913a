"""The base of parts that read jobs: reads records, and sets unreadable ones aside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import asyncpg

from tenure.core.bounds import SET_ASIDE, sound
from tenure.core.jobs.records import JobRecord
from tenure.errors import StoreError
from tenure.stores.postgres.connection import Part
from tenure.stores.postgres.pool import Row

__all__ = ["TABLE", "JobPart", "as_record", "is_of_a_row"]

TABLE: Final = "tenure.job"
_SET_ASIDE = "SELECT tenure.job_set_aside($1, $2, $3)"

# Errors of the server about the values of a row, not about the call or the server.
_OF_A_ROW: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.InternalServerError,
)


def is_of_a_row(error: StoreError) -> bool:
    """Return whether a damaged row made a call fail: it would fail again, with its whole batch."""
    return isinstance(error.__cause__, _OF_A_ROW)


def as_record(row: Row | Sequence[Any]) -> JobRecord:
    """Return the job in a tenure.job_record. Raises ValueError if it is aside or damaged."""
    state = row[_STATE]
    if state == "aside":
        raise ValueError(SET_ASIDE)
    return sound(JobRecord, tuple(row))


_STATE: Final = JobRecord.__struct_fields__.index("state")


class JobPart(Part):
    """A part that reads jobs: it leaves out unreadable ones, or sets them aside."""

    def _readable(self, rows: Iterable[Row]) -> list[JobRecord]:
        """Return the readable jobs in rows, and report the others."""
        jobs = (self._damage.read("job", TABLE, row[0], as_record, row) for row in rows)
        return [job for job in jobs if job is not None]

    async def _set_aside(self, ids: Sequence[str], why: object = SET_ASIDE) -> None:
        [[aside]] = await self._decide(_SET_ASIDE, list(ids))
        for id_ in aside:
            self._damage.report("job", id_, why, TABLE)
