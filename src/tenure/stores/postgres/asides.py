"""Jobs of PostgreSQL that cannot be read, and how they are set aside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import asyncpg

from tenure.core.records import JobRecord
from tenure.core.soundness import UNREADABLE, Stranded
from tenure.errors import StoreError
from tenure.stores.postgres.connection import Connection
from tenure.stores.postgres.job_rows import as_record
from tenure.stores.postgres.pool import Row

__all__ = ["Asides", "is_of_a_row"]

_SET_ASIDE = "SELECT tenure.job_set_aside_v1($1, $2, $3)"
_SIFT = "SELECT tenure.job_sift_v1($1, $2, $3, $4)"
_STRANDED = "SELECT * FROM tenure.job_stranded_v1($1, $2, $3, $4)"
_TABLE: Final = "tenure.job"
_ASIDE: Final = f"{UNREADABLE}; it was set aside"

# What the server raises about the values of a row, and not about the call or the server.
_OF_A_ROW: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.InternalServerError,
)


def is_of_a_row(error: StoreError) -> bool:
    """Return whether a call failed for what is in a row: it will fail again, with all its batch."""
    return isinstance(error.__cause__, _OF_A_ROW)


class Asides(Connection):
    """Leaves out what cannot be read, or sets it aside."""

    def _readable(self, rows: Iterable[Row]) -> list[JobRecord]:
        """Return the jobs in rows; those that cannot be used are reported."""
        jobs = (self.damage.read("job", _TABLE, row["id"], as_record, row) for row in rows)
        return [job for job in jobs if job is not None]

    async def _set_aside(self, ids: Sequence[str], why: object = _ASIDE) -> None:
        [[aside]] = await self._fetch(
            _SET_ASIDE, self.namespace, list(ids), self.clock.for_server()
        )
        for id_ in aside:
            self.damage.report("job", id_, why, _TABLE)

    async def _sift(self, queues: Sequence[str], limit: int) -> bool:
        """Set aside what cannot be claimed among the first in these queues; say whether any was."""
        told = self.clock.for_server()
        [[aside]] = await self._fetch(_SIFT, self.namespace, list(queues), limit, told)
        for id_ in aside:
            self.damage.report("job", id_, _ASIDE, _TABLE)
        return bool(aside)

    async def stranded(
        self, ids: Sequence[str] | None = None, *, limit: int = 100
    ) -> list[Stranded]:
        wanted = None if ids is None else list(ids)
        rows = await self._fetch(_STRANDED, self.namespace, wanted, limit, self.clock.for_server())
        found = [
            Stranded(
                id=row["id"],
                why="unreadable" if row["is_aside"] else "orphan",
                where=_TABLE,
                replica=row["replica"] or "",
                left=max(0.0, row["left_over"]) / 1e6,
            )
            for row in rows
        ]
        return found[:limit]
