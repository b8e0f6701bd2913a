"""Finds the holder of the oldest snapshot, which keeps PostgreSQL from removing deleted rows."""

from __future__ import annotations

import asyncpg

from tenure.core.durations import duration
from tenure.core.leases import Finding
from tenure.stores.postgres.pool import Row

__all__ = ["snapshot_finding"]

# A backup or a report may take some minutes. An older snapshot is worth a warning.
_OLD_SECONDS = 300.0
# For holders of unknown age: replication slots, and sessions of other roles.
_OLD_TRANSACTIONS = 100_000

# The age in seconds is NULL if the server does not show it. Slots with only a catalog_xmin do not
# keep rows of tables.
_HOLDERS = """
SELECT holder, age(xmin) AS transactions, seconds, advice FROM (
    SELECT format('session %s of %s (%s)', a.pid, coalesce(a.usename, 'the server'),
                  concat_ws(', ', nullif(a.application_name, ''), a.state)) AS holder,
           a.backend_xmin AS xmin,
           extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds,
           format('End it: SELECT pg_terminate_backend(%s)', a.pid) AS advice
    FROM pg_stat_activity a WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
    UNION ALL
    SELECT format('the prepared transaction %L', p.gid), p.transaction,
           extract(epoch FROM clock_timestamp() - p.prepared)::float8,
           format('End it: ROLLBACK PREPARED %L', p.gid)
    FROM pg_prepared_xacts p
    UNION ALL
    SELECT format('the replication slot %s', s.slot_name), s.xmin, NULL,
           format('If nothing uses it: SELECT pg_drop_replication_slot(%L)', s.slot_name)
    FROM pg_replication_slots s WHERE s.xmin IS NOT NULL
) AS found
ORDER BY age(xmin) DESC
"""


async def snapshot_finding(connection: asyncpg.Connection) -> Finding:
    """Return the holder of the oldest snapshot, if it is old enough to slow down calls."""
    for holder in await connection.fetch(_HOLDERS):
        if _is_old(holder):
            seconds, since = holder["seconds"], holder["transactions"]
            age = f"{since:,} transactions"
            age = age if seconds is None else f"{duration(round(seconds))}, {age}"
            return Finding(
                "warning",
                "snapshots",
                f"{holder['holder']} holds one that is {age} old: until it ends, PostgreSQL keeps "
                "the rows of all jobs that were finished since, and counts and recovery get slower",
                f"{holder['advice']}. To prevent it, set idle_in_transaction_session_timeout, and "
                "run long reports on a standby without hot_standby_feedback.",
            )
    return Finding("ok", "snapshots", "none is old")


def _is_old(holder: Row) -> bool:
    if holder["seconds"] is not None:
        return bool(holder["seconds"] >= _OLD_SECONDS)
    return bool(holder["transactions"] >= _OLD_TRANSACTIONS)
