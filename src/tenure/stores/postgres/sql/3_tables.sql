-- Format 3: what is kept about timers and schedules. Rules of formats 1 and 2 apply.

-- Two tables get columns, which nobody may read or write meanwhile. Others queue up behind whoever waits
-- for a table, so this waits briefly, lets them pass, and tries again: somebody may hold a job in a
-- transaction of their own. Who locks a view locks its tables.
DO $$
BEGIN
    FOR _try IN 1..30 LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '700', true);
            LOCK TABLE tenure.job_record IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF _try = 30 THEN
                RAISE;
            END IF;
        END;
        PERFORM pg_sleep(0.5);
    END LOOP;
END
$$;

-- schedule is empty for jobs that are no run of one. The release before this one makes such jobs.
ALTER TABLE tenure.job
    ADD COLUMN schedule text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN rerun boolean NOT NULL DEFAULT true;
ALTER TABLE tenure.job_done
    ADD COLUMN schedule text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN rerun boolean NOT NULL DEFAULT true;

-- The unfinished runs of a schedule, and those on one replica. What was set aside is none of them: it
-- would take up a place of the limit for good.
CREATE INDEX job_run ON tenure.job ((namespace || ''), schedule, replica, id)
    WHERE schedule <> '' AND state <> 'aside';

-- One row for each schedule: the row that everything deciding about it locks first.
--
-- digests are those of the definitions that have ruled, the present one last, and calendar is the same
-- for definitions with the same ticks. last_fence is the highest of its runs that were born running.
-- last_move is the id of the last move, so that a repeat of it is recognised, and the next two are what
-- came of it. decided is the number of the newest decision.
--
-- No index covers what a tick changes, so that it is a heap-only update.
CREATE TABLE tenure.schedule (
    namespace    text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    revision     bigint NOT NULL DEFAULT 1,
    definition   bytea  NOT NULL DEFAULT '',
    calendar     text   NOT NULL DEFAULT '',
    digests      text[] NOT NULL DEFAULT '{}',
    cursor       bigint NOT NULL DEFAULT 0,
    last_run     bigint NOT NULL DEFAULT 0,
    last_job     text   NOT NULL DEFAULT '',
    last_fence   bigint NOT NULL DEFAULT 0,
    planted      bigint NOT NULL DEFAULT 0,
    declared     bigint NOT NULL DEFAULT 0,
    successor    text COLLATE "C" NOT NULL DEFAULT '',
    last_move    text   NOT NULL DEFAULT '',
    last_outcome text   NOT NULL DEFAULT '',
    last_reason  text   NOT NULL DEFAULT '',
    decided      bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, name),
    CONSTRAINT schedule_sound CHECK (
        revision BETWEEN 0 AND 253402300800000000
        AND cursor BETWEEN -253402300799999999 AND 253402300799999999
        AND last_run BETWEEN -253402300799999999 AND 253402300799999999
        AND last_fence BETWEEN 0 AND 253402300800000000
        AND planted BETWEEN -253402300799999999 AND 253402300799999999
        AND declared BETWEEN -253402300799999999 AND 253402300799999999
        AND decided BETWEEN 0 AND 253402300800000000)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Pauses of schedules, or under the name * of all; until NULL they are for good.
CREATE TABLE tenure.schedule_freeze (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    since     bigint NOT NULL,
    until     bigint,
    reason    text   NOT NULL,
    PRIMARY KEY (namespace, name),
    CONSTRAINT schedule_freeze_sound CHECK (
        since BETWEEN -253402300799999999 AND 253402300799999999
        AND until BETWEEN -253402300799999999 AND 253402300799999999 IS NOT FALSE)
);

-- What became of the ticks of a schedule, numbered from the oldest.
CREATE TABLE tenure.schedule_decision (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    number    bigint NOT NULL,
    outcome   text   NOT NULL,
    reason    text   NOT NULL,
    first     bigint NOT NULL,
    last      bigint NOT NULL,
    ticks     bigint NOT NULL,
    at        bigint NOT NULL,
    job       text   NOT NULL,
    replica   text   NOT NULL,
    PRIMARY KEY (namespace, name, number),
    CONSTRAINT schedule_decision_sound CHECK (
        outcome IN ('ran', 'skipped', 'missed')
        AND number BETWEEN 0 AND 253402300800000000
        AND first BETWEEN -253402300799999999 AND 253402300799999999
        AND last BETWEEN -253402300799999999 AND 253402300799999999
        AND ticks BETWEEN 0 AND 253402300799999999
        AND at BETWEEN -253402300799999999 AND 253402300799999999)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- As in format 2, and whose run it is.
CREATE OR REPLACE VIEW tenure.job_record AS
SELECT namespace, id, task, queue, priority, state, payload, tags, timeout, retention, created, due,
       attempt, failures, losses, fence, revision, replica, started, progress, message, checkpoint,
       cancelling, reason, 0::bigint AS finished, NULL::bytea AS result, error, history, schedule,
       rerun, retention_failed, retry
FROM tenure.job WHERE state IS DISTINCT FROM 'aside'
UNION ALL
SELECT namespace, id, task, queue, priority, state, payload, tags, timeout, retention, created, due,
       attempt, failures, losses, fence, revision, replica, started, progress, message, checkpoint,
       cancelling, reason, finished, result, error, history, schedule, rerun,
       retention_failed, retry
FROM tenure.job_done;

CREATE TYPE tenure.job_v2 AS (
    id text, task text, queue text, priority smallint, state text, payload bytea, tags text[],
    timeout double precision, retention double precision, created bigint, due bigint,
    attempt integer, failures integer, losses integer, fence bigint, revision bigint,
    replica text, started bigint, progress double precision, message text, checkpoint bytea,
    cancelling boolean, reason text, finished bigint, result bytea, error bytea, history bytea,
    schedule text, rerun boolean, retention_failed double precision, retry text
);

-- The arguments of the calls about schedules come as JSON, in these forms; bytes as hexadecimal digits.
CREATE TYPE tenure.planting_v1 AS (
    name text, digest text, calendar text, definition text, renamed_from text[]
);
CREATE TYPE tenure.bound_v1 AS (most integer, reason text, otherwise text);
CREATE TYPE tenure.run_v1 AS (
    task text, queue text, priority smallint, payload text, tags text[], timeout double precision,
    retention double precision, retention_failed double precision, retry text, rerun boolean
);
CREATE TYPE tenure.decision_v1 AS (
    outcome text, reason text, first bigint, last bigint, ticks bigint, job text, replica text
);
CREATE TYPE tenure.advance_v1 AS (
    id text, name text, revision bigint, seen bigint, tick bigint, due bigint, run tenure.run_v1,
    replica text, rest bigint, total tenure.bound_v1, own tenure.bound_v1,
    passed tenure.decision_v1[], forced boolean
);

-- The answer to a move. cancelled are the jobs that changed besides the run, replicas where they run.
CREATE TYPE tenure.advanced_v1 AS (
    outcome text, cursor bigint, revision bigint, last_run bigint, now bigint, reason text,
    ready_in bigint, has_run boolean, cancelled text[], replicas text[]
);
