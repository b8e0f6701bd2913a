"""The statements that look at jobs and queues, in the manner of `job_statements`."""

from __future__ import annotations

# What `as_record` reads. A job is in one of the tables `l` and `d`, never in both.
_RECORD = """
    j.id, j.task, j.queue, j.priority,
    coalesce(d.state, CASE WHEN l.holder IS NULL THEN 'waiting' ELSE 'running' END),
    j.payload, j.tags, j.timeout, j.retention, j.created,
    coalesce(l.due, d.due), coalesce(l.attempt, d.attempt),
    coalesce(l.failures, d.failures), coalesce(l.losses, d.losses),
    coalesce(l.fence, d.fence), coalesce(l.revision, d.revision),
    coalesce(r.id, ''), coalesce(l.started, d.started),
    coalesce(l.progress, d.progress), coalesce(l.message, d.message),
    coalesce(l.checkpoint, d.checkpoint), coalesce(l.cancelling, 0),
    coalesce(l.reason, d.reason), coalesce(d.finished, 0), d.result,
    coalesce(l.error, d.error), coalesce(l.history, d.history),
    coalesce(j.schedule, ''), j.retention_failed, j.options
"""

# By tenure_job_id, and then by the job's number.
GET = f"""
    SELECT {_RECORD}
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    LEFT JOIN tenure_live AS l ON l.number = j.number
    LEFT JOIN tenure_replica AS r ON r.number = l.holder
    LEFT JOIN tenure_done AS d ON d.number = j.number
    WHERE j.namespace = :namespace AND j.id = i.value
      AND (l.number IS NOT NULL OR d.number IS NOT NULL)
"""  # noqa: S608 - put together from constants

# Those of some jobs that were set aside. By tenure_job_id and tenure_aside_number.
ASIDE_OF = """
    SELECT j.id
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_aside AS a INDEXED BY tenure_aside_number
    WHERE j.namespace = :namespace AND j.id = i.value AND a.number = j.number
"""

# What a claim got and still runs, by tenure_live_held.
CLAIMED = f"""
    SELECT {_RECORD}
    FROM tenure_live AS l INDEXED BY tenure_live_held
    CROSS JOIN tenure_job AS j
    CROSS JOIN tenure_replica AS r
    LEFT JOIN tenure_done AS d ON d.number = j.number
    WHERE l.holder = :holder AND l.claim_no = :claim_no
      AND j.number = l.number AND r.number = l.holder
    ORDER BY l.id
"""  # noqa: S608 - put together from constants

# Queues.

# By primary key.
PAUSE = """
    INSERT INTO tenure_pause (namespace, queue, until) VALUES (:namespace, :queue, :until)
    ON CONFLICT (namespace, queue) DO UPDATE SET until = excluded.until
"""

# By primary key.
RESUME = """
    DELETE FROM tenure_pause
    WHERE namespace = :namespace AND queue = :queue
"""

# By primary key.
PAUSED = """
    SELECT queue, until
    FROM tenure_pause
    WHERE namespace = :namespace AND (until IS NULL OR typeof(until) <> 'integer' OR until > :wall)
"""

# The queues in which jobs wait. Each step is one look-up by tenure_live_ready, past all jobs of
# the queue before.
WAITING_QUEUES = """
    WITH RECURSIVE known (queue) AS (
        SELECT min(queue)
        FROM tenure_live INDEXED BY tenure_live_ready
        WHERE namespace = :namespace AND holder IS NULL
        UNION ALL
        SELECT (SELECT min(queue)
                FROM tenure_live INDEXED BY tenure_live_ready
                WHERE namespace = :namespace AND holder IS NULL AND queue > known.queue)
        FROM known
        WHERE known.queue IS NOT NULL
    )
    SELECT queue FROM known WHERE queue IS NOT NULL
"""

# By tenure_live_ready, no further than the limit.
COUNT_WAITING = """
    SELECT count(*)
    FROM (SELECT 1
          FROM tenure_live INDEXED BY tenure_live_ready
          WHERE namespace = :namespace AND queue = :queue AND holder IS NULL
          LIMIT :limit)
"""

# The first due one of each priority, by tenure_live_ready: of those that wait for their turn, which
# are due whatever the clock shows, and of those that have waited for their time. Within its
# millisecond there may be one that was due a little earlier.
OLDEST = """
    SELECT min((SELECT min(due, :wall)
                FROM tenure_live INDEXED BY tenure_live_ready
                WHERE namespace = :namespace AND queue = :queue
                  AND (since IS NOT NULL) = 0 AND priority = p.column1 AND holder IS NULL
                ORDER BY due / 1000, id
                LIMIT 1)),
           min((SELECT due
                FROM tenure_live INDEXED BY tenure_live_ready
                WHERE namespace = :namespace AND queue = :queue
                  AND (since IS NOT NULL) = 1 AND priority = p.column1 AND holder IS NULL
                  AND due / 1000 <= :wall / 1000 AND due <= :wall
                ORDER BY due / 1000, id
                LIMIT 1))
    FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
"""

