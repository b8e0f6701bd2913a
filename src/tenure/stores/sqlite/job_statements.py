"""The job statements. Each names what serves it; `:namespace :now :boot_id :wall` are always given.

Lists go in as JSON text, which SQLite reads as a table, so that a batch is one statement. The
values of many jobs go in as rows of VALUES: see `Transaction.change_each`.

A CROSS JOIN is more than a join: SQLite nests the tables in the order in which they are written,
and so the rows come in the order of the outer ones.
"""

from __future__ import annotations

from tenure.core import soundness as bounds
from tenure.stores.sqlite import soundness

# Whether an unfinished job can be counted up and moved.
_SOUND = f"{soundness.LIVE.of('l')} AND {soundness.RUN.of('l')}"

# By tenure_job_id, which has all that is asked for.
KNOWN = """
    SELECT j.id
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    WHERE j.namespace = :namespace AND j.id = i.value
"""

# The end of each table itself. All rows of a job go together, so the first would do, if nobody ever
# changed a number by hand; one that is out of bounds does not count.
LAST_NUMBER = f"""
    SELECT max(
        coalesce((SELECT max(number) FROM tenure_job WHERE number < {bounds.INSTANT_MAX}), 0),
        coalesce((SELECT max(number) FROM tenure_live WHERE number < {bounds.INSTANT_MAX}), 0),
        coalesce((SELECT max(number) FROM tenure_done WHERE number < {bounds.INSTANT_MAX}), 0)
    )
"""  # noqa: S608 - put together from constants

INSERT_JOB = """
    INSERT INTO tenure_job (number, namespace, id, task, queue, priority, created, retention,
                            retention_failed, timeout, options, tags, payload)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, -1), ?, ?, ?)
"""

INSERT_LIVE = """
    INSERT INTO tenure_live (number, namespace, id, queue, priority, due, since, retained,
                             retained_failed, allowed)
    VALUES (?, ?, ?, ?, ?, ?, nullif(?, -1), ?, ?, nullif(?, -1))
"""

# By number.
KEY_JOB = """
    WITH given (number, unique_key, digest, keep) AS (
        VALUES (?, ?, ?, ?)
    )
    UPDATE tenure_job
    SET unique_key = given.unique_key, digest = given.digest, keep = given.keep
    FROM given
    WHERE tenure_job.number = given.number
"""

# By number.
MARK_JOB = """
    WITH given (number, schedule) AS (
        VALUES (?, ?)
    )
    UPDATE tenure_job
    SET schedule = given.schedule
    FROM given
    WHERE tenure_job.number = given.number
"""

# By number.
MARK_LIVE = """
    UPDATE tenure_live
    SET schedule = tenure_job.schedule
    FROM tenure_job
    WHERE tenure_live.number IN (SELECT value FROM json_each(:numbers))
      AND tenure_job.number = tenure_live.number
"""

# By number.
KEY_LIVE = """
    UPDATE tenure_live
    SET keyed = 1
    WHERE number IN (SELECT value FROM json_each(:numbers))
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

# The job has finished; the key is free once its time is up as well, and that of the finished job
# if it stays with it. By the job's number, and then by primary key; by tenure_job_id and number.
FREE = """
    UPDATE tenure_unique
    SET live = 0,
        until = max(until, coalesce((SELECT d.expires
                                     FROM tenure_job AS j INDEXED BY tenure_job_id
                                     CROSS JOIN tenure_done AS d
                                     WHERE j.namespace = tenure_unique.namespace
                                       AND j.id = tenure_unique.id AND j.keep < 0
                                       AND d.number = j.number),
                                    until))
    WHERE (namespace, key, id) IN (SELECT namespace, unique_key, id
                                   FROM tenure_job
                                   WHERE number IN (SELECT value FROM json_each(:numbers)))
"""

# Claim.

# By tenure_replica_id.
REPLICA = f"""
    SELECT number, claim_no, boot_id = :boot_id AND expires > :now
    FROM tenure_replica
    WHERE namespace = :namespace AND id = :replica AND dead = 0
      AND {soundness.REPLICA.of("tenure_replica")}
