-- Format 2, continued: how attempts end; see 2_jobs.sql for the rules.

-- Answer settlements that found no job running under their fence: r repeated, l lost; s stays.
CREATE FUNCTION tenure.job_settled_before_v1(
    _namespace text, _ids text[], _fences text[], _outcomes text[], _settled text[]
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _answers text := '';
    _one record;
BEGIN
    FOR _one IN
        SELECT u.id, u.fence::bigint AS fence, u.outcome
        FROM unnest(_ids, _fences, _outcomes) AS u (id, fence, outcome)
    LOOP
        -- A later statement than the settlement's: it sees what that had to wait for.
        -- index: job_pkey, job_done_pkey
        _answers := _answers || CASE
            WHEN _one.id = ANY (_settled) THEN 's'
            WHEN EXISTS (
                SELECT FROM tenure.job j
                WHERE j.namespace = _namespace AND j.id = _one.id
                  AND j.settled_fence = _one.fence AND j.settled_as = _one.outcome
            ) OR EXISTS (
                SELECT FROM tenure.job_done d
                WHERE d.namespace = _namespace AND d.id = _one.id
                  AND d.settled_fence = _one.fence AND d.settled_as = _one.outcome
            ) THEN 'r'
            ELSE 'l' END;
    END LOOP;
    RETURN _answers;
END
$$;

-- Return jobs to waiting, or finish them if a cancel is pending. The caller has locked all jobs of
-- the batch, and no id is in it twice. Also says of which queues some are due within _soon.
CREATE FUNCTION tenure.job_settle_waiting_v1(
    _namespace text, _ids text[], _fences text[], _outcomes text[], _delays text[],
    _errors text[], _histories text[], _soon bigint, _now bigint,
    OUT ids text[], OUT queues text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _cancelled text[];
BEGIN
    -- index: job_pkey
    WITH asked AS MATERIALIZED (
        SELECT _namespace AS namespace, u.*
        FROM unnest(_ids, _fences, _outcomes, _delays, _errors, _histories)
            AS u (id, fence, outcome, delay, error, history)
        WHERE u.outcome IN ('retry', 'handed back')
    ), moved AS (
        UPDATE tenure.job j
        SET settled_fence = j.fence, settled_as = a.outcome,
            history = coalesce(decode(a.history, 'hex'), j.history),
            failures = j.failures + (a.outcome = 'retry')::integer,
            error = CASE WHEN a.outcome = 'retry' THEN decode(a.error, 'hex') ELSE j.error END,
            state = CASE WHEN j.cancelling THEN j.state ELSE 'waiting' END,
            fence = CASE WHEN j.cancelling THEN j.fence ELSE greatest(j.fence + 1, _now) END,
            -- Without a delay it keeps its place in the queue.
            due = CASE WHEN j.cancelling OR a.delay::bigint = 0 THEN j.due
                       ELSE _now + a.delay::bigint END,
            since = CASE WHEN a.delay::bigint > 0 THEN _now END,
            replica = '', deadline = NULL, revision = j.revision + 1
        FROM asked a
        WHERE j.namespace = a.namespace AND j.id = a.id AND j.fence = a.fence::bigint
          AND j.replica <> ''
        RETURNING j.id, j.queue, j.cancelling, NOT j.cancelling AND j.due <= _now + _soon AS is_soon
    )
    SELECT coalesce(array_agg(m.id), '{}'), array_agg(m.id) FILTER (WHERE m.cancelling),
           array_agg(DISTINCT m.queue) FILTER (WHERE m.is_soon)
    INTO ids, _cancelled, queues
    FROM moved m;
    IF _cancelled IS NOT NULL THEN
        PERFORM tenure.job_finish_v1(_namespace, _cancelled, 'cancelled', _now);
    END IF;
END
$$;

-- End attempts: s settled, r repeated, l lost. No id may be in the batch twice. Also says of which queues
-- some are due within _soon. What somebody holds in a transaction of their own is given up sooner than
-- the whole call, so that the caller can tell.
CREATE FUNCTION tenure.job_settle_v1(
    _namespace text, _ids text[], _fences text[], _outcomes text[], _delays text[],
    _results text[], _errors text[], _reasons text[], _histories text[], _soon bigint,
    _told bigint,
    OUT answers text, OUT queues text[]
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = 2000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    _now bigint;
    _settled text[] := '{}';
    _finished text[];
    _keys text[];
    _waits boolean := _outcomes && ARRAY['retry', 'handed back'];
BEGIN
    IF _waits THEN
        -- Two statements follow, and both together must lock in the order of id.
        -- index: job_pkey
        PERFORM FROM (
            SELECT _namespace AS namespace, u.id FROM unnest(_ids) AS u (id)
            ORDER BY u.id COLLATE "C" OFFSET 0
        ) AS a
        CROSS JOIN LATERAL (
            SELECT FROM tenure.job j WHERE j.namespace = a.namespace AND j.id = a.id FOR UPDATE
        ) AS j;
    END IF;
    _now := tenure.now_v1(_told);
    IF _waits THEN
        SELECT w.ids, w.queues INTO _settled, queues
        FROM tenure.job_settle_waiting_v1(
            _namespace, _ids, _fences, _outcomes, _delays, _errors, _histories, _soon, _now) w;
    END IF;
    -- By id and fence: state = 'running' would let the planner walk over all that runs. The fence
    -- of a job that waits is known to readers, so it must have a replica too.
    -- index: job_pkey
    WITH asked AS MATERIALIZED (
        SELECT _namespace AS namespace, u.*
        FROM unnest(_ids, _fences, _outcomes, _results, _errors, _reasons, _histories)
            AS u (id, fence, outcome, result, error, reason, history)
        WHERE u.outcome IN ('succeeded', 'failed', 'cancelled')
        ORDER BY u.id COLLATE "C"
    ), gone AS (
        DELETE FROM tenure.job j USING asked a
        WHERE j.namespace = a.namespace AND j.id = a.id AND j.fence = a.fence::bigint
          AND j.replica <> ''
        RETURNING j.*, a.outcome, a.result, a.error AS new_error, a.reason AS new_reason,
                  a.history AS new_history
    ), kept AS (
        INSERT INTO tenure.job_done (
            namespace, id, task, queue, priority, state, payload, tags, timeout, retention,
            created, due, attempt, failures, losses, fence, revision, claim_no, started, progress,
            message, checkpoint, reason, error, history, settled_fence, settled_as, unique_key,
            unique_digest, unique_keep, finished, expires, result
        )
        SELECT g.namespace, g.id, g.task, g.queue, g.priority, g.outcome, g.payload, g.tags,
               g.timeout, g.retention, g.created, g.due, g.attempt,
               g.failures + (g.outcome = 'failed')::integer, g.losses, g.fence, g.revision + 1,
               g.claim_no, g.started, g.progress, g.message, g.checkpoint,
               CASE WHEN g.outcome = 'succeeded' THEN '' WHEN g.new_reason = '' THEN g.reason
                    ELSE g.new_reason END,
               CASE g.outcome WHEN 'failed' THEN decode(g.new_error, 'hex')
                    WHEN 'cancelled' THEN g.error END,
               coalesce(decode(g.new_history, 'hex'), g.history),
               g.fence, g.outcome, g.unique_key, g.unique_digest, g.unique_keep,
               _now, _now + round(g.retention * 1000000)::bigint, decode(g.result, 'hex')
        FROM gone g
    )
    SELECT array_agg(g.id), array_agg(g.unique_key) FILTER (WHERE g.unique_key IS NOT NULL)
    INTO _finished, _keys
    FROM gone g;
    IF _keys IS NOT NULL THEN
        PERFORM tenure.job_free_keys_v1(_namespace, _finished, _keys, _now);
    END IF;
    _settled := _settled || _finished;
    IF cardinality(_settled) = cardinality(_ids) THEN
        answers := repeat('s', cardinality(_ids));
    ELSE
        answers := tenure.job_settled_before_v1(_namespace, _ids, _fences, _outcomes, _settled);
    END IF;
END
$$;

-- Whether a job runs under this fence. If so, nobody takes it away before the transaction ends: who
-- would, locks it FOR UPDATE first, and recovery skips what is locked. What it says of itself passes.
CREATE FUNCTION tenure.job_hold_v1(_namespace text, _id text, _fence bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    -- index: job_pkey
    PERFORM FROM tenure.job j
    WHERE j.namespace = _namespace AND j.id = _id AND j.fence = _fence AND j.replica <> ''
    FOR KEY SHARE;
    RETURN FOUND;
END
$$;

-- Store what running jobs say about themselves: y, or n if the fence is not current.
CREATE FUNCTION tenure.job_note_v1(
    _namespace text, _ids text[], _fences text[], _progresses text[], _messages text[],
    _checkpoints text[]
) RETURNS text LANGUAGE plpgsql VOLATILE
SET lock_timeout = 4000 SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _answers text := repeat('n', cardinality(_ids));
    _one record;
BEGIN
    FOR _one IN
        SELECT u.*
        FROM unnest(_ids, _fences, _progresses, _messages, _checkpoints) WITH ORDINALITY
            AS u (id, fence, progress, message, checkpoint, n)
        ORDER BY u.id COLLATE "C", u.n
    LOOP
        -- index: job_pkey
        UPDATE tenure.job j
        SET progress = coalesce(_one.progress::double precision, j.progress),
            message = coalesce(_one.message, j.message),
            checkpoint = coalesce(decode(_one.checkpoint, 'hex'), j.checkpoint),
            revision = tenure.up_v1(j.revision)
        WHERE j.namespace = _namespace AND j.id = _one.id AND j.fence = _one.fence::bigint
          AND j.replica <> '';
        IF FOUND THEN
            _answers := overlay(_answers PLACING 'y' FROM _one.n::integer);
        END IF;
    END LOOP;
    RETURN _answers;
END
$$;
