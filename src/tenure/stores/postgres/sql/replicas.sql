-- Replicas, and jobs that are set aside; see jobs.sql for the rules.

-- Create the record of a replica, unless there is one; renew one that another caller has created meanwhile.
-- Returns false if the record is dead.
CREATE FUNCTION tenure.replica_join(
    _namespace text, _replica text, _ttl bigint, _meta text, _now bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- One caller at a time creates a record, because its key is not unique. A row of replica_claim cannot serve
    -- as the lock: removals wait for it while they have the row of replica locked, which is locked next here.
    PERFORM pg_advisory_xact_lock(hashtextextended('tenure.replica ' || _namespace || ' ' || _replica, 0));
    -- index: replica_pkey
    UPDATE tenure.replica r SET renewed = _now, ttl = _ttl
    WHERE r.namespace = _namespace AND r.id = _replica AND NOT r.dead;
    IF FOUND THEN
        RETURN true;
    END IF;
    -- index: replica_pkey
    IF EXISTS (SELECT FROM tenure.replica r WHERE r.namespace = _namespace AND r.id = _replica) THEN
        RETURN false;
    END IF;
    INSERT INTO tenure.replica (namespace, id, meta, joined, renewed, ttl)
    VALUES (_namespace, _replica, _meta, _now, _now, _ttl);
    -- A row that was left behind may have a last claim. Then this is a second row; the one with the last claim
    -- counts, and both are deleted together.
    INSERT INTO tenure.replica_claim (namespace, replica) VALUES (_namespace, _replica)
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;

-- Shorten the life of replicas that were renewed in the future, because the clock was set back.
CREATE FUNCTION tenure.replica_clamp(_namespace text, _now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: replica_renewed
    IF EXISTS (SELECT FROM tenure.replica r
               WHERE '' || r.namespace = _namespace AND r.renewed > _now) THEN
        -- Without waiting, because a transaction with the lock is renewing or deleting the row.
        -- index: replica_pkey, replica_renewed
        UPDATE tenure.replica r SET renewed = _now
        WHERE r.namespace = _namespace AND r.id = ANY (ARRAY(
            SELECT f.id FROM tenure.replica f
            WHERE '' || f.namespace = _namespace AND f.renewed > _now
            FOR NO KEY UPDATE SKIP LOCKED));
    END IF;
END
$$;

-- Restart each delay that begins in the future, because the clock was set back. Returns the changed jobs.
CREATE FUNCTION tenure.job_restart_pauses(_namespace text, _now bigint, _most integer)
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
            since = _now, revision = tenure.up(j.revision)
        WHERE j.namespace = _namespace AND j.id = ANY (_ids);
    END IF;
    RETURN _ids;
END
$$;

-- Keep the stats of a source for readers, and forget those from before _since.
CREATE FUNCTION tenure.run_stats_leave(
    _namespace text, _source text, _body bytea, _now bigint, _since bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Without waiting, because another worker is forgetting or renewing the row.
    -- index: run_stats_pkey
    DELETE FROM tenure.run_stats s
    WHERE s.namespace = _namespace AND s.source = ANY (ARRAY(
        SELECT f.source FROM tenure.run_stats f
        WHERE f.namespace = _namespace AND f.at <= _since FOR UPDATE SKIP LOCKED));
    INSERT INTO tenure.run_stats (namespace, source, at, body)
    VALUES (_namespace, _source, _now, _body)
    ON CONFLICT (namespace, source) DO UPDATE SET at = excluded.at, body = excluded.body;
END
$$;

-- Return the stats of the last _length, by source.
CREATE FUNCTION tenure.run_stats_read(
    _namespace text, _length bigint, _limit integer, _test_now bigint
) RETURNS TABLE (source text, body bytea) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: run_stats_pkey
    RETURN QUERY
    SELECT s.source, s.body FROM tenure.run_stats s
    WHERE s.namespace = _namespace AND s.at > tenure.now(_test_now) - _length
    ORDER BY s.source LIMIT _limit;
END
$$;

-- Renew records, and return the news for their processes. The first row also has the changed jobs.
--
-- _from: an instant up to which all expired rows are gone, so the search begins there; NULL if that is
-- unknown. held is NULL unless _count. _stats are kept for readers, for _stats_for. With _meta, unknown
-- replicas join, in this transaction: a record that was removed just before is created again, and not missed.
CREATE FUNCTION tenure.replica_beat(
    _namespace text, _replicas text[], _ttl bigint, _ahead bigint, _cancels_max integer,
    _restarts_max integer, _from bigint, _count boolean, _test_now bigint,
    _meta text DEFAULT NULL, _source text DEFAULT NULL, _stats bytea DEFAULT NULL,
    _stats_for bigint DEFAULT NULL
) RETURNS TABLE (
    known boolean, cancels text[], held bigint, expired boolean, at bigint, changed text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
    _since bigint := coalesce(_from, -9223372036854775808);
    _alive text[] := '{}';
    _expired boolean;
    _replica text;
BEGIN
    -- All callers renew in this order.
    FOR _replica IN SELECT DISTINCT u.id COLLATE "C" AS id FROM unnest(_replicas) AS u (id) ORDER BY id
    LOOP
        -- index: replica_pkey
        UPDATE tenure.replica r SET renewed = _now, ttl = _ttl
        WHERE r.namespace = _namespace AND r.id = _replica AND NOT r.dead;
        IF FOUND OR (_meta IS NOT NULL
                     AND tenure.replica_join(_namespace, _replica, _ttl, _meta, _now)) THEN
            _alive := _alive || _replica;
            IF _ahead > 0 THEN
                -- A job that is being settled or recovered needs no later deadline.
                -- index: job_pkey, job_held
                UPDATE tenure.job j SET deadline = least(j.deadline, 253402300799999999) + _ahead
                WHERE j.namespace = _namespace AND j.id = ANY (ARRAY(
                    SELECT h.id FROM tenure.job h
                    WHERE h.namespace || '' = _namespace AND h.replica = _replica
                      AND h.state = 'running' AND h.deadline IS NOT NULL
                    FOR NO KEY UPDATE SKIP LOCKED));
            END IF;
        END IF;
    END LOOP;
    IF _source IS NOT NULL THEN
        PERFORM tenure.run_stats_leave(_namespace, _source, _stats, _now, _now - _stats_for);
    END IF;
    PERFORM tenure.replica_clamp(_namespace, _now);
    changed := tenure.job_restart_pauses(_namespace, _now, _restarts_max);
    -- index: replica_dead, replica_ends, job_deadline
    _expired := EXISTS (SELECT FROM tenure.replica r
                        WHERE r.namespace || '' = _namespace AND r.dead)
        OR EXISTS (SELECT FROM tenure.replica r
                   WHERE r.namespace || '' = _namespace AND r.renewed + r.ttl >= _since
                     AND r.renewed + r.ttl <= _now)
        -- Ordered, because a plan from an empty table would visit all running jobs.
        OR (SELECT j.id FROM tenure.job j
            WHERE '' || j.namespace = _namespace AND j.state = 'running'
              AND j.deadline IS NOT NULL AND j.deadline >= _since AND j.deadline <= _now
            ORDER BY j.deadline, j.id LIMIT 1) IS NOT NULL;
    FOREACH _replica IN ARRAY _replicas LOOP
        known := _replica = ANY (_alive);
        IF known THEN
            -- index: job_cancelling
            cancels := ARRAY(
                SELECT j.id FROM tenure.job j
                WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.cancelling
                ORDER BY j.id LIMIT _cancels_max);
            held := CASE WHEN _count THEN tenure.replica_held(_namespace, _replica) END;
        END IF;
        expired := _expired;
        at := _now;
        RETURN NEXT;
        changed := NULL;
    END LOOP;
END
$$;

CREATE FUNCTION tenure.replica_held(_namespace text, _replica text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_held
    RETURN (SELECT count(*) FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.replica = _replica
              AND j.state = 'running');
END
$$;

CREATE FUNCTION tenure.replica_list(_namespace text, _limit integer, _test_now bigint)
RETURNS TABLE (id text, meta text, joined bigint, ttl bigint, left_over double precision,
               dead boolean, held bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
BEGIN
    -- index: replica_pkey
    RETURN QUERY
    SELECT r.id, r.meta, r.joined, r.ttl, least(r.renewed, _now)::float8 + r.ttl - _now, r.dead,
           tenure.replica_held(_namespace, r.id)
    FROM (SELECT * FROM tenure.replica r WHERE r.namespace = _namespace
          ORDER BY r.joined, r.id LIMIT _limit) AS r
    ORDER BY r.joined, r.id;
END
$$;

-- Set unreadable jobs aside: they block no other job, and are kept for a week for inspection. Their unique
-- keys are free as if they had finished. Returns the jobs that were not aside before.
CREATE FUNCTION tenure.job_set_aside(_namespace text, _ids text[], _test_now bigint)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
    _aside text[];
    _keys text[];
BEGIN
    -- Other columns are copied without being read.
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
        PERFORM tenure.job_free_keys(_namespace, _aside, _keys, _now);
    END IF;
    RETURN _aside;
END
$$;
