-- Cancels, requeues, deletes and prunes jobs, and pauses queues; see jobs.sql for the rules.

-- Cancel: c cancelled, r requested, f finished, - no such job. Also returns which jobs changed, and which
-- replicas run the requested ones.
CREATE FUNCTION tenure.job_cancel(
    _namespace text, _ids text[], _reason text, _test_now bigint,
    OUT answers text, OUT changed text[], OUT replicas text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _asked record;
    _j record;
    _letter text;
BEGIN
    answers := repeat('-', cardinality(_ids));
    changed := '{}';
    replicas := '{}';
    FOR _asked IN
        SELECT u.* FROM unnest(_ids) WITH ORDINALITY AS u (id, n) ORDER BY u.id COLLATE "C", u.n
    LOOP
        -- index: job_pkey
        SELECT j.state, j.replica, j.cancelling, j.fence INTO _j FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = _asked.id FOR UPDATE;
        IF NOT FOUND THEN
            -- In this order, because the job may have finished while this waited for its row.
            -- index: job_done_pkey
            _letter := CASE WHEN EXISTS (
                SELECT FROM tenure.job_done d WHERE d.namespace = _namespace AND d.id = _asked.id
            ) THEN 'f' ELSE '-' END;
        ELSIF _j.state = 'running' THEN
            _letter := 'r';
            replicas := replicas || _j.replica;
            IF NOT _j.cancelling THEN
                -- index: job_pkey
                UPDATE tenure.job j
                SET cancelling = true, reason = _reason, revision = tenure.up(j.revision)
                WHERE j.namespace = _namespace AND j.id = _asked.id;
                changed := changed || _asked.id;
            END IF;
        ELSIF _j.state = 'waiting' THEN
            _letter := 'c';
            PERFORM tenure.job_finish(
                _namespace, ARRAY[_asked.id], ARRAY[_j.fence::text], '{4}', '{NULL}', '{NULL}',
                ARRAY[_reason], '{NULL}', '{}', false, tenure.now(_test_now));
            changed := changed || _asked.id;
        ELSE
            _letter := '-';
        END IF;
        answers := overlay(answers PLACING _letter FROM _asked.n::integer);
    END LOOP;
END
$$;

-- Decide whether a job may wait again, and take its key: r requeued, u unfinished, x conflict, n refused (a
-- run of a schedule), - no such job. The caller has locked the keys in _locked, and the rows of job_done;
-- jobs in _moving are about to wait.
CREATE FUNCTION tenure.job_may_requeue(
    _namespace text, _id text, _locked text[], _moving text[], _now bigint
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _d record;
    _k tenure.job_key;
BEGIN
    -- index: job_done_pkey
    SELECT d.unique_key, d.unique_digest, d.unique_keep, d.schedule INTO _d FROM tenure.job_done d
    WHERE d.namespace = _namespace AND d.id = _id;
    IF NOT FOUND THEN
        -- index: job_pkey
        RETURN CASE WHEN EXISTS (
            SELECT FROM tenure.job j WHERE j.namespace = _namespace AND j.id = _id
        ) THEN 'u' ELSE '-' END;
    END IF;
    IF _d.schedule <> '' THEN
        RETURN 'n';
    END IF;
    IF _d.unique_key IS NULL THEN
        RETURN 'r';
    END IF;
    IF _d.unique_key <> ALL (_locked) THEN
        RETURN 'u';  -- it had finished when the keys were read
    END IF;
    -- index: job_key_pkey
    SELECT * INTO _k FROM tenure.job_key k
    WHERE k.namespace = _namespace AND k.key = _d.unique_key;
    IF _k.id <> _id AND (_k.id = ANY (_moving) OR tenure.job_key_is_taken(_k, _now)) THEN
        RETURN 'x';
    END IF;
    -- index: job_key_pkey
    UPDATE tenure.job_key k
    SET id = _id, digest = _d.unique_digest, free_at = NULL,
        until = _now + least(abs(greatest(_d.unique_keep, -10000000000000000)), 10000000000000000)
    WHERE k.namespace = _namespace AND k.key = _d.unique_key;
    RETURN 'r';
END
$$;

-- Make finished jobs wait again; see job_may_requeue for the answers.
CREATE FUNCTION tenure.job_requeue(
    _namespace text, _ids text[], _test_now bigint, OUT answers text, OUT queues text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint;
    _id text;
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
    PERFORM tenure.job_lock_keys(_namespace, _keys, NULL);
    -- index: job_done_pkey
    PERFORM FROM tenure.job_done d
    WHERE d.namespace = _namespace AND d.id = ANY (_ids) ORDER BY d.id FOR UPDATE;
    _now := tenure.now(_test_now);
    answers := '';
    FOREACH _id IN ARRAY _ids LOOP
        _letter := CASE WHEN _id = ANY (_moving) THEN 'u'
                        ELSE tenure.job_may_requeue(
                            _namespace, _id, _keys, _moving, _now) END;
        IF _letter = 'r' THEN
            _moving := _moving || _id;
        END IF;
        answers := answers || _letter;
    END LOOP;
    -- In the order in which inserts add ids, because one of these may be repeated concurrently.
    -- index: job_done_pkey
    WITH gone AS (
        DELETE FROM tenure.job_done d
        WHERE d.namespace = _namespace AND d.id = ANY (_moving) RETURNING d.*
    ), back AS (
        INSERT INTO tenure.job (
            namespace, id, task, queue, priority, payload, tags, timeout, retention,
            retention_failed, options, created, due, attempt, fence, revision, claim_no, started,
            checkpoint, history, settled_fence, settled_as, unique_key, unique_digest, unique_keep
        )
        SELECT g.namespace, g.id, g.task, g.queue, g.priority, g.payload, g.tags, g.timeout,
               g.retention, g.retention_failed, g.options, g.created, _now, g.attempt,
               greatest(tenure.up(g.fence), _now), tenure.up(g.revision), g.claim_no, g.started,
               g.checkpoint, g.history, g.settled_fence, g.settled_as, g.unique_key,
               g.unique_digest, g.unique_keep
        FROM gone g ORDER BY g.id
    )
    SELECT coalesce(array_agg(DISTINCT g.queue), '{}') INTO queues FROM gone g;
END
$$;

-- Pause a queue for _time, or (NULL) until it is resumed; 0 ends a pause.
CREATE FUNCTION tenure.queue_pause(
    _namespace text, _queue text, _length bigint, _reason text, _test_now bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _length = 0 THEN
        -- index: queue_pause_pkey
        DELETE FROM tenure.queue_pause p WHERE p.namespace = _namespace AND p.queue = _queue;
    ELSE
        INSERT INTO tenure.queue_pause (namespace, queue, until, reason)
        VALUES (_namespace, _queue, tenure.now(_test_now) + _length, _reason)
        ON CONFLICT (namespace, queue)
        DO UPDATE SET until = excluded.until, reason = excluded.reason;
    END IF;
END
$$;

-- Delete jobs that the caller has locked, with their tags. Returns their unique keys.
CREATE FUNCTION tenure.job_remove(_namespace text, _ids text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _keys text[];
BEGIN
    -- index: job_pkey, job_done_pkey, job_tag_id
    WITH unfinished AS (
        DELETE FROM tenure.job j WHERE j.namespace = _namespace AND j.id = ANY (_ids)
        RETURNING j.namespace, j.id, j.tags, j.unique_key
    ), finished AS (
        DELETE FROM tenure.job_done d WHERE d.namespace = _namespace AND d.id = ANY (_ids)
        RETURNING d.namespace, d.id, d.tags, d.unique_key
    ), gone AS MATERIALIZED (
        SELECT * FROM unfinished UNION ALL SELECT * FROM finished
    ), tags AS MATERIALIZED (
        SELECT DISTINCT g.namespace, t.tag, g.id FROM gone g CROSS JOIN unnest(g.tags) AS t (tag)
    ), untagged AS (
        DELETE FROM tenure.job_tag b USING tags t
        WHERE b.namespace = t.namespace AND b.tag = t.tag AND b.id = t.id
    )
    SELECT array_agg(g.unique_key) FILTER (WHERE g.unique_key IS NOT NULL) INTO _keys FROM gone g;
    RETURN _keys;
END
$$;

-- Delete jobs that do not run, and those of _damaged, which the caller has found to be unreadable. A claim
-- that comes first keeps its job: the condition is checked again once the row is locked. Their tags go too,
-- and their unique keys are free at once. Returns the ids.
CREATE FUNCTION tenure.job_delete(_namespace text, _ids text[], _damaged text[])
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _gone text[];
    _keys text[];
BEGIN
    -- A job never changes its key, so these can be read before anything is locked.
    -- index: job_pkey, job_done_pkey
    _keys := ARRAY(
        SELECT j.unique_key FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_ids) AND j.unique_key IS NOT NULL
        UNION
        SELECT d.unique_key FROM tenure.job_done d
        WHERE d.namespace = _namespace AND d.id = ANY (_ids) AND d.unique_key IS NOT NULL);
    -- index: job_key_pkey
    PERFORM FROM tenure.job_key k
    WHERE k.namespace = _namespace AND k.key = ANY (_keys) ORDER BY k.key FOR UPDATE;
    -- index: job_done_pkey
    _gone := ARRAY(
        SELECT d.id FROM tenure.job_done d
        WHERE d.namespace = _namespace AND d.id = ANY (_ids) ORDER BY d.id FOR UPDATE);
    -- index: job_pkey
    _gone := _gone || ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_ids)
          AND (j.state <> 'running' OR j.id = ANY (_damaged))
        ORDER BY j.id FOR UPDATE);
    _keys := tenure.job_remove(_namespace, _gone);
    -- Not those that have gone to another job meanwhile.
    -- index: job_key_pkey
    DELETE FROM tenure.job_key k
    WHERE k.namespace = _namespace AND k.key = ANY (_keys) AND k.id = ANY (_gone);
    RETURN _gone;
END
$$;

-- Remove finished jobs whose retention is over, and unique keys that are free. Returns how many jobs.
CREATE FUNCTION tenure.job_prune(_namespace text, _limit integer, _test_now bigint)
RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
    _gone text[];
    _aside text[];
    _keys text[];
BEGIN
    -- index: job_done_expires
    _gone := ARRAY(
        SELECT d.id FROM tenure.job_done d
        WHERE d.namespace || '' = _namespace AND d.expires <= _now
        ORDER BY d.expires, d.id LIMIT _limit FOR UPDATE SKIP LOCKED);
    -- index: job_aside
    _aside := ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.state <> 'waiting' AND j.state <> 'running'
          AND j.deadline <= _now
        ORDER BY j.deadline, j.id LIMIT _limit FOR UPDATE SKIP LOCKED);
    IF _gone <> '{}' OR _aside <> '{}' THEN
        _keys := tenure.job_remove(_namespace, _gone || _aside);
        IF _keys IS NOT NULL THEN
            PERFORM tenure.job_free_keys(_namespace, _gone, _keys, _now);
        END IF;
    END IF;
    -- A row in an unknown state is set aside for a week, too. It blocks no other job.
    -- index: job_aside
    PERFORM tenure.job_set_aside(_namespace, ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.state <> 'waiting' AND j.state <> 'running'
          AND j.deadline IS NULL
        LIMIT _limit), _test_now);
    -- index: job_key_free, job_key_pkey
    DELETE FROM tenure.job_key k
    WHERE k.namespace = _namespace AND k.key = ANY (ARRAY(
        SELECT f.key FROM tenure.job_key f
        WHERE f.namespace || '' = _namespace AND f.free_at IS NOT NULL AND f.free_at <= _now
        ORDER BY f.free_at LIMIT _limit FOR UPDATE SKIP LOCKED));
    RETURN cardinality(_gone);
END
$$;