"""  # noqa: S608 - put together from constants

# The same, and when the first of those jobs is due that wait for their time. Each queue and each
# priority is a look-up of its own, by tenure_live_ready.
CLAIMING_REPLICA = f"""
    SELECT number, claim_no, boot_id = :boot_id AND expires > :now,
           (SELECT min((SELECT due
                        FROM tenure_live INDEXED BY tenure_live_ready
                        WHERE namespace = :namespace AND queue = q.value
                          AND (since IS NOT NULL) = 1 AND priority = p.column1 AND holder IS NULL
                          AND typeof(due) = 'integer'
                        ORDER BY due / 1000, id
                        LIMIT 1))
            FROM json_each(:queues) AS q
            CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
            WHERE NOT EXISTS (SELECT 1
                              FROM tenure_pause
                              WHERE namespace = :namespace AND queue = q.value
                                AND (until IS NULL
                                     OR typeof(until) = 'integer' AND until > :wall)))
    FROM tenure_replica
    WHERE namespace = :namespace AND id = :replica AND dead = 0
      AND {soundness.REPLICA.of("tenure_replica")}
"""  # noqa: S608 - put together from constants

# Those whose time has come wait for their turn, among the others of their queue: the first ones in
# the order in which they are served, see DUE. By tenure_live_ready, and then by number.
END_PAUSES = """
    UPDATE OR IGNORE tenure_live
    SET since = NULL
    WHERE number IN (SELECT l.number
                     FROM json_each(:queues) AS q
                     CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
                     CROSS JOIN tenure_live AS l INDEXED BY tenure_live_ready
                     WHERE NOT EXISTS (SELECT 1
                                       FROM tenure_pause
                                       WHERE namespace = :namespace AND queue = q.value
                                         AND (until IS NULL
                                              OR typeof(until) = 'integer' AND until > :wall))
                       AND l.namespace = :namespace AND l.queue = q.value
                       AND (l.since IS NOT NULL) = 1 AND l.priority = p.column1
                       AND l.holder IS NULL AND l.due / 1000 <= :wall / 1000 AND l.due <= :wall
                     LIMIT :limit)
"""

# The jobs that wait for their turn, in the order in which they are served: see CROSS JOIN, above.
# Each queue and priority is a look-up of its own by tenure_live_ready.
DUE = f"""
    SELECT j.number, j.id, j.task, j.queue, j.priority, j.payload, j.tags, j.timeout, j.retention,
           j.retention_failed, j.options, j.created, j.schedule, l.due, l.attempt, l.losses,
           l.revision = 1 AND l.fence = 0 AND l.attempt = 0 AND l.failures = 0 AND l.losses = 0,
           {_SOUND} AND {soundness.JOB.of("j")} AND {soundness.RUN.of("j")}
    FROM json_each(:queues) AS q
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
    CROSS JOIN tenure_live AS l INDEXED BY tenure_live_ready
    CROSS JOIN tenure_job AS j
    WHERE NOT EXISTS (SELECT 1
                      FROM tenure_pause
                      WHERE namespace = :namespace AND queue = q.value
                        AND (until IS NULL OR typeof(until) = 'integer' AND until > :wall))
      AND l.namespace = :namespace AND l.queue = q.value AND (l.since IS NOT NULL) = 0
      AND l.priority = p.column1 AND l.holder IS NULL
      AND j.number = l.number
    LIMIT :limit
"""  # noqa: S608 - put together from constants

# Whether one waits for its turn: by tenure_live_ready, and no further than the first.
IS_DUE = """
    SELECT 1
    FROM json_each(:queues) AS q
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
    CROSS JOIN tenure_live AS l INDEXED BY tenure_live_ready
    WHERE NOT EXISTS (SELECT 1
                      FROM tenure_pause
                      WHERE namespace = :namespace AND queue = q.value
                        AND (until IS NULL OR typeof(until) = 'integer' AND until > :wall))
      AND l.namespace = :namespace AND l.queue = q.value AND (l.since IS NOT NULL) = 0
      AND l.priority = p.column1 AND l.holder IS NULL
    LIMIT 1
