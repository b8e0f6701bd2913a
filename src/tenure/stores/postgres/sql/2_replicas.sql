-- Format 2, continued: replicas, and what happens to their jobs; see 2_jobs.sql for the rules.

CREATE FUNCTION tenure.replica_join_v1(
    _namespace text, _replica text, _ttl bigint, _meta text, _told bigint
) RETURNS void LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
BEGIN
    LOOP
        -- index: replica_pkey
        UPDATE tenure.replica r
        SET renewed = CASE WHEN r.dead THEN r.renewed ELSE _now END,
            ttl = CASE WHEN r.dead THEN r.ttl ELSE _ttl END
        WHERE r.namespace = _namespace AND r.id = _replica;
        EXIT WHEN FOUND;
        -- If the replica has joined and claimed since, this is a second row. The one with the last claim counts,
        -- and both go together.
        INSERT INTO tenure.replica_claim (namespace, replica) VALUES (_namespace, _replica)
        ON CONFLICT DO NOTHING;
        -- Not there if it was removed meanwhile. One caller at a time goes on.
        -- index: replica_claim_pkey
        PERFORM FROM tenure.replica_claim c
        WHERE c.namespace = _namespace AND c.replica = _replica FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        -- index: replica_pkey
        IF NOT EXISTS (SELECT FROM tenure.replica r
                       WHERE r.namespace = _namespace AND r.id = _replica) THEN
            INSERT INTO tenure.replica (namespace, id, meta, joined, renewed, ttl)
            VALUES (_namespace, _replica, _meta, _now, _now, _ttl);
        END IF;
        EXIT;
    END LOOP;
END
$$;

