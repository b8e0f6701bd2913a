-- Format 2: the way of a job, from insert through claim to settle; see 1_leases.sql for the rules.
--
-- Lock order, which excludes deadlocks: rows of job_key by key, of replica, of replica_claim, of job_done
-- by id, of job by id. Whoever comes to one out of turn does not wait for it (SKIP LOCKED).
--
-- Batches come as text[], bytes as hexadecimal digits: for arrays of anything else, asyncpg first
-- asks every new connection what they are made of. Answers go as text with a letter for each item.
--
-- Where a batch is joined with a table, the batch carries the namespace. So the planner cannot
-- begin with "all jobs of the namespace", which looks cheap while there are few.

-- A stored time in microseconds; a week instead of one that cannot be counted.
CREATE FUNCTION tenure.span_v1(_seconds double precision) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _seconds >= 0 AND _seconds <= 1e10 THEN round(_seconds * 1000000)::bigint
                WHEN _seconds IS NOT NULL THEN 604800000000 END
$$;

-- How long a job that has finished in a state is kept, in microseconds.
CREATE FUNCTION tenure.retention_v1(
    _state text, _retention double precision, _failed double precision
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT tenure.span_v1(CASE WHEN _state = 'failed' THEN _failed ELSE _retention END)
$$;

-- Lock the row of a unique key; made on first use.
CREATE FUNCTION tenure.job_lock_key_v1(_namespace text, _key text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    LOOP
        -- Waits for who is about to take the key, and then finds it, or not if that was undone.
        -- It is free until the caller takes it.
        -- index: job_key_pkey
        INSERT INTO tenure.job_key (namespace, key, id, digest, until, free_at)
        VALUES (_namespace, _key, '', '', 0, 0) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        -- Not there if it was removed as free meanwhile.
        -- index: job_key_pkey
        PERFORM FROM tenure.job_key k
        WHERE k.namespace = _namespace AND k.key = _key FOR UPDATE;
        EXIT WHEN FOUND;
    END LOOP;
END
$$;

-- Lock the rows of unique keys, which are sorted. Returns the keys that another transaction still holds after
-- _patience milliseconds; with _patience NULL it waits for them, and fails after lock_timeout.
CREATE FUNCTION tenure.job_lock_keys_v1(_namespace text, _keys text[], _patience integer)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _usual text := current_setting('lock_timeout');
    _key text;
    _busy text[] := '{}';
BEGIN
    IF _patience IS NULL THEN
        FOREACH _key IN ARRAY _keys LOOP
            PERFORM tenure.job_lock_key_v1(_namespace, _key);
        END LOOP;
        RETURN _busy;
    END IF;
    -- As a rule all keys are free, and one subtransaction is enough for all of them.
    BEGIN
        PERFORM set_config('lock_timeout', _patience::text, true);
        FOREACH _key IN ARRAY _keys LOOP
            PERFORM tenure.job_lock_key_v1(_namespace, _key);
        END LOOP;
    EXCEPTION WHEN lock_not_available THEN
        FOREACH _key IN ARRAY _keys LOOP
            BEGIN
                -- The neighbours of many keys that are held wait for a part of a second only.
                PERFORM set_config(
                    'lock_timeout', CASE WHEN cardinality(_busy) < 10 THEN '10' ELSE '1' END, true);
                PERFORM tenure.job_lock_key_v1(_namespace, _key);
            EXCEPTION WHEN lock_not_available THEN
                _busy := _busy || _key;
            END;
        END LOOP;
    END;
    PERFORM set_config('lock_timeout', _usual, true);
    RETURN _busy;
END
$$;

-- Lock the keys of a batch, and decide about each of its jobs, in order: c created, d created before in
-- the same batch, e existing, m mismatch, b busy: an open transaction holds its key. holders are the jobs that
-- have the keys of e and m.
CREATE FUNCTION tenure.job_admit_v1(
    _namespace text, _ids text[], _keys text[], _digests text[], _keeps text[], _patience integer,
    _told bigint, OUT answers text, OUT holders text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _one record;
    _k tenure.job_key;
    _now bigint;
    _letter text;
    _busy text[];
    _taken text[] := '{}';
    _made text[] := '{}';
BEGIN
    _busy := tenure.job_lock_keys_v1(_namespace, ARRAY(
        SELECT DISTINCT u.key COLLATE "C" AS key FROM unnest(_keys) AS u (key)
        WHERE u.key IS NOT NULL ORDER BY key), _patience);
    _now := tenure.now_v1(_told);
    answers := '';
    holders := '{}';
    FOR _one IN
        SELECT u.* FROM unnest(_ids, _keys, _digests, _keeps) AS u (id, key, digest, keep)
    LOOP
        _letter := CASE WHEN _one.id = ANY (_made) THEN 'd' ELSE 'c' END;
        IF _letter = 'c' AND _one.key IS NOT NULL
           AND NOT tenure.job_is_known_v1(_namespace, _one.id) THEN
            -- index: job_key_pkey
            SELECT * INTO _k FROM tenure.job_key k
            WHERE k.namespace = _namespace AND k.key = _one.key;
            IF _k.id <> _one.id
               AND (_one.key = ANY (_taken) OR tenure.job_key_is_taken_v1(_k, _now)) THEN
                -- Right without the lock as well: that job had the key a moment ago.
                _letter := CASE WHEN _k.digest = _one.digest THEN 'e' ELSE 'm' END;
                holders := holders || _k.id;
            ELSIF _one.key = ANY (_busy) THEN
                _letter := 'b';
            ELSE
                _taken := _taken || _one.key;
                -- index: job_key_pkey
                UPDATE tenure.job_key k
                SET id = _one.id, digest = _one.digest, until = _now + abs(_one.keep::bigint),
                    free_at = NULL
                WHERE k.namespace = _namespace AND k.key = _one.key;
            END IF;
        END IF;
        IF _letter = 'c' THEN
            _made := _made || _one.id;
        END IF;
        answers := answers || _letter;
    END LOOP;
END
$$;

-- Whether another job may not have this key, which the caller has locked. If nobody could note when it
-- will be free, because it was locked when its job finished, the finished job tells.
CREATE FUNCTION tenure.job_key_is_taken_v1(_k tenure.job_key, _now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey, job_done_pkey
    RETURN _k.until > _now OR (_k.free_at IS NULL AND (
        EXISTS (SELECT FROM tenure.job j
                WHERE j.namespace = _k.namespace AND j.id = _k.id
                  AND j.state IN ('waiting', 'running'))
        OR EXISTS (SELECT FROM tenure.job_done d
                   WHERE d.namespace = _k.namespace AND d.id = _k.id AND d.unique_keep < 0
                     AND d.expires > _now)));
END
$$;

CREATE FUNCTION tenure.job_is_known_v1(_namespace text, _id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey, job_done_pkey
    RETURN EXISTS (SELECT FROM tenure.job j WHERE j.namespace = _namespace AND j.id = _id)
        OR EXISTS (SELECT FROM tenure.job_done d WHERE d.namespace = _namespace AND d.id = _id);
END
$$;

-- Store jobs; see job_admit_v1 for the answers. Without keys, which also means that no id is there twice,
-- all are c, and answers is NULL. _patience is that of job_lock_keys_v1.
CREATE FUNCTION tenure.job_insert_v1(
    _namespace text, _ids text[], _tasks text[], _queues text[], _priorities text[],
    _payloads text[], _tags text[], _delays text[], _ats text[], _timeouts text[],
    _retentions text[], _retentions_failed text[], _options text[], _keys text[], _digests text[],
    _keeps text[], _patience integer, _told bigint,
    OUT at bigint, OUT answers text, OUT holders text[]
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    -- The transaction gets its number before its instant; bounds.py relies on that.
    _number xid8 := pg_current_xact_id();
    _made text[];
BEGIN
    IF _keys IS NOT NULL THEN
        SELECT a.answers, a.holders INTO answers, holders
        FROM tenure.job_admit_v1(_namespace, _ids, _keys, _digests, _keeps, _patience, _told) a;
    END IF;
    at := tenure.now_v1(_told);
    _made := _ids;
    IF answers IS NOT NULL THEN
        _made := ARRAY(SELECT u.id FROM unnest(_ids) WITH ORDINALITY AS u (id, n)
                       WHERE substr(answers, u.n::integer, 1) = 'c');
    END IF;
    LOOP
        -- ON CONFLICT would cost every job a second look and a second record in the log, for the
        -- sake of repeats, which are rare.
        BEGIN
            INSERT INTO tenure.job (
                namespace, id, task, queue, priority, payload, tags, timeout, retention,
                retention_failed, options, created, due, since, unique_key, unique_digest, unique_keep
            )
            SELECT _namespace, u.id, u.task, u.queue, u.priority::smallint,
                   decode(u.payload, 'hex'),
                   CASE WHEN u.tags IS NULL THEN '{}'
                        ELSE ARRAY(SELECT json_array_elements_text(u.tags::json)) END,
                   u.timeout::double precision, u.retention::double precision,
                   u.retention_failed::double precision, coalesce(u.options, ''), at,
                   coalesce(u.due_at::bigint, at + u.delay::bigint),
                   CASE WHEN u.due_at IS NULL AND u.delay::bigint > 0 THEN at
                        WHEN u.due_at::bigint > at THEN 0 END,
                   u.key, u.digest, u.keep::bigint
            FROM unnest(
                _ids, _tasks, _queues, _priorities, _payloads, _tags, _delays, _ats, _timeouts,
                _retentions, _retentions_failed, _options, _keys, _digests, _keeps
            ) WITH ORDINALITY AS u (
                id, task, queue, priority, payload, tags, delay, due_at, timeout, retention,
                retention_failed, options, key, digest, keep, n)
            WHERE (answers IS NULL OR substr(answers, u.n::integer, 1) = 'c')
              AND (cardinality(_made) = cardinality(_ids) OR u.id = ANY (_made))
            -- Everybody adds ids in this order: two callers may be repeating the same ones.
            ORDER BY u.id COLLATE "C";
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            -- index: job_pkey
            _made := ARRAY(
                SELECT unnest(_made) EXCEPT
                SELECT j.id FROM tenure.job j
                WHERE j.namespace = _namespace AND j.id = ANY (_made));
        END;
    END LOOP;
    -- Repeats of jobs that have finished. Looked for afterwards: a job that finished while this was
    -- under way was in neither table as the insert saw them.
    -- index: job_done_pkey
    IF EXISTS (SELECT FROM tenure.job_done d
               WHERE d.namespace = _namespace AND d.id = ANY (_made)) THEN
        -- index: job_done_pkey, job_pkey
        DELETE FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (ARRAY(
            SELECT d.id FROM tenure.job_done d
            WHERE d.namespace = _namespace AND d.id = ANY (_made)));
        _made := ARRAY(
            SELECT j.id FROM tenure.job j WHERE j.namespace = _namespace AND j.id = ANY (_made));
    END IF;
    IF _tags IS NOT NULL THEN
        INSERT INTO tenure.job_tag (namespace, tag, id)
        SELECT DISTINCT _namespace, g.tag, u.id
        FROM unnest(_ids, _tags) WITH ORDINALITY AS u (id, tags, n)
        CROSS JOIN LATERAL json_array_elements_text(u.tags::json) AS g (tag)
        WHERE u.tags IS NOT NULL AND u.id = ANY (_made)
          AND (answers IS NULL OR substr(answers, u.n::integer, 1) = 'c');
    END IF;
END
$$;

-- Return those of some queues that are not paused, and when the first of their jobs is due that wait for
-- their time. Within its millisecond there may be one that is due a little earlier.
--
-- _from has 11 milliseconds for each queue: where to begin among the jobs that wait for their time, and among
-- the others of each priority. Without it, looks begin at the first job.
CREATE FUNCTION tenure.job_open_v1(
    _namespace text, _queues text[], _now bigint, _from bigint[] DEFAULT NULL,
    OUT open text[], OUT later bigint
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: queue_pause_pkey, job_ready
    SELECT coalesce(array_agg(q.name ORDER BY q.n), '{}'), min(first.due) INTO open, later
    FROM unnest(_queues) WITH ORDINALITY AS q (name, n)
    CROSS JOIN LATERAL (
        SELECT min(f.due) AS due
        FROM generate_series(0, 9) AS p (priority)
        CROSS JOIN LATERAL (
            SELECT j.due FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.queue = q.name
              AND (j.since IS NOT NULL)::integer = 1 AND j.priority = p.priority
              AND j.state = 'waiting'
              AND j.due / 1000 >= coalesce(_from[q.n * 11 - 10], -9223372036854775808)
            ORDER BY j.due / 1000, j.id LIMIT 1
        ) AS f
    ) AS first
    WHERE NOT EXISTS (
        SELECT FROM tenure.queue_pause p
        WHERE p.namespace = _namespace AND p.queue = q.name
          AND (p.until IS NULL OR p.until > _now));
END
$$;

-- Let jobs whose time has come wait for their turn, among the others of their queues: the first _limit in
-- the order in which they are served. Returns how many. _from is as for job_open_v1.
CREATE FUNCTION tenure.job_end_pauses_v1(
    _namespace text, _open text[], _limit integer, _now bigint, _from bigint[] DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _moved integer;
BEGIN
    -- index: job_pkey, job_ready
    UPDATE tenure.job j SET since = NULL
    WHERE j.namespace = _namespace AND j.id = ANY (ARRAY(
        SELECT found.id
        FROM generate_series(0, cardinality(_open) * 10 - 1) AS step (n)
        CROSS JOIN LATERAL (
            SELECT l.id FROM tenure.job l
            WHERE l.namespace || '' = _namespace AND l.queue = _open[step.n / 10 + 1]
              AND (l.since IS NOT NULL)::integer = 1 AND l.priority = step.n % 10
              AND l.state = 'waiting' AND l.due / 1000 <= _now / 1000 AND l.due <= _now
              AND l.due / 1000 >= coalesce(_from[step.n / 10 * 11 + 1], -9223372036854775808)
            ORDER BY l.due / 1000, l.id LIMIT _limit FOR UPDATE SKIP LOCKED
        ) AS found
        LIMIT _limit));
    GET DIAGNOSTICS _moved = ROW_COUNT;
    RETURN _moved;
END
$$;

-- When the next of their jobs is due that wait for their time.
CREATE FUNCTION tenure.job_next_due_v1(_namespace text, _open text[], _now bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Several of each, because within a millisecond they stand in the order of id.
    -- index: job_ready
    RETURN (
        SELECT min(later.due)
        FROM generate_series(0, cardinality(_open) * 10 - 1) AS step (n)
        CROSS JOIN LATERAL (
            SELECT j.due FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.queue = _open[step.n / 10 + 1]
              AND (j.since IS NOT NULL)::integer = 1 AND j.priority = step.n % 10
              AND j.state = 'waiting' AND j.due / 1000 >= _now / 1000 AND j.due > _now
            ORDER BY j.due / 1000, j.id LIMIT 4
        ) AS later);
END
$$;

-- Give a replica due jobs, in order. No row: there is no such replica. Otherwise the last row is no
-- job: it tells the instant of the claim in `started`, when the next job is due in `due`, and in `attempt`
-- how many jobs are due by now that waited for their time.
CREATE FUNCTION tenure.job_claim_v1(
    _namespace text, _replica text, _claim_no bigint, _queues text[], _limit integer, _told bigint
) RETURNS SETOF tenure.job_v1 LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _r tenure.replica;
    _last bigint;
    _now bigint;
    _open text[];
    _later bigint;
    _moved integer := 0;
    _ids text[];
    _end tenure.job_v1;
BEGIN
    -- Keeps recovery out and lets beats pass.
    -- index: replica_pkey
    SELECT * INTO _r FROM tenure.replica r
    WHERE r.namespace = _namespace AND r.id = _replica FOR KEY SHARE;
    IF NOT FOUND OR _r.dead THEN
        RETURN;
    END IF;
    -- Waits for the same claim, should it still be on its way.
    -- index: replica_claim_pkey
    SELECT c.claim_no INTO _last FROM tenure.replica_claim c
    WHERE c.namespace = _namespace AND c.replica = _replica
    ORDER BY c.page DESC LIMIT 1 FOR NO KEY UPDATE;
    _now := tenure.now_v1(_told);
    _end.started := _now;
    IF _claim_no < _last THEN
        RETURN NEXT _end;
        RETURN;
    ELSIF _claim_no = _last THEN
        -- index: job_held
        RETURN QUERY
        SELECT j.id, j.task, j.queue, j.priority, j.state, j.payload, j.tags, j.timeout,
               j.retention, j.created, j.due, j.attempt, j.failures, j.losses, j.fence, j.revision,
               j.replica, j.started, j.progress, j.message, j.checkpoint, j.cancelling, j.reason,
               0::bigint, NULL::bytea, j.error, j.history
        FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.state = 'running'
          AND j.claim_no = _claim_no
        ORDER BY j.id;
        RETURN NEXT _end;
        RETURN;
    END IF;
    IF least(_r.renewed, _now) + _r.ttl <= _now THEN
        RETURN NEXT _end;
        RETURN;
    END IF;
    IF _r.renewed > _now THEN
        -- The clock was set back. index: replica_pkey
        UPDATE tenure.replica r SET renewed = least(r.renewed, _now)
        WHERE r.namespace = _namespace AND r.id = _replica;
    END IF;
    -- index: replica_claim_pkey
    UPDATE tenure.replica_claim c SET claim_no = _claim_no
    WHERE c.namespace = _namespace AND c.replica = _replica AND c.page = _last / 50;
    SELECT o.open, o.later INTO _open, _later FROM tenure.job_open_v1(_namespace, _queues, _now) o;
    IF _later / 1000 <= _now / 1000 THEN
        _moved := tenure.job_end_pauses_v1(_namespace, _open, _limit, _now);
    END IF;
    -- Each step is one queue and one priority, which makes it a look-up also if a million jobs
    -- are due later. The steps come in order and no further than needed, so there is nothing to
    -- sort; a sort would lock the first jobs of every priority.
    -- index: job_ready
    _ids := ARRAY(
        SELECT found.id
        FROM generate_series(0, cardinality(_open) * 10 - 1) AS step (n)
        CROSS JOIN LATERAL (
            SELECT j.id FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.queue = _open[step.n / 10 + 1]
              AND (j.since IS NOT NULL)::integer = 0 AND j.priority = step.n % 10
              AND j.state = 'waiting'
            ORDER BY j.due / 1000, j.id LIMIT _limit FOR UPDATE SKIP LOCKED
        ) AS found
        LIMIT _limit);
    IF cardinality(_ids) = 0 THEN
        -- Nothing happened that a crash could undo, so there is no need to wait for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSE
        -- They come back in the order of `taken`, because that can only be looked up in the table,
        -- one after the other, and not the other way round.
        -- index: job_pkey
        RETURN QUERY
        WITH taken AS MATERIALIZED (
            SELECT _namespace AS namespace, u.id FROM unnest(_ids) AS u (id)
        )
        UPDATE tenure.job j
        SET state = 'running', replica = _replica, claim_no = _claim_no,
            fence = greatest(j.fence + 1, _now), attempt = j.attempt + 1, started = _now,
            deadline = _now + round(j.timeout * 1000000)::bigint, revision = j.revision + 1
        FROM taken t WHERE j.namespace = t.namespace AND j.id = t.id
        RETURNING j.id, j.task, j.queue, j.priority, j.state, j.payload, j.tags, j.timeout,
                  j.retention, j.created, j.due, j.attempt, j.failures, j.losses, j.fence,
                  j.revision, j.replica, j.started, j.progress, j.message, j.checkpoint,
                  j.cancelling, j.reason, 0::bigint, NULL::bytea, j.error, j.history;
    END IF;
    _end.attempt := _moved;
    IF cardinality(_ids) < _limit THEN
        _end.due := CASE WHEN _later / 1000 <= _now / 1000
                         THEN tenure.job_next_due_v1(_namespace, _open, _now) ELSE _later END;
    END IF;
    RETURN NEXT _end;
END
$$;

-- Free the keys of jobs that have finished, or note when they will be free. It waits for nobody: who has
-- locked a key finds out by itself whether the job lives, and pruning the job frees what is left.
CREATE FUNCTION tenure.job_free_keys_v1(
    _namespace text, _ids text[], _keys text[], _now bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Not those that have gone to another job meanwhile.
    -- index: job_key_pkey
    _keys := ARRAY(
        SELECT k.key FROM tenure.job_key k
        WHERE k.namespace = _namespace AND k.key = ANY (_keys) AND k.id = ANY (_ids)
        FOR UPDATE SKIP LOCKED);
    -- index: job_key_pkey, job_done_pkey
    UPDATE tenure.job_key k SET until = d.expires
    FROM tenure.job_done d
    WHERE k.namespace = _namespace AND k.key = ANY (_keys) AND d.namespace = _namespace
      AND d.id = k.id AND d.unique_keep < 0 AND d.expires > k.until;
    -- index: job_key_pkey
    DELETE FROM tenure.job_key k
    WHERE k.namespace = _namespace AND k.key = ANY (_keys) AND k.until <= _now;
    UPDATE tenure.job_key k SET free_at = k.until
    WHERE k.namespace = _namespace AND k.key = ANY (_keys);
END
$$;

-- Move jobs that the caller has locked to the finished ones. This is not the way of `settle`, which
-- does the same in one statement.
CREATE FUNCTION tenure.job_finish_v1(_namespace text, _ids text[], _state text, _now bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _keys text[];
BEGIN
    -- index: job_pkey
    WITH gone AS (
        DELETE FROM tenure.job j WHERE j.namespace = _namespace AND j.id = ANY (_ids) RETURNING j.*
    ), kept AS (
        INSERT INTO tenure.job_done (
            namespace, id, task, queue, priority, state, payload, tags, timeout, retention,
            created, due, attempt, failures, losses, fence, revision, claim_no, started, progress,
            message, checkpoint, reason, error, history, settled_fence, settled_as, unique_key,
            unique_digest, unique_keep, finished, expires
        )
        SELECT g.namespace, g.id, g.task, g.queue, g.priority, _state, g.payload, g.tags, g.timeout,
               g.retention, g.created, g.due, g.attempt, g.failures, g.losses, g.fence,
               g.revision + 1, g.claim_no, g.started, g.progress, g.message, g.checkpoint,
               g.reason, g.error, g.history, g.settled_fence, g.settled_as, g.unique_key,
               g.unique_digest, g.unique_keep, _now, _now + round(g.retention * 1000000)::bigint
        FROM gone g
    )
    SELECT array_agg(g.unique_key) INTO _keys FROM gone g WHERE g.unique_key IS NOT NULL;
    IF _keys IS NOT NULL THEN
        PERFORM tenure.job_free_keys_v1(_namespace, _ids, _keys, _now);
    END IF;
END
$$;
