"""The statements about schedules, in the manner of `job_statements`."""

from __future__ import annotations

from tenure.stores.sqlite import soundness

# Planting.

# Those with these names, and whoever they were renamed to, all along. By primary key.
TO_PLANT = f"""
    WITH RECURSIVE wanted (name) AS (
        SELECT value
        FROM json_each(:names)
        UNION
        SELECT s.successor
        FROM wanted AS w
        CROSS JOIN tenure_schedule AS s
        WHERE s.namespace = :namespace AND s.name = w.name AND s.successor <> ''
    )
    SELECT s.digests, s.name, s.revision, s.cursor, s.declared, s.planted, s.last_run,
           s.last_job, s.last_fence, s.successor, s.definition, s.calendar,
           {soundness.SCHEDULE.of("s")}
    FROM wanted AS w
    CROSS JOIN tenure_schedule AS s
    WHERE s.namespace = :namespace AND s.name = w.name
"""  # noqa: S608 - put together from constants

# By primary key. Who moved it last stays as it is.
PLANT = """
    INSERT INTO tenure_schedule (namespace, name, revision, cursor, declared, planted, last_run,
                                 last_job, last_fence, successor, definition, calendar, digests)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, name) DO UPDATE
    SET revision = excluded.revision, cursor = excluded.cursor, declared = excluded.declared,
        last_run = excluded.last_run, last_job = excluded.last_job,
        last_fence = excluded.last_fence, successor = excluded.successor,
        definition = excluded.definition, calendar = excluded.calendar, digests = excluded.digests
"""

# By primary key.
DECLARE = """
    UPDATE OR IGNORE tenure_schedule
    SET declared = :wall
    WHERE namespace = :namespace AND name IN (SELECT value FROM json_each(:names))
"""

# The one that lasts longest; the first of those that last as long. By primary key; it sorts those
# that were found.
INHERIT_FREEZE = f"""
    INSERT INTO tenure_freeze (namespace, name, since, until, reason)
    SELECT f.namespace, :heir, f.since, f.until, f.reason
    FROM json_each(:names) AS n
    CROSS JOIN tenure_freeze AS f
    WHERE f.namespace = :namespace AND f.name = n.value AND {soundness.FREEZE.of("f")}
    ORDER BY f.until IS NULL DESC, f.until DESC, n.key
    LIMIT 1
    ON CONFLICT (namespace, name) DO UPDATE
    SET since = excluded.since, until = excluded.until, reason = excluded.reason
"""  # noqa: S608 - put together from constants

# Moving a cursor.

# By primary key.
TO_MOVE = f"""
    SELECT revision, cursor, last_run, last_job, last_fence, moved_by, outcome, reason, successor
    FROM tenure_schedule
    WHERE namespace = :namespace AND name = :name AND {soundness.SCHEDULE.of("tenure_schedule")}
"""  # noqa: S608 - put together from constants

# Whether a run is unfinished, and when it finished. By tenure_job_id and number.
LAST_RUN = """
    SELECT l.number IS NOT NULL, d.finished
    FROM tenure_job AS j INDEXED BY tenure_job_id
    LEFT JOIN tenure_live AS l ON l.number = j.number
    LEFT JOIN tenure_done AS d ON d.number = j.number
    WHERE j.namespace = :namespace AND j.id = :id
      AND (l.number IS NOT NULL OR typeof(d.finished) = 'integer')
"""

# By primary key, both.
FROZEN = """
    SELECT 1
    FROM tenure_freeze
    WHERE namespace = :namespace AND name IN (:name, :everything)
      AND (until IS NULL OR typeof(until) = 'integer' AND until > :tick)
"""

# By tenure_live_run, which has all that is asked for; no further than the limit.
COUNT_RUNS = """
    SELECT count(*)
    FROM (SELECT 1
          FROM tenure_live INDEXED BY tenure_live_run
          WHERE namespace = :namespace AND schedule = :name
          LIMIT :limit)
"""

# The same for those on one replica; for those that wait, if there is none.
COUNT_OWN_RUNS = """
    SELECT count(*)
    FROM (SELECT 1
          FROM tenure_live INDEXED BY tenure_live_run
          WHERE namespace = :namespace AND schedule = :name AND holder IS :holder
          LIMIT :limit)
"""

# By tenure_live_run.
RUNS = """
    SELECT id
    FROM tenure_live INDEXED BY tenure_live_run
    WHERE namespace = :namespace AND schedule = :name
"""

# By tenure_live_run.
OWN_RUNS = """
    SELECT id
    FROM tenure_live INDEXED BY tenure_live_run
    WHERE namespace = :namespace AND schedule = :name AND holder IS :holder
"""

