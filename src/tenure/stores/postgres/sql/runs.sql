-- Runs of schedules: lists them, checks the room for a new run, and inserts it.

-- A commit of core.schedules.records, whose parts are lists of their fields.
CREATE TYPE tenure.commit AS (
    id text, name text, expects jsonb, writes jsonb, declares boolean, not_before bigint, run jsonb,
    tick bigint, start_on text, rooms jsonb, lines jsonb, run_line jsonb
);
-- The outcome.
CREATE TYPE tenure.committed AS (outcome text, room integer, blocking text[], stored jsonb);

-- Return up to _most unfinished runs of a schedule by id, on one replica or ('') anywhere.
CREATE FUNCTION tenure.job_runs(_namespace text, _schedule text, _replica text, _most bigint)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Up to the replica, or to a text that is longer than any id, of the largest character.
    -- index: job_run
    RETURN ARRAY(SELECT r.id FROM (
        SELECT j.id FROM tenure.job j
        WHERE j.namespace || '' = _namespace AND j.schedule = _schedule
          AND j.schedule <> '' AND j.state <> 'aside' AND j.replica >= _replica
          AND j.replica <= CASE _replica WHEN '' THEN repeat(U&'\+10FFFF', 201) ELSE _replica END
        LIMIT _most) AS r ORDER BY r.id);
END
$$;

-- Find the first full room for runs of a schedule, and return the answer for it.
CREATE FUNCTION tenure.job_rooms(
    _namespace text, _schedule text, _rooms jsonb, _blocking_max integer
) RETURNS tenure.committed LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _a tenure.committed;
    _most bigint;
BEGIN
    FOR _n IN 0 .. jsonb_array_length(_rooms) - 1 LOOP
        _most := _rooms->_n->>0;
        _a.outcome := CASE WHEN _rooms->_n->>2 IS NULL THEN 'full' ELSE 'instead' END;
        _a.room := _n;
        -- A separate statement after the lock, so that it counts all earlier runs. The same statement counts and
        -- names them, because some may end before another statement.
        _a.blocking := tenure.job_runs(
            _namespace, _schedule, _rooms->_n->>1,
            CASE WHEN _a.outcome = 'full' THEN greatest(_most, _blocking_max) ELSE _most END);
        CONTINUE WHEN cardinality(_a.blocking) < _most;
        _a.blocking := CASE WHEN _a.outcome = 'full' THEN _a.blocking[:_blocking_max] END;
        RETURN _a;
    END LOOP;
    RETURN ('done', NULL, NULL, NULL)::tenure.committed;
END
$$;

-- Return why no run may start on a replica: it is gone or has expired. NULL if one may.
CREATE FUNCTION tenure.replica_unfit(_namespace text, _replica text, _now bigint)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _r tenure.replica;
BEGIN
    -- Blocks recovery, but not beats.
    -- index: replica_pkey
    SELECT * INTO _r FROM tenure.replica r
    WHERE r.namespace = _namespace AND r.id = _replica FOR KEY SHARE;
    IF NOT FOUND OR _r.dead THEN
        RETURN 'gone';
    END IF;
    IF _r.renewed > _now THEN
        -- The clock was set back.
        PERFORM tenure.replica_clamp(_namespace, _now);
    END IF;
    RETURN CASE WHEN least(_r.renewed, _now)::float8 + _r.ttl <= _now
        THEN 'expired' END;
END
$$;

-- Store the run of a commit, if it has one: running on its replica under this fence, or waiting. Returns its
-- fence.
CREATE FUNCTION tenure.job_bear(
    _namespace text, _c tenure.commit, _run jsonb, _fence bigint, _now bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE STRICT AS $$
DECLARE
    -- In the order in which records.py sends it; rare fields come last.
    _timeout double precision := _run->>7;
    _tags jsonb := coalesce(_run->8, '[]');
    _runs boolean := _c.start_on <> '';
BEGIN
    INSERT INTO tenure.job (
        namespace, id, task, queue, priority, payload, tags, timeout, retention, retention_failed,
        options, created, due, state, attempt, fence, revision, replica, started, deadline, schedule
    ) VALUES (
        _namespace, _c.id, _run->>0, _run->>1, (_run->>2)::smallint, decode(_run->>3, 'base64'),
        ARRAY(SELECT jsonb_array_elements_text(_tags)), _timeout, (_run->>4)::double precision,
        (_run->>5)::double precision, _run->>6, _now, CASE WHEN _runs THEN _c.not_before ELSE _now END,
        CASE WHEN _runs THEN 'running' ELSE 'waiting' END, _runs::integer,
        CASE WHEN _runs THEN _fence ELSE 0 END, 1 + _runs::integer, _c.start_on,
        CASE WHEN _runs THEN _now ELSE 0 END,
        CASE WHEN _runs THEN _now + tenure.span(_timeout) END, _c.name
    );
    IF _tags <> '[]' THEN
        INSERT INTO tenure.job_tag (namespace, tag, id)
        SELECT DISTINCT _namespace, t.tag, _c.id FROM jsonb_array_elements_text(_tags) AS t (tag);
    END IF;
    RETURN CASE WHEN _runs THEN _fence ELSE 0 END;
END
$$;
