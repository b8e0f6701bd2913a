-- All tables.
--
-- Instants and durations are whole microseconds. Names compare by their bytes (COLLATE "C"), which
-- in UTF-8 is the order of code points, and which makes a prefix a range of the index.
--
-- Constraints named ..._sound hold for everything that Tenure writes, with the bounds of core.bounds. They
-- keep other programs from writing numbers that cannot be incremented. Functions do not rely on them, because
-- the owner of a table can drop them: tenure.up and tenure.span stay within the bounds whatever a row has.
--
-- Indexes of jobs begin with namespace, namespace || '' or '' || namespace, which are equal. With a different
-- form for each index, a statement fits only one of them. Given a choice, the planner took the wrong index
-- while a table had no statistics, and visited every job.

-- The formats of the schema, one row for each that was created; code of `readable_from` and later can use it.
CREATE TABLE tenure.format (
    number        integer PRIMARY KEY,
    readable_from integer NOT NULL,
    incarnation   uuid    NOT NULL DEFAULT gen_random_uuid()
);

-- The highest fence of removed keys; see lease_prune.
CREATE TABLE tenure.space (
    namespace text COLLATE "C" PRIMARY KEY,
    floor     bigint NOT NULL,
    CONSTRAINT space_sound CHECK (floor BETWEEN 0 AND 253402300800000000)
);

