-- Format 1: what is kept about leases.
--
-- Instants and durations are whole microseconds. Names compare by their bytes (COLLATE "C"), which
-- in UTF-8 is the order of code points, and which makes a prefix a range of the index.
--
-- Constraints named ..._sound hold for everything that Tenure writes, with the bounds of
-- core.soundness. They keep others from writing what cannot be counted up. Functions do not rely on
-- them: whoever owns a table can drop them. Where they count, tenure.up_v1 and tenure.span_v1 stay
-- within the bounds whatever a row says.

-- The last fence that was forgotten together with its key; see lease_prune_v1.
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
