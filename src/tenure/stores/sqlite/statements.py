"""The lease statements. Each names what serves it; `:namespace :now :boot_id` are always given.

Every one that writes runs under the write lock, together with what it was decided from.
"""

from __future__ import annotations

from tenure.core import soundness as bounds
from tenure.stores.sqlite import soundness

# A fence that cannot be counted up is as good as none: then the clock decides.
_NEXT = f"""
    fence = iif(typeof(fence) = 'integer' AND fence BETWEEN 0 AND {bounds.INSTANT_MAX},
                max(fence + 1, excluded.fence), excluded.fence)
"""

# One fence for all keys of the namespace: larger than every earlier one, and never behind the
# clock. By primary key.
NEXT_FENCE = f"""
    INSERT INTO tenure_space (namespace, fence) VALUES (:namespace, :wall)
    ON CONFLICT (namespace) DO UPDATE SET {_NEXT}
    RETURNING fence
"""  # noqa: S608 - put together from constants

# The same if nothing at all is known of the key, else no row: whoever asks first need not look any
# further. By primary keys.
FENCE_IF_BARE = f"""
    INSERT INTO tenure_space (namespace, fence)
    SELECT :namespace, :wall
    WHERE NOT EXISTS (SELECT 1 FROM tenure_lease WHERE namespace = :namespace AND key = :key)
      AND NOT EXISTS (SELECT 1 FROM tenure_waiter WHERE namespace = :namespace AND key = :key)
    ON CONFLICT (namespace) DO UPDATE SET {_NEXT}
    RETURNING fence
"""  # noqa: S608 - put together from constants

# Any lease of the key; whether it is a lock's or a semaphore's shows how to go on. By primary key.
FIRST_LEASE = f"""
    SELECT holder, fence, "limit", ttl, meta, boot_id, granted, renewed, expires,
           {soundness.LEASE.of("tenure_lease")}
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key
    LIMIT 1
"""  # noqa: S608 - put together from constants

# By primary key.
LEASE = f"""
    SELECT holder, fence, "limit", ttl, meta, boot_id, granted, renewed, expires,
           {soundness.LEASE.of("tenure_lease")}
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder = :holder
"""  # noqa: S608 - put together from constants

# By primary key.
ADD_LEASE = """
    INSERT INTO tenure_lease (namespace, key, holder, fence, "limit", ttl, meta, boot_id,
                              granted, renewed, expires)
    VALUES (:namespace, :key, :holder, :fence, :limit, :ttl, :meta, :boot_id,
            :now, :now, :expires)
"""

# Only this very lease, and only while it lives. One that seems to be renewed in the future (see
# CLAMP_LEASES) lives by this test too. A row that breaks a constraint is left alone. By primary
# key.
RENEW_LEASE = """
    UPDATE OR IGNORE tenure_lease
    SET ttl = :ttl, renewed = :now, expires = :expires
    WHERE namespace = :namespace AND key = :key AND holder = :holder AND fence = :fence
      AND boot_id = :boot_id AND expires > :now
"""

# Changes nothing, but takes the write lock and says whether the lease is there. By primary key.
GUARD = """
    UPDATE OR IGNORE tenure_lease
    SET fence = fence
    WHERE namespace = :namespace AND key = :key AND holder = :holder AND fence = :fence
      AND boot_id = :boot_id AND expires > :now
"""

# By primary key.
IS_LIVE = """
    SELECT 1
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder = :holder AND fence = :fence
      AND boot_id = :boot_id AND expires > :now
"""

# By primary key.
REMOVE_LEASE = """
    DELETE FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder = :holder
"""

# This very lease of a lock, while it lives: nobody else can have one beside it. It says whether
# anybody waits. By primary keys.
RELEASE_LOCK = """
    DELETE FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder = :holder AND fence = :fence
      AND "limit" = 1 AND boot_id = :boot_id AND expires > :now
    RETURNING EXISTS (SELECT 1 FROM tenure_waiter WHERE namespace = :namespace AND key = :key)
"""

# All of a key, after the machine was started anew. By primary key.
REMOVE_LEASES = """
    DELETE FROM tenure_lease
    WHERE namespace = :namespace AND key = :key
"""

REMOVE_ENDED = """
    DELETE FROM tenure_lease INDEXED BY tenure_lease_end
    WHERE namespace = :namespace AND key = :key AND "limit" > 1 AND expires <= :now
"""

# Boot clocks begin again at 0 when the machine starts. Where that cannot be told by the boot id,
# old leases seem to be renewed in the future; they get a full ttl from now, so that they end.
# By primary key; it looks at all leases of the key, on systems without a boot id only.
CLAMP_LEASES = """
    UPDATE OR IGNORE tenure_lease
    SET renewed = :now, expires = :now + ttl
    WHERE namespace = :namespace AND key = :key AND renewed > :now
"""

NTH_END = """
    SELECT expires
    FROM tenure_lease INDEXED BY tenure_lease_end
    WHERE namespace = :namespace AND key = :key AND "limit" > 1
    ORDER BY expires
    LIMIT 1 OFFSET :nth
"""

