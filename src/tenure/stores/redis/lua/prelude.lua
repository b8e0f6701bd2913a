-- Shared by every lease script: the loader puts this file in front of each of them.
--
-- Of a lease key there are up to four Redis keys, always passed in this order; `at` is the index
-- of the first one in KEYS.
--
--   head      nothing: the lease key is free.
--             ALONE: one lease and no line, the whole of it in this one value. Most locks never
--                    are anything else, which saves them three quarters of the commands.
--             CROWD: several leases or a line; a summary, kept so that no script has to count.
--   places    crowd: zset holder -> score. A waiter's score is negative and counts arrivals, a
--             lease's is the instant of its end. So waiters come first, in order of arrival, then
--             leases by their end, and a holder is one or the other, never both.
--   info      crowd: hash holder -> what is known of the lease or waiter
--   patience  crowd: zset waiter -> instant at which its record ends
--
-- Instants and durations are whole microseconds, exact in Lua's doubles below 2^53. They are
-- handed to redis.call as numbers, which prints all their digits; tostring and '..' would not.
--
-- Values are packed with cmsgpack: a third of the time that string.format and string.match take.

local call, pack, decode = redis.call, cmsgpack.pack, cmsgpack.unpack

local ALONE, CROWD = 1, 2
local NAMES = KEYS[1]        -- zset of all lease keys in use, score 0, for listings by prefix
local FIRST_PLACE = -2 ^ 52  -- the arrival number of the first in a new line
local DAY = 86400000000

local now = tonumber(ARGV[1])  -- a test's clock, or empty for the server's
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Redis deletes what crashed holders left behind, a day after the end of the longest lease. That
-- only collects garbage: whether a lease has ended is decided by its instant, against `now`.
local function milliseconds_to_keep(duration)
  return math.ceil((duration + DAY) / 1000)
end

local function forget(at, name)
  call('DEL', KEYS[at])
  call('ZREM', NAMES, name)
end

local function save_alone(key)
  call('SET', KEYS[key.at],
    pack(ALONE, key.holder, key.fence, key.since, key.renewed, key.ttl, key.limit, key.meta),
    'PX', milliseconds_to_keep(key.ttl))
end

-- An emptied crowd leaves only its head behind: Redis drops empty zsets and hashes by itself.
local function save_crowd(key)
  if key.live + key.waiters == 0 then
    forget(key.at, key.name)
  else
    call('SET', KEYS[key.at],
      pack(CROWD, key.seen, key.kept, key.granted, key.waiters, key.limits),
      'PX', milliseconds_to_keep(math.max(key.kept - now - DAY, 0)))
  end
end

-- Let a crowd's keys outlive a lease or waiter of this length. Done anew only after half a day, so
-- that hardly any call pays for it, and never for a shorter time than before. `fresh`: one of
-- the keys was made just now.
local function keep_crowd(key, duration, fresh)
  local till = now + duration + DAY
  if fresh or key.kept < till - DAY / 2 then
    key.kept = math.max(key.kept, till)
    -- A minute longer than the head, which therefore never stands there without them.
    local milliseconds = math.ceil((key.kept - now) / 1000) + 60000
    for i = 1, 3 do
      call('PEXPIRE', KEYS[key.at + i], milliseconds)
    end
  end
end

local function count(key, limit, change)
  local holders = (key.limits[limit] or 0) + change
  key.limits[limit] = holders > 0 and holders or nil
  key.live = key.live + change
end

local function read_info(key, holder)
  local fence, since, renewed, life, limit, ttl, meta, address =
    decode(call('HGET', KEYS[key.at + 2], holder))
  return {
    fence = fence, since = since, renewed = renewed, life = life,
    limit = limit, ttl = ttl, meta = meta, address = address,
  }
end

