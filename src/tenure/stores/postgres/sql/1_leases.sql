-- Format 1: what is decided about leases, one function for each call.
--
-- Each function locks first and then looks, in separate statements. Under READ COMMITTED every
-- statement sees what was committed before it began, so what it reads after the lock is true as
-- long as the lock is held. A single statement would count with the snapshot from before its wait
-- for the lock, and admit too many.
--
-- Lock order, which excludes deadlocks: rows of lease_key, several of them by key, then rows of
-- lease. Renewals and marks lock only rows of lease, and renewals never wait for one.
--
-- The clock is read after the lock too, so that the instants of one key only grow.
--
-- Names end in a version: a later format adds functions and keeps these, because the release
-- before it still calls them while a deployment rolls on. Parameters and variables begin with _,
-- columns never do.

-- The instant the caller was told to use, or the clock of this server.
CREATE FUNCTION tenure.now_v1(_told bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(_told, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- Drop what has ended, clamp what a backward clock step made too long; return the row corrected.
-- The caller holds the lock of the key's row and writes the result back.
CREATE FUNCTION tenure.lease_settle_v1(_k tenure.lease_key, _now bigint)
RETURNS tenure.lease_key LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _gone integer;
BEGIN
    -- index: lease_renewed, lease_ends
    IF _k.held > 0 AND (
        EXISTS (SELECT FROM tenure.lease l
                WHERE l.namespace = _k.namespace AND l.key = _k.key AND l.renewed > _now)
        OR EXISTS (SELECT FROM tenure.lease l
                   WHERE l.namespace = _k.namespace AND l.key = _k.key
                     AND l.renewed + l.ttl <= _now)
    ) THEN
        UPDATE tenure.lease l SET renewed = _now
        WHERE l.namespace = _k.namespace AND l.key = _k.key AND l.renewed > _now;
        -- A row that is locked stays, and keeps its place: a guard protects it until its
        -- transaction ends, or a renewal that came in time is about to commit. Waiting for either
        -- would hold up the whole key.
        DELETE FROM tenure.lease l
        WHERE l.namespace = _k.namespace AND l.key = _k.key AND l.fence = ANY (ARRAY(
            SELECT e.fence FROM tenure.lease e
            WHERE e.namespace = _k.namespace AND e.key = _k.key AND e.renewed + e.ttl <= _now
            FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS _gone = ROW_COUNT;
        _k.held := _k.held - _gone;
    END IF;
    -- index: waiter_pkey
    IF _k.waiting > 0 AND EXISTS (
        SELECT FROM tenure.waiter w
        WHERE w.namespace = _k.namespace AND w.key = _k.key
          AND (w.renewed > _now OR w.renewed + w.life <= _now)
    ) THEN
        UPDATE tenure.waiter w SET renewed = _now
        WHERE w.namespace = _k.namespace AND w.key = _k.key AND w.renewed > _now;
        DELETE FROM tenure.waiter w
        WHERE w.namespace = _k.namespace AND w.key = _k.key AND w.renewed + w.life <= _now;
        GET DIAGNOSTICS _gone = ROW_COUNT;
        _k.waiting := _k.waiting - _gone;
    END IF;
    RETURN _k;
END
$$;

-- Tell the first in line that there is room for it, if there is. Only then: a commit that notifies
-- takes a lock of the whole database.
CREATE FUNCTION tenure.lease_wake_v1(_k tenure.lease_key) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _first tenure.waiter;
    _smallest integer := _k.lowest;
BEGIN
    -- index: waiter_pkey
    SELECT * INTO _first FROM tenure.waiter w
    WHERE w.namespace = _k.namespace AND w.key = _k.key ORDER BY w.place LIMIT 1;
    IF _k.held > 0 AND _k.lowest < _k.highest THEN
        -- index: lease_pkey
        SELECT min(l."limit") INTO _smallest FROM tenure.lease l
        WHERE l.namespace = _k.namespace AND l.key = _k.key;
    END IF;
    IF _first.ear <> '' AND (
        _k.held = 0 OR _k.held < least(_first."limit", _smallest)
    ) THEN
        -- With the namespace, because it is what the holder's name is unique in.
        PERFORM pg_notify(_first.ear, _k.namespace || ' ' || _first.holder);
    END IF;
END
$$;

-- Try once to take a lease. With grant_fence it is granted; else ends and ahead tell the refusal.
CREATE FUNCTION tenure.lease_acquire_v1(
    _namespace text, _key text, _holder text, _limit integer, _ttl bigint, _meta text,
    _waiting bigint, _ear text, _told bigint,
    OUT at bigint, OUT other_limit integer,
    OUT grant_fence bigint, OUT grant_limit integer, OUT grant_begun bigint, OUT grant_meta text,
    OUT ends bigint, OUT ahead integer
) LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    _k tenure.lease_key;
    _found tenure.lease_key;
    _place bigint;
    _low integer;
    _high integer;
    _effective integer := _limit;
BEGIN
    LOOP
        -- index: lease_key_pkey
        SELECT * INTO _k FROM tenure.lease_key k
        WHERE k.namespace = _namespace AND k.key = _key FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        -- Not FOUND also when pruning deleted the row while this waited for it. Its fence is in
        -- the floor then, which is read below, after this row is there.
        INSERT INTO tenure.lease_key (namespace, key) VALUES (_namespace, _key)
        ON CONFLICT DO NOTHING;
    END LOOP;
    at := tenure.now_v1(_told);
    _found := _k;
    IF _k.held > 0 OR _k.waiting > 0 THEN
        _k := tenure.lease_settle_v1(_k, at);
    END IF;

    IF _k.held > 0 THEN
        -- Asked again after a lost reply: the same lease, with its full ttl. One that has ended
        -- and is still there is guarded, and not to be revived.
        -- index: lease_holder
        UPDATE tenure.lease l SET renewed = at, ttl = _ttl
        WHERE l.namespace = _namespace AND l.key = _key AND l.holder = _holder
          AND l.renewed + l.ttl > at
        RETURNING l.fence, l."limit", l.granted, l.meta
        INTO grant_fence, grant_limit, grant_begun, grant_meta;
        IF _k.lowest < _k.highest THEN
            -- Different limits, as in a rolling deployment: the one case that looks at each lease.
            -- index: lease_pkey
            SELECT min(l."limit"), max(l."limit") INTO _low, _high FROM tenure.lease l
            WHERE l.namespace = _namespace AND l.key = _key AND l.holder <> _holder;
        ELSIF _k.held > 1 OR grant_fence IS NULL THEN
            _low := _k.lowest;
            _high := _k.lowest;
        END IF;
        IF _low <> _limit OR _high <> _limit THEN
            other_limit := _low;
        END IF;
        IF grant_fence IS NOT NULL THEN
            IF _k IS DISTINCT FROM _found THEN
                UPDATE tenure.lease_key k SET held = _k.held, waiting = _k.waiting
                WHERE k.namespace = _namespace AND k.key = _key;
            END IF;
            RETURN;
        END IF;
        _k.lowest := coalesce(_low, _limit);
        _k.highest := coalesce(_high, _limit);
        _effective := least(_limit, _low);
    END IF;

    ahead := _k.waiting;
    IF _k.waiting > 0 THEN
        -- index: waiter_holder, waiter_pkey
        SELECT w.place INTO _place FROM tenure.waiter w
        WHERE w.namespace = _namespace AND w.key = _key AND w.holder = _holder;
        IF FOUND THEN
            SELECT count(*) INTO ahead FROM tenure.waiter w
            WHERE w.namespace = _namespace AND w.key = _key AND w.place < _place;
        END IF;
    END IF;

    IF _k.held + ahead >= _effective THEN
        IF _k.held > 0 THEN
            -- index: lease_ends
            SELECT l.renewed + l.ttl INTO ends FROM tenure.lease l
            WHERE l.namespace = _namespace AND l.key = _key ORDER BY l.renewed + l.ttl
            OFFSET least(_k.held, _k.held + ahead - _effective + 1) - 1 LIMIT 1;
        ELSE
            -- index: waiter_pkey
            SELECT w.renewed + w.life INTO ends FROM tenure.waiter w
            WHERE w.namespace = _namespace AND w.key = _key ORDER BY w.place LIMIT 1;
        END IF;
        IF ends IS NULL THEN
            -- Rows were deleted by hand. Count, and let the caller ask again at once.
            SELECT count(*) INTO _k.held FROM tenure.lease l
            WHERE l.namespace = _namespace AND l.key = _key;
            SELECT count(*) INTO _k.waiting FROM tenure.waiter w
            WHERE w.namespace = _namespace AND w.key = _key;
            ends := at;
        ELSIF ends <= at THEN
            -- The place is kept by a guard, whose end nobody knows: look again soon.
            ends := at + 100000;
        END IF;
        IF _waiting > 0 AND _place IS NOT NULL THEN
            -- index: waiter_pkey
            UPDATE tenure.waiter w
            SET "limit" = _limit, ttl = _ttl, renewed = at, life = _waiting, meta = _meta, ear = _ear
            WHERE w.namespace = _namespace AND w.key = _key AND w.place = _place;
        ELSIF _waiting > 0 THEN
            INSERT INTO tenure.waiter
            SELECT _namespace, _key, coalesce(max(w.place), 0) + 1, _holder, _limit, _ttl, at, at,
                   _waiting, _meta, _ear
            FROM tenure.waiter w WHERE w.namespace = _namespace AND w.key = _key;
            _k.waiting := _k.waiting + 1;
        END IF;
        IF _k IS DISTINCT FROM _found THEN
            UPDATE tenure.lease_key k
            SET held = _k.held, waiting = _k.waiting, lowest = _k.lowest, highest = _k.highest
            WHERE k.namespace = _namespace AND k.key = _key;
        END IF;
        -- A refusal promises nothing that a crash could break (a place in the line lives no longer
        -- than a restart takes), so it need not wait for the disk. For this transaction only.
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN;
    END IF;

    IF _place IS NOT NULL THEN
        DELETE FROM tenure.waiter w
        WHERE w.namespace = _namespace AND w.key = _key AND w.place = _place;
        _k.waiting := _k.waiting - 1;
    END IF;
    grant_limit := _limit;
    grant_begun := at;
    grant_meta := _meta;
    INSERT INTO tenure.lease (
        namespace, key, fence, holder, "limit", ttl, granted, renewed, meta
    ) VALUES (
        _namespace, _key,
        greatest(
            _k.fence + 1,
            (SELECT s.floor FROM tenure.space s WHERE s.namespace = _namespace) + 1,
            at),
        _holder, _limit, _ttl, at, at, _meta
    ) RETURNING fence INTO grant_fence;
    UPDATE tenure.lease_key k
    SET fence = grant_fence, granted = at, granted_hour = at / 3600000000,
        held = _k.held + 1, waiting = _k.waiting,
        lowest = CASE WHEN _k.held = 0 THEN _limit ELSE _effective END,
        highest = CASE WHEN _k.held = 0 THEN _limit ELSE greatest(_k.highest, _limit) END
    WHERE k.namespace = _namespace AND k.key = _key
    RETURNING * INTO _k;
    IF _k.waiting > 0 THEN
        PERFORM tenure.lease_wake_v1(_k);
    END IF;
END
$$;
