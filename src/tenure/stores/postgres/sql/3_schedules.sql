-- Format 3, continued: how schedules are seen and stopped; see 3_advance.sql for the rules.

-- Return schedules by name, or (NULL) all. The freeze under the name * is among them if asked for.
CREATE FUNCTION tenure.schedule_list_v1(
    _namespace text, _names text[], _limit integer, _count_max integer
) RETURNS TABLE (
    name text, revision bigint, definition bytea, cursor bigint, last_run bigint, last_job text,
    live bigint, planted bigint, declared bigint, successor text, since bigint, until bigint,
    why text, outcome text, reason text, first bigint, last bigint, ticks bigint, at bigint,
    job text, replica text
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _found text[];
BEGIN
    IF _names IS NULL THEN
        -- index: schedule_pkey
        _found := ARRAY(SELECT s.name FROM tenure.schedule s
                        WHERE s.namespace = _namespace ORDER BY s.name LIMIT _limit);
    ELSE
        -- index: schedule_pkey, schedule_freeze_pkey
        _found := ARRAY(
            SELECT s.name FROM tenure.schedule s
            WHERE s.namespace = _namespace AND s.name = ANY (_names)
            UNION
            SELECT f.name FROM tenure.schedule_freeze f
            WHERE f.namespace = _namespace AND f.name = '*' AND '*' = ANY (_names)
            ORDER BY 1 LIMIT _limit);
    END IF;
    -- index: schedule_pkey, schedule_freeze_pkey, schedule_decision_pkey, job_run
    RETURN QUERY
    SELECT a.name, coalesce(s.revision, 0), coalesce(s.definition, ''), coalesce(s.cursor, 0),
           coalesce(s.last_run, 0), coalesce(s.last_job, ''), r.live, coalesce(s.planted, 0),
           coalesce(s.declared, 0), coalesce(s.successor, ''), f.since, f.until, f.reason,
           d.outcome, d.reason, d.first, d.last, d.ticks, d.at, d.job, d.replica
    FROM (SELECT _namespace AS namespace, u.* FROM unnest(_found) WITH ORDINALITY AS u (name, n)
          OFFSET 0) AS a
    LEFT JOIN tenure.schedule s ON s.namespace = a.namespace AND s.name = a.name
    LEFT JOIN tenure.schedule_freeze f ON f.namespace = a.namespace AND f.name = a.name
    LEFT JOIN tenure.schedule_decision d
        ON d.namespace = a.namespace AND d.name = a.name AND d.number = s.decided
    CROSS JOIN LATERAL (
        SELECT count(*) AS live FROM (
            SELECT FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.schedule = a.name
              AND j.schedule <> '' AND j.state <> 'aside'
            LIMIT _count_max) AS runs
    ) AS r
    ORDER BY a.n;
END
$$;

-- Return what became of a schedule's ticks, newest first.
CREATE FUNCTION tenure.schedule_decisions_v1(_namespace text, _name text, _limit integer)
RETURNS TABLE (outcome text, reason text, first bigint, last bigint, ticks bigint, at bigint,
               job text, replica text)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    -- index: schedule_decision_pkey
    RETURN QUERY
    SELECT d.outcome, d.reason, d.first, d.last, d.ticks, d.at, d.job, d.replica
    FROM tenure.schedule_decision d WHERE d.namespace = _namespace AND d.name = _name
    ORDER BY d.number DESC LIMIT _limit;
END
$$;

-- Let ticks before _until, or (NULL) all, be skipped; false if there is no such schedule.
CREATE FUNCTION tenure.schedule_freeze_v1(
    _namespace text, _name text, _until bigint, _reason text, _told bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    IF _name <> '*' THEN
        -- index: schedule_pkey
        PERFORM FROM tenure.schedule s
        WHERE s.namespace = _namespace AND s.name = _name FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END IF;
    INSERT INTO tenure.schedule_freeze (namespace, name, since, until, reason)
    VALUES (_namespace, _name, tenure.now_v1(_told), _until, _reason)
    ON CONFLICT (namespace, name) DO UPDATE
    SET since = excluded.since, until = excluded.until, reason = excluded.reason;
    RETURN true;
END
$$;

-- End a freeze now; false if there is none, or it has ended.
CREATE FUNCTION tenure.schedule_thaw_v1(_namespace text, _name text, _told bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _now bigint := tenure.now_v1(_told);
BEGIN
    -- index: schedule_freeze_pkey
    UPDATE tenure.schedule_freeze f SET until = _now
    WHERE f.namespace = _namespace AND f.name = _name AND (f.until IS NULL OR f.until > _now);
    RETURN FOUND;
END
$$;

-- Whether nobody needs a schedule that is not declared any more: it has no unfinished run, and is not the
-- former name of one that is there, which might go back to it.
CREATE FUNCTION tenure.schedule_is_over_v1(_s tenure.schedule) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: schedule_pkey, job_run
    RETURN NOT EXISTS (
        SELECT FROM tenure.schedule h
        WHERE h.namespace = _s.namespace AND h.name = _s.successor
    ) AND NOT EXISTS (
        SELECT FROM tenure.job j
        WHERE j.namespace || '' = _s.namespace AND j.schedule = _s.name
          AND j.schedule <> '' AND j.state <> 'aside');
END
$$;

-- Forget schedules that nobody declared for so long and that nobody needs.
CREATE FUNCTION tenure.schedule_prune_v1(
    _namespace text, _idle bigint, _limit integer, _told bigint
) RETURNS integer LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _since bigint := tenure.now_v1(_told) - _idle;
    _gone text[];
BEGIN
    -- A move or a rename that comes in between changes the row, which is then looked at again; and the
    -- function sees what they made, which a condition written out here would not.
    -- index: schedule_pkey
    _gone := ARRAY(
        SELECT s.name FROM tenure.schedule s
        WHERE s.namespace = _namespace AND s.declared <= _since AND tenure.schedule_is_over_v1(s)
        ORDER BY s.name LIMIT _limit FOR UPDATE OF s SKIP LOCKED);
    -- index: schedule_decision_pkey, schedule_freeze_pkey, schedule_pkey
    DELETE FROM tenure.schedule_decision d WHERE d.namespace = _namespace AND d.name = ANY (_gone);
    DELETE FROM tenure.schedule_freeze f WHERE f.namespace = _namespace AND f.name = ANY (_gone);
    DELETE FROM tenure.schedule s WHERE s.namespace = _namespace AND s.name = ANY (_gone);
    RETURN cardinality(_gone);
END
$$;
