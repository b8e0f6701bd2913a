-- Inserts of jobs, and their unique keys; see leases.sql for the rules.
--
-- Lock order, which excludes deadlocks: rows of job_key by key, of replica by id (a join locks the id before the
-- row), of replica_claim, of job_done by id, of job by id. A function that needs a row out of this order does not
-- wait for it (SKIP LOCKED).
--
-- Batches come as text[], bytes as hexadecimal digits: for other arrays, asyncpg first queries the types
-- on every new connection. Answers go as text with a letter for each item.
--
-- Where a batch is joined with a table, the batch carries the namespace. So the planner cannot
-- begin with "all jobs of the namespace", which looks cheap while there are few.

-- A stored time in microseconds; a week in place of one that is out of bounds.
CREATE FUNCTION tenure.span(_seconds double precision) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _seconds >= 0 AND _seconds <= 1e10 THEN round(_seconds * 1000000)::bigint
                WHEN _seconds IS NOT NULL THEN 604800000000 END
$$;

-- How long a job is kept after it has finished in a state, in microseconds.
CREATE FUNCTION tenure.retention(
    _state text, _retention double precision, _failed double precision
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT tenure.span(CASE WHEN _state = 'failed' THEN _failed ELSE _retention END)
$$;

-- Lock the row of a unique key, which is created on first use.
CREATE FUNCTION tenure.job_lock_key(_namespace text, _key text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    LOOP
        -- Waits for a transaction that is about to take the key. If that is rolled back, the key is
        -- free until the caller takes it.
        -- index: job_key_pkey
        INSERT INTO tenure.job_key (namespace, key, id, digest, until, free_at)
        VALUES (_namespace, _key, '', '', 0, 0) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        -- Missing if it was removed as free meanwhile.
        -- index: job_key_pkey
        PERFORM FROM tenure.job_key k
        WHERE k.namespace = _namespace AND k.key = _key FOR UPDATE;
        EXIT WHEN FOUND;
    END LOOP;
END
$$;

-- Lock the rows of sorted unique keys. Returns the keys that another transaction still holds after _patience
-- milliseconds; with _patience NULL it waits for them, and fails after lock_timeout.
CREATE FUNCTION tenure.job_lock_keys(_namespace text, _keys text[], _patience integer)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _usual text := current_setting('lock_timeout');
    _key text;
    _busy text[] := '{}';
BEGIN
    IF _patience IS NULL THEN
        FOREACH _key IN ARRAY _keys LOOP
            PERFORM tenure.job_lock_key(_namespace, _key);
        END LOOP;
        RETURN _busy;
    END IF;
    -- Usually all keys are free, and one subtransaction is enough for all of them.
    BEGIN
        PERFORM set_config('lock_timeout', _patience::text, true);
        FOREACH _key IN ARRAY _keys LOOP
            PERFORM tenure.job_lock_key(_namespace, _key);
        END LOOP;
    EXCEPTION WHEN lock_not_available THEN
        FOREACH _key IN ARRAY _keys LOOP
            BEGIN
                -- Divided, so that other jobs of the batch wait only for a part of a second.
                PERFORM set_config(
                    'lock_timeout', CASE WHEN cardinality(_busy) < 10 THEN '10' ELSE '1' END, true);
                PERFORM tenure.job_lock_key(_namespace, _key);
            EXCEPTION WHEN lock_not_available THEN
                _busy := _busy || _key;
            END;
        END LOOP;
    END;
    PERFORM set_config('lock_timeout', _usual, true);
    RETURN _busy;
END
$$;

-- Lock the keys of a batch, and decide about each of its jobs, in order: c created, d created before in the
-- same batch, e existing, m mismatch, b busy: an open transaction holds its key. holders are the jobs that
-- have the keys of e and m.
CREATE FUNCTION tenure.job_admit(
    _namespace text, _ids text[], _keys text[], _digests text[], _keeps text[], _patience integer,
    _test_now bigint, OUT answers text, OUT holders text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _new record;
    _k tenure.job_key;
    _now bigint;
    _letter text;
    _busy text[];
    _taken text[] := '{}';
    _made text[] := '{}';
BEGIN
    _busy := tenure.job_lock_keys(_namespace, ARRAY(
        SELECT DISTINCT u.key COLLATE "C" AS key FROM unnest(_keys) AS u (key)
        WHERE u.key IS NOT NULL ORDER BY key), _patience);
    _now := tenure.now(_test_now);
    answers := '';
    holders := '{}';
    FOR _new IN
        SELECT u.* FROM unnest(_ids, _keys, _digests, _keeps) AS u (id, key, digest, keep)
    LOOP
        _letter := CASE WHEN _new.id = ANY (_made) THEN 'd' ELSE 'c' END;
        IF _letter = 'c' AND _new.key IS NOT NULL
           AND NOT tenure.job_is_known(_namespace, _new.id) THEN
            -- index: job_key_pkey
            SELECT * INTO _k FROM tenure.job_key k
            WHERE k.namespace = _namespace AND k.key = _new.key;
            IF _k.id <> _new.id
               AND (_new.key = ANY (_taken) OR tenure.job_key_is_taken(_k, _now)) THEN
                -- Correct without the lock as well: that job had the key a moment ago.
                _letter := CASE WHEN _k.digest = _new.digest THEN 'e' ELSE 'm' END;
                holders := holders || _k.id;
            ELSIF _new.key = ANY (_busy) THEN
                _letter := 'b';
            ELSE
                _taken := _taken || _new.key;
                -- index: job_key_pkey
                UPDATE tenure.job_key k
                SET id = _new.id, digest = _new.digest, until = _now + abs(_new.keep::bigint),
                    free_at = NULL
                WHERE k.namespace = _namespace AND k.key = _new.key;
            END IF;
        END IF;
        IF _letter = 'c' THEN
            _made := _made || _new.id;
        END IF;
        answers := answers || _letter;
    END LOOP;
END
$$;

-- Whether this key is taken. The caller has locked it. If its row was locked when its job finished, its end
-- was not written there, and follows from the finished job.
CREATE FUNCTION tenure.job_key_is_taken(_k tenure.job_key, _now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey, job_done_pkey
    RETURN _k.until > _now OR (_k.free_at IS NULL AND (
        EXISTS (SELECT FROM tenure.job j
                WHERE j.namespace = _k.namespace AND j.id = _k.id
                  AND j.state IN ('waiting', 'running'))
        OR EXISTS (SELECT FROM tenure.job_done d
                   WHERE d.namespace = _k.namespace AND d.id = _k.id AND d.unique_keep < 0
                     AND d.expires > _now)));
END
$$;

CREATE FUNCTION tenure.job_is_known(_namespace text, _id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey, job_done_pkey
    RETURN EXISTS (SELECT FROM tenure.job j WHERE j.namespace = _namespace AND j.id = _id)
        OR EXISTS (SELECT FROM tenure.job_done d WHERE d.namespace = _namespace AND d.id = _id);
END
$$;

-- Store jobs; see job_admit for the answers. Without keys, when no id may occur twice, all are c, and answers
-- is NULL. _patience is that of job_lock_keys.
CREATE FUNCTION tenure.job_insert(
    _namespace text, _ids text[], _tasks text[], _queues text[], _priorities text[],
    _payloads text[], _tags text[], _delays text[], _ats text[], _timeouts text[],
    _retentions text[], _retentions_failed text[], _options text[], _keys text[], _digests text[],
    _keeps text[], _patience integer, _test_now bigint,
    OUT at bigint, OUT answers text, OUT holders text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- The transaction gets its number before its instant; claim_bounds.py relies on that.
    _number xid8 := pg_current_xact_id();
    _made text[];
BEGIN
    IF _keys IS NOT NULL THEN
        SELECT a.answers, a.holders INTO answers, holders
        FROM tenure.job_admit(_namespace, _ids, _keys, _digests, _keeps, _patience, _test_now) a;
    END IF;
    at := tenure.now(_test_now);
    _made := _ids;
    IF answers IS NOT NULL THEN
        _made := ARRAY(SELECT u.id FROM unnest(_ids) WITH ORDINALITY AS u (id, n)
                       WHERE substr(answers, u.n::integer, 1) = 'c');
    END IF;
    LOOP
        -- ON CONFLICT would cost every job a second look-up and a second record in the log, for
        -- repeats, which are rare.
        BEGIN
            INSERT INTO tenure.job (
                namespace, id, task, queue, priority, payload, tags, timeout, retention,
                retention_failed, options, created, due, since, unique_key, unique_digest, unique_keep
            )
            SELECT _namespace, u.id, u.task, u.queue, u.priority::smallint,
                   decode(u.payload, 'hex'),
                   CASE WHEN u.tags IS NULL THEN '{}'
                        ELSE ARRAY(SELECT json_array_elements_text(u.tags::json)) END,
                   u.timeout::double precision, u.retention::double precision,
                   u.retention_failed::double precision, coalesce(u.options, ''), at,
                   coalesce(u.due_at::bigint, at + u.delay::bigint),
                   CASE WHEN u.due_at IS NULL AND u.delay::bigint > 0 THEN at
                        WHEN u.due_at::bigint > at THEN 0 END,
                   u.key, u.digest, u.keep::bigint
            FROM unnest(
                _ids, _tasks, _queues, _priorities, _payloads, _tags, _delays, _ats, _timeouts,
                _retentions, _retentions_failed, _options, _keys, _digests, _keeps
            ) WITH ORDINALITY AS u (
                id, task, queue, priority, payload, tags, delay, due_at, timeout, retention,
                retention_failed, options, key, digest, keep, n)
            WHERE (answers IS NULL OR substr(answers, u.n::integer, 1) = 'c')
              AND (cardinality(_made) = cardinality(_ids) OR u.id = ANY (_made))
            -- Every caller inserts ids in this order, because two may repeat the same ones.
            ORDER BY u.id COLLATE "C";
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            -- index: job_pkey
            _made := ARRAY(
                SELECT unnest(_made) EXCEPT
                SELECT j.id FROM tenure.job j
                WHERE j.namespace = _namespace AND j.id = ANY (_made));
        END;
    END LOOP;
    -- Repeats of finished jobs. Searched after the insert: a job that finished concurrently was in neither
    -- table as the insert saw them.
    -- index: job_done_pkey
    IF EXISTS (SELECT FROM tenure.job_done d
               WHERE d.namespace = _namespace AND d.id = ANY (_made)) THEN
        -- index: job_done_pkey, job_pkey
        DELETE FROM tenure.job j
        WHERE j.namespace = _namespace AND j.id = ANY (ARRAY(
            SELECT d.id FROM tenure.job_done d
            WHERE d.namespace = _namespace AND d.id = ANY (_made)));
        _made := ARRAY(
            SELECT j.id FROM tenure.job j WHERE j.namespace = _namespace AND j.id = ANY (_made));
    END IF;
    IF _tags IS NOT NULL THEN
        INSERT INTO tenure.job_tag (namespace, tag, id)
        SELECT DISTINCT _namespace, g.tag, u.id
        FROM unnest(_ids, _tags) WITH ORDINALITY AS u (id, tags, n)
        CROSS JOIN LATERAL json_array_elements_text(u.tags::json) AS g (tag)
        WHERE u.tags IS NOT NULL AND u.id = ANY (_made)
          AND (answers IS NULL OR substr(answers, u.n::integer, 1) = 'c');
    END IF;
END
$$;

-- Free the keys of finished jobs, or record when they will be free. It never waits: a transaction with a lock
-- on a key checks itself whether the job lives, and pruning the job frees its key.
CREATE FUNCTION tenure.job_free_keys(
    _namespace text, _ids text[], _keys text[], _now bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Leaves keys that belong to another job by now.
    -- index: job_key_pkey
    _keys := ARRAY(
        SELECT k.key FROM tenure.job_key k
        WHERE k.namespace = _namespace AND k.key = ANY (_keys) AND k.id = ANY (_ids)
        FOR UPDATE SKIP LOCKED);
    -- index: job_key_pkey, job_done_pkey
    UPDATE tenure.job_key k SET until = d.expires
    FROM tenure.job_done d
    WHERE k.namespace = _namespace AND k.key = ANY (_keys) AND d.namespace = _namespace
      AND d.id = k.id AND d.unique_keep < 0 AND d.expires > k.until;
    -- index: job_key_pkey
    DELETE FROM tenure.job_key k
    WHERE k.namespace = _namespace AND k.key = ANY (_keys) AND k.until <= _now;
    UPDATE tenure.job_key k SET free_at = k.until
    WHERE k.namespace = _namespace AND k.key = ANY (_keys);
END
$$;
