-- Renews, ends and uses leases; see leases.sql for the rules.
--
-- Batches come as JSON, and answers go as text with a letter for each lease: for arrays, asyncpg first
-- queries the types on every new connection, which takes as long as a hundred calls.

-- Give each lease its full ttl again: y, or n if it does not exist or has ended. A question mark means that
-- another transaction has it locked: waiting could outlast the caller, and it may still be renewed.
CREATE FUNCTION tenure.lease_renew(_namespace text, _leases json, _test_now bigint)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _answers text := '';
    _lease record;
    _ends bigint;
    _now bigint;
BEGIN
    FOR _lease IN
        SELECT * FROM json_to_recordset(_leases)
        AS asked (key text, holder text, fence bigint, ttl bigint, kept boolean)
    LOOP
        -- Not FOR UPDATE, which would block on a guard's FOR KEY SHARE.
        -- index: lease_pkey
        SELECT CASE WHEN l.ttl > 0 THEN l.renewed + l.ttl ELSE 0 END INTO _ends
        FROM tenure.lease l
        WHERE l.namespace = _namespace AND l.key = _lease.key AND l.fence = _lease.fence
          AND l.holder = _lease.holder
        FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            _now := tenure.now(_test_now);
            IF _ends > _now THEN
                UPDATE tenure.lease l
                SET renewed = _now, ttl = _lease.ttl, kept = l.kept OR _lease.kept IS TRUE
                WHERE l.namespace = _namespace AND l.key = _lease.key AND l.fence = _lease.fence;
            END IF;
            _answers := _answers || CASE WHEN _ends > _now THEN 'y' ELSE 'n' END;
        ELSE
            _answers := _answers || CASE WHEN EXISTS (
                SELECT FROM tenure.lease l
                WHERE l.namespace = _namespace AND l.key = _lease.key AND l.fence = _lease.fence
                  AND l.holder = _lease.holder
            ) THEN '?' ELSE 'n' END;
        END IF;
    END LOOP;
    RETURN _answers;
END
$$;

