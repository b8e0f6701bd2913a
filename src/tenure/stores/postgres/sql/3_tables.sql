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
    ADD COLUMN schedule text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE tenure.job_done
    ADD COLUMN schedule text COLLATE "C" NOT NULL DEFAULT '';

-- The unfinished runs of a schedule, and those on one replica. What was set aside is none of them: it
-- would take up a place of the limit for good.
CREATE INDEX job_run ON tenure.job ((namespace || ''), schedule, replica, id)
    WHERE schedule <> '' AND state <> 'aside';

-- One row for each schedule: the row that everything deciding about it locks first. One that is not sound
-- counts as not there. last_fence is the highest of its runs that were born running.
-- No index covers what a tick changes, so that it is a heap-only update. What it leaves alone comes first:
-- the log leaves out how both versions of a row begin.
CREATE TABLE tenure.schedule (
    namespace  text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    definition text   NOT NULL,
    ruler      text   NOT NULL,
    version    text   NOT NULL,
    standing   text   NOT NULL,
    declared   bigint NOT NULL,
    last_run   bigint NOT NULL DEFAULT 0,
    last_job   text   NOT NULL DEFAULT '',
    last_fence bigint NOT NULL DEFAULT 0,
    is_sound   boolean GENERATED ALWAYS AS (
        num_nulls(definition, ruler, version, standing, declared, last_run, last_job) = 0
        AND greatest(declared, last_run) <= 253402300799999999
        AND least(declared, last_run) >= -253402300799999999) STORED,
    PRIMARY KEY (namespace, name),
    CONSTRAINT schedule_sound CHECK (is_sound AND last_fence BETWEEN 0 AND 253402300799999999)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The history of a schedule, numbered from the oldest line.
CREATE TABLE tenure.schedule_decision (
    namespace text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    number    bigint NOT NULL,
    "like"    text   NOT NULL,
    first     bigint NOT NULL,
    last      bigint NOT NULL,
    ticks     bigint NOT NULL,
    at        bigint NOT NULL,
    body      text   NOT NULL,
    PRIMARY KEY (namespace, name, number),
    CONSTRAINT schedule_decision_sound CHECK (
        greatest(number, first, last, ticks, at) <= 253402300799999999
        AND least(first, last, at) >= -253402300799999999 AND least(number, ticks) >= 0)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- As in format 2, and whose run it is.
CREATE OR REPLACE VIEW tenure.job_record AS
SELECT namespace, id, task, queue, priority, state, payload, tags, timeout, retention, created, due,
       attempt, failures, losses, fence, revision, replica, started, progress, message, checkpoint,
       cancelling, reason, 0::bigint AS finished, NULL::bytea AS result, error, history, schedule,
       retention_failed, options
FROM tenure.job WHERE state IS DISTINCT FROM 'aside'
UNION ALL
SELECT namespace, id, task, queue, priority, state, payload, tags, timeout, retention, created, due,
       attempt, failures, losses, fence, revision, replica, started, progress, message, checkpoint,
       cancelling, reason, finished, result, error, history, schedule,
       retention_failed, options
FROM tenure.job_done;

CREATE TYPE tenure.job_v2 AS (
    id text, task text, queue text, priority smallint, state text, payload bytea, tags text[],
    timeout double precision, retention double precision, created bigint, due bigint,
    attempt integer, failures integer, losses integer, fence bigint, revision bigint,
    replica text, started bigint, progress double precision, message text, checkpoint bytea,
    cancelling boolean, reason text, finished bigint, result bytea, error bytea, history bytea,
    schedule text, retention_failed double precision, options text
);
