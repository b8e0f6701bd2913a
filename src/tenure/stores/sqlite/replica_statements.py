"""The statements about replicas and what they run, in the manner of `job_statements`."""

from __future__ import annotations

from tenure.core import soundness as bounds
from tenure.stores.sqlite import soundness

# By tenure_replica_id. A dead record stays as it is.
JOIN = """
    INSERT INTO tenure_replica (namespace, id, meta, joined, ttl, boot_id, renewed, expires)
    VALUES (:namespace, :replica, :meta, :wall, :ttl, :boot_id, :now, :now + :ttl)
    ON CONFLICT (namespace, id) DO UPDATE
    SET ttl = excluded.ttl, boot_id = excluded.boot_id, renewed = excluded.renewed,
        expires = excluded.expires
    WHERE dead = 0
"""

# By tenure_replica_id. A row that cannot be used is left alone: its worker joins anew.
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

# Pauses that begin in the future begin anew: the clock was set back. By tenure_live_since, and then
# by number.
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

# By tenure_live_held, which has all that is asked for.
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

# Who is dead, or from another start of the machine, or has not been renewed in time; in the order
# in which they joined; but for dead ones that are left to another taker. Each part by
# tenure_replica_end. First, by tenure_replica_id and with a 0,
# what cannot be used: the beats of such a replica are refused, so nobody else can have its jobs.
EXPIRED = f"""
    SELECT number, id, 0 FROM tenure_replica INDEXED BY tenure_replica_id
    WHERE namespace = :namespace AND NOT {soundness.REPLICA.of("tenure_replica")}
    UNION ALL
    SELECT number, id, 1 FROM tenure_replica INDEXED BY tenure_replica_end
    WHERE namespace = :namespace AND dead = 1
      AND (taker = :taker OR taken_until NOT BETWEEN :now + 1 AND :now + :reserved)
    UNION ALL
    SELECT number, id, 1 FROM tenure_replica INDEXED BY tenure_replica_end
    WHERE namespace = :namespace AND dead = 0 AND boot_id < :boot_id
    UNION ALL
    SELECT number, id, 1 FROM tenure_replica INDEXED BY tenure_replica_end
    WHERE namespace = :namespace AND dead = 0 AND boot_id > :boot_id
    UNION ALL
    SELECT number, id, 1 FROM tenure_replica INDEXED BY tenure_replica_end
    WHERE namespace = :namespace AND dead = 0 AND boot_id = :boot_id AND expires <= :by
    ORDER BY number
"""  # noqa: S608 - put together from constants

# Whether anything has expired or is past its deadline. By tenure_replica_end, as above, and by
# tenure_live_deadline.
NEEDS_RECOVERY = """
    SELECT EXISTS (SELECT 1 FROM tenure_replica INDEXED BY tenure_replica_end
                   WHERE namespace = :namespace AND dead = 1)
        OR EXISTS (SELECT 1 FROM tenure_replica INDEXED BY tenure_replica_end
                   WHERE namespace = :namespace AND dead = 0 AND boot_id < :boot_id)
        OR EXISTS (SELECT 1 FROM tenure_replica INDEXED BY tenure_replica_end
                   WHERE namespace = :namespace AND dead = 0 AND boot_id > :boot_id)
        OR EXISTS (SELECT 1 FROM tenure_replica INDEXED BY tenure_replica_end
                   WHERE namespace = :namespace AND dead = 0 AND boot_id = :boot_id
                     AND expires <= :now)
        OR EXISTS (SELECT 1 FROM tenure_live INDEXED BY tenure_live_deadline
                   WHERE namespace = :namespace AND deadline <= :now)
"""

# By tenure_replica_id.
NUMBER_OF = """
    SELECT number
    FROM tenure_replica
    WHERE namespace = :namespace AND id = :replica
"""

# By number.
MARK_DEAD = """
    UPDATE OR IGNORE tenure_replica
    SET dead = 1, taker = :taker, taken_until = :now + :reserved
    WHERE number = :holder
"""

# By number, and by tenure_live_held: whether it runs anything.
REMOVE_IDLE = """
    DELETE FROM tenure_replica
    WHERE number = :holder
      AND NOT EXISTS (SELECT 1 FROM tenure_live INDEXED BY tenure_live_held
                      WHERE holder = :holder)
"""

# What `Orphan.read` reads: the job's number and id, its replica, whether it can be moved, and the
# columns of a record, without what is large.
_ORPHAN = f"""
    l.number, l.id, r.id, {soundness.LIVE.of("l")} AND {soundness.RUN.of("l")},
    l.id, j.task, l.queue, l.priority, 'running', x'', j.tags, j.timeout, j.retention, j.created,
    l.due, l.attempt, l.failures, l.losses, l.fence, l.revision, coalesce(r.id, ''), l.started,
    l.progress, l.message, NULL, l.cancelling, l.reason, 0, NULL, NULL, l.history,
    coalesce(j.schedule, ''), j.retention_failed, j.options
"""

# By tenure_live_held, in its order: another one reads all that a replica runs for each slice.
HELD = f"""
    SELECT {_ORPHAN}
    FROM tenure_live AS l INDEXED BY tenure_live_held
    CROSS JOIN tenure_replica AS r
    LEFT JOIN tenure_job AS j ON j.number = l.number
    WHERE l.holder = :holder AND r.number = l.holder
    ORDER BY l.number
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# By tenure_live_deadline.
OVERDUE = f"""
    SELECT {_ORPHAN}
    FROM tenure_live AS l INDEXED BY tenure_live_deadline
    LEFT JOIN tenure_replica AS r ON r.number = l.holder
    LEFT JOIN tenure_job AS j ON j.number = l.number
    WHERE l.namespace = :namespace AND l.deadline <= :since AND l.holder IS NOT NULL
    ORDER BY l.deadline, l.id
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# What runs on no replica that is there; only a change by hand makes such rows. It looks at all that
# runs, by tenure_live_held: as much as one host can.
ORPHANS = f"""
    SELECT {_ORPHAN}
    FROM tenure_live AS l INDEXED BY tenure_live_held
    LEFT JOIN tenure_replica AS r ON r.number = l.holder AND r.namespace = l.namespace
    LEFT JOIN tenure_job AS j ON j.number = l.number
    WHERE l.namespace = :namespace AND l.holder IS NOT NULL AND r.number IS NULL
    ORDER BY l.id
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# What was set aside. By tenure_aside_end; it sorts what was found.
ASIDE = """
    SELECT id, kept_until
    FROM tenure_aside
    WHERE namespace = :namespace
      AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))
    ORDER BY kept_until, id
    LIMIT :limit
"""

# By tenure_replica_id, and for each what it runs by tenure_live_held.
REPLICAS = """
    SELECT id, meta, joined, ttl, boot_id = :boot_id, renewed, dead,
           (SELECT count(*) FROM tenure_live WHERE holder = tenure_replica.number)
    FROM tenure_replica INDEXED BY tenure_replica_id
    WHERE namespace = :namespace
    ORDER BY joined, id
    LIMIT :limit
"""
