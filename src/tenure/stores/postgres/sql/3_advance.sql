-- Format 3, continued: how the cursor of a schedule moves; see 1_leases.sql and 2_jobs.sql for the rules.
--
-- Lock order: rows of schedule by name come before all that jobs have.

-- Whether a schedule can be used. One that cannot is as good as not there, and begins anew when somebody
-- declares it.
CREATE FUNCTION tenure.schedule_is_sound_v1(_s tenure.schedule) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT _s IS NOT NULL AND array_ndims(_s.digests) = 1 AND array_position(_s.digests, NULL) IS NULL
       AND _s.revision BETWEEN 1 AND 253402300799999999
       AND _s.cursor BETWEEN -253402300799999999 AND 253402300799999999
       AND _s.last_run BETWEEN -253402300799999999 AND 253402300799999999
       AND _s.last_fence BETWEEN 0 AND 253402300799999999
       AND _s.planted BETWEEN -253402300799999999 AND 253402300799999999
       AND _s.declared BETWEEN -253402300799999999 AND 253402300799999999
       AND _s.decided BETWEEN 0 AND 253402300799999999
$$;

-- Whether there are as many unfinished runs of a schedule, on one replica or (NULL) anywhere.
CREATE FUNCTION tenure.schedule_is_full_v1(
    _namespace text, _name text, _replica text, _most integer
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _most IS NULL THEN
        RETURN false;
    ELSIF _replica IS NULL THEN
        -- index: job_run
        RETURN _most <= (SELECT count(*) FROM (
            SELECT FROM tenure.job j
            WHERE j.namespace || '' = _namespace AND j.schedule = _name
              AND j.schedule <> '' AND j.state <> 'aside'
            LIMIT _most) AS r);
    END IF;
    -- index: job_run
    RETURN _most <= (SELECT count(*) FROM (
        SELECT FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.schedule = _name AND j.replica = _replica
          AND j.schedule <> '' AND j.state <> 'aside'
        LIMIT _most) AS r);
END
$$;

-- Cancel the unfinished runs of a schedule, on one replica or (NULL) anywhere: at once what waits. Not
-- those to be cancelled already: their handlers may take long, and somebody tries again meanwhile. Nor
-- those that are locked: a user's transaction may hold them for long, and with them every tick.
CREATE FUNCTION tenure.schedule_cancel_v1(
    _namespace text, _name text, _replica text, _reason text, _told bigint,
    OUT changed text[], OUT replicas text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _ids text[];
BEGIN
    -- index: job_run
    _ids := ARRAY(
        SELECT j.id FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.schedule = _name
          AND j.schedule <> '' AND j.state <> 'aside' AND NOT j.cancelling
          AND (_replica IS NULL OR j.replica = _replica)
        FOR UPDATE SKIP LOCKED);
    SELECT c.changed, c.replicas INTO changed, replicas
    FROM tenure.job_cancel_v1(_namespace, _ids, _reason, _told) c;
END
$$;

-- Remember what became of ticks; return the number of the newest decision. One that ran nothing and is
-- like the newest is merged into it. The caller has locked the schedule.
CREATE FUNCTION tenure.schedule_remember_v1(
    _s tenure.schedule, _d tenure.decision_v1, _now bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _d.outcome <> 'ran' THEN
        -- index: schedule_decision_pkey
        UPDATE tenure.schedule_decision d
        SET last = _d.last, at = _now,
            ticks = least(d.ticks, 253402300799999999 - coalesce(_d.ticks, 1)) + coalesce(_d.ticks, 1)
        WHERE d.namespace = _s.namespace AND d.name = _s.name AND d.number = _s.decided
          AND d.outcome = _d.outcome AND d.reason = coalesce(_d.reason, '');
        IF FOUND THEN
            RETURN _s.decided;
        END IF;
    END IF;
    INSERT INTO tenure.schedule_decision (
        namespace, name, number, outcome, reason, first, last, ticks, at, job, replica)
    VALUES (_s.namespace, _s.name, _s.decided + 1, _d.outcome, coalesce(_d.reason, ''), _d.first,
            _d.last, coalesce(_d.ticks, 1), _now, coalesce(_d.job, ''), coalesce(_d.replica, ''))
    -- Only if the number was set back by hand: then a tick must not fail for it.
    ON CONFLICT (namespace, name, number) DO UPDATE
    SET outcome = excluded.outcome, reason = excluded.reason, first = excluded.first,
        last = excluded.last, ticks = excluded.ticks, at = excluded.at, job = excluded.job,
        replica = excluded.replica;
    RETURN _s.decided + 1;
END
$$;

-- Store the run of a move: running where it was born, under this fence, or waiting.
CREATE FUNCTION tenure.schedule_bear_v1(
    _namespace text, _m tenure.advance_v1, _fence bigint, _now bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _r tenure.run_v1 := _m.run;
    _runs boolean := _m.replica <> '';
BEGIN
    INSERT INTO tenure.job (
        namespace, id, task, queue, priority, payload, tags, timeout, retention,
        retention_failed, retry, created, due, state, attempt, fence, revision, replica, started, deadline, schedule, rerun
    ) VALUES (
        _namespace, _m.id, _r.task, _r.queue, _r.priority, decode(_r.payload, 'hex'), _r.tags,
        _r.timeout, _r.retention, _r.retention_failed, _r.retry, _now, CASE WHEN _runs THEN _m.due ELSE _now END,
        CASE WHEN _runs THEN 'running' ELSE 'waiting' END, _runs::integer,
        CASE WHEN _runs THEN _fence ELSE 0 END, 1 + _runs::integer, _m.replica,
        CASE WHEN _runs THEN _now ELSE 0 END,
        CASE WHEN _runs THEN _now + tenure.span_v1(_r.timeout) END, _m.name, _r.rerun
    );
    INSERT INTO tenure.job_tag (namespace, tag, id)
    SELECT DISTINCT _namespace, t.tag, _m.id FROM unnest(_r.tags) AS t (tag);
END
$$;

-- Whether a run may be born on this replica: if not, held or gone.
CREATE FUNCTION tenure.schedule_nowhere_v1(_namespace text, _replica text, _now bigint)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _r tenure.replica;
BEGIN
    -- Keeps recovery out and lets beats pass.
    -- index: replica_pkey
    SELECT * INTO _r FROM tenure.replica r
    WHERE r.namespace = _namespace AND r.id = _replica FOR KEY SHARE;
    IF NOT FOUND OR _r.dead THEN
        RETURN 'gone';
    END IF;
    IF _r.renewed > _now THEN
        -- The clock was set back. index: replica_pkey
        UPDATE tenure.replica r SET renewed = least(r.renewed, _now)
        WHERE r.namespace = _namespace AND r.id = _replica;
    END IF;
    RETURN CASE WHEN least(_r.renewed, _now) + _r.ttl <= _now THEN 'held' END;
END
$$;

-- How long the last run forbids the next one: NULL for not at all, infinite while it is unfinished.
CREATE FUNCTION tenure.schedule_rests_v1(
    _namespace text, _last_job text, _rest bigint, _now bigint
) RETURNS double precision LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- In this order: it may finish between the two looks.
    -- index: job_pkey
    IF EXISTS (SELECT FROM tenure.job j
               WHERE j.namespace = _namespace AND j.id = _last_job AND j.state <> 'aside') THEN
        RETURN 'infinity';
    END IF;
    -- index: job_done_pkey
    RETURN (SELECT least(d.finished, _now) + _rest - _now FROM tenure.job_done d
            WHERE d.namespace = _namespace AND d.id = _last_job AND d.finished > _now - _rest);
END
$$;

-- Look whether a move is a repeat, or refused. Then _a has an outcome, and nothing changes.
CREATE FUNCTION tenure.schedule_refuse_v1(
    _namespace text, _m tenure.advance_v1, _s tenure.schedule, INOUT _a tenure.advanced_v1
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _rests double precision;
BEGIN
    IF (_m.run).task IS NOT NULL AND tenure.job_is_known_v1(_namespace, _m.id) THEN
        _a.outcome := 'done';
        _a.has_run := true;
    ELSIF _s.last_move = _m.id THEN
        _a.outcome := _s.last_outcome;
        _a.reason := _s.last_reason;
    ELSIF _s.name IS NULL THEN
        _a.outcome := 'unknown';
    ELSIF _s.revision <> _m.revision OR _s.successor <> '' OR _s.cursor <> _m.seen
          OR _m.tick < _m.seen THEN
        _a.outcome := 'passed';
    ELSIF _m.due > _a.now THEN
        _a.outcome := 'early';
        _a.ready_in := _m.due - _a.now;
    ELSIF (_m.run).task IS NOT NULL THEN
        IF _m.replica <> '' THEN
            _a.outcome := tenure.schedule_nowhere_v1(_namespace, _m.replica, _a.now);
            _a.reason := CASE WHEN _a.outcome = 'held' THEN 'expired' ELSE '' END;
        END IF;
        IF _a.outcome IS NULL AND _m.rest > 0 AND _s.last_job <> '' THEN
            _rests := tenure.schedule_rests_v1(_namespace, _s.last_job, _m.rest, _a.now);
            IF _rests = 'infinity' THEN
                _a.outcome := 'held';
                _a.reason := 'running';
            ELSIF _rests IS NOT NULL THEN
                _a.outcome := 'early';
                _a.ready_in := _rests;
            END IF;
        END IF;
    END IF;
END
$$;

-- Move the cursor, and store what that causes: the run, unless it is skipped.
CREATE FUNCTION tenure.schedule_move_v1(
    _namespace text, _m tenure.advance_v1, _s tenure.schedule, _skips boolean,
    _decisions_max integer, INOUT _a tenure.advanced_v1
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _d tenure.decision_v1;
BEGIN
    FOREACH _d IN ARRAY coalesce(_m.passed, '{}') LOOP
        _s.decided := tenure.schedule_remember_v1(_s, _d, _a.now);
    END LOOP;
    IF _skips THEN
        _d := ('skipped', _a.reason, _m.tick, _m.tick, 1, '', '');
        _s.decided := tenure.schedule_remember_v1(_s, _d, _a.now);
    ELSIF (_m.run).task IS NOT NULL THEN
        IF _m.replica <> '' THEN
            _s.last_fence := greatest(_s.last_fence + 1, _a.now);
        END IF;
        PERFORM tenure.schedule_bear_v1(_namespace, _m, _s.last_fence, _a.now);
        _a.has_run := true;
        _s.last_run := _m.tick;
        _s.last_job := _m.id;
        _d := ('ran', CASE WHEN _m.forced THEN 'triggered' ELSE '' END, _m.tick, _m.tick, 1, _m.id,
               _m.replica);
        _s.decided := tenure.schedule_remember_v1(_s, _d, _a.now);
    END IF;
    -- index: schedule_decision_pkey
    DELETE FROM tenure.schedule_decision d
    WHERE d.namespace = _namespace AND d.name = _m.name AND d.number <= _s.decided - _decisions_max;
    _a.outcome := CASE WHEN _a.reason = '' THEN 'done' ELSE 'skipped' END;
    _a.cursor := CASE WHEN _m.seen IS NULL THEN _s.cursor ELSE _m.tick END;
    _a.last_run := _s.last_run;
    -- index: schedule_pkey
    UPDATE tenure.schedule s
    SET cursor = _a.cursor, last_run = _s.last_run, last_job = _s.last_job,
        last_fence = _s.last_fence,
        declared = CASE WHEN _m.forced THEN s.declared ELSE _a.now END,
        decided = _s.decided, last_move = _m.id, last_outcome = _a.outcome, last_reason = _a.reason
    WHERE s.namespace = _namespace AND s.name = _m.name;
END
$$;

-- Move a cursor and make the run, in one step.
CREATE FUNCTION tenure.schedule_advance_v1(
    _namespace text, _move text, _decisions_max integer, _told bigint
) RETURNS tenure.advanced_v1 LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _m tenure.advance_v1 := json_populate_record(NULL::tenure.advance_v1, _move::json);
    _s tenure.schedule;
    _a tenure.advanced_v1;
    _full tenure.bound_v1;
    _where text;
BEGIN
    -- index: schedule_pkey
    SELECT * INTO _s FROM tenure.schedule s
    WHERE s.namespace = _namespace AND s.name = _m.name FOR NO KEY UPDATE;
    IF NOT tenure.schedule_is_sound_v1(_s) THEN
        _s := NULL;
    END IF;
    _a := (NULL, coalesce(_s.cursor, 0), coalesce(_s.revision, 0), coalesce(_s.last_run, 0),
           tenure.now_v1(_told), '', 0, false, '{}', '{}');
    _a := tenure.schedule_refuse_v1(_namespace, _m, _s, _a);
    IF _a.outcome IS NOT NULL THEN
        -- Nothing happened that a crash could undo, so there is no need to wait for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN _a;
    END IF;
    IF (_m.run).task IS NULL THEN
        RETURN tenure.schedule_move_v1(_namespace, _m, _s, false, _decisions_max, _a);
    END IF;
    -- index: schedule_freeze_pkey
    IF NOT _m.forced AND EXISTS (
        SELECT FROM tenure.schedule_freeze f
        WHERE f.namespace = _namespace AND f.name IN (_m.name, '*')
          AND (f.until IS NULL OR f.until > _m.tick)
    ) THEN
        _a.reason := 'paused';
        RETURN tenure.schedule_move_v1(_namespace, _m, _s, true, _decisions_max, _a);
    END IF;
    -- Counted by statements of their own, after the lock: so each sees all runs before this one.
    IF tenure.schedule_is_full_v1(_namespace, _m.name, NULL, (_m.total).most) THEN
        _full := _m.total;
    ELSIF tenure.schedule_is_full_v1(_namespace, _m.name, _m.replica, (_m.own).most) THEN
        _full := _m.own;
        _where := _m.replica;
    ELSE
        RETURN tenure.schedule_move_v1(_namespace, _m, _s, false, _decisions_max, _a);
    END IF;
    _a.reason := _full.reason;
    IF _full.otherwise = 'skip' THEN
        RETURN tenure.schedule_move_v1(_namespace, _m, _s, true, _decisions_max, _a);
    ELSIF _full.otherwise = 'cancel' THEN
        SELECT c.changed, c.replicas INTO _a.cancelled, _a.replicas
        FROM tenure.schedule_cancel_v1(_namespace, _m.name, _where, _full.reason, _told) c;
    END IF;
    _a.outcome := 'held';
    RETURN _a;
END
$$;
