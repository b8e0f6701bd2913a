-- Prelude of every lease script: the keys of leases, and how they are read.
--
-- Each script first handles lease keys without a crowd, the usual case, and returns if that is all. The
-- functions of crowd.lua come later in the script (scripts.py inserts them), because defining functions
-- takes time: those for crowds would take a third of the time of a plain lock.
--
-- A lease key has up to four Redis keys, always passed in this order; `at` is the index of the first one
-- in KEYS.
--
--   head      nothing: the lease key is free
--             ALONE: one lease without waiters, all in this value
--             CROWD: several leases, or waiters; a summary, so that no script has to count them
--             EXPIRED: the lease key is free, and leases of it have expired
--   places    crowd: zset holder -> score. A waiter's score is negative and counts arrivals, a
--             lease's is the instant of its end. So waiters come first, in order of arrival, then
--             leases by their end, and a holder is one or the other, never both.
--   info      crowd: hash holder -> the details of the lease or waiter
--   patience  crowd: zset waiter -> instant at which its record ends
--
-- Every script that reads a key drops ended leases, so a clock that is set back later does not revive
-- them. The fences of leases that ended without a release stay in the head, in order, until a grant takes
-- their place: `expired` is a list of them, or nil.
--
-- Instants and durations are whole microseconds, exact in Lua's doubles below 2^53. They are passed to
-- redis.call as numbers, which prints all digits; tostring and '..' would not.
--
-- Values are packed with cmsgpack, which takes a third of the time of string.format and string.match.

local call, pack, decode = redis.call, cmsgpack.pack, cmsgpack.unpack

local ALONE, CROWD, UNREADABLE, EXPIRED = 1, 2, 3, 4
local EXPIRED_MAX = 100  -- as in core.leases
local NAMES = KEYS[1]  -- zset of all lease keys in use, score 0, for listings by prefix
local DAY = 86400000000

local now = tonumber(ARGV[1])  -- a test's clock, or empty for the server's
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Whether the values of a head, or of details in a crowd, are sound; see soundness.lua.
local function is_lease(holder, fence, since, renewed, ttl, limit, meta)
  return type(holder) == 'string' and is_whole(fence, 0, INSTANT_MAX) and is_instant(since)
    and is_instant(renewed) and is_whole(ttl, 0, SPAN_MAX) and is_whole(limit, 1, LIMIT_MAX)
    and type(meta) == 'string'
end

local function is_fences(expired)
  if not expired then
    return true
  elseif type(expired) ~= 'table' or #expired > EXPIRED_MAX then
    return false
  end
  for place, fence in pairs(expired) do
    if not (is_whole(place, 1, EXPIRED_MAX) and is_whole(fence, 0, INSTANT_MAX)) then
      return false
    end
  end
  return true
end

local function is_crowd(seen, kept, granted, waiters, limits, strictest)
  if not (is_instant(seen) and is_instant(kept) and is_instant(granted)
    and is_whole(waiters, 0, LIMIT_MAX) and type(limits) == 'table'
    and is_whole(strictest, 0, LIMIT_MAX)) then
    return false
  end
  for limit, holders in pairs(limits) do
    if not (is_whole(limit, 1, LIMIT_MAX) and is_whole(holders, 1, LIMIT_MAX)) then
      return false
    end
  end
  return true
end

-- Return the head of a lease key; '' if the key has another type.
local function head_of(at)
  local head = redis.pcall('GET', KEYS[at])
  return type(head) == 'table' and '' or head
end

-- Redis deletes the keys of a crashed holder a day after the end of the lease. That only collects
-- garbage: a lease has ended if its instant is not after `now`.
local function save_alone(at, holder, fence, since, renewed, ttl, limit, meta, kept, expired)
  local head = (kept or expired)
    and pack(ALONE, holder, fence, since, renewed, ttl, limit, meta, kept or false, expired or false)
    or pack(ALONE, holder, fence, since, renewed, ttl, limit, meta)
  call('SET', KEYS[at], head, 'PX', math.ceil((ttl + DAY) / 1000))
end

-- `used` is the instant of the latest grant, or the end of a lease that has expired since. It is in the
-- same position as the former in the other heads.
local function save_expired(at, used, expired)
  call('SET', KEYS[at], pack(EXPIRED, '', 0, used, expired), 'PX', math.ceil(DAY / 1000))
end

-- Return the newest of both lists, in order.
local function add_expired(expired, fences)
  for _, fence in ipairs(expired or {}) do
    fences[#fences + 1] = fence
  end
  table.sort(fences)
  return {unpack(fences, math.max(1, #fences - EXPIRED_MAX + 1))}
end

local function forget(at, name)
  call('DEL', KEYS[at])
  call('ZREM', NAMES, name)
end

-- Return what a head says:
--   nil, expired, used (the key is free)
--   UNREADABLE
--   ALONE, holder, fence, since, renewed, ttl, limit, meta, kept (or nil), expired
--   CROWD, seen, kept, granted, waiters, limits, strictest, expired
local function look(at, name, head)
  if not head then
    return nil
  end
  local readable, kind, holder, fence, since, renewed, ttl, limit, meta, kept, expired =
    pcall(decode, head)
  if not (readable and (
    kind == ALONE and is_lease(holder, fence, since, renewed, ttl, limit, meta)
      and is_fences(expired)
    or kind == CROWD and is_crowd(holder, fence, since, renewed, ttl, limit) and is_fences(meta)
    or kind == EXPIRED and is_instant(since) and type(renewed) == 'table' and is_fences(renewed)
  )) then
    return UNREADABLE
  end
  if kind == EXPIRED then
    return nil, renewed, since
  end
  if kind == ALONE then
    if renewed > now then
      -- The clock was set back behind the last renewal; counted from there, it would live too long.
      renewed = now
      redis.pcall('ZREM', NAMES, '\0')  -- `list` begins without it, and a full server asks for it
      save_alone(at, holder, fence, since, renewed, ttl, limit, meta, kept, expired)
    end
    if renewed + ttl <= now then
      local used = kept and since or renewed + ttl
      expired = kept and expired or not kept and add_expired(expired, {fence}) or nil
      if not expired then
        forget(at, name)
        return nil
      end
      redis.pcall('ZREM', NAMES, '\0')
      save_expired(at, used, expired)
      return nil, expired, used
    end
  end
  return kind, holder, fence, since, renewed, ttl, limit, meta, kept, expired or nil
end

