-- Format 3, continued: what changes for jobs that are runs of schedules; see 2_jobs.sql for the rules.
--
-- These replace functions of format 2.

-- Move jobs that the caller has locked to the finished ones. This is not the way of `settle`, which
-- does the same in one statement.
CREATE OR REPLACE FUNCTION tenure.job_finish_v1(_namespace text, _ids text[], _state text, _now bigint)
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
            retention_failed, retry, created, due, attempt, failures, losses, fence, revision, claim_no, started, progress,
            message, checkpoint, reason, error, history, settled_fence, settled_as, unique_key,
            unique_digest, unique_keep, schedule, rerun, finished, expires
        )
        SELECT g.namespace, g.id, g.task, g.queue, g.priority, _state, g.payload, g.tags, g.timeout,
               g.retention, g.retention_failed, g.retry, g.created, g.due, g.attempt, g.failures, g.losses, g.fence,
               tenure.up_v1(g.revision), g.claim_no, g.started, g.progress, g.message, g.checkpoint,
               g.reason, g.error, g.history, g.settled_fence, g.settled_as, g.unique_key,
               g.unique_digest, g.unique_keep, g.schedule, g.rerun, _now,
               _now + tenure.retention_v1(_state, g.retention, g.retention_failed)
        FROM gone g
    )
    SELECT array_agg(g.unique_key) INTO _keys FROM gone g WHERE g.unique_key IS NOT NULL;
    IF _keys IS NOT NULL THEN
        PERFORM tenure.job_free_keys_v1(_namespace, _ids, _keys, _now);
    END IF;
END
$$;

-- Decide whether a job may wait again, and take its key: r requeued, u unfinished, x conflict, - no such
-- job. The caller has locked the keys named in _locked, and the rows of job_done; jobs in _moving are
-- about to wait.
CREATE OR REPLACE FUNCTION tenure.job_may_requeue_v1(
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
        RETURN 'x';  -- job_requeue_v2 knows better
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
    SET id = _id, digest = _d.unique_digest, free_at = NULL,
        until = _now + least(abs(greatest(_d.unique_keep, -10000000000000000)), 10000000000000000)
    WHERE k.namespace = _namespace AND k.key = _d.unique_key;
    RETURN 'r';
END
$$;

-- Jobs that run nowhere, or past their deadline, without what is large in them. The first row tells the
-- time alone.
CREATE TYPE tenure.orphan_v1 AS (at bigint, aside text, whose text, job tenure.job_v2);

CREATE FUNCTION tenure.job_read_orphans_v1(_namespace text, _ids text[])
RETURNS SETOF tenure.orphan_v1 LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey
    RETURN QUERY
    SELECT NULL::bigint, NULL::text, NULL::text, (
               j.id, j.task, j.queue, j.priority, j.state, ''::bytea, j.tags, j.timeout, j.retention,
               j.created, j.due, j.attempt, j.failures, j.losses, j.fence, j.revision, j.replica,
               j.started, j.progress, j.message, NULL::bytea, j.cancelling, j.reason, 0::bigint,
               NULL::bytea, NULL::bytea, j.history, j.schedule, j.rerun, j.retention_failed,
               j.retry)::tenure.job_v2
    FROM unnest(_ids) WITH ORDINALITY AS u (id, n)
    CROSS JOIN LATERAL (
        SELECT * FROM tenure.job j WHERE j.namespace = _namespace AND j.id = u.id OFFSET 0
    ) AS j
    ORDER BY u.n;
END
$$;

-- Find up to _limit jobs of one replica, or of all that have expired, and what is past its deadline. What
-- cannot be read is set aside.
CREATE FUNCTION tenure.job_orphans_v1(
    _namespace text, _by text, _reserved bigint, _replica text, _grace bigint, _limit integer,
    _as_of bigint, _told bigint
) RETURNS SETOF tenure.orphan_v1 LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
    _found text[] := '{}';
    _broken text[];
    _id text;
BEGIN
    IF _replica IS NULL THEN
        _found := tenure.job_expired_v1(
            _namespace, _by, _reserved, _grace, _limit, _as_of, _now);
    ELSE
        -- Waits for a claim under way, and lets none begin.
        -- index: replica_pkey
        PERFORM FROM tenure.replica r
        WHERE r.namespace = _namespace AND r.id = _replica FOR UPDATE;
        IF FOUND THEN
            _now := tenure.now_v1(_told);
            _found := tenure.replica_take_v1(_namespace, _replica, _by, _now + _reserved, _limit);
        END IF;
    END IF;
    RETURN NEXT (_now, NULL, NULL, NULL)::tenure.orphan_v1;
    -- index: job_pkey
    _broken := ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_found) AND NOT tenure.job_is_sound_v1(j)
        ORDER BY j.id);
    BEGIN
        RETURN QUERY SELECT * FROM tenure.job_read_orphans_v1(
            _namespace, ARRAY(SELECT u.id FROM unnest(_found) AS u (id) WHERE u.id <> ALL (_broken)));
    EXCEPTION WHEN data_exception OR internal_error OR data_corrupted THEN
        -- All since BEGIN is undone. One of them cannot be read: each is read for itself.
        FOREACH _id IN ARRAY _found LOOP
            CONTINUE WHEN _id = ANY (_broken);
            BEGIN
                RETURN QUERY SELECT * FROM tenure.job_read_orphans_v1(_namespace, ARRAY[_id]);
            EXCEPTION WHEN data_exception OR internal_error OR data_corrupted THEN
                _broken := _broken || _id;
            END;
        END LOOP;
    END;
    IF _broken <> '{}' THEN
        -- index: job_pkey
        RETURN QUERY
        SELECT NULL::bigint, j.id, j.replica, NULL::tenure.job_v2 FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_broken) ORDER BY j.id;
        PERFORM tenure.job_set_aside_v1(_namespace, _broken, _told);
    END IF;
END
$$;
