-- Format 2: what is kept about jobs and the replicas that run them. Rules of format 1 apply.
--
-- An index begins with namespace, namespace || '' or '' || namespace, which all say the same. With a
-- form of its own for each index, a statement fits one of them only. Given a choice, the planner
-- took the wrong one while a table had no statistics, and walked over every job.

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
-- for one more than job_is_sound_v1, so that counting up never violates it.
-- settled_fence and settled_as are fence and mark of the last settlement, so that a repeat of it is recognised.
-- replica is empty, deadline NULL and cancelling false unless the job is running.
-- since is when a job began to wait for its time, 0 if that was given as an instant; NULL if it waits
-- for its turn alone, and may start whatever the clock shows.
-- retention is for a job that succeeds or is cancelled, retention_failed for one that fails.
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
    PRIMARY KEY (namespace, queue),
    CONSTRAINT queue_pause_sound CHECK (until BETWEEN -253402300799999999 AND 253402300799999999 IS NOT FALSE)
);

-- A job as callers see it, for reading by (namespace, id).
CREATE VIEW tenure.job_record AS
SELECT namespace, id, task, queue, priority, state, payload, tags, timeout, retention, created, due,
       attempt, failures, losses, fence, revision, replica, started, progress, message, checkpoint,
       cancelling, reason, 0::bigint AS finished, NULL::bytea AS result, error, history
FROM tenure.job WHERE state IS DISTINCT FROM 'aside'
UNION ALL
SELECT namespace, id, task, queue, priority, state, payload, tags, timeout, retention, created, due,
       attempt, failures, losses, fence, revision, replica, started, progress, message, checkpoint,
       cancelling, reason, finished, result, error, history
FROM tenure.job_done;

-- The same without the namespace: what functions of this format return.
CREATE TYPE tenure.job_v1 AS (
    id text, task text, queue text, priority smallint, state text, payload bytea, tags text[],
    timeout double precision, retention double precision, created bigint, due bigint,
    attempt integer, failures integer, losses integer, fence bigint, revision bigint,
    replica text, started bigint, progress double precision, message text, checkpoint bytea,
    cancelling boolean, reason text, finished bigint, result bytea, error bytea, history bytea
);
