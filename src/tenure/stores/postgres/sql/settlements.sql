-- Settlements and notes of jobs; see jobs.sql for the rules.
--
-- A settlement comes as a move, the word of core.jobs.records.Settlement.move: one digit each for the new
-- state (0 waiting, 2 succeeded, 3 failed, 4 cancelled), whether it yields to a pending cancellation, and how
-- many failures and losses to add; then its mark, by which a repeat is recognised.

-- Let jobs wait again: the attempts of a batch with that end, except for _cancelled. Returns them, and the
-- queues of those that are due within _soon.
CREATE FUNCTION tenure.job_return(
    _namespace text, _ids text[], _fences text[], _moves text[], _delays text[], _errors text[],
    _histories text[], _cancelled text[], _soon bigint, _now bigint,
    OUT ids text[], OUT queues text[]
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey
    WITH asked AS MATERIALIZED (
        SELECT _namespace AS namespace, u.id, u.fence::bigint AS fence, u.move,
               u.delay::bigint AS delay, decode(u.error, 'hex') AS error,
               decode(u.history, 'hex') AS history
        FROM unnest(_ids, _fences, _moves, _delays, _errors, _histories)
            AS u (id, fence, move, delay, error, history)
        WHERE u.move LIKE '0%' AND u.id <> ALL (_cancelled)
    ), moved AS (
        UPDATE tenure.job j
        SET state = 'waiting', settled_fence = j.fence, settled_as = substr(a.move, 5),
            history = coalesce(a.history, j.history), error = coalesce(a.error, j.error),
            failures = CASE WHEN a.move LIKE '__1%' THEN tenure.up(j.failures) ELSE j.failures END,
            losses = CASE WHEN a.move LIKE '___1%' THEN tenure.up(j.losses) ELSE j.losses END,
            fence = greatest(tenure.up(j.fence), _now),
            -- Without a delay it keeps its place in the queue.
            due = CASE WHEN a.delay > 0 THEN _now + a.delay ELSE j.due END,
            since = CASE WHEN a.delay > 0 THEN _now END,
            replica = '', deadline = NULL, revision = tenure.up(j.revision)
        FROM asked a
        WHERE j.namespace = a.namespace AND j.id = a.id AND j.fence = a.fence AND j.replica <> ''
        RETURNING j.id, j.queue, j.since IS NULL OR j.due <= _now + _soon AS is_soon
    )
    SELECT array_agg(m.id), array_agg(DISTINCT m.queue) FILTER (WHERE m.is_soon)
    INTO ids, queues
    FROM moved m;
END
$$;

-- Move jobs to the finished ones: the attempts of a batch with that end, and _cancelled as cancelled. With
-- _runs false they are waiting jobs, and no attempt ends. Returns them.
CREATE FUNCTION tenure.job_finish(
    _namespace text, _ids text[], _fences text[], _moves text[], _results text[], _errors text[],
    _reasons text[], _histories text[], _cancelled text[], _runs boolean, _now bigint
) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _finished text[];
    _keys text[];
BEGIN
    -- By id and fence: state = 'running' would let the planner visit all running jobs. Readers know
    -- the fence of a waiting job, so this also checks for a replica.
    -- index: job_pkey
    WITH asked AS MATERIALIZED (
        SELECT _namespace AS namespace, u.*, u.id = ANY (_cancelled) AS yields,
               CASE WHEN u.id = ANY (_cancelled) THEN 'cancelled' WHEN u.move LIKE '2%' THEN 'succeeded'
                    WHEN u.move LIKE '3%' THEN 'failed' ELSE 'cancelled' END AS end_state
        FROM unnest(_ids, _fences, _moves, _results, _errors, _reasons, _histories)
            AS u (id, fence, move, result, error, reason, history)
        WHERE u.move NOT LIKE '0%' OR u.id = ANY (_cancelled)
        ORDER BY u.id COLLATE "C"
    ), gone AS (
        DELETE FROM tenure.job j USING asked a
        WHERE j.namespace = a.namespace AND j.id = a.id AND j.fence = a.fence::bigint
          AND (j.replica <> '') = _runs
        RETURNING j.*, a.end_state, a.yields, a.move, a.result, a.error AS new_error,
                  a.reason AS new_reason, a.history AS new_history
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
               CASE WHEN g.move LIKE '__1%' THEN tenure.up(g.failures) ELSE g.failures END,
               CASE WHEN g.move LIKE '___1%' THEN tenure.up(g.losses) ELSE g.losses END,
               g.fence, tenure.up(g.revision), g.claim_no, g.started, g.progress, g.message,
               g.checkpoint,
               CASE WHEN g.end_state = 'succeeded' THEN ''
                    WHEN g.yields OR g.new_reason = '' THEN g.reason ELSE g.new_reason END,
               CASE WHEN g.end_state = 'cancelled' THEN coalesce(decode(g.new_error, 'hex'), g.error)
                    ELSE decode(g.new_error, 'hex') END,
               coalesce(decode(g.new_history, 'hex'), g.history),
               CASE WHEN _runs THEN g.fence ELSE g.settled_fence END,
               CASE WHEN _runs THEN substr(g.move, 5) ELSE g.settled_as END,
               g.unique_key, g.unique_digest, g.unique_keep, g.schedule, _now,
               _now + tenure.retention(g.end_state, g.retention, g.retention_failed),
               CASE WHEN NOT g.yields THEN decode(g.result, 'hex') END
        FROM gone g
    )
    SELECT coalesce(array_agg(g.id), '{}'),
           array_agg(g.unique_key) FILTER (WHERE g.unique_key IS NOT NULL)
    INTO _finished, _keys
    FROM gone g;
    IF _keys IS NOT NULL THEN
        PERFORM tenure.job_free_keys(_namespace, _finished, _keys, _now);
    END IF;
    RETURN _finished;
END
$$;

-- End attempts, with an answer for each: s settled, c cancelled, r repeated, l lost. No id may be in the
-- batch twice. Also returns the queues of jobs that are due within _soon. Waiting for a job that a transaction
-- of a user has locked ends before the call's time-out, so that the caller can distinguish it.
CREATE FUNCTION tenure.job_settle(
    _namespace text, _ids text[], _fences text[], _moves text[], _delays text[],
    _results text[], _errors text[], _reasons text[], _histories text[], _soon bigint,
    _test_now bigint,
    OUT answers text, OUT queues text[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint;
    _settled text[] := '{}';
    _cancelled text[] := '{}';
    -- No query, because its cost would apply to every settlement.
    _yield boolean := array_to_string(_moves, E'\n') ~ E'(^|\n)(0|.1)';
BEGIN
    IF _yield THEN
        -- Some wait again, or yield to a pending cancellation. Several statements follow, which together must lock
        -- in the order of id.
        -- index: job_pkey
        SELECT coalesce(array_agg(j.id) FILTER (
            WHERE j.cancelling AND j.fence = a.fence::bigint AND a.move ~ '^(0|.1)'), '{}')
        INTO _cancelled
        FROM (
            SELECT _namespace AS namespace, u.* FROM unnest(_ids, _fences, _moves) AS u (id, fence, move)
            ORDER BY u.id COLLATE "C" OFFSET 0
        ) AS a
        CROSS JOIN LATERAL (
            SELECT * FROM tenure.job j WHERE j.namespace = a.namespace AND j.id = a.id FOR UPDATE
        ) AS j;
    END IF;
    _now := tenure.now(_test_now);
    IF _yield THEN
        SELECT r.ids, r.queues INTO _settled, queues
        FROM tenure.job_return(_namespace, _ids, _fences, _moves, _delays, _errors, _histories,
                               _cancelled, _soon, _now) r;
    END IF;
    _settled := _settled || tenure.job_finish(
        _namespace, _ids, _fences, _moves, _results, _errors, _reasons, _histories, _cancelled,
        true, _now);
    IF cardinality(_settled) = cardinality(_ids) AND _cancelled = '{}' THEN
        answers := repeat('s', cardinality(_ids));
    ELSE
        -- A later statement than the settlement, so it sees what that had to wait for.
        -- index: job_pkey, job_done_pkey
        SELECT string_agg(CASE
            WHEN u.id = ANY (_cancelled) THEN 'c'
            WHEN u.id = ANY (_settled) THEN 's'
            WHEN (u.fence::bigint, substr(u.move, 5)) = coalesce(
                (SELECT (j.settled_fence, j.settled_as) FROM tenure.job j
                 WHERE j.namespace = _namespace AND j.id = u.id),
                (SELECT (d.settled_fence, d.settled_as) FROM tenure.job_done d
                 WHERE d.namespace = _namespace AND d.id = u.id)) THEN 'r'
            ELSE 'l' END, '' ORDER BY u.n) INTO answers
        FROM unnest(_ids, _fences, _moves) WITH ORDINALITY AS u (id, fence, move, n);
    END IF;
END
$$;

-- Whether a job runs under this fence. If so, it cannot be taken over before the transaction ends: a change
-- of its holder needs FOR UPDATE, and recovery skips locked rows. Its notes pass.
CREATE FUNCTION tenure.job_hold(_namespace text, _id text, _fence bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- index: job_pkey
    PERFORM FROM tenure.job j
    WHERE j.namespace = _namespace AND j.id = _id AND j.fence = _fence AND j.replica <> ''
    FOR KEY SHARE;
    RETURN FOUND;
END
$$;

-- Store the progress and checkpoints of running jobs: y, or n if the fence is not current.
CREATE FUNCTION tenure.job_note(
    _namespace text, _ids text[], _fences text[], _progresses text[], _messages text[],
    _checkpoints text[]
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _answers text := repeat('n', cardinality(_ids));
    _note record;
BEGIN
    FOR _note IN
        SELECT u.*
        FROM unnest(_ids, _fences, _progresses, _messages, _checkpoints) WITH ORDINALITY
            AS u (id, fence, progress, message, checkpoint, n)
        ORDER BY u.id COLLATE "C", u.n
    LOOP
        -- index: job_pkey
        UPDATE tenure.job j
        SET progress = coalesce(_note.progress::double precision, j.progress),
            message = coalesce(_note.message, j.message),
            checkpoint = coalesce(decode(_note.checkpoint, 'hex'), j.checkpoint),
            revision = tenure.up(j.revision)
        WHERE j.namespace = _namespace AND j.id = _note.id AND j.fence = _note.fence::bigint
          AND j.replica <> '';
        IF FOUND THEN
            _answers := overlay(_answers PLACING 'y' FROM _note.n::integer);
        END IF;
    END LOOP;
    RETURN _answers;
END
$$;
