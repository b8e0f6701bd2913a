-- Finds the jobs of dead replicas; see jobs.sql for the rules.

-- Return up to _limit jobs that run on missing replicas. No call creates such jobs: a running job has a
-- replica's row from its claim on, and that row stays until its last job has ended.
CREATE FUNCTION tenure.job_strangers(_namespace text, _limit integer)
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

-- Mark a replica, whose row the caller has locked, as dead, and reserve it for _by for a while; without jobs
-- it is deleted. Returns up to _limit of its jobs, and locks them. Jobs that others still have locked after
-- _patience milliseconds are left for later; with _patience NULL it waits for none.
CREATE FUNCTION tenure.replica_take(
    _namespace text, _replica text, _by text, _until bigint, _limit integer, _patience integer
) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _usual text := current_setting('lock_timeout');
    _ids text[];
BEGIN
    IF _patience IS NOT NULL THEN
        BEGIN
            PERFORM set_config('lock_timeout', _patience::text, true);
            -- index: job_held
            _ids := ARRAY(
                SELECT j.id FROM tenure.job j
                WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.state = 'running'
                ORDER BY j.id LIMIT _limit FOR UPDATE);
        EXCEPTION WHEN lock_not_available THEN
            NULL;  -- a transaction of a user
        END;
        PERFORM set_config('lock_timeout', _usual, true);
    END IF;
    IF _ids IS NULL THEN
        -- index: job_held
        _ids := ARRAY(
            SELECT j.id FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.replica = _replica AND j.state = 'running'
            ORDER BY j.id LIMIT _limit FOR UPDATE SKIP LOCKED);
    END IF;
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

-- Return the jobs of expired replicas that are not reserved for others, and jobs past their deadline; and the
-- replicas that were not dead before. It waits for no lock: locked rows are left for the next call.
CREATE FUNCTION tenure.job_expired(
    _namespace text, _by text, _reserved bigint, _grace bigint, _limit integer, _as_of bigint,
    _now bigint, OUT _found text[], OUT _dead text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _until bigint := least(_now, coalesce(_as_of, _now));
    _strangers text[];
    _replica text;
    _was_dead boolean;
BEGIN
    _found := '{}';
    _dead := '{}';
    PERFORM tenure.replica_clamp(_namespace, _now);
    -- index: replica_dead, replica_ends, replica_pkey
    FOR _replica, _was_dead IN
        SELECT r.id, r.dead FROM tenure.replica r
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
        EXIT WHEN cardinality(_found) = _limit;  -- replicas that were not visited may still revive
        IF NOT _was_dead THEN
            _dead := _dead || _replica;
        END IF;
        _found := _found || tenure.replica_take(
            _namespace, _replica, _by, _now + _reserved, _limit - cardinality(_found), NULL);
    END LOOP;
    -- index: job_deadline
    _found := _found || ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE '' || j.namespace = _namespace AND j.state = 'running'
          AND j.deadline IS NOT NULL AND j.deadline <= _until - _grace AND j.id <> ALL (_found)
        ORDER BY j.deadline, j.id LIMIT _limit - cardinality(_found) FOR UPDATE SKIP LOCKED);
    _strangers := tenure.job_strangers(_namespace, _limit - cardinality(_found));
    -- Checked again under the lock.
    -- index: job_pkey, replica_pkey
    _found := _found || ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace = _namespace AND j.state = 'running' AND j.id <> ALL (_found)
          AND j.id = ANY (_strangers)
          AND (SELECT r.id FROM tenure.replica r
               WHERE r.namespace = _namespace AND r.id = j.replica) IS NULL
        ORDER BY j.id FOR UPDATE SKIP LOCKED);
END
$$;

-- Return orphans and overdue jobs, without large columns. The first row has only the time. A row with no more
-- than `whose` names a replica that was not dead before.
CREATE TYPE tenure.orphan AS (at bigint, aside text, whose text, job tenure.job_record);

CREATE FUNCTION tenure.job_read_orphans(_namespace text, _ids text[])
RETURNS SETOF tenure.orphan LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey
    RETURN QUERY
    SELECT NULL::bigint, NULL::text, NULL::text, j.record
    FROM unnest(_ids) WITH ORDINALITY AS u (id, n)
    CROSS JOIN LATERAL (
        SELECT tenure.as_record(j, false) AS record FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = u.id OFFSET 0
    ) AS j
    ORDER BY u.n;
END
$$;

-- Find up to _limit jobs of one replica, or of all that have expired, and overdue ones. Rows that the server
-- cannot read are set aside; rows with values out of bounds are left to the caller. _patience is that of
-- replica_take, for one replica.
CREATE FUNCTION tenure.job_orphans(
    _namespace text, _by text, _reserved bigint, _replica text, _grace bigint, _limit integer,
    _as_of bigint, _patience integer, _test_now bigint
) RETURNS SETOF tenure.orphan LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
    _found text[] := '{}';
    _dead text[] := '{}';
    _broken text[] := '{}';
    _was_dead boolean;
    _id text;
BEGIN
    IF _replica IS NULL THEN
        SELECT e._found, e._dead INTO _found, _dead
        FROM tenure.job_expired(_namespace, _by, _reserved, _grace, _limit, _as_of, _now) AS e;
    ELSE
        -- Waits for a concurrent claim, and blocks new ones.
        -- index: replica_pkey
        SELECT r.dead INTO _was_dead FROM tenure.replica r
        WHERE r.namespace = _namespace AND r.id = _replica FOR UPDATE;
        IF FOUND THEN
            IF NOT _was_dead THEN
                _dead := ARRAY[_replica];
            END IF;
            _now := tenure.now(_test_now);
            -- Recovery would count a loss for a job that this look misses. Other calls have jobs locked for a
            -- moment, also claims of other replicas: if a claim finds a job that begins to run meanwhile,
            -- PostgreSQL locks its newest version before it finds that the job no longer waits.
            _found := tenure.replica_take(
                _namespace, _replica, _by, _now + _reserved, _limit, _patience);
        END IF;
    END IF;
    RETURN NEXT (_now, NULL, NULL, NULL)::tenure.orphan;
    FOREACH _id IN ARRAY _dead LOOP
        RETURN NEXT (NULL, NULL, _id, NULL)::tenure.orphan;
    END LOOP;
    BEGIN
        RETURN QUERY SELECT * FROM tenure.job_read_orphans(_namespace, _found);
    EXCEPTION WHEN data_exception OR internal_error OR data_corrupted THEN
        -- All changes since BEGIN are rolled back. One job is unreadable, so each is read alone.
        FOREACH _id IN ARRAY _found LOOP
            BEGIN
                RETURN QUERY SELECT * FROM tenure.job_read_orphans(_namespace, ARRAY[_id]);
            EXCEPTION WHEN data_exception OR internal_error OR data_corrupted THEN
                _broken := _broken || _id;
            END;
        END LOOP;
    END;
    IF _broken <> '{}' THEN
        -- index: job_pkey
        RETURN QUERY
        SELECT NULL::bigint, j.id, j.replica, NULL::tenure.job_record FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_broken) ORDER BY j.id;
        PERFORM tenure.job_set_aside(_namespace, _broken, _test_now);
    END IF;
END
$$;
