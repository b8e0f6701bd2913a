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

-- Return up to _limit jobs that run on replicas that are not there: strangers. No call makes such jobs: what runs
-- stands on a replica's row from the claim on, and goes with it.
CREATE FUNCTION tenure.job_strangers_v1(_namespace text, _limit integer)
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

-- Mark a replica, whose row the caller has locked, as dead, and leave it to _by for a while; without jobs it
-- is removed. Returns up to _limit of the jobs that it holds, and locks them; not those that somebody holds
-- in a transaction of their own, which wait for its end.
CREATE FUNCTION tenure.replica_take_v1(
    _namespace text, _replica text, _by text, _until bigint, _limit integer
) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- index: job_held
    _ids text[] := ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.state = 'running'
        ORDER BY j.id LIMIT _limit FOR UPDATE SKIP LOCKED);
BEGIN
    -- index: job_held, replica_claim_pkey, replica_pkey
    IF _ids <> '{}' OR EXISTS (
        SELECT FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.state = 'running'
    ) THEN
        UPDATE tenure.replica r SET dead = true, taker = _by, taken_until = _until
        WHERE r.namespace = _namespace AND r.id = _replica;
    ELSE
        DELETE FROM tenure.replica_claim c WHERE c.namespace = _namespace AND c.replica = _replica;
        DELETE FROM tenure.replica r WHERE r.namespace = _namespace AND r.id = _replica;
    END IF;
    RETURN _ids;
END
$$;

-- Return the jobs of replicas that have expired and are not left to others, and of those past their
-- deadline. It waits for no replica and no job: what others have locked is left for the next time.
CREATE FUNCTION tenure.job_expired_v1(
    _namespace text, _by text, _reserved bigint, _grace bigint, _limit integer, _as_of bigint,
    _now bigint
) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _until bigint := least(_now, coalesce(_as_of, _now));
    _found text[] := '{}';
    _strangers text[];
    _replica text;
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
                WHERE e.namespace || '' = _namespace AND e.renewed + e.ttl <= _until))
          AND (r.dead OR r.renewed + r.ttl <= _until)
          AND NOT (r.dead AND r.taker <> _by
                   AND r.taken_until > _now AND r.taken_until <= _now + _reserved)
        ORDER BY r.joined, r.id FOR UPDATE SKIP LOCKED
    LOOP
        EXIT WHEN cardinality(_found) = _limit;  -- what was not touched may still revive
        _found := _found || tenure.replica_take_v1(
            _namespace, _replica, _by, _now + _reserved, _limit - cardinality(_found));
    END LOOP;
    -- index: job_deadline
    _found := _found || ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE '' || j.namespace = _namespace AND j.state = 'running'
          AND j.deadline IS NOT NULL AND j.deadline <= _until - _grace AND j.id <> ALL (_found)
        ORDER BY j.deadline, j.id LIMIT _limit - cardinality(_found) FOR UPDATE SKIP LOCKED);
    _strangers := tenure.job_strangers_v1(_namespace, _limit - cardinality(_found));
    -- Looked at once more under the lock.
    -- index: job_pkey, replica_pkey
    RETURN _found || ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace = _namespace AND j.state = 'running' AND j.id <> ALL (_found)
          AND j.id = ANY (_strangers)
          AND (SELECT r.id FROM tenure.replica r
               WHERE r.namespace = _namespace AND r.id = j.replica) IS NULL
        ORDER BY j.id FOR UPDATE SKIP LOCKED);
END
$$;