# By tenure_replica_id and tenure_live_held, no further than the limit.
COUNT_RUNNING = """
    SELECT queue, count(*)
    FROM (SELECT l.queue
          FROM tenure_replica AS r INDEXED BY tenure_replica_id
          CROSS JOIN tenure_live AS l INDEXED BY tenure_live_held
          WHERE r.namespace = :namespace AND l.holder = r.number
          LIMIT :limit)
    GROUP BY queue
"""

# Looking for jobs. What is looked at comes from one of these, newest first; what fits is taken
# from that. Numbers and blobs are no ids: all text comes after '' and before all blobs.

# By tenure_job_id.
_ALL = """
    SELECT number, id
    FROM tenure_job INDEXED BY tenure_job_id
    WHERE namespace = :namespace AND id >= '' AND id < :before
    ORDER BY id DESC
    LIMIT :looks
"""

# By primary key.
_TAGGED = """
    SELECT number, id
    FROM tenure_tag
    WHERE namespace = :namespace AND tag = :tag AND id >= '' AND id < :before
    ORDER BY id DESC
    LIMIT :looks
"""

# Of the newest with a tag, by primary key, and then by number.
COUNT_TAGGED = """
    SELECT count(*)
    FROM (SELECT 1
          FROM (SELECT number
                FROM tenure_tag
                WHERE namespace = :namespace AND tag = :tag
                ORDER BY id DESC
                LIMIT :looks) AS s
          CROSS JOIN tenure_live AS l
          WHERE l.number = s.number
          LIMIT :limit)
"""

# The same. Payloads stand behind what is read, and are not read.
COUNT_RECENT = """
    SELECT count(*), min(created)
    FROM (SELECT j.created
          FROM (SELECT number
                FROM tenure_tag
                WHERE namespace = :namespace AND tag = :tag
                ORDER BY id DESC
                LIMIT :looks) AS s
          CROSS JOIN tenure_job AS j
          WHERE j.number = s.number AND typeof(j.created) = 'integer' AND j.created > :since
            AND j.created <= :wall
          LIMIT :limit)
"""

# By tenure_done_state.
_UNLUCKY = """
    SELECT number, id
    FROM tenure_done INDEXED BY tenure_done_state
    WHERE namespace = :namespace AND state = :state AND state <> 'succeeded' AND id >= ''
      AND id < :before
    ORDER BY id DESC
    LIMIT :looks
"""

# By tenure_replica_id and tenure_live_held; it sorts all that is running.
_RUNNING = """
    SELECT l.number, l.id
    FROM tenure_replica AS r INDEXED BY tenure_replica_id
    CROSS JOIN tenure_live AS l INDEXED BY tenure_live_held
    WHERE r.namespace = :namespace AND l.holder = r.number AND l.id >= '' AND l.id < :before
    ORDER BY l.id DESC
    LIMIT :looks
"""

# By number, in the order of what is looked at.
_FITTING = f"""
    SELECT {_RECORD}
    FROM (@) AS s
    CROSS JOIN tenure_job AS j
    LEFT JOIN tenure_live AS l ON l.number = s.number
    LEFT JOIN tenure_replica AS r ON r.number = l.holder
    LEFT JOIN tenure_done AS d ON d.number = s.number
    WHERE j.number = s.number AND (l.number IS NOT NULL OR d.number IS NOT NULL)
      AND (:state IS NULL
           OR :state = coalesce(d.state, iif(l.holder IS NULL, 'waiting', 'running')))
      AND (:queue IS NULL OR j.queue = :queue)
      AND (:task IS NULL OR j.task = :task)
      AND (:replica IS NULL OR coalesce(r.id, '') = :replica)
      AND (:tag IS NULL
           OR EXISTS (SELECT 1
                      FROM tenure_tag
                      WHERE namespace = :namespace AND tag = :tag AND id = s.id))
    LIMIT :limit
"""  # noqa: S608 - put together from constants

_LOOKED_AT = "SELECT count(*), min(id) FROM (@)"

FIND = _FITTING.replace("@", _ALL)
FIND_TAGGED = _FITTING.replace("@", _TAGGED)
FIND_UNLUCKY = _FITTING.replace("@", _UNLUCKY)
FIND_RUNNING = _FITTING.replace("@", _RUNNING)

# How many were looked at, and where it ended.
LOOKED_AT = _LOOKED_AT.replace("@", _ALL)
LOOKED_AT_TAGGED = _LOOKED_AT.replace("@", _TAGGED)
LOOKED_AT_UNLUCKY = _LOOKED_AT.replace("@", _UNLUCKY)
LOOKED_AT_RUNNING = _LOOKED_AT.replace("@", _RUNNING)
