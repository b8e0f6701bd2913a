"""Jobs of PostgreSQL that cannot be read: how they are set aside, and how jobs are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import asyncpg

from tenure.core.records import Deleted, JobRecord
from tenure.core.soundness import SET_ASIDE, Stranded
from tenure.core.states import JobState, may_delete
from tenure.errors import StoreError
from tenure.stores.postgres.connection import Connection
from tenure.stores.postgres.job_rows import as_record
from tenure.stores.postgres.pool import Row

__all__ = ["GET", "Asides", "is_of_a_row"]

_SET_ASIDE = "SELECT tenure.job_set_aside_v1($1, $2, $3)"
_SIFT = "SELECT tenure.job_sift_v1($1, $2, $3, $4)"
GET: Final = "SELECT * FROM tenure.job_get_v2($1, $2)"
_DELETE = "SELECT tenure.job_delete_v1($1, $2, $3)"
_STRANDED = "SELECT * FROM tenure.job_stranded_v1($1, $2, $3, $4)"
_TABLE: Final = "tenure.job"

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
        jobs = (self.damage.read("job", _TABLE, row["id"], _as_record, row) for row in rows)
        return [job for job in jobs if job is not None]

    async def _set_aside(self, ids: Sequence[str], why: object = SET_ASIDE) -> None:
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
            self.damage.report("job", id_, SET_ASIDE, _TABLE)
        return bool(aside)

    async def delete(self, ids: Sequence[str]) -> list[Deleted | None]:
        wanted = list(dict.fromkeys(ids))
        about = [("job", wanted)]
        states: dict[str, JobState | None] = {}
        for row in await self._fetch(GET, self.namespace, wanted, about=about):
            states[row["id"]] = None
            with suppress(ValueError, TypeError, ArithmeticError, RecursionError):
                states[row["id"]] = as_record(row).state
        going = [id_ for id_ in wanted if may_delete(states.get(id_))]
        # What can be read by now and has not finished stays, whatever it was a moment ago.
        damaged = [id_ for id_ in going if id_ in states and states[id_] is None]
        [[gone]] = await self._fetch(_DELETE, self.namespace, going, damaged, about=about)
        answers: list[Deleted | None] = []
        for id_ in ids:
            left: Deleted | None = "unfinished" if not may_delete(states.get(id_)) else None
            answers.append("deleted" if id_ in gone else left)
            if id_ in gone:
                gone.remove(id_)  # named twice, it is gone the second time
        return answers

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


def _as_record(row: Row) -> JobRecord:
    if row["state"] == "aside":
        raise ValueError(SET_ASIDE)
    return as_record(row)
