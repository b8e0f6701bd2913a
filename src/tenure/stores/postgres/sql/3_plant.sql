-- Format 3, continued: how schedules are declared, and go on under other names and definitions; see
-- 1_leases.sql and 2_jobs.sql for the rules.
--
-- Lock order: who makes schedules or renames them does so one at a time in a namespace, under an advisory
-- lock; then come rows of schedule by name, and then those of schedule_freeze.

-- Lock those of these schedules that are there; say whether all are.
CREATE FUNCTION tenure.schedule_lock_v1(_namespace text, _names text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _locked integer;
BEGIN
    -- Everybody locks in this order. index: schedule_pkey
    PERFORM FROM (
        SELECT _namespace AS namespace, u.name FROM unnest(_names) AS u (name)
        ORDER BY u.name COLLATE "C" OFFSET 0
    ) AS a
    CROSS JOIN LATERAL (
        SELECT FROM tenure.schedule s
        WHERE s.namespace = a.namespace AND s.name = a.name FOR NO KEY UPDATE
    ) AS s;
    GET DIAGNOSTICS _locked = ROW_COUNT;
    RETURN _locked = cardinality(_names);
END
$$;

-- The names that plantings may touch: their own and former ones, and whoever took over from these.
CREATE FUNCTION tenure.schedule_touched_v1(_namespace text, _all tenure.planting_v1[])
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: schedule_pkey
    RETURN ARRAY(
        WITH RECURSIVE touched AS (
            SELECT _namespace COLLATE "C" AS namespace, n.name COLLATE "C" AS name
            FROM unnest(_all) AS u, unnest(u.renamed_from || u.name) AS n (name)
            UNION
            SELECT s.namespace, s.successor
            FROM touched t JOIN tenure.schedule s ON s.namespace = t.namespace AND s.name = t.name
            WHERE s.successor <> ''
        )
        SELECT t.name FROM touched t);
END
$$;

-- Whether all of these rule already, and nothing is left to take over of the names that they had.
CREATE FUNCTION tenure.schedule_rule_v1(_namespace text, _all tenure.planting_v1[])
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: schedule_pkey
    RETURN NOT EXISTS (
        SELECT FROM (SELECT _namespace AS namespace, u.* FROM unnest(_all) AS u OFFSET 0) AS a
        LEFT JOIN tenure.schedule s ON s.namespace = a.namespace AND s.name = a.name
        WHERE s.name IS NULL OR NOT tenure.schedule_is_sound_v1(s) OR s.successor <> ''
           OR s.digests[cardinality(s.digests)] <> a.digest
           OR EXISTS (
               SELECT FROM unnest(a.renamed_from) AS f (name)
               WHERE (SELECT a.name NOT IN (o.name, o.successor) AND NOT EXISTS (
                          SELECT FROM tenure.schedule h
                          WHERE h.namespace = o.namespace AND h.name = o.successor)
                      FROM tenure.schedule o
                      WHERE o.namespace = a.namespace AND o.name = f.name)));
END
$$;

-- Return the one that a schedule was renamed to in the end; itself if it was not.
CREATE FUNCTION tenure.schedule_heir_v1(_s tenure.schedule) RETURNS tenure.schedule
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _heir tenure.schedule := _s;
    _next tenure.schedule;
BEGIN
    -- Names never make a circle, but a row that somebody has spoiled might.
    FOR _rename IN 1..100 LOOP
        EXIT WHEN _heir.successor = '';
        -- index: schedule_pkey
        SELECT * INTO _next FROM tenure.schedule s
        WHERE s.namespace = _heir.namespace AND s.name = _heir.successor;
        EXIT WHEN NOT FOUND;
        _heir := _next;
    END LOOP;
    RETURN _heir;
END
$$;

-- Whether somebody who declares a schedule was heard of lately.
CREATE FUNCTION tenure.schedule_is_declared_v1(
    _s tenure.schedule, _declared_for bigint, _now bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _s.declared > _now THEN
        -- The clock was set back. index: schedule_pkey
        UPDATE tenure.schedule s SET declared = _now
        WHERE s.namespace = _s.namespace AND s.name = _s.name;
    END IF;
    RETURN least(_s.declared, _now) + _declared_for > _now;
END
$$;

-- Let another definition rule; the caller stores it.
CREATE FUNCTION tenure.schedule_redefine_v1(
    _p tenure.planting_v1, _digests_max integer, INOUT _s tenure.schedule
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    _s.digests := array_remove(_s.digests, _p.digest) || _p.digest;
    _s.digests := _s.digests[greatest(1, cardinality(_s.digests) - _digests_max + 1):];
    _s.definition := decode(_p.definition, 'hex');
    _s.revision := _s.revision + 1;
    _s.calendar := _p.calendar;
END
$$;

-- Return those that a schedule takes over from: its heir, and its former names. What another one has taken
-- over by now is that one's; a new name, which has no cursor yet, means whoever goes by a name now.
CREATE FUNCTION tenure.schedule_others_v1(
    _s tenure.schedule, _heir tenure.schedule, _former text[]
) RETURNS tenure.schedule[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _others tenure.schedule[] := ARRAY[_heir];
    _name text;
    _one tenure.schedule;
    _its_heir tenure.schedule;
BEGIN
    FOREACH _name IN ARRAY _former LOOP
        -- index: schedule_pkey
        SELECT * INTO _one FROM tenure.schedule s
        WHERE s.namespace = _s.namespace AND s.name = _name;
        CONTINUE WHEN NOT FOUND;
        _its_heir := tenure.schedule_heir_v1(_one);
        IF _s.cursor = 0 OR _its_heir.name = _name THEN
            _others := _others || _its_heir;
        END IF;
    END LOOP;
    RETURN ARRAY(SELECT o FROM unnest(_others) AS o WHERE o.name <> _s.name);
END
$$;

-- Return where a schedule goes on that had this calendar before. That is now, unless somebody has decided
-- about the ticks of the same calendar until lately.
CREATE FUNCTION tenure.schedule_cursor_v1(
    _s tenure.schedule, _before text, _heir tenure.schedule, _others tenure.schedule[], _now bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _same bigint := (
        SELECT max(o.cursor) FROM unnest(_others) AS o WHERE o.calendar = _s.calendar);
    _is_current boolean := _s.cursor <> 0 AND _s.successor = '';
    _is_forgotten boolean := _heir.successor <> '';  -- whoever came after it is not there any more
BEGIN
    IF _is_forgotten OR _same IS NULL AND NOT (_is_current AND _s.calendar = _before) THEN
        -- Beside now, because the clock may have been set back.
        _same := greatest(_now, (SELECT max(o.cursor) FROM unnest(_others) AS o));
    END IF;
    RETURN greatest(_s.cursor, _same);
END
$$;

-- Leave a schedule with the freeze that lasts longest, of its own and those of others. That of a name at
-- rest is from before it was taken over.
CREATE FUNCTION tenure.schedule_take_freeze_v1(
    _s tenure.schedule, _others tenure.schedule[]
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _s.successor <> '' THEN
        -- index: schedule_freeze_pkey
        DELETE FROM tenure.schedule_freeze f
        WHERE f.namespace = _s.namespace AND f.name = _s.name;
    END IF;
    -- index: schedule_freeze_pkey
    INSERT INTO tenure.schedule_freeze AS mine (namespace, name, since, until, reason)
    SELECT f.namespace, _s.name, f.since, f.until, f.reason
    FROM unnest(_others) WITH ORDINALITY AS o
    JOIN tenure.schedule_freeze f ON f.namespace = o.namespace AND f.name = o.name
    ORDER BY f.until DESC NULLS FIRST, o.ordinality LIMIT 1
    ON CONFLICT (namespace, name) DO UPDATE
    SET since = excluded.since, until = excluded.until, reason = excluded.reason
    WHERE mine.until < coalesce(excluded.until, 9223372036854775807);
END
$$;

-- Let a schedule have what others had, which rest from now on; the caller stores it.
CREATE FUNCTION tenure.schedule_take_over_v1(
    _others tenure.schedule[], INOUT _s tenure.schedule
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _all tenure.schedule[] := _s || _others;
BEGIN
    PERFORM tenure.schedule_take_freeze_v1(_s, _others);
    SELECT a.last_run, a.last_job INTO _s.last_run, _s.last_job
    FROM unnest(_all) WITH ORDINALITY AS a ORDER BY a.last_run DESC, a.ordinality LIMIT 1;
    _s.last_fence := (SELECT max(a.last_fence) FROM unnest(_all) AS a);
    _s.successor := '';
    -- index: schedule_pkey
    UPDATE tenure.schedule s SET successor = _s.name, revision = s.revision + 1
    WHERE s.namespace = _s.namespace
      AND s.name = ANY (ARRAY(SELECT o.name FROM unnest(_others) AS o));
END
$$;

-- Declare one schedule, and return it as it is then; with the revision 0 if another definition, or its
-- successor, rules. The caller has locked all that this touches.
CREATE FUNCTION tenure.schedule_declare_v1(
    _namespace text, _p tenure.planting_v1, _declared_for bigint, _digests_max integer, _now bigint
) RETURNS tenure.schedule LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _s tenure.schedule;
    _heir tenure.schedule;
    _others tenure.schedule[];
    _before text;
    _yields boolean;
BEGIN
    -- index: schedule_pkey
    SELECT * INTO _s FROM tenure.schedule s WHERE s.namespace = _namespace AND s.name = _p.name;
    IF NOT FOUND THEN
        INSERT INTO tenure.schedule (namespace, name, definition, calendar, digests, planted)
        VALUES (_namespace, _p.name, decode(_p.definition, 'hex'), _p.calendar, ARRAY[_p.digest],
                _now)
        RETURNING * INTO _s;
    END IF;
    _before := _s.calendar;
    _heir := tenure.schedule_heir_v1(_s);
    _yields := _heir.name <> _s.name AND _heir.name <> ALL (_p.renamed_from)
        AND tenure.schedule_is_declared_v1(_heir, _declared_for, _now);
    IF NOT _yields AND _s.digests[cardinality(_s.digests)] <> _p.digest THEN
        _yields := _p.digest = ANY (_s.digests)
            AND tenure.schedule_is_declared_v1(_s, _declared_for, _now);
        IF NOT _yields THEN
            _s := tenure.schedule_redefine_v1(_p, _digests_max, _s);
        END IF;
    END IF;
    IF _yields THEN
        _s.revision := 0;
        RETURN _s;
    END IF;
    _others := tenure.schedule_others_v1(_s, _heir, _p.renamed_from);
    _s.cursor := tenure.schedule_cursor_v1(_s, _before, _heir, _others, _now);
    _s := tenure.schedule_take_over_v1(_others, _s);
    -- index: schedule_pkey
    UPDATE tenure.schedule s
    SET revision = _s.revision, definition = _s.definition, calendar = _s.calendar,
        digests = _s.digests, cursor = _s.cursor, last_run = _s.last_run,
        last_job = _s.last_job, last_fence = _s.last_fence, declared = _now, successor = ''
    WHERE s.namespace = _namespace AND s.name = _p.name;
    RETURN _s;
END
$$;

-- Declare again what rules already, in few statements: so it is nearly always. No rows, and nothing has
-- changed, if some do not rule any more.
CREATE FUNCTION tenure.schedule_declare_again_v1(
    _namespace text, _all tenure.planting_v1[], _told bigint
) RETURNS TABLE (revision bigint, cursor bigint, last_run bigint, now bigint, anew boolean)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _names text[] := ARRAY(SELECT u.name FROM unnest(_all) AS u);
BEGIN
    IF NOT tenure.schedule_lock_v1(_namespace, _names)
       OR NOT tenure.schedule_rule_v1(_namespace, _all) THEN
        RETURN;
    END IF;
    now := tenure.now_v1(_told);
    -- index: schedule_pkey
    UPDATE tenure.schedule s SET declared = now
    WHERE s.namespace = _namespace AND s.name = ANY (_names);
    -- index: schedule_pkey
    RETURN QUERY
    SELECT s.revision, s.cursor, s.last_run, now, false
    FROM (SELECT _namespace AS namespace, u.* FROM unnest(_names) WITH ORDINALITY AS u (name, n)
          OFFSET 0) AS a
    JOIN tenure.schedule s ON s.namespace = a.namespace AND s.name = a.name
    ORDER BY a.n;
END
$$;

-- Forget those of some schedules that cannot be used, with what is known of their ticks; return their
-- names. The caller has locked them.
CREATE FUNCTION tenure.schedule_forget_unsound_v1(_namespace text, _names text[])
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _unsound text[];
BEGIN
    -- index: schedule_pkey
    _unsound := ARRAY(
        SELECT s.name FROM tenure.schedule s
        WHERE s.namespace = _namespace AND s.name = ANY (_names)
          AND NOT tenure.schedule_is_sound_v1(s));
    IF cardinality(_unsound) > 0 THEN
        -- index: schedule_decision_pkey, schedule_pkey
        DELETE FROM tenure.schedule_decision d
        WHERE d.namespace = _namespace AND d.name = ANY (_unsound);
        DELETE FROM tenure.schedule s WHERE s.namespace = _namespace AND s.name = ANY (_unsound);
    END IF;
    RETURN _unsound;
END
$$;

-- Declare schedules, in order. `anew` are those that could not be used as they were. No rows if somebody else has changed one of them at this very moment: then
-- more of them must be locked, which is in order only for who holds none. The caller asks again.
CREATE FUNCTION tenure.schedule_plant_v1(
    _namespace text, _plantings text, _declared_for bigint, _digests_max integer, _told bigint
) RETURNS TABLE (revision bigint, cursor bigint, last_run bigint, now bigint, anew boolean)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _all tenure.planting_v1[] := ARRAY(
        SELECT p FROM json_populate_recordset(NULL::tenure.planting_v1, _plantings::json) AS p);
    _p tenure.planting_v1;
    _s tenure.schedule;
    _touched text[];
    _unsound text[];
BEGIN
    IF tenure.schedule_rule_v1(_namespace, _all) THEN
        RETURN QUERY SELECT * FROM tenure.schedule_declare_again_v1(_namespace, _all, _told);
        RETURN;
    END IF;
    -- From here on nobody else makes or renames any: so those to lock are known before the first
    -- is locked.
    PERFORM pg_advisory_xact_lock(hashtextextended('tenure.schedule ' || _namespace, 0));
    _touched := tenure.schedule_touched_v1(_namespace, _all);
    PERFORM tenure.schedule_lock_v1(_namespace, _touched);
    _unsound := tenure.schedule_forget_unsound_v1(_namespace, _touched);
    now := tenure.now_v1(_told);
    FOREACH _p IN ARRAY _all LOOP
        _s := tenure.schedule_declare_v1(_namespace, _p, _declared_for, _digests_max, now);
        revision := _s.revision;
        cursor := _s.cursor;
        last_run := _s.last_run;
        anew := _p.name = ANY (_unsound);
        RETURN NEXT;
    END LOOP;
END
$$;
