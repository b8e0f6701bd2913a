-- Format 3, continued: what changes for jobs that are runs of schedules; see 2_jobs.sql for the rules.
--
-- These replace functions of format 2, because the release before this one calls them while a deployment
-- rolls on, and must not return a run to waiting that may not run again. For all other jobs they do
-- what they did; they are the ones in force.

-- Move jobs that the caller has locked to the finished ones. This is not the way of `settle`, which
-- does the same in one statement.
CREATE OR REPLACE FUNCTION tenure.job_finish_v1(_namespace text, _ids text[], _state text, _now bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _keys text[];
BEGIN
    -- index: job_pkey
    WITH gone AS (
        DELETE FROM tenure.job j WHERE j.namespace = _namespace AND j.id = ANY (_ids) RETURNING j.*
    ), kept AS (
        INSERT INTO tenure.job_done (
            namespace, id, task, queue, priority, state, payload, tags, timeout, retention,
            retention_failed, retry, created, due, attempt, failures, losses, fence, revision, claim_no, started, progress,
            message, checkpoint, reason, error, history, settled_fence, settled_as, unique_key,
            unique_digest, unique_keep, schedule, rerun, finished, expires
        )
        SELECT g.namespace, g.id, g.task, g.queue, g.priority, _state, g.payload, g.tags, g.timeout,
               g.retention, g.retention_failed, g.retry, g.created, g.due, g.attempt, g.failures, g.losses, g.fence,
               tenure.up_v1(g.revision), g.claim_no, g.started, g.progress, g.message, g.checkpoint,
               g.reason, g.error, g.history, g.settled_fence, g.settled_as, g.unique_key,
               g.unique_digest, g.unique_keep, g.schedule, g.rerun, _now,
               _now + tenure.retention_v1(_state, g.retention, g.retention_failed)
        FROM gone g
    )
    SELECT array_agg(g.unique_key) INTO _keys FROM gone g WHERE g.unique_key IS NOT NULL;
    IF _keys IS NOT NULL THEN
        PERFORM tenure.job_free_keys_v1(_namespace, _ids, _keys, _now);
    END IF;
END
$$;

-- Return jobs to waiting, or finish them if a cancel is pending or they may not run again. The caller
-- has locked all jobs of the batch, and no id is in it twice. Also says of which queues some are due
-- within _soon.
CREATE OR REPLACE FUNCTION tenure.job_settle_waiting_v1(
    _namespace text, _ids text[], _fences text[], _outcomes text[], _delays text[],
    _errors text[], _histories text[], _soon bigint, _now bigint,
    OUT ids text[], OUT queues text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _cancelled text[];
    _failed text[];
BEGIN
    -- What is to finish goes on running here, though nowhere, and is moved below.
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
            failures = CASE WHEN a.outcome = 'retry' THEN tenure.up_v1(j.failures)
                            ELSE j.failures END,
            error = CASE WHEN NOT j.rerun AND NOT j.cancelling THEN NULL
                         WHEN a.outcome = 'retry' THEN decode(a.error, 'hex') ELSE j.error END,
            reason = CASE WHEN NOT j.rerun AND NOT j.cancelling THEN 'interrupted'
                          ELSE j.reason END,
            state = CASE WHEN j.cancelling OR NOT j.rerun THEN j.state ELSE 'waiting' END,
            fence = CASE WHEN j.cancelling OR NOT j.rerun THEN j.fence
                         ELSE greatest(tenure.up_v1(j.fence), _now) END,
            -- Without a delay it keeps its place in the queue.
            due = CASE WHEN j.cancelling OR NOT j.rerun OR a.delay::bigint = 0 THEN j.due
                       ELSE _now + a.delay::bigint END,
            since = CASE WHEN a.delay::bigint > 0 THEN _now END,
            replica = '', deadline = NULL, revision = tenure.up_v1(j.revision)
        FROM asked a
        WHERE j.namespace = a.namespace AND j.id = a.id AND j.fence = a.fence::bigint
          AND j.replica <> ''
        RETURNING j.id, j.queue, j.state, j.cancelling,
                  j.since IS NULL OR j.due <= _now + _soon AS is_soon
    )
    SELECT coalesce(array_agg(m.id), '{}'), array_agg(m.id) FILTER (WHERE m.cancelling),
           array_agg(m.id) FILTER (WHERE m.state <> 'waiting' AND NOT m.cancelling),
           array_agg(DISTINCT m.queue) FILTER (WHERE m.state = 'waiting' AND m.is_soon)
    INTO ids, _cancelled, _failed, queues
    FROM moved m;
    IF _cancelled IS NOT NULL THEN
        PERFORM tenure.job_finish_v1(_namespace, _cancelled, 'cancelled', _now);
    END IF;
    IF _failed IS NOT NULL THEN
        PERFORM tenure.job_finish_v1(_namespace, _failed, 'failed', _now);
    END IF;
END
$$;

-- End attempts: s settled, r repeated, l lost. No id may be in the batch twice. Also says of which queues
-- some are due within _soon. What somebody holds in a transaction of their own is given up sooner than
-- the whole call, so that the caller can tell.
CREATE OR REPLACE FUNCTION tenure.job_settle_v1(
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
            retention_failed, retry, created, due, attempt, failures, losses, fence, revision, claim_no, started, progress,
            message, checkpoint, reason, error, history, settled_fence, settled_as, unique_key,
            unique_digest, unique_keep, schedule, rerun, finished, expires, result
        )
        SELECT g.namespace, g.id, g.task, g.queue, g.priority, g.outcome, g.payload, g.tags,
               g.timeout, g.retention, g.retention_failed, g.retry, g.created, g.due, g.attempt,
               CASE WHEN g.outcome = 'failed' THEN tenure.up_v1(g.failures) ELSE g.failures END,
               g.losses, g.fence, tenure.up_v1(g.revision),
               g.claim_no, g.started, g.progress, g.message, g.checkpoint,
               CASE WHEN g.outcome = 'succeeded' THEN '' WHEN g.new_reason = '' THEN g.reason
                    ELSE g.new_reason END,
               CASE g.outcome WHEN 'failed' THEN decode(g.new_error, 'hex')
                    WHEN 'cancelled' THEN g.error END,
               coalesce(decode(g.new_history, 'hex'), g.history),
               g.fence, g.outcome, g.unique_key, g.unique_digest, g.unique_keep, g.schedule,
               g.rerun, _now,
               _now + tenure.retention_v1(g.outcome, g.retention, g.retention_failed),
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
    IF cardinality(_settled) = cardinality(_ids) THEN
        answers := repeat('s', cardinality(_ids));
    ELSE
        answers := tenure.job_settled_before_v1(_namespace, _ids, _fences, _outcomes, _settled);
    END IF;
END
$$;

-- Take running jobs, which the caller has locked, from their replicas. With _delays a loss is counted:
-- due after the one for its losses, failed if there is none. Without, due at once. One that may not run
-- again fails in either case.
CREATE OR REPLACE FUNCTION tenure.job_return_v1(
    _namespace text, _ids text[], _delays bigint[], _now bigint
) RETURNS SETOF tenure.job_returned_v1 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _most integer := cardinality(_delays);
    _cancelled text[];
    _failed text[];
BEGIN
    -- What is to finish is only counted here, and moved below. The line is the one that
    -- core.records.write_history makes.
    -- index: job_pkey
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT _namespace AS namespace, u.id, u.n FROM unnest(_ids) WITH ORDINALITY AS u (id, n)
    ), was AS MATERIALIZED (
        SELECT a.namespace, a.id, a.n, j.replica, CASE
                   WHEN j.cancelling THEN 'cancelled'
                   WHEN NOT j.rerun OR _delays IS NOT NULL AND j.losses >= _most THEN 'failed'
               END AS finish
        FROM asked a JOIN tenure.job j ON j.namespace = a.namespace AND j.id = a.id
    ), moved AS (
        UPDATE tenure.job j
        SET losses = CASE WHEN _delays IS NOT NULL THEN tenure.up_v1(j.losses) ELSE j.losses END,
            history = CASE WHEN _delays IS NULL THEN j.history ELSE j.history || convert_to(
                '{"attempt":' || j.attempt || ',"replica":' || to_json(j.replica) || ',"started":'
                || j.started || ',"ended":' || _now || E',"outcome":"lost"}\n', 'UTF8') END,
            state = CASE WHEN w.finish IS NULL THEN 'waiting' ELSE j.state END,
            fence = CASE WHEN w.finish IS NULL THEN greatest(tenure.up_v1(j.fence), _now)
                         ELSE j.fence END,
            -- Without a delay it keeps its place in the queue.
            due = CASE WHEN w.finish IS NOT NULL OR coalesce(_delays[tenure.up_v1(j.losses)], 0) = 0
                       THEN j.due ELSE _now + _delays[tenure.up_v1(j.losses)] END,
            since = CASE WHEN _delays[tenure.up_v1(j.losses)] > 0 THEN _now END,
            reason = CASE WHEN w.finish IS DISTINCT FROM 'failed' THEN j.reason
                          WHEN _delays IS NULL THEN 'interrupted' ELSE 'lost' END,
            error = CASE WHEN w.finish = 'failed' THEN NULL ELSE j.error END,
            replica = '', deadline = NULL, revision = tenure.up_v1(j.revision)
        FROM was w WHERE j.namespace = w.namespace AND j.id = w.id
        RETURNING w.n, j.id, w.replica, coalesce(w.finish, 'waiting') AS state, j.losses, j.queue,
                  CASE WHEN w.finish IS NOT NULL THEN NULL WHEN j.since IS NULL THEN 0
                       ELSE greatest(j.due, -253402300799999999) - _now END AS due_in
    )
    SELECT m.id, m.replica, m.state, m.losses, m.queue, m.due_in FROM moved m ORDER BY m.n;
    -- Which they were is told by what was written: they run, and nowhere.
    -- index: job_pkey
    SELECT array_agg(j.id) FILTER (WHERE j.cancelling),
           array_agg(j.id) FILTER (WHERE NOT j.cancelling)
    INTO _cancelled, _failed
    FROM tenure.job j
    WHERE j.namespace = _namespace AND j.id = ANY (_ids) AND j.replica = '' AND j.state <> 'waiting';
    IF _cancelled IS NOT NULL THEN
        PERFORM tenure.job_finish_v1(_namespace, _cancelled, 'cancelled', _now);
    END IF;
    IF _failed IS NOT NULL THEN
        PERFORM tenure.job_finish_v1(_namespace, _failed, 'failed', _now);
    END IF;