-- End one lease. Returns whether it was live, and how many rows were deleted. The caller has locked the key.
CREATE FUNCTION tenure.lease_end(
    _k tenure.lease_key, _holder text, _fence bigint, _now bigint,
    OUT live boolean, OUT gone integer
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    live := false;
    FOR _try IN 1 .. 2 LOOP
        -- index: lease_holder, lease_pkey
        DELETE FROM tenure.lease l
        WHERE l.namespace = _k.namespace AND l.key = _k.key AND l.fence = (
            SELECT h.fence FROM tenure.lease h
            WHERE h.key_id = _k.id AND h.holder = _holder AND _fence IN (0, h.fence)
              AND (live OR (h.ttl > 0 AND h.renewed + h.ttl > _now))
            LIMIT 1 FOR UPDATE SKIP LOCKED);
        GET DIAGNOSTICS gone = ROW_COUNT;
        live := live OR gone > 0;
        EXIT WHEN gone > 0 OR _try = 2;
        -- Missing, or locked by a renewal or a guard. Waiting for a guard could deadlock, because its
        -- transaction may be the caller's own. So the lease is ended, which a guard does not block. Its
        -- row is deleted at once after a renewal, else with the first decision after the guard.
        -- index: lease_holder
        UPDATE tenure.lease l SET ttl = 0
        WHERE l.key_id = _k.id AND l.holder = _holder AND _fence IN (0, l.fence)
          AND l.ttl > 0 AND l.renewed + l.ttl > _now;
        live := FOUND;
        EXIT WHEN NOT live;
    END LOOP;
END
$$;

-- Remove all leases and waiters of a key, readable or not. The key's own row stays, for its fence.
CREATE FUNCTION tenure.lease_discard(_namespace text, _key text)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _leases integer;
    _line integer;
BEGIN
    -- index: lease_key_pkey
    PERFORM FROM tenure.lease_key k
    WHERE k.namespace = _namespace AND k.key = _key FOR NO KEY UPDATE;
    -- index: lease_pkey
    DELETE FROM tenure.lease l WHERE l.namespace = _namespace AND l.key = _key;
    GET DIAGNOSTICS _leases = ROW_COUNT;
    -- index: waiter_pkey
    DELETE FROM tenure.waiter w WHERE w.namespace = _namespace AND w.key = _key;
    GET DIAGNOSTICS _line = ROW_COUNT;
    -- index: lease_key_pkey
    UPDATE tenure.lease_key k SET held = 0, waiting = 0, expired = '{}'
    WHERE k.namespace = _namespace AND k.key = _key
      AND (k.held > 0 OR k.waiting > 0 OR k.expired <> '{}');
    RETURN FOUND OR _leases + _line > 0;
END
$$;

-- End each lease and its holder's place in the queue: y if the lease was live, else n.
CREATE FUNCTION tenure.lease_release(_namespace text, _leases json, _test_now bigint)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _answers text := repeat('n', json_array_length(_leases));
    _lease record;
    _ended record;
    _was_live boolean;
    _k tenure.lease_key;
    _found tenure.lease_key;
    _now bigint;
BEGIN
    -- Locked in the order of keys, answered in the order of the arguments.
    FOR _lease IN
        SELECT * FROM ROWS FROM (
            json_to_recordset(_leases) AS (key text, holder text, fence bigint)
        ) WITH ORDINALITY AS asked (key, holder, fence, number)
        ORDER BY asked.key COLLATE "C", asked.number
    LOOP
        -- index: lease_key_pkey
        SELECT * INTO _k FROM tenure.lease_key k
        WHERE k.namespace = _namespace AND k.key = _lease.key FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND;
        _now := tenure.now(_test_now);
        _found := _k;
        _was_live := false;
        IF _k.held > 0 THEN
            _ended := tenure.lease_end(_k, _lease.holder, _lease.fence, _now);
            _was_live := _ended.live;
            IF _was_live THEN
                _answers := overlay(_answers PLACING 'y' FROM _lease.number::integer);
            END IF;
            _k.held := _k.held - _ended.gone;
        END IF;
        IF _k.waiting > 0 THEN
            -- index: waiter_holder
            DELETE FROM tenure.waiter w
            WHERE w.namespace = _namespace AND w.key = _lease.key AND w.holder = _lease.holder;
            IF FOUND THEN
                _k.waiting := _k.waiting - 1;
            END IF;
        END IF;
        IF _k IS DISTINCT FROM _found THEN
            -- index: lease_key_pkey
            UPDATE tenure.lease_key k SET held = _k.held, waiting = _k.waiting
            WHERE k.namespace = _namespace AND k.key = _lease.key;
        END IF;
        IF _k.held > 0 OR _k.waiting > 0 THEN
            _k := tenure.lease_settle(_k, _now);
        END IF;
        -- A holder that is late leaves nothing behind for the next one to take over.
        IF _lease.fence = ANY (_k.expired) THEN
            -- index: lease_key_pkey
            UPDATE tenure.lease_key k SET expired = array_remove(k.expired, _lease.fence)
            WHERE k.namespace = _namespace AND k.key = _lease.key;
        ELSIF _k.held > 0 AND _lease.fence > 0 AND NOT _was_live THEN
            -- Still there, because another transaction has it locked.
            -- index: lease_pkey
            UPDATE tenure.lease l SET ttl = 0
            WHERE l.namespace = _namespace AND l.key = _lease.key AND l.fence = _lease.fence
              AND l.holder = _lease.holder AND l.renewed + l.ttl <= _now;
        END IF;
        IF _k.waiting > 0 THEN
            PERFORM tenure.lease_wake(_k);
        END IF;
    END LOOP;
    RETURN _answers;
END
$$;

-- Store a value if the lease is live, or if the same value was stored under it before.
CREATE FUNCTION tenure.lease_mark(
    _namespace text, _key text, _value text,
    _lease_key text, _holder text, _fence bigint, _test_now bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _ends bigint;
BEGIN
    -- index: mark_pkey
    PERFORM FROM tenure.mark m
    WHERE m.namespace = _namespace AND m.key = _key AND m.value = _value AND m.fence = _fence;
    IF FOUND THEN
        RETURN true;
    END IF;
    -- FOR SHARE keeps the lease until this commits. FOR KEY SHARE would too, but would not wait for
    -- a concurrent renewal, and would see a lease as ended that has just been renewed.
    -- index: lease_pkey
    SELECT CASE WHEN l.ttl > 0 THEN l.renewed + l.ttl ELSE 0 END INTO _ends
    FROM tenure.lease l
    WHERE l.namespace = _namespace AND l.key = _lease_key AND l.fence = _fence
      AND l.holder = _holder
    FOR SHARE;
    IF NOT FOUND OR _ends <= tenure.now(_test_now) THEN
        RETURN false;
    END IF;
    INSERT INTO tenure.mark (namespace, key, value, fence)
    VALUES (_namespace, _key, _value, _fence)
    ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, fence = excluded.fence;
    RETURN true;
END
$$;

-- Bind the caller's transaction to a lease: return whether it is live, and lock its row until that
-- transaction ends. Its place is not granted before (see lease_settle), but renewals pass.
CREATE FUNCTION tenure.lease_hold(
    _namespace text, _key text, _holder text, _fence bigint, _test_now bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _ends bigint;
BEGIN
    -- index: lease_pkey
    SELECT CASE WHEN l.ttl > 0 THEN l.renewed + l.ttl ELSE 0 END INTO _ends
    FROM tenure.lease l
    WHERE l.namespace = _namespace AND l.key = _key AND l.fence = _fence AND l.holder = _holder
    FOR KEY SHARE;
    RETURN FOUND AND _ends > tenure.now(_test_now);
END
$$;

-- Remove keys without holders and waiters that were last used _idle ago.
CREATE FUNCTION tenure.lease_prune(
    _namespace text, _idle bigint, _most integer, _test_now bigint
) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now bigint := tenure.now(_test_now);
    _k tenure.lease_key;
    _keys text[] := '{}';
    _floor bigint := 0;
BEGIN
    -- A locked key is in use. The check of the other two tables only saves work, because it may be
    -- older than the lock; the check below, after the lock, decides.
    -- index: lease_key_idle, lease_ends, waiter_pkey
    FOR _k IN
        SELECT * FROM tenure.lease_key k
        WHERE k.namespace = _namespace AND k.used_hour <= (_now - _idle) / 3600000000
          AND k.used <= _now - _idle
          AND NOT EXISTS (
              SELECT FROM tenure.lease l
              WHERE -l.key_id = -k.id AND l.renewed + l.ttl > _now)
          AND NOT EXISTS (
              SELECT FROM tenure.waiter w
              WHERE w.namespace = _namespace AND w.key = k.key
                AND w.renewed::float8 + w.life > _now)
        LIMIT _most FOR UPDATE SKIP LOCKED
    LOOP
        _k := tenure.lease_settle(_k, _now);
        IF _k.held = 0 AND _k.waiting = 0 AND _k.used <= _now - _idle THEN
            _keys := _keys || _k.key;
            _floor := greatest(_floor, tenure.fence_after(_k.fence) - 1);
        END IF;
    END LOOP;
    IF cardinality(_keys) > 0 THEN
        -- In one transaction: a caller that finds a key missing finds its fence in the floor.
        INSERT INTO tenure.space AS s (namespace, floor) VALUES (_namespace, _floor)
        ON CONFLICT (namespace) DO UPDATE SET floor = greatest(s.floor, excluded.floor);
        -- index: lease_key_pkey
        DELETE FROM tenure.lease_key k WHERE k.namespace = _namespace AND k.key = ANY (_keys);
    END IF;
    RETURN cardinality(_keys);
END
$$;
