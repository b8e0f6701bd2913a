-- All that is kept.
--
-- Instants and durations are whole microseconds. Names compare by their bytes (COLLATE "C"), which
-- in UTF-8 is the order of code points, and which makes a prefix a range of the index.
--
-- Constraints named ..._sound hold for everything that Tenure writes, with the bounds of
-- core.soundness. They keep others from writing what cannot be counted up. Functions do not rely on
-- them: whoever owns a table can drop them. Where they count, tenure.up and tenure.span stay within
-- the bounds whatever a row says.
--
-- Of jobs, an index begins with namespace, namespace || '' or '' || namespace, which all say the same.
-- With a form of its own for each index, a statement fits one of them only. Given a choice, the
-- planner took the wrong one while a table had no statistics, and walked over every job.

-- The format of all this, one row for each that was made here; code of `readable_from` and later can use it.
CREATE TABLE tenure.format (
    number        integer PRIMARY KEY,
    readable_from integer NOT NULL,
    incarnation   uuid    NOT NULL DEFAULT gen_random_uuid()
);

-- The last fence that was forgotten together with its key; see lease_prune.
CREATE TABLE tenure.space (
    namespace text COLLATE "C" PRIMARY KEY,
    floor     bigint NOT NULL,
    CONSTRAINT space_sound CHECK (floor BETWEEN 0 AND 253402300800000000)
);

-- One row for each lease key: the row that everything deciding about the key locks first.
--
-- held and waiting count the rows in tenure.lease and tenure.waiter. They are exact because rows
-- are added and removed only by the functions of this schema, each under the lock of this row and
-- in the transaction that changes the count. (Who deletes rows by hand makes them too large; an
-- acquisition that is refused because of rows that it then does not find counts them anew.)
-- lowest and highest enclose the limits of the leases; equal, they are the limit of each.
--
-- No index covers what a grant changes, so that it is a heap-only update, for which the fill
-- factor leaves room in the page. Pruning finds idle keys by the hour, which changes seldom.
CREATE TABLE tenure.lease_key (
    namespace    text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    id           bigint  NOT NULL GENERATED ALWAYS AS IDENTITY,
    fence        bigint  NOT NULL DEFAULT 0,
    granted      bigint  NOT NULL DEFAULT 0,
    granted_hour integer NOT NULL DEFAULT 0,
    held         integer NOT NULL DEFAULT 0,
    waiting      integer NOT NULL DEFAULT 0,
    lowest       integer NOT NULL DEFAULT 0,
    highest      integer NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, key),
    CONSTRAINT lease_key_sound CHECK (
        fence BETWEEN 0 AND 253402300800000000
        AND granted BETWEEN -253402300799999999 AND 253402300799999999)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX lease_key_idle ON tenure.lease_key (namespace, granted_hour);

