"""The job statements. Each names what serves it; `:namespace :now :boot_id :wall` are always given.

Lists go in as JSON text, which SQLite reads as a table, so that a batch is one statement. Those
with `?` run once per job of a batch, with a tuple of values.

A CROSS JOIN is more than a join: SQLite nests the tables in the order in which they are written,
and so the rows come in the order of the outer ones.
"""

from __future__ import annotations

# By tenure_job_id, which has all that is asked for.
KNOWN = """
    SELECT j.id
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    WHERE j.namespace = :namespace AND j.id = i.value
"""

# The end of the table itself. All rows of a job go together, so a number that is free now is free
# everywhere.
LAST_NUMBER = "SELECT coalesce(max(number), 0) FROM tenure_job"

INSERT_JOB = """
    INSERT INTO tenure_job (number, namespace, id, task, queue, priority, created, retention,
                            timeout, tags, payload)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, nullif(?, -1), ?, ?)
"""

INSERT_LIVE = """
    INSERT INTO tenure_live (number, namespace, id, queue, priority, due, retained, allowed)
    VALUES (?, ?, ?, ?, ?, ?, ?, nullif(?, -1))
"""

# By number.
KEY_JOB = """
    UPDATE tenure_job
    SET unique_key = ?, digest = ?, keep = ?
    WHERE number = ?
"""

# By number.
KEY_LIVE = """
    UPDATE tenure_live
    SET keyed = 1
    WHERE number = ?
"""

INSERT_TAG = """
    INSERT OR IGNORE INTO tenure_tag (namespace, tag, id, number)
    VALUES (?, ?, ?, ?)
"""

# By primary key.
TAKEN = """
    SELECT id, digest
    FROM tenure_unique
    WHERE namespace = :namespace AND key = :key AND (live = 1 OR until > :wall)
"""

# By primary key.
TAKE = """
    INSERT INTO tenure_unique (namespace, key, id, digest, until, live)
    VALUES (:namespace, :key, :id, :digest, :until, 1)
    ON CONFLICT (namespace, key) DO UPDATE
    SET id = excluded.id, digest = excluded.digest, until = excluded.until, live = 1
"""

# The job has finished; the key is free once its time is up as well. By the job's number, and
# then by primary key.
FREE = """
    UPDATE tenure_unique
    SET live = 0
    WHERE (namespace, key, id) = (SELECT namespace, unique_key, id
                                  FROM tenure_job
                                  WHERE number = ?)
"""

# Claim.

# By tenure_replica_id.
REPLICA = """
    SELECT number, claim_no, boot_id = :boot_id AND expires > :now
    FROM tenure_replica
    WHERE namespace = :namespace AND id = :replica AND dead = 0
"""

# The due jobs in the order in which they are served: see CROSS JOIN, above. Each queue and priority
# is a look-up of its own by tenure_live_ready, which ends where the future begins.
DUE = """
    SELECT j.number, j.id, j.task, j.queue, j.priority, j.payload, j.tags, j.timeout, j.retention,
           j.created, l.due, l.attempt, l.failures, l.losses, l.fence, l.revision, l.progress,
           l.message, l.checkpoint, l.error, l.history
    FROM json_each(:queues) AS q
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
    CROSS JOIN tenure_live AS l INDEXED BY tenure_live_ready
    CROSS JOIN tenure_job AS j
    WHERE NOT EXISTS (SELECT 1
                      FROM tenure_pause
                      WHERE namespace = :namespace AND queue = q.value
                        AND (until IS NULL OR until > :wall))
      AND l.namespace = :namespace AND l.queue = q.value AND l.priority = p.column1
      AND l.holder IS NULL AND l.due / 1000 <= :wall / 1000 AND l.due <= :wall
      AND j.number = l.number
    LIMIT :limit
"""

# When the next job is due: of each queue and priority the first after now, by tenure_live_ready.
NEXT_DUE = """
    SELECT min((SELECT due
                FROM tenure_live INDEXED BY tenure_live_ready
                WHERE namespace = :namespace AND queue = q.value AND priority = p.column1
                  AND holder IS NULL AND due / 1000 >= :wall / 1000 AND due > :wall
                ORDER BY due / 1000, id
                LIMIT 1))
    FROM json_each(:queues) AS q
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
    WHERE NOT EXISTS (SELECT 1
                      FROM tenure_pause
                      WHERE namespace = :namespace AND queue = q.value
                        AND (until IS NULL OR until > :wall))
"""

# By number.
START = """
    UPDATE tenure_live
    SET holder = :holder, claim_no = :claim_no, fence = max(fence + 1, :wall),
        revision = revision + 1, attempt = attempt + 1, started = :wall,
        deadline = :wall + allowed
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By number.
COUNT_CLAIM = """
    UPDATE tenure_replica
    SET claim_no = :claim_no
    WHERE number = :holder
"""

# Unfinished jobs.

# By tenure_job_id, which knows the number, and then by number.
STANDING = """
    SELECT j.id, j.number, l.fence, l.holder, l.cancelling, l.keyed
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_live AS l
    WHERE j.namespace = :namespace AND j.id = i.value AND l.number = j.number
"""

# The same for finished jobs.
FINISHED = """
    SELECT j.id
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_done AS d
    WHERE j.namespace = :namespace AND j.id = i.value AND d.number = j.number
