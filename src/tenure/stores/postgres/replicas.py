"""Replicas in PostgreSQL: their records and beats, and the recovery of their jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from tenure.core.bounds import SET_ASIDE, sound
from tenure.core.durations import micros
from tenure.core.jobs.records import BATCH_MAX, JobRecord
from tenure.core.jobs.replicas import (
    CANCELS_MAX,
    RESERVED_FOR,
    RESTARTS_MAX,
    STATS_FOR,
    STATS_MAX,
    Beat,
    Orphans,
    ReplicaRecord,
    Stats,
)
from tenure.core.leases import Meta
from tenure.core.meta import decode_meta, encode_meta
from tenure.stores.postgres.connection import Connection
from tenure.stores.postgres.job_part import TABLE, JobPart, as_record
from tenure.stores.postgres.pool import Row

__all__ = ["Replicas"]

_BEAT = "SELECT * FROM tenure.replica_beat($1, $2, $3, $4, $5, $6, $7, $8, $9)"
# For replicas that may join, and with stats. The instant of a test's clock comes last.
_WHOLE_BEAT = """
SELECT * FROM tenure.replica_beat($1, $2, $3, $4, $5, $6, $7, $8, $13, $9, $10, $11, $12)
"""
_STATS = "SELECT * FROM tenure.run_stats_read($1, $2, $3, $4)"
_LIST = "SELECT * FROM tenure.replica_list($1, $2, $3)"
_EXTRA: Final = 3
"""How many columns follow those of the job."""
_ORPHANS = """
SELECT (o.job).*, o.at, o.aside, o.whose
FROM tenure.job_orphans($1, $2, $3, $4, $5, $6, $7, $8, $9) AS o
"""

# A claim is committed within so many microseconds of the instant that its deadlines count from.
_COMMIT_MICROS: Final = 10_000_000
_WHOLE_LOOK_EVERY = 60.0
# Other calls lock a job for some milliseconds, a transaction of the user for any time. If that one
# waits for a job that the look has locked, the look gives way before PostgreSQL ends one of the
# two, which it does after a second (deadlock_timeout).
_JOB_PATIENCE_MS: Final = 500


class _Looks:
    """The instant from which to search for expired replicas and deadlines.

    Both only move ahead with the clock, so after an empty search the next one may begin there.
    Older rows are gone, but while an old snapshot is open PostgreSQL cannot remove them, and a
    search over all of them took longer with every job.
    """

    def __init__(self) -> None:
        self._clean_at: int | None = None
        self._whole_at = -math.inf

    def begin(self, now: float) -> int | None:
        """Return where a search at the local time `now` begins; None: at the first row."""
        if self._clean_at is None or now - self._whole_at >= _WHOLE_LOOK_EVERY:
            self._whole_at = now
            return None
        return self._clean_at - _COMMIT_MICROS

    def end(self, since: int | None, at: int, *, has_expired: bool) -> None:
        """Record the result of a search from `since` until `at`, an instant of the server."""
        if has_expired or (self._clean_at is not None and at < self._clean_at):
            self._clean_at = None  # or the clock was set back
        elif since is None or self._clean_at is not None:
            self._clean_at = at


class Replicas(JobPart):
    """The calls of the job part of the contract about replicas."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._looks = _Looks()

    async def beat(
        self,
        replicas: Sequence[str],
        *,
        ttl: float,
        meta: Meta | None = None,
        ahead: float = 0.0,
        count: bool = True,
        stats: Stats | None = None,
    ) -> list[Beat | None]:
        about = [("replica", replicas)]
        lengths, most = (micros(ttl), micros(ahead)), (CANCELS_MAX, RESTARTS_MAX)
        since = self._looks.begin(self._clock.boot())
        arguments = (list(replicas), *lengths, *most, since, count)
        if meta is None and stats is None:
            rows = await self._decide(_BEAT, *arguments, about=about)
        else:
            joining = None if meta is None else encode_meta(meta)
            left = (stats.source, stats.body, micros(STATS_FOR)) if stats else (None, None, None)
            rows = await self._decide(_WHOLE_BEAT, *arguments, joining, *left, about=about)
        for row in rows[:1]:
            self._looks.end(since, row["at"], has_expired=row["expired"])
        changed = [id_ for row in rows[:1] for id_ in row["changed"]]
        self._tell([("job", id_) for id_ in changed])
        more = len(changed) == RESTARTS_MAX
        return [
            Beat(row["cancels"], row["held"], row["expired"], row["at"], more)
            if row["known"]
            else None
            for row in rows
        ]

    async def stats(self) -> list[bytes]:
        rows = await self._decide(_STATS, micros(STATS_FOR), STATS_MAX)
        return [row["body"] for row in rows]

    async def list(self, *, limit: int = 1000) -> list[ReplicaRecord]:
        rows = await self._decide(_LIST, limit)
        read = partial(self._damage.read, "replica", "tenure.replica")
        replicas = (read(row["id"], _as_replica, row) for row in rows)
        return [replica for replica in replicas if replica is not None]

    async def orphans(
        self,
        *,
        by: str,
        replica: str | None = None,
        grace: float = 0.0,
        limit: int = BATCH_MAX,
        as_of: int | None = None,
    ) -> Orphans:
        about = [] if replica is None else [("replica", [replica])]
        arguments = (by, micros(RESERVED_FOR), replica, micros(grace), limit, as_of)
        first, *rows = await self._decide(_ORPHANS, *arguments, _JOB_PATIENCE_MS, about=about)
        dead = [row["whose"] for row in rows if row["aside"] is None and row["whose"] is not None]
        aside = [(row["aside"], row["whose"]) for row in rows if row["aside"] is not None]
        for id_, _ in aside:
            self._damage.report("job", id_, SET_ASIDE, TABLE)
        jobs: list[JobRecord] = []
        for row in rows:
            if row["aside"] is None and row["whose"] is None:
                columns = tuple(row)[:-_EXTRA]
                job = self._damage.read("job", TABLE, row["id"], as_record, columns)
                if job is not None:
                    jobs.append(job)
                else:
                    await self._set_aside([row["id"]])
                    aside.append((row["id"], row["replica"]))
        return Orphans(first["at"], jobs, aside, dead)


def _as_replica(row: Row) -> ReplicaRecord:
    return sound(
        ReplicaRecord,
        {
            "id": row["id"],
            "meta": decode_meta(row["meta"]),
            "joined": row["joined"],
            "ttl": row["ttl"] / 1e6,
            "expires_in": row["left_over"] / 1e6,
            "dead": row["dead"],
            "held": row["held"],
        },
    )
