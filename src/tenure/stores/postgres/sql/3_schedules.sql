-- Format 3, continued: what is declared, seen and stopped of schedules; see 3_advance.sql for the rules.

-- Lock schedules by name. Those in _new that are not there are made, with the revision 0, and the caller
-- gives them another one before its transaction ends.
CREATE FUNCTION tenure.schedule_lock_v1(_namespace text, _names text[], _new text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _name text;
BEGIN
    -- Everybody locks in this order.
    FOR _name IN SELECT DISTINCT u.name COLLATE "C" AS name FROM unnest(_names) AS u (name)
                 ORDER BY name
    LOOP
        LOOP
            -- index: schedule_pkey
            PERFORM FROM tenure.schedule s
            WHERE s.namespace = _namespace AND s.name = _name FOR NO KEY UPDATE;
            EXIT WHEN FOUND OR _name <> ALL (_new);
            -- Waits for who is about to make it, and then locks it above.
            INSERT INTO tenure.schedule (namespace, name) VALUES (_namespace, _name)
            ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND;
        END LOOP;
    END LOOP;
END
$$;

-- Fill in a new schedule, which goes on where the one that it was renamed from had come to.
CREATE FUNCTION tenure.schedule_make_v1(
    _p tenure.planting_v1, _now bigint, INOUT _s tenure.schedule
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _before tenure.schedule;
    _name text;
BEGIN
    _s.revision := 1;
    _s.definition := decode(_p.definition, 'hex');
    _s.digests := ARRAY[_p.digest];
    _s.cursor := _now;
    _s.planted := _now;
    FOREACH _name IN ARRAY coalesce(_p.renamed_from, '{}') LOOP
        -- index: schedule_pkey
        UPDATE tenure.schedule s SET successor = _s.name, revision = s.revision + 1
        WHERE s.namespace = _s.namespace AND s.name = _name AND s.revision > 0
        RETURNING * INTO _before;
        IF FOUND THEN
            _s.cursor := _before.cursor;
            _s.last_run := _before.last_run;
            -- index: schedule_freeze_pkey
            INSERT INTO tenure.schedule_freeze (namespace, name, since, until, reason)
            SELECT f.namespace, _s.name, f.since, f.until, f.reason
            FROM tenure.schedule_freeze f WHERE f.namespace = _s.namespace AND f.name = _name
            ON CONFLICT (namespace, name) DO UPDATE
            SET since = excluded.since, until = excluded.until, reason = excluded.reason;
            EXIT;
        END IF;
    END LOOP;
END
$$;

-- Let a schedule that was renamed go on under its old name, unless somebody declares the new one.
CREATE FUNCTION tenure.schedule_take_back_v1(
    _declared_for bigint, _now bigint, INOUT _s tenure.schedule
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _heir tenure.schedule;
BEGIN
    -- index: schedule_pkey
    SELECT * INTO _heir FROM tenure.schedule s
    WHERE s.namespace = _s.namespace AND s.name = _s.successor AND s.revision > 0
    FOR NO KEY UPDATE;
    IF _heir.declared > _now THEN
        -- The clock was set back. index: schedule_pkey
        UPDATE tenure.schedule s SET declared = _now
        WHERE s.namespace = _s.namespace AND s.name = _s.successor;
    END IF;
    IF least(_heir.declared, _now) + _declared_for > _now THEN
        RETURN;
    END IF;
    _s.cursor := greatest(_s.cursor, _heir.cursor);
    _s.last_run := greatest(_s.last_run, _heir.last_run);
    _s.successor := '';
END
$$;

-- Declare one schedule, which the caller has locked, and return it as it is then; with the revision 0 if
-- another definition, or its successor, rules.
CREATE FUNCTION tenure.schedule_declare_v1(
    _namespace text, _p tenure.planting_v1, _declared_for bigint, _digests_max integer, _now bigint
) RETURNS tenure.schedule LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _s tenure.schedule;
    _yields boolean := false;
BEGIN
    -- index: schedule_pkey
    SELECT * INTO _s FROM tenure.schedule s WHERE s.namespace = _namespace AND s.name = _p.name;
    IF _s.revision = 0 THEN
        _s := tenure.schedule_make_v1(_p, _now, _s);
    ELSIF _s.successor <> '' THEN
        _s := tenure.schedule_take_back_v1(_declared_for, _now, _s);
        _yields := _s.successor <> '';
    END IF;
    IF NOT _yields AND _s.digests[cardinality(_s.digests)] <> _p.digest THEN
        IF _p.digest = ANY (_s.digests) THEN
            _s.declared := least(_s.declared, _now);
            _yields := _s.declared + _declared_for > _now;
        END IF;
        IF NOT _yields THEN
            _s.digests := array_remove(_s.digests, _p.digest) || _p.digest;
            _s.digests := _s.digests[greatest(1, cardinality(_s.digests) - _digests_max + 1):];
            _s.definition := decode(_p.definition, 'hex');
            _s.revision := _s.revision + 1;
            _s.cursor := greatest(_s.cursor, _now);
        END IF;
    END IF;
    IF NOT _yields THEN
        _s.declared := _now;
    END IF;
    -- index: schedule_pkey
    UPDATE tenure.schedule s
    SET revision = _s.revision, definition = _s.definition, digests = _s.digests,
        cursor = _s.cursor, last_run = _s.last_run, planted = _s.planted, declared = _s.declared,
        successor = _s.successor
    WHERE s.namespace = _namespace AND s.name = _p.name;
    _s.revision := CASE WHEN _yields THEN 0 ELSE _s.revision END;
    RETURN _s;
END
$$;

-- Declare again what rules already, in few statements: so it is nearly always. Returns the instant; or
-- NULL if some do not rule, and then declares none of them, unless that has changed meanwhile.
CREATE FUNCTION tenure.schedule_declare_again_v1(
    _namespace text, _all tenure.planting_v1[], _told bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint;
    _number bigint := (SELECT count(DISTINCT (u.name, u.digest)) FROM unnest(_all) AS u);
    _ruling bigint;
BEGIN
    -- index: schedule_pkey
    WITH asked AS MATERIALIZED (
        SELECT DISTINCT _namespace AS namespace, u.name, u.digest FROM unnest(_all) AS u
    )
    SELECT count(*) INTO _ruling
    FROM asked a JOIN tenure.schedule s ON s.namespace = a.namespace AND s.name = a.name
    WHERE s.successor = '' AND s.digests[cardinality(s.digests)] = a.digest;
    IF _ruling < _number THEN
        RETURN NULL;
    END IF;
    -- Everybody locks in this order. index: schedule_pkey
    PERFORM FROM (
        SELECT _namespace AS namespace, u.name FROM unnest(_all) AS u
        ORDER BY u.name COLLATE "C" OFFSET 0
    ) AS a
    CROSS JOIN LATERAL (
        SELECT FROM tenure.schedule s
        WHERE s.namespace = a.namespace AND s.name = a.name FOR NO KEY UPDATE
    ) AS s;
    _now := tenure.now_v1(_told);
    -- index: schedule_pkey
    WITH asked AS MATERIALIZED (
        SELECT DISTINCT _namespace AS namespace, u.name, u.digest FROM unnest(_all) AS u
    )
    UPDATE tenure.schedule s SET declared = _now FROM asked a
    WHERE s.namespace = a.namespace AND s.name = a.name
      AND s.successor = '' AND s.digests[cardinality(s.digests)] = a.digest;
    GET DIAGNOSTICS _ruling = ROW_COUNT;
    RETURN CASE WHEN _ruling = _number THEN _now END;
END
$$;

-- Declare schedules, in order.
CREATE FUNCTION tenure.schedule_plant_v1(
    _namespace text, _plantings text, _declared_for bigint, _digests_max integer, _told bigint
) RETURNS TABLE (revision bigint, cursor bigint, last_run bigint, now bigint)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _all tenure.planting_v1[] := ARRAY(
        SELECT p FROM json_populate_recordset(NULL::tenure.planting_v1, _plantings::json) AS p);
    _names text[] := ARRAY(SELECT u.name FROM unnest(_all) AS u);
    _p tenure.planting_v1;
    _s tenure.schedule;
BEGIN
    now := tenure.schedule_declare_again_v1(_namespace, _all, _told);
    IF now IS NOT NULL THEN
        -- index: schedule_pkey
        RETURN QUERY
        SELECT s.revision, s.cursor, s.last_run, now
        FROM unnest(_names) WITH ORDINALITY AS u (name, n)
        JOIN tenure.schedule s ON s.namespace = _namespace AND s.name = u.name
        ORDER BY u.n;
        RETURN;
    END IF;
    -- A successor that is set after this look is locked out of turn, which is rare enough.
    -- index: schedule_pkey
    PERFORM tenure.schedule_lock_v1(_namespace, ARRAY(
        SELECT unnest(_names) UNION
        SELECT unnest(u.renamed_from) FROM unnest(_all) AS u UNION
        SELECT s.successor FROM tenure.schedule s
        WHERE s.namespace = _namespace AND s.name = ANY (_names)), _names);
    now := tenure.now_v1(_told);
    FOREACH _p IN ARRAY _all LOOP
        _s := tenure.schedule_declare_v1(_namespace, _p, _declared_for, _digests_max, now);
        revision := _s.revision;
        cursor := _s.cursor;
        last_run := _s.last_run;
        RETURN NEXT;
    END LOOP;
END
$$;

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
    SELECT u.name, coalesce(s.revision, 0), coalesce(s.definition, ''), coalesce(s.cursor, 0),
           coalesce(s.last_run, 0), coalesce(s.last_job, ''), r.live, coalesce(s.planted, 0),
           coalesce(s.declared, 0), coalesce(s.successor, ''), f.since, f.until, f.reason,
           d.outcome, d.reason, d.first, d.last, d.ticks, d.at, d.job, d.replica
    FROM unnest(_found) WITH ORDINALITY AS u (name, n)
    LEFT JOIN tenure.schedule s ON s.namespace = _namespace AND s.name = u.name
    LEFT JOIN tenure.schedule_freeze f ON f.namespace = _namespace AND f.name = u.name
    LEFT JOIN tenure.schedule_decision d
        ON d.namespace = _namespace AND d.name = u.name AND d.number = s.decided
    CROSS JOIN LATERAL (
        SELECT count(*) AS live FROM (
            SELECT FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.schedule = u.name
              AND j.schedule <> '' AND j.state <> 'aside'
            LIMIT _count_max) AS runs
    ) AS r
    ORDER BY u.n;
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

-- Forget schedules that nobody declared for so long and that have no unfinished run.
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
    -- A move that comes in between declares its schedule, which is then not among them.
    -- index: schedule_pkey, job_run
    _gone := ARRAY(
        SELECT s.name FROM tenure.schedule s
        WHERE s.namespace = _namespace AND s.declared <= _since AND NOT EXISTS (
            SELECT FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.schedule = s.name
              AND j.schedule <> '' AND j.state <> 'aside')
        ORDER BY s.name LIMIT _limit FOR UPDATE OF s SKIP LOCKED);
    -- index: schedule_decision_pkey, schedule_freeze_pkey, schedule_pkey
    DELETE FROM tenure.schedule_decision d WHERE d.namespace = _namespace AND d.name = ANY (_gone);
    DELETE FROM tenure.schedule_freeze f WHERE f.namespace = _namespace AND f.name = ANY (_gone);
    DELETE FROM tenure.schedule s WHERE s.namespace = _namespace AND s.name = ANY (_gone);
    RETURN cardinality(_gone);
END
$$;
