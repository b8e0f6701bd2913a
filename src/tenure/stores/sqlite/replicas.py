"""Replicas in SQLite: their records and beats.

Like leases, records of replicas need not reach the disk (decision 3): after a power loss they are
void. Changes of jobs do.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core import bounds
from tenure.core.bounds import sound
from tenure.core.durations import micros
from tenure.core.jobs.replicas import (
    CANCELS_MAX,
    RESTARTS_MAX,
    STATS_FOR,
    STATS_MAX,
    Beat,
    ReplicaRecord,
    Stats,
)
from tenure.core.meta import decode_meta
from tenure.stores.sqlite.statements import Row, Transaction

__all__ = ["GONE", "NUMBER_OF", "beat", "clamp", "join", "leave_stats", "listed", "stats_of"]

# By tenure_replica_id.
NUMBER_OF = "SELECT number, dead FROM tenure_replica WHERE namespace = :namespace AND id = :replica"

# By tenure_replica_id. The beat comes after it.
JOIN = """
    INSERT OR IGNORE INTO tenure_replica (namespace, id, meta, joined, ttl, boot_id, renewed,
                                          expires)
    VALUES (:namespace, :replica, :meta, :wall, :ttl, :boot_id, :now, :now + :ttl)
"""

# By tenure_replica_id. A damaged row is left alone: its worker joins again.
RENEW_REPLICA = """
    UPDATE OR IGNORE tenure_replica
    SET ttl = :ttl, boot_id = :boot_id, renewed = :now, expires = :now + :ttl
    WHERE namespace = :namespace AND id = :replica AND dead = 0
    RETURNING number
"""

# By tenure_live_held.
POSTPONE = """
    UPDATE OR IGNORE tenure_live
    SET deadline = deadline + :ahead
    WHERE holder = :holder AND deadline IS NOT NULL
"""

# Restarts each delay that begins in the future, because the clock was set back. By
# tenure_live_since, and then by number.
RESTART_PAUSES = f"""
    UPDATE OR IGNORE tenure_live
    SET due = :wall + (due - since), since = :wall, revision = revision + 1
    WHERE number IN (SELECT number
                     FROM tenure_live INDEXED BY tenure_live_since
                     WHERE namespace = :namespace AND since > :wall
                       AND since <= {bounds.INSTANT_MAX} AND holder IS NULL
                     LIMIT :limit)
    RETURNING id
"""  # noqa: S608 - put together from constants

# By tenure_live_held, a covering index.
COUNT_HELD = """
    SELECT count(*)
    FROM tenure_live INDEXED BY tenure_live_held
    WHERE holder = :holder
"""

# By tenure_live_cancel.
CANCELS = """
    SELECT id
    FROM tenure_live INDEXED BY tenure_live_cancel
    WHERE holder = :holder AND cancelling = 1
    ORDER BY id
    LIMIT :limit
"""

# As CLAMP_LEASES. By tenure_replica_id; on systems without a boot id only.
CLAMP_REPLICAS = """
    UPDATE OR IGNORE tenure_replica
    SET renewed = :now, expires = :now + ttl
    WHERE namespace = :namespace AND renewed > :now
"""

# Replicas from another start of the machine, or not renewed in time. Each part by
# tenure_replica_end.
GONE = """
    SELECT number, id, 'expired' FROM tenure_replica INDEXED BY tenure_replica_end
    WHERE namespace = :namespace AND dead = 0 AND boot_id < :boot_id
    UNION ALL
    SELECT number, id, 'expired' FROM tenure_replica INDEXED BY tenure_replica_end
    WHERE namespace = :namespace AND dead = 0 AND boot_id > :boot_id
    UNION ALL
    SELECT number, id, 'expired' FROM tenure_replica INDEXED BY tenure_replica_end
    WHERE namespace = :namespace AND dead = 0 AND boot_id = :boot_id AND expires <= :by
"""

# Whether a replica has expired or a job is past its deadline. By tenure_replica_end and by
# tenure_live_deadline.
NEEDS_RECOVERY = f"""
    SELECT EXISTS (SELECT 1 FROM tenure_replica INDEXED BY tenure_replica_end
                   WHERE namespace = :namespace AND dead = 1)
        OR EXISTS ({GONE})
        OR EXISTS (SELECT 1 FROM tenure_live INDEXED BY tenure_live_deadline
                   WHERE namespace = :namespace AND deadline <= :now)
