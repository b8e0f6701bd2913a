-- In front of every lease script. scripts.py puts each one together out of
--
--   soundness.lua, soundness.leases.lua
--   prelude.lua         this file
--   <name>.alone.lua    answers if no crowd is involved, which is the rule, and returns
--   crowd.lua           functions for crowds
--   <name>.crowd.lua    answers for the rest
--
-- in this order, because functions cost time when they are defined: those for crowds would be a
-- third of the time that a plain lock takes.
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