"""

# When the next job is due: of each queue and priority the first after now, by tenure_live_ready.
NEXT_DUE = """
    SELECT min((SELECT due
                FROM tenure_live INDEXED BY tenure_live_ready
                WHERE namespace = :namespace AND queue = q.value
                  AND (since IS NOT NULL) = 1 AND priority = p.column1 AND holder IS NULL
                  AND typeof(due) = 'integer'
                  AND due / 1000 >= :wall / 1000 AND due > :wall
                ORDER BY due / 1000, id
                LIMIT 1))
    FROM json_each(:queues) AS q
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
    WHERE NOT EXISTS (SELECT 1
                      FROM tenure_pause
                      WHERE namespace = :namespace AND queue = q.value
                        AND (until IS NULL OR typeof(until) = 'integer' AND until > :wall))
"""

# By number. The fence is above the last one of the job, and not below `:least`.
START = """
    UPDATE tenure_live
    SET holder = :holder, claim_no = :claim_no, fence = max(fence + 1, :least),
        revision = revision + 1, attempt = attempt + 1, started = :wall,
        deadline = :now + allowed
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
STANDING = f"""
    SELECT j.id, j.number, l.fence, l.holder, l.cancelling, l.keyed, {_SOUND}
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_live AS l
    WHERE j.namespace = :namespace AND j.id = i.value AND l.number = j.number
"""  # noqa: S608 - put together from constants

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
           coalesce(l.settled_as, d.settled_as, 's')
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    LEFT JOIN tenure_live AS l ON l.number = j.number
    LEFT JOIN tenure_done AS d ON d.number = j.number
    WHERE j.namespace = :namespace AND j.id = i.value
"""

# By number. What most jobs come to; FINISH could do it too, and takes longer to be told. Only a
# change by hand leaves a row under this number, which is replaced then.
SUCCEED = """
    WITH given (number, finished, result, history) AS (
        VALUES (?, ?, ?, ?)
    )
    INSERT OR REPLACE INTO tenure_done (number, namespace, state, due, fence, revision, attempt,
                             failures, losses, started, finished, expires,
                             progress, message, reason, result, history, checkpoint)
    SELECT l.number, l.namespace, 'succeeded', l.due, l.fence, l.revision + 1, l.attempt,
           l.failures, l.losses, l.started, given.finished, given.finished + l.retained,
           l.progress, l.message, '', given.result, coalesce(given.history, l.history),
           l.checkpoint
    FROM given
    CROSS JOIN tenure_live AS l
    WHERE l.number = given.number
"""

# By number. Whoever settles names the fence that is there.
FINISH = """
    WITH given (number, state, failures, losses, finished, settled_as, reason, result,
                keeps_error, error, history) AS (
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    )
    INSERT OR REPLACE INTO tenure_done (number, namespace, id, state, due, fence, revision, attempt,
                             failures, losses, started, finished, expires,
                             settled_fence, settled_as, progress, message,
                             reason, result, error, history, checkpoint)
    SELECT l.number, l.namespace, l.id, given.state, l.due, l.fence, l.revision + 1, l.attempt,
           l.failures + given.failures, l.losses + given.losses, l.started, given.finished,
           given.finished + iif(given.state = 'failed', l.retained_failed, l.retained),
           iif(given.settled_as IS NULL, l.settled_fence, l.fence),
           coalesce(given.settled_as, l.settled_as), l.progress, l.message,
           coalesce(given.reason, l.reason), given.result,
           iif(given.keeps_error, l.error, given.error),
           coalesce(given.history, l.history), l.checkpoint
    FROM given
    CROSS JOIN tenure_live AS l
    WHERE l.number = given.number
"""

# By number.
REMOVE_LIVE = """
    DELETE FROM tenure_live
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By number.
SET_ASIDE = """
    INSERT INTO tenure_aside
    SELECT *, :kept_until
    FROM tenure_live
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By number.
GIVE_BACK = """
    WITH given (number, due, wall, failures, losses, settled_as,
                keeps_error, error, history) AS (
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    )
    UPDATE tenure_live AS l
    SET holder = NULL, deadline = NULL, due = coalesce(given.due, l.due),
        since = iif(given.due IS NULL, NULL, given.wall),
        fence = max(l.fence + 1, given.wall),
        revision = l.revision + 1, failures = l.failures + given.failures,
        losses = l.losses + given.losses,
        settled_fence = iif(given.settled_as IS NULL, l.settled_fence, l.fence),
        settled_as = coalesce(given.settled_as, l.settled_as),
        error = iif(given.keeps_error, l.error, given.error),
        history = coalesce(given.history, l.history)
    FROM given
    WHERE l.number = given.number
