"""Reading jobs, and setting aside those that cannot be read."""

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

# What the server raises about the values of a row, and not about the call or the server.
_OF_A_ROW: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.InternalServerError,
)


def is_of_a_row(error: StoreError) -> bool:
    """Return whether a call failed for what is in a row: it will fail again, with all its batch."""
    return isinstance(error.__cause__, _OF_A_ROW)


def as_record(row: Row | Sequence[Any]) -> JobRecord:
    """Return the job in a tenure.job_record. Raises ValueError if it is aside or cannot be used."""
    state = row[_STATE]
    if state == "aside":
        raise ValueError(SET_ASIDE)
    return sound(JobRecord, tuple(row))


_STATE: Final = JobRecord.__struct_fields__.index("state")


class JobPart(Part):
    """A part that reads jobs: it leaves out what cannot be read, or sets it aside."""

    def _readable(self, rows: Iterable[Row]) -> list[JobRecord]:
        """Return the jobs in rows; those that cannot be used are reported."""
        jobs = (self._damage.read("job", TABLE, row[0], as_record, row) for row in rows)
        return [job for job in jobs if job is not None]

    async def _set_aside(self, ids: Sequence[str], why: object = SET_ASIDE) -> None:
        [[aside]] = await self._decide(_SET_ASIDE, list(ids))
        for id_ in aside:
            self._damage.report("job", id_, why, TABLE)