-- Cut what is left of replicas that were renewed in the future: the clock was set back.
CREATE FUNCTION tenure.replica_clamp_v1(_namespace text, _now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: replica_renewed
    IF EXISTS (SELECT FROM tenure.replica r
               WHERE '' || r.namespace = _namespace AND r.renewed > _now) THEN
        -- Without waiting: who has the row is renewing or removing it.
        -- index: replica_pkey, replica_renewed
        UPDATE tenure.replica r SET renewed = _now
        WHERE r.namespace = _namespace AND r.id = ANY (ARRAY(
            SELECT f.id FROM tenure.replica f
            WHERE '' || f.namespace = _namespace AND f.renewed > _now
            FOR NO KEY UPDATE SKIP LOCKED));
    END IF;
END
$$;

-- Give what a replica runs more time. What is being settled or recovered needs none.
CREATE FUNCTION tenure.job_postpone_v1(_namespace text, _replica text, _ahead bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey, job_held
    UPDATE tenure.job j SET deadline = least(j.deadline, 253402300799999999) + _ahead
    WHERE j.namespace = _namespace AND j.id = ANY (ARRAY(
        SELECT h.id FROM tenure.job h
        WHERE h.namespace || '' = _namespace AND h.replica = _replica AND h.state = 'running'
          AND h.deadline IS NOT NULL
        FOR NO KEY UPDATE SKIP LOCKED));
END
$$;

-- Let pauses begin anew that begin in the future: the clock was set back. Returns the jobs that changed.
CREATE FUNCTION tenure.job_restart_pauses_v1(_namespace text, _now bigint, _most integer)
RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _ids text[];
BEGIN
    -- index: job_since
    _ids := ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE '' || j.namespace = _namespace AND j.since > 0 AND j.since > _now
          AND j.state = 'waiting'
        LIMIT _most FOR UPDATE SKIP LOCKED);
    IF cardinality(_ids) > 0 THEN
        -- index: job_pkey
        UPDATE tenure.job j
        SET due = CASE WHEN j.due BETWEEN -253402300799999999 AND 253402300799999999 AND j.since <= 253402300799999999
                       THEN _now + (j.due - j.since) ELSE j.due END,
            since = _now, revision = tenure.up_v1(j.revision)
        WHERE j.namespace = _namespace AND j.id = ANY (_ids);
    END IF;
    RETURN _ids;
END
$$;

-- Renew records, and tell what their processes should know. The first row also tells which jobs changed.
--
-- _from: nothing had expired some time after this instant, so earlier ends and deadlines are those of rows that
-- are gone; NULL if that is not known. held is NULL unless _count.
CREATE FUNCTION tenure.replica_beat_v1(
    _namespace text, _replicas text[], _ttl bigint, _ahead bigint, _cancels_max integer,
    _restarts_max integer, _from bigint, _count boolean, _told bigint
) RETURNS TABLE (
    known boolean, cancels text[], held bigint, expired boolean, at bigint, changed text[])
LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
    _since bigint := coalesce(_from, -9223372036854775808);
    _alive text[] := '{}';
    _expired boolean;
    _one text;
BEGIN
    -- Everybody renews in this order.
    FOR _one IN SELECT DISTINCT u.id COLLATE "C" AS id FROM unnest(_replicas) AS u (id) ORDER BY id
    LOOP
        -- index: replica_pkey
        UPDATE tenure.replica r SET renewed = _now, ttl = _ttl
        WHERE r.namespace = _namespace AND r.id = _one AND NOT r.dead;
        IF FOUND THEN
            _alive := _alive || _one;
            IF _ahead > 0 THEN
                PERFORM tenure.job_postpone_v1(_namespace, _one, _ahead);
            END IF;
        END IF;
    END LOOP;
    PERFORM tenure.replica_clamp_v1(_namespace, _now);
    changed := tenure.job_restart_pauses_v1(_namespace, _now, _restarts_max);
    -- index: replica_dead, replica_ends, job_deadline
    _expired := EXISTS (SELECT FROM tenure.replica r
                        WHERE r.namespace || '' = _namespace AND r.dead)
        OR EXISTS (SELECT FROM tenure.replica r
                   WHERE r.namespace || '' = _namespace AND r.renewed + r.ttl >= _since
                     AND r.renewed + r.ttl <= _now)
        -- In an order, because planned while the table was empty it would walk over all that run.
        OR (SELECT j.id FROM tenure.job j
            WHERE '' || j.namespace = _namespace AND j.state = 'running'
              AND j.deadline IS NOT NULL AND j.deadline >= _since AND j.deadline <= _now
            ORDER BY j.deadline, j.id LIMIT 1) IS NOT NULL;
    FOREACH _one IN ARRAY _replicas LOOP
        known := _one = ANY (_alive);
        IF known THEN
            -- index: job_cancelling
            cancels := ARRAY(
                SELECT j.id FROM tenure.job j
                WHERE j.namespace || '' = _namespace AND j.replica = _one AND j.cancelling
                ORDER BY j.id LIMIT _cancels_max);
            held := CASE WHEN _count THEN tenure.replica_held_v1(_namespace, _one) END;
        END IF;
        expired := _expired;
        at := _now;
        RETURN NEXT;
        changed := NULL;
    END LOOP;
END
$$;

CREATE FUNCTION tenure.replica_held_v1(_namespace text, _replica text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_held
    RETURN (SELECT count(*) FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.replica = _replica
              AND j.state = 'running');
END
$$;

CREATE FUNCTION tenure.replica_list_v1(_namespace text, _limit integer, _told bigint)
RETURNS TABLE (id text, meta text, joined bigint, ttl bigint, left_over double precision,
               dead boolean, held bigint)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
BEGIN
    -- index: replica_pkey
    RETURN QUERY
    SELECT r.id, r.meta, r.joined, r.ttl, least(r.renewed, _now)::float8 + r.ttl - _now, r.dead,
           tenure.replica_held_v1(_namespace, r.id)
    FROM (SELECT * FROM tenure.replica r WHERE r.namespace = _namespace
          ORDER BY r.joined, r.id LIMIT _limit) AS r
    ORDER BY r.joined, r.id;
END
$$;

-- Take running jobs, which the caller has locked, from their replicas. With _delays a loss is counted:
-- due after the one for its losses, failed if there is none. Without, due at once.
CREATE FUNCTION tenure.job_return_v1(
    _namespace text, _ids text[], _delays bigint[], _now bigint
) RETURNS SETOF tenure.job_returned_v1 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _most integer := cardinality(_delays);
    _cancelled text[];
    _failed text[];
BEGIN
    -- What is to finish is only counted here, and moved below. The line is the one that
    -- core.records.write_history makes.
    -- index: job_pkey
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT _namespace AS namespace, u.id, u.n FROM unnest(_ids) WITH ORDINALITY AS u (id, n)
    ), was AS MATERIALIZED (
        SELECT a.namespace, a.id, a.n, j.replica, CASE
                   WHEN j.cancelling THEN 'cancelled'
                   WHEN _delays IS NOT NULL AND j.losses >= _most THEN 'failed' END AS finish
        FROM asked a JOIN tenure.job j ON j.namespace = a.namespace AND j.id = a.id
    ), moved AS (
        UPDATE tenure.job j
        SET losses = j.losses + (_delays IS NOT NULL)::integer,
            history = CASE WHEN _delays IS NULL THEN j.history ELSE j.history || convert_to(
                '{"attempt":' || j.attempt || ',"replica":' || to_json(j.replica) || ',"started":'
                || j.started || ',"ended":' || _now || E',"outcome":"lost"}\n', 'UTF8') END,
            state = CASE WHEN w.finish IS NULL THEN 'waiting' ELSE j.state END,
            fence = CASE WHEN w.finish IS NULL THEN greatest(j.fence + 1, _now) ELSE j.fence END,
            -- Without a delay it keeps its place in the queue.
            due = CASE WHEN w.finish IS NOT NULL OR coalesce(_delays[j.losses + 1], 0) = 0
                       THEN j.due ELSE _now + _delays[j.losses + 1] END,
            since = CASE WHEN _delays[j.losses + 1] > 0 THEN _now END,
            reason = CASE WHEN w.finish = 'failed' THEN 'lost' ELSE j.reason END,
            error = CASE WHEN w.finish = 'failed' THEN NULL ELSE j.error END,
            replica = '', deadline = NULL, revision = j.revision + 1
        FROM was w WHERE j.namespace = w.namespace AND j.id = w.id
        RETURNING w.n, j.id, w.replica, coalesce(w.finish, 'waiting') AS state, j.losses, j.queue,
                  CASE WHEN w.finish IS NULL THEN j.due - _now END AS due_in
    )
    SELECT m.id, m.replica, m.state, m.losses, m.queue, m.due_in FROM moved m ORDER BY m.n;
    -- Which they were is told by what was written: they run, and nowhere.
    -- index: job_pkey
    SELECT array_agg(j.id) FILTER (WHERE j.cancelling),
           array_agg(j.id) FILTER (WHERE NOT j.cancelling)
    INTO _cancelled, _failed
    FROM tenure.job j
    WHERE j.namespace = _namespace AND j.id = ANY (_ids) AND j.replica = '' AND j.state <> 'waiting';
    IF _cancelled IS NOT NULL THEN
        PERFORM tenure.job_finish_v1(_namespace, _cancelled, 'cancelled', _now);
    END IF;
    IF _failed IS NOT NULL THEN
        PERFORM tenure.job_finish_v1(_namespace, _failed, 'failed', _now);
    END IF;
END
$$;

-- Whether an unfinished job can be counted up.
CREATE FUNCTION tenure.job_is_sound_v1(_j tenure.job) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(
        _j.priority BETWEEN 0 AND 9 AND _j.timeout BETWEEN 0 AND 1e10 IS NOT FALSE
        AND _j.retention BETWEEN 0 AND 1e10 AND _j.retention_failed BETWEEN 0 AND 1e10
        AND _j.created BETWEEN -253402300799999999 AND 253402300799999999
        AND _j.due BETWEEN -253402300799999999 AND 253402300799999999
        AND _j.started BETWEEN -253402300799999999 AND 253402300799999999
        AND _j.attempt BETWEEN 0 AND 2147483646 AND _j.failures BETWEEN 0 AND 2147483646
        AND _j.losses BETWEEN 0 AND 2147483646 AND _j.fence BETWEEN 0 AND 253402300799999999
        AND _j.revision BETWEEN 0 AND 253402300799999999, false)
$$;

-- Set jobs aside that cannot be read: out of everybody's way, kept for a week for a look by hand. Their
-- keys are free as if they had finished. Returns those that were not aside before.
CREATE FUNCTION tenure.job_set_aside_v1(_namespace text, _ids text[], _told bigint)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
    _aside text[];
    _keys text[];
BEGIN
    -- What is not named here is copied as it is, not read.
    -- index: job_pkey
    WITH asked AS MATERIALIZED (
        SELECT j.namespace, j.id FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_ids) AND j.state IS DISTINCT FROM 'aside'
        ORDER BY j.id FOR UPDATE
    ), aside AS (
        UPDATE tenure.job j
        SET state = 'aside', replica = '', deadline = _now + 604800000000, cancelling = false
        FROM asked a WHERE j.namespace = a.namespace AND j.id = a.id
        RETURNING j.id, j.unique_key
    )
    SELECT coalesce(array_agg(a.id), '{}'),
           array_agg(a.unique_key) FILTER (WHERE a.unique_key IS NOT NULL)
    INTO _aside, _keys
    FROM aside a;
    IF _keys IS NOT NULL THEN
        PERFORM tenure.job_free_keys_v1(_namespace, _aside, _keys, _now);
    END IF;
    RETURN _aside;
