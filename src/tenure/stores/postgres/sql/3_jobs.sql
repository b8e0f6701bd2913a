-- Format 3, continued: jobs that tell whose run they are; see 2_jobs.sql for the rules.

-- Give a replica due jobs, in order. No row: there is no such replica. Otherwise the last row is no
-- job: it tells the instant of the claim in `started`, when the next job is due in `due`, and in `attempt`
-- how many jobs are due by now that waited for their time.
--
-- For _from see job_open_v1. With it, or if the look for jobs took more than _pages pages, the last row also
-- has what bounds.py needs: in `message` the number of the transaction and its snapshot, in `finished` an instant
-- before it had that number, and in `tags` the queues that are open. `losses` is the pages that the look took.
CREATE FUNCTION tenure.job_claim_v2(
    _namespace text, _replica text, _claim_no bigint, _queues text[], _limit integer, _from bigint[],
    _pages integer, _told bigint
) RETURNS SETOF tenure.job_v2 LANGUAGE plpgsql VOLATILE
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
    _seen pg_snapshot;
    _ids text[];
    _end tenure.job_v2;
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
               0::bigint, NULL::bytea, j.error, j.history, j.schedule, j.retention_failed, j.options
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
    -- Before the look, which sees all that this snapshot sees.
    _seen := pg_current_snapshot();
    _end.losses := - pg_stat_get_xact_blocks_fetched('tenure.job_ready'::regclass)
                   - pg_stat_get_xact_blocks_fetched('tenure.job'::regclass);
    SELECT o.open, o.later INTO _open, _later
    FROM tenure.job_open_v1(_namespace, _queues, _now, _from) o;
    IF _from IS NOT NULL AND cardinality(_open) < cardinality(_queues) THEN
        _from := ARRAY(
            SELECT _from[array_position(_queues, u.name) * 11 - 10 + step.n]
            FROM unnest(_open) WITH ORDINALITY AS u (name, place)
            CROSS JOIN generate_series(0, 10) AS step (n)
            ORDER BY u.place, step.n);
    END IF;
    IF _later / 1000 <= _now / 1000 THEN
        _moved := tenure.job_end_pauses_v1(_namespace, _open, _limit, _now, _from);
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
        _end.finished := coalesce(_told, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
        _end.tags := _open;
    END IF;
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
            fence = greatest(tenure.up_v1(j.fence), _now), attempt = tenure.up_v1(j.attempt),
            started = _now, deadline = _now + tenure.span_v1(j.timeout),
            revision = tenure.up_v1(j.revision)
        FROM taken t WHERE j.namespace = t.namespace AND j.id = t.id
        RETURNING j.id, j.task, j.queue, j.priority, j.state, j.payload, j.tags, j.timeout,
                  j.retention, j.created, j.due, j.attempt, j.failures, j.losses, j.fence,
                  j.revision, j.replica, j.started, j.progress, j.message, j.checkpoint,
                  j.cancelling, j.reason, 0::bigint, NULL::bytea, j.error, j.history,
                  j.schedule, j.retention_failed, j.options;
    END IF;
    _end.attempt := _moved;
    IF cardinality(_ids) < _limit THEN
        _end.due := CASE WHEN _later / 1000 <= _now / 1000
                         THEN tenure.job_next_due_v1(_namespace, _open, _now) ELSE _later END;
    END IF;
    RETURN NEXT _end;
END
$$;

-- Return jobs by id, in any order. Of those that were set aside only the id and that state.
CREATE FUNCTION tenure.job_get_v2(_namespace text, _ids text[])
RETURNS SETOF tenure.job_v2 LANGUAGE plpgsql VOLATILE STRICT
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _aside tenure.job_v2;
BEGIN
    -- index: job_pkey, job_done_pkey
    RETURN QUERY
    SELECT r.id, r.task, r.queue, r.priority, r.state, r.payload, r.tags, r.timeout, r.retention,
           r.created, r.due, r.attempt, r.failures, r.losses, r.fence, r.revision, r.replica,
           r.started, r.progress, r.message, r.checkpoint, r.cancelling, r.reason, r.finished,
           r.result, r.error, r.history, r.schedule, r.retention_failed, r.options
    FROM tenure.job_record r WHERE r.namespace = _namespace AND r.id = ANY (_ids);
    FOR _aside.id, _aside.state IN
        SELECT j.id, j.state FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_ids) AND j.state = 'aside'
    LOOP
        RETURN NEXT _aside;
    END LOOP;
