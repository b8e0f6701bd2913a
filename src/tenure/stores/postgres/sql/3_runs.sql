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
            retention_failed, options, created, due, attempt, failures, losses, fence, revision, claim_no, started, progress,
            message, checkpoint, reason, error, history, settled_fence, settled_as, unique_key,
            unique_digest, unique_keep, schedule, finished, expires
        )
        SELECT g.namespace, g.id, g.task, g.queue, g.priority, _state, g.payload, g.tags, g.timeout,
               g.retention, g.retention_failed, g.options, g.created, g.due, g.attempt, g.failures, g.losses, g.fence,
               tenure.up_v1(g.revision), g.claim_no, g.started, g.progress, g.message, g.checkpoint,
               g.reason, g.error, g.history, g.settled_fence, g.settled_as, g.unique_key,
               g.unique_digest, g.unique_keep, g.schedule, _now,
               _now + tenure.retention_v1(_state, g.retention, g.retention_failed)
        FROM gone g
    )
    SELECT array_agg(g.unique_key) INTO _keys FROM gone g WHERE g.unique_key IS NOT NULL;
    IF _keys IS NOT NULL THEN
        PERFORM tenure.job_free_keys_v1(_namespace, _ids, _keys, _now);
    END IF;
END
$$;

-- Return up to _most unfinished runs of a schedule by id, on one replica or ('') anywhere.
CREATE FUNCTION tenure.job_runs_v1(_namespace text, _schedule text, _replica text, _most bigint)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Up to the replica, or to a text that is longer than any id, and of the largest character there is.
    -- index: job_run
    RETURN ARRAY(SELECT r.id FROM (
        SELECT j.id FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.schedule = _schedule
          AND j.schedule <> '' AND j.state <> 'aside' AND j.replica >= _replica
          AND j.replica <= CASE _replica WHEN '' THEN repeat(U&'\+10FFFF', 201) ELSE _replica END
        LIMIT _most) AS r ORDER BY r.id);
END
$$;

-- Look for the first of some rooms for runs of a schedule that is full, and answer for it; NULL if none is.
CREATE FUNCTION tenure.job_rooms_v1(
    _namespace text, _schedule text, _rooms jsonb, _blocking_max integer
) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _most bigint;
    _replica text;
    _is_refused boolean;
    _runs text[];
BEGIN
    FOR _n IN 0 .. jsonb_array_length(_rooms) - 1 LOOP
        _most := _rooms->_n->>0;
        _replica := _rooms->_n->>1;
        _is_refused := _rooms->_n->>2 IS NULL;
        -- By a statement of its own, after the lock: so it counts all runs that were made before. One look
        -- both counts and names them: some may end before another one.
        _runs := tenure.job_runs_v1(_namespace, _schedule, _replica,
                                    CASE WHEN _is_refused THEN greatest(_most, _blocking_max) ELSE _most END);
        CONTINUE WHEN cardinality(_runs) < _most;
        RETURN CASE WHEN _is_refused
            THEN jsonb_build_object('outcome', 'full', 'room', _n, 'blocking', _runs[:_blocking_max])
            ELSE jsonb_build_object('outcome', 'instead', 'room', _n) END;
    END LOOP;
    RETURN NULL;
END
$$;

-- Answer why no run may start on a replica: it is gone or has expired. NULL if it may.
CREATE FUNCTION tenure.replica_unfit_v1(_namespace text, _replica text, _now bigint)
RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _r tenure.replica;
BEGIN
    -- Keeps recovery out and lets beats pass.
    -- index: replica_pkey
    SELECT * INTO _r FROM tenure.replica r
    WHERE r.namespace = _namespace AND r.id = _replica FOR KEY SHARE;
    IF NOT FOUND OR _r.dead THEN
        RETURN '{"outcome": "gone"}';
    END IF;
    IF _r.renewed > _now THEN
        -- The clock was set back.
        PERFORM tenure.replica_clamp_v1(_namespace, _now);
    END IF;
    RETURN CASE WHEN least(_r.renewed, _now)::float8 + _r.ttl <= _now
        THEN '{"outcome": "expired"}'::jsonb END;
END
$$;

-- Store the run of a commit, if it makes one: running where it was born, under this fence, or waiting. Returns
-- its fence.
CREATE FUNCTION tenure.job_bear_v1(_namespace text, _c jsonb, _run jsonb, _fence bigint, _now bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE STRICT AS $$
DECLARE
    -- As job_rows.py sends it.
    _r tenure.job := jsonb_populate_record(NULL::tenure.job, jsonb_build_object(
        'task', _run->0, 'queue', _run->1, 'priority', _run->2, 'retention', _run->4, 'retention_failed', _run->5,
        'options', _run->6, 'timeout', _run->7, 'tags', coalesce(_run->8, '[]')));
    _payload bytea := decode(_run->>3, 'base64');
    _runs boolean := _c->>'born_on' <> '';
BEGIN
    INSERT INTO tenure.job (
        namespace, id, task, queue, priority, payload, tags, timeout, retention, retention_failed,
        options, created, due, state, attempt, fence, revision, replica, started, deadline, schedule
    ) VALUES (
        _namespace, _c->>'id', _r.task, _r.queue, _r.priority, _payload, _r.tags, _r.timeout, _r.retention,
        _r.retention_failed, _r.options, _now,
        CASE WHEN _runs THEN (_c->>'not_before')::bigint ELSE _now END,
        CASE WHEN _runs THEN 'running' ELSE 'waiting' END, _runs::integer,
        CASE WHEN _runs THEN _fence ELSE 0 END, 1 + _runs::integer, _c->>'born_on',
        CASE WHEN _runs THEN _now ELSE 0 END,
        CASE WHEN _runs THEN _now + tenure.span_v1(_r.timeout) END, _c->>'name'
    );
    IF cardinality(_r.tags) > 0 THEN
        INSERT INTO tenure.job_tag (namespace, tag, id)
        SELECT DISTINCT _namespace, t.tag, _c->>'id' FROM unnest(_r.tags) AS t (tag);
    END IF;
    RETURN CASE WHEN _runs THEN _fence ELSE 0 END;
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
               NULL::bytea, NULL::bytea, j.history, j.schedule, j.retention_failed,
               j.options)::tenure.job_v2
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