END
$$;

-- Set running jobs aside, and answer for each as job_return_v1 does: with the state NULL.
CREATE FUNCTION tenure.job_lay_aside_v1(_namespace text, _ids text[], _now bigint)
RETURNS SETOF tenure.job_returned_v1 LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey
    RETURN QUERY
    SELECT j.id, j.replica, NULL::text, 0, j.queue, NULL::bigint FROM tenure.job j
    WHERE j.namespace = _namespace AND j.id = ANY (_ids) ORDER BY j.id;
    PERFORM tenure.job_set_aside_v1(_namespace, _ids, _now);
END
$$;

-- As job_return_v1, but a job whose row cannot be read or written is set aside, and answered with the
-- state NULL; it does not hold up the others.
CREATE FUNCTION tenure.job_return_safely_v1(
    _namespace text, _ids text[], _delays bigint[], _now bigint
) RETURNS SETOF tenure.job_returned_v1 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _half integer;
    _broken text[];
BEGIN
    -- index: job_pkey
    _broken := ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_ids) AND NOT tenure.job_is_sound_v1(j)
        ORDER BY j.id);
    IF cardinality(_broken) > 0 THEN
        RETURN QUERY SELECT * FROM tenure.job_lay_aside_v1(_namespace, _broken, _now);
        _ids := ARRAY(SELECT u.id FROM unnest(_ids) WITH ORDINALITY AS u (id, n)
                      WHERE u.id <> ALL (_broken) ORDER BY u.n);
    END IF;
    IF cardinality(_ids) = 0 THEN
        RETURN;
    END IF;
    _half := cardinality(_ids) / 2;
    BEGIN
        RETURN QUERY SELECT * FROM tenure.job_return_v1(_namespace, _ids, _delays, _now);
        RETURN;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation OR internal_error
              OR data_corrupted THEN
        NULL;  -- all that was done since BEGIN is undone
    END;
    IF _half > 0 THEN
        RETURN QUERY SELECT * FROM tenure.job_return_safely_v1(
            _namespace, _ids[:_half], _delays, _now);
        RETURN QUERY SELECT * FROM tenure.job_return_safely_v1(
            _namespace, _ids[_half + 1:], _delays, _now);
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM tenure.job_lay_aside_v1(_namespace, _ids, _now);
END
$$;

