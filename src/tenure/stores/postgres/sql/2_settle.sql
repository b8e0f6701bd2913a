-- Format 2, continued: how attempts end; see 2_jobs.sql for the rules.

-- A settlement comes as a move, the word of core.records.Settlement.move: one digit each for the state that
-- the job gets (0 waiting, 2 succeeded, 3 failed, 4 cancelled), whether it yields to a pending cancel, how
-- many failures and losses to add; then its mark, by which a repeat is recognised.

-- Answer settlements: s settled, c cancelled instead, r repeated, l lost.
CREATE FUNCTION tenure.job_settled_before_v1(
    _namespace text, _ids text[], _fences text[], _moves text[], _settled text[], _cancelled text[]
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _answers text := '';
    _one record;
BEGIN
    FOR _one IN
        SELECT u.id, u.fence::bigint AS fence, substr(u.move, 5) AS mark
        FROM unnest(_ids, _fences, _moves) AS u (id, fence, move)
    LOOP
        -- A later statement than the settlement's: it sees what that had to wait for.
        -- index: job_pkey, job_done_pkey
        _answers := _answers || CASE
            WHEN _one.id = ANY (_cancelled) THEN 'c'
            WHEN _one.id = ANY (_settled) THEN 's'
            WHEN EXISTS (
                SELECT FROM tenure.job j
                WHERE j.namespace = _namespace AND j.id = _one.id
                  AND j.settled_fence = _one.fence AND j.settled_as = _one.mark
            ) OR EXISTS (
                SELECT FROM tenure.job_done d
                WHERE d.namespace = _namespace AND d.id = _one.id
                  AND d.settled_fence = _one.fence AND d.settled_as = _one.mark
            ) THEN 'r'
            ELSE 'l' END;
    END LOOP;
    RETURN _answers;
END
$$;

-- Settle what waits again or yields to a pending cancel: the latter finish as cancelled. The caller has
-- locked all jobs of the batch, and no id is in it twice. Also says of which queues some are due within
-- _soon.
CREATE FUNCTION tenure.job_settle_yielding_v1(
    _namespace text, _ids text[], _fences text[], _moves text[], _delays text[],
    _errors text[], _reasons text[], _histories text[], _soon bigint, _now bigint,
    OUT ids text[], OUT cancelled text[], OUT queues text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _failed text[];
BEGIN
    -- What is to finish goes on running here, though nowhere, and is moved below.
    -- index: job_pkey
    WITH asked AS MATERIALIZED (
        SELECT _namespace AS namespace, u.id, u.fence::bigint AS fence, substr(u.move, 5) AS mark,
               u.move LIKE '0%' AS waits, u.move LIKE '__1%' AS fails, u.move LIKE '___1%' AS loses,
               u.delay::bigint AS delay, decode(u.error, 'hex') AS error, u.reason,
               decode(u.history, 'hex') AS history
        FROM unnest(_ids, _fences, _moves, _delays, _errors, _reasons, _histories)
            AS u (id, fence, move, delay, error, reason, history)
        WHERE u.move ~ '^(0|.1)'
    ), moved AS (
        UPDATE tenure.job j
        SET settled_fence = j.fence, settled_as = a.mark, history = coalesce(a.history, j.history),
            failures = CASE WHEN a.fails THEN tenure.up_v1(j.failures) ELSE j.failures END,
            losses = CASE WHEN a.loses THEN tenure.up_v1(j.losses) ELSE j.losses END,
            error = CASE WHEN a.waits OR j.cancelling THEN coalesce(a.error, j.error)
                         ELSE a.error END,
            reason = CASE WHEN a.waits OR j.cancelling OR a.reason = '' THEN j.reason
                          ELSE a.reason END,
            state = CASE WHEN a.waits AND NOT j.cancelling THEN 'waiting' ELSE j.state END,
            fence = CASE WHEN a.waits AND NOT j.cancelling
                         THEN greatest(tenure.up_v1(j.fence), _now) ELSE j.fence END,
            -- Without a delay it keeps its place in the queue.
            due = CASE WHEN a.waits AND NOT j.cancelling AND a.delay > 0 THEN _now + a.delay
                       ELSE j.due END,
            since = CASE WHEN a.waits AND a.delay > 0 THEN _now END,
            replica = '', deadline = NULL, revision = tenure.up_v1(j.revision)
        FROM asked a
        WHERE j.namespace = a.namespace AND j.id = a.id AND j.fence = a.fence AND j.replica <> ''
        RETURNING j.id, j.queue, j.state, j.cancelling,
                  j.since IS NULL OR j.due <= _now + _soon AS is_soon
    )
    SELECT coalesce(array_agg(m.id), '{}'),
           coalesce(array_agg(m.id) FILTER (WHERE m.cancelling), '{}'),
           array_agg(m.id) FILTER (WHERE m.state <> 'waiting' AND NOT m.cancelling),
           array_agg(DISTINCT m.queue) FILTER (WHERE m.state = 'waiting' AND m.is_soon)
    INTO ids, cancelled, _failed, queues
    FROM moved m;
    IF cancelled <> '{}' THEN
        PERFORM tenure.job_finish_v1(_namespace, cancelled, 'cancelled', _now);
    END IF;
    IF _failed IS NOT NULL THEN
        PERFORM tenure.job_finish_v1(_namespace, _failed, 'failed', _now);
    END IF;
END
$$;

-- End attempts, and answer for each. No id may be in the batch twice. Also says of which queues some are
-- due within _soon. What somebody holds in a transaction of their own is given up sooner than the whole
-- call, so that the caller can tell.
CREATE FUNCTION tenure.job_settle_v1(
    _namespace text, _ids text[], _fences text[], _moves text[], _delays text[],
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
    _cancelled text[] := '{}';
    _finished text[];
    _keys text[];
    -- No query, which would cost every settlement.
    _yield boolean := array_to_string(_moves, E'\n') ~ E'(^|\n)(0|.1)';
BEGIN
    IF _yield THEN
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
    IF _yield THEN
        SELECT y.ids, y.cancelled, y.queues INTO _settled, _cancelled, queues
        FROM tenure.job_settle_yielding_v1(_namespace, _ids, _fences, _moves, _delays, _errors,
                                           _reasons, _histories, _soon, _now) y;
    END IF;
    -- By id and fence: state = 'running' would let the planner walk over all that runs. The fence
    -- of a job that waits is known to readers, so it must have a replica too.
    -- index: job_pkey
    WITH asked AS MATERIALIZED (
        SELECT _namespace AS namespace, u.*,
               CASE left(u.move, 1) WHEN '2' THEN 'succeeded' WHEN '3' THEN 'failed'
                    ELSE 'cancelled' END AS end_state
        FROM unnest(_ids, _fences, _moves, _results, _errors, _reasons, _histories)
            AS u (id, fence, move, result, error, reason, history)
        WHERE u.move ~ '^[234]0'
        ORDER BY u.id COLLATE "C"
    ), gone AS (
        DELETE FROM tenure.job j USING asked a
        WHERE j.namespace = a.namespace AND j.id = a.id AND j.fence = a.fence::bigint
          AND j.replica <> ''
        RETURNING j.*, a.end_state, a.move, a.result, a.error AS new_error, a.reason AS new_reason,
                  a.history AS new_history
    ), kept AS (
        INSERT INTO tenure.job_done (
            namespace, id, task, queue, priority, state, payload, tags, timeout, retention,
            retention_failed, options, created, due, attempt, failures, losses, fence, revision,
            claim_no, started, progress, message, checkpoint, reason, error, history,
            settled_fence, settled_as, unique_key, unique_digest, unique_keep, schedule,
            finished, expires, result
        )
        SELECT g.namespace, g.id, g.task, g.queue, g.priority, g.end_state, g.payload, g.tags,
               g.timeout, g.retention, g.retention_failed, g.options, g.created, g.due, g.attempt,
               CASE WHEN g.move LIKE '__1%' THEN tenure.up_v1(g.failures) ELSE g.failures END,
               CASE WHEN g.move LIKE '___1%' THEN tenure.up_v1(g.losses) ELSE g.losses END,
               g.fence, tenure.up_v1(g.revision), g.claim_no, g.started, g.progress, g.message,
               g.checkpoint,
               CASE WHEN g.end_state = 'succeeded' THEN '' WHEN g.new_reason = '' THEN g.reason
                    ELSE g.new_reason END,
               CASE WHEN g.end_state = 'cancelled' THEN coalesce(decode(g.new_error, 'hex'), g.error)
                    ELSE decode(g.new_error, 'hex') END,
               coalesce(decode(g.new_history, 'hex'), g.history),
               g.fence, substr(g.move, 5), g.unique_key, g.unique_digest, g.unique_keep,
               g.schedule, _now,
               _now + tenure.retention_v1(g.end_state, g.retention, g.retention_failed),
               decode(g.result, 'hex')
        FROM gone g
    )
    SELECT array_agg(g.id), array_agg(g.unique_key) FILTER (WHERE g.unique_key IS NOT NULL)
    INTO _finished, _keys
    FROM gone g;
    IF _keys IS NOT NULL THEN
        PERFORM tenure.job_free_keys_v1(_namespace, _finished, _keys, _now);
    END IF;
    _settled := _settled || _finished;
    IF cardinality(_settled) = cardinality(_ids) AND _cancelled = '{}' THEN
        answers := repeat('s', cardinality(_ids));
    ELSE
        answers := tenure.job_settled_before_v1(
            _namespace, _ids, _fences, _moves, _settled, _cancelled);
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