-- `life` is how long the record lives from `renewed`: a lease's ttl, or a waiter's patience.
local function write_info(key, holder, one)
  call('HSET', KEYS[key.at + 2], holder, pack(one.fence, one.since, one.renewed, one.life,
    one.limit, one.ttl, one.meta, one.address))
end

local function drop_lease(key, holder, limit)
  call('ZREM', KEYS[key.at + 1], holder)
  call('HDEL', KEYS[key.at + 2], holder)
  count(key, limit, -1)
end

local function drop_waiter(key, holder)
  call('ZREM', KEYS[key.at + 1], holder)
  call('HDEL', KEYS[key.at + 2], holder)
  call('ZREM', KEYS[key.at + 3], holder)
  key.waiters = key.waiters - 1
end

-- The clock stepped back behind something granted or renewed: whatever began in what is now the
-- future begins now instead. The only walk over all holders, and only after such a step.
local function clamp_crowd(key)
  local places = call('ZRANGE', KEYS[key.at + 1], 0, -1)
  for rank, holder in ipairs(places) do
    local one = read_info(key, holder)
    if one.renewed > now then
      one.renewed = now
      write_info(key, holder, one)
      local ends = rank > key.waiters and KEYS[key.at + 1] or KEYS[key.at + 3]
      call('ZADD', ends, now + one.life, holder)
    end
  end
  key.seen = now
end

local function settle_crowd(key)
  local stepped_back = now < key.seen
  if stepped_back then
    clamp_crowd(key)
  end
  local ended = call('ZRANGEBYSCORE', KEYS[key.at + 1], 0, now)
  for _, holder in ipairs(ended) do
    drop_lease(key, holder, read_info(key, holder).limit)
  end
  local gone = {}
  if key.waiters > 0 then
    gone = call('ZRANGEBYSCORE', KEYS[key.at + 3], 0, now)
    for _, holder in ipairs(gone) do
      drop_waiter(key, holder)
    end
  end
  if stepped_back or #ended > 0 or #gone > 0 then
    save_crowd(key)
  end
  return key.live + key.waiters > 0 and key or nil
end

local function settle_alone(key)
  if key.renewed > now then
    key.renewed = now
    save_alone(key)
  end
  if key.renewed + key.ttl <= now then
    forget(key.at, key.name)
    return nil
  end
  return key
end

-- Return what is known of a lease key, without what has ended; nil if it is free.
local function look(at, name)
  local head = call('GET', KEYS[at])
  if not head then
    return nil
  end
  local kind, a, b, c, d, e, f, g = decode(head)
  if kind == ALONE then
    return settle_alone({
      at = at, name = name, live = 1, waiters = 0,
      holder = a, fence = b, since = c, renewed = d, ttl = e, limit = f, meta = g,
    })
  end
  local live = 0
  for _, holders in pairs(e) do
    live = live + holders
  end
  return settle_crowd({
    at = at, name = name, live = live, waiters = d,
    seen = a, kept = b, granted = c, limits = e,
  })
end

-- Return the lease of `holder`, if it has a live one.
local function lease_of(key, holder)
  if key.holder then
    return key.holder == holder and key or nil
  end
  local place = call('ZSCORE', KEYS[key.at + 1], holder)
  return place and tonumber(place) > 0 and read_info(key, holder) or nil
end

-- Return the smallest limit in use.
local function smallest_limit(key)
  local smallest = math.huge
  for limit in pairs(key.limits) do
    smallest = math.min(smallest, limit)
  end
  return smallest
end

-- Tell the first in line that there is room for it, and nobody else. Only a hint, so a refusal
-- (a user without rights on the channel) must not fail what has been written already.
local function wake_first(key)
  if key.waiters > 0 then
    local first = call('ZRANGE', KEYS[key.at + 1], 0, 0)[1]
    local one = read_info(key, first)
    if key.live < math.min(one.limit, smallest_limit(key)) then
      redis.pcall('PUBLISH', one.address, 'lease ' .. first)
    end
  end
end