-- Return up to _limit jobs that run on replicas that are not there. No call makes such jobs: what runs
-- stands on a replica's row from the claim on, and goes with it.
CREATE FUNCTION tenure.job_orphans_v1(_namespace text, _limit integer)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- From replica to replica through the index; all in one statement, which sees one state.
    -- index: job_held, replica_pkey
    RETURN ARRAY(
        WITH RECURSIVE holder AS (
            (SELECT j.replica FROM tenure.job j
             WHERE j.namespace || '' = _namespace AND j.state = 'running'
             ORDER BY j.replica LIMIT 1)
            UNION ALL
            SELECT (SELECT j.replica FROM tenure.job j
                    WHERE j.namespace || '' = _namespace AND j.state = 'running'
                      AND j.replica > h.replica
                    ORDER BY j.replica LIMIT 1)
            FROM holder h WHERE h.replica IS NOT NULL
        )
        SELECT o.id FROM holder h
        CROSS JOIN LATERAL (
            SELECT j.id FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.replica = h.replica AND j.state = 'running'
            ORDER BY j.id LIMIT _limit
        ) AS o
        WHERE (SELECT r.id FROM tenure.replica r
               WHERE r.namespace = _namespace AND r.id = h.replica) IS NULL
        LIMIT _limit);
END
$$;

-- Remove a replica that leaves (_started NULL) or is known to be dead, and return its jobs; those in
-- _started count a loss.
CREATE FUNCTION tenure.replica_remove_v1(
    _namespace text, _replica text, _started text[], _delays text[], _told bigint
) RETURNS SETOF tenure.job_returned_v1 LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _now bigint;
    _lost text[];
    _back text[];