"""  # noqa: S608 - put together from constants

# By tenure_replica_id, and the jobs of each by tenure_live_held.
REPLICAS = """
    SELECT id, meta, joined, ttl, boot_id = :boot_id, renewed, dead,
           (SELECT count(*) FROM tenure_live WHERE holder = tenure_replica.number)
    FROM tenure_replica INDEXED BY tenure_replica_id
    WHERE namespace = :namespace
    ORDER BY joined, id
    LIMIT :limit
"""

# By primary key.
LEAVE_STATS = """
    INSERT OR REPLACE INTO tenure_stats (namespace, source, at, body)
    VALUES (:namespace, :source, :wall, :body)
"""

# By primary key: all of a namespace.
FORGET_STATS = "DELETE FROM tenure_stats WHERE namespace = :namespace AND at <= :since"

# By primary key: all of a namespace.
STATS = """
    SELECT source, body
    FROM tenure_stats
    WHERE namespace = :namespace AND at > :since
    ORDER BY source
    LIMIT :limit
"""


def join(tx: Transaction, replica: str, ttl: int, meta: str) -> bool:
    """Create the record of an unknown replica. Returns whether it is new."""
    return tx.change(JOIN, replica=replica, ttl=ttl, meta=meta) == 1


def beat(tx: Transaction, replicas: Sequence[str], ttl: int, ahead: int) -> list[Beat | None]:
    """Renew the records of replicas, and return a beat for each."""
    alive = [tx.row(RENEW_REPLICA, replica=replica, ttl=ttl) for replica in replicas]
    if not any(alive):
        return [None] * len(alive)
    for row in filter(None, alive if ahead else ()):
        tx.change(POSTPONE, holder=row[0], ahead=ahead)
    if restarted := tx.rows(RESTART_PAUSES, limit=RESTARTS_MAX):
        tx.lasting = True
        tx.ring(*(("job", id_) for (id_,) in restarted))
    # Checked after all of them were renewed, because none of these needs recovery.
    clamp(tx)
    ((expired,),) = tx.rows(NEEDS_RECOVERY, by=tx.now)
    more = len(restarted) == RESTARTS_MAX
    return [
        None if row is None else _as_beat(tx, row[0], expired=bool(expired), more=more)
        for row in alive
    ]


def _as_beat(tx: Transaction, holder: int, *, expired: bool, more: bool) -> Beat:
    ((held,),) = tx.rows(COUNT_HELD, holder=holder)
    cancels = tx.rows(CANCELS, holder=holder, limit=CANCELS_MAX) if held else []
    return Beat([id_ for (id_,) in cancels], held, expired, tx.now, more)


def leave_stats(tx: Transaction, stats: Stats) -> None:
    """Keep a value for readers, and forget those that are too old."""
    tx.change(FORGET_STATS, since=tx.wall - micros(STATS_FOR))
    tx.change(LEAVE_STATS, source=stats.source, body=stats.body)


def stats_of(tx: Transaction) -> list[bytes]:
    """Return the values that are not too old."""
    rows = tx.rows(STATS, since=tx.wall - micros(STATS_FOR), limit=STATS_MAX)
    return [body for _, body in rows if isinstance(body, bytes)]


def clamp(tx: Transaction) -> None:
    """Let records end that seem to be renewed in the future, on systems without boot ids."""
    if not tx.boot_id:
        tx.change(CLAMP_REPLICAS)


def listed(tx: Transaction, limit: int) -> list[ReplicaRecord]:
    """Return the known replicas, in the order in which they joined."""
    records = (
        tx.damage.read("replica", "tenure_replica", str(row[0]), _as_replica, row, tx.now)
        for row in tx.rows(REPLICAS, limit=limit)
    )
    return [record for record in records if record is not None]


def _as_replica(row: Row, now: int) -> ReplicaRecord:
    id_, meta, joined, ttl, of_this_start, renewed, dead, held = row
    left = min(renewed, now) + ttl - now if of_this_start else 0
    return sound(
        ReplicaRecord,
        {
            "id": id_,
            "meta": decode_meta(meta),
            "joined": joined,
            "ttl": ttl / 1e6,
            "expires_in": left / 1e6,
            "dead": bool(dead),
            "held": held,
        },
    )