END
$$;

-- Return jobs that fit, newest first. If there may be more, a last row has only an id: where to go on.
CREATE FUNCTION tenure.job_find_v2(
    _namespace text, _state text, _queue text, _task text, _tag text, _replica text,
    _limit integer, _before text
) RETURNS SETOF tenure.job_v2 LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    -- As many are looked at; the bound that keeps a rare combination from costing the whole table.
    _most integer := greatest(5000, _limit + 1);
    _ids text[];
    _one tenure.job_v2;
    _found integer := 0;
    _end tenure.job_v2;
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
               r.finished, r.result, r.error, r.history, r.schedule, r.retention_failed, r.options
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

-- Count jobs with a tag, of the newest _looks ones: up to _most unfinished, and up to _most_recent that
-- were created less than _within ago, with the age of the oldest of those.
CREATE FUNCTION tenure.job_count_tagged_v1(
    _namespace text, _tag text, _looks integer, _most integer, _most_recent integer,
    _within bigint, _told bigint,
    OUT unfinished integer, OUT recent integer, OUT oldest bigint
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
    _ids text[];
BEGIN
    -- index: job_tag_id
    _ids := ARRAY(
        SELECT t.id FROM tenure.job_tag t
        WHERE t.namespace = _namespace AND t.tag = _tag
        ORDER BY t.id DESC LIMIT _looks);
    -- index: job_pkey
    SELECT count(*) INTO unfinished FROM (
        SELECT FROM unnest(_ids) AS u (id)
        CROSS JOIN LATERAL (
            SELECT FROM tenure.job j
            WHERE j.namespace = _namespace AND j.id = u.id AND j.state <> 'aside' OFFSET 0
        ) AS j
        LIMIT _most) AS l;
    -- index: job_pkey, job_done_pkey
    SELECT count(*), coalesce(_now - min(y.created), 0) INTO recent, oldest FROM (
        SELECT r.created FROM unnest(_ids) AS u (id)
        CROSS JOIN LATERAL (
            SELECT r.created FROM tenure.job_record r
            WHERE r.namespace = _namespace AND r.id = u.id OFFSET 0
        ) AS r
        WHERE r.created > _now - _within AND r.created <= _now
        LIMIT _most_recent) AS y;
END
$$;

-- Make finished jobs wait again; see job_may_requeue_v1 for the answers. Besides them: n refused, for runs.
CREATE FUNCTION tenure.job_requeue_v2(
    _namespace text, _ids text[], _told bigint, OUT answers text, OUT queues text[]
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = 2000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    SELECT r.answers, r.queues INTO answers, queues
    FROM tenure.job_requeue_v1(_namespace, _ids, _told) r;
    IF strpos(answers, 'x') > 0 THEN
        -- index: job_done_pkey
        SELECT string_agg(CASE
            WHEN substr(answers, u.n::integer, 1) = 'x' AND EXISTS (
                SELECT FROM tenure.job_done d
                WHERE d.namespace = _namespace AND d.id = u.id AND d.schedule <> ''
            ) THEN 'n' ELSE substr(answers, u.n::integer, 1) END, '' ORDER BY u.n)
        INTO answers
        FROM unnest(_ids) WITH ORDINALITY AS u (id, n);
    END IF;
END
$$;

-- Set aside those of the first due jobs of some queues that cannot be claimed; return them. For a claim
-- that has failed for what is in a row: each job is tried alone, and what was tried is undone.
CREATE FUNCTION tenure.job_sift_v1(
    _namespace text, _queues text[], _limit integer, _told bigint
) RETURNS text[] LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
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
            -- As text, all of it is read. index: job_pkey
            SELECT j::text INTO _all FROM tenure.job j
            WHERE j.namespace = _namespace AND j.id = _id;
            UPDATE tenure.job j SET attempt = tenure.up_v1(j.attempt)
            WHERE j.namespace = _namespace AND j.id = _id;
            RAISE SQLSTATE 'TEN00';
        EXCEPTION
            WHEN SQLSTATE 'TEN00' THEN
                NULL;  -- it can be claimed; undone by the error
            WHEN data_exception OR integrity_constraint_violation OR internal_error
                 OR data_corrupted THEN
                _broken := _broken || _id;
        END;
    END LOOP;
    RETURN tenure.job_set_aside_v1(_namespace, _broken, _told);
END
$$;
