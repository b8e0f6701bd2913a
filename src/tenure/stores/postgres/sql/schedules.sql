-- Timers and schedules; see jobs.sql for the rules. A commit and its parts come as lists of the fields of
-- core.schedules.records.
--
-- Lock order: rows of schedule by name, the lock for creating schedules, then the locks of jobs.

-- Return schedules by name, or (NULL) all whose names come after one; and the newest lines of each.
CREATE FUNCTION tenure.schedule_read(
    _namespace text, _names text[], _after text, _limit integer, _lines integer, _count_max integer
) RETURNS TABLE (
    name text, version text, definition text, standing text, ruler text, declared bigint,
    last_run bigint, last_job text, live integer, lines jsonb
) LANGUAGE sql VOLATILE AS $$
    -- index: schedule_pkey, schedule_decision_pkey
    SELECT s.name, s.version, s.definition, s.standing, s.ruler, s.declared, s.last_run, s.last_job,
           cardinality(tenure.job_runs(_namespace, s.name, '', _count_max)),
           (SELECT jsonb_agg(l) FROM (
                SELECT d."like", d.first, d.last, d.ticks, d.at, d.body
                FROM tenure.schedule_decision d WHERE d.namespace = _namespace AND d.name = s.name
                ORDER BY d.number DESC LIMIT _lines) AS l)
    FROM (SELECT DISTINCT _namespace AS namespace, u.name FROM unnest(coalesce(_names, ARRAY(
              SELECT p.name FROM tenure.schedule p
              WHERE p.namespace = _namespace AND p.name > _after ORDER BY p.name LIMIT _limit
          ))) AS u (name) OFFSET 0) AS a
    JOIN tenure.schedule s ON s.namespace = a.namespace AND s.name = a.name
    ORDER BY s.name LIMIT _limit
$$;

