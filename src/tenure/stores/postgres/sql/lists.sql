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

-- What a search for a text looks at: the first bytes, with small letters. Bytes that are not ASCII are written
-- as digits, so that no stored value makes this fail.
CREATE FUNCTION tenure.searchable(_bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT lower(encode(substring(_bytes FROM 1 FOR 2000), 'escape') COLLATE "C")
$$;

-- The last row of a page: where the next one begins, and how many jobs were visited.
CREATE FUNCTION tenure.page_end(_id text, _visited bigint) RETURNS tenure.job_record
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_populate_record(
        NULL::tenure.job_record, jsonb_build_object('id', _id, 'attempt', _visited))
$$;

-- Return matching jobs, newest first, and a last row without a state: the id at which the next page begins, or
-- NULL if there is none, and in `attempt` how many jobs were visited.
--
-- Each branch of `seen` visits jobs in the order of their ids by one index. _way chooses the narrowest one; the
-- others cost nothing. `seen` is read only as far as the page needs it, and the columns of a record, which may be
-- large, are read for the jobs of the page alone.
CREATE FUNCTION tenure.job_find(
    _namespace text, _state text, _queue text, _task text, _tag text, _replica text,
    _id_end text, _error text, _limit integer, _before text
) RETURNS SETOF tenure.job_record LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _way text := CASE
        WHEN _replica <> '' THEN 'replica'
        WHEN _state = 'running' THEN 'running'
        WHEN _tag IS NOT NULL THEN 'tag'
        WHEN _state IN ('failed', 'cancelled') THEN 'unsuccessful'
        WHEN _id_end IS NOT NULL THEN 'ids'
        ELSE 'all' END;
    -- How many jobs to visit, so that a rare combination does not cost a scan of the whole table. Errors take
    -- longer to look through, and ids are read from indexes alone.
    _most integer := greatest(
        CASE WHEN _error IS NOT NULL THEN 2000 WHEN _way = 'ids' THEN 20000 ELSE 5000 END,
        _limit + 1);
    -- Without a bound: longer than any id, of the largest character.
    _below text := coalesce(_before, repeat(U&'\+10FFFF', 201));
    _text text := tenure.searchable(convert_to(_error, 'UTF8'));
BEGIN
    -- index: replica_pkey, job_held, job_tag_id, job_pkey, job_done_pkey, job_done_unsuccessful
    RETURN QUERY
    WITH seen AS MATERIALIZED (
        SELECT s.id, row_number() OVER () AS place,
               s.state IS DISTINCT FROM 'aside' AND s.is_there
               AND (_state IS NULL OR s.state = _state) AND (_queue IS NULL OR s.queue = _queue)
               AND (_task IS NULL OR s.task = _task) AND (_replica IS NULL OR s.replica = _replica)
               AND (_tag IS NULL OR _tag = ANY (s.tags))
               AND (_id_end IS NULL OR right(s.id, length(_id_end)) = _id_end)
               AND (_error IS NULL OR strpos(tenure.searchable(s.error), _text) > 0
                    OR strpos(tenure.searchable(convert_to(s.reason, 'UTF8')), _text) > 0) AS fits
        FROM (
            (SELECT j.id, j.state, j.queue, j.task, j.replica, j.tags, j.error, j.reason, true AS is_there
             FROM tenure.job j
             WHERE _way = 'replica' AND j.namespace || '' = _namespace AND j.replica = _replica
               AND j.state = 'running' AND j.id < _below
             ORDER BY j.id DESC LIMIT _most)
            UNION ALL
            -- Every running job is on one of the replicas.
            (SELECT j.id, j.state, j.queue, j.task, j.replica, j.tags, j.error, j.reason, true
             FROM tenure.replica r
             CROSS JOIN LATERAL (
                 SELECT j.* FROM tenure.job j
                 WHERE j.namespace || '' = _namespace AND j.replica = r.id AND j.state = 'running'
                   AND j.id < _below
                 ORDER BY j.id DESC LIMIT _most
             ) AS j
             WHERE _way = 'running' AND r.namespace = _namespace
             ORDER BY j.id DESC LIMIT _most)
            UNION ALL
            (SELECT c.id, r.state, r.queue, r.task, r.replica, r.tags, r.error, r.reason,
                    r.id IS NOT NULL
             FROM (
                 SELECT i.id FROM (
                     (SELECT t.id FROM tenure.job_tag t
                      WHERE _way = 'tag' AND t.namespace = _namespace AND t.tag = _tag
                        AND t.id < _below
                      ORDER BY t.id DESC LIMIT _most)
                     UNION ALL
                     (SELECT j.id FROM tenure.job j
                      WHERE _way = 'ids' AND j.namespace = _namespace AND j.id < _below
                      ORDER BY j.id DESC LIMIT _most)
                     UNION ALL
                     (SELECT d.id FROM tenure.job_done d
                      WHERE _way = 'ids' AND d.namespace = _namespace AND d.id < _below
                      ORDER BY d.id DESC LIMIT _most)
                 ) AS i
                 ORDER BY i.id DESC LIMIT _most
             ) AS c
             LEFT JOIN LATERAL (
                 SELECT j.id, j.state, j.queue, j.task, j.replica, j.tags, j.error, j.reason
                 FROM tenure.job j
                 WHERE j.namespace = _namespace AND j.id = c.id
                   AND (_id_end IS NULL OR right(c.id, length(_id_end)) = _id_end)
                 UNION ALL
                 SELECT d.id, d.state, d.queue, d.task, d.replica, d.tags, d.error, d.reason
                 FROM tenure.job_done d
                 WHERE d.namespace = _namespace AND d.id = c.id
                   AND (_id_end IS NULL OR right(c.id, length(_id_end)) = _id_end)
                 OFFSET 0
             ) AS r ON true
             ORDER BY c.id DESC LIMIT _most)
            UNION ALL
            (SELECT d.id, d.state, d.queue, d.task, d.replica, d.tags, d.error, d.reason, true
             FROM tenure.job_done d
             WHERE _way = 'unsuccessful' AND '' || d.namespace = _namespace AND d.state = _state
               AND d.state <> 'succeeded' AND d.id < _below
             ORDER BY d.id DESC LIMIT _most)
            UNION ALL
            (SELECT j.id, j.state, j.queue, j.task, j.replica, j.tags, j.error, j.reason, true
             FROM tenure.job j
             WHERE _way = 'all' AND coalesce(_state, 'waiting') = 'waiting'
               AND j.namespace = _namespace AND j.id < _below
             ORDER BY j.id DESC LIMIT _most)
            UNION ALL
            (SELECT d.id, d.state, d.queue, d.task, d.replica, d.tags, d.error, d.reason, true
             FROM tenure.job_done d
             WHERE _way = 'all' AND coalesce(_state, 'succeeded') = 'succeeded'
               AND d.namespace = _namespace AND d.id < _below
             ORDER BY d.id DESC LIMIT _most)
        ) AS s
        ORDER BY s.id DESC LIMIT _most
    ),
    hits AS MATERIALIZED (
        SELECT s.id, s.place FROM seen s WHERE s.fits LIMIT _limit + 1
    ),
    page AS MATERIALIZED (
        SELECT h.id, h.place FROM hits h LIMIT _limit
    )
    SELECT r.* FROM page p
    CROSS JOIN LATERAL (
        SELECT (tenure.as_record(j)).* FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = p.id
        UNION ALL
        SELECT (tenure.as_record(d)).* FROM tenure.job_done d
        WHERE d.namespace = _namespace AND d.id = p.id
        OFFSET 0
    ) AS r
    UNION ALL
    SELECT (e.record).* FROM (
        SELECT CASE WHEN (SELECT count(*) FROM hits) > _limit
            THEN (SELECT tenure.page_end(min(p.id), max(p.place)) FROM page p)
            ELSE (SELECT tenure.page_end(
                      CASE WHEN count(*) = _most THEN min(s.id) END, count(*)) FROM seen s)
        END AS record
        OFFSET 0
    ) AS e;
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
