-- In front of every lease script: what is stored of leases, and how it is looked at.
--
-- Each script first answers for lease keys without a crowd, which is the rule, and returns if that is
-- all. Only then come the functions of crowd.lua (scripts.py inserts them), because functions cost time when they are defined:
-- those for crowds would be a third of the time that a plain lock takes.
--
-- Of a lease key there are up to four Redis keys, always passed in this order; `at` is the index
-- of the first one in KEYS.
--
--   head      nothing: the lease key is free
--             ALONE: one lease and no line, the whole of it in this one value
--             CROWD: several leases or a line; a summary, so that no script has to count them
--   places    crowd: zset holder -> score. A waiter's score is negative and counts arrivals, a
--             lease's is the instant of its end. So waiters come first, in order of arrival, then
--             leases by their end, and a holder is one or the other, never both.
--   info      crowd: hash holder -> what is known of the lease or waiter
--   patience  crowd: zset waiter -> instant at which its record ends
--
-- A look at a key, for whatever purpose, drops what has ended. So a clock that is stepped back
-- later does not bring it to life again.
--
-- Instants and durations are whole microseconds, exact in Lua's doubles below 2^53. They are
-- handed to redis.call as numbers, which prints all their digits; tostring and '..' would not.
--
-- Values are packed with cmsgpack: a third of the time that string.format and string.match take.

local call, pack, decode = redis.call, cmsgpack.pack, cmsgpack.unpack

local ALONE, CROWD, UNREADABLE = 1, 2, 3
local NAMES = KEYS[1]  -- zset of all lease keys in use, score 0, for listings by prefix
local DAY = 86400000000

local now = tonumber(ARGV[1])  -- a test's clock, or empty for the server's
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Whether the values of a head, or of details in a crowd, are such; see prelude.lua.
local function is_lease(holder, fence, since, renewed, ttl, limit, meta)
  return type(holder) == 'string' and is_whole(fence, 0, INSTANT_MAX) and is_instant(since)
    and is_instant(renewed) and is_whole(ttl, 0, SPAN_MAX) and is_whole(limit, 1, LIMIT_MAX)
    and type(meta) == 'string'
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

-- Return the head of a lease key; '' if there is something else in its place.
local function head_of(at)
  local head = redis.pcall('GET', KEYS[at])
  return type(head) == 'table' and '' or head
end

-- Redis deletes what a crashed holder left, a day after the end of the lease. That only collects
-- garbage: whether a lease has ended is decided by its instant, against `now`.
local function save_alone(at, holder, fence, since, renewed, ttl, limit, meta)
  call('SET', KEYS[at], pack(ALONE, holder, fence, since, renewed, ttl, limit, meta),
    'PX', math.ceil((ttl + DAY) / 1000))
end

local function forget(at, name)
  call('DEL', KEYS[at])
  call('ZREM', NAMES, name)
end

-- Return what a head says, nothing if the key is free:
--   UNREADABLE
--   ALONE, holder, fence, since, renewed, ttl, limit, meta
--   CROWD, seen, kept, granted, waiters, limits, strictest
local function look(at, name, head)
  if not head then
    return nil
  end
  local readable, kind, holder, fence, since, renewed, ttl, limit, meta = pcall(decode, head)
  if not (readable and (kind == ALONE and is_lease(holder, fence, since, renewed, ttl, limit, meta)
    or kind == CROWD and is_crowd(holder, fence, since, renewed, ttl, limit))) then
    return UNREADABLE
  end
  if kind == ALONE then
    if renewed > now then
      -- The clock stepped back behind the last renewal; counted from there, it would live too long.
      renewed = now
      redis.pcall('ZREM', NAMES, '\0')  -- `list` begins without it, and a full server asks for it
      save_alone(at, holder, fence, since, renewed, ttl, limit, meta)
    end
    if renewed + ttl <= now then
      forget(at, name)
      return nil
    end
  end
  return kind, holder, fence, since, renewed, ttl, limit, meta
end