-- One row for each lease key. Every decision about the key locks it first.
--
-- held and waiting count the rows in tenure.lease and tenure.waiter. They are exact because only the
-- functions of this schema add and delete rows, each under the lock of this row and in the transaction that
-- changes the count. (Deleting rows by hand makes them too large; an acquisition that is refused because of
-- missing rows counts them again.) lowest and highest enclose the limits of the leases; if equal, they are
-- the limit of each. expired has the fences of leases that ended without a release, in order, until a grant
-- takes their place. used is when the key was last granted, or when a lease of it expired since.
--
-- No index covers the columns that a grant changes, so that it is a heap-only update, for which the fill
-- factor leaves room in the page. Pruning finds idle keys by the hour, which seldom changes.
CREATE TABLE tenure.lease_key (
    namespace    text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    id           bigint  NOT NULL GENERATED ALWAYS AS IDENTITY,
    fence        bigint  NOT NULL DEFAULT 0,
    used         bigint  NOT NULL DEFAULT 0,
    used_hour    integer NOT NULL DEFAULT 0,
    held         integer NOT NULL DEFAULT 0,
    waiting      integer NOT NULL DEFAULT 0,
    lowest       integer NOT NULL DEFAULT 0,
    highest      integer NOT NULL DEFAULT 0,
    expired      bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (namespace, key),
    CONSTRAINT lease_key_sound CHECK (
        fence BETWEEN 0 AND 253402300800000000
        AND used BETWEEN -253402300799999999 AND 253402300799999999)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX lease_key_idle ON tenure.lease_key (namespace, used_hour);

-- Leases, including ended ones until the next decision about their key deletes them.
-- kept: its holder has released it, and it stays until its ttl is over.
--
-- A guard locks the primary key: FOR KEY SHARE in a user's transaction lets renewals pass, which change no key
-- column, and prevents the deletion of the row, without which its place is not granted again. So a lease must
-- end by deleting its row, never by updating it.
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
    kept      boolean NOT NULL DEFAULT false,
    PRIMARY KEY (namespace, key, fence),
    CONSTRAINT lease_sound CHECK (
        fence BETWEEN 1 AND 253402300800000000 AND "limit" BETWEEN 1 AND 1000000
        AND ttl BETWEEN 0 AND 10000000000000000
        AND granted BETWEEN -253402300799999999 AND 253402300799999999
        AND renewed BETWEEN -253402300799999999 AND 253402300799999999)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- key_id, -key_id and ~key_id are equivalent. With a different form for each index, a statement fits only one
-- of them. Given a choice, the planner took the wrong index while a table had no statistics, and read every
-- lease of the key.
CREATE INDEX lease_holder ON tenure.lease (key_id, holder);
-- Finds ended leases, and the k-th to end, however many leases there are.
CREATE INDEX lease_ends ON tenure.lease ((-key_id), (renewed + ttl));
-- Finds leases renewed in the future, after the clock was set back.
CREATE INDEX lease_renewed ON tenure.lease ((~key_id), renewed);

-- The waiters of each key, in the order of place. ear is the channel on which its store object listens.
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

-- Durable values that were written under a lease.
CREATE TABLE tenure.mark (
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    value     text   NOT NULL,
    fence     bigint NOT NULL,
    PRIMARY KEY (namespace, key),
    CONSTRAINT mark_sound CHECK (fence BETWEEN 0 AND 253402300800000000)
);

-- Replicas. A running job depends on the row of its replica.
--
-- Beats change no key column, so a claim, which locks the row FOR KEY SHARE, does not block them.
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

-- Not unique, because a beat would visit every earlier version of its row to check that, one for each beat
-- while an old snapshot is open. replica_claim has one row for each.
CREATE INDEX replica_pkey ON tenure.replica (namespace, id);
-- Finds expired replicas; and those renewed in the future, after the clock was set back.
CREATE INDEX replica_ends ON tenure.replica ((namespace || ''), (renewed + ttl));
CREATE INDEX replica_renewed ON tenure.replica (('' || namespace), renewed);
CREATE INDEX replica_dead ON tenure.replica ((namespace || '')) WHERE dead;

-- The last claim of each replica. A separate table, because a claim must not block beats.
--
-- The page of the number is part of the key, so that the newest version of a row is found without visiting
-- all earlier ones, one for each claim while an old snapshot is open. With the number itself in the key, no
-- claim would be a heap-only update.
CREATE TABLE tenure.replica_claim (
    namespace text COLLATE "C" NOT NULL,
    replica   text COLLATE "C" NOT NULL,
    claim_no  bigint NOT NULL DEFAULT 0,
    page      bigint NOT NULL GENERATED ALWAYS AS (claim_no / 50) STORED,
    PRIMARY KEY (namespace, replica, page)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Jobs that are not finished: waiting, running, or (a row that cannot be read) aside.
--
-- A row aside has in `deadline` when it is removed, and is exempt from the constraint. The constraint allows one
-- more than core.bounds, so that an increment never violates it.
-- settled_fence and settled_as are fence and mark of the last settlement, so that a repeat of it is recognised.
-- replica is empty, deadline NULL and cancelling false unless the job is running.
-- since is when the delay of a job began, 0 if its due time was an instant; NULL if it has no delay, and may
-- start whatever the clock shows.
-- retention is for a job that succeeds or is cancelled, retention_failed for one that fails.
-- schedule is empty for jobs that are no run of one.
-- Every job is updated once and deleted once, so vacuum must run early and fast.
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

-- The order in which a queue is served, delayed jobs apart. The cast keeps the planner from splitting the
-- condition.
CREATE INDEX job_ready ON tenure.job (
    (namespace || ''), queue, ((since IS NOT NULL)::integer), priority, (due / 1000), id
) WHERE state = 'waiting';
-- Each delay that begins in the future, after the clock was set back.
CREATE INDEX job_since ON tenure.job (('' || namespace), since) WHERE since > 0;
-- The jobs of a replica.
CREATE INDEX job_held ON tenure.job ((namespace || ''), replica, id) WHERE state = 'running';
CREATE INDEX job_deadline ON tenure.job (('' || namespace), deadline, id)
    WHERE state = 'running' AND deadline IS NOT NULL;
CREATE INDEX job_cancelling ON tenure.job ((namespace || ''), replica, id) WHERE cancelling;
-- The unfinished runs of a schedule, and those on one replica. Without rows aside, which would occupy a
-- place of the limit for good.
CREATE INDEX job_run ON tenure.job ((namespace || ''), schedule, replica, id)
    WHERE schedule <> '' AND state <> 'aside';
-- The few rows that are neither waiting nor running.
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
-- The few that did not succeed.
CREATE INDEX job_done_unsuccessful ON tenure.job_done (('' || namespace), state, id)
    WHERE state <> 'succeeded';

-- The tags of jobs, finished or not. Written once and pruned with the job. Indexes of both tables above would
-- be written again by each claim and each settlement.
CREATE TABLE tenure.job_tag (
    namespace text COLLATE "C" NOT NULL,
    tag       text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX job_tag_id ON tenure.job_tag (namespace, tag, id);

-- Unique keys: taken while the job is in tenure.job, and in any case before the instant `until`. free_at is
-- when it is free, NULL until the job has finished. unique_keep of a job is negative if its key also stays for
-- its retention, which is in `until` once it has finished.
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

-- Paused queues; `until` is NULL for a pause without end.
-- What workers leave for readers, with their beats.
CREATE TABLE tenure.run_stats (
    namespace text COLLATE "C" NOT NULL,
    source    text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    body      bytea  NOT NULL,
    PRIMARY KEY (namespace, source),
    CONSTRAINT run_stats_sound CHECK (at BETWEEN -253402300799999999 AND 253402300799999999)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE tenure.queue_pause (
    namespace text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    until     bigint,
    reason    text   NOT NULL,
    PRIMARY KEY (namespace, queue),
    CONSTRAINT queue_pause_sound CHECK (until BETWEEN -253402300799999999 AND 253402300799999999 IS NOT FALSE)
);

-- One row for each schedule. Every decision about it locks it first. An unsound row counts as missing.
-- last_fence is the highest fence of its runs that were started at once.
-- No index covers the columns that a tick changes, so that it is a heap-only update. Unchanged columns come
-- first, because the log omits the common prefix of both versions of a row.
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

-- A job as callers see it, in the order of core.jobs.records.JobRecord.
CREATE TYPE tenure.job_record AS (
    id text COLLATE "C", task text, queue text COLLATE "C", priority smallint,
    state text COLLATE "C", payload bytea, tags text[], timeout double precision,
    retention double precision, retention_failed double precision, options text,
    created bigint, due bigint, attempt integer, failures integer, losses integer,
    fence bigint, revision bigint, replica text COLLATE "C", started bigint,
    progress double precision, message text, checkpoint bytea, cancelling boolean, reason text,
    finished bigint, result bytea, error bytea, history bytea, schedule text COLLATE "C"
);

-- The record of an unfinished job, with or without large columns. (as_record(j)).* costs no call: the planner
-- inlines the columns, as long as the type has their collations.
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

-- The record of a finished job.
CREATE FUNCTION tenure.as_record(_d tenure.job_done)
RETURNS tenure.job_record LANGUAGE sql IMMUTABLE AS $$
    SELECT (_d.id, _d.task, _d.queue, _d.priority, _d.state, _d.payload, _d.tags, _d.timeout,
            _d.retention, _d.retention_failed, _d.options, _d.created, _d.due, _d.attempt,
            _d.failures, _d.losses, _d.fence, _d.revision, _d.replica, _d.started, _d.progress,
            _d.message, _d.checkpoint, _d.cancelling, _d.reason, _d.finished, _d.result, _d.error,
            _d.history, _d.schedule)::tenure.job_record
$$;