-- Leases, and for a while those that have ended: the next decision about their key removes them.
--
-- The primary key is what a guard holds on to: FOR KEY SHARE in a user's transaction lets renewals
-- pass, which change no key column, and keeps the row from being deleted, without which nobody
-- else gets its place. For this to hold a lease must end by deleting its row, never by updating it.
CREATE TABLE tenure.lease (
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    fence     bigint  NOT NULL,
    key_id    bigint  NOT NULL,
    holder    text COLLATE "C" NOT NULL,
    "limit"   integer NOT NULL,
    ttl       bigint  NOT NULL,
    granted   bigint  NOT NULL,
    renewed   bigint  NOT NULL,
    meta      text    NOT NULL,
    PRIMARY KEY (namespace, key, fence),
    CONSTRAINT lease_sound CHECK (
        fence BETWEEN 1 AND 253402300800000000 AND "limit" BETWEEN 1 AND 1000000
        AND ttl BETWEEN 0 AND 10000000000000000
        AND granted BETWEEN -253402300799999999 AND 253402300799999999
        AND renewed BETWEEN -253402300799999999 AND 253402300799999999)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- key_id, -key_id and ~key_id say the same. With a form of its own for each index, a statement fits
-- one index only. Given a choice, the planner took the wrong one while a table had no statistics,
-- and read every lease of the key.
CREATE INDEX lease_holder ON tenure.lease (key_id, holder);
-- Finds the ended ones, and the k-th to end, whatever the number of leases.
CREATE INDEX lease_ends ON tenure.lease ((-key_id), (renewed + ttl));
-- Finds those renewed in the future, as seen after the clock was stepped back.
CREATE INDEX lease_renewed ON tenure.lease ((~key_id), renewed);

-- The line for each key, in the order of place. ear is the channel its store object listens on.
CREATE TABLE tenure.waiter (
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    place     bigint  NOT NULL,
    holder    text COLLATE "C" NOT NULL,
    "limit"   integer NOT NULL,
    ttl       bigint  NOT NULL,
    arrived   bigint  NOT NULL,
    renewed   bigint  NOT NULL,
    life      bigint  NOT NULL,
    meta      text    NOT NULL,
    ear       text    NOT NULL,
    PRIMARY KEY (namespace, key, place),
    CONSTRAINT waiter_sound CHECK (
        place BETWEEN 0 AND 253402300799999999 AND "limit" BETWEEN 1 AND 1000000
        AND ttl BETWEEN 0 AND 10000000000000000 AND life BETWEEN 0 AND 10000000000000000
        AND arrived BETWEEN -253402300799999999 AND 253402300799999999
        AND renewed BETWEEN -253402300799999999 AND 253402300799999999)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE UNIQUE INDEX waiter_holder ON tenure.waiter (namespace, key, holder);

-- Durable values that were written under the protection of a lease.
CREATE TABLE tenure.mark (
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    value     text   NOT NULL,
    fence     bigint NOT NULL,
    PRIMARY KEY (namespace, key),
    CONSTRAINT mark_sound CHECK (fence BETWEEN 0 AND 253402300800000000)
);

-- Processes that run work. A job that is running stands on the row of its replica.
--
-- Beats change no key column, so that they pass a claim, which locks the row FOR KEY SHARE.
CREATE TABLE tenure.replica (
    namespace text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    meta      text    NOT NULL,
    joined    bigint  NOT NULL,
    renewed   bigint  NOT NULL,
    ttl       bigint  NOT NULL,
    dead      boolean NOT NULL DEFAULT false,
    taker     text    NOT NULL DEFAULT '',
    taken_until bigint NOT NULL DEFAULT 0,
    CONSTRAINT replica_sound CHECK (
        joined BETWEEN -253402300799999999 AND 253402300799999999
        AND renewed BETWEEN -253402300799999999 AND 253402300799999999
        AND ttl BETWEEN 0 AND 10000000000000000)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Not unique, because a beat would look at every earlier version of its row to check that, and there are as
-- many as beats while an old snapshot is open. There is one row for each one of replica_claim.
CREATE INDEX replica_pkey ON tenure.replica (namespace, id);
-- Finds those that have expired; and those renewed in the future, as seen after a step back.
CREATE INDEX replica_ends ON tenure.replica ((namespace || ''), (renewed + ttl));
CREATE INDEX replica_renewed ON tenure.replica (('' || namespace), renewed);
CREATE INDEX replica_dead ON tenure.replica ((namespace || '')) WHERE dead;

-- The last claim of each replica. Apart from it, because a claim must not hold up beats.
--
-- The page of the number is part of the key, so that the newest version of a row is found without a look at
-- all earlier ones. There are as many as claims while an old snapshot is open. With the number itself in
-- the key, no claim would be a heap-only update.
CREATE TABLE tenure.replica_claim (
    namespace text COLLATE "C" NOT NULL,
    replica   text COLLATE "C" NOT NULL,
    claim_no  bigint NOT NULL DEFAULT 0,
    page      bigint NOT NULL GENERATED ALWAYS AS (claim_no / 50) STORED,
    PRIMARY KEY (namespace, replica, page)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Jobs that are not finished: waiting, running, or (a row that cannot be read) aside.
--
-- A row aside has in `deadline` when it is removed, and is exempt from the constraint. That leaves room
-- for one more than core.soundness, so that counting up never violates it.
-- settled_fence and settled_as are fence and mark of the last settlement, so that a repeat of it is recognised.
-- replica is empty, deadline NULL and cancelling false unless the job is running.
-- since is when a job began to wait for its time, 0 if that was given as an instant; NULL if it waits
-- for its turn alone, and may start whatever the clock shows.
-- retention is for a job that succeeds or is cancelled, retention_failed for one that fails.
-- schedule is empty for jobs that are no run of one.
-- Every job is updated once and deleted once, so vacuum has to come early and work fast.
CREATE TABLE tenure.job (
    namespace     text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    task          text     NOT NULL,
    queue         text COLLATE "C" NOT NULL,
    priority      smallint NOT NULL,
    state         text COLLATE "C" NOT NULL DEFAULT 'waiting',
    payload       bytea    NOT NULL,
    tags          text[]   NOT NULL,
    timeout       double precision,
    retention     double precision NOT NULL,
    retention_failed double precision NOT NULL DEFAULT 0,
    options       text     NOT NULL DEFAULT '',
    created       bigint   NOT NULL,
    due           bigint   NOT NULL,
    since         bigint,
    attempt       integer  NOT NULL DEFAULT 0,
    failures      integer  NOT NULL DEFAULT 0,
    losses        integer  NOT NULL DEFAULT 0,
    fence         bigint   NOT NULL DEFAULT 0,
    revision      bigint   NOT NULL DEFAULT 1,
    replica       text COLLATE "C" NOT NULL DEFAULT '',
    claim_no      bigint   NOT NULL DEFAULT 0,
    started       bigint   NOT NULL DEFAULT 0,
    deadline      bigint,
    progress      double precision,
    message       text     NOT NULL DEFAULT '',
    checkpoint    bytea,
    cancelling    boolean  NOT NULL DEFAULT false,
    reason        text     NOT NULL DEFAULT '',
    error         bytea,
    history       bytea    NOT NULL DEFAULT '',
    settled_fence bigint   NOT NULL DEFAULT 0,
    settled_as    text     NOT NULL DEFAULT '',
    unique_key    text COLLATE "C",
    unique_digest text,
    unique_keep   bigint,
    schedule      text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (namespace, id),
    CONSTRAINT job_sound CHECK (state = 'aside' OR (
        state IN ('waiting', 'running') AND priority BETWEEN 0 AND 9
        AND timeout BETWEEN 0 AND 1e10 IS NOT FALSE AND retention BETWEEN 0 AND 1e10
        AND retention_failed BETWEEN 0 AND 1e10
        AND created BETWEEN -253402300799999999 AND 253402300799999999
        AND due BETWEEN -253402300799999999 AND 253402300799999999
        AND since BETWEEN 0 AND 253402300799999999 IS NOT FALSE
        AND started BETWEEN -253402300799999999 AND 253402300799999999
        AND attempt >= 0 AND failures >= 0 AND losses >= 0
        AND fence BETWEEN 0 AND 253402300800000000
        AND revision BETWEEN 0 AND 253402300800000000
        AND unique_keep BETWEEN -253402300799999999 AND 253402300799999999 IS NOT FALSE))
) WITH (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- The order in which a queue is served; those apart that wait for their time. The cast keeps the planner
-- from taking the question apart.
CREATE INDEX job_ready ON tenure.job (
    (namespace || ''), queue, ((since IS NOT NULL)::integer), priority, (due / 1000), id
) WHERE state = 'waiting';
-- Those that began to wait in the future, as seen after a step back.
CREATE INDEX job_since ON tenure.job (('' || namespace), since) WHERE since > 0;
-- What a replica runs.
CREATE INDEX job_held ON tenure.job ((namespace || ''), replica, id) WHERE state = 'running';
CREATE INDEX job_deadline ON tenure.job (('' || namespace), deadline, id)
    WHERE state = 'running' AND deadline IS NOT NULL;
CREATE INDEX job_cancelling ON tenure.job ((namespace || ''), replica, id) WHERE cancelling;
-- The unfinished runs of a schedule, and those on one replica. What was set aside is none of them:
-- it would take up a place of the limit for good.
CREATE INDEX job_run ON tenure.job ((namespace || ''), schedule, replica, id)
    WHERE schedule <> '' AND state <> 'aside';
-- The few that are neither waiting nor running.
CREATE INDEX job_aside ON tenure.job ((namespace || ''), deadline, id)
    WHERE state <> 'waiting' AND state <> 'running';

-- Finished jobs, until their retention is over.
CREATE TABLE tenure.job_done (
    LIKE tenure.job INCLUDING DEFAULTS,
    finished bigint NOT NULL,
    expires  bigint NOT NULL,
    result   bytea,
    PRIMARY KEY (namespace, id),
    CONSTRAINT job_done_sound CHECK (
        state IN ('succeeded', 'failed', 'cancelled')
        AND fence BETWEEN 0 AND 253402300800000000
        AND revision BETWEEN 0 AND 253402300800000000
        AND finished BETWEEN -253402300799999999 AND 253402300799999999)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX job_done_expires ON tenure.job_done ((namespace || ''), expires, id);
-- The few among the many that succeeded.
CREATE INDEX job_done_unsuccessful ON tenure.job_done (('' || namespace), state, id)
    WHERE state <> 'succeeded';

-- The tags of jobs, finished or not. Written once and pruned with the job: as an index of both tables
-- above, the same would have to be written again by each claim and each settlement.
CREATE TABLE tenure.job_tag (
    namespace text COLLATE "C" NOT NULL,
    tag       text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX job_tag_id ON tenure.job_tag (namespace, tag, id);

-- Unique keys: taken while the job is in tenure.job, and before the instant `until` in any case.
-- free_at is when it is free, NULL as long as the job has not finished. unique_keep of a job is negative
-- if its key also stays for its retention: then that is in `until` once it has finished.
CREATE TABLE tenure.job_key (
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    digest    text   NOT NULL,
    until     bigint NOT NULL,
    free_at   bigint,
    PRIMARY KEY (namespace, key),
    CONSTRAINT job_key_sound CHECK (until BETWEEN -253402300799999999 AND 253402300799999999)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX job_key_free ON tenure.job_key ((namespace || ''), free_at)
    WHERE free_at IS NOT NULL;

-- Paused queues; until NULL they are for good.
CREATE TABLE tenure.queue_pause (
    namespace text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    until     bigint,
    reason    text   NOT NULL,
    PRIMARY KEY (namespace, queue),
    CONSTRAINT queue_pause_sound CHECK (until BETWEEN -253402300799999999 AND 253402300799999999 IS NOT FALSE)
);

-- One row for each schedule: the row that everything deciding about it locks first. One that is not sound
-- counts as not there. last_fence is the highest of its runs that were started at once.
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

-- A job as callers see it, in the order of core.records.JobRecord.
CREATE TYPE tenure.job_record AS (
    id text COLLATE "C", task text, queue text COLLATE "C", priority smallint,
    state text COLLATE "C", payload bytea, tags text[], timeout double precision,
    retention double precision, retention_failed double precision, options text,
    created bigint, due bigint, attempt integer, failures integer, losses integer,
    fence bigint, revision bigint, replica text COLLATE "C", started bigint,
    progress double precision, message text, checkpoint bytea, cancelling boolean, reason text,
    finished bigint, result bytea, error bytea, history bytea, schedule text COLLATE "C"
);

-- An unfinished job as its record, with or without what may be large. (as_record(j)).* costs no call: the
-- planner puts the columns in its place, as long as the type has their collations.
CREATE FUNCTION tenure.as_record(_j tenure.job, _is_whole boolean DEFAULT true)
RETURNS tenure.job_record LANGUAGE sql IMMUTABLE AS $$
    SELECT (_j.id, _j.task, _j.queue, _j.priority, _j.state,
            CASE WHEN _is_whole THEN _j.payload ELSE '' END, _j.tags, _j.timeout, _j.retention,
            _j.retention_failed, _j.options, _j.created, _j.due, _j.attempt, _j.failures, _j.losses,
            _j.fence, _j.revision, _j.replica, _j.started, _j.progress, _j.message,
            CASE WHEN _is_whole THEN _j.checkpoint END, _j.cancelling, _j.reason, 0::bigint,
            NULL::bytea, CASE WHEN _is_whole THEN _j.error END, _j.history, _j.schedule
    )::tenure.job_record
$$;

-- A finished job as its record.
CREATE FUNCTION tenure.as_record(_d tenure.job_done)
RETURNS tenure.job_record LANGUAGE sql IMMUTABLE AS $$
    SELECT (_d.id, _d.task, _d.queue, _d.priority, _d.state, _d.payload, _d.tags, _d.timeout,
            _d.retention, _d.retention_failed, _d.options, _d.created, _d.due, _d.attempt,
            _d.failures, _d.losses, _d.fence, _d.revision, _d.replica, _d.started, _d.progress,
            _d.message, _d.checkpoint, _d.cancelling, _d.reason, _d.finished, _d.result, _d.error,
            _d.history, _d.schedule)::tenure.job_record
$$;