-- Declare schedules that have these rulers, unless that was less than _anew ago; return the others.
CREATE FUNCTION tenure.schedule_declare(
    _namespace text, _names text[], _rulers text[], _anew bigint, _test_now bigint,
    OUT now bigint, OUT lost text[], OUT damaged text[]
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    now := tenure.now(_test_now);
    -- All callers lock in this order. index: schedule_pkey
    UPDATE tenure.schedule s SET declared = now
    FROM (SELECT _namespace AS namespace, u.* FROM unnest(_names, _rulers) AS u (name, ruler)
          ORDER BY u.name COLLATE "C" OFFSET 0) AS a
    WHERE s.namespace = a.namespace AND s.name = a.name AND s.ruler = a.ruler AND s.is_sound
      AND s.declared NOT BETWEEN now - _anew + 1 AND now;
    -- index: schedule_pkey
    SELECT coalesce(array_agg(a.name) FILTER (WHERE (s.is_sound AND s.ruler = a.ruler) IS NOT TRUE), '{}'),
           array_agg(a.name) FILTER (WHERE NOT s.is_sound) INTO lost, damaged
    FROM (SELECT _namespace AS namespace, u.* FROM unnest(_names, _rulers) AS u (name, ruler) OFFSET 0) AS a
    LEFT JOIN tenure.schedule s ON s.namespace = a.namespace AND s.name = a.name;
END
$$;

-- Return why a commit is refused, in the order of the contract; or that it is done, or which room's `instead`
-- applies.
CREATE FUNCTION tenure.schedule_check(
    _namespace text, _c tenure.commit, _blocking_max integer, _now bigint
) RETURNS tenure.committed LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _a tenure.committed;
    _ahead text[];
BEGIN
    -- index: schedule_pkey
    SELECT jsonb_agg(CASE WHEN s.name IS NULL THEN jsonb_build_array(e.name, '') ELSE jsonb_build_array(
               s.name, s.version, s.standing, s.ruler, s.last_run, s.last_job) END)
           FILTER (WHERE coalesce(s.version, '') <> e.version OR s.name IS NOT NULL
                     AND least(s.declared, _now) > _now - tenure.span(e.silent_for)),
           array_agg(s.name) FILTER (WHERE s.declared > _now AND e.silent_for IS NOT NULL)
    INTO _a.stored, _ahead
    FROM (SELECT _namespace AS namespace, x->>0 AS name, x->>1 AS version, (x->>2)::float8 AS silent_for
          FROM jsonb_array_elements(_c.expects) AS x OFFSET 0) AS e
    LEFT JOIN tenure.schedule s ON s.namespace = e.namespace AND s.name = e.name AND s.is_sound;
    IF _ahead IS NOT NULL THEN
        -- The clock was set back. Without waiting, because not all are locked. index: schedule_pkey
        UPDATE tenure.schedule s SET declared = _now
        WHERE s.namespace = _namespace AND s.name = ANY (ARRAY(
            SELECT f.name FROM tenure.schedule f
            WHERE f.namespace = _namespace AND f.name = ANY (_ahead) FOR NO KEY UPDATE SKIP LOCKED));
    END IF;
    _a.outcome := CASE
        WHEN _a.stored IS NOT NULL THEN 'stale'
        WHEN _c.not_before > _now THEN 'early'
        WHEN _c.run IS NOT NULL AND _c.start_on <> ''
        THEN tenure.replica_unfit(_namespace, _c.start_on, _now) END;
    IF _a.outcome IS NULL THEN
        _a := tenure.job_rooms(_namespace, _c.name, _c.rooms, _blocking_max);
    END IF;
    RETURN _a;
END
$$;

-- Write a document, or delete it if its standing is null; with a name alone it keeps its values. The
-- commit's own schedule records the run. Returns its highest fence, NULL if the schedule does not exist.
CREATE FUNCTION tenure.schedule_write(
    _namespace text, _c tenure.commit, _write jsonb, _has_run boolean, _now bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _name text := _write->>0;
    _standing text := _write->>1;
    _ruler text := _write->>2;
    _keeps boolean := _ruler IS NULL;
    _is_own boolean := _name = _c.name;
    _runs boolean := _is_own AND _has_run;
    _fence bigint;
BEGIN
    LOOP
        -- index: schedule_pkey
        UPDATE tenure.schedule s
        SET definition = coalesce(_write->>3, s.definition),
            ruler = coalesce(_ruler, s.ruler), standing = coalesce(_standing, s.standing),
            version = CASE WHEN _keeps THEN s.version ELSE _c.id END,
            declared = CASE WHEN _is_own AND _c.declares THEN _now ELSE s.declared END,
            last_run = CASE WHEN _runs THEN _c.tick ELSE p.last_run END,
            last_job = CASE WHEN _runs THEN _c.id ELSE p.last_job END,
            last_fence = CASE WHEN _runs AND _c.start_on <> ''
                THEN greatest(tenure.fence_after(p.last_fence), _now) ELSE p.last_fence END
        FROM (SELECT o.last_run, o.last_job, max(o.last_fence) OVER () AS last_fence
              FROM (SELECT _namespace AS namespace, e.* FROM jsonb_array_elements_text(
                        (_write->0) || coalesce(_write->4, '[]')) WITH ORDINALITY AS e (name, n) OFFSET 0) AS a
              JOIN tenure.schedule o ON o.namespace = a.namespace AND o.name = a.name
              WHERE o.is_sound ORDER BY o.last_run DESC, a.n LIMIT 1) AS p
        WHERE s.namespace = _namespace AND s.name = _name AND s.is_sound
          AND (_keeps OR _standing IS NOT NULL)
        RETURNING s.last_fence INTO _fence;
        EXIT WHEN FOUND OR _keeps;
        -- index: schedule_decision_pkey, schedule_pkey
        DELETE FROM tenure.schedule_decision d WHERE d.namespace = _namespace AND d.name = _name;
        DELETE FROM tenure.schedule s WHERE s.namespace = _namespace AND s.name = _name;
        EXIT WHEN _standing IS NULL;
        INSERT INTO tenure.schedule (namespace, name, definition, ruler, version, standing, declared)
        VALUES (_namespace, _name, '', '', '', '', _now);
    END LOOP;
    RETURN CASE WHEN _is_own THEN _fence END;
END
$$;

-- Carry out a checked commit. Returns the fence of its run, NULL if it has none.
CREATE FUNCTION tenure.schedule_carry_out(
    _namespace text, _c tenure.commit, _a tenure.committed, _decisions_max integer, _now bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Its own schedule records the run and the declaration, if no write does.
    _writes jsonb := _c.writes || CASE WHEN jsonb_path_query_array(_c.writes, '$[*][0]') ? _c.name
        THEN '[]' ELSE jsonb_build_array(jsonb_build_array(_c.name)) END;
    _run jsonb := CASE WHEN _a.outcome = 'done' THEN _c.run END;
    _lines jsonb := _c.lines || jsonb_build_array(
        CASE WHEN _a.outcome = 'done' THEN _c.run_line ELSE _c.rooms->_a.room->2 END);
    _fence bigint;
    _old bigint;
BEGIN
    FOR _n IN 0 .. jsonb_array_length(_writes) - 1 LOOP
        _fence := coalesce(
            tenure.schedule_write(_namespace, _c, _writes->_n, _run IS NOT NULL, _now), _fence);
    END LOOP;
    FOR _n IN 0 .. jsonb_array_length(_lines) - 1 LOOP
        CONTINUE WHEN _fence IS NULL OR _lines->_n = 'null';
        -- A line with the same `like` as the newest extends it. index: schedule_decision_pkey
        INSERT INTO tenure.schedule_decision AS d
        SELECT _namespace, _c.name, CASE WHEN l."like" <> '' AND l."like" = n."like" THEN n.number
                                         ELSE tenure.up(greatest(n.number, 0)) END,
               l."like", l.first, l.last, l.ticks, _now, l.body
        FROM (SELECT x->>0 AS "like", (x->>1)::bigint AS first, (x->>2)::bigint AS last,
                     (x->>3)::bigint AS ticks, x->>4 AS body FROM (SELECT _lines->_n) AS y (x)) AS l
        LEFT JOIN LATERAL (
            SELECT * FROM tenure.schedule_decision m
            WHERE m.namespace = _namespace AND m.name = _c.name ORDER BY m.number DESC LIMIT 1
        ) AS n ON true
        ON CONFLICT (namespace, name, number) DO UPDATE SET last = excluded.last, at = excluded.at,
            ticks = greatest(0, least(d.ticks, 253402300799999999 - excluded.ticks)) + excluded.ticks
        RETURNING greatest(d.number, 0) - _decisions_max INTO _old;
    END LOOP;
    -- index: schedule_decision_pkey
    DELETE FROM tenure.schedule_decision d
    WHERE d.namespace = _namespace AND d.name = _c.name AND d.number <= _old;
    RETURN tenure.job_bear(_namespace, _c, _run, coalesce(_fence, _now), _now);
END
$$;

-- Carry out commits in order. fence is that of a new run, known is a run that existed before.
CREATE FUNCTION tenure.schedule_commit(
    _namespace text, _names text[], _commits text[], _decisions_max integer, _blocking_max integer,
    _test_now bigint
) RETURNS TABLE (
    outcome text, now bigint, room integer, blocking text[], stored jsonb, fence bigint, known text[],
    damaged text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _there integer;
    _list jsonb;
    _c tenure.commit;
    _a tenure.committed;
    _is_refused boolean := true;
BEGIN
    -- All callers lock in this order. index: schedule_pkey
    SELECT count(*), array_agg(l.name) FILTER (WHERE NOT l.is_sound) INTO _there, damaged FROM (
        SELECT s.name, s.is_sound FROM (SELECT _namespace AS namespace, u.name FROM unnest(_names) AS u (name)
                                        ORDER BY u.name COLLATE "C" OFFSET 0) AS a
        JOIN tenure.schedule s ON s.namespace = a.namespace AND s.name = a.name FOR NO KEY UPDATE OF s
    ) AS l;
    IF _there < cardinality(_names) THEN
        -- Missing rows cannot be locked, so calls that may create some run one at a time. A row that
        -- another call has created meanwhile has a version that no commit here can expect.
        PERFORM pg_advisory_xact_lock(hashtextextended('tenure.schedule ' || _namespace, 0));
    END IF;
    now := tenure.now(_test_now);
    FOREACH _list IN ARRAY _commits::jsonb[] LOOP
        _c := (_list->>0, _list->>1, _list->2, _list->3, (_list->>4)::boolean, (_list->>5)::bigint,
               nullif(_list->6, 'null'), (_list->>7)::bigint, _list->>8, _list->9, _list->10,
               _list->11)::tenure.commit;
        _a := ('done', NULL, NULL, NULL)::tenure.committed;
        fence := NULL;
        known := ARRAY[_c.id];
        IF _c.run IS NULL OR NOT tenure.job_is_known(_namespace, _c.id) THEN
            known := NULL;
            _a := tenure.schedule_check(_namespace, _c, _blocking_max, now);
            IF _a.outcome IN ('done', 'instead') THEN
                fence := tenure.schedule_carry_out(_namespace, _c, _a, _decisions_max, now);
                _is_refused := false;
            END IF;
        END IF;
        outcome := _a.outcome;
        room := _a.room;
        blocking := _a.blocking;
        stored := _a.stored;
        RETURN NEXT;
    END LOOP;
    IF _is_refused THEN
        -- A crash can undo nothing here, so there is no need to wait for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END
$$;
