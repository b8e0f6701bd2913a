-- Grants and refuses leases. These rules hold for all functions; there is one for each call of the store.
--
-- Each function locks first and then reads, in separate statements. Under READ COMMITTED every statement
-- sees what was committed before it began, so a read after the lock is valid while the lock is held. A single
-- statement would use the snapshot from before its wait for the lock, and admit too many.
--
-- Lock order, which excludes deadlocks: rows of lease_key, several of them by key, then rows of
-- lease. Renewals and marks lock only rows of lease, and renewals never wait for one.
--
-- The clock is read after the lock as well, so that the instants of one key only grow.
--
-- Parameters and variables begin with _, columns never do.

-- The instant of a virtual clock, or the clock of this server.
CREATE FUNCTION tenure.now(_test_now bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(_test_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- One more than a stored number. One that is out of bounds stays so, and readers report it.
CREATE FUNCTION tenure.up(_number bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _number BETWEEN 0 AND 253402300799999998 THEN _number + 1 ELSE _number END
$$;

-- The same for counters of 32 bits.
CREATE FUNCTION tenure.up(_number integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _number BETWEEN 0 AND 2147483646 THEN _number + 1 ELSE _number END
$$;

-- The fence after a stored one; NULL after one that is out of bounds: then the clock decides.
CREATE FUNCTION tenure.fence_after(_fence bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _fence BETWEEN 0 AND 253402300799999998 THEN _fence + 1 END
$$;

-- Drop ended leases and waiters, clamp those that a backward clock step made too long, and make the limits
-- exact. Returns the new row of the key. The caller has locked it.
CREATE FUNCTION tenure.lease_settle(_k tenure.lease_key, _now bigint)
RETURNS tenure.lease_key LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _found tenure.lease_key := _k;
    _gone integer;
    _expired bigint[];
    _ended bigint;
BEGIN
    -- index: lease_renewed, lease_ends
    IF _k.held > 0 AND (
        EXISTS (SELECT FROM tenure.lease l WHERE ~l.key_id = ~_k.id AND l.renewed > _now)
        OR EXISTS (SELECT FROM tenure.lease l
                   WHERE -l.key_id = -_k.id AND l.renewed + l.ttl <= _now)
    ) THEN
        UPDATE tenure.lease l SET renewed = _now WHERE ~l.key_id = ~_k.id AND l.renewed > _now;
        -- A locked row stays, and keeps its place: a guard protects it until its transaction
        -- ends, or a renewal in time is about to commit. Waiting for either would block the
        -- whole key. A row with a ttl of 0 was released under a guard.
        WITH gone AS (
            DELETE FROM tenure.lease l
            WHERE l.namespace = _k.namespace AND l.key = _k.key AND l.fence = ANY (ARRAY(
                SELECT e.fence FROM tenure.lease e
                WHERE -e.key_id = -_k.id AND e.renewed + e.ttl <= _now FOR UPDATE SKIP LOCKED))
            RETURNING l.fence, l.renewed + l.ttl AS ended, l.ttl > 0 AND NOT l.kept AS has_expired
        )
        SELECT count(*), array_agg(g.fence) FILTER (WHERE g.has_expired),
               max(g.ended) FILTER (WHERE g.has_expired)
        INTO _gone, _expired, _ended
        FROM gone g;
        _k.held := _k.held - _gone;
        IF _expired IS NOT NULL THEN
            -- The newest 100, as in core.leases.
            _k.expired := ARRAY(
                SELECT newest.fence FROM (
                    SELECT e.fence FROM unnest(_k.expired || _expired) AS e (fence)
                    ORDER BY e.fence DESC LIMIT 100) AS newest
                ORDER BY newest.fence);
            _k.used := greatest(_k.used, _ended);
            _k.used_hour := _k.used / 3600000000;
        END IF;
    END IF;
    -- index: waiter_pkey
    IF _k.waiting > 0 AND EXISTS (
        SELECT FROM tenure.waiter w
        WHERE w.namespace = _k.namespace AND w.key = _k.key
          AND (w.renewed > _now OR w.renewed::float8 + w.life <= _now OR w.life > 10000000000000000)
    ) THEN
        UPDATE tenure.waiter w SET renewed = _now
        WHERE w.namespace = _k.namespace AND w.key = _k.key AND w.renewed > _now;
        -- A waiter with a life of centuries is damaged, and polls again if it is alive.
        DELETE FROM tenure.waiter w
        WHERE w.namespace = _k.namespace AND w.key = _k.key
          AND (w.renewed::float8 + w.life <= _now OR w.life > 10000000000000000);
        GET DIAGNOSTICS _gone = ROW_COUNT;
        _k.waiting := _k.waiting - _gone;
    END IF;
    IF _k.held > 0 AND _k.lowest < _k.highest THEN
        -- Different limits, as in a rolling deployment: the one case that reads every lease.
        -- index: lease_pkey
        SELECT coalesce(min(l."limit"), _k.lowest), coalesce(max(l."limit"), _k.lowest)
        INTO _k.lowest, _k.highest
        FROM tenure.lease l WHERE l.namespace = _k.namespace AND l.key = _k.key;
    END IF;
    IF _k IS DISTINCT FROM _found THEN
        -- index: lease_key_pkey
        UPDATE tenure.lease_key k
        SET held = _k.held, waiting = _k.waiting, lowest = _k.lowest, highest = _k.highest,
            expired = _k.expired, used = _k.used, used_hour = _k.used_hour
        WHERE k.namespace = _k.namespace AND k.key = _k.key;
    END IF;
    RETURN _k;
END
$$;

-- Wake the first waiter if there is room for it. Only then, because a commit that notifies takes a lock of
-- the whole database. The caller has settled the key.
CREATE FUNCTION tenure.lease_wake(_k tenure.lease_key) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _first tenure.waiter;
BEGIN
    -- index: waiter_pkey
    SELECT * INTO _first FROM tenure.waiter w
    WHERE w.namespace = _k.namespace AND w.key = _k.key ORDER BY w.place LIMIT 1;
    IF _first.ear <> '' AND (_k.held = 0 OR _k.held < least(_first."limit", _k.lowest)) THEN
        -- The kind of topic, the namespace (which has no blanks), the name.
        PERFORM pg_notify(_first.ear, 'lease ' || _k.namespace || ' ' || _first.holder);
    END IF;
END
$$;

-- Return the key's row, locked until the transaction ends. It is created on first use.
CREATE FUNCTION tenure.lease_lock(_namespace text, _key text)
RETURNS tenure.lease_key LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _k tenure.lease_key;
BEGIN
    LOOP
        -- index: lease_key_pkey
        SELECT * INTO _k FROM tenure.lease_key k
        WHERE k.namespace = _namespace AND k.key = _key FOR NO KEY UPDATE;
        IF FOUND THEN
            RETURN _k;
        END IF;
        -- Also missing if pruning deleted the row while this waited for it. Its fence is in the floor
        -- then, which the grant reads later.
        INSERT INTO tenure.lease_key (namespace, key) VALUES (_namespace, _key)
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;

-- Return when to try again. If requested, join the queue, or keep the place in it.
CREATE FUNCTION tenure.lease_refuse(
    _k tenure.lease_key, _holder text, _limit integer, _ttl bigint, _meta text,
    _waiting bigint, _ear text, _place bigint, _nth integer, _now bigint, OUT ends bigint
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _k.held > 0 THEN
        -- The lower bound skips old index entries of renewals.
        -- index: lease_ends
        SELECT l.renewed + l.ttl INTO ends FROM tenure.lease l
        WHERE -l.key_id = -_k.id AND l.renewed + l.ttl > _now
        ORDER BY l.renewed + l.ttl OFFSET least(_k.held, _nth) - 1 LIMIT 1;
    ELSE
        -- index: waiter_pkey
        SELECT w.renewed + w.life INTO ends FROM tenure.waiter w
        WHERE w.namespace = _k.namespace AND w.key = _k.key ORDER BY w.place LIMIT 1;
    END IF;
    IF ends IS NULL THEN
        -- Some counted leases have ended, but a guard of unknown length keeps them, or rows were deleted
        -- by hand. Count them again, and let the caller poll again soon.
        -- index: lease_key_pkey, lease_pkey, waiter_pkey
        UPDATE tenure.lease_key k
        SET held = (SELECT count(*) FROM tenure.lease l
                    WHERE l.namespace = _k.namespace AND l.key = _k.key),
            waiting = (SELECT count(*) FROM tenure.waiter w
                       WHERE w.namespace = _k.namespace AND w.key = _k.key)
        WHERE k.namespace = _k.namespace AND k.key = _k.key;
        ends := _now + 100000;
    END IF;
    IF _waiting > 0 AND _place IS NOT NULL THEN
        -- index: waiter_pkey
        UPDATE tenure.waiter w
        SET "limit" = _limit, ttl = _ttl, renewed = _now, life = _waiting, meta = _meta, ear = _ear
        WHERE w.namespace = _k.namespace AND w.key = _k.key AND w.place = _place;
    ELSIF _waiting > 0 THEN
        -- index: waiter_pkey
        INSERT INTO tenure.waiter (
            namespace, key, place, holder, "limit", ttl, arrived, renewed, life, meta, ear
        )
        SELECT _k.namespace, _k.key, coalesce(max(w.place), 0) + 1, _holder, _limit, _ttl, _now,
               _now, _waiting, _meta, _ear
        FROM tenure.waiter w WHERE w.namespace = _k.namespace AND w.key = _k.key;
        -- index: lease_key_pkey
        UPDATE tenure.lease_key k SET waiting = k.waiting + 1
        WHERE k.namespace = _k.namespace AND k.key = _k.key;
    END IF;
    -- A refusal promises nothing that a crash could break (a place in the queue ends during a
    -- restart), so it need not wait for the disk. For this transaction only.
    PERFORM set_config('synchronous_commit', 'off', true);
END
$$;

-- Store the lease and return its fence.
CREATE FUNCTION tenure.lease_grant(
    _k tenure.lease_key, _holder text, _limit integer, _ttl bigint, _meta text, _place bigint,
    _now bigint, OUT fence bigint
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _place IS NOT NULL THEN
        -- index: waiter_pkey
        DELETE FROM tenure.waiter w
        WHERE w.namespace = _k.namespace AND w.key = _k.key AND w.place = _place;
        _k.waiting := _k.waiting - 1;
    END IF;
    -- Read after the key was locked, so that a floor that pruning of this key has raised counts.
    -- index: space_pkey
    fence := greatest(
        tenure.fence_after(_k.fence),
        (SELECT tenure.fence_after(s.floor) FROM tenure.space s WHERE s.namespace = _k.namespace),
        _now);
    INSERT INTO tenure.lease (
        namespace, key, fence, key_id, holder, "limit", ttl, granted, renewed, meta
    )
    VALUES (_k.namespace, _k.key, fence, _k.id, _holder, _limit, _ttl, _now, _now, _meta);
    _k.lowest := CASE WHEN _k.held > 0 THEN least(_k.lowest, _limit) ELSE _limit END;
    _k.highest := CASE WHEN _k.held > 0 THEN greatest(_k.highest, _limit) ELSE _limit END;
    _k.held := _k.held + 1;
    -- index: lease_key_pkey
    UPDATE tenure.lease_key k
    SET fence = lease_grant.fence, used = _now, used_hour = _now / 3600000000,
        held = _k.held, waiting = _k.waiting, lowest = _k.lowest, highest = _k.highest,
        expired = _k.expired[2:]  -- it takes the place of the first one
    WHERE k.namespace = _k.namespace AND k.key = _k.key;
    IF _k.waiting > 0 THEN
        PERFORM tenure.lease_wake(_k);
    END IF;
END
$$;

-- Try once to take a lease: granted if there is a fence, refused otherwise. ahead: of a refusal, the
-- waiters ahead; of a new grant, 1 if it takes the place of an expired lease, else 0.
CREATE FUNCTION tenure.lease_acquire(
    _namespace text, _key text, _holder text, _limit integer, _ttl bigint, _meta text,
    _waiting bigint, _ear text, _test_now bigint,
    OUT at bigint, OUT other_limit integer,
    OUT grant_fence bigint, OUT grant_limit integer, OUT grant_begun bigint, OUT grant_meta text,
    OUT ends bigint, OUT ahead integer
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _k tenure.lease_key := tenure.lease_lock(_namespace, _key);
    _place bigint;
    _room integer;
BEGIN
    at := tenure.now(_test_now);
    IF _k.held > 0 OR _k.waiting > 0 THEN
        _k := tenure.lease_settle(_k, at);
    END IF;
    IF _k.held > 0 THEN
        -- A repeat after a lost reply: the same lease, with its full ttl. An ended lease that a guard
        -- keeps must not be revived.
        -- index: lease_holder
        UPDATE tenure.lease l SET renewed = at, ttl = _ttl
        WHERE l.key_id = _k.id AND l.holder = _holder AND l.renewed + l.ttl > at
        RETURNING l.fence, l."limit", l.granted, l.meta
        INTO grant_fence, grant_limit, grant_begun, grant_meta;
        IF _k.lowest < _k.highest THEN
            -- index: lease_pkey
            SELECT min(l."limit") INTO other_limit FROM tenure.lease l
            WHERE l.namespace = _namespace AND l.key = _key AND l.holder <> _holder
              AND l."limit" <> _limit;
        ELSIF (grant_fence IS NULL OR _k.held > 1) AND _k.lowest <> _limit THEN
            other_limit := _k.lowest;
        END IF;
        IF grant_fence IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    ahead := _k.waiting;
    IF _k.waiting > 0 THEN
        -- index: waiter_holder, waiter_pkey
        SELECT w.place INTO _place FROM tenure.waiter w
        WHERE w.namespace = _namespace AND w.key = _key AND w.holder = _holder;
        IF FOUND THEN
            ahead := (SELECT count(*) FROM tenure.waiter w
                      WHERE w.namespace = _namespace AND w.key = _key AND w.place < _place);
        END IF;
    END IF;
    _room := CASE WHEN _k.held > 0 THEN least(_limit, _k.lowest) ELSE _limit END;
    IF ahead BETWEEN 1 AND _room - 1 THEN
        -- The limits of the waiters ahead bind the caller as well. With as many ahead as its limit
        -- it is refused anyway, so this never reads more rows than the limit.
        -- index: waiter_pkey
        SELECT least(_room, min(w."limit")) INTO _room FROM tenure.waiter w
        WHERE w.namespace = _namespace AND w.key = _key
          AND w.place < coalesce(_place, 9223372036854775807);
    END IF;
    _room := _room - _k.held - ahead;
    IF _room > 0 THEN
        grant_fence := tenure.lease_grant(_k, _holder, _limit, _ttl, _meta, _place, at);
        grant_limit := _limit;
        grant_begun := at;
        grant_meta := _meta;
        ahead := least(cardinality(_k.expired), 1);
    ELSE
        ends := tenure.lease_refuse(
            _k, _holder, _limit, _ttl, _meta, _waiting, _ear, _place, 1 - _room, at);
    END IF;
END
$$;
