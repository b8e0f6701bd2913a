-- Claims: give jobs to replicas; see jobs.sql for the rules.

-- Return the queues that are not paused, and when the first of their delayed jobs is due. Within its
-- millisecond another job may be due slightly earlier.
--
-- _from has 11 milliseconds for each queue: where to begin among the delayed jobs, and among the others of
-- each priority. Without it, searches begin at the first job.
CREATE FUNCTION tenure.job_open(
    _namespace text, _queues text[], _now bigint, _from bigint[],
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

-- Move due jobs among those of their queues without a delay: the first _limit in the order in which they
-- are served. Returns how many. _from is as for job_open.
CREATE FUNCTION tenure.job_end_pauses(
    _namespace text, _open text[], _limit integer, _now bigint, _from bigint[]
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

-- When the next of their delayed jobs is due.
CREATE FUNCTION tenure.job_next_due(_namespace text, _open text[], _now bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Several of each, because within a millisecond they are in the order of id.
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

-- Give a replica due jobs, in order. No row: there is no such replica. Otherwise the last row is no job: it
-- has the instant of the claim in `started`, the next due time in `due`, and in `attempt` how many delayed
-- jobs have become due.
--
-- For _from see job_open. With it, or if the search took more than _pages pages, the last row also has the
-- values for claim_bounds.py: in `message` the number of the transaction and its snapshot, in `finished` an
-- instant before it had that number, in `tags` the open queues, and in `losses` the pages of the search.
CREATE FUNCTION tenure.job_claim(
    _namespace text, _replica text, _claim_no bigint, _queues text[], _limit integer, _from bigint[],
    _pages integer, _test_now bigint
) RETURNS SETOF tenure.job_record LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _r tenure.replica;
    _last bigint;
    _now bigint;
    _open text[];
    _later bigint;
    _moved integer := 0;
    _seen pg_snapshot;
    _ids text[];
    _end tenure.job_record;
BEGIN
    -- Blocks recovery, but not beats.
    -- index: replica_pkey
    SELECT * INTO _r FROM tenure.replica r
    WHERE r.namespace = _namespace AND r.id = _replica FOR KEY SHARE;
    IF NOT FOUND OR _r.dead THEN
        RETURN;
    END IF;
    -- Waits for the same claim if that is still in flight.
    -- index: replica_claim_pkey
    SELECT c.claim_no INTO _last FROM tenure.replica_claim c
    WHERE c.namespace = _namespace AND c.replica = _replica
    ORDER BY c.page DESC LIMIT 1 FOR NO KEY UPDATE;
    _now := tenure.now(_test_now);
    _end.started := _now;
    IF _claim_no < _last THEN
        RETURN NEXT _end;
        RETURN;
    ELSIF _claim_no = _last THEN
        -- index: job_held
        RETURN QUERY
        SELECT (tenure.as_record(j)).*
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
    -- Before the search, which sees all that this snapshot sees.
    _seen := pg_current_snapshot();
    _end.losses := - pg_stat_get_xact_blocks_fetched('tenure.job_ready'::regclass)
                   - pg_stat_get_xact_blocks_fetched('tenure.job'::regclass);
    SELECT o.open, o.later INTO _open, _later
    FROM tenure.job_open(_namespace, _queues, _now, _from) o;
    IF _from IS NOT NULL AND cardinality(_open) < cardinality(_queues) THEN
        _from := ARRAY(
            SELECT _from[array_position(_queues, u.name) * 11 - 10 + step.n]
            FROM unnest(_open) WITH ORDINALITY AS u (name, place)
            CROSS JOIN generate_series(0, 10) AS step (n)
            ORDER BY u.place, step.n);
    END IF;
    IF _later / 1000 <= _now / 1000 THEN
        _moved := tenure.job_end_pauses(_namespace, _open, _limit, _now, _from);
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
              AND j.due / 1000
                  >= coalesce(_from[step.n / 10 * 11 + step.n % 10 + 2], -9223372036854775808)
            ORDER BY j.due / 1000, j.id LIMIT _limit FOR UPDATE SKIP LOCKED
        ) AS found
        LIMIT _limit);
    _end.losses := _end.losses + pg_stat_get_xact_blocks_fetched('tenure.job_ready'::regclass)
                   + pg_stat_get_xact_blocks_fetched('tenure.job'::regclass);
    IF _from IS NOT NULL OR _end.losses > _pages THEN
        _end.message := pg_current_xact_id()::text || ':' || _seen::text;
        _end.finished := coalesce(_test_now, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
        _end.tags := _open;
    END IF;
    IF cardinality(_ids) = 0 THEN
        -- A crash can undo nothing here, so there is no need to wait for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSE
        -- Returned in the order of `taken`: the planner can only look up its rows in the table, one
        -- by one, and not the reverse.
        -- index: job_pkey
        RETURN QUERY
        WITH taken AS MATERIALIZED (
            SELECT _namespace AS namespace, u.id FROM unnest(_ids) AS u (id)
        )
        UPDATE tenure.job j
        SET state = 'running', replica = _replica, claim_no = _claim_no,
            fence = greatest(tenure.up(j.fence), _now), attempt = tenure.up(j.attempt),
            started = _now, deadline = _now + tenure.span(j.timeout),
            revision = tenure.up(j.revision)
        FROM taken t WHERE j.namespace = t.namespace AND j.id = t.id
        RETURNING (tenure.as_record(j)).*;
    END IF;
    _end.attempt := _moved;
    IF cardinality(_ids) < _limit THEN
        _end.due := CASE WHEN _later / 1000 <= _now / 1000
                         THEN tenure.job_next_due(_namespace, _open, _now) ELSE _later END;
    END IF;
    RETURN NEXT _end;
END
$$;

-- Set aside unclaimable jobs among the first due ones of some queues, and return them. For a claim that has
-- failed because of a damaged row: it tries to claim each job alone, and rolls that back.
CREATE FUNCTION tenure.job_sift(
    _namespace text, _queues text[], _limit integer, _test_now bigint
) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
    _id text;
    _all text;
    _broken text[] := '{}';
BEGIN
    -- index: job_ready
    FOR _id IN
        SELECT found.id FROM generate_series(0, cardinality(_queues) * 20 - 1) AS step (n)
        CROSS JOIN LATERAL (
            SELECT j.id FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.queue = _queues[step.n / 20 + 1]
              AND (j.since IS NOT NULL)::integer = step.n / 10 % 2 AND j.priority = step.n % 10
              AND j.state = 'waiting' AND j.due <= _now
            ORDER BY j.due / 1000, j.id LIMIT _limit
        ) AS found
    LOOP
        BEGIN
            -- Conversion to text reads every column. index: job_pkey
            SELECT j::text INTO _all FROM tenure.job j
            WHERE j.namespace = _namespace AND j.id = _id;
            UPDATE tenure.job j SET attempt = tenure.up(j.attempt)
            WHERE j.namespace = _namespace AND j.id = _id;
            RAISE SQLSTATE 'TEN00';
        EXCEPTION
            WHEN SQLSTATE 'TEN00' THEN
                NULL;  -- it can be claimed; the error rolls that back
            WHEN data_exception OR integrity_constraint_violation OR internal_error
                 OR data_corrupted THEN
                _broken := _broken || _id;
        END;
    END LOOP;
    RETURN tenure.job_set_aside(_namespace, _broken, _test_now);
END
$$;