"""

# By tenure_job_id and number.
SETTLED = """
    SELECT j.id, coalesce(l.settled_fence, d.settled_fence, d.fence),
           coalesce(l.settled_as, d.settled_as, d.state)
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    LEFT JOIN tenure_live AS l ON l.number = j.number
    LEFT JOIN tenure_done AS d ON d.number = j.number
    WHERE j.namespace = :namespace AND j.id = i.value
"""

# By number. What most jobs come to; FINISH could do it too, and takes longer to be told.
SUCCEED = """
    INSERT INTO tenure_done (number, namespace, state, due, fence, revision, attempt,
                             failures, losses, started, finished, expires,
                             progress, message, reason, result, history, checkpoint)
    SELECT number, namespace, 'succeeded', due, fence, revision + 1, attempt,
           failures, losses, started, ?, ? + retained,
           progress, message, '', ?, coalesce(?, history), checkpoint
    FROM tenure_live
    WHERE number = ?
"""

# By number. Whoever settles names the fence that is there.
FINISH = """
    INSERT INTO tenure_done (number, namespace, id, state, due, fence, revision, attempt,
                             failures, losses, started, finished, expires,
                             settled_fence, settled_as, progress, message,
                             reason, result, error, history, checkpoint)
    SELECT number, namespace, id, ?, due, fence, revision + 1, attempt,
           failures + ?, losses + ?, started, ?, ? + retained,
           iif(? IS NULL, settled_fence, fence), coalesce(?, settled_as), progress, message,
           coalesce(?, reason), ?, iif(?, error, ?), coalesce(?, history), checkpoint
    FROM tenure_live
    WHERE number = ?
"""

# By number.
REMOVE_LIVE = """
    DELETE FROM tenure_live
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By number.
SET_ASIDE = """
    INSERT INTO tenure_aside
    SELECT *
    FROM tenure_live
    WHERE number = ?
"""

# By number.
GIVE_BACK = """
    UPDATE tenure_live
    SET holder = NULL, deadline = NULL, due = ?, fence = max(fence + 1, ?),
        revision = revision + 1, failures = failures + ?, losses = losses + ?,
        settled_fence = iif(? IS NULL, settled_fence, fence),
        settled_as = coalesce(?, settled_as),
        error = iif(?, error, ?), history = coalesce(?, history)
    WHERE number = ?
"""

# By number.
QUEUES_OF = """
    SELECT DISTINCT queue
    FROM tenure_live
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By tenure_job_id and number.
NOTE = """
    UPDATE tenure_live
    SET progress = coalesce(:progress, progress), message = coalesce(:message, message),
        checkpoint = coalesce(:checkpoint, checkpoint), revision = revision + 1
    WHERE number = (SELECT number FROM tenure_job WHERE namespace = :namespace AND id = :id)
      AND fence = :fence AND holder IS NOT NULL
"""

# By number.
REQUEST_CANCEL = """
    UPDATE tenure_live
    SET cancelling = 1, reason = ?, revision = revision + 1
    WHERE number = ?
"""

# By number.
REPLICAS_OF = """
    SELECT number, id
    FROM tenure_replica
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# Finished jobs again.

# By tenure_job_id and number.
TO_REQUEUE = """
    SELECT j.id, j.number, j.queue, j.timeout, j.retention, j.unique_key, j.digest, j.keep
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_done AS d
    WHERE j.namespace = :namespace AND j.id = i.value AND d.number = j.number
"""

# By number.
WAIT_AGAIN = """
    INSERT INTO tenure_live (number, namespace, id, queue, priority, due, retained, allowed,
                             keyed, fence, revision, attempt, started,
                             settled_fence, settled_as, history, checkpoint)
    SELECT j.number, j.namespace, j.id, j.queue, j.priority, ?, ?, ?,
           j.unique_key IS NOT NULL, max(d.fence + 1, ?), d.revision + 1, d.attempt, d.started,
           coalesce(d.settled_fence, d.fence), coalesce(d.settled_as, d.state),
           d.history, d.checkpoint
    FROM tenure_done AS d
    CROSS JOIN tenure_job AS j
    WHERE d.number = ? AND j.number = d.number
"""

# By number.
REMOVE_DONE = """
    DELETE FROM tenure_done
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By tenure_done_expiry.
TO_PRUNE = """
    SELECT number
    FROM tenure_done INDEXED BY tenure_done_expiry
    WHERE namespace = :namespace AND expires <= :wall
    ORDER BY expires
    LIMIT :limit
"""

# By number, and then by primary key.
REMOVE_TAGS = """
    DELETE FROM tenure_tag
    WHERE (namespace, tag, id) IN (SELECT j.namespace, t.value, j.id
                                   FROM json_each(:numbers) AS n
                                   CROSS JOIN tenure_job AS j
                                   CROSS JOIN json_each(j.tags) AS t
                                   WHERE j.number = n.value AND j.tags <> '')
"""

# By number.
REMOVE_JOB = """
    DELETE FROM tenure_job
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By tenure_unique_free, and then by primary key.
FORGET_FREE_KEYS = """
    DELETE FROM tenure_unique
    WHERE namespace = :namespace
      AND key IN (SELECT key
                  FROM tenure_unique INDEXED BY tenure_unique_free
                  WHERE namespace = :namespace AND live = 0 AND until <= :wall
                  LIMIT :limit)
"""
