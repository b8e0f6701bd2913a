-- Lists and counts of jobs for dashboards and operators; see jobs.sql for the rules.

-- Return jobs by id, in any order. Jobs that were set aside have only the id and that state.
CREATE FUNCTION tenure.job_get(_namespace text, _ids text[])
RETURNS SETOF tenure.job_record LANGUAGE plpgsql VOLATILE STRICT AS $$
DECLARE
    _aside tenure.job_record;
BEGIN
    -- index: job_pkey, job_done_pkey
    RETURN QUERY
    SELECT (tenure.as_record(j)).* FROM tenure.job j
    WHERE j.namespace = _namespace AND j.id = ANY (_ids) AND j.state IS DISTINCT FROM 'aside'
    UNION ALL
    SELECT (tenure.as_record(d)).* FROM tenure.job_done d
    WHERE d.namespace = _namespace AND d.id = ANY (_ids);
    FOR _aside.id, _aside.state IN
        SELECT j.id, j.state FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (_ids) AND j.state = 'aside'
    LOOP
        RETURN NEXT _aside;
    END LOOP;
END
$$;

-- Return up to _most ids below _before, newest first, which include all matches. Each branch uses one index
-- in the order of id; the narrowest that applies is taken.
CREATE FUNCTION tenure.job_candidates(
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
        -- Every running job is on one of the replicas. index: replica_pkey, job_held
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

-- Return matching jobs, newest first. If there may be more, a last row has only the id of the next page.
CREATE FUNCTION tenure.job_find(
    _namespace text, _state text, _queue text, _task text, _tag text, _replica text,
    _limit integer, _before text
) RETURNS SETOF tenure.job_record LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- How many jobs to visit, so that a rare combination does not cost a scan of the whole table.
    _most integer := greatest(5000, _limit + 1);
    _ids text[];
    _job tenure.job_record;
    _found integer := 0;
    _end tenure.job_record;
BEGIN
    SELECT c.ids INTO _ids FROM tenure.job_candidates(
        _namespace, _state, _tag, _replica, _most,
        -- Without a bound: longer than any id, of the largest character.
        coalesce(_before, repeat(U&'\+10FFFF', 201))) c;
    -- index: job_pkey, job_done_pkey
    FOR _job IN
        SELECT r.*
        FROM unnest(_ids) AS u (id)
        CROSS JOIN LATERAL (
            SELECT (tenure.as_record(j)).* FROM tenure.job j
            WHERE j.namespace = _namespace AND j.id = u.id AND j.state IS DISTINCT FROM 'aside'
            UNION ALL
            SELECT (tenure.as_record(d)).* FROM tenure.job_done d
            WHERE d.namespace = _namespace AND d.id = u.id
            OFFSET 0
        ) AS r
        WHERE (_state IS NULL OR r.state = _state) AND (_queue IS NULL OR r.queue = _queue)
          AND (_task IS NULL OR r.task = _task) AND (_replica IS NULL OR r.replica = _replica)
          AND (_tag IS NULL OR _tag = ANY (r.tags))
        LIMIT _limit + 1
    LOOP
        _found := _found + 1;
        EXIT WHEN _found > _limit;
        RETURN NEXT _job;
        _end.id := _job.id;
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
CREATE FUNCTION tenure.job_count_tagged(
    _namespace text, _tag text, _looks integer, _most integer, _most_recent integer,
    _within bigint, _test_now bigint,
    OUT unfinished integer, OUT recent integer, OUT oldest bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
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
            SELECT j.created FROM tenure.job j
            WHERE j.namespace = _namespace AND j.id = u.id AND j.state IS DISTINCT FROM 'aside'
            UNION ALL
            SELECT d.created FROM tenure.job_done d WHERE d.namespace = _namespace AND d.id = u.id
            OFFSET 0
        ) AS r
        WHERE r.created > _now - _within AND r.created <= _now
        LIMIT _most_recent) AS y;
END
$$;

-- Count the jobs of each queue that is paused or has unfinished jobs. Counts stop at _most.
CREATE FUNCTION tenure.job_counts(_namespace text, _most integer, _test_now bigint)
RETURNS TABLE (queue text, waiting bigint, running bigint, oldest bigint, paused boolean,
               paused_for bigint, pause_reason text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
    _next text := '';
    _busy text[];
    _numbers bigint[];
BEGIN
    -- There are only as many running jobs as all workers have slots, so they are all counted.
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
        -- Skips from name to name through the indexes, however many jobs each queue has.
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
        SELECT true, p.until - _now, p.reason INTO paused, paused_for, pause_reason
        FROM tenure.queue_pause p
        WHERE p.namespace = _namespace AND p.queue = _next
          AND (p.until IS NULL OR p.until > _now);
        RETURN NEXT;
    END LOOP;
END
$$;

-- Return jobs that no worker can finish: set aside, or on a missing replica.
CREATE FUNCTION tenure.job_stranded(
    _namespace text, _limit integer, _test_now bigint
) RETURNS TABLE (id text, replica text, is_aside boolean, left_over double precision)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
    _strangers text[] := tenure.job_strangers(_namespace, _limit);
BEGIN
    -- index: job_aside
    RETURN QUERY
    SELECT j.id, '', true, coalesce(j.deadline::float8 - _now, 0) FROM tenure.job j
    WHERE j.namespace || '' = _namespace AND j.state <> 'waiting' AND j.state <> 'running'
    ORDER BY j.deadline, j.id LIMIT _limit;
    -- index: job_pkey
    RETURN QUERY
    SELECT j.id, j.replica, false, 0::float8 FROM tenure.job j
    WHERE j.namespace = _namespace AND j.id = ANY (_strangers);
END
$$;