"""

# By number.
QUEUES_OF = """
    SELECT DISTINCT queue
    FROM tenure_live
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By tenure_job_id and number. A row that breaks a constraint is left alone, as all below.
NOTE = """
    UPDATE OR IGNORE tenure_live
    SET progress = coalesce(:progress, progress), message = coalesce(:message, message),
        checkpoint = coalesce(:checkpoint, checkpoint), revision = revision + 1
    WHERE number = (SELECT number FROM tenure_job WHERE namespace = :namespace AND id = :id)
      AND fence = :fence AND holder IS NOT NULL
"""

# By number.
REQUEST_CANCEL = """
    UPDATE tenure_live
    SET cancelling = 1, reason = :reason, revision = revision + 1
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By number.
REPLICAS_OF = """
    SELECT number, id
    FROM tenure_replica
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# Finished jobs again.

# By tenure_job_id and number.
TO_REQUEUE = f"""
    SELECT j.id, j.number, j.queue, j.timeout, j.retention, j.retention_failed, j.unique_key,
           j.digest, j.keep, j.schedule,
           {soundness.JOB.of("j")} AND {soundness.RUN.of("j")} AND {soundness.DONE.of("d")}
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    CROSS JOIN tenure_done AS d
    WHERE j.namespace = :namespace AND j.id = i.value AND d.number = j.number
"""  # noqa: S608 - put together from constants

# By number.
WAIT_AGAIN = """
    WITH given (number, due, retained, retained_failed, allowed) AS (
        VALUES (?, ?, ?, ?, ?)
    )
    INSERT OR REPLACE INTO tenure_live (number, namespace, id, queue, priority, due, retained,
                                        retained_failed, allowed, keyed, fence, revision, attempt,
                                        started, settled_fence, settled_as, history, checkpoint)
    SELECT j.number, j.namespace, j.id, j.queue, j.priority, given.due, given.retained,
           given.retained_failed, given.allowed, j.unique_key IS NOT NULL,
           max(d.fence + 1, given.due), d.revision + 1, d.attempt, d.started,
           coalesce(d.settled_fence, d.fence), coalesce(d.settled_as, 's'), d.history,
           d.checkpoint
    FROM given
    CROSS JOIN tenure_done AS d
    CROSS JOIN tenure_job AS j
    WHERE d.number = given.number AND j.number = d.number
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
                                   CROSS JOIN json_each(iif(json_valid(j.tags), j.tags, '[]')) AS t
                                   WHERE j.number = n.value AND j.tags <> '')
"""

# By number.
REMOVE_JOB = """
    DELETE FROM tenure_job
    WHERE number IN (SELECT value FROM json_each(:numbers))
"""

# By tenure_job_id. Whether it waits, runs, has finished or was set aside.
TO_DELETE = """
    SELECT j.id, j.number
    FROM json_each(:ids) AS i
    CROSS JOIN tenure_job AS j INDEXED BY tenure_job_id
    WHERE j.namespace = :namespace AND j.id = i.value
"""

# By number, and then by primary key. Not those that have gone to another job meanwhile.
REMOVE_KEYS = """
    DELETE FROM tenure_unique
    WHERE (namespace, key, id) IN (SELECT namespace, unique_key, id
                                   FROM tenure_job
                                   WHERE number IN (SELECT value FROM json_each(:numbers)))
"""

# What was set aside long ago. By tenure_aside_end.
ASIDE_TO_PRUNE = """
    SELECT number
    FROM tenure_aside
    WHERE namespace = :namespace AND kept_until <= :wall
    LIMIT :limit
"""

# By tenure_aside_number.
REMOVE_ASIDE = """
    DELETE FROM tenure_aside
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