# By primary key.
MOVE = """
    UPDATE tenure_schedule
    SET cursor = :cursor, last_run = :last_run, last_job = :last_job, last_fence = :last_fence,
        declared = CASE WHEN :forced THEN declared ELSE :wall END,
        moved_by = :id, outcome = :outcome, reason = :reason
    WHERE namespace = :namespace AND name = :name
"""

# Decisions.

# By primary key, from its end. What has no number is none.
DECISIONS = f"""
    SELECT number, outcome, reason, first, last, ticks, at, job, replica,
           {soundness.DECISION.of("tenure_decision")}
    FROM tenure_decision
    WHERE namespace = :namespace AND name = :name AND number >= 0 AND number < ''
    ORDER BY number DESC
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# By primary key.
WRITE_DECISION = """
    INSERT OR REPLACE INTO tenure_decision (namespace, name, number, outcome, reason, first, last,
                                            ticks, at, job, replica)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

# By primary key.
FORGET_DECISIONS = """
    DELETE FROM tenure_decision
    WHERE namespace = :namespace AND name = :name AND number <= :number
"""

# Looking.

# What `as_schedule` reads; the runs by tenure_live_run, all else by primary key.
_RECORD = """
    s.name, s.revision, s.definition, s.cursor, s.last_run, s.last_job,
    (SELECT count(*)
     FROM tenure_live INDEXED BY tenure_live_run
     WHERE namespace = :namespace AND schedule = s.name),
    s.planted, s.declared, s.successor, f.since, f.until, f.reason,
    d.number, d.outcome, d.reason, d.first, d.last, d.ticks, d.at, d.job, d.replica
"""

_AROUND = """
    LEFT JOIN tenure_freeze AS f ON f.namespace = s.namespace AND f.name = s.name
    LEFT JOIN tenure_decision AS d
      ON d.namespace = s.namespace AND d.name = s.name
         AND d.number = (SELECT max(number)
                         FROM tenure_decision
                         WHERE namespace = s.namespace AND name = s.name)
"""

# By primary key, in its order.
ALL_SCHEDULES = f"""
    SELECT {_RECORD}
    FROM tenure_schedule AS s
    {_AROUND}
    WHERE s.namespace = :namespace
    ORDER BY s.name
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# By primary key; it sorts those that were asked for.
SCHEDULES = f"""
    SELECT {_RECORD}
    FROM json_each(:names) AS n
    CROSS JOIN tenure_schedule AS s
    {_AROUND}
    WHERE s.namespace = :namespace AND s.name = n.value
    ORDER BY s.name
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# By primary key.
FREEZE_OF = """
    SELECT since, until, reason
    FROM tenure_freeze
    WHERE namespace = :namespace AND name = :name
"""

# By primary key.
IS_PLANTED = """
    SELECT 1
    FROM tenure_schedule
    WHERE namespace = :namespace AND name = :name
"""

# Freezing.

# By primary key.
FREEZE = """
    INSERT INTO tenure_freeze (namespace, name, since, until, reason)
    VALUES (:namespace, :name, :wall, :until, :reason)
    ON CONFLICT (namespace, name) DO UPDATE
    SET since = excluded.since, until = excluded.until, reason = excluded.reason
"""

# By primary key.
THAW = """
    UPDATE OR IGNORE tenure_freeze
    SET until = :wall
    WHERE namespace = :namespace AND name = :name AND (until IS NULL OR until > :wall)
"""

# Forgetting.

# All schedules of the namespace, by primary key: there are few, and it is not asked for often. An
# index would be written to with every tick. A name at rest goes after its successor: it might come
# back with a roll-back.
IDLE = """
    SELECT s.name
    FROM tenure_schedule AS s
    WHERE s.namespace = :namespace AND s.declared <= :since
      AND NOT EXISTS (SELECT 1
                      FROM tenure_live INDEXED BY tenure_live_run
                      WHERE namespace = :namespace AND schedule = s.name)
      AND NOT EXISTS (SELECT 1
                      FROM tenure_schedule
                      WHERE namespace = :namespace AND name = s.successor)
    LIMIT :limit
"""

# By primary key.
REMOVE_SCHEDULES = """
    DELETE FROM tenure_schedule
    WHERE namespace = :namespace AND name IN (SELECT value FROM json_each(:names))
"""

# By primary key.
REMOVE_DECISIONS = """
    DELETE FROM tenure_decision
    WHERE namespace = :namespace AND name IN (SELECT value FROM json_each(:names))
"""

# By primary key.
REMOVE_FREEZES = """
    DELETE FROM tenure_freeze
    WHERE namespace = :namespace AND name IN (SELECT value FROM json_each(:names))
"""