END
$$;

-- Decide whether a job may wait again, and take its key: r requeued, u unfinished, x conflict, - no such
-- job. The caller has locked the keys named in _locked, and the rows of job_done; jobs in _moving are
-- about to wait.
CREATE OR REPLACE FUNCTION tenure.job_may_requeue_v1(
    _namespace text, _id text, _locked text[], _moving text[], _now bigint
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _d record;
    _k tenure.job_key;
BEGIN
    -- index: job_done_pkey
    SELECT d.unique_key, d.unique_digest, d.unique_keep, d.schedule INTO _d FROM tenure.job_done d
    WHERE d.namespace = _namespace AND d.id = _id;
    IF NOT FOUND THEN
        -- index: job_pkey
        RETURN CASE WHEN EXISTS (
            SELECT FROM tenure.job j WHERE j.namespace = _namespace AND j.id = _id
        ) THEN 'u' ELSE '-' END;
    END IF;
    IF _d.schedule <> '' THEN
        RETURN 'x';  -- job_requeue_v2 knows better
    END IF;
    IF _d.unique_key IS NULL THEN
        RETURN 'r';
    END IF;
    IF _d.unique_key <> ALL (_locked) THEN
        RETURN 'u';  -- it was, when the keys were read
    END IF;
    -- index: job_key_pkey
    SELECT * INTO _k FROM tenure.job_key k
    WHERE k.namespace = _namespace AND k.key = _d.unique_key;
    IF _k.id <> _id AND (_k.id = ANY (_moving) OR tenure.job_key_is_taken_v1(_k, _now)) THEN
        RETURN 'x';
    END IF;
    -- index: job_key_pkey
    UPDATE tenure.job_key k
    SET id = _id, digest = _d.unique_digest, free_at = NULL,
        until = _now + least(abs(greatest(_d.unique_keep, -10000000000000000)), 10000000000000000)
    WHERE k.namespace = _namespace AND k.key = _d.unique_key;
    RETURN 'r';
END
$$;