BEGIN
    -- Waits for a claim under way, and lets none begin.
    -- index: replica_pkey
    PERFORM FROM tenure.replica r
    WHERE r.namespace = _namespace AND r.id = _replica FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- index: job_held
    SELECT coalesce(array_agg(h.id) FILTER (WHERE h.id = ANY (_started)), '{}'),
           coalesce(array_agg(h.id) FILTER (WHERE (h.id = ANY (_started)) IS NOT TRUE), '{}')
    INTO _lost, _back
    FROM (
        SELECT j.id FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.state = 'running'
        ORDER BY j.id FOR UPDATE SKIP LOCKED
    ) AS h;
    _now := tenure.now_v1(_told);
    RETURN QUERY
    SELECT * FROM (
        SELECT * FROM tenure.job_return_safely_v1(_namespace, _lost, _delays::bigint[], _now)
        UNION ALL
        SELECT * FROM tenure.job_return_safely_v1(_namespace, _back, NULL, _now)
    ) AS returned ORDER BY returned.id COLLATE "C";
    -- A job that somebody holds in a transaction of their own waits for its end, but its neighbours
    -- do not wait for it. Recovery takes it then.
    -- index: job_held
    IF EXISTS (
        SELECT FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.state = 'running'
    ) THEN
        -- index: replica_pkey
        UPDATE tenure.replica r SET dead = true
        WHERE r.namespace = _namespace AND r.id = _replica;
        RETURN;
    END IF;
    -- index: replica_claim_pkey, replica_pkey
    DELETE FROM tenure.replica_claim c WHERE c.namespace = _namespace AND c.replica = _replica;
    DELETE FROM tenure.replica r WHERE r.namespace = _namespace AND r.id = _replica;
END
$$;

-- Take jobs from replicas that have expired, and those past their deadline. It waits for no replica and
-- no job: what others have locked is left for the next time.
CREATE FUNCTION tenure.job_recover_v1(
    _namespace text, _delays text[], _grace bigint, _limit integer, _as_of bigint, _told bigint
) RETURNS SETOF tenure.job_returned_v1 LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
    _by bigint := least(_now, coalesce(_as_of, _now));
    _room integer := _limit;
    _replica text;
    _ids text[];
BEGIN
    PERFORM tenure.replica_clamp_v1(_namespace, _now);
    -- index: replica_dead, replica_ends, replica_pkey
    FOR _replica IN
        SELECT r.id FROM tenure.replica r
        WHERE r.namespace = _namespace AND r.id = ANY (ARRAY(
                SELECT d.id FROM tenure.replica d
                WHERE d.namespace || '' = _namespace AND d.dead
                UNION
                SELECT e.id FROM tenure.replica e
                WHERE e.namespace || '' = _namespace AND e.renewed + e.ttl <= _by))
          AND (r.dead OR r.renewed + r.ttl <= _by)
        ORDER BY r.joined, r.id FOR UPDATE SKIP LOCKED
    LOOP
        EXIT WHEN _room = 0;  -- what was not touched may still revive
        -- index: job_held
        _ids := ARRAY(
            SELECT j.id FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.state = 'running'
            ORDER BY j.id LIMIT _room FOR UPDATE SKIP LOCKED);
        _room := _room - cardinality(_ids);
        RETURN QUERY
        SELECT * FROM tenure.job_return_safely_v1(_namespace, _ids, _delays::bigint[], _now);
        -- index: job_held, replica_claim_pkey, replica_pkey
        IF EXISTS (SELECT FROM tenure.job j
                   WHERE j.namespace || '' = _namespace AND j.replica = _replica
                     AND j.state = 'running') THEN
            UPDATE tenure.replica r SET dead = true
            WHERE r.namespace = _namespace AND r.id = _replica AND NOT r.dead;
        ELSE
            DELETE FROM tenure.replica_claim c
            WHERE c.namespace = _namespace AND c.replica = _replica;
            DELETE FROM tenure.replica r WHERE r.namespace = _namespace AND r.id = _replica;
        END IF;
    END LOOP;
    IF _room > 0 THEN
        -- index: job_deadline
        _ids := ARRAY(
            SELECT j.id FROM tenure.job j
            WHERE '' || j.namespace = _namespace AND j.state = 'running'
              AND j.deadline IS NOT NULL AND j.deadline <= _by - _grace
            ORDER BY j.deadline, j.id LIMIT _room FOR UPDATE SKIP LOCKED);
        _room := _room - cardinality(_ids);
        RETURN QUERY
        SELECT * FROM tenure.job_return_safely_v1(_namespace, _ids, _delays::bigint[], _now);
    END IF;
    IF _room > 0 THEN
        _ids := tenure.job_orphans_v1(_namespace, _room);
        -- Looked at once more under the lock.
        -- index: job_pkey, replica_pkey
        _ids := ARRAY(
            SELECT j.id FROM tenure.job j
            WHERE j.namespace = _namespace AND j.id = ANY (_ids) AND j.state = 'running'
              AND (SELECT r.id FROM tenure.replica r
                   WHERE r.namespace = _namespace AND r.id = j.replica) IS NULL
            ORDER BY j.id FOR UPDATE SKIP LOCKED);
        RETURN QUERY
        SELECT * FROM tenure.job_return_safely_v1(_namespace, _ids, _delays::bigint[], _now);
    END IF;
END
$$;