NTH_END_FROM_LAST = """
    SELECT expires
    FROM tenure_lease INDEXED BY tenure_lease_end
    WHERE namespace = :namespace AND key = :key AND "limit" > 1
    ORDER BY expires DESC
    LIMIT 1 OFFSET :nth
"""

# By primary key.
LIMITS = """
    SELECT min("limit"), max("limit")
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND holder <> :holder
      AND typeof("limit") = 'integer'
"""

# For a semaphore whose row cannot be used: how many leases there are, and their limits. By primary
# key.
RECOUNT = """
    SELECT count(*), min("limit"), max("limit")
    FROM tenure_lease
    WHERE namespace = :namespace AND key = :key AND typeof("limit") = 'integer'
"""

# By primary key.
SEMAPHORE = f"""
    SELECT boot_id, live, lowest, highest
    FROM tenure_semaphore
    WHERE namespace = :namespace AND key = :key AND {soundness.SEMAPHORE.of("tenure_semaphore")}
"""  # noqa: S608 - put together from constants

# By primary key.
KEEP_SEMAPHORE = """
    INSERT INTO tenure_semaphore (namespace, key, boot_id, live, lowest, highest)
    VALUES (:namespace, :key, :boot_id, :live, :lowest, :highest)
    ON CONFLICT (namespace, key) DO UPDATE
    SET boot_id = excluded.boot_id, live = excluded.live, lowest = excluded.lowest,
        highest = excluded.highest
"""

# By primary key.
DISCARD_LEASES = """
    DELETE FROM tenure_lease
    WHERE namespace = :namespace AND key = :key
"""

# By primary key.
DISCARD_LINE = """
    DELETE FROM tenure_waiter
    WHERE namespace = :namespace AND key = :key
"""

# By primary key.
REMOVE_SEMAPHORE = """
    DELETE FROM tenure_semaphore
    WHERE namespace = :namespace AND key = :key
"""

# The whole line: a process has one place in it, whatever waits inside. By primary key.
LINE = f"""
    SELECT place, holder, "limit", boot_id, renewed, expires, {soundness.WAITER.of("tenure_waiter")}
    FROM tenure_waiter
    WHERE namespace = :namespace AND key = :key
    ORDER BY place
"""  # noqa: S608 - put together from constants

# By primary key.
JOIN_LINE = """
    INSERT INTO tenure_waiter (namespace, key, place, holder, "limit", ttl, meta, boot_id,
                               arrived, renewed, expires)
    VALUES (:namespace, :key, :place, :holder, :limit, :ttl, :meta, :boot_id,
            :now, :now, :expires)
"""

# By primary key.
KEEP_PLACE = """
    UPDATE OR IGNORE tenure_waiter
    SET "limit" = :limit, ttl = :ttl, meta = :meta, renewed = :now, expires = :expires
    WHERE namespace = :namespace AND key = :key AND place = :place
"""

# As CLAMP_LEASES. By primary key.
CLAMP_WAITER = """
    UPDATE OR IGNORE tenure_waiter
    SET renewed = :now, expires = :expires
    WHERE namespace = :namespace AND key = :key AND place = :place
"""

# By primary key.
REMOVE_WAITER = """
    DELETE FROM tenure_waiter
    WHERE namespace = :namespace AND key = :key AND place = :place
"""

# Keys from :first up to, not including, :after. Text is ordered by its UTF-8 bytes, which is the
# order of code points. By the primary keys of both tables, which are already in order of key.
LEASES = """
    SELECT key, 0 AS waiting, fence AS place, holder, fence, "limit", ttl, meta,
           granted AS since, renewed, expires
    FROM tenure_lease
    WHERE namespace = :namespace AND key >= :first AND key < :after
      AND boot_id = :boot_id AND expires > :now
    UNION ALL
    SELECT key, 1 AS waiting, place, holder, 0 AS fence, "limit", ttl, meta,
           arrived AS since, renewed, expires
    FROM tenure_waiter
    WHERE namespace = :namespace AND key >= :first AND key < :after
      AND boot_id = :boot_id AND expires > :now
    ORDER BY key, waiting, place
    LIMIT :limit
"""

# Keys with something to remove: what was last granted before :since and has ended, what is from
# another start of the machine, or what needs CLAMP_LEASES. It looks at every row of the
# namespace, by the primary keys; nothing but crashes leaves rows behind, so there are few.
KEYS_TO_PRUNE = """
    SELECT key
    FROM tenure_lease
    WHERE namespace = :namespace
      AND (boot_id <> :boot_id OR renewed > :now OR (expires <= :now AND granted <= :since))
    UNION
    SELECT key
    FROM tenure_waiter
    WHERE namespace = :namespace
      AND (boot_id <> :boot_id OR renewed > :now OR expires <= :now)
    LIMIT :limit
"""

# By primary key.
MARK = """
    INSERT INTO tenure_mark (namespace, key, value, fence)
    VALUES (:namespace, :key, :value, :fence)
    ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, fence = excluded.fence
"""

# By primary key.
MARKED = """
    SELECT value, fence
    FROM tenure_mark
    WHERE namespace = :namespace AND key = :key
"""
