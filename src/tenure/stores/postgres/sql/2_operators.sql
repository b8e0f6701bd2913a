-- Format 2, continued: what people and dashboards do with jobs; see 2_jobs.sql for the rules.

-- Cancel: c cancelled, r requested, f finished, - no such job. Also says which jobs changed, and
-- which replicas run those requested.
CREATE FUNCTION tenure.job_cancel_v1(
    _namespace text, _ids text[], _reason text, _told bigint,
    OUT answers text, OUT changed text[], OUT replicas text[]
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = 2000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _one record;
    _j record;
    _letter text;
BEGIN
    answers := repeat('-', cardinality(_ids));
    changed := '{}';
    replicas := '{}';
    FOR _one IN
        SELECT u.* FROM unnest(_ids) WITH ORDINALITY AS u (id, n) ORDER BY u.id COLLATE "C", u.n
    LOOP
        -- index: job_pkey
        SELECT j.state, j.replica, j.cancelling INTO _j FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = _one.id FOR UPDATE;
        IF NOT FOUND THEN
            -- In this order: it may have finished while this waited for its row.
            -- index: job_done_pkey
            _letter := CASE WHEN EXISTS (
                SELECT FROM tenure.job_done d WHERE d.namespace = _namespace AND d.id = _one.id
            ) THEN 'f' ELSE '-' END;
        ELSIF _j.state = 'running' THEN
            _letter := 'r';
            replicas := replicas || _j.replica;
            IF NOT _j.cancelling THEN
                -- index: job_pkey
                UPDATE tenure.job j
                SET cancelling = true, reason = _reason, revision = tenure.up_v1(j.revision)
                WHERE j.namespace = _namespace AND j.id = _one.id;
                changed := changed || _one.id;
            END IF;
        ELSIF _j.state = 'waiting' THEN
            _letter := 'c';
            -- index: job_pkey
            UPDATE tenure.job j SET reason = _reason
            WHERE j.namespace = _namespace AND j.id = _one.id;
            PERFORM tenure.job_finish_v1(
                _namespace, ARRAY[_one.id], 'cancelled', tenure.now_v1(_told));
            changed := changed || _one.id;
        ELSE
            _letter := '-';
        END IF;
        answers := overlay(answers PLACING _letter FROM _one.n::integer);
    END LOOP;
END
$$;

-- Decide whether a job may wait again, and take its key: r requeued, u unfinished, x conflict, - no such
-- job. The caller has locked the keys named in _locked, and the rows of job_done; jobs in _moving are
-- about to wait.
CREATE FUNCTION tenure.job_may_requeue_v1(
    _namespace text, _id text, _locked text[], _moving text[], _now bigint
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _d record;
    _k tenure.job_key;
BEGIN
    -- index: job_done_pkey
    SELECT d.unique_key, d.unique_digest, d.unique_keep INTO _d FROM tenure.job_done d
    WHERE d.namespace = _namespace AND d.id = _id;
    IF NOT FOUND THEN
        -- index: job_pkey
        RETURN CASE WHEN EXISTS (
            SELECT FROM tenure.job j WHERE j.namespace = _namespace AND j.id = _id
        ) THEN 'u' ELSE '-' END;
    END IF;
    IF _d.unique_key IS NULL THEN
        RETURN 'r';
    END IF;
    IF _d.unique_key <> ALL (_locked) THEN
        RETURN 'u';  -- it was, when the keys were read
    END IF;
    -- index: job_key_pkey
    SELECT * INTO _k FROM tenure.job_key k
    WHERE k.namespace = _namespace AND k.key = _d.unique_key;
    IF _k.id <> _id AND (_k.id = ANY (_moving) OR tenure.job_key_is_taken_v1(_k, _now)) THEN
        RETURN 'x';
    END IF;
    -- index: job_key_pkey
    UPDATE tenure.job_key k
    SET id = _id, digest = _d.unique_digest, until = _now + abs(_d.unique_keep), free_at = NULL
    WHERE k.namespace = _namespace AND k.key = _d.unique_key;
    RETURN 'r';
END
$$;

-- Make finished jobs wait again; see job_may_requeue_v1 for the answers.
CREATE FUNCTION tenure.job_requeue_v1(
    _namespace text, _ids text[], _told bigint, OUT answers text, OUT queues text[]
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = 2000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _now bigint;
    _id text;
    _key text;
    _keys text[];
    _moving text[] := '{}';
    _letter text;
BEGIN
    -- A job never changes its key, so these can be read before anything is locked.
    -- index: job_done_pkey
    _keys := ARRAY(
        SELECT DISTINCT d.unique_key FROM tenure.job_done d
        WHERE d.namespace = _namespace AND d.id = ANY (_ids) AND d.unique_key IS NOT NULL
        ORDER BY d.unique_key);
    FOREACH _key IN ARRAY _keys LOOP
        PERFORM tenure.job_lock_key_v1(_namespace, _key);
    END LOOP;
    -- index: job_done_pkey
    PERFORM FROM tenure.job_done d
    WHERE d.namespace = _namespace AND d.id = ANY (_ids) ORDER BY d.id FOR UPDATE;
    _now := tenure.now_v1(_told);
    answers := '';
    FOREACH _id IN ARRAY _ids LOOP
        _letter := CASE WHEN _id = ANY (_moving) THEN 'u'
                        ELSE tenure.job_may_requeue_v1(
                            _namespace, _id, _keys, _moving, _now) END;
        IF _letter = 'r' THEN
            _moving := _moving || _id;
        END IF;
        answers := answers || _letter;
    END LOOP;
    -- In the order in which inserts add ids: one of these may be repeated right now.
    -- index: job_done_pkey
    WITH gone AS (
        DELETE FROM tenure.job_done d
        WHERE d.namespace = _namespace AND d.id = ANY (_moving) RETURNING d.*
    ), back AS (
        INSERT INTO tenure.job (
            namespace, id, task, queue, priority, payload, tags, timeout, retention,
            retention_failed, options, created, due, attempt, fence, revision, claim_no, started, checkpoint, history, settled_fence,
            settled_as, unique_key, unique_digest, unique_keep
        )
        SELECT g.namespace, g.id, g.task, g.queue, g.priority, g.payload, g.tags, g.timeout,
               g.retention, g.retention_failed, g.options, g.created, _now, g.attempt, greatest(tenure.up_v1(g.fence), _now),
               tenure.up_v1(g.revision), g.claim_no, g.started, g.checkpoint, g.history, g.settled_fence,
               g.settled_as, g.unique_key, g.unique_digest, g.unique_keep
        FROM gone g ORDER BY g.id
    )
    SELECT coalesce(array_agg(DISTINCT g.queue), '{}') INTO queues FROM gone g;
END
$$;

-- Return jobs by id, in any order.
CREATE FUNCTION tenure.job_get_v1(_namespace text, _ids text[])
RETURNS SETOF tenure.job_v1 LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    -- index: job_pkey, job_done_pkey
    RETURN QUERY
    SELECT r.id, r.task, r.queue, r.priority, r.state, r.payload, r.tags, r.timeout, r.retention,
           r.created, r.due, r.attempt, r.failures, r.losses, r.fence, r.revision, r.replica,
           r.started, r.progress, r.message, r.checkpoint, r.cancelling, r.reason, r.finished,
           r.result, r.error, r.history
    FROM tenure.job_record r WHERE r.namespace = _namespace AND r.id = ANY (_ids);
END
$$;

-- Return up to _most ids below _before, newest first, among which all that fit must be. Each way leads
-- through one index in the order of id; the narrowest that applies is taken.
CREATE FUNCTION tenure.job_candidates_v1(
    _namespace text, _state text, _tag text, _replica text, _most integer, _before text,
    OUT ids text[]
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _replica <> '' THEN
        -- index: job_held
        ids := ARRAY(
            SELECT j.id FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.state = 'running'
              AND j.id < _before
            ORDER BY j.id DESC LIMIT _most);
    ELSIF _state = 'running' THEN
        -- What runs does so on one of the replicas. index: replica_pkey, job_held
        ids := ARRAY(
            SELECT h.id FROM tenure.replica r
            CROSS JOIN LATERAL (
                SELECT j.id FROM tenure.job j
                WHERE j.namespace || '' = _namespace AND j.replica = r.id AND j.state = 'running'
                  AND j.id < _before
                ORDER BY j.id DESC LIMIT _most
            ) AS h
            WHERE r.namespace = _namespace
            ORDER BY h.id DESC LIMIT _most);
    ELSIF _tag IS NOT NULL THEN
        -- index: job_tag_id
        ids := ARRAY(
            SELECT t.id FROM tenure.job_tag t
            WHERE t.namespace = _namespace AND t.tag = _tag AND t.id < _before
            ORDER BY t.id DESC LIMIT _most);
    ELSIF _state IN ('failed', 'cancelled') THEN
        -- index: job_done_unsuccessful
        ids := ARRAY(
            SELECT d.id FROM tenure.job_done d
            WHERE '' || d.namespace = _namespace AND d.state = _state AND d.state <> 'succeeded'
              AND d.id < _before
            ORDER BY d.id DESC LIMIT _most);
    ELSE
        -- index: job_pkey, job_done_pkey
        ids := ARRAY(
            SELECT both_of.id FROM (
                (SELECT j.id FROM tenure.job j
                 WHERE j.namespace = _namespace AND j.id < _before
                   AND coalesce(_state, 'waiting') = 'waiting'
                 ORDER BY j.id DESC LIMIT _most)
                UNION ALL
                (SELECT d.id FROM tenure.job_done d
                 WHERE d.namespace = _namespace AND d.id < _before
                   AND coalesce(_state, 'succeeded') = 'succeeded'
                 ORDER BY d.id DESC LIMIT _most)
            ) AS both_of
            ORDER BY both_of.id DESC LIMIT _most);
    END IF;
END
$$;

-- Return jobs that fit, newest first. If there may be more, a last row has only an id: where to go on.
CREATE FUNCTION tenure.job_find_v1(
    _namespace text, _state text, _queue text, _task text, _tag text, _replica text,
    _limit integer, _before text
) RETURNS SETOF tenure.job_v1 LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    -- As many are looked at; the bound that keeps a rare combination from costing the whole table.
    _most integer := greatest(5000, _limit + 1);
    _ids text[];
    _one tenure.job_v1;
    _found integer := 0;
    _end tenure.job_v1;
BEGIN
    SELECT c.ids INTO _ids FROM tenure.job_candidates_v1(
        _namespace, _state, _tag, _replica, _most,
        -- Without a bound: longer than any id, and of the largest character there is.
        coalesce(_before, repeat(U&'\+10FFFF', 201))) c;
    -- index: job_pkey, job_done_pkey
    FOR _one IN
        SELECT r.id, r.task, r.queue, r.priority, r.state, r.payload, r.tags, r.timeout,
               r.retention, r.created, r.due, r.attempt, r.failures, r.losses, r.fence, r.revision,
               r.replica, r.started, r.progress, r.message, r.checkpoint, r.cancelling, r.reason,
               r.finished, r.result, r.error, r.history
        FROM unnest(_ids) AS u (id)
        CROSS JOIN LATERAL (
            SELECT * FROM tenure.job_record r WHERE r.namespace = _namespace AND r.id = u.id
            OFFSET 0
        ) AS r
        WHERE (_state IS NULL OR r.state = _state) AND (_queue IS NULL OR r.queue = _queue)
          AND (_task IS NULL OR r.task = _task) AND (_replica IS NULL OR r.replica = _replica)
          AND (_tag IS NULL OR _tag = ANY (r.tags))
        LIMIT _limit + 1
    LOOP
        _found := _found + 1;
        EXIT WHEN _found > _limit;
        RETURN NEXT _one;
        _end.id := _one.id;
    END LOOP;
    IF _found <= _limit THEN
        _end.id := CASE WHEN cardinality(_ids) = _most THEN _ids[_most] END;
    END IF;
    IF _end.id IS NOT NULL THEN
        RETURN NEXT _end;
    END IF;
END
$$;

-- How each queue stands that has unfinished jobs or is paused. Counts stop at _most.
CREATE FUNCTION tenure.job_counts_v1(_namespace text, _most integer, _told bigint)
RETURNS TABLE (queue text, waiting bigint, running bigint, oldest bigint, paused boolean,
               paused_for bigint)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
    _next text := '';
    _busy text[];
    _numbers bigint[];
BEGIN
    -- What runs is as much as all workers can, so it is simply counted.
    -- index: replica_pkey, job_held
    SELECT array_agg(b.queue), array_agg(b.number) INTO _busy, _numbers
    FROM (
        SELECT h.queue, count(*) AS number FROM tenure.replica r
        CROSS JOIN LATERAL (
            SELECT j.queue FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.replica = r.id AND j.state = 'running'
            LIMIT _most
        ) AS h
        WHERE r.namespace = _namespace GROUP BY h.queue
    ) AS b;
    LOOP
        -- From name to name through the indexes, however many jobs each has.
        -- index: job_ready, queue_pause_pkey
        SELECT min(f.queue) INTO _next FROM (
            (SELECT j.queue FROM tenure.job j
             WHERE j.namespace || '' = _namespace AND j.state = 'waiting' AND j.queue > _next
             ORDER BY j.queue LIMIT 1)
            UNION ALL
            (SELECT u.name FROM unnest(_busy) AS u (name) WHERE u.name > _next COLLATE "C")
            UNION ALL
            (SELECT p.queue FROM tenure.queue_pause p
             WHERE p.namespace = _namespace AND p.queue > _next
               AND (p.until IS NULL OR p.until > _now)
             ORDER BY p.queue LIMIT 1)
        ) AS f;
        EXIT WHEN _next IS NULL;
        queue := _next;
        -- index: job_ready
        SELECT count(*) INTO waiting FROM (
            SELECT FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.queue = _next AND j.state = 'waiting'
            LIMIT _most) AS w;
        running := least(_most, coalesce(_numbers[array_position(_busy, _next)], 0));
        -- Several of each, because within a millisecond they stand in the order of id.
        -- index: job_ready
        SELECT CASE WHEN count(*) > 0
                    THEN greatest(0, _now - greatest(min(f.due), -253402300799999999)) END INTO oldest
        FROM generate_series(0, 9) AS p (priority)
        CROSS JOIN LATERAL (
            (SELECT j.due FROM tenure.job j
             WHERE j.namespace || '' = _namespace AND j.queue = _next
               AND (j.since IS NOT NULL)::integer = 0 AND j.priority = p.priority
               AND j.state = 'waiting'
             ORDER BY j.due / 1000, j.id LIMIT 10)
            UNION ALL
            (SELECT j.due FROM tenure.job j
             WHERE j.namespace || '' = _namespace AND j.queue = _next
               AND (j.since IS NOT NULL)::integer = 1 AND j.priority = p.priority
               AND j.state = 'waiting' AND j.due / 1000 <= _now / 1000 AND j.due <= _now
             ORDER BY j.due / 1000, j.id LIMIT 10)
        ) AS f;
        -- index: queue_pause_pkey
        SELECT true, p.until - _now INTO paused, paused_for FROM tenure.queue_pause p
        WHERE p.namespace = _namespace AND p.queue = _next
          AND (p.until IS NULL OR p.until > _now);
        RETURN NEXT;
    END LOOP;
END
$$;

-- Return jobs that nobody can finish, or those of them with these ids: set aside, or on a replica that is
-- not there.
CREATE FUNCTION tenure.job_stranded_v1(
    _namespace text, _ids text[], _limit integer, _told bigint
) RETURNS TABLE (id text, replica text, is_aside boolean, left_over double precision)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
    _orphans text[] := tenure.job_strangers_v1(
        _namespace, CASE WHEN _ids IS NULL THEN _limit ELSE 100000 END);
BEGIN
    -- index: job_aside
    RETURN QUERY
    SELECT j.id, '', true, coalesce(j.deadline::float8 - _now, 0) FROM tenure.job j
    WHERE j.namespace || '' = _namespace AND j.state <> 'waiting' AND j.state <> 'running'
      AND (_ids IS NULL OR j.id = ANY (_ids))
    ORDER BY j.deadline, j.id LIMIT _limit;
    -- index: job_pkey
    RETURN QUERY
    SELECT j.id, j.replica, false, 0::float8 FROM tenure.job j
    WHERE j.namespace = _namespace AND (_ids IS NULL OR j.id = ANY (_ids))
      AND j.id = ANY (_orphans);
END
$$;

-- Let no job of a queue be claimed for so long, or (NULL) for good.
CREATE FUNCTION tenure.queue_pause_v1(_namespace text, _queue text, _length bigint, _told bigint)
RETURNS void LANGUAGE plpgsql VOLATILE SET lock_timeout = 4000 AS $$
BEGIN
    INSERT INTO tenure.queue_pause (namespace, queue, until)
    VALUES (_namespace, _queue, tenure.now_v1(_told) + _length)
    ON CONFLICT (namespace, queue) DO UPDATE SET until = excluded.until;
END
$$;

CREATE FUNCTION tenure.queue_resume_v1(_namespace text, _queue text)
RETURNS void LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    -- index: queue_pause_pkey
    DELETE FROM tenure.queue_pause p WHERE p.namespace = _namespace AND p.queue = _queue;
END
$$;

-- Delete jobs that have finished or were set aside, and those of _damaged, which the caller has found to
-- be unreadable. Their tags go too, and their unique keys are free at once. Returns the ids.
CREATE FUNCTION tenure.job_delete_v1(_namespace text, _ids text[], _damaged text[])
RETURNS text[] LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _gone text[];
    _keys text[];
BEGIN
    -- index: job_pkey, job_done_pkey, job_tag_id
    WITH asked AS MATERIALIZED (
        SELECT j.namespace, j.id FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_ids)
          AND (j.state = 'aside' OR j.id = ANY (_damaged))
        ORDER BY j.id FOR UPDATE
    ), unfinished AS (
        DELETE FROM tenure.job j USING asked a
        WHERE j.namespace = a.namespace AND j.id = a.id
        RETURNING j.namespace, j.id, j.tags, j.unique_key
    ), ended AS MATERIALIZED (
        SELECT d.namespace, d.id FROM tenure.job_done d
        WHERE d.namespace = _namespace AND d.id = ANY (_ids)
        ORDER BY d.id FOR UPDATE
    ), finished AS (
        DELETE FROM tenure.job_done d USING ended e
        WHERE d.namespace = e.namespace AND d.id = e.id
        RETURNING d.namespace, d.id, d.tags, d.unique_key
    ), gone AS MATERIALIZED (
        SELECT * FROM unfinished UNION ALL SELECT * FROM finished
    ), tags AS MATERIALIZED (
        SELECT DISTINCT g.namespace, t.tag, g.id FROM gone g CROSS JOIN unnest(g.tags) AS t (tag)
    ), untagged AS (
        DELETE FROM tenure.job_tag b USING tags t
        WHERE b.namespace = t.namespace AND b.tag = t.tag AND b.id = t.id
    )
    SELECT coalesce(array_agg(g.id), '{}'),
           array_agg(g.unique_key) FILTER (WHERE g.unique_key IS NOT NULL)
    INTO _gone, _keys
    FROM gone g;
    IF _keys IS NOT NULL THEN
        -- Not those that have gone to another job meanwhile.
        -- index: job_key_pkey
        DELETE FROM tenure.job_key k
        WHERE k.namespace = _namespace AND k.key = ANY (_keys) AND k.id = ANY (_gone);
    END IF;
    RETURN _gone;
END
$$;

-- Remove finished jobs whose retention is over, and unique keys that are free.
CREATE FUNCTION tenure.job_prune_v1(_namespace text, _limit integer, _told bigint)
RETURNS integer LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
    _gone text[];
    _keys text[];
BEGIN
    -- index: job_done_expires, job_done_pkey, job_tag_id
    WITH old AS MATERIALIZED (
        SELECT d.namespace, d.id FROM tenure.job_done d
        WHERE d.namespace || '' = _namespace AND d.expires <= _now
        ORDER BY d.expires, d.id LIMIT _limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM tenure.job_done d USING old o
        WHERE d.namespace = o.namespace AND d.id = o.id
        RETURNING d.namespace, d.id, d.tags, d.unique_key
    ), tags AS MATERIALIZED (
        SELECT DISTINCT g.namespace, t.tag, g.id FROM gone g CROSS JOIN unnest(g.tags) AS t (tag)
    ), untagged AS (
        DELETE FROM tenure.job_tag b USING tags t
        WHERE b.namespace = t.namespace AND b.tag = t.tag AND b.id = t.id
    )
    SELECT coalesce(array_agg(g.id), '{}'),
           array_agg(g.unique_key) FILTER (WHERE g.unique_key IS NOT NULL)
    INTO _gone, _keys
    FROM gone g;
    IF _keys IS NOT NULL THEN
        PERFORM tenure.job_free_keys_v1(_namespace, _gone, _keys, _now);
    END IF;
    -- index: job_aside, job_pkey, job_tag_id
    WITH old AS MATERIALIZED (
        SELECT j.namespace, j.id FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.state <> 'waiting' AND j.state <> 'running'
          AND j.deadline <= _now
        ORDER BY j.deadline, j.id LIMIT _limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM tenure.job j USING old o
        WHERE j.namespace = o.namespace AND j.id = o.id
        RETURNING j.namespace, j.id, j.tags
    ), tags AS MATERIALIZED (
        SELECT DISTINCT g.namespace, t.tag, g.id FROM gone g CROSS JOIN unnest(g.tags) AS t (tag)
    )
    DELETE FROM tenure.job_tag b USING tags t
    WHERE b.namespace = t.namespace AND b.tag = t.tag AND b.id = t.id;
    -- What is in no state that there is gets its week, too. It is in nobody's way.
    -- index: job_aside
    PERFORM tenure.job_set_aside_v1(_namespace, ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.state <> 'waiting' AND j.state <> 'running'
          AND j.deadline IS NULL
        LIMIT _limit), _told);
    -- index: job_key_free, job_key_pkey
    DELETE FROM tenure.job_key k
    WHERE k.namespace = _namespace AND k.key = ANY (ARRAY(
        SELECT f.key FROM tenure.job_key f
        WHERE f.namespace || '' = _namespace AND f.free_at IS NOT NULL AND f.free_at <= _now
        ORDER BY f.free_at LIMIT _limit FOR UPDATE SKIP LOCKED));
    RETURN cardinality(_gone);
END
$$;
